"""Waits by type of lock: growth of pg_stat_lock beside what was sampled."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pgtop_tune.metrics.waits import lock_types
from pgtop_tune.model.waits import LockCounterSample, WaitCount, WaitSample
from tests.support.statement_frames import session_with
from tests.support.wait_frames import lock_counters_at

NOBODY = WaitSample(2.0, 10, (WaitCount("CPU", "", "client backend", 10),))
JAM = WaitSample(2.0, 10, (WaitCount("Lock", "tuple", "client backend", 15), *NOBODY.counts))


def test_a_long_wait_that_ended_counts_whole_and_a_sampled_one_from_its_first_moment() -> None:
    interval = session_with(
        [{"lock_counters": lock_counters_at(0)}, {"lock_counters": lock_counters_at(4), "waits": JAM}]
    )
    found = {row.grown.row.locktype: row for row in lock_types(interval.interval)}
    assert found["transactionid"].grown.by == {"waits": 2, "wait_us": 6_000_000, "fastpath_exceeded": 0}
    assert found["transactionid"].grown.per_s("wait_us") == pytest.approx(1_500_000)
    assert found["relation"].grown.per_s("fastpath_exceeded") == pytest.approx(40)
    assert found["tuple"].sampled == pytest.approx(0.75)
    assert found["advisory"].sampled == 0.0


def test_a_reset_and_a_view_that_is_not_there_give_no_number() -> None:
    newer = lock_counters_at(4)
    reset = LockCounterSample(4.0, tuple(replace(row, stats_reset_ms=1) for row in newer.types))
    session = session_with([{"lock_counters": lock_counters_at(0)}, {"lock_counters": reset}])
    assert {row.grown.by for row in lock_types(session.interval)} == {None}
    assert lock_types(session_with([{}, {}]).interval) == []
