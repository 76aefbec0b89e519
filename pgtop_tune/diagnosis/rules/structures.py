"""Locks on structures in shared memory, and the small caches of transaction states (SLRU)."""

from __future__ import annotations

from typing import Final

from pgtop_tune.base.units import count, with_ms
from pgtop_tune.diagnosis.chains import manager_is_of_rows
from pgtop_tune.diagnosis.facts import Facts
from pgtop_tune.diagnosis.finding import FindingKind, ParameterAdvice
from pgtop_tune.diagnosis.rule import Hit, Rule
from pgtop_tune.diagnosis.wording import plural, told
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.io import slru_rates

_MANAGER: Final = "lwlock:lockmanager"
_PAGE: Final = ("lwlock:buffercontent", "buffer:buffershared", "buffer:bufferexclusive", "buffer:buffershareexclusive")
_SNAPSHOT: Final = (
    "lwlock:procarray",
    "lwlock:xidgen",
    "ipc:procarraygroupupdate",
    "ipc:xactgroupupdate",
    "lwlock:xactslru",
)
_SUBTRANSACTIONS: Final = ("lwlock:subtrans*",)
_MULTIXACTS: Final = ("lwlock:multixact*", "ipc:multixactcreation")
_READS: Final = 100.0


def _locks(facts: Facts) -> Hit | None:
    impact_ms = facts.b(_MANAGER)
    if impact_ms <= 0.0 or manager_is_of_rows(facts):
        return None
    counters = facts.interval.pair(sections.lock_counters)
    beyond = None
    if counters:
        older, newer = (sum(row.fastpath_exceeded for row in look.types) for look in counters)
        beyond = (newer - older) / (counters[1].at_s - counters[0].at_s)
    return Hit(
        sentence=f"the lock manager is contended: {facts.share_text(impact_ms)}",
        short=f"the lock manager is contended: {facts.percent(impact_ms)}",
        impact_ms=impact_ms,
        evidence=told(
            ("waits", with_ms(impact_ms)),
            ("sessions", f"{facts.s(_MANAGER):.1f}"),
            ("locks beyond the fast path", f"{count(beyond)}/s" if beyond is not None else None),
        ),
        next_step="plans that touch fewer partitions and indexes; from 18 on a larger max_locks_per_transaction",
        advice=ParameterAdvice("max_locks_per_transaction", "raise", "more locks fit into the fast path, from 18 on"),
        looks=facts.n(_MANAGER),
    )


def _mapping(facts: Facts) -> Hit | None:
    impact_ms = facts.b("lwlock:buffermapping")
    if impact_ms <= 0.0:
        return None
    return Hit(
        sentence=f"sessions fight for the table of buffers while pages are replaced: {facts.share_text(impact_ms)}",
        short=f"sessions fight for the table of buffers: {facts.percent(impact_ms)}",
        impact_ms=impact_ms,
        evidence=told(("waits", with_ms(impact_ms))),
        next_step="more shared_buffers. Refuted if the waits stay without replaced pages",
        advice=ParameterAdvice("shared_buffers", "raise", "pages are replaced all the time"),
        looks=facts.n("lwlock:buffermapping"),
    )


def _page(facts: Facts) -> Hit | None:
    impact_ms = facts.b(*_PAGE)
    if impact_ms <= 0.0:
        return None
    return Hit(
        sentence=f"{plural(facts.s(*_PAGE), 'session')} wait for the same page: {facts.share_text(impact_ms)}",
        short=f"a hot page: {facts.percent(impact_ms)}",
        impact_ms=impact_ms,
        evidence=told(("waits for pages", with_ms(impact_ms)), ("sessions", f"{facts.s(*_PAGE):.2f}")),
        next_step="find the statement (3); inserts with a serial key are the usual case: hash partitions, fewer indexes",
        looks=facts.n(*_PAGE),
    )


def _snapshot(facts: Facts) -> Hit | None:
    impact_ms = facts.b(*_SNAPSHOT)
    if impact_ms <= 0.0:
        return None
    return Hit(
        sentence=f"snapshots and ends of transactions contend: {facts.share_text(impact_ms)}",
        short=f"snapshots and ends of transactions contend: {facts.percent(impact_ms)}",
        impact_ms=impact_ms,
        evidence=told(("waits", with_ms(impact_ms)), ("active sessions", f"{facts.waits.active:.0f}")),
        next_step="fewer active sessions: a pooler",
        looks=facts.n(*_SNAPSHOT),
    )


def _reads_of(facts: Facts, *names: str) -> float:
    """Pages per second that these caches read."""
    rates = facts.once(_slru)
    return sum(reads for cache, reads in rates if cache.startswith(names))


def _slru(facts: Facts) -> list[tuple[str, float]]:
    return [(row.row.name.lower(), row.per_s("blks_read") or 0.0) for row in slru_rates(facts.interval)]


def _subtransactions(facts: Facts) -> Hit | None:
    impact_ms, reads = facts.b(*_SUBTRANSACTIONS), _reads_of(facts, "subtrans")
    if impact_ms <= 0.0 and reads < _READS:
        return None
    return Hit(
        sentence=f"subtransactions overflow: {count(reads)} page reads/s, {facts.share_text(impact_ms) or 'no waits'}",
        short=f"subtransactions overflow: {count(reads)} page reads/s",
        impact_ms=impact_ms,
        evidence=told(("waits", with_ms(impact_ms)), ("pages read", f"{count(reads)}/s")),
        next_step="fewer savepoints and EXCEPTION blocks in long transactions; from 17 on subtransaction_buffers",
        advice=ParameterAdvice("subtransaction_buffers", "raise", "its cache is read again and again"),
        looks=facts.n(*_SUBTRANSACTIONS),
        agreed=reads >= _READS,
    )


def _multixacts(facts: Facts) -> Hit | None:
    impact_ms, reads = facts.b(*_MULTIXACTS), _reads_of(facts, "multixact")
    if impact_ms <= 0.0 and reads < _READS:
        return None
    return Hit(
        sentence=f"rows are locked by many at once: {count(reads)} page reads/s, {facts.share_text(impact_ms) or 'no waits'}",
        short=f"rows are locked by many at once: {count(reads)} page reads/s",
        impact_ms=impact_ms,
        evidence=told(("waits", with_ms(impact_ms)), ("pages read", f"{count(reads)}/s")),
        next_step="no foreign keys to rows that change all the time; from 17 on multixact_member_buffers",
        advice=ParameterAdvice("multixact_member_buffers", "raise", "its cache is read again and again"),
        looks=facts.n(*_MULTIXACTS),
        agreed=reads >= _READS,
    )


_NEEDS: Final = (sections.waits,)
RULES: Final = (
    Rule(id="lw.locks", kind=FindingKind.LATENCY, page="3", needs=_NEEDS, find=_locks),
    Rule(id="lw.mapping", kind=FindingKind.LATENCY, page="3", needs=_NEEDS, find=_mapping),
    Rule(id="lw.page", kind=FindingKind.LATENCY, page="3", needs=_NEEDS, find=_page),
    Rule(id="lw.snapshot", kind=FindingKind.LATENCY, page="3", needs=_NEEDS, find=_snapshot),
    Rule(id="slru.sub", kind=FindingKind.LATENCY, page="6", needs=_NEEDS, find=_subtransactions, least=0.05),
    Rule(id="slru.multi", kind=FindingKind.LATENCY, page="6", needs=_NEEDS, find=_multixacts, least=0.05),
)
