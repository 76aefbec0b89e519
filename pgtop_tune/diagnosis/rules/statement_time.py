"""Time of a statement that is not for rows: JIT compilation, planning, executions that end in a rollback."""

from __future__ import annotations

from collections import Counter
from typing import Final

from msgspec import Struct

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.sql_quoting import identifier
from pgtop_tune.base.units import count, duration, with_ms
from pgtop_tune.diagnosis.chains import cpu_ms, queue_ms
from pgtop_tune.diagnosis.facts import FULL, WINDOW_S, Facts, Statement
from pgtop_tune.diagnosis.finding import Deed
from pgtop_tune.diagnosis.rule import FindingRule, Hit, culprit_of, evidence, explain, page, plural, sql, stage
from pgtop_tune.diagnosis.rules.statements import CPU_RULES, rates_of
from pgtop_tune.metrics import sections, server
from pgtop_tune.metrics.statements import StatementRate
from pgtop_tune.metrics.vacuum import table_rates
from pgtop_tune.model.waits import CPU

_HALF: Final = 0.5
_COMPILED_FROM: Final = 100_000.0
"""Default of jit_above_cost."""
_PLANNING: Final = "pg_stat_statements.track_planning"
_PLANS: Final = (CPU.lower(), "lwlock:lockmanager")
"""Waits of a session that plans."""
_ENDED: Final = 1.0
_SHORT_S: Final = 1.0
"""Longest execution of a statement that ends often enough for its counters to keep up with samples."""
MANY_TABLES: Final = 20
_FAILS: Final = 1.0
_LEAST_MS: Final = 1.0
_LEAST_MS_FULL: Final = 5.0
"""Planning of an execution that samples can tell from its begin and end; the second on full CPUs."""
_FEWEST_LOOKS: Final = 30
_MESSAGE: Final = 60


def _calls_in(rate: StatementRate) -> float:
    return rate.grown.sum("calls") or 0


def _statement(facts: Facts, rate: StatementRate, share: float) -> Statement:
    counters = rate.counters
    return Statement(facts.text_of(counters.queryid), counters.queryid, counters.datname or "", share)


def _top_level(facts: Facts) -> list[StatementRate]:
    """Return the statements that ended, without those inside of functions, which count in their callers, too."""
    return [rate for rate in facts.once(rates_of) if rate.counters.toplevel and _calls_in(rate)]


def _jit(facts: Facts) -> Hit | None:
    """Find JIT compilation that takes most of a statement's time."""
    rates = _top_level(facts)
    rate = max(rates, key=lambda one: one.grown.sum("jit_us") or 0, default=None)
    whole_us = sum(one.grown.sum("exec_us") or 0 for one in rates)
    if rate is None or not whole_us or not (jit_us := rate.grown.sum("jit_us") or 0):
        return None
    own_us = max(rate.grown.sum("exec_us") or 0, jit_us)
    statement = _statement(facts, rate, min(jit_us / own_us, 1.0))
    if statement.share < _HALF or not statement.text:
        return None
    percent, calls = f"{100 * statement.share:.0f} %", _calls_in(rate)
    per_call = f"{with_ms(jit_us / calls / 1000.0)} of {with_ms(own_us / calls / 1000.0)} per execution"
    from_cost, role = facts.number("jit_above_cost"), rate.counters.usename
    is_lowered = from_cost is not None and from_cost < _COMPILED_FROM
    because = f"; jit_above_cost is {facts.shown('jit_above_cost')}" if is_lowered else ""
    deeds: list[Deed] = []
    if is_lowered:
        deeds.append(stage("jit_above_cost", "raise", "short statements are not compiled", f"{_COMPILED_FROM:.0f}"))
    if role is not None:
        effect = "its new sessions compile nothing"
        deeds.append(sql(f"ALTER ROLE {identifier(role)} SET jit = off;", effect, statement.database))
    says = f"JIT compilation takes {percent} of the time of {statement.words}"
    return Hit(
        sentence=f"{says}: {per_call}{because}",
        middle=(says,),
        short=f"JIT compilation, {percent} of {statement.words}",
        brief=f"JIT: {statement.words}",
        culprit=culprit_of(statement),
        statement=statement.words,
        impact_ms=min(min(jit_us / whole_us, 1.0) * (cpu_ms(facts) + queue_ms(facts)), facts.latency_ms),
        evidence=evidence(
            ("statement", statement.words),
            ("JIT compilation", per_call),
            ("functions compiled", f"{(rate.grown.sum('jit_functions') or 0) / calls:.0f} per execution"),
            ("jit_above_cost", facts.shown("jit_above_cost")),
        ),
        next_step="set jit = off for its role, or raise jit_above_cost. Not the cause if its executions last as long",
        deeds=(*deeds, *explain(statement, "shows the part of JIT"), page("5", "shows JIT of each statement")),
    )


