"""Rates of statements: arithmetic done by hand, entries that come and go, resets."""

from __future__ import annotations

import pytest

from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.server import QPS
from pgtop_tune.metrics.statements import STATEMENT_LOAD, StatementRate, statement_rates
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.postgres import Activity, ParameterSample, StatementTotals
from pgtop_tune.model.statements import OWN_MARK, StatementSample
from tests.support.frames import backend, parameter
from tests.support.statement_frames import sample, session_with, statement, texts


def rates(*looks: StatementSample | Unavailable, **sections: object) -> dict[int, StatementRate]:
    session = session_with([{"statement_counters": look, **sections} for look in looks])
    assert session.interval is not None
    return {rate.counters.queryid: rate for rate in statement_rates(session.interval)}


def test_rates_are_what_was_counted_divided_by_the_time() -> None:
    older = statement(1, calls=100, exec_us=5_000_000, rows=300, shared_blks_hit=900, shared_blks_read=100)
    newer = statement(
        1, calls=120, exec_us=5_090_000, rows=360, shared_blks_hit=930, shared_blks_read=110, temp_blks_written=4,
        wal_bytes=6_000, jit_us=3_000,
    )  # fmt: skip
    rate = rates(sample(0.0, None, [older]), sample(2.0, 0.0, [newer]))[1]
    assert rate.calls_per_s == 10.0
    assert rate.ms_per_s == 45.0
    assert rate.mean_ms == 4.5
    assert rate.rows_per_call == 3.0
    assert rate.hit_share == 75.0
    assert rate.bytes_per_s("shared_blks_read") == 5 * 8192
    assert rate.bytes_per_s("temp_blks_read", "temp_blks_written") == 2 * 8192
    assert rate.wal_bytes_per_s == 3_000.0
    assert rate.jit_ms_per_s == 1.5


def test_looks_within_ten_seconds_are_added_up() -> None:
    looks = [sample(2.0 * n, 2.0 * (n - 1) if n else None, [statement(1, calls=n * n)]) for n in range(5)]
    assert rates(*looks)[1].calls_per_s == 16 / 8


def test_nothing_can_be_said_of_the_first_look() -> None:
    rate = rates(sample(0.0, None, [statement(1, calls=9_000)]))[1]
    assert (rate.calls_per_s, rate.ms_per_s, rate.mean_ms, rate.share) == (None, None, None, None)


def test_an_entry_that_was_not_on_the_server_before_counts_from_nothing() -> None:
    assert rates(sample(0.0, None, []), sample(2.0, 0.0, [statement(7, calls=8)]))[7].calls_per_s == 4.0


def test_an_entry_that_was_not_kept_before_brings_its_older_reading() -> None:
    newer = sample(2.0, 0.0, [statement(7, calls=50_008)], before=(statement(7, calls=50_000),))
    assert rates(sample(0.0, None, []), newer)[7].calls_per_s == 4.0


def test_an_entry_whose_older_reading_nobody_has_is_unknown() -> None:
    newer = sample(2.0, 0.0, [statement(7, calls=50_008)], unknown_before=("7/10/5/1",))
    assert rates(sample(0.0, None, []), newer)[7].calls_per_s is None


def test_a_reset_gives_no_number() -> None:
    looks = sample(0.0, None, [statement(1, calls=900)]), sample(2.0, 0.0, [statement(1, calls=3)])
    assert rates(*looks)[1].calls_per_s is None


def test_an_entry_thrown_out_and_made_anew_gives_no_number_even_when_it_counted_more() -> None:
    newer = statement(1, calls=900, stats_since_ms=1_794_000_000_500)
    assert rates(sample(0.0, None, [statement(1, calls=3)]), sample(2.0, 0.0, [newer]))[1].calls_per_s is None


def test_a_look_that_does_not_follow_the_one_before_says_nothing() -> None:
    looks = sample(0.0, None, [statement(1, calls=3)]), sample(9.0, None, [statement(1, calls=900)])
    assert rates(*looks)[1].calls_per_s is None


def test_an_outage_in_between_says_nothing() -> None:
    gone = Unavailable(Reason.NO_ANSWER)
    assert (
        rates(sample(0.0, None, [statement(1)]), *[gone] * 4, sample(2.0, 0.0, [statement(1, calls=8)]))[1].mean_ms
        is None
    )


