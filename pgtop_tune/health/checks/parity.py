"""A standby beside its primary: what replay needs, and what would change with a failover.

What replay needs stands in the standby's control file. Other settings of the primary are not in the WAL: they are known
only where both are checked together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.health import needs
from pgtop_tune.health.check import Check, Evidence, Finding, Limits, Severity, Unknown, about_several
from pgtop_tune.health.control_file import AT_LEAST, settings_of_primary
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import set_parameter, words
from pgtop_tune.health.questions import CONTROL
from pgtop_tune.model.absence import Unavailable

_SHOWN: Final = 4
_SAME: Final = {"always": "on"}
"""Of archive_mode, once the standby is a primary."""
_TOGETHER: Final = "check both together: --services or --servers"


class _Alike(Struct, frozen=True):
    """Parameters that should be the same on both, and what a failover changes where they are not."""

    kind: str
    severity: Severity
    so: str
    names: tuple[str, ...]


_ALIKE: Final = (
    _Alike(
        kind="safety",
        severity=Severity.WARNING,
        so="after a failover the data are less safe, or cannot be reached",
        names=(
            "wal_level", "fsync", "full_page_writes", "synchronous_commit", "archive_mode", "archive_library",
            "autovacuum", "data_sync_retry", "ssl", "ssl_min_protocol_version", "ssl_ciphers", "password_encryption",
            "shared_preload_libraries", "session_preload_libraries", "wal_log_hints",
            "track_commit_timestamp", "idle_in_transaction_session_timeout", "max_slot_wal_keep_size",
        ),
    ),
    _Alike(
        kind="speed",
        severity=Severity.WARNING,
        so="after a failover the load meets another server",
        names=(
            "shared_buffers", "work_mem", "hash_mem_multiplier", "maintenance_work_mem", "autovacuum_work_mem",
            "effective_cache_size", "huge_pages", "temp_buffers", "max_wal_size", "checkpoint_timeout",
            "checkpoint_completion_target", "wal_compression", "random_page_cost", "seq_page_cost",
            "effective_io_concurrency", "default_statistics_target", "jit", "max_parallel_workers",
            "max_parallel_workers_per_gather", "max_parallel_maintenance_workers", "autovacuum_max_workers",
            "autovacuum_vacuum_cost_limit", "bgwriter_lru_maxpages", "plan_cache_mode", "io_method", "io_workers",
        ),
    ),
    _Alike(
        kind="results",
        severity=Severity.WARNING,
        so="the same statement gives other results, or fails",
        names=(
            "TimeZone", "DateStyle", "IntervalStyle", "lc_messages", "lc_monetary", "lc_numeric", "lc_time",
            "default_text_search_config", "search_path", "default_transaction_isolation", "standard_conforming_strings",
            "bytea_output", "extra_float_digits", "statement_timeout", "lock_timeout",
        ),
    ),
    _Alike(
        kind="standby",
        severity=Severity.INFO,
        so="after a failover the other one is another kind of standby",
        names=(
            "hot_standby_feedback", "max_standby_streaming_delay", "max_standby_archive_delay", "wal_receiver_timeout",
        ),
    ),
    _Alike(
        kind="log",
        severity=Severity.INFO,
        so="logs of both are hard to compare",
        names=(
            "log_timezone", "log_line_prefix", "log_destination", "log_min_messages", "log_min_duration_statement",
            "log_statement", "log_checkpoints", "log_lock_waits", "track_io_timing", "compute_query_id",
        ),
    ),
)  # fmt: skip


def _parity(facts: CheckFacts, limits: Limits) -> Iterator[Finding | Unknown]:
    server = facts.have(needs.SERVER)
    if not server.in_recovery:
        return
    recorded: Mapping[str, str] = {}
    why = ""
    control = CONTROL.of(facts)
    if isinstance(control, Unavailable):
        why = str(control)
    else:
        try:
            for _, row in control:
                recorded = settings_of_primary(row.content, server.system_identifier)
        except ValueError as problem:
            why = str(problem)
    primary = facts.primary
    if isinstance(primary, Unavailable):
        if recorded:
            yield from _too_little(facts, recorded, "its WAL, in the control file")
        else:
            yield Unknown(f"the control file: {why}")
        yield Unknown(f"other settings of the primary are not in its WAL: {_TOGETHER}")
        return
    running = needs.parameters(primary)
    own = {name: running.text(name) for name in AT_LEAST if running.find(name) is not None}
    # One that the primary has raised and the WAL has not brought yet is missed at its record.
    yield from _too_little(facts, own | dict(_larger(recorded, own)), f"{primary.described}, and its WAL")
    yield from _different(facts, primary)
    yield from _programs(facts, primary)


def _larger(recorded: Mapping[str, str], own: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Of the WAL where the primary has lowered a value since: replay still needs the larger one."""
    for name in AT_LEAST:
        if name in recorded and int(recorded[name]) > int(own.get(name, "0")):
            yield name, recorded[name]


