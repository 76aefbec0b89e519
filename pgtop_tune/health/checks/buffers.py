"""Writers of dirty buffers: the background writer, or backends that wanted to read."""

from __future__ import annotations

import math
from typing import Final

from msgspec import Struct

from pgtop_tune.base.units import count
from pgtop_tune.health import needs
from pgtop_tune.health.check import (
    Check,
    CheckConfidence,
    CheckFinding,
    Evidence,
    Findings,
    Limits,
    Severity,
    Threshold,
    Unknown,
)
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import by_hand, set_parameter
from pgtop_tune.health.rules import as_shown, counted, counted_s, too_young, value_finding
from pgtop_tune.model.absence import Unavailable

_GROUP: Final = "background writer"
_PG_STAT_IO_SINCE: Final = 17
_VIEW: Final = "pg_stat_bgwriter"
_RESET: Final = "pg_stat_reset_shared('bgwriter')"
_ROUNDED_TO: Final = 100
_CONTEXTS_SINCE: Final = 16
_NOT_BACKENDS: Final = frozenset({"checkpointer", "background writer", "startup"})
"""No client waits for their writes; "startup" replays on a standby."""


class _Writers(Struct, frozen=True):
    """Rates at which processes wrote dirty buffers of relations, in buffers a second.

    Attributes:
        backends: By whom a user waits for; those that a bulk load or a vacuum writes from its own ring are not among
            them where they are counted apart: no background writer could have.
        by_processes: By the checkpointer and the background writer together.
        cleaned: By the background writer.
        source: Of the first.
    """

    backends: float
    by_processes: float
    cleaned: float
    source: str


def _writers(facts: CheckFacts) -> _Writers | None:
    """Return the rates; None where the server does not count writes of backends."""
    checkpoints, counted = facts.have(needs.CHECKPOINTS), needs.IO.of(facts)
    seconds = counted_s(facts, checkpoints.stats_reset_ms)
    cleaned = checkpoints.buffers_clean / seconds
    by_processes = checkpoints.buffers_checkpoint / seconds + cleaned
    if needs.major(facts) >= _CONTEXTS_SINCE and not isinstance(counted, Unavailable):
        written = sum(
            row.writes or 0
            for row in counted.rows
            if row.object == "relation" and row.context == "normal" and row.backend_type not in _NOT_BACKENDS
        )
        backends = written / counted_s(facts, counted.stats_reset_ms)
        return _Writers(
            backends=backends, by_processes=by_processes, cleaned=cleaned, source="pg_stat_io.writes, context normal"
        )
    if checkpoints.buffers_backend is None:
        return None
    return _Writers(
        backends=checkpoints.buffers_backend / seconds,
        by_processes=by_processes,
        cleaned=cleaned,
        source=f"{_VIEW}.buffers_backend",
    )


def _by_backends(facts: CheckFacts, limits: Limits) -> Findings:
    writers = _writers(facts)
    if writers is None:
        yield Unknown("this server does not count buffers written by backends")
        return
    per_s = writers.backends + writers.by_processes
    seconds = counted_s(facts, facts.have(needs.CHECKPOINTS).stats_reset_ms)
    if (young := too_young(seconds)) is not None:
        yield young
    if per_s * seconds < limits["buffers"]:
        return
    share = 100 * writers.backends / per_s
    if share <= limits["percent"] or writers.backends <= writers.cleaned:
        return
    parameters = needs.parameters(facts)
    pages, mixed = parameters.whole("bgwriter_lru_maxpages"), needs.major(facts) < _CONTEXTS_SINCE
    yield CheckFinding(
        # Before 16 the counter includes each page by which a table grows, and so all of a bulk load.
        severity=Severity.INFO if mixed else Severity.HIGH if share >= limits["high"] else Severity.WARNING,
        says=f"backends wrote {share:.0f} % of {count(per_s * seconds)} dirty buffers themselves, the background "
        "writer "
        f"{100 * writers.cleaned / per_s:.0f} %",
        evidence=(
            Evidence(f"{count(writers.backends)} a second by backends", writers.source),
            Evidence(f"{count(writers.cleaned)} a second by the background writer", f"{_VIEW}.buffers_clean"),
            as_shown(facts, "bgwriter_delay", "bgwriter_lru_maxpages", "bgwriter_lru_multiplier"),
            counted(seconds, _RESET),
        ),
        fix=set_parameter(parameters.row("bgwriter_lru_maxpages"), str(max(4 * pages, 400))),
        confidence=CheckConfidence.LOW if mixed else CheckConfidence.HIGH,
    )