class _Planned(Struct, frozen=True):
    """A statement with the time of its planning.

    Attributes:
        share: Share of planning in the time of the statement, 0 to 1.
        part: Its planning as a share of the work of all statements, 0 to 1.
        says: Figures for the sentence.
    """

    rate: StatementRate
    share: float
    part: float
    says: str


def _counted_planning(rates: list[StatementRate]) -> _Planned | None:
    """Return the statement with most planning, as pg_stat_statements counts it."""
    rate = max(rates, key=lambda one: one.grown.sum("plan_us") or 0)
    plan_us, exec_us = rate.grown.sum("plan_us") or 0, rate.grown.sum("exec_us") or 0
    whole_us = sum(one.grown.sum("plan_us", "exec_us") or 0 for one in rates)
    if not plan_us:
        return None
    means = (with_ms(part_us / _calls_in(rate) / 1000.0) for part_us in (plan_us, plan_us + exec_us))
    return _Planned(rate, plan_us / (plan_us + exec_us), plan_us / whole_us, " of ".join(means) + " per execution")


def _sampled_planning(facts: Facts, rates: list[StatementRate]) -> _Planned | None:
    """Return the statement whose sessions work far longer than its executions last: the rest is planning, most likely.

    A full machine hides work from samples, so the rest is at least that.
    """
    rate = max(rates, key=lambda one: facts.sampled(one.counters.queryid, *_PLANS))
    query_id = rate.counters.queryid
    working = facts.sampled(query_id, *_PLANS)
    # Several roles have an entry each.
    entries = [one for one in rates if one.counters.queryid == query_id]
    calls_per_s, executing = (sum(one.grown.per_s(name) or 0.0 for one in entries) for name in ("calls", "exec_us"))
    executing /= 1e6
    if working * facts.waits.looks < _FEWEST_LOOKS or calls_per_s < _ENDED or working / calls_per_s >= _SHORT_S:
        return None
    # Each execution needs some time to begin and to end; on full CPUs it waits for them meanwhile.
    least_ms = _LEAST_MS_FULL if (facts.busy or 0.0) >= FULL else _LEAST_MS
    if 1000.0 * (working - executing) / calls_per_s < least_ms:
        return None
    if (facts.of(server.ROLLBACKS) or 0.0) >= 0.1 * calls_per_s:
        # Executions that fail are sampled, and not counted.
        return None
    share, all_working = max(1.0 - executing / working, 0.0), facts.s(*_PLANS)
    says = f"{working:.1f} sessions work for it, its executions take {executing:.1f}"
    return _Planned(rate, share, min(share * working / all_working, 1.0) if all_working else 0.0, says)


def tables_of_execution(facts: Facts, calls_per_s: float) -> int:
    """Return the number of tables that each execution scans, as far as that is known."""
    scans_per_call = [
        (table.per_s("seq_scan", "idx_scan") or 0.0) / calls_per_s for table in table_rates(facts.interval)
    ]
    return sum(scans >= _HALF for scans in scans_per_call)


def _plan(facts: Facts) -> Hit | None:
    """Find planning that takes most of a statement's time."""
    rates = _top_level(facts)
    if not rates:
        return None
    is_counted, is_off = (facts.setting(_PLANNING) == value for value in ("on", "off"))
    planned = _counted_planning(rates) if is_counted else None
    if planned is None or planned.share < _HALF:
        # The start of a plan with many tables is in no counter.
        planned, is_counted = _sampled_planning(facts, rates), False
    if planned is None or planned.share < _HALF:
        return None
    statement = _statement(facts, planned.rate, planned.share)
    plan_deeds = explain(statement, "shows its planning time, and the partitions in its plan")
    if not plan_deeds:
        return None
    percent = f"{100 * planned.share:.0f} %"
    scanned = tables_of_execution(facts, planned.rate.calls_per_s or 1.0)
    tables = f"; it scans at least {scanned} tables" if scanned >= MANY_TABLES else ""
    off = f"; {_PLANNING.partition('.')[2]} is off" if is_off else ""
    action = "planning" if is_counted else "planning, or starting its plan,"
    says = f"{action} takes {percent} of the time of {statement.words}"
    counts = (stage(_PLANNING, "set", "planning is counted: confirms or refutes it", "on"),) if is_off else ()
    return Hit(
        sentence=f"{says}: {planned.says}{tables}{off}",
        middle=(f"{says}{tables}", says),
        short=f"planning, {percent} of {statement.words}",
        brief=f"planning: {statement.words}",
        culprit=culprit_of(statement),
        statement=statement.words,
        impact_ms=min(planned.part * (cpu_ms(facts) + queue_ms(facts) + facts.b(_PLANS[1])), facts.latency_ms),
        evidence=evidence(
            ("statement", statement.words),
            ("planning", f"{percent}: {planned.says}"),
            ("tables scanned", f"{scanned} per execution" if scanned else None),
            ("executions", f"{count(planned.rate.calls_per_s)}/s"),
            (_PLANNING, facts.setting(_PLANNING)),
        ),
        next_step=(
            "filter on the partition key, so that fewer tables are planned and locked, or prepare it once per session. Not the"
            " cause if EXPLAIN shows a short planning time"
        ),
        deeds=(*plan_deeds, *counts, page("5", "shows planning, where it is counted")),
        agreed=is_counted,
    )


