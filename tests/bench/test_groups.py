"""Several pgbench processes behind one run: changes of the load, counted against the log files themselves."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.bench import run as run_module
from pgtop_tune.bench.groups import MergedProgress, shared_level, staying, wall_ms
from pgtop_tune.bench.locate import Pgbench
from pgtop_tune.bench.places import LocalPlace
from pgtop_tune.bench.ports import LoadEndpoint
from pgtop_tune.bench.runner import PgbenchRunner
from pgtop_tune.model.bench import (
    BenchProgress,
    BenchReport,
    BenchRun,
    BenchSample,
    ClientGroup,
    LoadLevel,
    LoadSpec,
    RunState,
    Seam,
)
from tests.bench.conftest import Logs, Watch
from tests.bench.test_runner import over
from tests.support.processes import alive


@given(st.integers(1, 1000), st.integers(1, 8), st.none() | st.floats(1.0, 1e6))
def test_generators_share_clients_evenly_and_the_rate_in_proportion(
    clients: int, generators: int, rate: float | None
) -> None:
    parts = shared_level(LoadLevel(clients, rate), generators)
    assert sum(part.clients for part in parts) == clients
    assert max(part.clients for part in parts) - min(part.clients for part in parts) <= 1
    if rate is not None:
        assert sum(part.rate_per_s or 0.0 for part in parts) == pytest.approx(rate)


@given(st.lists(st.integers(1, 50), max_size=8), st.integers(0, 200))
def test_without_a_rate_the_oldest_clients_that_fit_stay(groups: list[int], wanted: int) -> None:
    stays = staying(groups, LoadLevel(sum(groups)), LoadLevel(wanted))
    kept = sum(count for count, stay in zip(groups, stays, strict=True) if stay)
    assert kept <= wanted
    assert all(stay or kept + count > wanted for count, stay in zip(groups, stays, strict=True))


def test_with_a_rate_nobody_stays_unless_nothing_changes() -> None:
    assert staying([4, 4], LoadLevel(8, 100.0), LoadLevel(8, 200.0)) == (False, False)
    assert staying([4, 4], LoadLevel(8, 100.0), LoadLevel(16, 100.0)) == (False, False)
    assert staying([4, 4], LoadLevel(8, 100.0), LoadLevel(8, 100.0)) == (True, True)


lines = st.lists(st.tuples(st.floats(0.2, 2.5), st.floats(0.0, 5000.0)), min_size=1, max_size=12)


def left(number: int, ended_ms: float) -> ClientGroup:
    return ClientGroup(
        number=number, clients=2, rate_per_s=None, threads=1, started_ms=0, command="", ended_ms=round(ended_ms)
    )


@given(lines, lines, st.floats(0.0, 3000.0), st.integers(0, 900), st.integers(0, 5000))
def test_no_transaction_of_two_groups_is_lost_or_counted_twice(
    first: list[tuple[float, float]], second: list[tuple[float, float]], later_ms: float, longer_ms: int, unheard: int
) -> None:
    merged = MergedProgress()
    merged.divide()
    heard: list[tuple[float, int, BenchProgress]] = []
    done = 0.0
    for number, begins_ms, spoken in ((1, 1e12, first), (2, 1e12 + later_ms, second)):
        at_s = 0.0
        for length_s, tps in spoken:
            at_s += length_s
            done += length_s * tps
            heard.append((begins_ms + 1000 * at_s, number, BenchProgress(at_s, tps, 2.0, 0.5, failed=1)))
    given_lines: list[BenchProgress] = []
    for at_ms, number, line in sorted(heard, key=lambda row: row[:2]):
        given_lines += merged.hear(number, line, at_ms)
    of_first = round(sum(length_s * tps for length_s, tps in first))
    report = BenchReport(processed=of_first + unheard)
    ended_ms = max(row[0] for row in heard) + longer_ms + 1.0
    given_lines += merged.leave(left(1, ended_ms), report) + merged.leave(left(2, ended_ms)) + merged.rest(1e12 + 1e5)
    assert sum(line.tps for line in given_lines) == pytest.approx(done + unheard, abs=1.0)
    assert sum(line.failed for line in given_lines) == len(heard)
    assert [line.elapsed_s for line in given_lines] == [float(number + 1) for number in range(len(given_lines))]


def test_a_group_that_falls_silent_does_not_hide_what_the_others_do() -> None:
    merged = MergedProgress()
    merged.divide()
    spoken = merged.hear(1, BenchProgress(1.0, 50.0, 2.0, 0.5), 1e12 + 1000)
    for second in range(1, 9):
        spoken += merged.hear(2, BenchProgress(float(second), 100.0, 2.0, 0.5), 1e12 + 1000 * second)
    assert spoken[-1].elapsed_s == 8.0
    spoken += merged.hear(1, BenchProgress(8.0, 50.0, 2.0, 0.5), 1e12 + 8000)
    spoken += merged.hear(2, BenchProgress(9.0, 100.0, 2.0, 0.5), 1e12 + 9000)
    spoken += merged.leave(left(1, 1e12 + 9000)) + merged.leave(left(2, 1e12 + 9000))
    assert sum(line.tps for line in spoken) == pytest.approx(8 * 50.0 + 9 * 100.0)


def test_the_last_part_of_a_second_counts_though_pgbench_prints_no_line_of_it() -> None:
    merged = MergedProgress()
    assert merged.hear(1, BenchProgress(1.0, 200.0, 2.0, 0.5), 1e12 + 1000)
    merged.divide()
    # Clients that begin in the middle of a second of the run, and end with one.
    spoken = merged.leave(left(1, 1e12 + 1300), BenchReport(processed=260, latency_average_ms=2.0))
    for second in range(1, 4):
        spoken += merged.hear(2, BenchProgress(float(second), 200.0, 3.0, 0.5, lag_ms=1.0), 1e12 + 1300 + 1000 * second)
    report = BenchReport(processed=740, latency_average_ms=3.0, schedule_lag_ms=1.0)
    spoken += merged.leave(left(2, 1e12 + 5000), report)
    assert [(line.elapsed_s, round(line.tps)) for line in spoken] == [
        (2.0, 60 + 140),
        (3.0, 200),
        (4.0, 200),
        (5.0, 200),
    ]
    assert (round(spoken[-1].latency_ms, 3), round(spoken[-1].lag_ms or 0.0, 3)) == (3.0, 1.0)


class Load(Watch):
    """A watch that has the log files, and keeps the seams."""

    logs: Logs

    def look(self) -> BenchRun:
        self.seams: list[Seam] = getattr(self, "seams", [])
        sample = self.runner.sample(0.0)
        assert isinstance(sample, BenchSample)
        self.progress += sample.progress
        self.latencies += sample.latencies
        self.seams += sample.seams
        return sample.run


@pytest.fixture
def load(tables: LoadEndpoint, watch: Callable[..., Watch], logs: Logs) -> Load:
    made = watch(tables)
    made.__class__ = Load
    assert isinstance(made, Load)
    made.logs = logs
    return made


def check_counts(load: Load, run: BenchRun) -> None:
    """The report, the seconds of the log and the files themselves have the same transactions."""
    report = load.runner.report
    assert report is not None
    assert report.processed == sum(second.logged for second in load.latencies) == len(load.logs.lines()) > 0
    assert not [group.pid for group in run.groups if group.pid and alive(group.pid)]


async def test_phases_have_their_clients_and_every_transaction_is_counted(load: Load) -> None:
    await load.runner.start(LoadSpec(clients=2, threads=1, phases="hold 2s, hold 3s at 4, pause 2s, hold 2s at 1"))
    run = await load.until(over)
    assert (run.state, run.duration_s) == (RunState.FINISHED, 9)
    assert [(span.phase, span.level.clients) for span in run.spans] == [
        ("1: hold 2s", 2), ("2: hold 3s at 4", 4), ("3: pause 2s", 0), ("4: hold 2s at 1", 1)
    ]  # fmt: skip
    assert [(seam.before.clients, seam.level.clients) for seam in load.seams] == [(2, 4), (4, 0), (0, 1)]
    # Of the second phase two clients came and two stayed.
    assert [group.clients for group in run.groups] == [2, 2, 1]
    assert [round(line.elapsed_s) for line in load.progress] == list(range(1, len(load.progress) + 1))
    paused = [line for line in load.progress if not line.tps]
    assert paused
    assert all(line.left_out for line in paused)
    left_out = {second.second for second in load.latencies if second.left_out}
    assert set(range(load.seams[0].from_ms // 1000, load.seams[0].until_ms // 1000)) <= left_out
    assert {second.second for second in load.latencies} - left_out
    check_counts(load, run)


async def test_phases_last_as_long_as_they_should_where_the_clock_is_set(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead_ms = 0
    monkeypatch.setattr(run_module, "wall_ms", lambda: wall_ms() + ahead_ms)
    await load.runner.start(LoadSpec(clients=1, threads=1, phases="hold 2s, hold 2s at 2"))
    await load.until(lambda run: load.progress)
    ahead_ms = 3_600_000
    await load.until(over)
    assert round(load.progress[-1].elapsed_s) >= 3


async def test_all_levels_of_a_run_log_the_same_share(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """With many cores a level without a rate logs a part of its transactions."""
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    await load.runner.start(
        LoadSpec(profile="select-only", clients=1, threads=1, phases="hold 2s, hold 2s at 200/s")
    )  # fmt: skip
    run = await load.until(over)
    assert [f"--sampling-rate={run.sampling_rate:.6g}" in group.command for group in run.groups] == [True, True]
    assert run.sampling_rate < 1.0


async def test_the_operator_changes_clients_and_rate_and_pauses(load: Load) -> None:
    await load.runner.start(LoadSpec(clients=2, threads=1, duration_s=60, rate_per_s=200.0))
    await load.until(lambda run: len(load.progress) >= 2)
    await load.runner.change(LoadLevel(2, 400.0))
    await load.until(lambda run: load.seams)
    await load.runner.change(LoadLevel(0, 400.0))
    run = await load.until(lambda run: run.paused)
    assert (run.state, run.clients) == (RunState.RUNNING, 2)
    await load.runner.change(LoadLevel(4, 400.0))
    run = await load.until(lambda run: len(load.seams) == 3)
    assert (run.clients, run.rate_per_s, run.paused) == (4, 400.0, False)
    await load.runner.stop()
    run = load.look()
    assert run.state is RunState.STOPPED
    check_counts(load, run)
    assert [seam.level for seam in load.seams] == [LoadLevel(2, 400.0), LoadLevel(0, 400.0), LoadLevel(4, 400.0)]
    with pytest.raises(LoadProblem, match="no load runs"):
        await load.runner.change(LoadLevel(2))


async def test_a_load_that_was_changed_ends_in_its_time(load: Load) -> None:
    await load.runner.start(LoadSpec(clients=2, threads=1, duration_s=6, rate_per_s=100.0))
    await load.until(lambda run: load.progress)
    await load.runner.change(LoadLevel(2, 200.0))
    run = await load.until(over)
    assert (run.state, run.exit_status) == (RunState.FINISHED, 0)
    assert round(load.progress[-1].elapsed_s) in (5, 6)
    check_counts(load, run)


async def test_machines_with_different_majors_are_refused(tables: LoadEndpoint, tmp_path: Path) -> None:
    runner = PgbenchRunner(tables, load_places=[Place("ssh://a", 15), Place("ssh://b", 17)], base=tmp_path)
    with pytest.raises(LoadProblem, match="ssh://a has 15, ssh://b has 17"):
        await runner.start(LoadSpec(clients=2, duration_s=1))


class Place(LocalPlace):
    """A machine with a pgbench of that major."""

    def __init__(self, name: str, major: int) -> None:
        self.name = name
        self._major = major

    async def find(self, asked_for: Path | None, *, over_tls: bool) -> Pgbench:
        return Pgbench(Path("/pgbench"), 10_000 * self._major, str(self._major))


async def test_stopped_in_a_seam_nothing_is_left(load: Load) -> None:
    await load.runner.start(LoadSpec(clients=2, threads=1))
    await load.until(lambda run: load.progress)
    changing = asyncio.create_task(load.runner.change(LoadLevel(5)))
    await load.until(lambda run: len(run.groups) == 2)
    await load.runner.stop()
    await changing
    run = load.look()
    assert run.state is RunState.STOPPED
    check_counts(load, run)


async def test_a_run_by_transactions_and_one_with_phases_are_not_changed(load: Load) -> None:
    await load.runner.start(LoadSpec(clients=1, threads=1, transactions=1_000_000))
    with pytest.raises(LoadProblem, match="by transactions"):
        await load.runner.change(LoadLevel(2))
    await load.runner.stop()
    with pytest.raises(LoadProblem, match="no duration"):
        await load.runner.start(LoadSpec(clients=1, phases="hold 5s", duration_s=5))
