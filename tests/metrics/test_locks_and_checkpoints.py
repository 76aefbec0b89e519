"""Roots of lock queues, forecasts of checkpoints, and our own cost, against arithmetic done by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgtop_tune.metrics.blockers import Blocking, blocking
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.checkpoints import (
    CHECKPOINT_TRIGGER,
    CHECKPOINT_WRITES,
    SINCE_CHECKPOINT,
    max_wal_size_bytes,
    next_checkpoint,
)
from pgtop_tune.metrics.host import OWN_CPU, OWN_STATEMENT_MS, OWN_TERMINAL_BYTES
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import Activity, CheckpointCounters, ParameterSample, PostgresSample, WalCounters
from tests.support.frames import EPOCH_MS, GIB, MIB, PARAMETERS, backend, facts, frame, parameter, postgres_sample


def waiting(**blocked_by: tuple[int, ...]) -> Activity:
    """p7=(3,) : pid 7 waits for 3."""
    rows = [backend(int(name[1:]), EPOCH_MS, blocked_by=pids) for name, pids in blocked_by.items()]
    return Activity(0.0, EPOCH_MS, tuple(rows))


def test_nobody_waits() -> None:
    assert blocking(waiting(p1=(), p2=())) == Blocking(0, None, 0, 0)


def test_root_is_at_the_end_of_the_chain_and_not_the_next_in_the_queue() -> None:
    assert blocking(waiting(p1=(), p2=(1,), p3=(2,), p4=(3, 2, 1))) == Blocking(3, 1, 3, 1)


def test_largest_crowd_has_the_root_and_ties_go_to_the_lower_pid() -> None:
    assert blocking(waiting(p5=(9,), p6=(8,), p7=(8,))).root == 8
    assert blocking(waiting(p5=(9,), p6=(8,))).root == 8


def test_roots_are_counted_each_once() -> None:
    assert blocking(waiting(p5=(9,), p6=(8,), p7=(8,), p4=(7,))).roots == 2


def test_prepared_transaction_is_a_root_without_a_process() -> None:
    assert blocking(waiting(p5=(0,))) == Blocking(1, 0, 1, 1)


def test_a_deadlock_has_no_root_and_ends() -> None:
    assert blocking(waiting(p1=(2,), p2=(1,), p3=(1,))) == Blocking(3, None, 0, 0)


@given(st.dictionaries(st.integers(1, 40), st.lists(st.integers(0, 40), max_size=4).map(tuple), max_size=40))
def test_any_tangle_ends_with_a_root_that_does_not_wait(tangle: dict[int, tuple[int, ...]]) -> None:
    found = blocking(waiting(**{f"p{pid}": blockers for pid, blockers in tangle.items()}))
    assert found.blocked == sum(1 for blockers in tangle.values() if blockers)
    assert found.root is None or not tangle.get(found.root)
    assert found.root_blocks <= found.blocked


def interval(second: int = 30, **other: object) -> Interval:
    return Interval([frame(at, postgres=postgres_sample(at, **other)) for at in range(second + 1)])


def test_trigger_is_max_wal_size_over_one_plus_completion_target_in_whole_segments() -> None:
    assert CHECKPOINT_TRIGGER(interval()) == (16 * 1024 // 16 * 10 // 19) * 16 * MIB
    assert max_wal_size_bytes(interval()) == 16 * GIB
    assert SINCE_CHECKPOINT(interval(75)) == 15.0


def test_checkpoint_is_forced_when_wal_reaches_its_trigger_first() -> None:
    found = next_checkpoint(interval())
    trigger = CHECKPOINT_TRIGGER(interval())
    assert found is not None
    assert trigger is not None
    assert found.forced
    written = postgres_sample(30).wal.lsn_bytes - 40 * GIB  # type: ignore[union-attr, operator]
    assert found.in_s == pytest.approx((trigger - written) / (82 * MIB), rel=0.12)


def test_checkpoint_comes_by_the_clock_when_there_is_room_for_wal() -> None:
    roomy = (*PARAMETERS[:3], parameter("max_wal_size", "1048576", "1TB", "MB"))
    found = next_checkpoint(interval(parameters=ParameterSample(0.0, roomy)))
    assert found is not None
    assert (found.by, found.in_s) == ("checkpoint_timeout", 270.0)


def test_checkpoint_that_is_due_says_so() -> None:
    tight = (*PARAMETERS[:3], parameter("max_wal_size", "64", "64MB", "MB"))
    found = next_checkpoint(interval(parameters=ParameterSample(0.0, tight)))
    assert found is not None
    assert found.in_s == 0.0


@pytest.mark.parametrize(("wait", "works"), [("CheckpointWriteDelay", True), ("CheckpointerMain", False)])
def test_one_that_began_before_we_looked_is_not_called_due(wait: str, works: bool) -> None:
    tight = (*PARAMETERS[:3], parameter("max_wal_size", "64", "64MB", "MB"))
    checkpointer = backend(9, EPOCH_MS, backend_type="checkpointer", wait_event_type="Timeout", wait_event=wait)
    seen = interval(parameters=ParameterSample(0.0, tight), activity=Activity(30.0, EPOCH_MS, (checkpointer,)))
    found = next_checkpoint(seen)
    assert found is not None
    assert (found.in_s, found.under_way) == (0.0, works)


def test_nothing_is_forecast_without_parameters() -> None:
    assert next_checkpoint(interval(parameters=Unavailable(Reason.NO_PERMISSION))) is None


def test_a_standby_has_restartpoints_whose_clock_is_not_known_until_one_was_seen() -> None:
    found = next_checkpoint(interval(server=facts(in_recovery=True)))
    assert found is not None
    assert (found.restartpoint, found.by) == (True, "max_wal_size")
    quiet = [frame(at, postgres=without_wal_rate(at, server=facts(in_recovery=True))) for at in range(31)]
    assert next_checkpoint(Interval(quiet)) is None
    seen = [
        frame(at, postgres=without_wal_rate(at, server=facts(in_recovery=True), requested=31 + (at >= 12)))
        for at in range(31)
    ]
    found = next_checkpoint(Interval(seen))
    assert found is not None
    assert (found.by, found.in_s) == ("checkpoint_timeout", 300.0 - 18.0)


def without_wal_rate(second: int, *, requested: int = 31, redo: int = 40 * GIB, **other: object) -> PostgresSample:
    """The server at that second, its WAL standing still a megabyte after the redo point."""
    sample = postgres_sample(second, **other)
    assert isinstance(sample.wal, WalCounters)
    assert isinstance(sample.checkpoints, CheckpointCounters)
    checkpoints = replace(
        sample.checkpoints, requested=requested, redo_lsn_bytes=redo, checkpoint_time_ms=EPOCH_MS - 100_000
    )
    return replace(sample, wal=replace(sample.wal, lsn_bytes=40 * GIB + MIB), checkpoints=checkpoints)


def test_a_checkpoint_under_way_is_where_the_next_one_counts_from() -> None:
    frames = [frame(at, postgres=without_wal_rate(at, requested=31 + (at >= 12))) for at in range(31)]
    found = next_checkpoint(Interval(frames))
    assert found is not None
    assert (found.by, found.in_s, found.under_way) == ("checkpoint_timeout", 300.0 - 18.0, True)
    done = frame(31, postgres=without_wal_rate(31, requested=32, redo=40 * GIB + 7))
    found = next_checkpoint(Interval([*frames, done]))
    assert found is not None
    assert (found.in_s, found.under_way) == (300.0 - 131.0, False), "checkpoint_time is when it began"


def test_time_that_was_up_before_we_looked_means_one_is_under_way() -> None:
    late = [frame(at, postgres=without_wal_rate(at)) for at in (210, 220)]
    found = next_checkpoint(Interval(late))
    assert found is not None
    assert (found.by, found.in_s, found.under_way) == ("checkpoint_timeout", 280.0, True)


def resting(second: int, **other: object) -> PostgresSample:
    """As `without_wal_rate`, while the checkpointer waits for its next task."""
    sample = without_wal_rate(second, **other)  # type: ignore[arg-type]
    assert isinstance(sample.activity, Activity)
    rows = [
        replace(row, wait_event_type="Activity", wait_event="CheckpointerMain")
        if row.backend_type == "checkpointer" else row
        for row in sample.activity.backends
    ]  # fmt: skip
    return replace(sample, activity=replace(sample.activity, backends=tuple(rows)))


def test_after_a_quiet_hour_the_clock_and_the_trigger_count_from_what_the_control_file_says() -> None:
    found = next_checkpoint(Interval([frame(at, postgres=resting(at)) for at in (3_600, 3_610)]))
    assert found is not None
    assert (found.by, found.in_s, found.under_way) == ("checkpoint_timeout", 300.0 - 3_710 % 300, False)

    trigger = CHECKPOINT_TRIGGER(interval())
    assert trigger is not None

    def flowing(second: int) -> PostgresSample:
        sample = resting(second)
        assert isinstance(sample.wal, WalCounters)
        lsn_bytes = 40 * GIB + int(trigger) * (second - 3_600) // 40
        return replace(sample, wal=replace(sample.wal, lsn_bytes=lsn_bytes))

    found = next_checkpoint(Interval([frame(at, postgres=flowing(at)) for at in (3_600, 3_610)]))
    assert found is not None
    assert found.forced
    assert found.in_s == pytest.approx(30.0, abs=0.1)


def test_a_timed_checkpoint_that_there_was_no_need_for_is_not_under_way() -> None:
    frames = [frame(at, postgres=resting(at, requested=31 + (at >= 12))) for at in range(31)]
    found = next_checkpoint(Interval(frames))
    assert found is not None
    assert (found.by, found.in_s, found.under_way) == ("checkpoint_timeout", 300.0 - 18.0, False)


def test_time_that_is_up_while_we_look_means_one_is_due() -> None:
    found = next_checkpoint(Interval([frame(at, postgres=without_wal_rate(at)) for at in (190, 205)]))
    assert found is not None
    assert (found.by, found.in_s, found.under_way) == ("checkpoint_timeout", 0.0, False)


def test_a_server_that_writes_nothing_has_no_checkpoint_to_expect() -> None:
    idle = [frame(at, postgres=without_wal_rate(at, redo=40 * GIB + MIB - 300)) for at in range(5)]
    assert next_checkpoint(Interval(idle)) is None


@pytest.mark.parametrize("into_the_segment", [0, 5 * MIB, 16 * MIB - 1])
def test_the_trigger_stands_at_the_end_of_a_segment_wherever_the_redo_point_is(into_the_segment: int) -> None:
    tight = (*PARAMETERS[:3], parameter("max_wal_size", "64", "64MB", "MB"))
    sample = without_wal_rate(3, redo=40 * GIB + into_the_segment, parameters=ParameterSample(0.0, tight))
    # 64 MB are four segments; over 1.9, two of them: the one of the redo point and the next.
    assert CHECKPOINT_TRIGGER(Interval([frame(3, postgres=sample)])) == 32 * MIB - into_the_segment


def test_pages_that_a_checkpoint_writes_are_a_rate_and_silent_across_a_reset() -> None:
    def written(second: int, pages: int, reset_ms: int = 7) -> Frame:
        sample = postgres_sample(second)
        assert isinstance(sample.checkpoints, CheckpointCounters)
        counters = replace(sample.checkpoints, at_s=float(second), buffers_checkpoint=pages, stats_reset_ms=reset_ms)
        return frame(second, postgres=replace(sample, checkpoints=counters))

    assert CHECKPOINT_WRITES(Interval((written(10, 500), written(12, 700)))) == 100.0
    assert CHECKPOINT_WRITES(Interval((written(10, 500), written(12, 500)))) == 0.0
    assert CHECKPOINT_WRITES(Interval((written(10, 500), written(12, 700, 8)))) is None


def test_own_cost_is_a_mean_over_five_seconds() -> None:
    seen = interval()
    assert OWN_CPU(seen) == pytest.approx(1.4)
    assert OWN_STATEMENT_MS(seen) == pytest.approx(3.1)
    assert OWN_TERMINAL_BYTES(seen) == pytest.approx(1946)
    assert OWN_CPU(Interval([frame(0)])) is None
