"""A proposal made so and asked again says the same, and the machine carries it: random ones, and that of P2."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgtop_tune.advice.facts import AdviceFacts, Machine
from pgtop_tune.advice.knobs.system import KNOBS, knob_of
from pgtop_tune.advice.plan import pages_taken, usual_pool
from pgtop_tune.advice.proposal import Proposal, propose
from pgtop_tune.base.units import GB, MB
from pgtop_tune.changes.model.change import WantedSetting
from pgtop_tune.changes.selection import around_server, settings_in_order
from pgtop_tune.cli.commands.parameters.advice import settings_to_make
from pgtop_tune.cli.parameter_rows import MachineRow
from pgtop_tune.metrics import memory_rule
from pgtop_tune.model.host import HugePages
from pgtop_tune.model.machine import AfterReboot, DiskKind, SystemSetting, Workload
from pgtop_tune.model.parameter_values import parse

PAGE: Final = 2 * MB
BELONGS: Final = 1.024
"""Shared memory of a server is its shared_buffers times this, and what does not depend on it."""


def with_limit(machine: Machine) -> Machine:
    """CommitLimit as the kernel makes it (mm/util.c)."""
    ram_bytes, kilobytes = machine.ram_bytes or 0, machine.number("vm.overcommit_kbytes")
    usable = ram_bytes - sum(pool.total * pool.page_bytes for pool in machine.pools)
    allowed = kilobytes * 1024 if kilobytes else usable * machine.number("vm.overcommit_ratio") // 100
    return replace(machine, commit_limit_bytes=allowed + (machine.swap_bytes or 0))


def own_pages(facts: AdviceFacts) -> int:
    """Huge pages that the running server has."""
    return math.ceil((facts.shared_memory_bytes or 0) / PAGE) if facts.in_huge_pages else 0


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Pool, swap and overcommit of any kind; what others have of the pool is in it."""
    ram_bytes = draw(st.integers(1, 2048)) * GB // 2
    total = int(draw(st.floats(0, 0.7)) * ram_bytes) // PAGE * draw(st.sampled_from((0, 0, 1)))
    free = draw(st.integers(0, total))
    kilobytes = draw(st.sampled_from((0, 0, ram_bytes // 2048)))
    live = {
        "vm.nr_hugepages": str(total),
        "vm.overcommit_memory": draw(st.sampled_from("012")),
        "vm.overcommit_ratio": "0" if kilobytes else str(draw(st.integers(30, 100))),
        "vm.overcommit_kbytes": str(kilobytes),
        "vm.swappiness": "60", "vm.min_free_kbytes": "67584", "vm.dirty_bytes": "0", "vm.dirty_background_bytes": "0",
        "kernel.numa_balancing": "1",
    }  # fmt: skip
    return Machine(
        ram_bytes=ram_bytes,
        swap_bytes=draw(st.sampled_from((0, 0, GB, 16 * GB))),
        committed_bytes=int(draw(st.floats(0.01, 0.9)) * ram_bytes),
        huge_page_bytes=PAGE,
        pools=(HugePages(PAGE, total, free, 0, 0),),
        numa_nodes=draw(st.integers(1, 2)),
        live=live,
    )


@st.composite
def servers(draw: st.DrawFn) -> AdviceFacts:
    """A server with any settings on such a machine; its shared memory in the pool where that has room."""
    machine = draw(machines())
    ram_bytes = machine.ram_bytes or 0
    if draw(st.booleans()):
        ram_bytes = max(ram_bytes // draw(st.integers(1, 4)), GB // 2)
    buffers = draw(st.integers(128, max(ram_bytes // MB * 9 // 10, 129))) * MB
    running = draw(st.sampled_from((buffers, 128 * MB)))
    shared = int(running * BELONGS) + draw(st.integers(8, 200)) * MB
    pool = machine.pools[0]
    in_pages = math.ceil(shared / PAGE) <= pages_taken(pool)
    machine = replace(machine, committed_bytes=(machine.committed_bytes or 0) + (0 if in_pages else shared))
    connections = draw(st.integers(20, 3000))
    seg = draw(st.sampled_from((16, 64, 1024))) * MB
    return AdviceFacts(
        major=draw(st.sampled_from((14, 15, 16, 17, 18))),
        ram_bytes=ram_bytes,
        cores=draw(st.integers(1, 200)),
        disk=draw(st.sampled_from((None, *DiskKind))),
        workload=draw(st.sampled_from(Workload)),
        in_recovery=draw(st.booleans()),
        sessions=draw(st.integers(0, connections)),
        max_connections=connections,
        reserved_connections=draw(st.integers(0, 13)),
        max_worker_processes=draw(st.integers(0, 300)),
        autovacuum_max_workers=draw(st.integers(1, 20)),
        autovacuum_worker_slots=draw(st.sampled_from((None, 1, 3, 16))),
        shared_buffers_bytes=buffers,
        running_buffers_bytes=running,
        shared_memory_bytes=shared,
        huge_pages="on" if in_pages else draw(st.sampled_from(("try", "off"))),
        in_huge_pages=in_pages,
        work_mem_bytes=draw(st.sampled_from((64 * 1024, 4 * MB, 20 * MB, 4 * GB))),
        temp_buffers_bytes=draw(st.sampled_from((8, 8, 32))) * MB,
        autovacuum_work_mem_bytes=draw(st.sampled_from((-1, 64 * MB, 1000 * MB, 32 * GB))),
        hash_mem_multiplier=draw(st.sampled_from((1.0, 2.0, 4.0))),
        checkpoint_timeout_s=draw(st.sampled_from((30.0, 300.0, 900.0, 1000.0, 86400.0))),
        checkpoint_completion_target=draw(st.sampled_from((0.0, 0.5, 0.9, 1.0))),
        max_wal_size_bytes=draw(st.integers(2 * seg // MB, 100_000)) * MB,
        wal_keep_bytes=draw(st.sampled_from((0, GB, 100 * GB))),
        wal_segment_bytes=seg,
        wal_bytes_per_s=draw(st.one_of(st.none(), st.floats(0, 2e9))),
        wal_disk_bytes=draw(st.one_of(st.none(), st.integers(4 * GB, 4096 * GB))),
        machine=draw(st.sampled_from((machine, machine, None))),
    )


def restarted_with(facts: AdviceFacts, proposal: Proposal) -> AdviceFacts:
    """Both halves made and the server restarted: what it would then say of itself, and the kernel."""
    said = {name: advice.value for name, advice in proposal.parameters.items()}

    def size(name: str, now: int | None) -> int | None:
        value = said.get(name)
        return now if value is None else int(parse(value, "kB", integer=True)) * (1 if value == "-1" else 1024)

    def number(name: str, now: int | None) -> int | None:
        value = said.get(name)
        return now if value is None else int(value)

    buffers = size("shared_buffers", facts.shared_buffers_bytes) or 0
    fixed = (facts.shared_memory_bytes or 0) - (facts.running_buffers_bytes or 0) * BELONGS
    after = replace(
        facts,
        shared_buffers_bytes=buffers,
        running_buffers_bytes=buffers,
        shared_memory_bytes=int(buffers * BELONGS + fixed),
        max_connections=number("max_connections", facts.max_connections),
        max_worker_processes=number("max_worker_processes", facts.max_worker_processes),
        autovacuum_max_workers=number("autovacuum_max_workers", facts.autovacuum_max_workers),
        work_mem_bytes=size("work_mem", facts.work_mem_bytes),
        autovacuum_work_mem_bytes=size("autovacuum_work_mem", facts.autovacuum_work_mem_bytes),
        huge_pages=said.get("huge_pages") or facts.huge_pages,
        max_wal_size_bytes=size("max_wal_size", facts.max_wal_size_bytes),
        checkpoint_timeout_s=parse(said["checkpoint_timeout"] or "", "s", integer=True),
        checkpoint_completion_target=0.9,
    )
    machine = facts.machine
    if machine is None:
        return replace(after, in_huge_pages=after.huge_pages == "on")
    values = {name: advice.value for name, advice in proposal.settings.items() if advice.value is not None}
    live = {**machine.live, **values}
    if "vm.overcommit_ratio" in values:
        live["vm.overcommit_kbytes"] = "0"
    others, total = pages_taken(usual_pool(machine)) - own_pages(facts), int(live["vm.nr_hugepages"])
    served = after.huge_pages != "off" and total - others >= math.ceil((after.shared_memory_bytes or 0) / PAGE)
    after = replace(after, in_huge_pages=served)
    private = [0 if each.in_huge_pages else each.shared_memory_bytes or 0 for each in (facts, after)]
    pool = HugePages(PAGE, total, total - others - own_pages(after), 0, 0)
    committed = max((machine.committed_bytes or 0) - private[0] + private[1], GB // 8)
    return replace(after, machine=with_limit(replace(machine, live=live, pools=(pool,), committed_bytes=committed)))


def changes(facts: AdviceFacts, before: Proposal, proposal: Proposal) -> Mapping[str, tuple[str | None, str]]:
    """What a proposal would change where the one before was made."""
    made = {name: advice.value for name, advice in before.parameters.items()}
    live = {} if facts.machine is None else facts.machine.live
    found = {**proposal.parameters, **proposal.settings}
    now = {**made, **live}
    return {name: (now.get(name), each.value) for name, each in found.items()
            if each.value is not None and each.value != now.get(name)}  # fmt: skip


@given(servers())
def test_a_proposal_that_was_made_changes_nothing_and_fits_the_machine(facts: AdviceFacts) -> None:
    facts = facts if facts.machine is None else replace(facts, machine=with_limit(facts.machine))
    proposal = propose(facts)
    fits(facts, proposal)
    after = restarted_with(facts, proposal)
    assert changes(after, proposal, propose(after)) == {}


@given(servers())
def test_at_no_step_of_making_a_proposal_a_fork_is_refused(facts: AdviceFacts) -> None:
    if facts.machine is None:
        return
    facts = replace(facts, machine=with_limit(facts.machine))
    proposal = propose(facts)
    before, _ = halves_of(facts, proposal)
    ready = made_one_by_one(facts.machine, before, proposal)
    made_one_by_one(facts.machine, sum(halves_of(facts, proposal, restart=False), ()), proposal)
    restarted = restarted_with(facts, proposal).machine
    assert restarted is not None
    for machine in (with_limit(replace(ready, committed_bytes=restarted.committed_bytes)), restarted):
        if machine.number("vm.overcommit_memory") == 2:
            assert slack(machine) >= min(0.0, slack(with_limit(facts.machine)))
    if facts.machine.number("vm.overcommit_memory") != 2:
        assert slack(restarted) >= growth_bytes(proposal)


@given(servers())
def test_settings_made_by_hand_leave_room_for_the_server_that_runs_and_the_one_that_is_set(facts: AdviceFacts) -> None:
    if facts.machine is None:
        return
    facts = replace(facts, machine=with_limit(facts.machine))
    proposal = propose(facts)
    wanted = [WantedSetting(name, each.value) for name, each in proposal.machine_half().items()
              if each.value not in (None, facts.machine.live.get(name))]  # fmt: skip
    made_one_by_one(facts.machine, settings_in_order(wanted), proposal)


def halves_of(
    facts: AdviceFacts, proposal: Proposal, *, restart: bool = True
) -> tuple[tuple[WantedSetting, ...], tuple[WantedSetting, ...]]:
    """What `advise --apply` makes before a restart and after it."""
    assert facts.machine is not None
    live = facts.machine.live
    rows = tuple(
        MachineRow(
            setting=SystemSetting(name=name, path=name, live=live[name], after_reboot=AfterReboot(), writable=True),
            knob=knob_of(name) or KNOBS[0],
            advice=each,
        )
        for name, each in (proposal.settings if restart else proposal.without_restart()).items()
    )
    half = settings_to_make(rows, proposal.plan, lasting=True)
    before, after = around_server(half.settings, live, restarts=True)
    return before, (*after, *half.settings_after)


def made_one_by_one(machine: Machine, settings: Sequence[WantedSetting], proposal: Proposal) -> Machine:
    """While the server that runs has its memory: no step leaves less than what sessions may ask for, or than was."""
    found, pool = slack(machine), usual_pool(machine)
    for each in settings:
        live = {**machine.live, each.name: each.value}
        live |= {"vm.overcommit_kbytes": "0"} if each.name == "vm.overcommit_ratio" else {}
        total = max(int(live["vm.nr_hugepages"]), pool.total - pool.free)
        machine = replace(machine, live=live, pools=(replace(pool, total=total),))
        machine = with_limit(machine)
        if machine.number("vm.overcommit_memory") == 2:
            assert slack(machine) >= min(growth_bytes(proposal), found), each
    return machine


def slack(machine: Machine) -> float:
    """What may be committed beside what is."""
    strict = machine.number("vm.overcommit_memory") == 2
    return (machine.commit_limit_bytes or 0) - (machine.committed_bytes or 0) if strict else math.inf


def growth_bytes(proposal: Proposal) -> float:
    """What sessions may ask for."""
    assert proposal.plan is not None
    terms = memory_rule.terms(proposal.plan.use)
    return sum(term.size_bytes for term in terms if term.name == memory_rule.SESSIONS)


def fits(facts: AdviceFacts, proposal: Proposal) -> None:
    """What no server and no kernel may be given."""
    plan, said = proposal.plan, {name: advice.value for name, advice in proposal.parameters.items()}
    assert plan is not None
    total = sum(term.size_bytes for term in memory_rule.terms(plan.use))
    assert plan.refused or total <= 0.9 * (facts.ram_bytes or 0)
    workers = plan.use.autovacuum_max_workers or 0
    assert workers * (plan.use.maintenance_work_mem_bytes or 0) <= 0.125 * (facts.ram_bytes or 0)
    connections = int(said["max_connections"] or facts.max_connections or 0)
    assert connections > facts.reserved_connections
    assert connections >= facts.sessions or connections == facts.max_connections
    if facts.in_recovery:
        assert connections >= (facts.max_connections or 0)
        assert int(said["max_worker_processes"] or 0) >= (facts.max_worker_processes or 0)
    assert int(said["autovacuum_max_workers"] or 0) <= (facts.autovacuum_worker_slots or 99)
    least, most = (parse(said[name] or "", "MB", integer=True) * MB for name in ("min_wal_size", "max_wal_size"))
    assert 2 * facts.wal_segment_bytes <= least <= most
    alone = proposal.server_half()["huge_pages"].value
    if facts.machine is None:
        assert said["huge_pages"] != "on" or facts.huge_pages == "on"
        assert proposal.settings == {}
        return
    settings = {**facts.machine.live, **{name: each.value for name, each in proposal.settings.items() if each.value}}
    pages, others = int(settings["vm.nr_hugepages"]), pages_taken(usual_pool(facts.machine)) - own_pages(facts)
    if said["huge_pages"] == "on":
        assert (pages - others) * PAGE >= plan.shared_bytes
        assert pages * PAGE <= 0.6 * (facts.machine.ram_bytes or 0)
    assert alone != "on" or facts.machine.number("vm.nr_hugepages") >= pages


def server_of_p2(running_bytes: int) -> AdviceFacts:
    """max_connections 1000, shared_buffers 20489MB and work_mem 32MB on 23.5 GiB; so much of the buffers runs."""
    shared = int(running_bytes * BELONGS) + 64 * MB
    machine = Machine(
        ram_bytes=int(23.5 * GB), swap_bytes=0, committed_bytes=3 * GB + shared, huge_page_bytes=PAGE, numa_nodes=1,
        live={"vm.nr_hugepages": "0", "vm.overcommit_memory": "0", "vm.overcommit_ratio": "50"},
    )  # fmt: skip
    return AdviceFacts(
        major=18, ram_bytes=int(23.5 * GB), cores=2, max_connections=1000, shared_buffers_bytes=20489 * MB,
        running_buffers_bytes=running_bytes, shared_memory_bytes=shared, huge_pages="try", in_huge_pages=False,
        work_mem_bytes=32 * MB, autovacuum_work_mem_bytes=-1, max_wal_size_bytes=GB, machine=with_limit(machine),
    )  # fmt: skip


@pytest.mark.parametrize("running_bytes", [20489 * MB, 6 * GB])
def test_the_server_of_p2_is_made_to_fit_at_once(running_bytes: int) -> None:
    facts = server_of_p2(running_bytes)
    proposal = propose(facts)
    fits(facts, proposal)
    said = {name: advice.value for name, advice in proposal.parameters.items()}
    names = ("shared_buffers", "max_connections", "effective_cache_size", "huge_pages", "maintenance_work_mem")
    assert [said[name] for name in names] == ["5888MB", "100", "17GB", "on", "800MB"]
    pages = int(proposal.settings["vm.nr_hugepages"].value or 0)
    assert 5888 * 1.02 < pages * 2 < 5888 * 1.08
    assert proposal.server_half()["huge_pages"].value == "try"
    after = restarted_with(facts, proposal)
    assert changes(after, proposal, propose(after)) == {}


@pytest.mark.parametrize("running_bytes", [20489 * MB, 6 * GB])
def test_on_the_machine_of_p2_strict_accounting_begins_after_the_restart(running_bytes: int) -> None:
    facts = server_of_p2(running_bytes)
    proposal = propose(facts)
    before, after = halves_of(facts, proposal)
    assert [each.name for each in before][:2] == ["vm.overcommit_ratio", "vm.nr_hugepages"]
    assert after == (WantedSetting("vm.overcommit_memory", "2"),)
    alone = proposal.machine_half()["vm.overcommit_memory"]
    assert alone.value is None
    assert "until the server is restarted as advised" in alone.because
    assert halves_of(facts, proposal, restart=False) == (before, ())
    restarted = restarted_with(facts, proposal)
    assert propose(restarted).machine_half()["vm.overcommit_memory"].value == "2"


def test_strict_accounting_in_force_pauses_where_the_old_server_leaves_no_room_for_the_pool() -> None:
    facts = server_of_p2(9 * GB)
    assert facts.machine is not None
    live = {**facts.machine.live, "vm.overcommit_memory": "2", "vm.overcommit_ratio": "95"}
    facts = replace(facts, machine=with_limit(replace(facts.machine, live=live)))
    proposal = propose(facts)
    before, after = halves_of(facts, proposal)
    assert before[0] == WantedSetting("vm.overcommit_memory", "0")
    assert after == (WantedSetting("vm.overcommit_memory", "2"),)
    assert proposal.machine_half()["vm.nr_hugepages"].value is None
    restarted = restarted_with(facts, proposal)
    assert changes(restarted, proposal, propose(restarted)) == {}


def test_what_the_server_was_started_with_is_given_and_all_else_fits_it() -> None:
    facts = replace(server_of_p2(9 * GB), shared_buffers_bytes=9 * GB, max_connections=300,
                    started_with=frozenset({"shared_buffers", "max_connections"}))  # fmt: skip
    proposal = propose(facts)
    fits(facts, proposal)
    assert proposal.plan is not None
    assert proposal.parameters["shared_buffers"].value is None
    assert (proposal.plan.buffers_bytes, proposal.plan.use.max_connections) == (9 * GB, 300)
    assert 9 * GB < int(proposal.settings["vm.nr_hugepages"].value or 0) * PAGE < 9.5 * GB


def test_pages_of_another_size_are_not_those_of_vm_nr_hugepages() -> None:
    """A server in pages of a gigabyte: huge_pages=on, with pages of 2 MB reserved beside, would not start."""
    facts = server_of_p2(6 * GB)
    assert facts.machine is not None
    pools = (HugePages(PAGE, 0, 0, 0, 0), HugePages(GB, 7, 0, 0, 0))
    facts = replace(facts, huge_page_bytes=GB, huge_pages="on", in_huge_pages=True, shared_buffers_bytes=6 * GB,
                    machine=replace(facts.machine, pools=pools, committed_bytes=3 * GB))  # fmt: skip
    proposal = propose(facts)
    assert proposal.settings["vm.nr_hugepages"].value is None
    assert proposal.parameters["huge_pages"].value == "on"
    assert propose(replace(facts, in_huge_pages=False)).parameters["huge_pages"].value == "try"


def test_memory_that_others_hold_in_huge_pages_is_not_divided() -> None:
    facts = server_of_p2(6 * GB)
    assert facts.machine is not None
    others = replace(facts, machine=replace(facts.machine, pools=(HugePages(PAGE, 4096, 0, 0, 0),)))
    alone, beside = propose(facts).plan, propose(others).plan
    assert alone is not None
    assert beside is not None
    assert beside.use.ram_bytes == alone.use.ram_bytes - 8 * GB
    assert beside.buffers_bytes < alone.buffers_bytes * 0.7
