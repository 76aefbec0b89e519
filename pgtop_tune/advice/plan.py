"""The division of one machine's memory: buffers, sessions, maintenance, huge pages and CommitLimit together. Pure.

Sources: `metrics.memory_rule`; PostgreSQL documentation, "Managing Kernel Resources"; mm/overcommit-accounting.rst.
"""

from __future__ import annotations

import math
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.advice.facts import AdviceFacts, Machine
from pgtop_tune.metrics import memory_rule
from pgtop_tune.metrics.memory_rule import MemoryUse
from pgtop_tune.model.host import HugePages
from pgtop_tune.model.parameter_values import parse
from pgtop_tune.units import GB, MB, about, memory

SMALL_BUFFERS: Final = GB
LEAST_WORK_MEM: Final = 4 * MB
MOST_WORK_MEM: Final = 64 * MB
_SHARE: Final = 0.9
"""Of the memory: the rule says no more than this may be asked for."""
_MOST_POOL: Final = 0.6
_USED_PERCENT: Final = 95
_HEADROOM: Final = 0.8
"""Of CommitLimit: so much may be committed already when strict accounting begins."""
_FEW: Final = 100
_PER_CORE: Final = 10
_LEAST_CONNECTIONS: Final = 20
_ROOM: Final = 1.25
"""Connections for each session that is there."""
_BELONGS: Final = 1.024
_MOST_AUTOVACUUM: Final = 0.125
_SPARE: Final = 1.1
_IN_USE: Final = 0.9
_NEARLY: Final = 0.75
"""Of half of what is left for each session: work_mem that is set to that, or more and still fits, stays."""


class MemoryPlan(Struct, frozen=True, kw_only=True):
    """What everything that takes memory is to have.

    Attributes:
        use: The memory rule with the values to be.
        maintenance_bytes: maintenance_work_mem.
        autovacuum_work_mem: As one types it; "-1" where maintenance_work_mem counts.
        shared_bytes: Shared memory of a server with these values.
        pages: vm.nr_hugepages; None where the pool is left as it is.
        pages_held: Those of the pool that the server has, or wants to have after a restart, with what is set now.
        page_bytes: Size of one.
        reserved: Whether the pool is there already.
        pages_refused: The arithmetic, where the machine cannot carry the pool.
        ratio: vm.overcommit_ratio; None where it is not known what it should be.
        commit_limit_bytes: CommitLimit with that ratio and that pool.
        strict_refused: The arithmetic, where CommitLimit would not hold what is and may be asked for.
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
    refused: str = ""

    @property
    def buffers_bytes(self) -> float:
        """shared_buffers."""
        return self.use.shared_buffers_bytes


def plan(facts: AdviceFacts) -> MemoryPlan | None:
    """The plan for a server and its machine; None where its memory is not known."""
    if not facts.ram_bytes:
        return None
    buffers = typed(facts.ram_bytes / 4)
    workers = autovacuum_workers(facts)
    maintenance = typed(memory_rule.maintenance_bytes(facts.major, facts.ram_bytes, workers))
    own = facts.autovacuum_work_mem_bytes
    keeps_own = own is not None and 0 <= own * workers <= _MOST_AUTOVACUUM * facts.ram_bytes
    drawn = MemoryPlan(
        use=MemoryUse(
            major=facts.major,
            ram_bytes=facts.ram_bytes,
            max_connections=connections(facts),
            shared_buffers_bytes=buffers,
            shared_memory_bytes=_most_shared_bytes(facts, buffers),
            temp_buffers_bytes=facts.temp_buffers_bytes,
            parallel_workers=facts.cores or 8,
            autovacuum_max_workers=workers,
            maintenance_work_mem_bytes=own if keeps_own else maintenance,
            hash_mem_multiplier=facts.hash_mem_multiplier,
        ),
        maintenance_bytes=maintenance,
        autovacuum_work_mem=as_set(own) if keeps_own and own is not None else "-1",
        shared_bytes=shared_memory_bytes(facts, buffers),
    )
    drawn = _with_pool(drawn, facts)
    # A pool that is not ours to see holds what runs in it now, and no more.
    held = facts.machine is None and facts.in_huge_pages is True and buffers <= (facts.running_buffers_bytes or 0)
    in_pages = drawn.pages is not None or held
    drawn = replace(drawn, use=replace(drawn.use, small_pages=not in_pages))
    drawn = _with_sessions(drawn, facts)
    return drawn if facts.machine is None else _with_commit_limit(drawn, facts, facts.machine)


def typed(size_bytes: float) -> float:
    """A size as it is after somebody has typed it: rounded down."""
    return parse(memory(size_bytes), "kB", integer=True) * 1024


def as_set(size_bytes: float) -> str:
    """A size as one types it, to the kilobyte: what is set already, not what is advised."""
    kilobytes = int(size_bytes // 1024)
    unit, size = next(
        (unit, size) for unit, size in (("GB", GB), ("MB", MB), ("kB", 1024)) if kilobytes * 1024 % size == 0
    )
    return f"{kilobytes * 1024 // size}{unit}"


def autovacuum_workers(facts: AdviceFacts) -> int:
    """3, 4 from 16 cores on, 5 from 32; no more than the server has slots for."""
    cores = facts.cores or 0
    workers = 5 if cores >= 32 else 4 if cores >= 16 else 3
    return min(workers, facts.autovacuum_worker_slots or workers)


def most_connections(cores: int) -> int:
    """Ten for each core, at least 100: more sessions only wait for each other."""
    return max(_PER_CORE * cores, _FEW)


def connections(facts: AdviceFacts) -> int:
    """As many as the cores serve; fewer where fewer are set, and room for the sessions there are.

    A standby keeps what it has: with less than its primary it does not start.
    """
    most = most_connections(facts.cores) if facts.cores else facts.max_connections or _FEW
    now = facts.max_connections
    if now is not None and (now <= most or not _may_be(most, facts)):
        return now
    return most


def _may_be(number: int, facts: AdviceFacts) -> bool:
    return not facts.in_recovery and number >= facts.sessions * _ROOM


def shared_memory_bytes(facts: AdviceFacts, buffers_bytes: float) -> float:
    """All shared memory of a server with other shared_buffers: what the running one has and what the buffers differ.

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
    """A bound for the memory rule, which is the same once the server runs with these buffers."""
    running = facts.running_buffers_bytes or facts.shared_buffers_bytes
    if not facts.shared_memory_bytes or not running:
        return shared_memory_bytes(facts, buffers_bytes)
    beside = (facts.shared_memory_bytes - running * _BELONGS) // MB * MB
    return buffers_bytes * 1.05 + max(beside, 64 * MB)


