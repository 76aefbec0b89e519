"""Disks and memory: disks at their limit, reads, writes by sessions, spills, extension; swap, page tables, nodes."""

from __future__ import annotations

from itertools import pairwise
from math import ceil, log2
from typing import Final

from pgtop_tune.base.sql_quoting import identifier
from pgtop_tune.base.units import byte_rate, count, size, with_ms
from pgtop_tune.diagnosis.chains import FAR_SLOWER, READS, TEMP_WAITS, cpu_ms, queue_ms, read_ms, temp_ms, wal_ms
from pgtop_tune.diagnosis.facts import Facts
from pgtop_tune.diagnosis.finding import Deed, FindingKind
from pgtop_tune.diagnosis.rule import LEAST, FindingRule, Hit, evidence, explain, page, short_name, sql, stage, waiting
from pgtop_tune.diagnosis.rules.statements import CPU_RULES, Named, named, rates_of
from pgtop_tune.metrics import host, host_details, io, sections, server
from pgtop_tune.metrics.ceilings import CapReached, disks_at_cap
from pgtop_tune.metrics.io import io_rates
from pgtop_tune.metrics.statements import StatementRate, statement_rates
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.host import DiskCounters

_SLOW_READ_MS: Final = 0.05
_CACHED_MS: Final = 0.02
_FROM_DISK: Final = 0.02
_PRESSURE: Final = 10.0
_COPYING: Final = 0.2
_SLEEPS: Final = 0.1
_DIRTY_OF_AVAILABLE: Final = 0.15
_NEARLY: Final = 0.9
_SPILLS: Final = 2
"""Least number of looks in ten seconds at which the count of temporary bytes had grown. The server counts a file when
it is closed, and a statement may take seconds until then."""
_SPILLS_BYTES: Final = 10e6
_MUCH: Final = 0.25
_HALF: Final = 0.5
_MIB: Final = 1 << 20
_WAITED_FOR: Final = 0.05
"""Share of L: a shorter wait makes no finding, and saves the search for limits in two minutes of frames."""
_EXTENDING: Final = ("lock:extend", "io:datafileextend")
_SWAP_BYTES: Final = 1e6
_MEMORY_PRESSURE: Final = 5.0
_HITS: Final = 1.0
_PAGE_TABLES: Final = 0.02
_FAR: Final = 0.1
_WAITS: Final = (sections.waits,)


class _Reads:
    """Reads of blocks over ten seconds: from pg_stat_io where it times them, else from samples."""

    def __init__(self, facts: Facts) -> None:
        rows = [row for row in io_rates(facts.interval) if row.row.object == "relation"]
        self.per_s = sum(row.per_s("reads") or 0.0 for row in rows)
        timed_us = sum(row.per_s("read_us") or 0.0 for row in rows)
        pair = facts.mean.pair(sections.database)
        blocks = (pair[1].blks_read - pair[0].blks_read) / (pair[1].at_s - pair[0].at_s) if pair else 0.0
        self.blocks_per_s = max(blocks, self.per_s)
        self.timed_us_per_s = timed_us
        waiting_ms = 1000.0 * facts.s("io:datafileread")
        self.timed = timed_us > 0.0 and self.per_s > 0.0
        self.each_ms = (
            timed_us / self.per_s / 1000.0
            if self.timed
            else waiting_ms / self.blocks_per_s
            if self.blocks_per_s
            else 0.0
        )
        disks = facts.interval.now(sections.disks)
        server_disks = [disk.name for disk in disks.disks if disk.roles and not disk.stacked] if disks else []
        read_bytes = host.DISK_READ_BYTES(facts.mean)
        delivered = sum(read_bytes.get(disk, 0.0) for disk in server_disks)
        server = sections.server(facts.interval.newest)
        read_bytes_per_s = (0 if isinstance(server, Unavailable) else server.block_bytes) * self.blocks_per_s
        self.from_disk = delivered / read_bytes_per_s if read_bytes_per_s else 0.0


