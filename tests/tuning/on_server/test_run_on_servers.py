"""A search on several servers: what runs at the same time, and that it finds what one server finds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.experiment.plan.results import ExperimentLog
from pgtop_tune.experiment.plan.run import Stopped
from pgtop_tune.experiment.workers import UnitFailed, WorkerGone
from pgtop_tune.tuning.on_server.conditions import Change
from pgtop_tune.tuning.on_server.evaluation import ConditionsChanged, KnobsChanged
from pgtop_tune.tuning.on_server.journal import TuningRequest, kept_tuning, replayed, write_first
from pgtop_tune.tuning.on_server.knob_space import Guards
from pgtop_tune.tuning.on_server.run import ServersParts, TuningOnServers
from pgtop_tune.tuning.plan import Constraint, Dimension, Space, TuningPlan
from pgtop_tune.tuning.protocol import SearchEnding, SearchResult
from pgtop_tune.tuning.search import Evaluation, Outcome, SearchPhase

LEVELS = ("1MB", "2MB", "4MB", "8MB", "16MB")
PLAN = TuningPlan(
    space=Space(tuple(Dimension(name=name, levels=LEVELS, start=1) for name in ("work_mem", "temp_buffers"))),
    budget=1e6,
    seed=7,
)
REQUEST = TuningRequest(
    profile="tpcb-like", clients=8, threads=0, protocol="", rate_per_s=None, objective="tps", constraints=(),
    allow_restart=False, recovery_s=600.0,
)  # fmt: skip
GUARDS = Guards(major=18, parameters={}, ram_bytes=None, wal_room_bytes=None)


class Servers:
    """Servers on which work_mem brings 6 % a step, up to 8MB; an evaluation takes one turn, of one server or of all."""

    def __init__(self, *names: str) -> None:
        self.there = list(names)
        self.ran: list[tuple[str, Evaluation]] = []
        self.turns = 0
        self.before: Callable[[str, Evaluation], None] = lambda server, wanted: None
        self._barrier: set[asyncio.Future[None]] = set()

    async def measure(self, server: str, wanted: Evaluation) -> Outcome:
        self.ran.append((server, wanted))
        await self._turn()
        self.before(server, wanted)
        draw = random.Random(wanted.number)
        gain = {name: 0.06 * min(level, 3) for level, name in enumerate(LEVELS)}
        effect = gain[wanted.values.get("work_mem", "2MB")] - gain[wanted.against_values.get("work_mem", "2MB")]
        figures = {"tps": 100.0}
        return Outcome(effect=effect + draw.gauss(0.0, 0.004), error=0.004, figures=figures, against_figures=figures)

    async def _turn(self) -> None:
        """All that is begun before the loop is idle again ends in the same turn."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._barrier:
            asyncio.get_running_loop().call_later(0.001, self._end)
        self._barrier.add(turn)
        await turn

    def _end(self) -> None:
        self.turns += 1
        for turn in self._barrier:
            if not turn.done():
                turn.set_result(None)
        self._barrier = set()

    async def servers(self) -> list[str]:
        return self.there


def run(directory: Path, servers: Servers, plan: TuningPlan = PLAN, **parts: object) -> SearchResult:
    if not directory.exists():
        with ExperimentLog(directory) as log:
            write_first(log, "", REQUEST, plan, GUARDS, (), workers=servers.there)
    kept = kept_tuning(directory)
    given = ServersParts(measure=servers.measure, servers=servers.servers, stop_file=None, tell=lambda line: None)
    with ExperimentLog(directory) as log:
        search = TuningOnServers(
            replayed(kept),
            kept.plan,
            GUARDS.allowed,
            log,
            kept.workers,
            replace(given, **parts),  # type: ignore[arg-type]
        )
        return asyncio.run(search.run())


def test_four_servers_find_the_same_in_fewer_turns(tmp_path: Path) -> None:
    alone = run(tmp_path / "one", one := Servers("a"))
    found = run(tmp_path / "four", four := Servers("a", "b", "c", "d"))
    assert found.ending is alone.ending is SearchEnding.BETTER
    assert set(found.values) == set(alone.values) == {"work_mem"}
    assert four.turns < 0.5 * one.turns
    assert {server for server, _ in four.ran} == {"a", "b", "c", "d"}


