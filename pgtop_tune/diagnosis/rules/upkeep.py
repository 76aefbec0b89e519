"""Dead rows, vacuum, statements and this program itself: mostly information, never first beside a finding."""

from __future__ import annotations

import re
from typing import Final

from pgtop_tune.base.sql_quoting import identifier
from pgtop_tune.base.units import count, duration, size
from pgtop_tune.diagnosis.chains import cpu_ms, queue_ms, wal_bytes_ms
from pgtop_tune.diagnosis.facts import Facts
from pgtop_tune.diagnosis.finding import FindingKind
from pgtop_tune.diagnosis.rule import LEAST, FindingRule, Hit, evidence, holder_deeds, page, short_name, sql, stage
from pgtop_tune.diagnosis.rules.statements import TIME, rates_of
from pgtop_tune.metrics import host, sections, server
from pgtop_tune.metrics.io import io_rates
from pgtop_tune.metrics.vacuum import GrownRelation, holders, table_rates
from pgtop_tune.model.postgres import DatabaseCounters
from pgtop_tune.model.relations import IndexCounters, TableCounters

_HOLDS_S: Final = 60.0
_DEAD: Final = 10
_FEW_ROWS: Final = 1_000
_SLEEPS: Final = 0.8
_SHARE: Final = 0.3
_BYTES: Final = 1e6
_UPDATES: Final = 100.0
_HOT: Final = 0.5
_MANY_INDEXES: Final = 5
_INDEX: Final = 24
_OWN_CPU: Final = 10.0
_ROLLBACKS: Final = 1.0
_MANY: Final = 0.2
"""Share of the transactions; parallel workers count as committed ones."""
_WORKER: Final = "autovacuum worker"


def _worst(facts: Facts) -> TableCounters | None:
    """Return the table with most dead rows for its live ones."""
    sample = facts.interval.now(sections.relations)
    tables = [row for row in sample.tables if row.n_dead_tup >= _FEW_ROWS] if sample else []
    return max(tables, key=lambda row: row.n_dead_tup / max(row.n_live_tup, 1), default=None)


def _horizon(facts: Facts) -> Hit | None:
    holding = [holder for holder in holders(facts.interval) if (holder.since_s or 0.0) > _HOLDS_S]
    table = _worst(facts)
    if not holding or table is None or table.n_dead_tup < _DEAD * max(table.n_live_tup, 1):
        return None
    oldest = max(holding, key=lambda holder: holder.since_s or 0.0)
    for_s = duration(oldest.since_s or 0.0)
    return Hit(
        sentence=(
            f"{oldest.title} has held back vacuum for {for_s}: {short_name(table.name)} has"
            f" {count(table.n_dead_tup)} dead and {count(table.n_live_tup)} live rows"
        ),
        short=f"{oldest.title} has held back vacuum for {for_s}",
        culprit=short_name(oldest.name),
        statement=short_name(oldest.activity) if oldest.backend is not None else "",
        evidence=evidence(
            ("holder", f"{oldest.title} {short_name(oldest.owner)}".strip()),
            ("dead rows", f"{count(table.n_dead_tup)} in {short_name(table.name)}"),
        ),
        next_step="end the holder (page 9); after a vacuum, CPU per transaction falls",
        deeds=holder_deeds(oldest),
    )


def _slow(facts: Facts) -> Hit | None:
    sleeping, working = facts.s_of(_WORKER, "timeout:vacuumdelay"), facts.s_of(_WORKER, "*")
    table = _worst(facts)
    if not working or sleeping < _SLEEPS * max(working, 1.0) or table is None:
        return None
    looks = facts.interval.recent(sections.relations, 120.0, least=2)
    before = (
        next((row.n_dead_tup for row in looks[-1].tables if row.oid == table.oid), None) if len(looks) > 1 else None
    )
    if before is None or table.n_dead_tup <= before:
        return None
    more = (table.n_dead_tup - before) / (looks[0].at_s - looks[-1].at_s) * 60.0
    return Hit(
        sentence=f"autovacuum falls behind: {short_name(table.name)} has {count(table.n_dead_tup)} dead rows, {count(more)} more per minute",
        short=f"autovacuum falls behind: {count(more)} more dead rows per minute",
        evidence=evidence(
            ("workers asleep", f"{sleeping:.1f} of {working:.1f}"), ("dead rows", count(table.n_dead_tup))
        ),
        next_step="raise autovacuum_vacuum_cost_limit fivefold: vacuum ends sooner. Not the cause if dead rows still grow",
        deeds=(stage("autovacuum_vacuum_cost_limit", "raise", "its workers sleep less"), page("8", "shows dead rows")),
    )


