"""The division of one machine's memory: buffers, sessions, maintenance, huge pages and CommitLimit together. Pure.

Sources: `metrics.memory_rule`; PostgreSQL documentation, "Managing Kernel Resources"; mm/overcommit-accounting.rst.
"""

from __future__ import annotations

import math
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.advice.facts import AdviceFacts, Machine
from pgtop_tune.advice.rules.wal import more_wal_buffers_bytes
from pgtop_tune.base.units import GB, MB, about, as_set, memory
from pgtop_tune.metrics import memory_rule
from pgtop_tune.metrics.memory_rule import MemoryUse
from pgtop_tune.model.host import HugePages
from pgtop_tune.model.parameter_values import parse

SMALL_BUFFERS: Final = GB
LEAST_WORK_MEM: Final = 4 * MB
MOST_WORK_MEM: Final = 64 * MB
_SHARE: Final = 0.9
"""Share of the memory that may be asked for at most."""
_MOST_POOL: Final = 0.6
_LEAST_SHARE: Final = 0.1
"""Share of the memory that the server gets, whatever others hold in huge pages."""
_USED_PERCENT: Final = 95
_HEADROOM: Final = 0.8
"""Share of CommitLimit that may be committed when strict accounting begins."""
_FEW: Final = 100
_PER_CORE: Final = 10
_LEAST_CONNECTIONS: Final = 20
_ROOM: Final = 1.25
"""Connections for each session that is there."""
_BELONGS: Final = 1.024
_MOST_AUTOVACUUM: Final = 0.125
_LEAST_AUTOVACUUM: Final = 64 * MB
_SPARE: Final = 1.1
_IN_USE: Final = 0.9
_NEARLY: Final = 0.75
"""Share of half of each session's rest: a set work_mem of at least that, which fits, stays."""


class MemoryPlan(Struct, frozen=True, kw_only=True):
    """Shares of the memory.

    Attributes:
        use: The memory rule with the values to be.
        maintenance_bytes: maintenance_work_mem.
        autovacuum_work_mem: Value as one types it; "-1" where maintenance_work_mem counts.
        shared_bytes: Shared memory of a server with these values.
        pages: vm.nr_hugepages; None where the pool is left as it is.
        pages_held: Huge pages of the pool that the server has, or will need after a restart with the present settings.
        page_bytes: Size of one.
        reserved: Whether the pool is there already.
        pages_refused: The arithmetic, where the machine cannot carry the pool.
        ratio: vm.overcommit_ratio; None where it is not known what it should be.
        commit_limit_bytes: CommitLimit with that ratio and that pool.
        strict_refused: The arithmetic, where CommitLimit would not hold what is and may be asked for.
        strict_left: Whether strict accounting is in force, and the server would not even start under it.
        strict_waits: The arithmetic, where CommitLimit holds that only after a restart with these values.
        strict_pauses: The arithmetic, where strict accounting is in force, and the pool or the ratio leaves too little
            until a restart with these values.
        small_refused: The arithmetic, where the server with these buffers would not start under the strict accounting
            in force, unless the machine's half is made as well.
        refused: The arithmetic, where the memory rule cannot hold with the sessions there are.
    """

    use: MemoryUse
    maintenance_bytes: float
    autovacuum_work_mem: str
    shared_bytes: float
    pages: int | None = None
    pages_held: int = 0
    page_bytes: int = 0
    reserved: bool = False
    pages_refused: str = ""
    ratio: int | None = None
    commit_limit_bytes: float = 0.0
    strict_refused: str = ""
    strict_left: bool = False
    strict_waits: str = ""
    strict_pauses: str = ""
    small_refused: str = ""
    refused: str = ""

    @property
    def buffers_bytes(self) -> float:
        """Return shared_buffers."""
        return self.use.shared_buffers_bytes