def test_confirmations_are_measured_for_the_confirmation(tmp_path: Path) -> None:
    found = run(tmp_path / "search", servers := Servers("a", "b", "c"))
    confirmed = [each for each in found.tried if each.evaluation.phase is SearchPhase.CONFIRMATION]
    assert found.confirmed is not None
    assert len(confirmed) == found.confirmed.evaluations
    made = [wanted for _, wanted in servers.ran if wanted.phase is SearchPhase.CONFIRMATION]
    assert len(made) >= len(confirmed)


def test_what_was_told_is_resumed_and_asks_no_question_twice(tmp_path: Path) -> None:
    directory = tmp_path / "search"
    stop = tmp_path / "stop"
    servers = Servers("a", "b")

    def at_nine(server: str, wanted: Evaluation) -> None:
        if wanted.number >= 9:
            stop.touch()

    servers.before = at_nine
    with pytest.raises(Stopped, match="the stop file"):
        run(directory, servers, stop_file=stop)
    told = len(kept_tuning(directory).events)
    assert told >= 8
    found = run(directory, again := Servers("a", "b"))
    assert found.ending is SearchEnding.BETTER
    assert min(wanted.number for _, wanted in again.ran) == told + 1


def test_a_worker_that_ends_costs_its_evaluation_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgtop_tune.experiment.workers._BACK_S", 0.0)
    servers, told = Servers("a", "b"), list[str]()

    def ends(server: str, wanted: Evaluation) -> None:
        if server == "b":
            raise WorkerGone("the worker of b ended during the unit")

    servers.before = ends
    found = run(tmp_path / "search", servers, tell=told.append)
    assert found.ending is SearchEnding.BETTER
    assert sum(server == "b" for server, _ in servers.ran) == 1
    assert any("an evaluation is lost" in line for line in told)
    assert any("has not returned" in line for line in told)


def test_without_any_server_that_can_be_used_it_stops_and_says_why(tmp_path: Path) -> None:
    servers, told = Servers("a", "b"), list[str]()

    def refuses(server: str, wanted: Evaluation) -> None:
        raise UnitFailed(f"{server}: the load does not become steady")

    servers.before = refuses
    with pytest.raises(Stopped, match="no worker is left"):
        run(tmp_path / "search", servers, tell=told.append)
    assert "b: the load does not become steady; b takes no more evaluations" in told


def test_a_knob_that_someone_changes_on_one_server_is_let_go_of_on_all(tmp_path: Path) -> None:
    servers, changed = Servers("a", "b", "c"), list[str]()

    def foreign(server: str, wanted: Evaluation) -> None:
        if server == "c" and wanted.phase is SearchPhase.SCREEN and not changed:
            changed.append(server)
            raise KnobsChanged(["temp_buffers"])

    servers.before = foreign
    found = run(tmp_path / "search", servers)
    assert found.let_go == ("temp_buffers",)
    assert set(found.values) == {"work_mem"}


def test_a_server_whose_machine_goes_on_changing_takes_no_more_evaluations(tmp_path: Path) -> None:
    servers, told = Servers("a", "b"), list[str]()

    def changes(server: str, wanted: Evaluation) -> None:
        if server == "b":
            raise ConditionsChanged(Change("other programs used 0.9 more cores during the newest blocks", 4))

    servers.before = changes
    assert run(tmp_path / "search", servers, tell=told.append).ending is SearchEnding.BETTER
    assert [server for server, _ in servers.ran].count("b") == 3
    assert "an evaluation is discarded: other programs used 0.9 more cores during the newest blocks, on b" in told
    assert "the conditions of b keep changing; it takes no more evaluations" in told


def test_a_constraint_does_not_end_what_is_only_thought_ahead(tmp_path: Path) -> None:
    plan = replace(PLAN, constraints=(Constraint(figure="tps", least=50.0),))
    assert run(tmp_path / "search", Servers("a", "b", "c"), plan).ending is SearchEnding.BETTER
