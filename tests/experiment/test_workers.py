"""Cells on several servers: which server runs what, and what a worker that ends costs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.compare.reports.written import report_markdown
from pgtop_tune.experiment.plan.bind import plan_hash
from pgtop_tune.experiment.plan.model import BoundPlan, Cell
from pgtop_tune.experiment.plan.report import chapters
from pgtop_tune.experiment.plan.results import CellResult, ExperimentLog, ExperimentOutcome, outcome_of, read_entries
from pgtop_tune.experiment.plan.run import Stopped
from pgtop_tune.experiment.plan.verdicts import judgements, results_by_arm
from pgtop_tune.experiment.workers import CellOnServer, Distribution, RunOnServers, UnitFailed, WorkerGone
from pgtop_tune.model.run_result import plain
from tests.support.plans import bound_text

ARMS = """
repeats = 4
time = "60s"
clients = ["4"]
[[configuration]]
name = "base"
[[configuration]]
name = "more"
[configuration.parameters]
work_mem = "64MB"
"""
SPEED = {"a": 1000.0, "b": 500.0, "c": 2000.0}


class Servers:
    """Servers of different speed; `more` brings 10 %. Every unit is written down."""

    def __init__(self, *names: str) -> None:
        self.there = list(names)
        self.ran: list[tuple[str, int]] = []
        self.before: Callable[[str, Cell], None] = lambda server, cell: None

    async def run(self, server: str, cell: Cell) -> CellResult:
        self.ran.append((server, cell.number))
        await asyncio.sleep(0)
        self.before(server, cell)
        tps = SPEED[server] * (1.1 if cell.arm.startswith("more") else 1.0) * (1.0 + 0.001 * cell.repeat)
        return CellResult(number=cell.number, tps=tps, latency_ms=4000.0 / tps, server=server)

    async def servers(self) -> list[str]:
        return self.there


def run(directory: Path, servers: Servers, plan: BoundPlan, told: list[str] | None = None) -> ExperimentOutcome:
    with ExperimentLog(directory) as log:
        if not read_entries(directory):
            log.write("plan", name="t", hash=plan_hash(plan), began_ms=0, plan=plain(plan), workers=list(servers.there))
        outcome = outcome_of(read_entries(directory), "t")
        assert outcome is not None
        cells = CellOnServer(run=servers.run, servers=servers.servers, tell=(told if told is not None else []).append)
        asyncio.run(RunOnServers(outcome, log, tuple(servers.there), cells).measure())
    found = outcome_of(read_entries(directory), "t")
    assert found is not None
    return found


def test_all_configurations_of_one_load_and_repeat_run_on_one_server(tmp_path: Path) -> None:
    plan = bound_text(ARMS)
    outcome = run(tmp_path, servers := Servers("a", "b", "c"), plan)
    assert sorted(number for _, number in servers.ran) == [cell.number for cell in plan.cells]
    of_repeat: dict[int, set[str]] = {}
    for cell in plan.cells:
        of_repeat.setdefault(cell.repeat, set()).add(outcome.results[cell.number].server)
    assert all(len(names) == 1 for names in of_repeat.values())
    assert {name for names in of_repeat.values() for name in names} == {"a", "b", "c"}


def test_servers_of_different_speed_are_no_effect_and_add_no_noise(tmp_path: Path) -> None:
    outcome = run(tmp_path, Servers("a", "b", "c"), bound_text(ARMS))
    (judged,) = judgements(outcome)
    assert judged.verdict == "better"
    assert judged.effect is not None
    assert judged.effect.relative == pytest.approx(0.1, abs=0.001)
    assert judged.effect.high - judged.effect.low < 0.1
    assert judged.change == pytest.approx(0.1, abs=0.001)
    page = report_markdown("t", chapters(outcome))
    assert "figures are normalized to the mean of 3 servers" in page
    assert "repeat 1, on " in page
    levelled = results_by_arm(outcome)
    assert max(run.tps or 0.0 for run in levelled[judged.arm, judged.load]) < 1500.0


def test_a_worker_that_ends_costs_one_cell_and_others_take_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgtop_tune.experiment.workers._BACK_S", 0.0)
    servers, told = Servers("a", "b"), list[str]()

    def ends(server: str, cell: Cell) -> None:
        if server == "b" and "b" in servers.there:
            servers.there.remove("b")
            raise WorkerGone("the worker of b ended during the unit")

    servers.before = ends
    outcome = run(tmp_path, servers, plan := bound_text(ARMS), told)
    lost = [result for result in outcome.results.values() if result.reason]
    assert [result.reason for result in lost] == ["the worker of b ended during the unit"]
    assert len(outcome.results) == len(plan.cells)
    assert sum(server == "b" for server, _ in servers.ran) == 1
    assert any("has not returned" in line for line in told)
    (judged,) = judgements(outcome)
    assert judged.effect is not None
    assert judged.effect.relative == pytest.approx(0.1, abs=0.002)


def test_a_worker_that_comes_back_goes_on_with_its_cells(tmp_path: Path) -> None:
    servers, ended = Servers("a", "b"), list[int]()

    def ends(server: str, cell: Cell) -> None:
        if server == "b" and not ended:
            ended.append(cell.number)
            raise WorkerGone("the worker of b ended during the unit")

    servers.before = ends
    outcome = run(tmp_path, servers, bound_text(ARMS))
    assert sum(bool(result.reason) for result in outcome.results.values()) == 1
    assert sum(server == "b" for server, _ in servers.ran) > 1


def test_a_server_that_cannot_be_used_takes_no_more_cells_and_without_any_it_stops_for_later(tmp_path: Path) -> None:
    servers = Servers("a", "b")

    def refuses(server: str, cell: Cell) -> None:
        raise UnitFailed(f"{server}: connection refused")

    servers.before = refuses
    with pytest.raises(Stopped, match="6 cells did not run"):
        run(tmp_path, servers, bound_text(ARMS))
    assert len(servers.ran) == 2
    outcome = run(tmp_path, Servers("a", "b"), bound_text(ARMS))
    assert sum(bool(result.reason) for result in outcome.results.values()) == 2
    assert outcome.complete


def test_where_no_server_ran_both_nothing_is_judged(tmp_path: Path) -> None:
    outcome = run(tmp_path, Servers("a"), plan := bound_text(ARMS))
    results = {
        cell.number: replace(outcome.results[cell.number], server="a" if cell.arm.startswith("base") else "b")
        for cell in plan.cells
    }
    (judged,) = judgements(replace(outcome, results=results))
    assert "no server ran both" in judged.why_not
    assert judged.effect is None


def test_a_block_whose_server_is_gone_is_given_to_another_from_where_it_was() -> None:
    left = Distribution(plan := bound_text(ARMS), ())
    first = left.next("a")
    assert first is not None
    left.give_up("a")
    second = left.next("b")
    assert second is not None
    assert (second.repeat, second.arm) == (
        first.repeat,
        next(each.name for each in plan.arms if each.name != first.arm),
    )