def _load(facts: Facts) -> Hit | None:
    if not facts.s_of(_WORKER, "*"):
        return None
    moved: dict[str, float] = {}
    for row in io_rates(facts.interval):
        if row.row.object != "wal":
            moved[row.row.backend_type] = moved.get(row.row.backend_type, 0.0) + (
                row.per_s("read_bytes", "write_bytes") or 0.0
            )
    total, vacuum = sum(moved.values()), moved.get(_WORKER, 0.0)
    if total < _BYTES or vacuum < _SHARE * total:
        return None
    return Hit(
        sentence=f"autovacuum does {100 * vacuum / total:.0f} % of the server's reads and writes",
        short=f"autovacuum does {100 * vacuum / total:.0f} % of reads and writes",
        evidence=evidence(("of all bytes", f"{100 * vacuum / total:.0f} %")),
        next_step="lower autovacuum_vacuum_cost_limit while the load runs; never turn autovacuum off",
        deeds=(stage("autovacuum_vacuum_cost_limit", "lower", "it takes less of the disk"),),
    )


def _cold(facts: Facts) -> Hit | None:
    """Find a table whose rows are written to every index: many inserts, or updates that are not HOT."""
    pair = facts.mean.pair(sections.database)
    if pair is not None and _written(pair[1]) - _written(pair[0]) < _UPDATES * (pair[1].at_s - pair[0].at_s):
        return None
    indexes_of: dict[int, list[IndexCounters]] = {}
    sample = facts.interval.now(sections.relations)
    for index in sample.indexes if sample is not None else ():
        indexes_of.setdefault(index.table_oid, []).append(index)
    tables = [rates for rates in table_rates(facts.interval) if _cold_rows(rates) >= max(_UPDATES * rates.seconds, 1.0)]
    worst = max(tables, key=lambda rates: _cold_rows(rates) * len(indexes_of.get(rates.row.oid, ())), default=None)
    if worst is None:
        return None
    rows, indexes = _cold_rows(worst), indexes_of.get(worst.row.oid, [])
    updates, hot = worst.sum("n_tup_upd") or 0, worst.sum("n_tup_hot_upd") or 0
    of_updates = updates - hot >= _HOT * rows
    is_crowded = len(indexes) >= _MANY_INDEXES
    if (of_updates and hot / updates >= _HOT) or not (of_updates or is_crowded):
        return None
    table, percent = short_name(worst.row.name.removeprefix("public.")), f"{100 - 100 * hot / max(updates, 1):.0f} %"
    subject = f"{percent} of the updates of {table} are not HOT" if of_updates else f"inserts into {table}"
    number = f"{len(indexes)} index{'' if len(indexes) == 1 else 'es'}"
    writes = f": each writes to {f'its {number}' if indexes else 'every index'}"
    unused = [index for index in indexes if not index.idx_scan and not index.is_constraint and index.is_valid]
    names = ", ".join(short_name(index.name.removeprefix("public."), _INDEX) for index in unused[:2])
    more = f" and {len(unused) - 2} more" if len(unused) > 2 else ""
    never = f"; never scanned: {names}{more}" if unused else ""
    # A row costs about as much in each index as in its table: the part of the indexes is the bound.
    part = len(indexes) / (len(indexes) + 1.0) * _part_of_writes(facts, worst.row) if is_crowded else 0.0
    impact_ms = min(part * (cpu_ms(facts) + queue_ms(facts) + wal_bytes_ms(facts)), facts.latency_ms)
    wal = facts.of(server.WAL_BYTES)
    drops = tuple(
        sql(
            f"DROP INDEX CONCURRENTLY {identifier(*index.name.split('.', 1))};",
            "never scanned here: check standbys first",
        )
        for index in unused[:1]
    )
    return Hit(
        sentence=f"{subject}{writes}{never}",
        middle=(f"{subject}{writes}",),
        short=f"{subject}{f': {number}' if indexes else ''}",
        brief=f"{table}: {number}" if indexes else "",
        culprit=table,
        impact_ms=impact_ms if is_crowded else None,
        evidence=evidence(
            ("rows written", f"{count(rows / worst.seconds)}/s"),
            ("HOT", f"{100 * hot / updates:.0f} %" if updates else None),
            ("indexes", f"{len(indexes)}, of which {len(unused)} never scanned" if indexes else None),
            ("WAL", f"{size(wal / facts.server_tps)} per transaction" if wal and facts.server_tps else None),
        ),
        next_step=(
            "drop indexes that no query uses, here and on standbys, or the one on the changed column. Not the cause if WAL per"
            " transaction stays the same"
            if is_crowded
            else "drop the index on the changed column; lower fillfactor only if many updates go to new pages"
        ),
        deeds=(page("8", f"shows the indexes of {table} and their scans"), *drops),
        agreed=False,
        note=not is_crowded or impact_ms < LEAST * facts.latency_ms,
    )


