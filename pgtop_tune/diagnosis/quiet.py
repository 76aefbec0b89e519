"""The finding of a moment in which nothing binds: a result, too."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from math import sqrt
from typing import Final

from msgspec.structs import replace

from pgtop_tune.base.units import count, mean
from pgtop_tune.diagnosis.chains import DEVICE, wal_busy
from pgtop_tune.diagnosis.facts import FULL, THINK, WINDOW_S, Facts
from pgtop_tune.diagnosis.finding import Confidence, Finding, FindingKind
from pgtop_tune.diagnosis.rule import Hit, culprit_of, explain, forms, page, plural, short_sentence
from pgtop_tune.metrics import host, sections
from pgtop_tune.metrics.budget import OTHER, SCHEDULE_LAG
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.waits import CPU, QUEUE

NONE: Final = "none"
_FEW_SESSIONS: Final = 0.3
"""Without a load of this program: fewer active sessions have no wait worth a line, unless clients wait elsewhere."""
_HARDLY_ONE: Final = 0.05
"""The same while a core is full: a few active sessions may wait for it."""
_LESS_THAN_ONE: Final = 1.0
"""Without a load of this program: up to so many active sessions, without a finding, are not held up by anything."""
_NONE_ENDED: Final = 1.0
"""Transactions per second, for each session of this program, that the server makes or that ours miscount."""
_REACHED: Final = 0.99
_BY_CHANCE: Final = 3.0
_LAG_MS: Final = 1.0
_THINKS: Final = 0.6
_QUEUE: Final = 0.1
_MOST: Final = 0.6
_FEW_LOOKS: Final = 5
_NAMED: Final = 0.1
_GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "WAL": (*DEVICE, "lwlock:walinsert", "lwlock:walbufmapping"),
    "locks": ("lock:*",),
    "reads": ("io:datafileread", "io:aioiocompletion", "ipc:bufferio"),
    "client": (THINK,),
}
"""Waits of the budget that have a name of their own."""
_SAID: Final = tuple(name.lower() for name in (*chain.from_iterable(_GROUPS.values()), CPU, QUEUE, OTHER, SCHEDULE_LAG))
_ALL_OF: Final = tuple(name[:-1] for name in _SAID if name.endswith("*"))


def is_small(facts: Facts) -> bool:
    """Return whether there is hardly any work, and no client waits to bring more: no part of it can be too large."""
    if facts.run is not None or facts.at_pooler:
        return False
    return facts.waits.active < (_HARDLY_ONE if _has_full_core(facts) else _FEW_SESSIONS)


def _is_idle(facts: Facts) -> bool:
    """Return whether the server is idle: no active session, no ended transaction, no waiting client, no full core."""
    return is_small(facts) and not _ends_some(facts) and not facts.at_work and not _has_full_core(facts)


def _ends_some(facts: Facts) -> bool:
    activity = facts.interval.now(sections.activity)
    return facts.server_tps >= _NONE_ENDED * max(activity.own_backends if activity is not None else 0, 1)


def _has_full_core(facts: Facts) -> bool:
    return max((facts.busy or 0.0, *facts.by(host.CORE_BUSY).values())) >= FULL


def rate_reached(facts: Facts) -> bool:
    """Return whether the load has its requested rate, without lag."""
    rate = facts.run.rate_per_s if facts.run else None
    lag_ms = facts.generator.lag_ms if facts.generator else None
    if not rate or (lag_ms or 0.0) >= _LAG_MS:
        return False
    # Transactions are scheduled by chance: three standard deviations of their number in ten seconds.
    return facts.tps >= min(_REACHED * rate, rate - _BY_CHANCE * sqrt(rate / WINDOW_S))


def quiet(facts: Facts, settling: str | None) -> Finding:
    """Return the finding "none" of this moment."""
    hit = _sentence(facts, settling)
    short = short_sentence(hit.short or hit.sentence, hit.culprit)
    return Finding(
        rule=NONE, kind=FindingKind.NOTE, sentence=hit.sentence, short=short,
        forms=forms(hit.sentence, hit.middle, short, hit.culprit, hit.brief), culprit=hit.culprit,
        statement=hit.statement, impact_ms=None, share=None, confidence=Confidence.IS,
        page=hit.deeds[0].target if hit.deeds else "3", since_ms=facts.interval.newest.taken_at_ms,
        evidence=hit.evidence, deeds=hit.deeds,
    )  # fmt: skip


def _sentence(facts: Facts, settling: str | None) -> Hit:
    postgres = facts.interval.newest.postgres
    if isinstance(postgres, Unavailable):
        return Hit(sentence=f"no data from the server: {postgres}")
    if settling is not None:
        return Hit(sentence=f"settling: {settling}")
    if isinstance(postgres.waits, Unavailable):
        return Hit(sentence=f"waits cannot be seen: {postgres.waits}")
    watched_s = facts.interval.newest.elapsed_s - facts.interval.frames[0].elapsed_s
    if facts.waits.looks < _FEW_LOOKS and watched_s < WINDOW_S:
        return Hit(sentence="settling: the first samples arrive")
    if rate_reached(facts):
        rate_text = f"{count(facts.tps)} tps as requested; {_used(facts)}"
        return Hit(sentence=rate_text if _is_full(facts) else f"no bottleneck: {rate_text}")
    if facts.at_pooler:
        return _busy_elsewhere(facts)
    thinks_ms = facts.b(THINK)
    waits_for_us = facts.generator is not None and facts.generator.bound
    thinks = facts.latency_ms > 0 and thinks_ms >= _THINKS * facts.latency_ms
    if thinks and not waits_for_us and facts.queue_ms < _QUEUE * facts.latency_ms:
        if (facts.busy or 0.0) >= FULL:
            # Clients on a full machine wait for a CPU as well.
            full = _busy_elsewhere(facts)
            thinking = f"the server waits for its clients: {facts.share_text(thinks_ms)}"
            middle = (f"{thinking}; {full.short}", *full.middle)
            return replace(full, sentence=f"{thinking}; {full.sentence}", middle=middle)
        sentence = f"the server waits for its clients: {facts.share_text(thinks_ms)}"
        return Hit(sentence=sentence, evidence=_parts(facts, _parts_ms(facts)))
    if facts.run is None and facts.waits.active < _LESS_THAN_ONE:
        if facts.hidden is not None:
            # Hidden sessions may be all there are: that none is seen proves nothing.
            return Hit(sentence=f"waits cannot be seen: {facts.hidden}")
        active = facts.waits.active
        if _is_idle(facts):
            return Hit(
                sentence="idle: no active session" if active < 0.05 else f"almost idle: {mean(active)} sessions active"
            )
        return _busy_elsewhere(facts)
    if facts.budget is None:
        verdict_text = "no clear bottleneck" if _is_full(facts) else "no bottleneck"
        return Hit(sentence=f"{verdict_text}: {plural(facts.waits.active, 'active session')}; {_used(facts)}")
    total_text = facts.ms_text(facts.latency_ms)
    parts_ms = _parts_ms(facts)
    parts = _parts(facts, parts_ms)
    named = ", ".join(f"{label} {value}" for label, value in parts)
    verdict = "no single bottleneck"
    if max(parts_ms.values()) >= _MOST * facts.latency_ms:
        # One part takes most of the time, and no rule explains it.
        verdict = "mostly CPU work, and CPUs are free" if _works_freely(facts) else "no clear bottleneck"
    return _named_largest(facts, f"{verdict}: {named} of {total_text}", parts)


def _named_largest(facts: Facts, sentence: str, parts: tuple[tuple[str, str], ...]) -> Hit:
    """Return the sentence with the statement that most sessions run in the largest wait."""
    wait = THINK
    if facts.budget:
        wait = max(facts.budget.parts, key=lambda part: part.ms * (part.label != SCHEDULE_LAG)).label.lower()
    statement = facts.statement(wait) if wait != THINK else None
    if statement is None:
        return Hit(sentence=sentence, evidence=parts)
    by = f": {statement.words}"
    return Hit(
        sentence=f"{sentence}; most in {statement.words}",
        short=f"{sentence.partition(':')[0]}{by}",
        culprit=culprit_of(statement),
        statement=statement.words,
        evidence=parts,
        deeds=(page("3", "shows the waits"), *explain(statement, "shows where its time goes")),
    )


def _works_freely(facts: Facts) -> bool:
    """Return whether sessions are mostly on CPUs, hardly wait for one, and find one: none is full."""
    queues = facts.queue_ms >= _QUEUE * facts.latency_ms
    return facts.cpu_ms >= _MOST * facts.latency_ms and not queues and not _has_full_core(facts)


def _busy_elsewhere(facts: Facts) -> Hit:
    """Return the sentence about a server on which hardly a session is active."""
    counted = _ends_some(facts) or not facts.at_work
    work = f"{count(facts.server_tps)} tps" if counted else f"{plural(facts.at_work, 'session')} ran statements in 10 s"
    work += f", {mean(facts.waits.active)} sessions active"
    if facts.at_pooler:
        return Hit(sentence=f"{plural(facts.at_pooler, 'client', 'wait')} at the pooler; {work}; {_used(facts)}")
    if not _has_full_core(facts):
        return Hit(sentence=f"no bottleneck: {work}; {_used(facts)}")
    shows, subject = (
        (page("7", "shows the processes by their CPU time"),),
        "the CPU is saturated" if facts.machine_cpus == 1 else "all CPUs are saturated",
    )
    if (facts.busy or 0.0) < FULL:
        full = sum(used >= FULL for used in facts.by(host.CORE_BUSY).values())
        subject = f"{full} of {facts.machine_cpus or '?'} CPUs saturated"
    largest = facts.other_programs[0] if facts.other_programs and facts.other_cpus else ""
    named = f": {largest}" if largest else ""
    return Hit(
        sentence=f"{subject}{_users(facts)}; {work}",
        short=f"{subject}, {facts.other_cpus:.1f} by others{named}" if facts.other_cpus else subject,
        brief=f"CPUs saturated by others{named}" if largest else "",
        culprit=largest,
        deeds=shows,
    )


def _users(facts: Facts) -> str:
    """Return the users of the CPUs."""
    shares = [f"the server uses {facts.server_cpus:.1f}"] if facts.server_cpus is not None else []
    if facts.other_cpus is not None:
        names = f" ({facts.other_names})" if facts.other_names else ""
        shares.append(f"other programs {facts.other_cpus:.1f}{names}")
    return f": {', '.join(shares)}" if shares else ""


def _parts(facts: Facts, parts: Mapping[str, float]) -> tuple[tuple[str, str], ...]:
    """Return the budget in few words, ms."""
    other_ms = max(facts.latency_ms - sum(parts.values()), 0.0)
    large = {label: value for label, value in parts.items() if value >= 0.01 * facts.latency_ms}
    return tuple((label, facts.ms_text(value)) for label, value in {**large, "other": other_ms}.items())


def _parts_ms(facts: Facts) -> dict[str, float]:
    """Return the ms by group, and the largest wait of no group, where it is more than a small part."""
    parts = {"CPU": facts.cpu_ms + facts.queue_ms, **{label: facts.b(*waits) for label, waits in _GROUPS.items()}}
    unnamed = [part for part in facts.budget.parts if not _is_named(part.label.lower())] if facts.budget else []
    wait = max(unnamed, key=lambda part: part.ms, default=None)
    if wait is not None and wait.ms >= _NAMED * facts.latency_ms:
        parts[wait.label] = wait.ms
    return parts


def _is_named(label: str) -> bool:
    return label in _SAID or label.startswith(_ALL_OF)


def _is_full(facts: Facts) -> bool:
    """Return whether CPUs or the WAL device are used up, even if no transaction waits for them."""
    return (facts.busy or 0.0) >= FULL or 100.0 * wal_busy(facts) >= FULL


def _used(facts: Facts) -> str:
    """Return the used shares of the machine."""
    disks = facts.by(host.DISK_BUSY)
    shares = (("CPUs", facts.busy), ("WAL", 100.0 * wal_busy(facts)), ("disks", max(disks.values(), default=None)))
    return ", ".join(f"{label} {value:.0f} %" for label, value in shares if value is not None) + " used"