def _failure(facts: Facts) -> str:
    """Return the most frequent error that the server logged within ten seconds; "" where no log is read."""
    logs = facts.interval.recent(sections.server_log, WINDOW_S, least=2)
    if len(logs) < 2:
        return ""
    known_ids = {line.id for line in logs[-1].lines}
    errors = [
        line.message.partition("\n")[0]
        for line in logs[0].lines
        if line.severity == "ERROR" and line.id not in known_ids
    ]
    return one_line(Counter(errors).most_common(1)[0][0], _MESSAGE) if errors else ""


def _failing(facts: Facts) -> Hit | None:
    """Find a statement on which sessions work and whose executions do not end: they time out, or fail."""
    rollbacks, statement = facts.of(server.ROLLBACKS) or 0.0, facts.statement("*")
    if rollbacks < _FAILS or statement is None or statement.query_id is None or not facts.budget:
        return None
    query_id, sampled = statement.query_id, facts.sampled(statement.query_id, "*")
    counted = sum(
        rate.grown.per_s("exec_us") or 0.0 for rate in facts.once(rates_of) if rate.counters.queryid == query_id
    )
    lost, runs_s = sampled - counted / 1e6, facts.longest_run_s(query_id)
    # One that has not ended yet is not counted, either: those that fail end as often as transactions roll back.
    if lost < _HALF * sampled or not _ends_within(facts, query_id, rollbacks, runs_s):
        return None
    error, limit = facts.once(_failure), facts.shown("statement_timeout")
    because = f": {error}" if error else ", canceled by a timeout or with an error"
    says = f"{statement.words} fails {plural(rollbacks, 'time')} per second after up to {duration(runs_s)}"
    return Hit(
        sentence=f"{says}{because}; {100 * lost / sampled:.0f} % of its time is lost",
        middle=(f"{says}{because}", f"{statement.words} fails {count(rollbacks)}/s{because}", says),
        short=f"{statement.words} fails {count(rollbacks)}/s",
        brief=f"{culprit_of(statement)}… fails {count(rollbacks)}/s",
        culprit=culprit_of(statement),
        statement=statement.words,
        impact_ms=min(1000.0 * lost / (facts.tps or 1.0), facts.latency_ms),
        evidence=evidence(
            ("statement", statement.words),
            ("transactions rolled back", f"{count(rollbacks)}/s"),
            ("sessions that run it", f"{sampled:.1f}"),
            ("executions that ended", f"{counted / 1e6:.1f} sessions' time"),
            ("longest run seen", duration(runs_s)),
            ("most frequent error", error or None),
            ("statement_timeout", limit if limit not in ("", "0") else "none for the server; roles may have their own"),
        ),
        next_step=(
            "read the errors on page 2: 57014 is a timeout or a cancel, 40001 a serialization failure, 40P01 a deadlock; then"
            " make it faster, or let its clients wait longer between retries"
        ),
        deeds=(*explain(statement, "shows why it takes so long"), page("2", "shows the errors in the server log")),
        looks=sampled * facts.waits.looks,
        agreed=bool(error),
    )


def _ends_within(facts: Facts, query_id: int, rollbacks: float, runs_s: float) -> bool:
    """Return whether runs of at most that length, as many as transactions roll back, are half of those that run."""
    running = [
        sum(row.query_id == query_id and row.state == "active" for row in sample.backends)
        for sample in facts.interval.recent(sections.activity, WINDOW_S)
    ]
    return runs_s < WINDOW_S / 2 and bool(running) and rollbacks * runs_s >= _HALF * sum(running) / len(running)


_NEEDS: Final = (sections.statement_counters, sections.waits)
RULES: Final = (
    FindingRule(id="plan.jit", page="5", needs=_NEEDS, find=_jit, before=(*CPU_RULES, "stmt.scan"), sure_of_cpu=True),
    FindingRule(
        id="plan.time",
        page="5",
        needs=(*_NEEDS, sections.parameters),
        find=_plan,
        before=(*CPU_RULES, "lw.locks"),
        sure_of_cpu=True,
    ),
    FindingRule(
        id="stmt.fails",
        page="2",
        needs=(*_NEEDS, sections.database, sections.activity),
        find=_failing,
        before=(*CPU_RULES, "stmt.scan", "io.read.disk", "io.read.cache"),
        sure_of_cpu=True,
    ),
)
