"""Blocks made of frames: which seconds and which transactions are of a block."""

from __future__ import annotations

from msgspec.structs import replace

from pgtop_tune.experiment.switchback.arms import Arm
from pgtop_tune.experiment.switchback.block_frames import BlockFrames
from pgtop_tune.metrics.percentiles import ascending
from pgtop_tune.model.bench import LatencySecond, RunState
from pgtop_tune.model.frame import Frame
from pgtop_tune.runtime.ports import Step
from tests.support.latencies import bucket_counts
from tests.support.run_frames import run_frames


def logged(second: int, us: int) -> LatencySecond:
    values = [us] * 100
    return LatencySecond(second, len(values), sum(values), us, ascending(bucket_counts(values)))


def with_latencies(frame: Frame, *seconds: LatencySecond) -> Frame:
    return replace(frame, bench=replace(frame.bench, latencies=seconds))  # type: ignore[type-var]


def test_a_block_has_the_lines_and_figures_behind_its_settling() -> None:
    made = run_frames(seconds=40, tps=lambda second: float(second))
    frames = BlockFrames(loaded=True)
    frames.accept(Step(tuple(made[:11])))
    block = frames.open(Arm.B, 5.0, 10.0)
    frames.accept(Step(tuple(made[11:28])))
    frames.stop()
    frames.accept(Step(tuple(made[28:])))
    found = block.block()
    # The clock of the session goes on between two frames, so that the first one behind the settling is the 16th.
    assert found.tps == tuple(float(second) for second in range(17, 28))
    assert found.seconds == 11.0
    assert found.figure("tps") == 22.0
    assert (found.arm, found.settled_s, found.began_s) == (Arm.B, 5.0, 16.0)
    assert found.waits
    assert found.checkpoint == 0.0


def test_latencies_that_come_late_are_of_the_block_in_which_they_ended() -> None:
    made = run_frames(seconds=40)
    frames = BlockFrames(loaded=True)
    frames.accept(Step(tuple(made[:5])))
    first = frames.open(Arm.A, 0.0, 10.0)
    frames.accept(Step(tuple(with_latencies(each) for each in made[5:16])))
    frames.stop()
    second = frames.open(Arm.B, 0.0, 10.0)
    began, ended = made[5].taken_at_ms // 1000, made[15].taken_at_ms // 1000
    late = with_latencies(made[16], logged(began - 2, 1), logged(began + 3, 100), logged(ended - 1, 100))
    later = with_latencies(made[17], logged(began + 3, 100), logged(ended + 3, 700))
    frames.accept(Step((late, later, *(with_latencies(each) for each in made[18:30]))))
    found = first.block().latencies
    assert found is not None
    assert (found.logged, found.max_us) == (300, 100)
    assert second.block().latencies is None


def test_what_ends_the_load_or_the_server_is_trouble_only_while_it_is_to_run() -> None:
    made = run_frames(seconds=20, state=RunState.FAILED, run={"message": "no such table\nmore"})
    frames = BlockFrames(loaded=True)
    frames.begin()
    frames.accept(Step(tuple(made[1:])))
    assert frames.trouble == "the load failed: no such table"
    frames = BlockFrames(loaded=True)
    frames.begin()
    frames.accept(Step(tuple(made[1:10])))
    frames.end()
    frames.accept(Step(tuple(made[10:])))
    assert frames.trouble == ""