def _cap(facts: Facts) -> Hit | None:
    capped = [(disk, cap, _of_roles(facts, disk)) for disk, cap in _at_cap(facts)]
    if not capped:
        return None
    disk, cap, impact_ms = max(capped, key=lambda entry: entry[2])
    limit = f"{count(cap.iops)} IOPS" if cap.iops is not None else byte_rate(cap.bytes_per_s)
    now = _now(facts, disk, cap)
    role = _role(disk)
    queue = facts.by(host.DISK_QUEUE).get(disk.name)
    waits = [facts.by(metric).get(disk.name) for metric in (host.DISK_READ_AWAIT, host.DISK_WRITE_AWAIT)]
    await_ms = max((wait_ms for wait_ms in waits if wait_ms is not None), default=None)
    learned = " (learned)" if cap.learned else ""
    by = named(facts, "shared_blks_read", *READS)
    return Hit(
        sentence=f"the {role} is at its limit: {short_name(disk.name)} does {now} of {limit}{learned}; {facts.share_text(impact_ms)}{by.clause}",
        middle=(f"the {role} is at its limit: {short_name(disk.name)} does {now} of {limit}",),
        short=f"the {role} {short_name(disk.name)} is at its limit: {now} of {limit}",
        culprit=short_name(disk.name),
        statement=by.words,
        impact_ms=impact_ms,
        evidence=evidence(
            ("limit", f"{limit}, {'seen' if cap.learned else 'given'}"),
            ("now", now),
            ("waits for this disk", facts.ms_text(impact_ms)),
            ("queue", f"{queue:.1f}" if queue is not None else None),
            ("time per request", with_ms(await_ms) if await_ms is not None else None),
            ("busy", f"{facts.by(host.DISK_BUSY).get(disk.name, 0.0):.0f} %"),
        ),
        next_step=(
            "use a faster volume, or write less: fewer checkpoints and full-page images; more memory helps only against reads."
            " Not the cause if the disk leaves its limit and latency stays the same"
        ),
        deeds=(*explain(by.statement, "shows what it reads"), page("7", "shows the disks")),
    )


def _at_cap(facts: Facts) -> list[tuple[DiskCounters, CapReached]]:
    sample = facts.interval.now(sections.disks)
    if sample is None or not any(_of_roles(facts, disk) >= _WAITED_FOR * facts.latency_ms for disk in sample.disks):
        return []
    caps = facts.interval.once(disks_at_cap)
    return [(disk, caps[disk.name]) for disk in sample.disks if disk.name in caps and disk.roles]


def _of_roles(facts: Facts, disk: DiskCounters) -> float:
    """Return the ms of each transaction that wait for data on this disk."""
    total_ms = 0.0
    if any(role == "data" or role.startswith("tablespace") for role in disk.roles):
        total_ms += read_ms(facts) + facts.b(
            "io:datafilewrite", "io:datafileflush", "io:datafileextend", "io:datafilesync"
        )
    if "wal" in disk.roles:
        total_ms += wal_ms(facts)
    if "temp" in disk.roles or "data" in disk.roles:
        total_ms += facts.b(*TEMP_WAITS)
    return min(total_ms, facts.latency_ms)


def _role(disk: DiskCounters) -> str:
    if "data" in disk.roles:
        return "data disk"
    return "WAL disk" if "wal" in disk.roles else "tablespace disk" if "temp" not in disk.roles else "temporary disk"


def _now(facts: Facts, disk: DiskCounters, cap: CapReached) -> str:
    if cap.iops is not None:
        done = facts.by(host.DISK_READS).get(disk.name, 0.0) + facts.by(host.DISK_WRITES).get(disk.name, 0.0)
        return count(done)
    done = facts.by(host.DISK_READ_BYTES).get(disk.name, 0.0) + facts.by(host.DISK_WRITE_BYTES).get(disk.name, 0.0)
    return size(done)


