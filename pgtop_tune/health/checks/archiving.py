"""Archiving of WAL: whether it is configured, and whether it keeps up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pgtop_tune.health import needs
from pgtop_tune.health.check import Check, Evidence, Finding, Fix, Limits, Severity, Threshold, Unknown
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import set_parameter, words
from pgtop_tune.health.questions import ARCHIVE_QUEUE
from pgtop_tune.health.rules import ON_STANDBY, now_ms, on_standby, setting
from pgtop_tune.units import duration

_GROUP: Final = "archiving"
_STATUS: Final = "pg_ls_archive_statusdir()"
_ARCHIVER: Final = "pg_stat_archiver"
_NOT_SHOWN: Final = "(disabled)"
"""What pg_settings has in place of archive_command while archive_mode is off, whatever it is set to."""


def _archiving(facts: CheckFacts, limits: Limits) -> Iterator[Finding | Unknown]:
    known = needs.parameters(facts)
    if on_standby(facts):
        yield Unknown(ON_STANDBY)
        return
    if known.text("wal_level") == "minimal":
        yield Finding(
            severity=Severity.WARNING,
            says="wal_level is minimal: the server supports no archive, no base backup and no standby",
            evidence=(setting(facts, "wal_level"),),
            fix=set_parameter(known.row("wal_level"), "replica"),
            subject="wal_level",
        )
    elif known.text("archive_mode") == "off":
        yield Finding(
            severity=Severity.INFO,
            says="archive_mode is off: the data can only be restored to the time of a backup",
            evidence=(setting(facts, "archive_mode", "wal_level"),),
            fix=_archive_mode(known),
            subject="archive_mode",
        )
    elif not _has_archiver(known):
        yield Finding(
            severity=Severity.HIGH,
            says="archive_mode is on without an archiver: WAL accumulates until the disk is full",
            evidence=(setting(facts, "archive_mode", "archive_command"),),
            fix=words("Set archive_command or archive_library; until then every segment stays in pg_wal."),
            subject="archive_command",
        )


def _archive_mode(known: needs.Parameters) -> Fix:
    """Without a command for it every segment would stay in pg_wal."""
    if _has_archiver(known):
        return set_parameter(known.row("archive_mode"), "on")
    return words("Set archive_command or archive_library first, then archive_mode=on and restart.")


def _has_archiver(known: needs.Parameters) -> bool:
    settings = (known.find(name) for name in ("archive_command", "archive_library"))
    return any(row is not None and row.setting not in ("", _NOT_SHOWN) for row in settings)


def _failing(facts: CheckFacts, limits: Limits) -> Iterator[Finding]:
    seen = facts.have(needs.ARCHIVER)
    if needs.parameters(facts).text("archive_mode") == "off":
        # What failed before it was switched off stays in the counters.
        return
    if seen.last_failed_ms is None or (seen.last_archived_ms or 0) >= seen.last_failed_ms:
        return
    ago = duration((now_ms(facts) - seen.last_failed_ms) / 1000)
    yield Finding(
        severity=Severity.HIGH,
        says=f"archiving fails: the last attempt ({ago} ago, {seen.last_failed_wal}) failed, and none has succeeded "
        "since",
        evidence=(
            Evidence(f"{seen.failed_count} failures, last {seen.last_failed_wal}", f"{_ARCHIVER}.failed_count"),
            Evidence(f"last archived {seen.last_archived_wal or 'nothing'}", f"{_ARCHIVER}.last_archived_wal"),
        ),
        fix=words("Run archive_command yourself as the server's account; the server's log has its messages."),
    )


def _queue(facts: CheckFacts, limits: Limits) -> Iterator[Finding]:
    if needs.parameters(facts).text("archive_mode") == "off":
        return
    for _, queue in facts.have(ARCHIVE_QUEUE):
        if queue.oldest_ms is None:
            continue
        waits_s = (queue.now_ms - queue.oldest_ms) / 1000
        if waits_s > limits["seconds"]:
            yield Finding(
                severity=Severity.HIGH if waits_s >= limits["high"] else Severity.WARNING,
                says=f"{queue.waiting} segments wait for the archive, the oldest for {duration(waits_s)}",
                evidence=(Evidence(f"{queue.waiting} files .ready, the oldest {waits_s:.0f} s old", _STATUS),),
                fix=words(
                    "Make archive_command faster (run it in parallel, or compress less), or the connection to the "
                    "archive."
                ),
            )


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="ARC-01",
        group=_GROUP,
        title="archiving of WAL",
        why="Without an archive of the WAL everything since the last backup is lost with the machine.",
        severity=Severity.HIGH,
        page="continuous-archiving.html",
        needs=(needs.SERVER, needs.PARAMETERS),
        look=_archiving,
    ),
    Check(
        id="ARC-02",
        group=_GROUP,
        title="failing archiver",
        why="Segments that cannot be archived fill the WAL disk, and a full WAL disk stops the server.",
        severity=Severity.HIGH,
        page="monitoring-stats.html#MONITORING-PG-STAT-ARCHIVER-VIEW",
        needs=(needs.PARAMETERS, needs.ARCHIVER),
        look=_failing,
    ),
    Check(
        id="ARC-03",
        group=_GROUP,
        title="lagging archive",
        why="Unarchived WAL is lost with the machine, and occupies the WAL disk.",
        severity=Severity.HIGH,
        page="continuous-archiving.html#BACKUP-ARCHIVING-WAL",
        needs=(needs.PARAMETERS, ARCHIVE_QUEUE),
        look=_queue,
        thresholds=(
            Threshold("seconds", 300, "s", "a segment that waits longer is a warning"),
            Threshold("high", 3600, "s", "a high finding from this value"),
        ),
    ),
)
