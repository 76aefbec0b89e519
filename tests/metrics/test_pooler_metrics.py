"""Rates, waits and sizes of poolers, against figures worked out by hand."""

from __future__ import annotations

import pytest

from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.pooler import (
    CLIENTS,
    MAX_WAIT,
    SERVERS,
    WAITING,
    XACTS,
    pool_rows,
    server_shares,
    share_rows,
    traffic,
)
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.pooler import ConsoleSample, PoolerSettings
from tests.support.frames import frame
from tests.support.pooler_frames import AWAY, SETTINGS, bouncer, counters, database, pool, poolers


def interval(*seconds: int, **consoles: ConsoleSample | Unavailable) -> Interval:
    return Interval([frame(second, pooler=poolers(second, **consoles)) for second in seconds])


def one(*looks: ConsoleSample | Unavailable) -> Interval:
    return Interval([frame(second, pooler=poolers(second, b=console)) for second, console in enumerate(looks)])


def test_rates_are_per_second_between_two_looks() -> None:
    rows = {row.key: row for row in traffic(interval(10, 14))}
    app = rows["bouncer", "app"]
    assert (app.xacts_per_s, app.queries_per_s, app.received_per_s) == (100.0, 300.0, 40_960.0)
    assert (app.xact_ms, app.query_ms, app.wait_ms) == (2.0, 0.5, 0.5)
    assert app.logins_per_s is None
    assert app.errors_per_s is None
    assert rows["cat", "r app@bench"].errors_per_s == 2.0


def test_a_wait_is_per_assignment_where_the_pooler_counts_them() -> None:
    rows = {row.key: row for row in traffic(interval(10, 11))}
    assert rows["bouncer", "bench"].wait_ms == 50_000 / 5 / 1000


def test_the_first_look_and_a_restarted_pooler_have_no_rates() -> None:
    assert [row.xacts_per_s for row in traffic(one(bouncer(5)))] == [None, None]
    assert [row.xacts_per_s for row in traffic(one(bouncer(5), bouncer(6, counters=(counters("app", 1),))))] == [None]


def test_no_rate_stretches_over_the_time_a_pooler_was_away() -> None:
    assert [row.xacts_per_s for row in traffic(one(bouncer(0), AWAY, bouncer(2)))] == [None, None]


def test_a_database_nobody_was_seen_in_before_has_no_rate_yet() -> None:
    later = bouncer(1, counters=(counters("app", 1), counters("new", 1)))
    assert {row.counters.id: row.xacts_per_s for row in traffic(one(bouncer(0), later))} == {"app": 100.0, "new": None}


def test_nothing_done_is_a_rate_of_zero_and_no_mean() -> None:
    (row,) = traffic(one(bouncer(0, counters=(counters("app", 9),)), bouncer(1, counters=(counters("app", 9),))))
    assert (row.xacts_per_s, row.xact_ms, row.wait_ms) == (0.0, None, None)


def test_the_pool_where_most_clients_wait_stands_first() -> None:
    rows = pool_rows(interval(10, 11))
    assert [row.key for row in rows] == [
        ("bouncer", "bench@bench"),
        ("bouncer", "app@app"),
        ("cat", "app@bench"),
        ("bouncer", "report@app"),
    ]
    assert rows[2].size == 40 + 40, "to both servers of the PgCat"
    worst = rows[0]
    assert (worst.size, worst.servers, worst.full_percent, worst.waited_ms) == (25, 25, 100.0, 1_300.0)
    assert worst.traffic is not None
    assert worst.traffic.xacts_per_s == 2_500.0


def test_counters_that_several_pools_share_are_put_to_none_of_them() -> None:
    rows = {row.key: row for row in pool_rows(interval(10, 11))}
    assert rows["bouncer", "app@app"].traffic is None
    assert rows["bouncer", "report@app"].traffic is None
    assert rows["cat", "app@bench"].traffic is None, "two servers stand behind it"


def test_what_a_pooler_may_take_is_the_sum_of_its_pools() -> None:
    (share,) = server_shares(bouncer(1))
    assert (share.place, share.pools, share.now) == ("10.0.0.5:5432", 3, 12 + 25)
    assert share.most == 3 * (20 + 5)


def test_a_pool_that_is_coming_counts_and_one_that_is_there_does_not_count_twice() -> None:
    (share,) = server_shares(bouncer(1), [("bench", "bench"), ("bench", "other")])
    assert share.most == 4 * (20 + 5)


def test_limits_of_a_database_and_of_a_user_bound_the_sum() -> None:
    capped = bouncer(1, databases=(database("app", max_connections=30), database("bench")))
    assert server_shares(capped)[0].most == 30 + 25
    by_user = PoolerSettings(default_pool_size=20, max_user_connections=10)
    assert server_shares(bouncer(1, settings=by_user))[0].most == 3 * 10


def test_a_database_with_one_user_for_all_is_one_pool() -> None:
    forced = bouncer(1, databases=(database("app", force_user="app"), database("bench")))
    assert server_shares(forced, [("app", "somebody")])[0].most == 2 * 25


def test_a_database_the_pooler_has_not_met_has_the_default_size() -> None:
    empty = bouncer(1, pools=(), databases=(), settings=SETTINGS)
    (share,) = server_shares(empty, [("new", "me")])
    assert (share.most, share.now) == (20 + 5, 0)
    unknown = bouncer(1, pools=(), databases=(), settings=PoolerSettings())
    assert server_shares(unknown, [("new", "me")])[0].most is None


def test_servers_of_a_pgcat_are_counted_each_by_itself() -> None:
    rows = {row.key: row.share for row in share_rows(interval(1)) if row.pooler == "cat"}
    assert {key[1]: (share.most, share.now) for key, share in rows.items()} == {
        "10.0.0.5:5432": (40, 12),
        "10.0.0.6:5432": (40, 12),
    }


def test_sums_by_pooler_leave_out_what_does_not_answer() -> None:
    now = interval(10, 11)
    assert CLIENTS(now) == {"bouncer": 980.0, "cat": 500.0}
    assert WAITING(now) == {"bouncer": 460.0, "cat": 0.0}
    assert MAX_WAIT(now)["bouncer"] == 1_300.0
    assert SERVERS(now) == {"bouncer": 37.0, "cat": 24.0}
    assert XACTS(now) == pytest.approx({"bouncer": 2_600.0, "cat": 200.0})


def test_without_a_pooler_there_is_nothing_and_no_zero() -> None:
    now = Interval([frame(1)])
    assert pool_rows(now) == traffic(now) == share_rows(now) == []
    assert CLIENTS(now) == {}


def test_pools_are_told_apart_by_pooler_and_by_name() -> None:
    twice = bouncer(1, pools=(pool("a", "b"), pool("a", "b", id="b@a #2")))
    assert len({row.key for row in pool_rows(one(twice))}) == 2
