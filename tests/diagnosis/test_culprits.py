"""The culprit's name, in every length of a sentence, and the deeds about it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from pgtop_tune.diagnosis.diagnoser import Diagnoser
from pgtop_tune.diagnosis.facts import Statement
from pgtop_tune.diagnosis.finding import BRIEF_CELLS, DeedKind, Diagnosis, Finding, FindingKind
from pgtop_tune.diagnosis.rule import explain
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.host import FileSystem, FileSystemSample, PressureLine, PressureSample
from pgtop_tune.model.postgres import HIDDEN_QUERY, Backend
from pgtop_tune.model.replication import HorizonSample, OpenTransaction, PreparedTransaction
from pgtop_tune.model.statements import PLAIN_QUERIES, first_word
from pgtop_tune.model.waits import LockSample, LockWait
from pgtop_tune.tui.scene.banners import finding_line
from pgtop_tune.tui.widgets.lines import UNICODE, plain_text
from tests.support.frames import EPOCH_MS, backend, parameter
from tests.support.machine_frames import GIB
from tests.support.made_situations import FULL_CPUS, MADE, RETAINED, of_statements, scans, throttled
from tests.support.relation_frames import relations, table
from tests.support.situations import Situation
from tests.support.statement_frames import sample, statement, texts


def said(situation: Situation) -> Diagnosis:
    return Diagnoser().look(situation.interval(40))


def first_of(situation: Situation) -> Finding:
    return said(situation).first


@pytest.mark.parametrize("name", MADE)
def test_each_form_is_shorter_and_names_the_culprit(name: str) -> None:
    for finding in said(MADE[name][1]).findings:
        forms = finding.forms
        assert (forms[0], len(forms[-1]) <= BRIEF_CELLS) == (finding.sentence, True)
        assert finding.short in forms
        assert [len(form) for form in forms] == sorted((len(form) for form in forms), reverse=True)
        assert all(finding.culprit in form for form in forms), forms


@pytest.mark.parametrize("name", MADE)
def test_a_finding_that_binds_has_a_deed(name: str) -> None:
    for finding in said(MADE[name][1]).findings:
        assert finding.deeds or finding.kind is FindingKind.NOTE or finding.rule in WITHOUT_DEED, finding.rule
        for deed in finding.deeds:
            assert deed.target
            assert not deed.effect.endswith(".")
            assert (deed.backend is not None) is (deed.kind in (DeedKind.END_SESSION, DeedKind.CANCEL))


WITHOUT_DEED = ("io.extend", "lw.mapping", "lw.page", "lw.snapshot")
"""Without the statement that waits there is nothing to do from here."""


def test_no_parameter_is_offered_that_the_server_does_not_have() -> None:
    """On PostgreSQL 15 the deed against an overflow of subtransactions was subtransaction_buffers, of 17."""
    made = MADE["subtransactions"][1]
    name, value = "subtransaction_buffers", parameter("subtransaction_buffers", "32", "256kB", "8kB")
    offered = [
        [deed.target for deed in first_of(situation).deeds if deed.kind is DeedKind.STAGE_PARAMETER]
        for situation in (made, replace(made, parameters=(value,)))
    ]
    assert offered == [[], [name]]
    locks = MADE["the lock table"][1]
    assert [first_of(replace(locks, version_num=num)).deeds[:1] == () for num in (170_000, 180_000)] == [True, False]


@pytest.mark.parametrize("cells", [60, 80, 120])
def test_the_name_is_on_the_screen_at_every_width(cells: int) -> None:
    jam = said(MADE["jam without a load"][1])
    assert "session 900 (psql)" in plain_text(finding_line(jam, cells, UNICODE, "w"))
    scan = said(MADE["a missing index"][1])
    assert "SELECT sum(amount)" in plain_text(finding_line(scan, cells, UNICODE, "w"))


def test_the_session_that_others_wait_for_can_be_ended_and_the_next_one_prevented() -> None:
    end, stage, look = first_of(MADE["jam without a load"][1]).deeds
    assert (end.kind, end.target, end.effect) == (
        DeedKind.END_SESSION, "900", "frees 16 sessions; its transaction is rolled back",
    )  # fmt: skip
    assert (stage.kind, stage.target) == (DeedKind.STAGE_PARAMETER, "idle_in_transaction_session_timeout")
    assert (look.kind, look.target) == (DeedKind.OPEN_PAGE, "4")


def lone(second: int, now_ms: int, query: str = "create index concurrently on t (a)") -> tuple[Backend, ...]:
    holder = backend(
        900, now_ms, application_name="bi_tool", state="idle in transaction", xact_start_ms=EPOCH_MS,
        state_change_ms=EPOCH_MS + 1000,
    )  # fmt: skip
    wait = {"wait_event_type": "Lock", "wait_event": "virtualxid", "blocked_by": (900,)}
    return holder, backend(10, now_ms, query=query, query_start_ms=EPOCH_MS + 1000, **wait)


def test_one_session_that_waits_for_long_is_a_jam_with_its_command() -> None:
    """CREATE INDEX CONCURRENTLY behind a forgotten transaction was "not clear what binds: locks 4.78"; an update of
    branches was "UPDATE BRANCHES".
    """
    alone = Situation(waits={"Lock:virtualxid": 1.0, "CPU:": 0.1}, load=False, tps=200.0, cpu=0.1, backends=lone)
    said = "(10) waits 38 s for session 900 (bi_tool), idle in transaction 38 s"
    assert first_of(alone).sentence == f"CREATE INDEX {said}"
    update = partial(lone, query="update branches set balance = 0")
    assert first_of(replace(alone, backends=update)).sentence == f"UPDATE {said}"


def held(second: int) -> HorizonSample:
    row = OpenTransaction(
        900, "bench", "ann", "client backend", "idle in transaction", EPOCH_MS - 60_000, None, 5, False
    )
    return HorizonSample(float(second), EPOCH_MS + 1000 * second, 1_000, 1, (row,))


def dump(second: int, now_ms: int) -> tuple[Backend, ...]:
    return (backend(900, now_ms, application_name="pg_dump", state="idle in transaction"),)


def test_dead_rows_that_a_transaction_holds_back_are_the_cause_of_a_slow_index() -> None:
    """A queue with 301,000 dead rows was "other programs take 1.4 of 2 CPUs"."""
    queue = table(16_500, "public.orders", 0, n_dead_tup=301_000, n_live_tup=1_000)
    server = {
        name: lambda second, name=name: scans(second)[name]
        for name in ("statements", "statement_counters", "statement_texts")
    }
    server["relations"] = lambda second: relations(second, tables=(queue,))
    bloated = replace(FULL_CPUS, waits={"CPU:": 4.0}, tps=8.0, load=False, server=server)
    plain = first_of(bloated)
    assert plain.sentence.endswith("likely 301k dead rows of orders")
    assert plain.deeds[0].target == 'VACUUM "public"."orders";'
    kept = first_of(replace(bloated, server={**server, "horizon": held}, backends=dump))
    assert kept.culprit == "session 900 (pg_dump)"
    assert "; 301k dead rows of orders are held back by session 900 (pg_dump) for 1m" in kept.sentence
    assert kept.deeds[0].kind is DeedKind.END_SESSION

    def itself(second: int, now_ms: int) -> tuple[Backend, ...]:
        return (backend(900, now_ms, application_name="report", state="active", query_id=1),)

    alone = first_of(replace(bloated, server={**server, "horizon": held}, backends=itself))
    assert alone.sentence.endswith("likely 301k dead rows of orders")


def test_a_few_pages_for_a_row_are_dead_rows_where_a_transaction_keeps_them() -> None:
    """20 rows with 82,800 dead ones behind a forgotten prepared transaction were "other programs take 1.2 CPUs"."""

    def few(second: int) -> Any:
        look = second // 2 * 2
        entry = statement(1, calls=8 * look, exec_us=3_500_000 * look, rows=8 * look, shared_blks_hit=600 * look)
        return sample(float(look), float(look - 2) if look else None, (entry,))

    def forgotten(second: int) -> HorizonSample:
        row = PreparedTransaction("xa-77", 5, "ann", "bench", EPOCH_MS - 60_000)
        return HorizonSample(float(second), EPOCH_MS + 1000 * second, 1_000, 0, (), (row,))

    hot = table(16_500, "public.orders", 0, n_dead_tup=82_800, n_live_tup=20)
    server = {name: lambda second, name=name: scans(second)[name] for name in ("statements", "statement_texts")} | {
        "statement_counters": few,
        "relations": lambda second: relations(second, tables=(hot,)),
    }
    made = replace(FULL_CPUS, waits={"CPU:": 4.0}, tps=8.0, load=False, server=server)
    assert first_of(made).rule == "cpu.server"
    kept = first_of(replace(made, server={**server, "horizon": forgotten}))
    assert kept.culprit == "prepared transaction 'xa-77'"
    assert kept.deeds[0].target == "ROLLBACK PREPARED 'xa-77';"


def test_a_foreign_key_without_an_index_is_told_by_the_table_that_the_statement_does_not_name() -> None:
    def server(second: int) -> dict[str, Any]:
        deletes = {1: "DELETE FROM cust WHERE id = $1"}
        return scans(second) | {"statement_texts": texts(float(second // 2 * 2), deletes)}

    names = ("statements", "statement_counters", "statement_texts", "relations")
    made = {name: lambda second, name=name: server(second)[name] for name in names}
    first = first_of(replace(FULL_CPUS, tps=8.0, latency_ms=2_000.0, server=made))
    assert first.sentence == (
        "DELETE FROM cust WHERE id = $1 reads 600k rows of orders to return 1: 100 % of the time, likely a foreign key"
        " of orders without an index"
    )


def test_a_query_without_a_condition_reads_its_table_by_design() -> None:
    def all_rows(second: int) -> Any:
        return texts(float(second // 2 * 2), {1: "SELECT sum(amount) FROM orders"})

    made = MADE["a missing index"][1]
    assert first_of(replace(made, server={**made.server, "statement_texts": all_rows})).rule == "cpu.server"


def test_commits_that_notify_wait_for_each_other() -> None:
    """93 % of the time in the lock of NOTIFY was "not clear what binds: locks 120"."""

    def locks(second: int) -> LockSample:
        wait = LockWait(
            10, "object", "AccessExclusiveLock", None, "object pg_database 0", EPOCH_MS, (11,), (), (),
        )  # fmt: skip
        return LockSample(float(second), (wait,))

    notifies = Situation(
        waits={"Lock:object": 14.0, "IO:WalSync": 0.9}, latency_ms=128.0, tps=124.0, server={"locks": locks}
    )
    assert first_of(notifies).sentence.startswith("commits that NOTIFY wait for each other: 88 % of each transaction")
    server = of_statements(
        {"calls": 124, "exec_us": 300}, {"calls": 124, "exec_us": 900}, text="SELECT pg_notify($1, $2)"
    )
    first = first_of(replace(notifies, server={**notifies.server, **server}))
    assert "88 % of each transaction; 124/s of SELECT pg_notify($1, $2)" in first.sentence
    assert (first.culprit, first.statement) == ("SELECT pg_notify($1,", "SELECT pg_notify($1, $2)")


def test_the_slot_that_fills_the_disk_of_wal_is_its_culprit() -> None:
    """The line had the disk, and the slot stood behind it."""

    def disk(second: int) -> FileSystemSample:
        at = second // 5 * 5
        left = 8 * GIB - at * GIB // 10
        return FileSystemSample(
            float(at), (FileSystem("/wal", "xfs", "/dev/vdb", ("wal",), 20 * GIB, left, left, 0, 0),)
        )

    first = first_of(replace(RETAINED, host={"file_systems": disk}))
    assert (first.rule, first.culprit) == ("full.disk", "slot gone")
    assert first.deeds[0].target == "SELECT pg_drop_replication_slot('gone');"
    assert first.deeds[0].effect.endswith("its consumer must begin anew")


def test_a_machine_that_others_fill_is_not_at_no_limit_while_clients_think() -> None:
    """Clients without a CPU look as if they thought: "nothing is at a limit: clients think 71 %"."""
    starved = Situation(waits={"Client:turn": 4.4, "CPU:": 0.3}, load=False, tps=880.0, cpu=0.3, busy=100.0, cpus=2)
    sentence = first_of(starved).sentence
    assert sentence.startswith("other programs take 1.5 of 2 CPUs")
    few = first_of(replace(starved, waits={"Client:turn": 4.4, "CPU:": 0.1})).sentence
    assert few.startswith("the server waits for its clients: 98 % of the server's time; all CPUs are saturated: ")
    calm = first_of(replace(starved, busy=40.0)).sentence
    assert calm == "the server waits for its clients: 94 % of the server's time"


def test_a_flush_that_a_control_group_slows_down_is_the_device_s_as_far_as_tasks_are_blocked() -> None:
    """Commits on a device of 400 writes a second were 83 % the fault of other programs."""

    def blocked(second: int) -> PressureSample:
        line = PressureLine(0, 0)
        return PressureSample(float(second), line, PressureLine(850_000 * second, 0), line)

    made = MADE["slow WAL device"][1]
    full = replace(made, busy=99.0, host={"pressure": blocked})
    assert first_of(full).rule == "wal.flush"


def test_new_sessions_are_told_by_their_count_however_few_are_active() -> None:
    """A connection for each transaction of a load of others was "all 2 CPUs are full: the server 0.3"."""
    storm = Situation(
        waits={"CPU:": 0.1}, load=False, tps=206.0, cpu=0.3, busy=40.0,
        counters={"databases.sessions": 103.0, "database.sessions": 103.0},
        backends=lambda second, now_ms: (backend(7, now_ms, backend_start_ms=now_ms, application_name="shop"),),
    )  # fmt: skip
    first = first_of(storm)
    assert first.sentence == "a new connection for each transaction from shop: 103 per second"
    # The server counts a transaction for the start of each session, too.
    assert dict(first.evidence)["transactions"] == "103/s"
    # The start of a session takes locks of the catalogs.
    assert first_of(replace(storm, waits={"LWLock:LockManager": 2.0})).rule == "conn.storm"


def test_a_quota_that_stops_the_server_is_told_without_a_load_of_ours() -> None:
    stopped = Situation(waits={"CPU:": 0.1}, load=False, tps=2_500.0, cpu=0.45, busy=60.0, host={"cgroup": throttled})
    assert first_of(stopped).rule == "cpu.quota"


def test_a_late_answer_changes_no_finding() -> None:
    """Each late second of a jam read "the server cannot be looked at: no answer for 1 s"."""
    jam = MADE["jam without a load"][1]
    diagnosing, frames = Diagnoser(), [jam.frame(second) for second in range(30)]
    frames.append(replace(jam.frame(30), postgres=Unavailable(Reason.NO_ANSWER, "no answer for 1 s")))
    diagnosing.look(Interval(frames[:30]))
    late = diagnosing.look(Interval(frames))
    assert late.first.rule == "lock.jam"
    assert late.first.sentence.startswith("16 sessions wait")


def test_decoding_that_spills_is_a_finding_of_its_slot() -> None:
    first = first_of(MADE["decoding that spills"][1])
    assert first.culprit == "slot gone"
    assert first.sentence == "logical decoding of slot gone spills to disk 19.1 MB/s; 75 % of each transaction"


def test_the_statement_is_named_by_samples_where_no_query_id_is_known() -> None:
    def rows(second: int, now_ms: int) -> tuple[Backend, ...]:
        text = f"INSERT INTO log VALUES ({second}, 'x{second}')"
        wait = {"wait_event_type": "LWLock", "wait_event": "BufferContent"}
        return tuple(backend(10 + n, now_ms, state="active", query=text, query_id=None, **wait) for n in range(6))

    hot = Situation(waits={"LWLock:BufferContent": 6.0}, load=False, tps=500.0, backends=rows)
    frames = [without_ids(frame) for frame in hot.interval(40).frames]
    first = Diagnoser().look(Interval(frames)).first
    assert first.statement.startswith("INSERT INTO log VALUES (")
    assert first.culprit == "INSERT INTO log VALU"


def test_transactions_that_mostly_roll_back_are_a_note() -> None:
    """Statements that a timeout ended were only "the CPUs are saturated"."""
    failing = Situation(waits={"CPU:": 2.0}, load=False, tps=2.0, counters={"database.xact_rollback": 13.0})
    note = next(finding for finding in said(failing).findings if finding.rule == "xact.rollback")
    assert (note.kind, note.sentence) == (FindingKind.NOTE, "87 % of transactions roll back: 13/s")
    # All transactions of the application failed, and ours were the other half.
    own = {"database.xact_commit": 13.0, "database.own_transactions": 13.0, "database.xact_rollback": 13.0}
    note = next(each for each in said(replace(failing, counters=own)).findings if each.rule == "xact.rollback")
    assert note.sentence == "100 % of transactions roll back: 13/s"


def hidden(second: int, now_ms: int) -> tuple[Backend, ...]:
    root = backend(900, now_ms, application_name=None, state=None, query=HIDDEN_QUERY, usename=None, xact_start_ms=None)
    wait = {"wait_event_type": "Lock", "wait_event": "transactionid", "query_start_ms": EPOCH_MS}
    return (root, *(backend(pid, now_ms, blocked_by=(900,), **wait) for pid in (10, 11)))


def test_a_session_that_this_role_may_not_see_has_its_pid_and_no_activity() -> None:
    jam = first_of(Situation(waits={"Lock:transactionid": 2.0}, tps=0.0, load=False, backends=hidden))
    assert jam.sentence.endswith(" for session 900")
    assert "pg_monitor" in jam.next_step


def without_ids(frame: Any) -> Any:
    waits = frame.postgres.waits
    counts = tuple(replace(count, query_id=None) for count in waits.counts)
    return replace(frame, postgres=replace(frame.postgres, waits=replace(waits, counts=counts)))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("SELECT\n  1", "SELECT"),
        ("/* web:cart */ -- by hand\n(select 1)", "SELECT"),
        ("/* job */ COMMIT", "COMMIT"),
        ("-- SELECT", ""),
        ("/* never closed", ""),
        ("--x" * 5_000, ""),
    ],
)
def test_the_first_word_of_a_statement_stands_behind_comments_and_parentheses(text: str, word: str) -> None:
    assert first_word(text) == word
    statement = Statement(text, 1, "shop", 1.0)
    assert bool(explain(statement, "shows it")) == (word in PLAIN_QUERIES)
    assert statement.is_culprit == (word != "COMMIT")
