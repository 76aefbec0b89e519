"""What a scrape says of frames, read by Prometheus' own parsers."""

from __future__ import annotations

import threading

import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.export import endpoint
from pgtop_tune.export.catalogue import chosen, exported, for_openmetrics
from pgtop_tune.export.endpoint import Exposition
from pgtop_tune.export.exported import MetricKind, WatchedInterval
from pgtop_tune.export.openmetrics import MOST_SERIES, Syntax, page
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.io import DatabaseRow, DatabaseSample
from pgtop_tune.model.postgres import PostgresSample
from pgtop_tune.model.replication import SlotSample, SubscriptionSample, SubscriptionWorker
from pgtop_tune.runtime.ports import Step
from tests.export.pages import families, values
from tests.support import frames
from tests.support.relation_frames import NEXT_XID, moment, relations, slot, table
from tests.support.statement_frames import database, sample, statement

BOTH = pytest.mark.parametrize("syntax", Syntax, ids=lambda syntax: syntax.name.lower())


def with_databases(*rows: DatabaseRow) -> Frame:
    return frames.frame(1, postgres=frames.postgres_sample(1, databases=DatabaseSample(1.0, rows)))


def scraped(*seen: Frame, syntax: Syntax = Syntax.OPENMETRICS) -> str:
    return page(for_openmetrics(), WatchedInterval(seen or tuple(frames.frame(second) for second in range(30))), syntax)


@BOTH
def test_prometheus_reads_the_page(syntax: Syntax) -> None:
    found = families(scraped(syntax=syntax), syntax)
    assert found["pgtop_server_transactions_per_second"].type == "gauge"
    assert found["pgtop_stat_wal_wal_bytes"].type == "counter"
    assert all(family.documentation for family in found.values())
    assert len(found) > 100


def test_both_syntaxes_say_the_same() -> None:
    assert values(scraped(syntax=Syntax.TEXT), Syntax.TEXT) == values(scraped())


def test_names_are_distinct_and_follow_the_rules_of_prometheus() -> None:
    names = [row.exposed for row in exported()]
    assert len(set(names)) == len(names)
    assert len({row.id for row in exported()}) == len(names)
    for row in exported():
        assert row.exposed.startswith("pgtop_")
        assert not row.exposed.endswith(("_total", "_info", "_count", "_sum", "_bucket", "_ms", "_us")), row.exposed
        assert row.unit in ("", "sessions") or row.exposed_unit, row.id
        assert row.kind is not MetricKind.INFO or not row.unit


def test_values_are_in_base_units() -> None:
    seen = [frames.frame(second) for second in range(30)]
    interval, text = WatchedInterval(seen), values(scraped(*seen))
    ((_, busy),) = chosen(["host.cpu.busy"])[0].read(interval)
    ((_, latency),) = chosen(["client.latency"])[0].read(interval)
    assert text["pgtop_host_cpu_busy_ratio", ()] == pytest.approx(busy / 100)
    assert text["pgtop_client_latency_seconds", ()] == pytest.approx(latency / 1000)
    slow = dict(chosen(["client.latency.percentile"])[0].read(interval))
    slowest = text["pgtop_client_latency_percentile_seconds", (("percentile", "99"),)]
    assert slowest == pytest.approx(slow["99",] / 1000)


def test_names_chosen_by_strangers_come_back_as_they_are() -> None:
    names = ['=cmd|"calc"', "back\\slash", "{x=1} # EOF", "Ünïcode 数据库"]
    rows = [database(oid, datname=name, xact_commit=oid) for oid, name in enumerate(names, 1)]
    found = values(scraped(with_databases(*rows)))
    for oid, name in enumerate(names, 1):
        assert found["pgtop_stat_database_xact_commit_total", (("datname", name),)] == oid


def test_what_is_not_printable_is_shown_and_makes_no_series_twice() -> None:
    text = scraped(with_databases(database(1, datname="a\x1b[2J\nb"), database(2, datname="a\u200bc"),
                                  database(3, datname="a\u200cc")))  # fmt: skip
    assert "\x1b" not in text
    assert text.count('pgtop_stat_database_deadlocks_total{datname="a·c"}') == 1
    assert ("pgtop_stat_database_deadlocks_total", (("datname", "a␛[2J⏎b"),)) in values(text)


def test_a_server_with_thousands_of_names_does_not_drown_prometheus() -> None:
    rows = [database(oid, datname=f"db{oid}") for oid in range(MOST_SERIES + 500)]
    found = families(
        page(chosen(["pg_stat_database.d*"]), WatchedInterval([with_databases(*rows)]), Syntax.OPENMETRICS)
    )
    assert len(found["pgtop_stat_database_deadlocks"].samples) == MOST_SERIES


