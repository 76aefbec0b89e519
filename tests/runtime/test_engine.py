"""The engine: what it has seen before the screen is there reaches the screen all the same."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator

from pgtop_tune.base.errors import ConnectionProblem
from pgtop_tune.model.events import Event
from pgtop_tune.model.frame import Frame
from pgtop_tune.runtime.engine import Engine
from pgtop_tune.runtime.ports import Step

PATIENCE_S = 60


class Source:
    """Frames 0, 1, 2 … as many as are wanted; then it ends, or fails."""

    def __init__(self, frames: int, problem: Exception | None = None) -> None:
        self._frames = frames
        self._problem = problem
        self.asked = 0
        self.looked = threading.Event()
        self.closed = threading.Event()

    async def steps(self) -> AsyncIterator[Step]:
        for number in range(self._frames):
            self.asked = number + 1
            self.looked.set()
            yield Step((Frame(number, 0, float(number)),))
        self.looked.set()
        if self._problem is not None:
            raise self._problem

    def note(self, event: Event) -> None:
        pass

    async def aclose(self) -> None:
        self.closed.set()


class Sink:
    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.closed = threading.Event()

    def accept(self, step: Step) -> None:
        self.numbers += [frame.sequence for frame in step.frames]

    def close(self) -> None:
        self.closed.set()


def test_the_first_look_is_taken_before_the_start_and_given_to_a_sink_that_came_later() -> None:
    source, sink = Source(3), Sink()
    engine = Engine(source)
    engine.prepare()
    assert source.looked.wait(PATIENCE_S)
    engine.attach(sink)
    assert (source.asked, sink.numbers) == (1, []), "no second look, and nothing is handed out, before the start"
    engine.start()
    assert sink.closed.wait(PATIENCE_S)
    assert sink.numbers == [0, 1, 2]
    assert engine.stop(PATIENCE_S)


def test_a_sink_that_came_later_hears_of_a_failure_before_the_start() -> None:
    problem = ConnectionProblem("nobody is let in")
    source, sink = Source(0, problem), Sink()
    engine = Engine(source)
    engine.prepare()
    assert source.looked.wait(PATIENCE_S)
    assert not source.closed.is_set()
    engine.attach(sink)
    engine.start()
    assert sink.closed.wait(PATIENCE_S)
    assert engine.stop(PATIENCE_S)
    assert engine.failure is problem


def test_who_hears_of_the_end_knows_at_once_whether_it_was_a_failure() -> None:
    """The screen asks when its sink is closed, in another thread, and not again."""
    problem = ValueError("no such block")
    engine = Engine(Source(1, problem))
    heard: list[BaseException | None] = []

    class Asking(Sink):
        def close(self) -> None:
            heard.append(engine.failure)
            super().close()

    sink = Asking()
    engine.attach(sink)
    engine.start()
    assert sink.closed.wait(PATIENCE_S)
    assert heard == [problem]
    assert engine.stop(PATIENCE_S)


def test_it_can_be_stopped_before_its_start() -> None:
    source = Source(3)
    engine = Engine(source)
    engine.prepare()
    assert engine.stop(PATIENCE_S)
    assert source.closed.is_set()
    assert engine.failure is None
