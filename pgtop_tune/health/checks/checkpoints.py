"""Checkpoints and the volume of WAL between them."""

from __future__ import annotations

from typing import Final

from pgtop_tune.advice.rules.wal import FULL_PER_S, needed_max_wal_bytes
from pgtop_tune.base.units import MB, about, count, duration
from pgtop_tune.health import needs
from pgtop_tune.health.bounds import BadValue, bounded, thresholds
from pgtop_tune.health.check import (
    Check,
    CheckConfidence,
    CheckFinding,
    Evidence,
    Findings,
    Fix,
    Limits,
    Severity,
    Threshold,
    Unknown,
)
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import by_hand
from pgtop_tune.health.rules import (
    SHORTEST_S,
    advice_facts,
    advised,
    as_shown,
    counted,
    counted_s,
    on_standby,
    too_young,
)
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.postgres import CheckpointCounters

_GROUP: Final = "checkpoints and WAL"
_MOST_BUFFERS: Final = 64 * MB
_SEGMENT: Final = 16 * MB
_TRIES: Final = (
    "a standby counts attempted restartpoints as well, one every 15 s until the primary's next checkpoint; check "
    "the primary instead"
)
"""Source: checkpointer.c (CheckpointerMain: "we'll check again in 15s", counted before it is tried)."""


def _view(facts: CheckFacts, column: str) -> str:
    """Return the view and column of a counter of checkpoints: a view of their own since 17."""
    if needs.major(facts) >= 17:
        return f"pg_stat_checkpointer.num_{column}"
    return f"pg_stat_bgwriter.checkpoints_{'req' if column == 'requested' else column}"


def _reset(facts: CheckFacts) -> str:
    return f"pg_stat_reset_shared('{'checkpointer' if needs.major(facts) >= 17 else 'bgwriter'}')"


def _by_volume(facts: CheckFacts) -> int:
    """Return the requested checkpoints that the volume of WAL explains; all of them where the volume is not known.

    The volume asks for one at each distance of WAL. The others are of CHECKPOINT, CREATE DATABASE with file_copy and
    base backups.

    Source: xlog.c (CalculateCheckpointSegments, XLogCheckpointNeeded): max_wal_size / (1 +
    checkpoint_completion_target) in whole segments, less the one it begins in.
    """
    checkpoints, wal, parameters = facts.have(needs.CHECKPOINTS), needs.WAL.of(facts), needs.parameters(facts)
    if isinstance(wal, Unavailable) or on_standby(facts):
        # A standby counts no WAL that it replays.
        return checkpoints.requested
    per_s = wal.wal_bytes / counted_s(facts, wal.stats_reset_ms)
    segment = _SEGMENT if parameters.find("wal_segment_size") is None else parameters.number("wal_segment_size")
    segments = parameters.number("max_wal_size") / (1 + parameters.number("checkpoint_completion_target")) // segment
    distance = max(segments - 1, 1) * segment
    return min(checkpoints.requested, round(per_s * counted_s(facts, checkpoints.stats_reset_ms) / distance))


def _requested(facts: CheckFacts, limits: Limits) -> Findings:
    checkpoints = facts.have(needs.CHECKPOINTS)
    if on_standby(facts):
        yield Unknown(_TRIES)
        return
    seconds = counted_s(facts, checkpoints.stats_reset_ms)
    if (young := too_young(seconds, limits["age"])) is not None:
        yield young
        return
    by_volume = _by_volume(facts)
    all_of_them = checkpoints.timed + by_volume
    share = 100 * by_volume / all_of_them if all_of_them else 0.0
    if all_of_them < limits["checkpoints"] or share <= limits["percent"]:
        return
    yield CheckFinding(
        severity=Severity.HIGH if share >= limits["high"] else Severity.WARNING,
        says=f"{share:.0f} % of {all_of_them} checkpoints were requested, most likely because max_wal_size was reached",
        evidence=(
            Evidence(
                f"{checkpoints.requested} requested, {by_volume} of them by WAL volume",
                _view(facts, "requested"),
            ),
            Evidence(f"{checkpoints.timed} timed", _view(facts, "timed")),
            as_shown(facts, "max_wal_size", "checkpoint_timeout"),
            counted(seconds, _reset(facts)),
        ),
        fix=_more_volume(facts),
        confidence=CheckConfidence.MEDIUM,
    )


