"""Frames of a run are kept without what no rule looks at, and the verdict is the same."""

from __future__ import annotations

import asyncio
import math

import pytest

from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.load_cpu import cpu_of_load, load_pids
from pgtop_tune.metrics.run_evidence import evidence_of
from pgtop_tune.metrics.run_validity import doubts
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchProgress
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import Activity
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.run_frames import FrameKeeper, append_thin, thin
from tests.metrics.test_budget import interval, waiting
from tests.support.frames import frame, postgres_sample
from tests.support.run_frames import FACTS, run_frames


def test_thin_frames_are_judged_as_whole_ones() -> None:
    frames = run_frames(cpu=(98, 3), delay_ms=(10, 0), tps=lambda second: 1000.0 - 8 * second, lines={"failed": 1})
    whole, kept = evidence_of(frames, 1, FACTS), evidence_of([thin(each) for each in frames], 1, FACTS)
    assert whole is not None
    assert kept is not None
    assert doubts(whole) == doubts(kept)
    assert {"CLIENT-BOUND", "NOT-STEADY"} <= {doubt.id for doubt in doubts(kept)}


def test_the_load_s_own_sessions_are_not_kept_and_others_are() -> None:
    kept = thin(frame(3, backends=16)).postgres
    assert not isinstance(kept, Unavailable)
    assert not isinstance(kept.activity, Unavailable)
    names = {backend.application_name for backend in kept.activity.backends}
    assert "shop worker" in names
    assert "pgbench" not in names


def test_what_ran_and_what_queued_over_a_run_is_the_same_of_thin_frames() -> None:
    load = interval(waiting("Client", "between", 40), cpu_ticks=25, delay_ms=900)._frames
    ended = frame(12, load=False, postgres=postgres_sample(12, activity=Activity(12.0, 0, ())))
    whole = [frame(-1, load=False), *load, ended]
    kept: list[Frame] = []
    for each in whole:
        append_thin(kept, each)
    assert cpu_of_load(Interval(kept), math.inf) == cpu_of_load(Interval(whole), math.inf) is not None
    assert [each.sequence for each in kept if load_pids(each)] == [0, 11]


async def test_whoever_waits_gets_the_frame_he_waits_for() -> None:
    keeper = FrameKeeper()
    waiting = asyncio.create_task(keeper.until(lambda interval: interval.newest.sequence == 2, 30))
    for number in range(3):
        await asyncio.sleep(0)
        keeper.accept(Step((frame(number),)))
    assert await waiting
    keeper.begin()
    assert [each.sequence for each in keeper.frames] == [1, 2]


async def test_a_fresh_frame_is_one_that_was_begun_after_the_question() -> None:
    keeper = FrameKeeper()
    keeper.accept(Step((frame(4),)))
    waiting = asyncio.create_task(keeper.fresh(30))
    await asyncio.sleep(0)
    keeper.accept(Step((frame(5),)))
    await asyncio.sleep(0)
    assert not waiting.done()
    keeper.accept(Step((frame(6),)))
    assert await waiting


async def test_nobody_waits_for_frames_that_do_not_come() -> None:
    keeper = FrameKeeper()
    assert not await keeper.until(lambda interval: True, 0.01)
    waiting = asyncio.create_task(keeper.until(lambda interval: False, 30))
    await asyncio.sleep(0)
    keeper.close()
    assert not await waiting


def test_who_only_watches_keeps_the_newest_frames_and_a_run_keeps_its_own() -> None:
    keeper = FrameKeeper()
    for number in range(100):
        keeper.accept(Step((frame(number),)))
    assert [each.sequence for each in keeper.frames] == list(range(88, 100))
    keeper.begin()
    for number in range(100, 200):
        keeper.accept(Step((frame(number),)))
    assert [each.sequence for each in keeper.frames] == list(range(98, 200))
    keeper.rest()
    keeper.accept(Step((frame(200),)))
    assert [each.sequence for each in keeper.frames] == list(range(189, 201))


def test_progress_lines_are_passed_on_as_they_come() -> None:
    heard: list[BenchProgress] = []
    keeper = FrameKeeper(lambda run, line: heard.append(line))
    keeper.accept(Step((frame(1, load=False),)))
    keeper.accept(Step((frame(2), frame(3))))
    assert [line.elapsed_s for line in heard] == pytest.approx([2.0, 3.0])