def _written(database: DatabaseCounters) -> int:
    return database.tup_inserted + database.tup_updated


def _cold_rows(rates: GrownRelation[TableCounters]) -> float:
    """Return the rows that were written to every index of a table."""
    return (rates.sum("n_tup_ins", "n_tup_upd") or 0) - (rates.sum("n_tup_hot_upd") or 0)


def _part_of_writes(facts: Facts, table: TableCounters) -> float:
    """Return the part of the time of all statements that writes into a table take, 0 to 1; 0 where it is not known."""
    name = re.compile(rf'(?<!\w)"?{re.escape(table.name.partition(".")[2])}"?(?!\w)')
    times = [(rate.grown.sum(TIME) or 0, facts.text_of(rate.counters.queryid)) for rate in facts.once(rates_of)]
    total = sum(time for time, _ in times)
    writing = sum(
        time for time, text in times if text.lstrip()[:6].upper() in ("INSERT", "UPDATE") and name.search(text)
    )
    return writing / total if total else 0.0


def _rolled_back(facts: Facts) -> Hit | None:
    """Find transactions of which many roll back: they fail, or an application ends its reads in this way."""
    pair = facts.mean.pair(sections.database)
    if pair is None:
        return None
    older, newer = pair
    rolled_back, committed = (
        newer.xact_rollback - older.xact_rollback,
        server.committed(newer) - server.committed(older),
    )
    of_others = committed - (newer.own_transactions - older.own_transactions)
    per_s = rolled_back / (newer.at_s - older.at_s)
    if per_s < _ROLLBACKS or committed < 0 or rolled_back < _MANY * (rolled_back + max(of_others, 0)):
        return None
    share, timeout = 100.0 * rolled_back / (rolled_back + max(of_others, 0)), facts.shown("statement_timeout")
    return Hit(
        sentence=f"{share:.0f} % of transactions roll back: {count(per_s)}/s",
        evidence=evidence(("rolled back", f"{count(per_s)}/s"), ("statement_timeout", timeout)),
        next_step="check the server log for errors and timeouts (page 2); some applications end reads with ROLLBACK",
        deeds=(page("2", "shows the server log"),),
    )


def _own(facts: Facts) -> Hit | None:
    used = host.OWN_CPU(facts.interval) or 0.0
    if used < _OWN_CPU:
        return None
    return Hit(
        sentence=f"pgtop-tune uses {used:.0f} % of a CPU",
        share=used / 100.0 / (facts.machine_cpus or 1),
        evidence=evidence(("this program", f"{used:.1f} % of a CPU")),
        next_step="use a longer interval (-i 5)",
    )


RULES: Final = (
    FindingRule(
        id="vac.horizon", kind=FindingKind.NOTE, page="9", needs=(sections.horizon, sections.relations), find=_horizon
    ),
    FindingRule(id="vac.slow", kind=FindingKind.NOTE, page="8", needs=(sections.relations, sections.waits), find=_slow),
    FindingRule(id="vac.load", kind=FindingKind.NOTE, page="6", needs=(sections.io, sections.waits), find=_load),
    FindingRule(
        id="upd.cold",
        page="8",
        needs=(sections.relations,),
        find=_cold,
        before=("cpu.server", "cpu.full", "wal.volume", "wal.buffers"),
    ),
    FindingRule(id="xact.rollback", kind=FindingKind.NOTE, page="2", needs=(sections.database,), find=_rolled_back),
    FindingRule(id="own.cost", kind=FindingKind.NOTE, page="7", needs=(sections.footprint,), find=_own),
)