def test_idle_entries_stand_at_zero() -> None:
    rate = rates(sample(0.0, None, [statement(1, calls=9)]), sample(2.0, 0.0, [statement(1, calls=9)]))[1]
    assert (rate.calls_per_s, rate.ms_per_s, rate.mean_ms) == (0.0, 0.0, None)


def test_an_entry_left_out_for_a_while_is_not_taken_for_idle() -> None:
    looks = (
        sample(0.0, None, [statement(1, calls=0)]),
        sample(2.0, 0.0, [], left_out=3_000),
        sample(4.0, 2.0, [statement(1, calls=108)], before=(statement(1, calls=100),)),
    )
    assert rates(*looks)[1].calls_per_s == 4.0


def test_share_is_of_all_top_level_statements() -> None:
    session = session_with([
        {"statement_counters": sample(0.0, None, [statement(1, exec_us=0)]),
         "statements": StatementTotals(0.0, 0, 1_000.0, 1, 0, None)},
        {"statement_counters": sample(1.0, 0.0, [statement(1, exec_us=50_000)]),
         "statements": StatementTotals(1.0, 10, 1_200.0, 1, 0, None)},
    ])  # fmt: skip
    assert session.interval is not None
    (rate,) = statement_rates(session.interval)
    assert rate.share == 25.0
    assert STATEMENT_LOAD(session.interval) == pytest.approx(0.2)


def test_sums_are_unknown_while_entries_take_their_calls_and_times_with_them() -> None:
    """200 statements a second of which half were evicted again looked like 100, and shares were of a part of all."""
    evicted = [0, 0, 5, 5]
    session = session_with([
        {"statement_counters": sample(float(at), at - 1.0 if at else None, [statement(1, exec_us=50_000 * at)]),
         "statements": StatementTotals(float(at), 100 * at, 200.0 * at, 1, dealloc, None)}
        for at, dealloc in enumerate(evicted)
    ])  # fmt: skip
    frames = session.frames
    intervals = [Interval(frames[: end + 1]) for end in range(len(frames))]
    assert [QPS(each) for each in intervals] == [None, 100.0, None, 100.0]
    assert [STATEMENT_LOAD(each) for each in intervals] == [None, pytest.approx(0.2), None, None]
    assert [rate.share for rate in statement_rates(intervals[2])] == [None]


def test_what_a_setting_keeps_from_being_counted_is_unknown_and_not_zero() -> None:
    looks = sample(0.0, None, [statement(1)]), sample(2.0, 0.0, [statement(1, calls=1, plans=0, plan_us=0)])
    off = [parameter("pg_stat_statements.track_planning", "off", "off"), parameter("track_io_timing", "off", "off")]
    rate = rates(*looks, parameters=ParameterSample(0.0, tuple(off)))[1]
    assert (rate.planning_ms_per_s, rate.io_ms_per_s) == (None, None)
    on = [parameter("pg_stat_statements.track_planning", "on", "on"), parameter("track_io_timing", "on", "on")]
    rate = rates(*looks, parameters=ParameterSample(0.0, tuple(on)))[1]
    assert (rate.planning_ms_per_s, rate.io_ms_per_s) == (0.0, 0.0)


def test_what_an_old_extension_does_not_count_is_unknown() -> None:
    looks = [sample(2.0 * n, 2.0 * (n - 1) if n else None, [statement(1, calls=n, jit_us=None)]) for n in range(2)]
    assert rates(*looks)[1].jit_ms_per_s is None


def test_our_own_statements_are_left_out() -> None:
    looks = [sample(2.0 * n, 2.0 * (n - 1) if n else None, [statement(1), statement(2)]) for n in range(2)]
    assert set(rates(*looks, statement_texts=texts(0.0, {1: f"SELECT $1 {OWN_MARK}", 2: "SELECT 2"}))) == {2}
    ours = Activity(at_s=0.0, now_ms=0, backends=(backend(9, 0, query_id=1, query=f"SELECT {OWN_MARK} 1"),))
    assert set(rates(*looks, activity=ours)) == {2}, "a session shows the text before pg_stat_statements does"


def test_a_section_read_less_often_than_every_ten_seconds_still_has_rates() -> None:
    looks = [sample(0.0, None, [statement(1)])] * 20 + [sample(20.0, 0.0, [statement(1, calls=60)])]
    assert rates(*looks)[1].calls_per_s == 3.0