def _with_pool(drawn: MemoryPlan, facts: AdviceFacts) -> MemoryPlan:
    """Huge pages for shared memory, beside those that others have of the pool."""
    machine = facts.machine
    if machine is None or not machine.huge_page_bytes or not machine.ram_bytes or drawn.buffers_bytes < SMALL_BUFFERS:
        return drawn
    page = machine.huge_page_bytes
    pool = usual_pool(machine)
    needed, others = math.ceil(drawn.shared_bytes / page), _pages_of_others(pool, facts)
    pages, live = needed + others, machine.number("vm.nr_hugepages") or pool.total
    if is_enough(live, pages, page):
        pages = live
    held = 0
    if facts.huge_pages == "on" or facts.in_huge_pages:
        held = math.ceil(shared_memory_bytes(facts, facts.shared_buffers_bytes or 0) / page) + others
        held = live if held > live or is_enough(live, held, page) else held
    drawn = replace(drawn, page_bytes=page, pages=pages, pages_held=held, reserved=live >= pages)
    beside = f", {others} of them for others" if others else ""
    size = f"{pages} pages of {about(page)}{beside}, are {about(pages * page)}"
    if pages * page > _MOST_POOL * machine.ram_bytes:
        words = f"{size}: more than 60 % of {about(machine.ram_bytes)}."
        return replace(drawn, pages=None, reserved=False, pages_refused=words)
    limit = _commit_limit(pages * page, machine)
    if machine.number("vm.overcommit_memory") == 2 and limit and limit[1] < (machine.committed_bytes or 0):
        words = (
            f"{size}: CommitLimit would be {about(limit[1])}, and {about(machine.committed_bytes or 0)} are committed."
        )
        return replace(drawn, pages=None, reserved=False, pages_refused=words)
    return drawn


def usual_pool(machine: Machine) -> HugePages:
    """The pool of the default size, which vm.nr_hugepages is about."""
    size = machine.huge_page_bytes or 0
    return next(
        (each for each in machine.pools if each.page_bytes == size),
        HugePages(page_bytes=size, total=0, free=0, reserved=0, surplus=0),
    )


def pages_taken(pool: HugePages) -> int:
    """Pages of a pool in use, or promised."""
    return pool.total - pool.free + pool.reserved


