"""Experiments of other programs: found beside the frames, followed to their end, stopped."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from pgtop_tune.experiment.screen_experiments import OtherExperiments
from pgtop_tune.model.events import Event
from pgtop_tune.process.process_key import process_key_of
from pgtop_tune.runtime.experiment_control import ExperimentState
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.running_experiments import RunningExperiment, ServerKey, server_of
from tests.support.experiments import RUNNING
from tests.support.frames import frame


@pytest.fixture
def program() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "300"]) as process:
        yield process
        process.kill()


class _Seen:
    """What the screen's watch does with files that say that `program` runs an experiment."""

    def __init__(self, home: Path, program: subprocess.Popen[bytes]) -> None:
        self.events: list[Event] = []
        self.switching: list[frozenset[str]] = []
        self.others = OtherExperiments(self.events.append, self.switching.append)
        self._path = home / "pgtop-tune/experiments/running/1-1.json"
        self._path.parent.mkdir(parents=True, mode=0o700)
        self._program = program
        here = server_of(frame(1))
        assert here is not None
        self.here = here

    def announce(self, state: ExperimentState, server: ServerKey | None = None, **more: str) -> None:
        key = process_key_of(self._program.pid)
        assert key is not None
        found = RunningExperiment(
            program=more.get("program", "ab"), detached=more.get("detached", ""), key=key, server=server or self.here,
            parameters=("work_mem",), began_ms=7, written_ms=time.time_ns() // 1_000_000, state=state,
        )  # fmt: skip
        self._path.write_bytes(msgspec.json.encode(found))
        self._path.chmod(0o600)

    async def until(self, condition: Callable[[ExperimentState], bool]) -> ExperimentState:
        async with asyncio.timeout(60):
            while not condition(self.others.state()):
                self.others.accept(Step((frame(1),)))
                await asyncio.sleep(0.05)
        return self.others.state()


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: subprocess.Popen[bytes]) -> _Seen:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("pgtop_tune.experiment.screen_experiments._EVERY_S", 0.1)
    return _Seen(tmp_path, program)


async def test_one_that_runs_here_is_followed_to_its_verdict_and_its_switches_make_bands(
    seen: _Seen, program: subprocess.Popen[bytes]
) -> None:
    seen.announce(replace(RUNNING, arm_since_ms=5_000), detached="ab-1")
    found = await seen.until(lambda state: state.under_way)
    assert (found.number, found.where, found.pair, found.better) == (1, "detached", 5, False)
    assert seen.switching == [frozenset({"work_mem"})]
    assert [(each.at_ms, each.text) for each in seen.events] == [(5_000, "B: work_mem=64MB")]
    seen.announce(replace(RUNNING, arm="A", arm_since_ms=9_000, pair=6))
    found = await seen.until(lambda state: state.pair == 6)
    assert found.where == f"process {program.pid}"
    seen.announce(replace(RUNNING, under_way=False, arm="", ending="better", better=True))
    found = await seen.until(lambda state: not state.under_way)
    assert (found.ending, found.better, found.number) == ("better", False, 1)
    assert [each.text for each in seen.events] == ["B: work_mem=64MB", "A: work_mem=4MB", "A/B better"]
    assert seen.switching[-1] == frozenset()


async def test_what_a_search_switches_is_no_change_that_the_title_judges(seen: _Seen) -> None:
    searching = replace(RUNNING, kind="tuning", arm="", arm_since_ms=0)
    seen.announce(searching, program="tune")
    await seen.until(lambda state: state.under_way)
    assert seen.switching == [frozenset({"work_mem"})]
    assert seen.events == []
    seen.announce(replace(searching, under_way=False, ending="start kept"), program="tune")
    await seen.until(lambda state: not state.under_way)
    assert seen.switching[-1] == frozenset()
    assert [each.text for each in seen.events] == ["tuning start kept"]


async def test_one_on_another_server_is_not_shown(seen: _Seen) -> None:
    seen.announce(RUNNING, ServerKey("", seen.here.started_ms + 60_000))
    for _ in range(20):
        seen.others.accept(Step((frame(1),)))
        await asyncio.sleep(0.02)
    assert seen.others.state().number == 0
    seen.announce(RUNNING)
    assert (await seen.until(lambda state: state.under_way)).number == 1


async def test_a_killed_program_is_told_and_its_successor_is_another_experiment(
    seen: _Seen, program: subprocess.Popen[bytes]
) -> None:
    seen.announce(RUNNING)
    await seen.until(lambda state: state.under_way)
    program.kill()
    found = await seen.until(lambda state: not state.under_way)
    assert (found.number, found.ending) == (1, "killed")
    assert "revert watchdog" in found.details
    assert seen.switching[-1] == frozenset()


async def test_it_is_stopped_by_an_interrupt_and_one_of_a_screen_is_not(
    seen: _Seen, program: subprocess.Popen[bytes]
) -> None:
    seen.announce(RUNNING, program="screen")
    await seen.until(lambda state: state.under_way)
    with pytest.raises(Exception, match="belongs to the screen"):
        await seen.others.stop()
    assert program.poll() is None
    seen.announce(replace(RUNNING, pair=6))
    await seen.until(lambda state: state.pair == 6)
    await seen.others.stop()
    assert program.wait(60) == -2


async def test_its_clock_goes_on_between_two_looks(seen: _Seen) -> None:
    seen.announce(RUNNING)
    before = await seen.until(lambda state: state.under_way)
    await seen.until(lambda state: state.elapsed_s > before.elapsed_s)
    assert before.elapsed_s >= RUNNING.elapsed_s