def test_a_server_that_is_away_has_no_numbers() -> None:
    away = Unavailable(Reason.NO_ANSWER, "no answer for 3 s")
    found = values(scraped(*(frames.frame(second) for second in range(5)), frames.frame(5, postgres=away)))
    assert found["pgtop_up", ()] == 0
    assert found["pgtop_unavailable", (("reason", "no answer"), ("section", "postgres"))] == 1
    assert found["pgtop_host_cpu_busy_ratio", ()] > 0
    assert not [name for name, _ in found if name.startswith(("pgtop_server", "pgtop_stat", "pgtop_waits"))]


def test_a_reset_makes_a_counter_smaller_and_a_rate_absent() -> None:
    def wal(second: int, records: int, reset_ms: int) -> Frame:
        known = frames.postgres_sample(second)
        assert isinstance(known, PostgresSample)
        assert not isinstance(known.wal, Unavailable)
        changed = replace(known.wal, wal_buffers_full=records, stats_reset_ms=reset_ms)
        return frames.frame(second, postgres=replace(known, wal=changed))

    found = values(scraped(wal(1, 900, 1), wal(2, 40, 2)))
    assert found["pgtop_stat_wal_wal_buffers_full_total", ()] == 40
    assert ("pgtop_server_wal_buffers_full_per_second", ()) not in found


def test_statements_stand_there_by_number_when_asked_for_and_never_with_their_text() -> None:
    entries = [statement(queryid, exec_us=queryid * 10, calls=queryid) for queryid in range(1, 9)]
    seen = frames.frame(1, postgres=frames.postgres_sample(1, statement_counters=sample(1.0, 0.0, entries)))
    none, three = Exposition(1.0), Exposition(1.0, 3)
    for each in (none, three):
        each.accept(Step((seen,)))
    name = "pgtop_stat_statements_calls"
    assert name not in families(none.page(Syntax.OPENMETRICS))
    samples = families(three.page(Syntax.OPENMETRICS))[name].samples
    assert {each.labels["queryid"]: each.value for each in samples} == {"8": 8, "7": 7, "6": 6}
    assert "UPDATE" not in three.page(Syntax.OPENMETRICS)


def of_replication_and_tables(*, newest: bool) -> Frame:
    """A server that synchronises, decodes and vacuums; before 19 it does not tell how."""
    skipped = {"mem_exceeded": 3, "sync_skips": 4, "sync_skip_reason": "wal_not_flushed"} if newest else {}
    logical = slot("decoded", slot_type="logical", **skipped)
    worker = SubscriptionWorker(
        id="7:12", name="orders", kind="apply", pid=12, relation="", received_lsn_bytes=1, latest_end_lsn_bytes=1,
        message_ms=1, apply_errors=5, sync_errors=6, sequence_errors=8 if newest else None,
    )  # fmt: skip
    workers = (worker, replace(worker, id="7:13", kind="table synchronization", pid=13))
    scores = (2.5, 0.25) if newest else (None, None)
    tables = tuple(
        table(oid, "public.accounts", 1, kind=kind, autovacuum_score=score)
        for oid, kind, score in zip((16_400, 16_403), ("table", "toast"), scores, strict=True)
    )
    return frames.frame(1, postgres=frames.postgres_sample(
        1, slots=SlotSample(1.0, 1, 1, 1, (slot("standby1"), logical)),
        subscriptions=SubscriptionSample(1.0, 1, workers), relations=relations(1, tables=tables),
    ))  # fmt: skip


NEW_IN_19 = ["pg_stat_replication_slots.*", "pg_stat_subscription_stats.*", "slot.sync_skipped", "autovacuum.*"]


def test_scores_of_autovacuum_slots_and_errors_of_subscriptions_are_told_once_each() -> None:
    seen = of_replication_and_tables(newest=True)
    found = values(page(chosen(NEW_IN_19), WatchedInterval([seen]), Syntax.OPENMETRICS))
    decoded = (("slot_name", "decoded"), ("slot_type", "logical"))
    accounts = (("datname", "bench"), ("kind", "table"), ("relname", "public.accounts"))
    assert found == {
        ("pgtop_stat_replication_slots_mem_exceeded_total", decoded): 3,
        ("pgtop_stat_replication_slots_slotsync_skip_total", decoded): 4,
        ("pgtop_slot_sync_skipped", (("reason", "wal_not_flushed"), *decoded)): 1,
        ("pgtop_stat_subscription_stats_apply_error_total", (("subname", "orders"),)): 5,
        ("pgtop_stat_subscription_stats_sync_table_error_total", (("subname", "orders"),)): 6,
        ("pgtop_stat_subscription_stats_sync_seq_error_total", (("subname", "orders"),)): 8,
        ("pgtop_autovacuum_highest_score", ()): 2.5,
        ("pgtop_autovacuum_score", accounts): 2.5,
        ("pgtop_autovacuum_score", (accounts[0], ("kind", "toast"), accounts[2])): 0.25,
    }
    by_default = values(scraped(seen))
    assert by_default.keys() >= found.keys() - {key for key in found if key[0] == "pgtop_autovacuum_score"}
    assert not [key for key in by_default if key[0] == "pgtop_autovacuum_score"]


