"""A plan on a server: values, order, what is impossible, cost and hash."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.experiment.plan.bind import check_reviewed, keep_reviewed, plan_hash
from pgtop_tune.experiment.plan.model import BoundPlan, estimate, refusals
from pgtop_tune.model.absence import Reason, Unavailable
from tests.support.plans import GB, bound_text, setting, view

TWO = '[[configuration]]\nname = "a"\n[[configuration]]\nname = "b"\n[configuration.parameters]\n'


def test_relative_values_scale_with_the_machine() -> None:
    plan = bound_text(
        'clients = ["4 per core", "2"]\nscales = ["50% of shared_buffers"]\n'
        f'{TWO}shared_buffers = "advised"\nwork_mem = "1% of RAM"\n'
    )
    arm = plan.arm("b")
    assert dict(arm.parameters) == {"shared_buffers": "4GB", "work_mem": "160MB"}
    assert {cell.clients for cell in plan.cells} == {16, 2}
    # Half of the largest shared_buffers of the plan, in scales of some 15 MB.
    assert {cell.scale for cell in plan.cells} == {137}


@pytest.mark.parametrize("kilobytes", [4, 8, 16, 32])
def test_a_share_of_shared_buffers_is_the_same_whatever_the_size_of_a_block(kilobytes: int) -> None:
    blocks = str(4 * GB // (kilobytes * 1024))
    buffers = replace(view().parameters["shared_buffers"], setting=blocks, unit=f"{kilobytes}kB")
    parameters = {**view().parameters, "shared_buffers": buffers}
    plan = bound_text(f'scales = ["50% of shared_buffers"]\n{TWO}work_mem = "64MB"\n', parameters=parameters)
    assert {cell.scale for cell in plan.cells} == {137}


def test_what_takes_a_restart_is_known() -> None:
    plan = bound_text(f"{TWO}work_mem = 64\n")
    assert [arm.restart for arm in plan.arms] == [False, False]
    assert bound_text(f"{TWO}shared_buffers = 64\n").arm("b").restart


def test_a_page_size_is_a_dimension_with_its_pool() -> None:
    plan = bound_text(
        'page_sizes = ["4kB", "2MB"]\n[[configuration]]\nname="a"\n[configuration.parameters]\nshared_buffers = "4GB"\n'
    )
    small, large = plan.arms
    assert (small.name, dict(small.parameters)["huge_pages"], small.settings) == ("4kB pages", "off", ())
    assert dict(large.parameters)["huge_pages"] == "on"
    [(name, pages)] = large.settings
    assert name == "vm.nr_hugepages"
    assert int(pages) * 2 * 2**20 > 4 * GB


@pytest.mark.parametrize(
    ("text", "values", "words"),
    [
        (
            'page_sizes = ["4kB", "2MB"]',
            {"settings": {"vm.nr_hugepages": setting("vm.nr_hugepages", "0", writable=False)}},
            "run as root",
        ),
        ('page_sizes = ["4kB", "2MB"]', {"settings": Unavailable(Reason.NOT_LOCAL, "elsewhere")}, "elsewhere"),
        ('page_sizes = ["4kB", "1GB"]', {}, "this kernel has no setting hugepages-1048576kB"),
        (f"{TWO}fsync = false", {}, "--allow-unsafe"),
        (f"{TWO}max_prepared_transactions = 50", {}, "started with it"),
        (f'{TWO}work_mem = "advised"', {}, "no value is advised"),
        (f'{TWO}shared_buffers = "900GB"', {}, "does not fit in 16 GB"),
    ],
)
def test_an_arm_that_this_machine_cannot_have_stays_with_its_reason(
    text: str, values: dict[str, object], words: str
) -> None:
    plan = bound_text(text, **values)
    assert [bool(arm.impossible) for arm in plan.arms] == [False, True]
    assert words in plan.arms[1].impossible
    assert {cell.impossible for cell in plan.cells} == {"", plan.arms[1].impossible}


def test_a_value_that_loses_data_runs_where_it_is_unlocked() -> None:
    assert not bound_text(f"{TWO}fsync = false", unsafe=True).arm("b").impossible


def test_clients_without_a_connection_are_told_with_the_arithmetic() -> None:
    plan = bound_text(f"clients = [50, 100]\n{TWO}max_connections = 200\n", reserved=3)
    impossible = {(cell.arm, cell.clients): cell.impossible for cell in plan.cells}
    assert "max_connections is 100 less 3 reserved" in impossible["a", 100]
    assert [impossible["a", 50], impossible["b", 100]] == ["", ""]


def test_an_endpoint_that_does_not_answer_is_a_result_too() -> None:
    text = '[[endpoint]]\nname = "server"\n[[endpoint]]\nname = "pooler"\naddress = ":6432"\n'
    plan = bound_text(text, unreachable={"pooler": "refused"})
    assert {cell.endpoint: cell.impossible for cell in plan.cells} == {"server": "", "pooler": "refused"}


def test_a_parameter_that_there_is_not_refuses_the_plan_with_its_line_and_the_nearest() -> None:
    with pytest.raises(UsageProblem, match=r"plan, line \d+: the server has no parameter shard_buffers") as problem:
        bound_text(f"{TWO}shard_buffers = 1")
    assert "shared_buffers" in problem.value.hint
    with pytest.raises(UsageProblem, match=r"plan, line 5: this machine has no setting vm.swapiness") as problem:
        bound_text('[[configuration]]\nname = "a"\n[configuration.settings]\n"vm.swapiness" = 1\n')
    assert "vm.swappiness" in problem.value.hint
    with pytest.raises(
        UsageProblem,
        match=r"plan, line \d+: with another port, no load of the plan can reach the "
        r"server",
    ):
        bound_text(f"{TWO}port = 6000")


@pytest.mark.parametrize("value", ["shared_buffers = '25% of RAMM'", "shared_buffers = '9XB'", "work_mem = '9XB'"])
def test_a_value_that_a_parameter_does_not_take_refuses_the_plan_with_its_line(value: str) -> None:
    name = value.partition(" ")[0]
    with pytest.raises(UsageProblem, match=rf"plan, line 7: {name}: '"):
        bound_text(f"{TWO}{value}")


def test_a_plan_of_which_nothing_can_run_is_refused() -> None:
    with pytest.raises(UsageProblem, match="no cell of the plan can run here"):
        bound_text("clients = [500]")


SEVERAL = 'repeats = 3\nclients = [1, 2, 4]\nscales = [1, 2]\nprofiles = ["select-only", "tpcb-like"]\n'


@given(st.integers(0, 2**31 - 1))
def test_each_cell_is_there_once_and_what_is_expensive_changes_seldom(seed: int) -> None:
    plan = bound_text(f"seed = {seed}\n{SEVERAL}{TWO}work_mem = 64\n")
    cells = plan.cells
    assert [cell.number for cell in cells] == list(range(1, len(cells) + 1))
    keys = [(c.arm, c.scale, c.endpoint, c.profile, c.clients, c.repeat) for c in cells]
    assert len(set(keys)) == len(keys) == 2 * 2 * 2 * 3 * 3
    assert len(list(groupby(cells, key=lambda cell: cell.scale))) == 2
    assert len(list(groupby(cells, key=lambda cell: (cell.scale, cell.repeat)))) == 2 * 3
    assert len(list(groupby(cells, key=lambda cell: (cell.scale, cell.repeat, cell.arm)))) == len(plan.stages) == 12
    assert [stage.make_data for stage in plan.stages].count(True) == 2


def _order(plan: BoundPlan) -> list[str]:
    return [cell.words for cell in plan.cells]


def test_the_seed_decides_the_order_and_is_recorded() -> None:
    first, again, other = (bound_text(f"seed = {seed}\n{SEVERAL}") for seed in (1, 1, 2))
    assert first.seed == 1
    assert _order(first) == _order(again) != _order(other)
    text = f"{SEVERAL}{TWO}work_mem = 64\n"
    assert _order(bound_text(text)) == _order(bound_text(text))


def test_time_and_disk_are_estimated_and_refused_with_the_arithmetic() -> None:
    plan = bound_text(f'time = "60s"\nscales = [100]\n{TWO}shared_buffers = 64\n[limits]\ntime = "1m"\ndisk = "1GB"\n')
    found = estimate(plan, GB)
    assert (found.runs, found.restarts) == (2, 2)
    assert found.seconds == 2 * (60 + 12) + 100 + 2 * 10
    assert 2.3 * GB < found.disk_bytes < 3.5 * GB
    long, large, full = refusals(found, plan.limits, GB)
    assert "2 runs" in long
    assert "the limit is 1m" in long
    assert "the limit is 1 GB" in large
    assert "1 GB are free" in full
    assert refusals(found, plan.limits.__class__(), None) == ()


def test_impossible_cells_cost_nothing() -> None:
    plan = bound_text(f"{TWO}fsync = false")
    assert estimate(plan, GB).runs == 1


def test_the_hash_is_about_everything_that_decides_what_runs(tmp_path: Path) -> None:
    text = f"{SEVERAL}{TWO}work_mem = 64\n"
    plan = bound_text(text)
    wanted = keep_reviewed(plan, tmp_path / "reviewed")
    check_reviewed(bound_text(text), wanted, tmp_path / "reviewed")
    changed = [
        (bound_text(text.replace("work_mem = 64", "work_mem = 128")), "work_mem"),
        (bound_text(f'time = "61s"\n{text}'), "time_s: 60 -> 61"),
        (bound_text(text, server="PostgreSQL 17"), "server: PostgreSQL 18 -> PostgreSQL 17"),
        (bound_text(text.replace("repeats = 3", "repeats = 2")), "repeats: 3 -> 2"),
        (bound_text(text, scripts=(("select-only", "x"), ("tpcb-like", "y"))), "scripts.1.2: builtin -> x"),
    ]
    for other, words in changed[1:]:
        assert plan_hash(other) != wanted
        with pytest.raises(UsageProblem) as problem:
            check_reviewed(other, wanted, tmp_path / "reviewed")
        assert words in problem.value.message
    with pytest.raises(UsageProblem, match=r"arms.2.parameters.1.2: 64 -> 128"):
        check_reviewed(changed[0][0], wanted, tmp_path / "reviewed")
    with pytest.raises(UsageProblem, match="no review of"):
        check_reviewed(plan, "0" * 16, tmp_path / "reviewed")


def test_a_view_without_memory_leaves_shares_of_it_to_the_arm() -> None:
    facts = view().facts.__class__(cores=2)
    plan = bound_text(f'{TWO}shared_buffers = "25% of RAM"', facts=facts)
    assert "memory of the server is unknown" in plan.arm("b").impossible
