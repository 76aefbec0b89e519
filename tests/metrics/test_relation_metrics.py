"""Tables, vacuum, progress, replication, horizon, connections: against arithmetic done by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.connections import groups, limits, watched_parameters
from pgtop_tune.metrics.progress import progress_rows
from pgtop_tune.metrics.replication import receiver_lag, sender_lags, slot_danger, slot_states
from pgtop_tune.metrics.vacuum import (
    age,
    database_ages,
    holders,
    index_rates,
    multixact_age,
    table_rates,
    table_vacuums,
)
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import ParameterSample
from pgtop_tune.model.relations import ProgressSample
from pgtop_tune.model.replication import Receiver
from tests.support.frames import EPOCH_MS, GIB, MIB, PARAMETERS, facts, frame, postgres_sample
from tests.support.relation_frames import (
    CHANGED,
    NEXT_XID,
    VACUUM_PER_S,
    horizon,
    moment,
    progress,
    relations,
    replication,
    slot,
    slots,
    table,
)


def seen(*frames: Frame) -> Interval:
    return Interval(frames)


def at(*seconds: int) -> Interval:
    return seen(*(moment(second) for second in seconds))


def test_rates_of_tables_are_over_the_time_between_two_looks() -> None:
    row = table_rates(at(0, 16))[0]
    assert row.size_bytes == row.row.pages * 8192
    wide = table_rates(seen(moment(0), moment(16, server=facts(block_bytes=32 * 1024))))[0]
    assert wide.size_bytes == row.row.pages * 32 * 1024
    assert row.seconds == 15
    assert row.per_s("seq_scan") == 2
    assert row.per_s("n_tup_upd") == 10
    assert row.share("blks_hit", "blks_read") == 95
    assert index_rates(at(0, 16))[0].per_s("idx_scan") == 40


def test_counters_that_went_backwards_have_no_rate() -> None:
    reset = moment(31, relations=replace(relations(31), tables=(table(16_400, "public.accounts", 0, seq_scan=1),)))
    assert table_rates(seen(moment(0), moment(16), reset))[0].by is None


def test_a_table_seen_for_the_first_time_has_no_rate() -> None:
    later = replace(relations(16), tables=(table(16_999, "public.new", 900),))
    assert table_rates(seen(moment(0), moment(16, relations=later)))[0].by is None


def test_an_outage_ends_the_rate() -> None:
    gone = [frame(second, postgres=Unavailable(Reason.NO_ANSWER)) for second in (5, 6, 7, 8)]
    assert table_rates(seen(moment(0), *gone, moment(16)))[0].by is None


def test_autovacuum_thresholds_are_those_of_the_server() -> None:
    accounts = table_vacuums(at(0))[0]
    assert accounts.dead_threshold == 50 + 0.2 * 100_000
    assert accounts.dead_percent == pytest.approx(50.0)
    assert accounts.insert_threshold == 1000 + 0.2 * 100_000 * 0.5
    assert accounts.insert_percent == pytest.approx(100 * 10_500 / 11_000)
    assert accounts.analyze_percent == pytest.approx(50.0)
    assert accounts.xid_age == 100_000_000
    assert accounts.freeze_percent == pytest.approx(50.0)
    assert accounts.enabled is True


def test_options_of_a_table_come_before_parameters() -> None:
    options = (
        "autovacuum_vacuum_threshold=100", "autovacuum_vacuum_scale_factor=0", "autovacuum_freeze_max_age=125000000",
        "autovacuum_enabled=off", "autovacuum_vacuum_insert_threshold=-1",
    )  # fmt: skip
    own = replace(relations(0), tables=(table(16_400, "public.own", 0, options=options),))
    found = table_vacuums(seen(moment(0, relations=own)))[0]
    assert found.dead_threshold == 100
    assert found.freeze_percent == pytest.approx(80.0)
    assert found.enabled is False
    assert found.insert_threshold is None


def test_the_largest_threshold_of_18_holds() -> None:
    huge = replace(relations(0), tables=(table(16_400, "public.huge", 0, tuples=10**10),))
    assert table_vacuums(seen(moment(0, relations=huge)))[0].dead_threshold == 100_000_000


def test_without_parameters_thresholds_are_not_known() -> None:
    blind = table_vacuums(seen(moment(0, parameters=Unavailable(Reason.NO_PERMISSION))))[0]
    assert (blind.dead_percent, blind.insert_percent, blind.freeze_percent, blind.enabled) == (None, None, None, None)
    assert blind.xid_age == 100_000_000


def test_databases_age_towards_the_limit() -> None:
    found = {row.database.name: row for row in database_ages(at(0))}
    assert found["bench"].xid_age == NEXT_XID - 3
    assert found["bench"].freeze_percent == pytest.approx(75.0, abs=0.01)
    assert found["template1"].xid_age == 1_000


@given(st.integers(3, 2**32 - 1), st.integers(0, 2**31 - 1))
def test_ages_survive_the_wrap_of_ids(id: int, distance: int) -> None:
    assert age((id + distance) % 2**32, id) == distance


@pytest.mark.parametrize("id", [None, 0, 1, 2])
def test_what_never_ages_has_no_age(id: int | None) -> None:
    assert age(1_000, id) is None


def test_the_first_multixact_ages_and_none_does_not() -> None:
    assert multixact_age(5, 1) == 4
    assert multixact_age(5, 0) is None


def test_an_id_given_out_after_the_look_is_new() -> None:
    assert age(1_000, 1_005) == 0


def test_progress_has_a_share_a_rate_and_an_end() -> None:
    vacuum, copy, backup = progress_rows(at(20, 22, 24))
    assert vacuum.percent == pytest.approx(24.0)
    assert vacuum.per_s == pytest.approx(VACUUM_PER_S)
    assert vacuum.remaining_s == pytest.approx(76.0)
    assert (copy.percent, copy.remaining_s) == (None, None)
    assert copy.per_s == pytest.approx(3 * MIB)
    assert backup.percent == pytest.approx(100 * 24 * 16 * MIB / (4 * GIB))


def test_a_new_phase_begins_a_new_rate() -> None:
    rows = progress(22).commands
    heap = replace(rows[0], phase="vacuuming heap", done=10)
    later = moment(22, progress=ProgressSample(22.0, (heap, *rows[1:])))
    found = progress_rows(seen(moment(20), later))[0]
    assert (found.per_s, found.remaining_s) == (None, None)
    assert found.percent == pytest.approx(0.01)


def test_lags_of_a_sender_add_up() -> None:
    lag = sender_lags(at(4, 5))[0]
    assert (lag.unsent_bytes, lag.unflushed_bytes, lag.unreplayed_bytes) == (MIB, MIB, MIB)
    assert lag.total_bytes == 3 * MIB
    assert lag.sent_bytes_per_s == 8 * MIB
    assert lag.reply_age_s == pytest.approx(0.4)


def test_a_standby_that_replayed_everything_is_not_behind() -> None:
    receiver = Receiver("streaming", "db0:5432", None, 100, 100, EPOCH_MS, 100, EPOCH_MS - 3_600_000, "not paused")
    done = receiver_lag(seen(moment(1, replication=replication(1, receiver))))
    assert done is not None
    assert done.delay_s == 0
    behind = receiver_lag(seen(moment(1, replication=replication(1, replace(receiver, replay_lsn_bytes=40)))))
    assert behind is not None
    assert (behind.unreplayed_bytes, behind.delay_s) == (60, 3_601.0)
    assert receiver_lag(at(1)) is None


def test_a_slot_nobody_reads_retains_and_will_be_lost() -> None:
    used, forgotten = slot_states(at(0, 10))
    assert used.retained_bytes == 80 * MIB
    assert used.xmin_age == 500
    assert slot_danger(used.slot) == ""
    assert slot_danger(forgotten.slot) == "inactive"
    assert forgotten.retained_bytes == GIB + 80 * MIB
    assert forgotten.retained_per_s == 8 * MIB
    assert forgotten.lost_in_s == pytest.approx((GIB - 80 * MIB) / (8 * MIB))
    assert forgotten.spilled_per_s == MIB
    assert forgotten.inactive_s == 7_210


@pytest.mark.parametrize(
    ("other", "danger"),
    [
        ({"wal_status": "lost"}, "lost"),
        ({"wal_status": "unreserved"}, "unreserved"),
        ({"invalid": "rows_removed"}, "rows_removed"),
    ],
)
def test_dangers_of_slots_have_names(other: dict[str, object], danger: str) -> None:
    assert slot_danger(slot("one", **other)) == danger


def test_statistics_of_a_slot_that_were_reset_have_no_rate() -> None:
    later = slots(10)
    again = replace(later, slots=tuple(replace(each, stats_reset_ms=EPOCH_MS) for each in later.slots))
    assert slot_states(seen(moment(0), moment(10, slots=again)))[1].spilled_per_s is None


def test_the_horizon_names_everybody_oldest_first() -> None:
    found = holders(at(10))
    assert [(holder.kind, holder.name, holder.age) for holder in found] == [
        ("slot, catalogs only", "forgotten", 2_000_000),
        ("idle in transaction", "3000", 1_200_000),
        ("prepared", "tx-1", 70_000),
        ("slot", "standby1", 500),
        ("standby feedback", "4100", 400),
    ]
    assert found[1].backend == (3_000, EPOCH_MS - 60_000)
    assert "FOR UPDATE" in found[1].activity
    assert found[2].since_s == 610
    assert all(older.age >= newer.age for older, newer in pairwise(found))


def test_of_those_that_look_equally_far_back_the_one_open_longest_comes_first() -> None:
    first = horizon(10).open[0]
    same = tuple(
        replace(first, pid=pid, xact_start_ms=EPOCH_MS - 1_000 * ago_s) for pid, ago_s in ((1, 3), (2, 60), (3, 9))
    )
    found = holders(seen(moment(10, horizon=replace(horizon(10), open=same, prepared=()))))
    assert [holder.name for holder in found if holder.kind == "idle in transaction"] == ["2", "3", "1"]


def test_a_vacuum_holds_back_nobody() -> None:
    assert "2231" not in {holder.name for holder in holders(at(10))}
    counted = tuple(replace(each, is_vacuum=False) for each in horizon(10).open)
    assert "2231" in {holder.name for holder in holders(seen(moment(10, horizon=replace(horizon(10), open=counted))))}


def test_connections_are_grouped_and_held_against_limits() -> None:
    interval = at(10)
    found = {(group.usename, group.application_name): group for group in groups(interval)}
    assert found["bench", "pgbench"].sessions == found["bench", "pgbench"].active == 16
    assert found["app", "shop worker"].in_transaction == 1
    assert found["app", "shop worker"].oldest_xact_s == 100
    assert found["app", "shop"].idle == 16
    by_name = {(limit.scope, limit.name): limit for limit in limits(interval)}
    assert by_name["server", "max_connections"].used == 34
    assert by_name["server", "not reserved"].limit == 92
    assert by_name["database", "bench"].percent == pytest.approx(100 * 33 / 40)
    assert by_name["role", "app"].used == 17
    assert len(by_name) == 4


def test_parameters_somebody_set_are_marked_with_what_changed() -> None:
    found = {row.parameter.name: row for row in watched_parameters(at(30), [CHANGED])}
    assert {name for name, row in found.items() if row.is_set} == {"shared_buffers", "max_wal_size"}
    assert found["max_wal_size"].change == "1GB→16GB"
    assert found["shared_buffers"].parameter.pending_restart


def test_what_our_own_connection_asked_for_is_no_setting_of_the_server() -> None:
    ours = [replace(PARAMETERS[0], name=f"of_{source}", source=source) for source in ("client", "session", "database")]
    sample = postgres_sample(30, parameters=ParameterSample(30.0, tuple(ours)))
    found = watched_parameters(seen(frame(30, postgres=sample)), [])
    assert [(row.is_set, row.value is None) for row in found] == [(False, True), (False, True), (True, False)]
