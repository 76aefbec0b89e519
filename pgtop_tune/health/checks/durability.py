"""Durability: data that a crash may lose, and detection of damage."""

from __future__ import annotations

from typing import Final

from pgtop_tune.base.units import duration
from pgtop_tune.health import needs
from pgtop_tune.health.bounds import BadValue, bounded
from pgtop_tune.health.check import Check, CheckFinding, Evidence, Findings, Fix, Language, Limits, Severity
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import by_hand, set_parameter
from pgtop_tune.health.questions import SCOPED
from pgtop_tune.health.rules import as_shown, counted, counted_s, scoped, scoped_finding, value_is
from pgtop_tune.model.absence import Unavailable

_GROUP: Final = "durability"
_DELAYS_LOST: Final = 3
"""The WAL writer flushes within three of its rounds (manual, "Asynchronous Commit")."""


_IS_OFF: Final = value_is(
    "fsync", {"off"}, "on", Severity.CRITICAL, "fsync is off: a crash of the machine can destroy the cluster"
)


def _fsync(facts: CheckFacts, limits: Limits) -> Findings:
    yield from _IS_OFF(facts, limits)
    machine = needs.MACHINE.of(facts)
    process = machine if isinstance(machine, Unavailable) else machine.postmaster
    if not isinstance(process, Unavailable) and process.no_flushes:
        yield CheckFinding(
            severity=Severity.CRITICAL,
            says=f"library {process.no_flushes} disables fsync in the server: a crash of the machine can "
            "destroy the cluster",
            evidence=(Evidence(f"the postmaster has loaded {process.no_flushes}", "/proc/PID/maps"),),
            fix=by_hand("Remove the library from LD_PRELOAD (and /etc/ld.so.preload), then restart the server."),
            subject="library",
        )


def _synchronous_commit(facts: CheckFacts, limits: Limits) -> Findings:
    parameters = needs.parameters(facts)
    window_s = parameters.number("wal_writer_delay") * _DELAYS_LOST
    consequence = f"a crash of the server loses acknowledged commits of the last {duration(window_s)}"
    row = parameters.row("synchronous_commit")
    if row.setting == "off":
        yield CheckFinding(
            says=f"synchronous_commit is off: {consequence}",
            evidence=(
                as_shown(facts, "synchronous_commit", "wal_writer_delay"),
                Evidence(f"{_DELAYS_LOST} × wal_writer_delay = {window_s * 1000:.0f} ms", "Asynchronous Commit"),
            ),
            fix=set_parameter(row, "on"),
        )
    for assignment in scoped(facts, {"synchronous_commit"}):
        if assignment.is_off:
            yield scoped_finding(assignment, Severity.INFO, consequence)


def _checksums(facts: CheckFacts, limits: Limits) -> Findings:
    if not needs.parameters(facts).on("data_checksums"):
        yield CheckFinding(
            severity=Severity.INFO,
            says="data checksums are off: the server does not detect pages that the storage has damaged",
            evidence=(as_shown(facts, "data_checksums"),),
            fix=Fix(
                do="pg_checksums --enable --progress --pgdata=DATADIR",
                undo="pg_checksums --disable --pgdata=DATADIR",
                language=Language.SHELL,
                remark="as the server's account, after a clean stop; reads and writes every page",
            ),
        )


def _failures(facts: CheckFacts, limits: Limits) -> Findings:
    for row in facts.have(needs.DATABASES).databases:
        if row.checksum_failures:
            name = row.datname or "shared objects"
            yield CheckFinding(
                severity=Severity.CRITICAL,
                says=f"checksum failures in {name}: {row.checksum_failures}",
                evidence=(
                    Evidence(f"{name}: {row.checksum_failures} failures", "pg_stat_database.checksum_failures"),
                    counted(counted_s(facts, row.stats_reset_ms), "pg_stat_reset() in that database"),
                ),
                fix=by_hand(
                    "Stop writing to this storage, find the files in the server's log, and restore them from a "
                    "verified backup."
                ),
                subject=name,
            )


_DAMAGE: Final = tuple(
    BadValue(
        name,
        "off",
        "the server silently skips damaged pages, and the damage spreads into backups",
        texts=("on",),
        severity=Severity.CRITICAL,
    )
    for name in ("zero_damaged_pages", "ignore_checksum_failure", "ignore_invalid_pages")
)
_AFTER_FAILURE: Final = (
    BadValue(
        "data_sync_retry",
        "off",
        "the kernel drops pages that it failed to write, and the next fsync reports success",
        texts=("on",),
        severity=Severity.CRITICAL,
    ),
    BadValue(
        "restart_after_crash",
        "on",
        "after a backend crash the server stays down unless a cluster manager starts it",
        texts=("off",),
    ),
    BadValue(
        "wal_consistency_checking", "", "a developer option: every WAL record holds full page images", texts=("all",)
    ),
)

CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="DUR-01",
        group=_GROUP,
        title="fsync",
        why="Without fsync a crash of the machine can leave data files beyond recovery.",
        severity=Severity.CRITICAL,
        page="runtime-config-wal.html#GUC-FSYNC",
        needs=(needs.PARAMETERS,),
        asks=(needs.MACHINE,),
        look=_fsync,
    ),
    Check(
        id="DUR-02",
        group=_GROUP,
        title="full-page writes",
        why="Only a full-page image in the WAL can repair a page half written at a power failure.",
        severity=Severity.CRITICAL,
        page="runtime-config-wal.html#GUC-FULL-PAGE-WRITES",
        needs=(needs.PARAMETERS,),
        look=value_is(
            "full_page_writes",
            {"off"},
            "on",
            Severity.CRITICAL,
            "full_page_writes is off: half-written pages stay damaged, unless the file system writes 8 kB atomically",
        ),
    ),
    Check(
        id="DUR-03",
        group=_GROUP,
        title="asynchronous commit",
        why="With synchronous_commit off the server acknowledges a commit before it is on disk.",
        page="wal-async-commit.html",
        needs=(needs.PARAMETERS, SCOPED),
        look=_synchronous_commit,
    ),
    Check(
        id="DUR-04",
        group=_GROUP,
        title="continuing despite damage",
        why="These switches help to rescue a damaged cluster; left on, they hide new damage.",
        severity=Severity.CRITICAL,
        page="runtime-config-developer.html#GUC-ZERO-DAMAGED-PAGES",
        needs=(needs.PARAMETERS,),
        look=bounded(_DAMAGE),
    ),
    Check(
        id="DUR-05",
        group=_GROUP,
        title="data checksums",
        why="Only checksums reveal damage by the storage, and only they can verify a backup.",
        severity=Severity.INFO,
        page="checksums.html",
        needs=(needs.PARAMETERS,),
        look=_checksums,
    ),
    Check(
        id="DUR-06",
        group=_GROUP,
        title="checksum failures",
        why="A failed checksum means damage has already happened, rarely to a single page.",
        severity=Severity.CRITICAL,
        page="monitoring-stats.html#MONITORING-PG-STAT-DATABASE-VIEW",
        needs=(needs.DATABASES,),
        look=_failures,
    ),
    Check(
        id="DUR-07",
        group=_GROUP,
        title="failed flushes and crashes",
        why="After a failed flush, only a crash and recovery from the WAL restore the pages that the kernel dropped.",
        severity=Severity.CRITICAL,
        page="runtime-config-error-handling.html",
        needs=(needs.PARAMETERS,),
        look=bounded(_AFTER_FAILURE),
    ),
)
