"""A recording that is looked at while it is written: by another process into a file, or through a pipe."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgtop_tune.base.errors import RecordingProblem
from pgtop_tune.recording.reader import RecordingReader
from pgtop_tune.recording.replay import ReplaySource
from pgtop_tune.recording.spool import Spool
from pgtop_tune.recording.writer import RecordingWriter
from pgtop_tune.runtime.ports import Landmark
from tests.recording.test_recording_roundtrip import realistic
from tests.support.frames import frame
from tests.support.recordings import HEADER, write

FRAMES = [frame(second, backends=2) for second in range(130)]
NAMES = ("a.jsonl", "a.jsonl.gz", "a.jsonl.zst")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("before", [0, 5, 60])
def test_frames_written_after_it_was_opened_are_found(tmp_path: Path, name: str, before: int) -> None:
    writer = RecordingWriter(tmp_path / name, HEADER)
    for one in FRAMES[:before]:
        writer.write(one)
    reader = RecordingReader(tmp_path / name)
    assert (reader.frame_count, reader.extend(), reader.growing) == (before, False, True)
    for count in (61, 62, 119, 130):
        while writer.frames < count:
            writer.write(FRAMES[writer.frames])
        assert reader.extend()
        assert (reader.frame_count, reader.length_s) == (count, count - 1.0)
        assert reader.index_at(count - 1.5) == count - 2
    writer.close()
    reader.extend()
    assert [one for _, one in reader.frames()] == FRAMES
    assert reader.problems == []
    reader.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_block_that_grows_while_it_is_read_leaves_no_hole(tmp_path: Path, name: str) -> None:
    writer = RecordingWriter(tmp_path / name, HEADER)
    for one in FRAMES[:50]:
        writer.write(one)
    reader = RecordingReader(tmp_path / name)
    ahead = reader.frames()
    assert next(ahead)[1] == FRAMES[0]
    while writer.frames < len(FRAMES):
        writer.write(FRAMES[writer.frames])
    writer.close()
    assert reader.extend()
    assert [one for _, one in ahead][:49] == FRAMES[1:50]
    assert [one for _, one in reader.frames(60)] == FRAMES[60:]
    reader.close()


def test_a_line_that_was_half_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.jsonl", FRAMES[:10]).read_bytes()
    path = tmp_path / "growing.jsonl"
    path.write_bytes(whole[:-20])
    reader = RecordingReader(path)
    assert reader.frame_count == 9
    assert reader.problems
    path.write_bytes(whole)
    assert reader.extend()
    assert [one for _, one in reader.frames()] == FRAMES[:10]
    assert reader.problems == []
    reader.close()


@pytest.mark.parametrize("name", NAMES)
async def test_at_its_end_a_replay_goes_on_when_frames_come(tmp_path: Path, name: str) -> None:
    writer = RecordingWriter(tmp_path / name, HEADER)
    for one in FRAMES[:58]:
        writer.write(one)
    source = ReplaySource(RecordingReader(tmp_path / name), 60.0)
    source.jump(56.0)
    steps, seen = source.steps(), list[int]()
    async with asyncio.timeout(60):
        while not seen or seen[-1] < 129:
            step = await anext(steps)
            seen = (
                [one.sequence for one in step.frames] if step.restart else seen + [one.sequence for one in step.frames]
            )
            while source.state().at_end and writer.frames < 130:
                writer.write(FRAMES[writer.frames])
                if writer.frames % 7 == 0:
                    break
    assert seen == list(range(130))
    assert source.state().length_s == 129.0
    writer.close()
    await source.aclose()


class Waiting(ReplaySource):
    """Tells how long it would sleep."""

    def __init__(self, reader: RecordingReader) -> None:
        super().__init__(reader)
        self.sleeps: list[float | None] = []

    async def _woken(self, timeout_s: float | None) -> bool:
        self.sleeps.append(timeout_s)
        return await super()._woken(timeout_s)


@pytest.mark.parametrize("paused", [True, False])
async def test_a_paused_replay_and_one_at_the_end_of_an_old_file_sleep_until_a_key(
    tmp_path: Path, paused: bool
) -> None:
    path = write(tmp_path / "a.jsonl", FRAMES[:20])
    if not paused:
        os.utime(path, (0, 0))
    source = Waiting(RecordingReader(path))
    source.pause(paused)
    source.jump(5.0 if paused else 1e9)
    steps = source.steps()
    for _ in range(2):
        await anext(steps)
    waiting = asyncio.ensure_future(anext(steps))
    async with asyncio.timeout(60):
        while not source.sleeps:
            await asyncio.sleep(0)
    assert source.sleeps == [None]
    waiting.cancel()
    await source.aclose()


@pytest.fixture
def pipe() -> Iterator[tuple[int, list[int]]]:
    """The end to read from, and a list with the one to write to, which is taken out when it is closed."""
    reading, writing = os.pipe()
    ends = [writing]
    yield reading, ends
    for end in ends:
        os.close(end)


@pytest.mark.parametrize("name", NAMES)
def test_what_comes_through_a_pipe_in_pieces_is_the_recording(
    tmp_path: Path, name: str, pipe: tuple[int, list[int]]
) -> None:
    reading, ends = pipe
    data = write(tmp_path / name, FRAMES).read_bytes()
    spool = Spool(reading)
    begun = len(data) * 2 // 3
    for place in range(0, begun, 4096):
        os.write(ends[0], data[place : min(place + 4096, begun)])
    reader = spool.reader()
    assert 0 < reader.frame_count < len(FRAMES)
    os.write(ends[0], data[begun:])
    os.close(ends.pop())
    while spool.growing:
        spool.wait()
    reader.extend()
    assert not reader.growing
    assert [one for _, one in reader.frames()] == FRAMES
    reader.close()


@pytest.mark.parametrize("data", [b"", b"y\n", b"\x1f\x8b" + bytes(64), b'{"format":"pgtop-tune/9"}\n'])
def test_a_pipe_with_something_else_is_refused_with_a_reason(data: bytes, pipe: tuple[int, list[int]]) -> None:
    reading, ends = pipe
    os.write(ends[0], data)
    if b"\n" not in data:
        os.close(ends.pop())
    with pytest.raises(RecordingProblem):
        Spool(reading).reader()


async def test_events_checkpoints_and_the_worst_second_are_found_in_both_directions(tmp_path: Path) -> None:
    frames = realistic(115)
    happened = {one.sequence: {event.kind for event in one.events} for one in frames if one.events}
    checkpoints = [number for number, kinds in happened.items() if "checkpoint" in kinds]
    slowest = max(
        (one for one in frames if one.bench.latencies),  # type: ignore[union-attr]
        key=lambda one: max(second.max_us for second in one.bench.latencies),  # type: ignore[union-attr]
    )
    assert len(happened) > 3
    assert checkpoints
    source = ReplaySource(RecordingReader(write(tmp_path / "a.jsonl.gz", frames)))
    source.pause(True)
    steps = source.steps()
    await anext(steps)
    forward: list[float] = []
    while (found := await source.find(Landmark.NEXT_EVENT)) is not None:
        forward.append(found)
        source.jump(found)
        while (await anext(steps)).frames[-1].elapsed_s != found:
            pass
    assert forward == [float(number) for number in happened if number > 0]
    back: list[float] = []
    while (found := await source.find(Landmark.PREVIOUS_EVENT)) is not None:
        back.append(found)
        source.jump(found)
        while source.state().position_s != found:
            await anext(steps)
    assert back == [float(number) for number in sorted(happened, reverse=True)][1:]
    source.jump(0.0)
    while source.state().position_s > 0:
        await anext(steps)
    assert await source.find(Landmark.NEXT_CHECKPOINT) == float(next(number for number in checkpoints if number))
    assert await source.find(Landmark.PREVIOUS_CHECKPOINT) is None
    assert await source.find(Landmark.WORST_SECOND) == slowest.elapsed_s
    await source.aclose()