def _read_disk(facts: Facts) -> Hit | None:
    impact_ms = read_ms(facts)
    if impact_ms <= 0.0:
        return None
    reads = facts.once(_Reads)
    pressure = facts.of(host.PSI_IO_SOME) or 0.0
    if reads.each_ms < _SLOW_READ_MS or (reads.from_disk < _FROM_DISK and pressure < _PRESSURE):
        return None
    by = named(facts, "shared_blks_read", *READS, of_total=reads.blocks_per_s)
    await_ms = facts.by(host.DISK_READ_AWAIT).get(facts.disk_of("data") or "", 0.0)
    # Reads that wait for long before a disk that answers at once are held back above it.
    is_above = 0.0 < await_ms * FAR_SLOWER <= reads.each_ms
    limit_step = "find what limits reads above the disk: io.max of a control group, or the hypervisor. Else "
    return Hit(
        sentence=(
            f"reads take {facts.share_text(impact_ms)}: {count(reads.blocks_per_s)} blocks/s"
            f" of {with_ms(reads.each_ms)} each{by.clause}"
        ),
        middle=(f"reads: {facts.percent(impact_ms)}, {with_ms(reads.each_ms)} per block{by.clause}",),
        brief=f"reads{by.brief}" if by.brief else "",
        short=f"reads: {facts.percent(impact_ms)}{by.brief or f', {with_ms(reads.each_ms)} per block'}",
        culprit=by.culprit,
        statement=by.words,
        impact_ms=impact_ms,
        evidence=evidence(
            ("reads", facts.ms_text(impact_ms)),
            ("blocks read", f"{count(reads.blocks_per_s)}/s"),
            ("time per block", with_ms(reads.each_ms)),
            ("time per read of the disk", f"{with_ms(await_ms)}: the rest is above it" if is_above else None),
            ("from disk", f"{100 * min(reads.from_disk, 1.0):.0f} %"),
            ("I/O pressure", f"{pressure:.0f} %"),
        ),
        next_step=(
            f"{limit_step if is_above else ''}add an index, or raise shared_buffers or memory. Not the cause if buffer hits"
            " rise and latency stays the same"
        ),
        deeds=(
            *explain(by.statement, "shows whether an index is missing"),
            stage("shared_buffers", "raise", "fewer blocks are read from disk, after a restart"),
            page("6", "shows reads by kind of process"),
        ),
        looks=facts.n("io:datafileread", "io:aioiocompletion", "ipc:bufferio"),
        agreed=reads.timed or reads.from_disk >= _FROM_DISK,
    )


def _read_cache(facts: Facts) -> Hit | None:
    reads = facts.once(_Reads)
    used = facts.server_cpus if reads.timed_us_per_s >= 1e5 * _COPYING else None
    if not used:
        return None
    copying = reads.timed_us_per_s / 1e6 / used
    if not reads.timed or copying < _COPYING or reads.each_ms >= _CACHED_MS or reads.from_disk >= _FROM_DISK:
        return None
    impact_ms = min(reads.timed_us_per_s / 1000.0 / facts.tps if facts.tps else 0.0, facts.latency_ms)
    return Hit(
        sentence=(
            f"{count(reads.blocks_per_s)} blocks/s are copied from the kernel's page cache:"
            f" {100 * min(copying, 1.0):.0f} % of the server's CPU time"
        ),
        short=f"{count(reads.blocks_per_s)} blocks/s are copied from the kernel's page cache",
        impact_ms=impact_ms,
        evidence=evidence(
            ("time per block", with_ms(reads.each_ms)), ("copying", f"{100 * min(copying, 1.0):.0f} % of CPU")
        ),
        next_step="raise shared_buffers (needs a restart): CPU per transaction falls. Not the cause if throughput stays the same",
        deeds=(
            stage("shared_buffers", "raise", "fewer blocks are copied from the kernel's page cache, after a restart"),
        ),
    )


def _write(facts: Facts) -> Hit | None:
    impact_ms = facts.b("io:datafilewrite", "io:datafileflush")
    if impact_ms <= 0.0:
        return None
    written = sum(
        row.per_s("writes") or 0.0 for row in io_rates(facts.interval) if row.row.backend_type == "client backend"
    )
    by = named(facts, "shared_blks_written", "io:datafilewrite", "io:datafileflush")
    return Hit(
        sentence=(
            f"sessions write dirty pages themselves: {facts.share_text(impact_ms)}; {count(written)} pages/s{by.clause}"
        ),
        middle=(f"sessions write dirty pages themselves: {facts.percent(impact_ms)}{by.clause}",),
        brief=f"dirty pages{by.brief}" if by.brief else "",
        short=f"sessions write dirty pages{by.brief or f' themselves: {facts.percent(impact_ms)}'}",
        culprit=by.culprit,
        statement=by.words,
        impact_ms=impact_ms,
        evidence=evidence(("writes by sessions", facts.ms_text(impact_ms)), ("pages", f"{count(written)}/s")),
        next_step="set bgwriter_delay to 20ms and bgwriter_lru_maxpages to 1000: sessions write less. Not the cause if latency then stays the same",
        deeds=(
            stage("bgwriter_lru_maxpages", "raise", "the background writer cleans pages before sessions need them"),
            *explain(by.statement, "shows what it writes"),
            page("6", "shows writes by kind of process"),
        ),
        looks=facts.n("io:datafilewrite", "io:datafileflush"),
        agreed=written > 0.0,
    )