def _halted(facts: CheckFacts, limits: Limits) -> Findings:
    checkpoints, parameters = facts.have(needs.CHECKPOINTS), needs.parameters(facts)
    pages, delay_s = parameters.whole("bgwriter_lru_maxpages"), parameters.number("bgwriter_delay")
    if pages == 0:
        row, says = (
            parameters.row("bgwriter_lru_maxpages"),
            "the background writer is off, and backends clean buffers themselves",
        )
        yield value_finding(facts, row, says, set_parameter(row, "100"), subject="off")
        return
    seconds = counted_s(facts, checkpoints.stats_reset_ms)
    young = too_young(seconds)
    if young is not None:
        yield young
        return
    rounds = seconds / delay_s
    share = 100 * checkpoints.maxwritten_clean / rounds
    if share > limits["percent"]:
        better = math.ceil(pages * (1 + share / 100) / _ROUNDED_TO) * _ROUNDED_TO
        yield CheckFinding(
            says=f"the background writer stopped at bgwriter_lru_maxpages in {share:.0f} % of its rounds",
            evidence=(
                Evidence(f"{checkpoints.maxwritten_clean} times in {rounds:.0f} rounds", f"{_VIEW}.maxwritten_clean"),
                as_shown(facts, "bgwriter_lru_maxpages", "bgwriter_delay"),
                counted(seconds, _RESET),
            ),
            fix=set_parameter(parameters.row("bgwriter_lru_maxpages"), str(better)),
        )


def _fsyncs(facts: CheckFacts, limits: Limits) -> Findings:
    checkpoints = facts.have(needs.CHECKPOINTS)
    of_io = needs.major(facts) >= _PG_STAT_IO_SINCE
    io = needs.IO.of(facts)
    reset_ms = io.stats_reset_ms if of_io and not isinstance(io, Unavailable) else checkpoints.stats_reset_ms
    seconds = counted_s(facts, reset_ms)
    if (young := too_young(seconds)) is not None:
        yield young
    if checkpoints.backend_fsyncs is None:
        yield Unknown("this server does not count fsyncs by backends")
    elif checkpoints.backend_fsyncs > limits["fsyncs"]:
        source = "pg_stat_io.fsyncs" if of_io else f"{_VIEW}.buffers_backend_fsync"
        yield CheckFinding(
            says=f"backends had to sync files themselves {checkpoints.backend_fsyncs} times: the checkpointer's queue "
            "was full",
            evidence=(
                Evidence(f"{checkpoints.backend_fsyncs} fsyncs by backends", source),
                counted(seconds, "pg_stat_reset_shared('io')" if of_io else _RESET),
            ),
            fix=by_hand(
                "Enlarge the checkpointer's queue (it grows with shared_buffers), or use storage that syncs faster."
            ),
        )


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="BGW-01",
        group=_GROUP,
        title="dirty buffers written by backends",
        why="A backend that must write a page before reading one makes its client wait for two I/Os instead of one.",
        severity=Severity.HIGH,
        page="runtime-config-resource.html#RUNTIME-CONFIG-RESOURCE-BACKGROUND-WRITER",
        needs=(needs.SERVER, needs.PARAMETERS, needs.CHECKPOINTS),
        look=_by_backends,
        thresholds=(
            Threshold("percent", 20, "%", "a larger share is a warning if it exceeds the background writer's"),
            Threshold("high", 30, "%", "a high finding from this value"),
            Threshold("buffers", 10_000, "", "fewer written buffers are inconclusive"),
        ),
        counts=True,
    ),
    Check(
        id="BGW-02",
        group=_GROUP,
        title="background writer at its limit",
        why="A round that ends at bgwriter_lru_maxpages leaves dirty buffers for backends to write.",
        page="runtime-config-resource.html#GUC-BGWRITER-LRU-MAXPAGES",
        needs=(needs.SERVER, needs.PARAMETERS, needs.CHECKPOINTS),
        look=_halted,
        thresholds=(Threshold("percent", 10, "%", "a larger share of such rounds is a warning"),),
        counts=True,
    ),
    Check(
        id="BGW-03",
        group=_GROUP,
        title="fsync by backends",
        why="A backend that syncs a file waits for the disk in the middle of a statement.",
        page="monitoring-stats.html#MONITORING-PG-STAT-BGWRITER-VIEW",
        needs=(needs.SERVER, needs.CHECKPOINTS),
        look=_fsyncs,
        thresholds=(Threshold("fsyncs", 100, "", "more of them is a warning"),),
        counts=True,
    ),
)
