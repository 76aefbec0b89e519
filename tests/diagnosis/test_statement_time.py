"""The words about a statement whose time is not its rows': compiled, planned, canceled, repeated, of another plan."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pgtop_tune.diagnosis.diagnoser import Diagnoser
from pgtop_tune.diagnosis.finding import Confidence, DeedKind, Finding
from pgtop_tune.model.events import LogLine, LogTail
from pgtop_tune.model.io import SlruCounters, SlruSample
from pgtop_tune.model.replication import ReplicationSample, Sender
from pgtop_tune.model.statements import StatementSample
from tests.support.frames import EPOCH_MS, backend, parameter
from tests.support.made_situations import (
    COMPILED,
    COUNTED,
    CROWDED,
    MADE,
    PLANNED,
    POINT,
    REPEATED,
    REPORT,
    STANDBY,
    TIMED_OUT,
    of_statements,
    sampled,
)
from tests.support.relation_frames import relations, table
from tests.support.situations import Situation


def first_of(situation: Situation) -> Finding:
    return Diagnoser().look(situation.interval(40)).first


def rules_of(situation: Situation) -> list[str]:
    return [finding.rule for finding in Diagnoser().look(situation.interval(40)).findings]


def test_jit_compilation_is_told_with_the_parameter_that_allows_it() -> None:
    """Compilation was 91 % of a statement, and the line said "other programs take 1.8 of 2 CPUs"."""
    first = first_of(COMPILED)
    assert first.sentence == (
        "JIT compilation takes 90 % of the time of SELECT count(*) FROM big JOIN parts USI…: 10.1 ms of 11.2 ms per"
        " execution; jit_above_cost is 10"
    )
    stage, role = first.deeds[:2]
    assert (stage.kind, stage.target, stage.value) == (DeedKind.STAGE_PARAMETER, "jit_above_cost", "100000")
    assert role.target == 'ALTER ROLE "bench" SET jit = off;'
    default = replace(COMPILED, parameters=(parameter("jit_above_cost", "100000", "100000"),))
    assert first_of(default).deeds[0].target == 'ALTER ROLE "bench" SET jit = off;'


def test_planning_is_counted_or_what_executions_do_not_explain() -> None:
    counted, likely = first_of(COUNTED), first_of(PLANNED)
    assert ": 60.0 ms of 70.0 ms per execution" in counted.sentence
    assert counted.confidence is Confidence.IS
    assert likely.sentence == (
        "most likely planning, or starting its plan, takes 86 % of the time of SELECT count(*) FROM big JOIN parts"
        " USI…: 2.9 sessions work for it, its executions take 0.4; track_planning is off"
    )
    assert [deed.target for deed in likely.deeds if deed.kind is DeedKind.STAGE_PARAMETER] == [
        "pg_stat_statements.track_planning"
    ]


@pytest.mark.parametrize(
    ("calls", "exec_us", "rollbacks"),
    [
        (40, 2_700_000, 0.0),
        # Its begin and end take longer than a short execution.
        (10_000, 100_000, 0.0),
        # Executions that fail, and those that last, are sampled and not counted.
        (40, 400_000, 20.0),
        (1, 400_000, 0.0),
    ],
)
def test_what_executions_explain_or_may_not_count_is_no_planning(calls: int, exec_us: int, rollbacks: float) -> None:
    server = {**PLANNED.server, **of_statements({"calls": calls, "exec_us": exec_us}, text=REPORT)}
    counters = {"database.xact_rollback": rollbacks}
    assert "plan.time" not in rules_of(replace(PLANNED, server=server, counters=counters))


def logged(second: int) -> LogTail:
    lines = [
        LogLine(f"log:{number}", "ERROR", "", "canceling statement due to statement timeout")
        for number in range(20 * (second // 5 * 5))
    ]
    return LogTail(float(second // 5 * 5), "log", 0, 0, tuple(lines[-100:]))


def test_a_statement_that_times_out_is_named_with_its_errors_a_second() -> None:
    """A storm of cancellations was "the 2 CPUs are saturated", with the rollbacks as a note."""
    first = first_of(TIMED_OUT)
    assert first.sentence == (
        "most likely SELECT count(*) FROM big JOIN parts USI… fails 20 times per second after up to 0.30 s, canceled by"
        " a timeout or with an error; 100 % of its time is lost"
    )
    told = first_of(replace(TIMED_OUT, server={**TIMED_OUT.server, "server_log": logged}))
    assert "after up to 0.30 s: canceling statement due to statement timeout; " in told.sentence
    assert told.confidence is Confidence.IS


def test_one_long_statement_beside_rollbacks_of_others_does_not_fail() -> None:
    def long(second: int, now_ms: int) -> tuple[Any, ...]:
        return (backend(10, now_ms, query=REPORT, query_id=1, query_start_ms=EPOCH_MS - 60_000),)

    server = {**TIMED_OUT.server, "waits": sampled({"CPU:": 1.0})}
    assert "stmt.fails" not in rules_of(replace(TIMED_OUT, backends=long, server=server))


def test_a_statement_for_each_row_is_told_with_its_number_and_the_way_to_fold_them() -> None:
    """A load of others with 200 queries a transaction was "the server waits for its clients"."""
    first = first_of(REPEATED)
    assert "; 200 executions per transaction of SELECT * FROM item WHERE id = $1, 0.012 ms each" in first.sentence
    assert first.next_step.startswith("fetch the rows with one statement (= ANY($1), or a join)")
    # Integers of two sizes make two statements of one text (psycopg).
    sizes = of_statements({"calls": 2_400, "exec_us": 29_000}, {"calls": 1_000, "exec_us": 12_000}, text=POINT,
                          other_texts={2: POINT})  # fmt: skip
    assert "; 200 executions per transaction of SELECT" in first_of(replace(REPEATED, server=sizes)).sentence
    few = of_statements({"calls": 51, "exec_us": 41_000}, text="SELECT 1")
    assert "client.think" not in rules_of(replace(REPEATED, server=few))


def test_a_savepoint_for_each_row_is_told() -> None:
    entries = {"calls": 1_360, "exec_us": 100_000}, {"calls": 1_360, "exec_us": 6_000}
    made = of_statements(*entries, text="UPDATE st SET v = v + $1 WHERE id = $2", other_texts={2: "SAVEPOINT $1"})
    first = first_of(replace(REPEATED, server=made))
    assert "80 executions in savepoints per transaction of UPDATE st SET" in first.sentence
    assert first.next_step.startswith("change the rows with one statement")


def test_a_table_is_told_with_its_indexes_and_those_never_scanned() -> None:
    first = first_of(CROWDED)
    assert first.sentence == (
        "most likely 100 % of the updates of orders are not HOT: each writes to its 9 indexes; never scanned: orders_7,"
        " orders_8"
    )
    assert first.deeds[1].target == 'DROP INDEX CONCURRENTLY "public"."orders_7";'


def other_plan(second: int) -> StatementSample:
    """A missing index from second 20 on; before, an execution touched five pages."""
    sample: StatementSample = MADE["a missing index"][1].server["statement_counters"](second)
    early = tuple(
        replace(row, calls=row.calls + 10_000, shared_blks_hit=row.shared_blks_hit + 50_000)
        for row in sample.statements
    )
    return replace(sample, statements=early)


@pytest.mark.parametrize(("forced", "under"), [(False, ""), (True, ", under a generic plan (plan_cache_mode)")])
def test_more_pages_for_each_execution_than_before_are_likely_another_plan(forced: bool, under: str) -> None:
    made = MADE["a missing index"][1]
    mode = parameter("plan_cache_mode", "force_generic_plan" if forced else "auto", "", vartype="enum")
    first = first_of(replace(made, server={**made.server, "statement_counters": other_plan}, parameters=(mode,)))
    before = first.sentence.partition("likely another plan: ")[2]
    assert before.endswith(f" pages before{under}")
    assert (first.deeds[0].target == "plan_cache_mode") is forced


def test_one_end_of_a_range_by_the_index_of_its_order_is_a_wrong_index() -> None:
    """An index on ts was there, and one was advised: a prepared statement walked the primary key to find min(id)."""
    made = MADE["a missing index"][1]
    text = "SELECT min(id), max(id) FROM orders WHERE ts >= $1"

    def walked(second: int) -> Any:
        at = second // 15 * 15
        row = table(16_500, "public.orders", 0, idx_scan=16 * at, idx_tup_fetch=1_200_000 * at, n_live_tup=150_000)
        return relations(second, tables=(row,))

    server = {
        **made.server, "relations": walked,
        **of_statements({"calls": 8, "exec_us": 3_500_000, "rows": 8, "shared_blks_hit": 50_000}, text=text),
    }  # fmt: skip
    mode = parameter("plan_cache_mode", "auto", "", vartype="enum")
    first = first_of(replace(made, server=server, parameters=(mode,)))
    assert first.sentence.endswith("likely a wrong index")
    assert ("plan_cache_mode", "force_custom_plan") in [(deed.target, deed.value) for deed in first.deeds]


def test_a_condition_that_most_rows_meet_is_no_missing_index() -> None:
    made = MADE["a missing index"][1]
    text = "SELECT max(v) FROM orders WHERE tenant <> $1 AND id % $2 = $3"
    first = first_of(replace(made, server={**made.server, **of_statements(
        {"calls": 8, "exec_us": 3_500_000, "rows": 8, "shared_blks_hit": 50_000}, text=text
    )}))  # fmt: skip
    assert first.sentence.endswith("likely the whole table: <> matches most rows")


def subtransactions(savepoints: int, utility: str = "on") -> Situation:
    entries = {"calls": 100, "exec_us": 1_000}, {"calls": savepoints, "exec_us": 1_000}
    server = of_statements(*entries, text="SELECT sum(v) FROM st", other_texts={2: "SAVEPOINT $1"})

    def slru(second: int) -> SlruSample:
        at = second // 5 * 5
        return SlruSample(float(at), (SlruCounters("subtransaction", 0, 0, 1_000 * at, 0, 0, 0, 0, None),))

    def batch(second: int, now_ms: int) -> tuple[Any, ...]:
        query = "SAVEPOINT s1" if savepoints else "CALL nightly(2)"
        return (
            backend(10, now_ms, application_name="batch", query=query, query_start_ms=EPOCH_MS, xact_start_ms=EPOCH_MS),
        )

    return Situation(
        waits={"LWLock:SubtransSLRU": 4.0, "CPU:": 1.0}, load=False, tps=100.0, cpu=1.0, backends=batch,
        server={**server, "slru": slru},
        parameters=(parameter("pg_stat_statements.track_utility", utility, utility),),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("savepoints", "utility", "maker"),
    [
        (3_000, "on", "; 3000 savepoints/s, most by session 10 (batch)"),
        (0, "on", "; no session sets savepoints: likely EXCEPTION blocks in CALL nightly(2)"),
        (0, "off", ""),
    ],
)
def test_savepoints_are_told_from_exception_blocks_where_statements_tell(
    savepoints: int, utility: str, maker: str
) -> None:
    first = first_of(subtransactions(savepoints, utility))
    assert first.rule == "slru.sub"
    assert first.sentence.partition("% of the server's time")[2] == maker


def in_stage(write: int, flush: int) -> Any:
    """500 kB of WAL a second, with so many bytes in two stages; lag columns of idle moments."""

    def of_second(second: int) -> ReplicationSample:
        end = 500_000 * second + 10_000_000
        sender = Sender(
            pid=70, usename="repl", application_name="b", client="10.0.0.2", state="streaming", sent_lsn_bytes=end,
            write_lsn_bytes=end - write, flush_lsn_bytes=end - write - flush, replay_lsn_bytes=end - write - flush,
            write_lag_ms=0.2, flush_lag_ms=0.2, replay_lag_ms=0.2, sync_state="sync", reply_time_ms=None,
        )  # fmt: skip
        return ReplicationSample(float(second), EPOCH_MS + 1000 * second, end, (sender,))

    return of_second


@pytest.mark.parametrize(
    ("write", "flush", "rule", "stages"),
    [
        (20_000, 30_000, "sync.disk", "(flush)"),
        (50_000, 0, "sync.net", "(network or its write)"),
        (500, 500, "sync.disk", "for standby b; "),
    ],
)
def test_the_slow_part_of_a_standby_is_told_by_the_bytes_in_it_where_its_lags_are_blind(
    write: int, flush: int, rule: str, stages: str
) -> None:
    waits = Situation(
        waits={"IPC:SyncRep": 8.0}, load=False, tps=66.0, cpu=0.1, busy=20.0, parameters=(STANDBY,),
        server={"replication": in_stage(write, flush)},
    )  # fmt: skip
    first = first_of(waits)
    assert first.rule == rule
    assert stages in first.sentence
    assert f"{write / 500:.0f}" in first.sentence