def _dirty(facts: Facts) -> Hit | None:
    dirty = (host.MEMORY_DIRTY(facts.interval) or 0.0) + (host.MEMORY_WRITEBACK(facts.interval) or 0.0)
    available = host.MEMORY_AVAILABLE(facts.interval)
    if not available or dirty < _NEARLY * _DIRTY_OF_AVAILABLE * available:
        return None
    impact_ms = facts.b("io:datafilewrite", "io:buffilewrite", "io:walwrite")
    return Hit(
        sentence=f"the kernel throttles writers: {size(dirty)} dirty; {facts.share_text(impact_ms)}",
        short=f"the kernel throttles writers: {size(dirty)} dirty",
        impact_ms=impact_ms,
        evidence=evidence(
            ("dirty and in writeback", size(dirty)),
            ("available", size(available)),
            ("writes", facts.ms_text(impact_ms)),
        ),
        next_step="set vm.dirty_background_bytes to 256 MB: stalls become shorter",
        deeds=(stage("vm.dirty_background_bytes", "lower", "the kernel writes earlier, and less at once"),),
        agreed=False,
    )


def _sync_queue(facts: Facts) -> Hit | None:
    waiting, synced = facts.s("timeout:registersyncrequest"), io.BACKEND_FSYNCS(facts.interval)
    if waiting < _SLEEPS and (synced or 0.0) < 1.0:
        return None
    impact_ms = facts.b("timeout:registersyncrequest", "io:datafilesync")
    return Hit(
        sentence=f"the checkpointer's queue of fsync requests is full: {facts.share_text(impact_ms)}",
        short="the checkpointer's queue of fsync requests is full",
        impact_ms=impact_ms,
        evidence=evidence(
            ("sessions waiting for the queue", f"{waiting:.2f}"), ("files synced by sessions", f"{synced or 0.0:.1f}/s")
        ),
        next_step="raise shared_buffers: the queue has one entry per buffer",
        deeds=(stage("shared_buffers", "raise", "the queue has one entry per buffer"),),
    )


def spilling(facts: Facts) -> Named:
    """Return the statement that writes most temporary files."""
    block_bytes = next((rate.block_bytes for rate in statement_rates(facts.interval)), None)
    spilled = facts.of(server.TEMP_BYTES)
    total = spilled / block_bytes if spilled and block_bytes else None
    by = named(facts, "temp_blks_written", *TEMP_WAITS, of_total=total)
    return by if by.statement is not None else Named(facts.statement("*"))