def plan(facts: AdviceFacts) -> MemoryPlan | None:
    """Return the plan for a server and its machine; None where its memory is not known."""
    if not facts.ram_bytes:
        return None
    ram_bytes = _memory_bytes(facts)
    fixed = facts.shared_buffers_bytes if "shared_buffers" in facts.started_with else None
    buffers = typed(ram_bytes / 4) if fixed is None else float(fixed)
    workers = autovacuum_workers(facts)
    maintenance = typed(memory_rule.maintenance_bytes(facts.major, ram_bytes, workers))
    own_bytes = facts.autovacuum_work_mem_bytes
    least = min(maintenance, _LEAST_AUTOVACUUM)
    keeps_own = own_bytes is not None and own_bytes >= least and own_bytes * workers <= _MOST_AUTOVACUUM * ram_bytes
    drawn = MemoryPlan(
        use=MemoryUse(
            major=facts.major,
            ram_bytes=ram_bytes,
            max_connections=connections(facts),
            shared_buffers_bytes=buffers,
            shared_memory_bytes=_most_shared_bytes(facts, buffers),
            temp_buffers_bytes=facts.temp_buffers_bytes,
            parallel_workers=facts.cores or 8,
            autovacuum_max_workers=workers,
            maintenance_work_mem_bytes=own_bytes if keeps_own else maintenance,
            hash_mem_multiplier=facts.hash_mem_multiplier,
            page_bytes=facts.page_bytes,
        ),
        maintenance_bytes=maintenance,
        autovacuum_work_mem=as_set(own_bytes) if keeps_own and own_bytes is not None else "-1",
        shared_bytes=shared_memory_bytes(facts, buffers) + more_wal_buffers_bytes(facts, buffers),
    )
    drawn = _with_pool(drawn, facts)
    # A pool that we cannot see or size holds only the present shared memory.
    not_ours = facts.machine is None or bool(drawn.pages_refused)
    in_held_pages = not_ours and facts.in_huge_pages is True and buffers <= (facts.running_buffers_bytes or 0)
    drawn = replace(drawn, use=replace(drawn.use, small_pages=drawn.pages is None and not in_held_pages))
    drawn = _with_sessions(drawn, facts)
    return drawn if facts.machine is None else _with_commit_limit(drawn, facts, facts.machine)


def typed(size_bytes: float) -> float:
    """Return a size as its text gives it back, "5888MB": rounded down."""
    return parse(memory(size_bytes), "kB", integer=True) * 1024


def _memory_bytes(facts: AdviceFacts) -> float:
    """Return the memory the server may use, without huge pages of others, which nobody else can have."""
    machine, ram_bytes = facts.machine, float(facts.ram_bytes or 0)
    if machine is None or not machine.ram_bytes:
        return ram_bytes
    held_bytes = sum(_pages_of_others(pool, facts) * pool.page_bytes for pool in machine.pools)
    return min(ram_bytes, max(machine.ram_bytes - held_bytes, machine.ram_bytes * _LEAST_SHARE))


def autovacuum_workers(facts: AdviceFacts) -> int:
    """Return 3, 4 from 16 cores on, 5 from 32; no more than the server has slots for."""
    cores = facts.cores or 0
    workers = 5 if cores >= 32 else 4 if cores >= 16 else 3
    return min(workers, facts.autovacuum_worker_slots or workers)


def most_connections(cores: int) -> int:
    """Return ten for each core, at least 100: more sessions only wait for each other."""
    return max(_PER_CORE * cores, _FEW)


def connections(facts: AdviceFacts) -> int:
    """Return as many as the cores serve; fewer where fewer are set, and room for the sessions there are.

    A standby keeps what it has: with less than its primary it does not start.
    """
    most = most_connections(facts.cores) if facts.cores else facts.max_connections or _FEW
    now = facts.max_connections
    is_fixed = "max_connections" in facts.started_with
    if now is not None and (now <= most or is_fixed or not _may_be(most, facts)):
        return now
    return most


def _may_be(number: int, facts: AdviceFacts) -> bool:
    return not facts.in_recovery and "max_connections" not in facts.started_with and number >= facts.sessions * _ROOM


