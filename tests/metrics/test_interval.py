"""Which readings belong together: slow sections, ticks that were missed, outages and restarts."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pgtop_tune.compare.sides.from_window import every_number
from pgtop_tune.export.states import STATES
from pgtop_tune.metrics import host, sections, server
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.checkpoints import next_checkpoint
from pgtop_tune.metrics.server import WAL_BYTES
from pgtop_tune.metrics.waits import ACTIVE_SESSIONS
from pgtop_tune.model.absence import NOT_YET, Reason, Unavailable
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import PostgresSample
from pgtop_tune.model.waits import WaitCount
from pgtop_tune.runtime.frame_window import FrameWindow
from tests.support.frames import EPOCH_MS, facts, frame, postgres_sample

MISSED = Unavailable(Reason.NO_ANSWER, "no answer for 2 s")


def answered(second: int, started_ms: int = EPOCH_MS) -> Frame:
    return frame(second, postgres=replace(postgres_sample(second, 0), server=facts(started_ms=started_ms)))


def silent(second: int, why: Unavailable = MISSED) -> Frame:
    return frame(second, postgres=why)


def seconds(*frames: Frame) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Moments of the newest two readings, and of all of the last minute, oldest first."""
    interval = Interval(frames)
    pair = interval.pair(sections.wal)
    recent = interval.recent(sections.wal, 60.0)
    return tuple(each.at_s for each in pair or ()), tuple(each.at_s for each in reversed(recent))


def test_ticks_that_a_busy_server_misses_end_nothing() -> None:
    assert seconds(answered(0), answered(1), silent(2), silent(3), silent(4), answered(5)) == ((1, 5), (0, 1, 5))


def test_each_gap_counts_by_itself() -> None:
    frames = [answered(each) if each % 3 == 0 else silent(each) for each in range(13)]
    assert seconds(*frames) == ((9, 12), (0, 3, 6, 9, 12))


def test_a_longer_silence_is_an_outage() -> None:
    assert seconds(answered(0), *(silent(each) for each in range(1, 5)), answered(5), answered(6)) == ((5, 6), (5, 6))


def test_a_server_that_was_started_in_between_begins_anew() -> None:
    assert seconds(answered(0), silent(1), answered(2, EPOCH_MS + 1)) == ((), (2,))


@pytest.mark.parametrize("why", [NOT_YET, Unavailable(Reason.FAILED)])
def test_any_other_absence_ends_what_can_be_compared(why: Unavailable) -> None:
    assert seconds(answered(0), silent(1, why), answered(2)) == ((), (2,))


def test_a_section_that_is_missing_while_the_server_answers_ends_it() -> None:
    bare = frame(1, postgres=PostgresSample(server=facts(started_ms=EPOCH_MS)))
    assert seconds(answered(0), bare, answered(2)) == ((), (2,))


def test_nothing_is_said_while_the_server_is_silent() -> None:
    assert seconds(answered(0), answered(1), silent(2)) == ((), ())


def every(step_s: int) -> Interval:
    """Frames of the made-up session so many seconds apart."""
    window = FrameWindow()
    window.extend(frame(second) for second in range(0, 6 * step_s, step_s))
    return Interval(window)


@pytest.mark.parametrize("step_s", [2, 5, 10, 15, 20, 60])
def test_what_can_be_said_of_seconds_can_be_said_of_long_intervals(step_s: int) -> None:
    said = {number.name for number, _ in every_number(every(1))}
    assert said - {number.name for number, _ in every_number(every(step_s))} == set()
    processes = (host.PROCESS_READ_BYTES, host.PROCESS_WRITE_BYTES)
    assert [len(row(every(step_s))) for row in processes] == [len(row(every(1))) for row in processes]


@pytest.mark.parametrize("step_s", [10, 20, 60])
def test_a_forced_checkpoint_is_seen_coming_at_long_intervals(step_s: int) -> None:
    coming = next_checkpoint(every(step_s))
    assert coming is not None
    assert coming.forced


def after_gap(second: int, kind: EventKind = EventKind.GAP) -> Frame:
    gap = Event(EPOCH_MS, kind, "no samples")
    return replace(answered(second), events=(gap,))


@pytest.mark.parametrize("kind", [EventKind.GAP, EventKind.RECORDING])
def test_a_gap_of_our_own_and_frames_not_recorded_are_a_hole_and_no_mean(kind: EventKind) -> None:
    frames = [answered(0), answered(1), after_gap(11, kind), answered(12)]
    for metric in (server.TPS, server.WAL_BYTES, host.CPU_BUSY, ACTIVE_SESSIONS):
        assert [metric(Interval(frames[:end])) is None for end in (2, 3, 4)] == [False, True, False], metric.id


def test_a_mean_of_some_seconds_does_not_stretch_over_a_gap() -> None:
    frames = [answered(0), answered(1), after_gap(21), answered(22)]
    found = [Interval(frames[:end]).recent(sections.wal, 10.0, least=2) for end in (2, 3, 4)]
    assert [[reading.at_s for reading in readings] for readings in found] == [[1, 0], [21], [22, 21]]


def test_after_a_gap_no_part_of_the_active_sessions_is_exported_without_the_whole() -> None:
    (parts,) = (row for row in STATES if row.id == "waits.event")
    waits = postgres_sample(0, 0).waits
    waits = replace(waits, samples=10, counts=(WaitCount("IO", "WalSync", "client backend", 10),))
    frames = [
        replace(each, postgres=replace(each.postgres, waits=replace(waits, at_s=each.elapsed_s)))
        for each in (answered(1), after_gap(11), answered(12))
    ]
    told = [bool(list(parts.read(Interval(frames[:end])))) for end in (1, 2, 3)]
    assert told == [ACTIVE_SESSIONS(Interval(frames[:end])) is not None for end in (1, 2, 3)] == [True, False, True]


def test_a_gap_of_our_own_does_not_hide_what_happened_in_it() -> None:
    pair = Interval([answered(1), after_gap(11)]).pair(sections.checkpoints, over_gaps=True)
    assert pair is not None
    assert (pair[0].at_s, pair[1].at_s) == (1.0, 11.0)


def test_a_short_gap_between_two_slow_readings_is_no_hole() -> None:
    def slow(second: int, read_s: int, **more: object) -> Frame:
        made = answered(second)
        return replace(made, postgres=replace(made.postgres, wal=postgres_sample(read_s).wal), **more)

    events = after_gap(0).events
    frames = [slow(0, 0), slow(1, 0), slow(5, 0, events=events), slow(15, 15)]
    assert WAL_BYTES(Interval(frames)) is not None
    assert WAL_BYTES(Interval([*frames[:2], slow(15, 15, events=events)])) is None


def test_a_rate_of_what_backends_publish_is_over_a_second_at_least() -> None:
    """Four of five looks at a fifth of a second see no growth, the fifth that of a whole second."""
    frames = []
    for look in range(16):
        published = postgres_sample(look // 5)
        made = answered(0)
        database = replace(published.database, at_s=look / 5.0)
        frames.append(replace(made, elapsed_s=look / 5.0, postgres=replace(made.postgres, database=database)))
    found = [server.TPS(Interval(frames[: end + 1])) for end in range(16)]
    assert found[:5] == [None] * 5
    known = [value for value in found if value is not None]
    assert len(known) == 11
    assert min(known) > 900, "wave() is about 1,200 a second"