def _temp(facts: Facts) -> Hit | None:
    looks = facts.interval.recent(sections.database, 10.0, least=2)
    steps = [newer.temp_bytes > older.temp_bytes for newer, older in pairwise(looks)]
    if sum(steps) < _SPILLS:
        return None
    spilled, waits_ms = facts.of(server.TEMP_BYTES), temp_ms(facts)
    by = spilling(facts)
    rate, of_work = _spilling_work(facts, by)
    # The kernel copies and writes the files: its part of the statement's CPU time is theirs, too.
    kernel_ms = of_work * facts.kernel_share * (cpu_ms(facts) + queue_ms(facts))
    impact_ms = min(waits_ms + kernel_ms, facts.latency_ms)
    each_bytes = 0.0
    if rate is not None and rate.block_bytes:
        each_bytes = rate.block_bytes * (rate.grown.each("temp_blks_written", "calls") or 0.0)
    per_execution = f"{size(each_bytes)} per execution" if each_bytes else None
    return Hit(
        sentence=(
            f"sorts and hashes spill {byte_rate(spilled)} to temporary files: {facts.share_text(impact_ms)}{by.clause}"
        ),
        middle=(f"sorts and hashes spill {byte_rate(spilled)}: {facts.percent(impact_ms)}{by.clause}",),
        brief=f"spills{by.brief}" if by.brief else "",
        short=f"spills {byte_rate(spilled)}{by.brief}"
        if by.brief
        else f"sorts and hashes spill {byte_rate(spilled)}: {facts.percent(impact_ms)}",
        culprit=by.culprit,
        statement=by.words,
        impact_ms=impact_ms,
        evidence=evidence(
            ("temporary files", byte_rate(spilled)),
            ("by the statement", per_execution),
            ("waits for these files", facts.ms_text(waits_ms)),
            ("kernel CPU, at most", facts.ms_text(kernel_ms) if kernel_ms else None),
        ),
        next_step=(
            f"raise work_mem for its role or its transaction (SET LOCAL){f' towards {per_execution}' if per_execution else ''}."
            " Not the cause if throughput stays the same without temporary files"
        ),
        deeds=(
            *_work_mem(facts, rate, each_bytes),
            stage("work_mem", "raise", "sorts and hashes stay in memory"),
            *explain(by.statement, "shows which sort or hash spills"),
            page("8", "shows temporary files"),
        ),
        # The server counts the bytes; samples only say how long sessions wait for them.
        looks=None if (spilled or 0.0) >= _SPILLS_BYTES else facts.n(*TEMP_WAITS),
        note=impact_ms < LEAST * facts.latency_ms and (spilled or 0.0) >= _SPILLS_BYTES,
        before=(*CPU_RULES, "io.read.disk", "io.cap") if impact_ms >= _MUCH * facts.latency_ms and of_work else (),
    )


def _spilling_work(facts: Facts, by: Named) -> tuple[StatementRate | None, float]:
    """Return the statement that spills, and its share of the time of all statements; 0 for one below half of it."""
    rates = [rate for rate in facts.once(rates_of) if by.statement and rate.counters.queryid == by.statement.query_id]
    rate = max(rates, key=lambda one: one.grown.sum("exec_us") or 0, default=None)
    share = min(sum(one.share or 0.0 for one in rates) / 100.0, 1.0)
    return rate, share if share >= _HALF else 0.0


def _work_mem(facts: Facts, rate: StatementRate | None, each_bytes: float) -> tuple[Deed, ...]:
    """Return the deed that gives the role of a statement memory for what it spills; none where that is much memory."""
    memory = host.MEMORY_TOTAL(facts.interval) or 0.0
    if (
        rate is None
        or not rate.counters.usename
        or not 0.0 < each_bytes * max(facts.waits.active, 1.0) < _HALF * memory
    ):
        return ()
    megabytes = 1 << max(ceil(log2(each_bytes / _MIB)), 0)
    statement = f"ALTER ROLE {identifier(rate.counters.usename)} SET work_mem = '{megabytes}MB';"
    return (sql(statement, "its new sessions sort and hash in memory"),)


def _extend(facts: Facts) -> Hit | None:
    sessions = facts.s(*_EXTENDING)
    return waiting(
        facts,
        _EXTENDING,
        f"{sessions:.1f} sessions wait to extend a table" if sessions >= 1.0 else "sessions wait to extend a table",
        "use fewer writers, COPY or partitions; PostgreSQL 16 and later extend tables by several pages at once",
        short="sessions wait to extend a table",
        brief="extending tables",
        more=(("sessions", f"{sessions:.2f}"),),
    )


def _swap(facts: Facts) -> Hit | None:
    swapped, stalled = facts.of(host.SWAP_IN) or 0.0, facts.of(host.PSI_MEMORY_SOME)
    if swapped < _SWAP_BYTES or (stalled or 0.0) < _MEMORY_PRESSURE:
        return None
    return Hit(
        sentence=f"the machine swaps: {byte_rate(swapped)} swapped in, tasks wait for memory {stalled:.0f} % of the time",
        short=f"the machine swaps: {byte_rate(swapped)} swapped in",
        impact_ms=(stalled or 0.0) / 100.0 * facts.latency_ms,
        evidence=evidence(("swapped in", byte_rate(swapped)), ("waiting for memory", f"{stalled:.0f} %")),
        next_step="lower shared_buffers or work_mem, use fewer sessions, set vm.swappiness to 1",
        deeds=(stage("shared_buffers", "lower", "less memory is needed, after a restart"), page("7", "shows memory")),
    )


