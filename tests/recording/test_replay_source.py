"""A replayed file is a source like any other, with a transport."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pgtop_tune.metrics.catalogue import WHOLE_S
from pgtop_tune.recording.reader import RecordingReader
from pgtop_tune.recording.replay import ReplaySource
from pgtop_tune.runtime.ports import Step
from tests.recording.test_recording_roundtrip import realistic, write

COUNT = 90


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return write(tmp_path / "a.jsonl.gz", realistic(COUNT))


@asynccontextmanager
async def playing(path: Path, speed: float = 60.0) -> AsyncIterator[tuple[ReplaySource, AsyncIterator[Step]]]:
    source = ReplaySource(RecordingReader(path), speed)
    try:
        yield source, source.steps()
    finally:
        await source.aclose()


async def following(steps: AsyncIterator[Step]) -> Step:
    async with asyncio.timeout(60):
        return await anext(steps)


async def test_it_plays_every_frame_once_in_order_and_stays_at_the_end(recording: Path) -> None:
    async with playing(recording) as (source, steps):
        first = await following(steps)
        assert first.restart
        seen = list(first.frames)
        while not source.state().at_end:
            step = await following(steps)
            assert not step.restart
            seen.extend(step.frames)
        assert seen == realistic(COUNT)
        assert source.state().position_s == source.state().length_s == COUNT - 1


async def test_a_jump_brings_the_moment_at_once_and_then_the_frames_before_it(recording: Path) -> None:
    async with playing(recording) as (source, steps):
        await following(steps)
        source.pause(True)
        source.jump(70.4)
        step = await following(steps)
        assert step.restart
        assert [frame.sequence for frame in step.frames] == [69, 70]
        step = await following(steps)
        assert step.restart
        assert [frame.sequence for frame in step.frames] == list(range(71))
        source.step(-1)
        step = await following(steps)
        assert step.back_to_s == 69.0
        assert [frame.sequence for frame in step.frames] == list(range(69 - int(WHOLE_S), 70))
        source.step(2)
        step = await following(steps)
        assert step.frames[-1].sequence == 71
        assert source.state().paused
        assert source.state().position_s == 71


async def test_after_many_steps_back_a_session_still_gets_whole_frames_as_far_as_it_keeps_them(recording: Path) -> None:
    async with playing(recording) as (source, steps):
        await following(steps)
        source.pause(True)
        source.jump(80.0)
        while not (step := await following(steps)).restart or len(step.frames) < 81:
            pass
        for wanted in range(79, 49, -1):
            source.step(-1)
            while (step := await following(steps)).back_to_s != wanted or step.frames[0].sequence > wanted - WHOLE_S:
                pass
            assert [frame.sequence for frame in step.frames] == list(range(wanted - int(WHOLE_S), wanted + 1))


async def test_the_past_of_a_moment_is_left_out_when_another_is_wanted_by_then(recording: Path) -> None:
    async with playing(recording) as (source, steps):
        await following(steps)
        source.pause(True)
        source.jump(70.4)
        assert (await following(steps)).frames[-1].sequence == 70
        source.jump(30.0)
        assert [frame.sequence for frame in (await following(steps)).frames] == [29, 30]


async def test_playing_goes_on_from_the_moment_jumped_to_without_a_frame_twice(recording: Path) -> None:
    async with playing(recording) as (source, steps):
        await following(steps)
        source.jump(70.0)
        while (step := await following(steps)).restart:
            seen = list(step.frames)
        seen.extend(step.frames)
        while not source.state().at_end:
            seen.extend((await following(steps)).frames)
        assert [frame.sequence for frame in seen] == list(range(COUNT))


async def test_steps_and_jumps_stop_at_the_ends(recording: Path) -> None:
    async with playing(recording) as (source, steps):
        await following(steps)
        source.step(-5)
        assert (await following(steps)).frames[-1].sequence == 0
        source.jump(1e9)
        assert (await following(steps)).frames[-1].sequence == COUNT - 1


async def test_pause_holds_and_play_goes_on(recording: Path) -> None:
    async with playing(recording) as (source, steps):
        await following(steps)
        source.step(10)
        assert (await following(steps)).frames[-1].sequence == 10
        assert (await following(steps)).restart
        waiting = asyncio.ensure_future(anext(steps))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        source.pause(False)
        async with asyncio.timeout(60):
            assert (await waiting).frames[0].sequence == 11


async def test_speed_is_bounded_and_kept(recording: Path) -> None:
    async with playing(recording, 1.0) as (source, steps):
        await following(steps)
        source.set_speed(1000)
        assert source.state().speed == 60.0
        source.set_speed(0.001)
        assert source.state().speed == 0.25


async def test_a_recording_without_frames_is_an_empty_step(tmp_path: Path) -> None:
    async with playing(write(tmp_path / "empty.jsonl", [])) as (source, steps):
        assert await following(steps) == Step((), restart=True)
        assert source.state().at_end