def test_a_table_that_autovacuum_leaves_alone_does_not_hide_the_others() -> None:
    """Seen on 19rc1: a table with autovacuum_enabled=off has a score as if it were taken."""
    off = table(16_400, "public.left_alone", 1, options=("autovacuum_enabled=off",), autovacuum_score=800.0)
    on = table(16_401, "public.next", 1, autovacuum_score=1.5)
    old = replace(
        off, oid=16_402, name="public.old", frozen_xid=(NEXT_XID - 300_000_000) % (1 << 32), autovacuum_score=40.0
    )
    for tables, highest in (((off, on), 1.5), ((off, on, old), 40.0)):
        seen = moment(1, relations=relations(1, tables=tables))
        found = values(page(chosen(["autovacuum.highest_score"]), WatchedInterval([seen]), Syntax.OPENMETRICS))
        assert found == {("pgtop_autovacuum_highest_score", ()): highest}


def test_an_older_server_has_no_series_of_what_only_19_counts() -> None:
    seen = of_replication_and_tables(newest=False)
    found = values(page(chosen(NEW_IN_19), WatchedInterval([seen]), Syntax.OPENMETRICS))
    assert {name for name, _ in found} == {
        "pgtop_stat_subscription_stats_apply_error_total", "pgtop_stat_subscription_stats_sync_table_error_total",
    }  # fmt: skip


def test_numbers_nobody_renews_are_not_told_any_more() -> None:
    now_s = [100.0]
    exposition = Exposition(1.0, clock=lambda: now_s[0])
    assert values(exposition.page(Syntax.OPENMETRICS)) == {("pgtop_up", ()): 0}
    exposition.accept(Step((frames.frame(1),)))
    now_s[0] += 9.0
    assert values(exposition.page(Syntax.OPENMETRICS))["pgtop_up", ()] == 1
    now_s[0] += 2.0
    assert values(exposition.page(Syntax.OPENMETRICS)) == {("pgtop_up", ()): 0}
    exposition.accept(Step((frames.frame(2),)))
    exposition.close()
    assert values(exposition.page(Syntax.TEXT), Syntax.TEXT) == {("pgtop_up", ()): 0}


def test_many_who_ask_at_once_get_one_page_made_once() -> None:
    exposition, pages = Exposition(1.0), []
    exposition.accept(Step(tuple(frames.frame(second) for second in range(3))))
    asking = [threading.Thread(target=lambda: pages.append(exposition.page(Syntax.TEXT))) for _ in range(8)]
    for each in asking:
        each.start()
    for each in asking:
        each.join()
    assert len(pages) == 8
    assert all(each is pages[0] for each in pages)
    exposition.accept(Step((frames.frame(3),)))
    assert exposition.page(Syntax.TEXT) is not pages[0]


def test_a_page_that_takes_long_does_not_hold_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def slow(*words: object) -> str:
        asked.set()
        go_on.wait(60)
        return ""

    monkeypatch.setattr(endpoint, "page", slow)
    exposition = Exposition(1.0)
    exposition.accept(Step((frames.frame(1),)))
    asking = threading.Thread(target=exposition.page, args=(Syntax.TEXT,), daemon=True)
    asking.start()
    assert asked.wait(60)
    session = threading.Thread(target=exposition.accept, args=(Step((frames.frame(2),)),), daemon=True)
    session.start()
    session.join(60)
    assert not session.is_alive()
    assert asking.is_alive()
    go_on.set()
    asking.join(60)


def test_metrics_are_chosen_by_either_name() -> None:
    assert [row.id for row in chosen(["server.tps, host.disk.b*"])] == ["host.disk.busy", "server.tps"]
    assert [row.id for row in chosen(["pgtop_server_transactions_per_second"])] == ["server.tps"]
    with pytest.raises(UsageProblem) as problem:
        chosen(["server.tsp"])
    assert "server.tps" in problem.value.hint