def _too_little(facts: CheckFacts, wanted: Mapping[str, str], source: str) -> Iterator[Finding]:
    known = needs.parameters(facts)
    for name in AT_LEAST:
        row = known.find(name)
        if row is None or name not in wanted or int(row.setting) >= int(wanted[name]):
            continue
        yield Finding(
            severity=Severity.HIGH,
            says=f"{name} is {row.setting} here and {wanted[name]} on the primary: replay stops there, and this "
            "standby does not start again",
            evidence=(Evidence(f"{name} {row.setting}, of the primary {wanted[name]}", source),),
            fix=set_parameter(row, wanted[name]),
            subject=name,
        )


class _Pair(Struct, frozen=True):
    """A parameter of both, as SHOW prints it."""

    name: str
    here: str
    there: str


def _different(facts: CheckFacts, primary: CheckFacts) -> Iterator[Finding]:
    here, there = needs.parameters(facts), needs.parameters(primary)
    for kind in _ALIKE:
        pairs = [
            _Pair(name, mine.shown, other.shown)
            for name in kind.names
            if (mine := here.visible(name)) is not None
            and (other := there.visible(name)) is not None
            and _SAME.get(mine.setting, mine.setting) != _SAME.get(other.setting, other.setting)
        ]
        if pairs:
            yield about_several(pairs, lambda pair: pair.name, _telling(kind, primary.described))


def _telling(kind: _Alike, primary: str) -> Callable[[Sequence[_Pair], int], Finding]:
    def tell(pairs: Sequence[_Pair], unlisted: int) -> Finding:
        shown = ", ".join(
            f"{pair.name} {pair.here or 'empty'} (there {pair.there or 'empty'})" for pair in pairs[:_SHOWN]
        )
        differ = "settings differ" if len(pairs) > 1 else "setting differs"
        return Finding(
            severity=kind.severity,
            says=f"{len(pairs)} {differ} from the primary's: {shown}{' …' if len(pairs) > _SHOWN else ''}: {kind.so}",
            evidence=tuple(Evidence(f"{pair.name}: {pair.here}, there {pair.there}", primary) for pair in pairs),
            fix=words(
                "Set here, or the other way round on the primary: "
                + "; ".join(f"{pair.name} = {pair.there or chr(39) * 2}" for pair in pairs),
                "; ".join(f"{pair.name} = {pair.here or chr(39) * 2}" for pair in pairs),
            ),
            subject=kind.kind,
        )

    return tell


def _programs(facts: CheckFacts, primary: CheckFacts) -> Iterator[Finding]:
    mine, other = facts.have(needs.SERVER), primary.have(needs.SERVER)
    if mine.version_num != other.version_num:
        yield Finding(
            severity=Severity.WARNING,
            says=f"this standby is PostgreSQL {mine.version}, its primary {other.version}: a failover changes the "
            "version, and the older one may not read WAL of the newer",
            evidence=(Evidence(f"{mine.version}, {other.version}", "version()"),),
            fix=words("Install the same minor version on both, on the standby first."),
            subject="version",
        )


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="REP-07",
        group="replication",
        title="parity with the primary",
        why="A standby with less than its primary stops replaying, and one with other settings is another server.",
        severity=Severity.HIGH,
        page="hot-standby.html#HOT-STANDBY-ADMIN",
        needs=(needs.SERVER, needs.PARAMETERS),
        asks=(CONTROL,),
        look=_parity,
    ),
)