def _interval(facts: CheckFacts, limits: Limits) -> Findings:
    checkpoints = facts.have(needs.CHECKPOINTS)
    if on_standby(facts) and checkpoints.done is None:
        yield Unknown(_TRIES)
        return
    seconds = counted_s(facts, checkpoints.stats_reset_ms)
    if (young := too_young(seconds, limits["age"])) is not None:
        yield young
        return
    # Timed checkpoints count even with nothing to write, so the distance can only look shorter than it is.
    count = checkpoints.done if checkpoints.done is not None else checkpoints.timed + checkpoints.requested
    count -= checkpoints.requested - _by_volume(facts)
    timeout_s = needs.parameters(facts).number("checkpoint_timeout")
    if count < limits["checkpoints"]:
        return
    every_s = seconds / count
    if every_s < limits["seconds"]:
        yield CheckFinding(
            severity=Severity.HIGH if every_s < limits["high"] else Severity.WARNING,
            says=f"a checkpoint every {every_s:.0f} s, checkpoint_timeout is {timeout_s:.0f} s",
            evidence=(
                Evidence(f"{count} checkpoints, {every_s:.0f} s each", _counter(facts, checkpoints)),
                as_shown(facts, "checkpoint_timeout", "max_wal_size"),
                counted(seconds, _reset(facts)),
            ),
            fix=advised(facts, "checkpoint_timeout") if timeout_s < 300 else _more_volume(facts),
        )


def _counter(facts: CheckFacts, checkpoints: CheckpointCounters) -> str:
    if checkpoints.done is not None:
        return "pg_stat_checkpointer.num_done"
    return f"{_view(facts, 'timed')} + {_view(facts, 'requested')}"


def _more_volume(facts: CheckFacts) -> Fix:
    fix = advised(facts, "max_wal_size")
    if fix.parameter is not None:
        return fix
    return by_hand(f"{fix.do} Measure under load: `pgtop-tune advise --group checkpoints --seconds 60`.")


def _target(facts: CheckFacts, limits: Limits) -> Findings:
    parameters = needs.parameters(facts)
    target = parameters.number("checkpoint_completion_target")
    if limits["low"] <= target <= limits["high"]:
        return
    consequence = (
        "the writes of a checkpoint come in a burst"
        if target < limits["low"]
        else ("a checkpoint has no spare time and may still write when the next is due")
    )
    yield CheckFinding(
        says=f"checkpoint_completion_target is {target:g}: {consequence}",
        evidence=(as_shown(facts, "checkpoint_completion_target"),),
        fix=advised(facts, "checkpoint_completion_target"),
    )


def _volume(facts: CheckFacts, limits: Limits) -> Findings:
    measured = advice_facts(facts)
    needed = None if measured is None else needed_max_wal_bytes(measured)
    if measured is None or measured.wal_bytes_per_s is None or needed is None:
        yield Unknown("the WAL rate is unknown: no session is active, and the counters are too young")
        return
    parameters = needs.parameters(facts)
    if (size := parameters.number("max_wal_size")) * limits["factor"] < needed:
        lasts_s = size / (1.0 + parameters.number("checkpoint_completion_target")) / measured.wal_bytes_per_s
        yield CheckFinding(
            says=f"at {about(measured.wal_bytes_per_s)}/s of WAL, max_wal_size {parameters.shown('max_wal_size')} "
            f"lasts {duration(lasts_s)}, and checkpoint_timeout is {parameters.shown('checkpoint_timeout')}",
            evidence=(
                Evidence(f"{about(measured.wal_bytes_per_s)}/s of WAL", measured.wal_rate_source),
                as_shown(facts, "max_wal_size", "checkpoint_timeout", "checkpoint_completion_target"),
                Evidence(f"lasts {duration(lasts_s)}", "max_wal_size / (1 + checkpoint_completion_target) / rate"),
            ),
            fix=advised(facts, "max_wal_size"),
            confidence=CheckConfidence.MEDIUM,
        )