def shared_memory_bytes(facts: AdviceFacts, buffers_bytes: float) -> float:
    """Return all shared memory of a server with other shared_buffers: the running server's, changed by the difference.

    Before 15, where the server does not say, 5 % for what belongs to the buffers, and 64 MB. What belongs to them is
    2.2 to 2.8 % (measured with postgres -C shared_memory_size, 16 and 17, 128 MB to 64 GB): the bounds keep the result
    from being too small.
    """
    running = facts.running_buffers_bytes or facts.shared_buffers_bytes
    if not facts.shared_memory_bytes or not running:
        return buffers_bytes * 1.05 + 64 * MB
    if buffers_bytes == running:
        return facts.shared_memory_bytes
    return buffers_bytes * 1.03 + max(facts.shared_memory_bytes - running * 1.02, 0.0) + 16 * MB


def _most_shared_bytes(facts: AdviceFacts, buffers_bytes: float) -> float:
    """Return a bound for the memory rule, which is the same once the server runs with these buffers."""
    running = facts.running_buffers_bytes or facts.shared_buffers_bytes
    if not facts.shared_memory_bytes or not running:
        return shared_memory_bytes(facts, buffers_bytes)
    beside = (facts.shared_memory_bytes - running * _BELONGS) // MB * MB
    return buffers_bytes * 1.05 + max(beside, 64 * MB)


def _with_pool(drawn: MemoryPlan, facts: AdviceFacts) -> MemoryPlan:
    """Return the plan with huge pages for shared memory, beside those that others have of the pool."""
    machine = facts.machine
    if machine is None or not machine.huge_page_bytes or not machine.ram_bytes or drawn.buffers_bytes < SMALL_BUFFERS:
        return drawn
    page = machine.huge_page_bytes
    pool = usual_pool(machine)
    if facts.huge_pages == "off" and "huge_pages" in facts.started_with:
        return replace(drawn, pages_refused="The server was started with huge_pages=off.")
    if facts.huge_page_bytes not in (0, page):
        refusal = f"huge_page_size is {about(facts.huge_page_bytes)}: pages of that size are reserved at boot."
        return replace(drawn, pages_refused=refusal)
    needed, other_pages = math.ceil(drawn.shared_bytes / page), _pages_of_others(pool, facts)
    pages, live = needed + other_pages, machine.number("vm.nr_hugepages") or pool.total
    # Bounds are the same once the server runs with these buffers.
    bound, most = (
        math.ceil((drawn.use.shared_memory_bytes or 0.0) / page) + other_pages,
        _MOST_POOL * machine.ram_bytes / page,
    )
    if pages <= live <= min(_with_spare(bound, page), most):
        pages = live
    held_pages = 0
    if facts.huge_pages == "on" or facts.in_huge_pages:
        as_set = facts.shared_buffers_bytes or 0
        held_pages = math.ceil(shared_memory_bytes(facts, as_set) / page) + other_pages
        bound_held = math.ceil(_most_shared_bytes(facts, as_set) / page) + other_pages
        held_pages = live if held_pages > live or live <= _with_spare(bound_held, page) else held_pages
    drawn = replace(drawn, page_bytes=page, pages=pages, pages_held=held_pages, reserved=live >= pages)
    beside = f", {other_pages} of them for others" if other_pages else ""
    size = f"{pages} pages of {about(page)}{beside}, are {about(pages * page)}"
    if bound > most:
        refusal = f"{size}: more than 60 % of {about(machine.ram_bytes)}."
        return replace(drawn, pages=None, reserved=False, pages_refused=refusal)
    return drawn


def usual_pool(machine: Machine) -> HugePages:
    """Return the pool of the default size, which vm.nr_hugepages is about."""
    size = machine.huge_page_bytes or 0
    return next(
        (pool for pool in machine.pools if pool.page_bytes == size),
        HugePages(page_bytes=size, total=0, free=0, reserved=0, surplus=0),
    )


def pages_taken(pool: HugePages) -> int:
    """Return the pages of a pool in use, or promised."""
    return pool.total - pool.free + pool.reserved


def is_enough(live: int, pages: int, page_bytes: int) -> bool:
    """Return whether a pool holds at least so many pages, and at most a tenth or a gigabyte more: it may stay."""
    return pages <= live <= _with_spare(pages, page_bytes)