def is_enough(live: int, pages: int, page_bytes: int) -> bool:
    """Whether a pool holds so many pages, and not so many more that it is worth a change: a tenth, or a gigabyte."""
    return pages <= live <= max(pages * _SPARE, pages + GB // page_bytes)


def _pages_of_others(pool: HugePages, facts: AdviceFacts) -> int:
    taken = pages_taken(pool)
    running = facts.running_buffers_bytes or facts.shared_buffers_bytes or 0
    own = math.ceil(shared_memory_bytes(facts, running) / pool.page_bytes)
    has_own = facts.in_huge_pages is not False and taken >= own * _IN_USE
    return max(taken - own, 0) if has_own else taken


def _with_sessions(drawn: MemoryPlan, facts: AdviceFacts) -> MemoryPlan:
    """work_mem: half of what the rule leaves for each, or what is set; fewer sessions where that is too little."""
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
        words = f"{arithmetic} = {about(total)}, of {about(use.ram_bytes)} of memory."
        return replace(drawn, use=use, refused=words)
    half = min(max(ceiling / 2, LEAST_WORK_MEM), MOST_WORK_MEM)
    now = facts.work_mem_bytes
    keeps = now is not None and max(half * _NEARLY, LEAST_WORK_MEM) <= now <= min(ceiling, MOST_WORK_MEM)
    return replace(drawn, use=replace(use, work_mem_bytes=float(now) if keeps and now is not None else typed(half)))


def _connections_that_fit(use: MemoryUse) -> int:
    """In steps of five, with the work_mem that is given."""
    none, one = (
        sum(term.size_bytes for term in memory_rule.terms(replace(use, max_connections=number))) for number in (0, 1)
    )
    return int((_SHARE * use.ram_bytes - none) / (one - none)) // 5 * 5


def _with_commit_limit(drawn: MemoryPlan, facts: AdviceFacts, machine: Machine) -> MemoryPlan:
    """Strict accounting where CommitLimit holds what is committed and what sessions may ask for beside it."""
    pool = usual_pool(machine)
    limit = _commit_limit((pool.total if drawn.pages is None else drawn.pages) * pool.page_bytes, machine)
    if limit is None:
        return replace(drawn, strict_refused="The memory of this machine is not known.")
    ratio, limit_bytes = limit
    drawn = replace(drawn, ratio=ratio, commit_limit_bytes=limit_bytes)
    if machine.committed_bytes is None:
        return replace(drawn, strict_refused="The memory already committed is unknown.")
    private = (memory_rule.SESSIONS, memory_rule.PARALLEL, memory_rule.AUTOVACUUM)
    growth = sum(term.size_bytes for term in memory_rule.terms(drawn.use) if term.what in private)
    committed = machine.committed_bytes + _more_in_small_pages(drawn, facts)
    is_strict = machine.number("vm.overcommit_memory") == 2
    if committed <= _HEADROOM * limit_bytes and (is_strict or committed + growth <= limit_bytes):
        return drawn
    words = (
        f"CommitLimit would be {about(limit_bytes)}: {about(committed)} are committed, and sessions may ask for "
        f"{about(growth)} more. Ask again after a restart that makes the server smaller."
    )
    return replace(drawn, strict_refused=words)


def _more_in_small_pages(drawn: MemoryPlan, facts: AdviceFacts) -> float:
    """What the server will have committed more than now: shared memory counts unless it is in huge pages."""
    if not drawn.use.small_pages:
        return 0.0
    running = facts.running_buffers_bytes or facts.shared_buffers_bytes or 0
    now = 0.0 if facts.in_huge_pages else shared_memory_bytes(facts, running)
    return max(drawn.shared_bytes - now, 0.0)


def _commit_limit(pool_bytes: float, machine: Machine) -> tuple[int, float] | None:
    """The ratio that grants all memory but a twentieth, and CommitLimit with it and a pool of the default size.

    CommitLimit = (memory − huge pages) × vm.overcommit_ratio + swap
    """
    if not machine.ram_bytes or machine.swap_bytes is None:
        return None
    others = sum(each.total * each.page_bytes for each in machine.pools if each.page_bytes != machine.huge_page_bytes)
    usable = machine.ram_bytes - pool_bytes - others
    if usable <= 0:
        return None
    ratio = max(int((_USED_PERCENT * machine.ram_bytes - 100 * (machine.ram_bytes - usable)) // usable), 1)
    return ratio, usable * ratio / 100 + machine.swap_bytes