def _disk(facts: CheckFacts, limits: Limits) -> Findings:
    machine = advice_facts(facts)
    if machine is None or machine.wal_disk_bytes is None:
        yield Unknown("the file system of pg_wal is not visible")
        return
    parameters = needs.parameters(facts)
    sizes = {name: parameters.number(name) for name in ("max_wal_size", "wal_keep_size")}
    kept = sum(sizes.values())
    share = 100 * kept / machine.wal_disk_bytes
    if share > limits["percent"]:
        yield CheckFinding(
            severity=Severity.HIGH,
            says=f"max_wal_size and wal_keep_size may take {share:.0f} % of the {about(machine.wal_disk_bytes)} WAL "
            "disk",
            evidence=(
                as_shown(facts, "max_wal_size", "wal_keep_size"),
                Evidence(f"{about(machine.wal_disk_bytes)} in all", "statvfs(3) of pg_wal"),
            ),
            fix=advised(facts, max(sizes, key=sizes.__getitem__)),
        )


def _buffers(facts: CheckFacts, limits: Limits) -> Findings:
    wal, parameters = facts.have(needs.WAL), needs.parameters(facts)
    seconds = counted_s(facts, wal.stats_reset_ms)
    young = too_young(seconds)
    if young is not None:
        yield young
        return
    per_s = wal.wal_buffers_full / seconds
    size = parameters.number("wal_buffers")
    if per_s > limits["per_second"] and size < _MOST_BUFFERS:
        yield CheckFinding(
            severity=Severity.INFO,
            says=f"wal_buffers {parameters.shown('wal_buffers')} were full {count(per_s)} times a second: backends had "
            "to write "
            "WAL themselves",
            evidence=(
                Evidence(f"{wal.wal_buffers_full} times in {seconds:.0f} s", "pg_stat_wal.wal_buffers_full"),
                as_shown(facts, "wal_buffers"),
                counted(seconds, "pg_stat_reset_shared('wal')"),
            ),
            fix=advised(facts, "wal_buffers"),
        )


_SIZES: Final = (
    BadValue(
        "max_wal_size",
        "4GB",
        "under load, checkpoints follow each other without a pause",
        below=1024 * MB,
        unit="bytes",
    ),
    BadValue(
        "checkpoint_timeout",
        "15min",
        "after each checkpoint, the first change of each page writes the whole page to WAL",
        below=300,
        unit="s",
        limit="checkpoint_timeout_low",
    ),
    BadValue(
        "checkpoint_timeout",
        "15min",
        "recovery after a crash replays the WAL since the last checkpoint",
        above=3600,
        unit="s",
        limit="checkpoint_timeout_high",
        severity=Severity.INFO,
    ),
)
_WRITING: Final = (
    BadValue("wal_buffers", "-1", "backends write WAL themselves before they commit", below=MB, unit="bytes"),
    BadValue("commit_delay", "0", "each commit of a busy server waits this many microseconds longer", above=1000),
    BadValue(
        "wal_writer_delay",
        "200ms",
        "with synchronous_commit = off, a crash loses the commits of up to three times this delay",
        above=1,
        unit="s",
    ),
    BadValue(
        "wal_compression",
        "on",
        "full-page images fill WAL, archive and network uncompressed",
        texts=("off",),
        severity=Severity.INFO,
    ),
    BadValue(
        "wal_sync_method",
        "fdatasync",
        "each WAL write waits for the disk separately",
        texts=("open_sync", "fsync_writethrough"),
    ),
)
_ENOUGH: Final = Threshold("checkpoints", 10, "", "fewer checkpoints are inconclusive")
_OLD_ENOUGH: Final = Threshold("age", SHORTEST_S, "s", "younger counters are inconclusive")

CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="WAL-01",
        group=_GROUP,
        title="requested checkpoints",
        why="A checkpoint requested by WAL volume comes in the middle of the load, and causes more WAL.",
        severity=Severity.HIGH,
        page="wal-configuration.html",
        needs=(needs.SERVER, needs.PARAMETERS, needs.CHECKPOINTS),
        look=_requested,
        thresholds=(
            Threshold("percent", 10, "%", "a larger share of requested ones is a warning"),
            Threshold("high", 50, "%", "a high finding from this value"),
            _ENOUGH,
            _OLD_ENOUGH,
        ),
        counts=True,
    ),
    Check(
        id="WAL-02",
        group=_GROUP,
        title="time between checkpoints",
        why="After every checkpoint the first change of each page writes the whole page into the WAL.",
        severity=Severity.HIGH,
        page="wal-configuration.html",
        needs=(needs.SERVER, needs.PARAMETERS, needs.CHECKPOINTS),
        look=_interval,
        thresholds=(
            Threshold("seconds", 180, "s", "a shorter mean interval is a warning"),
            Threshold("high", 60, "s", "a high finding below this value"),
            _ENOUGH,
            _OLD_ENOUGH,
        ),
        counts=True,
    ),
    Check(
        id="WAL-03",
        group=_GROUP,
        title="spread of checkpoint writes",
        why="The target is the share of the checkpoint interval over which writes are spread.",
        page="runtime-config-wal.html#GUC-CHECKPOINT-COMPLETION-TARGET",
        needs=(needs.PARAMETERS,),
        look=_target,
        thresholds=(
            Threshold("low", 0.7, "", "less makes the writes a burst"),
            Threshold("high", 0.95, "", "more leaves no spare time"),
        ),
    ),
    Check(
        id="WAL-04",
        group=_GROUP,
        title="max_wal_size and the WAL rate",
        why="Checkpoints started by volume instead of time come most often under the highest load.",
        page="runtime-config-wal.html#GUC-MAX-WAL-SIZE",
        needs=(needs.SERVER, needs.PARAMETERS),
        look=_volume,
        thresholds=(Threshold("factor", 1, "", "a warning when max_wal_size times this is below the needed size"),),
        counts=True,
        twice=True,
    ),
    Check(
        id="WAL-05",
        group=_GROUP,
        title="max_wal_size and the WAL disk",
        why="A server with a full WAL disk stops; max_wal_size is a soft limit, and load can exceed it.",
        severity=Severity.HIGH,
        page="runtime-config-wal.html#GUC-MAX-WAL-SIZE",
        needs=(needs.SERVER, needs.PARAMETERS, needs.FILE_SYSTEMS),
        look=_disk,
        thresholds=(Threshold("percent", 60, "%", "a larger share of the file system is a high finding"),),
    ),
    Check(
        id="WAL-06",
        group=_GROUP,
        title="WAL buffers",
        why="A backend that finds the WAL buffers full has to write them out itself while others wait for it.",
        severity=Severity.INFO,
        page="runtime-config-wal.html#GUC-WAL-BUFFERS",
        needs=(needs.SERVER, needs.PARAMETERS, needs.WAL),
        look=_buffers,
        thresholds=(Threshold("per_second", FULL_PER_S, "/s", "a finding when full more often"),),
        counts=True,
    ),
    Check(
        id="WAL-07",
        group=_GROUP,
        title="volume and time between checkpoints",
        why="These values decide how a server behaves under load; a quiet server does not show their effect.",
        page="wal-configuration.html",
        needs=(needs.PARAMETERS,),
        look=bounded(_SIZES),
        thresholds=thresholds(_SIZES),
    ),
    Check(
        id="WAL-08",
        group=_GROUP,
        title="WAL writing",
        why="Every commit waits until its WAL is written.",
        page="runtime-config-wal.html",
        needs=(needs.PARAMETERS,),
        look=bounded(_WRITING),
        thresholds=thresholds(_WRITING),
    ),
)