def _with_spare(pages: int, page_bytes: int) -> float:
    return max(pages * _SPARE, pages + GB // page_bytes)


def _pages_of_others(pool: HugePages, facts: AdviceFacts) -> int:
    own_pages = math.ceil(_running_bytes(facts) / pool.page_bytes)
    return max(pages_taken(pool) - own_pages, 0) if _runs_in(pool, facts) else pages_taken(pool)


def _runs_in(pool: HugePages, facts: AdviceFacts) -> bool:
    """Return whether the running server's shared memory is in the pool; by its pages where the server does not tell."""
    usual = 0 if facts.machine is None else facts.machine.huge_page_bytes
    if facts.in_huge_pages is False or pool.page_bytes != (facts.huge_page_bytes or usual):
        return False
    return pages_taken(pool) >= math.ceil(_running_bytes(facts) / pool.page_bytes) * _IN_USE > 0


def _running_bytes(facts: AdviceFacts) -> float:
    """Return the shared memory of the running server."""
    return shared_memory_bytes(facts, facts.running_buffers_bytes or facts.shared_buffers_bytes or 0)


def _with_sessions(drawn: MemoryPlan, facts: AdviceFacts) -> MemoryPlan:
    """Return the plan with work_mem, half of each session's rest or the set value; fewer sessions if it is small."""
    use = drawn.use
    ceiling = memory_rule.work_mem_ceiling_bytes(use, _SHARE)
    if ceiling < LEAST_WORK_MEM:
        use = replace(use, work_mem_bytes=float(LEAST_WORK_MEM))
        fewer = _connections_that_fit(use)
        least = max(_LEAST_CONNECTIONS, facts.reserved_connections + 10)
        if fewer >= least and _may_be(fewer, facts):
            return replace(drawn, use=replace(use, max_connections=fewer))
        total = sum(term.size_bytes for term in memory_rule.terms(use))
        arithmetic = " + ".join(term.says for term in memory_rule.terms(use))
        refusal = f"{arithmetic} = {about(total)}, of {about(use.ram_bytes)} of memory."
        return replace(drawn, use=use, refused=refusal)
    half = min(max(ceiling / 2, LEAST_WORK_MEM), MOST_WORK_MEM)
    now = facts.work_mem_bytes
    keeps = now is not None and max(half * _NEARLY, LEAST_WORK_MEM) <= now <= min(ceiling, MOST_WORK_MEM)
    return replace(drawn, use=replace(use, work_mem_bytes=float(now) if keeps and now is not None else typed(half)))


def _connections_that_fit(use: MemoryUse) -> int:
    """Return how many connections fit with this work_mem, in steps of five."""
    none, one = (
        sum(term.size_bytes for term in memory_rule.terms(replace(use, max_connections=number))) for number in (0, 1)
    )
    return int((_SHARE * use.ram_bytes - none) / (one - none)) // 5 * 5


def _with_commit_limit(drawn: MemoryPlan, facts: AdviceFacts, machine: Machine) -> MemoryPlan:
    """Return the plan with strict accounting, if CommitLimit holds the memory committed after a restart, and sessions.

    Shared memory is committed as a whole when the server starts, unless it is in huge pages (shmem_acct_size in
    mm/shmem.c): what the running server has of it is given back, what the plan has is added.
    """
    pool = usual_pool(machine)
    pages = pool.total if drawn.pages is None else drawn.pages
    limit = _commit_limit(pages * pool.page_bytes, machine)
    if limit is None:
        return replace(drawn, strict_refused="The memory of this machine is unknown.")
    ratio, limit_bytes = limit
    drawn = replace(drawn, ratio=ratio, commit_limit_bytes=limit_bytes)
    if machine.committed_bytes is None:
        return replace(drawn, strict_refused="The memory already committed is unknown.")
    now = machine.committed_bytes
    in_pages = facts.in_huge_pages is True or any(_runs_in(pool_of_size, facts) for pool_of_size in machine.pools)
    other_bytes = max(now - (0.0 if in_pages else _running_bytes(facts)), 0.0)
    committed = other_bytes + (drawn.use.shared_memory_bytes or 0.0 if drawn.use.small_pages else 0.0)
    growth = _growth_bytes(drawn)
    is_strict = machine.number("vm.overcommit_memory") == 2
    holds = committed + growth <= limit_bytes
    pool_bytes, most_bytes = pages * pool.page_bytes, max(pages, drawn.pages_held, pool.total) * pool.page_bytes
    least = _granted(most_bytes, ratio, machine)
    if is_strict and not holds and _granted_now(pool_bytes, machine) >= limit_bytes:
        # The settings in force grant more: a smaller limit helps nobody.
        limit_bytes, least = (_granted_now(each_bytes, machine) for each_bytes in (pool_bytes, most_bytes))
        drawn = replace(drawn, ratio=None, commit_limit_bytes=limit_bytes)
    # Until the restart the server keeps its memory; with its set values it may have more after one.
    as_set = 0.0 if drawn.pages_held else shared_memory_bytes(facts, facts.shared_buffers_bytes or 0)
    before = now if is_strict else max(now, other_bytes + as_set)
    waits = (
        ""
        if before + growth <= least
        else (
            f"CommitLimit would be {about(least)} now: {about(before)} are committed until the server is restarted as "
            f"advised, and sessions may ask for {about(growth)} more."
        )
    )
    small, limit_now = other_bytes + (drawn.use.shared_memory_bytes or 0.0), machine.commit_limit_bytes or math.inf
    if is_strict and not drawn.reserved and small > limit_now and drawn.shared_bytes > _running_bytes(facts):
        refusal = f"in 4 kB pages it makes {about(small)} committed, of a CommitLimit of {about(limit_now)}"
        drawn = replace(drawn, small_refused=refusal)
    if is_strict and least < limit_now:
        drawn = replace(drawn, strict_pauses=waits)
    if committed <= _HEADROOM * limit_bytes and (is_strict or holds):
        return drawn if is_strict else replace(drawn, strict_waits=waits)
    refusal = (
        f"CommitLimit would be {about(limit_bytes)}: {about(committed)} are committed with the server as advised, and "
        f"sessions may ask for {about(growth)} more."
    )
    return replace(drawn, strict_refused=refusal, strict_left=is_strict and committed > limit_bytes)


def _growth_bytes(drawn: MemoryPlan) -> float:
    """Return the memory that sessions and workers may ask for."""
    private = (memory_rule.SESSIONS, memory_rule.PARALLEL, memory_rule.AUTOVACUUM)
    return sum(term.size_bytes for term in memory_rule.terms(drawn.use) if term.name in private)


def _commit_limit(pool_bytes: float, machine: Machine) -> tuple[int, float] | None:
    """Return the ratio that grants all memory but a twentieth, and CommitLimit with it and a pool of default size."""
    if not machine.ram_bytes or machine.swap_bytes is None:
        return None
    usable = _usable_bytes(pool_bytes, machine)
    if usable <= 0:
        return None
    ratio = max(int((_USED_PERCENT * machine.ram_bytes - 100 * (machine.ram_bytes - usable)) // usable), 1)
    return ratio, _granted(pool_bytes, ratio, machine)


def _granted_now(pool_bytes: float, machine: Machine) -> float:
    """Return CommitLimit with the settings in force, and a pool of the default size."""
    kilobytes = machine.number("vm.overcommit_kbytes")
    if kilobytes:
        return kilobytes * 1024.0 + (machine.swap_bytes or 0)
    return _granted(pool_bytes, machine.number("vm.overcommit_ratio"), machine)


def _granted(pool_bytes: float, ratio: int, machine: Machine) -> float:
    """Return CommitLimit = (memory − huge pages) × vm.overcommit_ratio + swap (mm/util.c)."""
    return max(_usable_bytes(pool_bytes, machine), 0.0) * ratio / 100 + (machine.swap_bytes or 0)


def _usable_bytes(pool_bytes: float, machine: Machine) -> float:
    other_bytes = sum(
        pool.total * pool.page_bytes for pool in machine.pools if pool.page_bytes != machine.huge_page_bytes
    )
    return (machine.ram_bytes or 0) - pool_bytes - other_bytes
