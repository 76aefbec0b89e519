"""The queue between engine and screen: bounded, and honest about what it forgot."""

from __future__ import annotations

from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.model.frame import Frame
from pgtop_tune.runtime.ports import Step
from pgtop_tune.tui.time_travel import KEEP_STEPS, ScreenSink


def _frame(sequence: int, *texts: str) -> Frame:
    events = tuple(Event(sequence * 1000, EventKind.NOTE, text) for text in texts)
    return Frame(sequence, sequence * 1000, float(sequence), events=events)


def _sink() -> tuple[ScreenSink, list[str]]:
    heard: list[str] = []
    return ScreenSink(lambda: heard.append("poke"), lambda: heard.append("ended")), heard


def test_many_steps_are_one_poke_until_they_are_taken() -> None:
    sink, heard = _sink()
    for sequence in range(5):
        sink.accept(Step((_frame(sequence),)))
    assert heard == ["poke"]
    assert [step.frames[0].sequence for step in sink.take()] == [0, 1, 2, 3, 4]
    sink.accept(Step((_frame(5),)))
    assert heard == ["poke", "poke"]


def test_a_screen_that_never_takes_does_not_grow_the_queue() -> None:
    sink, _ = _sink()
    for sequence in range(KEEP_STEPS * 3):
        sink.accept(Step((_frame(sequence),)))
    assert sink.dropped_frames == KEEP_STEPS * 2
    assert [step.frames[0].sequence for step in sink.take()] == list(range(KEEP_STEPS * 2, KEEP_STEPS * 3))


def test_events_of_forgotten_frames_arrive_with_the_first_that_is_left() -> None:
    sink, _ = _sink()
    sink.accept(Step((_frame(0, "checkpoint"),)))
    for sequence in range(1, KEEP_STEPS + 1):
        sink.accept(Step((_frame(sequence, *(["note"] if sequence == 1 else [])),)))
    assert [event.text for event in sink.take()[0].frames[0].events] == ["checkpoint", "note"]
    sink.accept(Step((_frame(KEEP_STEPS + 1),)))
    assert sink.take()[0].frames[0].events == ()


def test_a_forgotten_restart_is_still_a_restart() -> None:
    sink, _ = _sink()
    sink.accept(Step((_frame(0),), restart=True))
    for sequence in range(1, KEEP_STEPS + 5):
        sink.accept(Step((_frame(sequence),)))
    taken = sink.take()
    assert taken[0].restart
    assert not any(step.restart for step in taken[1:])


def test_a_restart_makes_everything_before_it_pointless() -> None:
    sink, _ = _sink()
    sink.accept(Step((_frame(0, "old"),)))
    sink.accept(Step((_frame(100),), restart=True))
    assert [step.frames[0].sequence for step in sink.take()] == [100]


def test_the_end_is_told() -> None:
    sink, heard = _sink()
    sink.close()
    assert heard == ["ended"]
