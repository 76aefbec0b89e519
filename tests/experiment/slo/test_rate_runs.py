"""The runs of a search: one that has decided lacks nothing, and only a checkpoint is a reason for long ones."""

from __future__ import annotations

from typing import NoReturn, cast

import pytest
from msgspec.structs import replace

from pgtop_tune.bench.ports import LoadEndpoint
from pgtop_tune.bench.profiles import load_profiles
from pgtop_tune.experiment.load_run import BeforeEachRun, LoadRun, RunCell
from pgtop_tune.experiment.path import LoadTarget
from pgtop_tune.experiment.run_guard import RunEndedFor, RunGuard
from pgtop_tune.experiment.slo.objective import Standing, parse_objective
from pgtop_tune.experiment.slo.rate_runs import SETTLE_S, Bottlenecks, ProbeGuard, RateRuns
from pgtop_tune.experiment.slo.search import SearchStep, StepKind
from pgtop_tune.experiment.slo.search_run import SearchRun
from pgtop_tune.metrics.percentiles import bucket_of
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import OVERLOADED, LoadSpec, RunState
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.run_result import RunResult
from pgtop_tune.runtime.load_control import SearchWish
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.run_frames import FrameKeeper
from tests.support.made_situations import FULL_CPUS, SLOW_WAL
from tests.support.results import result
from tests.support.run_frames import run_frames

LIMITS = "p99 < 20ms"
CELL = RunCell(
    LoadTarget("direct", LoadEndpoint("db1", 5432, "u", "d")), load_profiles().get("select-only"), LoadSpec()
)


async def _no_session() -> NoReturn:
    raise AssertionError("no SQL is needed")


class EndedRun:
    """A run of pgbench that its guard ended."""

    machine = ""

    def __init__(self, ended_for: str) -> None:
        self._ended_for = ended_for

    async def measure(self, cell: RunCell, before: BeforeEachRun, guard: RunGuard) -> RunResult:
        assert isinstance(guard, ProbeGuard)
        guard.standing, guard.ended_for = Standing.BREAKS, RunEndedFor(self._ended_for, "breaks")
        return result(state=RunState.STOPPED, run={"exit_status": None, "ended_for": self._ended_for})


@pytest.mark.parametrize(("ended_for", "doubts"), [("", set()), (OVERLOADED, {OVERLOADED})])
async def test_a_run_that_has_decided_is_not_in_doubt_for_its_length(ended_for: str, doubts: set[str]) -> None:
    kept: list[RunResult] = []
    run = cast(LoadRun, EndedRun(ended_for))
    runs = RateRuns(run, FrameKeeper(), CELL, parse_objective(LIMITS), 60, BeforeEachRun(), kept.append)
    outcome = await runs.make(SearchStep(StepKind.UPPER, 100.0, 8))
    assert outcome.doubts == ()
    [record] = kept
    assert {doubt.id for doubt in record.doubts} & {"RUN-PARTIAL", OVERLOADED} == doubts


async def test_percentiles_are_of_the_seconds_that_are_judged() -> None:
    """The connections at the beginning were in those of the result, and not in those of the chart."""

    def slow_at_first(frame: Frame) -> Frame:
        bench = frame.bench
        if isinstance(bench, Unavailable) or frame.sequence > SETTLE_S:
            return frame
        slow = [replace(part, buckets=((bucket_of(5_000_000), part.logged),)) for part in bench.latencies]
        return replace(frame, bench=replace(bench, latencies=tuple(slow)))

    keeper = FrameKeeper()
    keeper.begin()
    keeper.accept(Step(tuple(map(slow_at_first, run_frames(seconds=20)))))
    runs = RateRuns(
        cast(LoadRun, EndedRun("")), keeper, CELL, parse_objective(LIMITS), 60, BeforeEachRun(), lambda record: None
    )
    outcome = await runs.make(SearchStep(StepKind.UPPER, 100.0, 8))
    assert outcome.seconds == 20 - SETTLE_S, "also the last one, in which all may end that has waited"
    [p99_ms] = outcome.limits_ms
    assert dict(outcome.quantiles_ms)[99.0] == p99_ms
    assert p99_ms is not None
    assert p99_ms < 1000.0


def test_the_expected_time_blames_no_checkpoint_for_a_length_that_was_asked_for() -> None:
    wish = SearchWish(objective=LIMITS, confirm_s=300)
    run = cast(LoadRun, EndedRun(""))
    search = SearchRun(run, FrameKeeper(), _no_session, CELL, wish, BeforeEachRun(), tell=lambda line: None)
    assert "each of the runs that confirm takes 5m05s" in search.time_words
    assert "checkpoint" not in search.time_words


def test_the_bottleneck_of_a_run_behind_its_schedule_is_what_its_transactions_wait_for() -> None:
    """It was the seconds before they began ("other 3.91 of 4.00 ms"), and what bound the run before."""
    bottlenecks = Bottlenecks()
    for second in range(30):
        bottlenecks.accept(Step((SLOW_WAL.frame(second),)))
    assert "WAL" in bottlenecks.take()
    late = replace(FULL_CPUS, latency_ms=FULL_CPUS.latency_ms + 600.0, lag_ms=600.0, rate_per_s=12_000.0)
    for second in range(30, 43):
        frame = late.frame(second)
        assert not isinstance(frame.bench, Unavailable)
        run = replace(frame.bench.run, run=2)
        progress = tuple(replace(line, elapsed_s=line.elapsed_s - 30.0) for line in frame.bench.progress)
        bottlenecks.accept(Step((replace(frame, bench=replace(frame.bench, run=run, progress=progress)),)))
    assert bottlenecks.take().startswith("the server's own work saturates the 4 CPUs")