def _group(facts: Facts) -> Hit | None:
    hits, stalled = facts.of(host_details.GROUP_MEMORY_HITS) or 0.0, facts.of(host_details.GROUP_MEMORY_SOME)
    if hits < _HITS or (stalled or 0.0) < _MEMORY_PRESSURE:
        return None
    return Hit(
        sentence=f"the control group is at its memory limit: tasks wait for memory {stalled:.0f} % of the time",
        short=f"the control group is at its memory limit: {stalled:.0f} % of time",
        impact_ms=(stalled or 0.0) / 100.0 * facts.latency_ms,
        evidence=evidence(("limit hit", f"{hits:.0f}/s"), ("waiting for memory", f"{stalled:.0f} %")),
        next_step="raise the limit, or lower shared_buffers and work_mem. Not the cause if the waits for memory stay the same",
        deeds=(stage("work_mem", "lower", "sorts and hashes take less memory"), page("7", "shows memory")),
    )


def _pages(facts: Facts) -> Hit | None:
    tables, total = host.PAGE_TABLES(facts.interval), host.MEMORY_TOTAL(facts.interval)
    if not tables or not total or tables < _PAGE_TABLES * total or sum(host.HUGE_USED(facts.interval).values()) > 0:
        return None
    return Hit(
        sentence=f"page tables take {size(tables)}: each session maps shared_buffers in pages of 4 kB",
        short=f"page tables take {size(tables)}: no huge pages",
        share=tables / total,
        evidence=evidence(("page tables", size(tables)), ("of memory", f"{100 * tables / total:.1f} %")),
        next_step="set vm.nr_hugepages and huge_pages=try, then restart. The time lost cannot be measured from here",
        deeds=(stage("huge_pages", "set", "page tables become small, after a restart"),),
    )


def _numa(facts: Facts) -> Hit | None:
    hits, misses = host_details.NODE_HIT(facts.interval), host_details.NODE_MISS(facts.interval)
    far = {node: missed / (missed + hits.get(node, 0.0)) for node, missed in misses.items() if missed > 0}
    node = max(sorted(far), key=lambda node_id: far[node_id], default=None)
    if node is None or len(hits) < 2 or far[node] < _FAR:
        return None
    return Hit(
        sentence=f"{misses[node]:.0f} pages/s of memory node {node} were meant for another node, whose memory is full",
        short=f"{misses[node]:.0f} pages/s come from another memory node",
        evidence=evidence(("from another node", f"{100 * far[node]:.0f} %")),
        next_step="interleave the server's memory (numactl --interleave=all); copying files looks the same for a while",
    )


RULES: Final = (
    FindingRule(
        id="io.cap",
        page="7",
        needs=(sections.disks, sections.waits),
        find=_cap,
        before=(
            "wal.flush",
            "wal.volume",
            "io.read.disk",
            "io.write",
            "io.dirty",
            "ckpt.sync",
            "io.extend",
        ),
    ),
    FindingRule(id="io.read.disk", page="6", needs=_WAITS, find=_read_disk, before=("lw.mapping",)),
    FindingRule(
        id="io.read.cache", kind=FindingKind.NOTE, page="6", needs=(sections.io, sections.processes), find=_read_cache
    ),
    FindingRule(
        id="io.dirty",
        page="7",
        needs=(sections.memory, sections.waits),
        find=_dirty,
        before=("io.write",),
    ),
    FindingRule(id="io.write", page="6", needs=_WAITS, find=_write),
    FindingRule(
        id="io.syncqueue",
        page="6",
        needs=(sections.checkpoints, sections.waits),
        find=_sync_queue,
    ),
    FindingRule(id="io.temp", page="8", needs=(sections.database, sections.waits), find=_temp),
    FindingRule(id="io.extend", page="6", needs=_WAITS, find=_extend),
    FindingRule(id="mem.swap", page="7", needs=(sections.memory, sections.pressure), find=_swap),
    FindingRule(id="mem.group", page="7", needs=(sections.cgroup,), find=_group),
    FindingRule(id="mem.pages", kind=FindingKind.NOTE, page="7", needs=(sections.memory,), find=_pages),
    FindingRule(id="mem.numa", kind=FindingKind.NOTE, page="7", needs=(sections.numa,), find=_numa),
)
