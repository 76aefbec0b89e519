"""Locks on structures in shared memory, and the small caches of transaction states (SLRU)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from pgtop_tune.base.units import count, duration
from pgtop_tune.diagnosis.chains import manager_is_of_rows
from pgtop_tune.diagnosis.facts import WINDOW_S, Facts, Statement
from pgtop_tune.diagnosis.finding import DeedKind
from pgtop_tune.diagnosis.rule import (
    FindingRule,
    Hit,
    culprit_of,
    end,
    evidence,
    explain,
    page,
    plural,
    session_name,
    stage,
    waiting,
)
from pgtop_tune.diagnosis.rules.statement_time import MANY_TABLES, tables_of_execution
from pgtop_tune.diagnosis.rules.statements import CPU_RULES, is_savepoint, rates_of, savepoints_per_s
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.io import slru_rates
from pgtop_tune.model.postgres import Backend

_MANAGER: Final = "lwlock:lockmanager"
_PAGE: Final = ("lwlock:buffercontent", "buffer:buffershared", "buffer:bufferexclusive", "buffer:buffershareexclusive")
_SNAPSHOT: Final = (
    "lwlock:procarray",
    "lwlock:xidgen",
    "ipc:procarraygroupupdate",
    "ipc:xactgroupupdate",
    "lwlock:xactslru",
)
_FAST_PATH_GROWS: Final = 180_000
"""Server whose max_locks_per_transaction sets the size of the fast path, too."""
_READS: Final = 100.0
_TWO: Final = 1.5
_CACHED: Final = 64
"""Subtransactions of a session that other sessions see without a lookup (PGPROC_MAX_CACHED_SUBXIDS)."""
_LONG_S: Final = 5.0


def _locks(facts: Facts) -> Hit | None:
    if manager_is_of_rows(facts):
        return None
    counters, beyond_fast_path = facts.interval.pair(sections.lock_counters), None
    if counters:
        older, newer = (sum(row.fastpath_exceeded for row in look.types) for look in counters)
        beyond_fast_path = (newer - older) / (counters[1].at_s - counters[0].at_s)
    scanned = _tables_scanned(facts, facts.statement(_MANAGER))
    tables = f", each execution scans {scanned} tables" if scanned >= MANY_TABLES else ""
    hit = waiting(
        facts,
        (_MANAGER,),
        f"sessions contend for the lock manager{tables}",
        "filter on the partition key, or use plans that touch fewer partitions and indexes; from PostgreSQL 18 on, raise"
        " max_locks_per_transaction",
        short="sessions contend for the lock manager",
        brief="lock manager",
        more=(
            ("sessions", f"{facts.s(_MANAGER):.1f}"),
            ("locks beyond the fast path", f"{count(beyond_fast_path)}/s" if beyond_fast_path is not None else None),
        ),
        deeds=(stage("max_locks_per_transaction", "raise", "more locks fit into the fast path, after a restart"),)
        if facts.version_num >= _FAST_PATH_GROWS
        else (),
    )
    return hit if hit is None or not tables else replace(hit, before=(*CPU_RULES, "stmt.scan"))


def _tables_scanned(facts: Facts, statement: Statement | None) -> int:
    """Return the number of tables that each execution of a statement scans; 0 where it is not known."""
    rates = facts.once(rates_of)
    calls = [rate.calls_per_s or 0.0 for rate in rates if statement and rate.counters.queryid == statement.query_id]
    return tables_of_execution(facts, sum(calls)) if sum(calls) else 0


def _mapping(facts: Facts) -> Hit | None:
    return waiting(
        facts,
        ("lwlock:buffermapping",),
        "sessions contend for the buffer mapping table while pages are replaced",
        "raise shared_buffers. Not the cause if the waits stay when no pages are replaced",
        short="sessions contend for the buffer mapping table",
        brief="buffer table",
        deeds=(stage("shared_buffers", "raise", "pages are replaced all the time"),),
    )


def _page(facts: Facts) -> Hit | None:
    sessions = facts.s(*_PAGE)
    return waiting(
        facts,
        _PAGE,
        f"{plural(sessions, 'session', 'wait')} for the same page"
        if sessions >= _TWO
        else "sessions wait for the same page",
        "find the statement (page 3); usually inserts with a serial key: use hash partitions or fewer indexes",
        short="a hot page",
        label="waits for pages",
        more=(("sessions", f"{sessions:.2f}"),),
    )


def _snapshot(facts: Facts) -> Hit | None:
    return waiting(
        facts,
        _SNAPSHOT,
        "sessions contend for snapshots and transaction ends",
        "use fewer active sessions: a pooler",
        brief="snapshots",
        more=(("active sessions", f"{facts.waits.active:.0f}"),),
    )


def _reads_of(facts: Facts, name: str) -> float:
    """Return the pages per second that caches of this name read."""
    rates = facts.once(_slru)
    return sum(reads for cache, reads in rates if cache.startswith(name))


def _slru(facts: Facts) -> list[tuple[str, float]]:
    return [(row.row.name.lower(), row.per_s("blks_read") or 0.0) for row in slru_rates(facts.interval)]


def _overflow(
    facts: Facts,
    waits: tuple[str, ...],
    cache: str,
    claim: str,
    next_step: str,
    parameter: str,
    maker: Callable[[Facts], str] | None = None,
) -> Hit | None:
    """Return the hit that a cache of transaction states is too small; None where it is large enough."""
    impact_ms, reads = facts.b(*waits), _reads_of(facts, cache)
    if impact_ms <= 0.0 and reads < _READS:
        return None
    statement = facts.statement(*waits)
    by = f", at {statement.words}" if statement is not None else ""
    origin = maker(facts) if maker is not None else ""
    return Hit(
        sentence=f"{claim}{by}: {count(reads)} page reads/s, {facts.share_text(impact_ms) or 'no waits'}{origin and '; '}{origin}",
        short=f"{claim}{by}: {count(reads)} page reads/s",
        culprit=culprit_of(statement),
        statement=statement.words if statement is not None else "",
        impact_ms=impact_ms,
        evidence=evidence(
            ("waits", facts.ms_text(impact_ms)), ("pages read", f"{count(reads)}/s"), ("made by", origin)
        ),
        next_step=f"{next_step}; from PostgreSQL 17 on, raise {parameter}",
        deeds=(
            stage(parameter, "raise", "its pages stay in memory, after a restart"),
            *explain(statement, "shows the statement that waits"),
            page("6", "shows the caches of transaction states"),
        ),
        looks=facts.n(*waits),
        agreed=reads >= _READS,
    )


def _subtransactions(facts: Facts) -> Hit | None:
    next_step = "use fewer savepoints and EXCEPTION blocks in long transactions"
    waits = ("lwlock:subtrans*",)
    claim, parameter = "subtransactions overflow", "subtransaction_buffers"
    hit, writer = _overflow(facts, waits, "subtrans", claim, next_step, parameter, _maker), _writer(facts)
    if hit is None or writer is None:
        return hit and replace(hit, before=(*CPU_RULES, "stmt.scan"))
    row, open_s, ids = writer
    name, share = session_name(row), facts.share_text(hit.impact_ms or 0.0)
    at = hit.statement and f"; at {hit.statement}"
    return replace(
        hit,
        sentence=f"{claim}: {share}; the oldest writer is {name}, open for {duration(open_s)}{at}",
        middle=(f"{claim}: {share}; the oldest writer is {name}",),
        short=f"{claim}: {name}",
        culprit=name,
        evidence=(*hit.evidence, ("transaction ids since", count(ids))),
        next_step=f"end {name}, or have it commit; {hit.next_step}",
        deeds=(end(DeedKind.END_SESSION, row, "its transaction is rolled back, and the lookups end"), *hit.deeds),
        before=(*CPU_RULES, "stmt.scan"),
    )


def _writer(facts: Facts) -> tuple[Backend, float, int] | None:
    """Return the session with the oldest transaction that writes, its age, and the transaction ids since it began.

    The server does not tell which ids are of subtransactions. None where the oldest is young, or few ids have passed.
    """
    horizon, activity = facts.interval.now(sections.horizon), facts.interval.now(sections.activity)
    if horizon is None or activity is None:
        return None
    writing = [(one.xid, one.pid) for one in horizon.open if one.xid is not None]
    xid, pid = min(writing, default=(0, 0))
    row = next((row for row in activity.backends if row.pid == pid), None)
    if row is None or row.xact_start_ms is None or horizon.next_xid - xid < _CACHED:
        return None
    open_s = (activity.now_ms - row.xact_start_ms) / 1000.0
    return (row, open_s, horizon.next_xid - xid) if open_s >= _LONG_S else None


def _maker(facts: Facts) -> str:
    """Return the maker of subtransactions: savepoints and their session; else likely EXCEPTION blocks of a statement that
    runs for long. The server does not tell both apart: savepoints are statements, blocks are not.
    """
    per_s = savepoints_per_s(facts)
    sessions = Counter(
        session_name(row)
        for sample in facts.interval.recent(sections.activity, WINDOW_S)
        for row in sample.backends
        if row.xact_start_ms is not None and row.query and is_savepoint(row.query)
    )
    if per_s >= 1.0 or sessions:
        most = sessions.most_common(1)[0][0] if sessions else ""
        return f"{count(per_s)} savepoints/s{f', most by {most}' if most else ''}"
    if facts.setting("pg_stat_statements.track_utility") != "on":
        return ""
    longest = facts.longest_statement()
    of = f" in {longest[0].words}" if longest is not None else ""
    return f"no session sets savepoints: likely EXCEPTION blocks{of}"


def _multixacts(facts: Facts) -> Hit | None:
    next_step = "avoid foreign keys to rows that change constantly"
    waits, claim = ("lwlock:multixact*", "ipc:multixactcreation"), "many sessions lock the same rows"
    return _overflow(facts, waits, "multixact", claim, next_step, "multixact_member_buffers")


_NEEDS: Final = (sections.waits,)
RULES: Final = (
    FindingRule(id="lw.locks", page="3", needs=_NEEDS, find=_locks),
    FindingRule(id="lw.mapping", page="3", needs=_NEEDS, find=_mapping),
    FindingRule(id="lw.page", page="3", needs=_NEEDS, find=_page),
    FindingRule(id="lw.snapshot", page="3", needs=_NEEDS, find=_snapshot),
    FindingRule(id="slru.sub", page="6", needs=_NEEDS, find=_subtransactions, least=0.05),
    FindingRule(id="slru.multi", page="6", needs=_NEEDS, find=_multixacts, least=0.05),
)
