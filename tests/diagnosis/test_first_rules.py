"""What is said of made-up seconds: rules in which they are first, and seconds in which they are not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pgtop_tune.diagnosis.diagnoser import Diagnoser
from pgtop_tune.diagnosis.facts import Facts, root_look
from pgtop_tune.diagnosis.finding import Confidence, DeedKind, Diagnosis, FindingKind
from pgtop_tune.diagnosis.rules.locks import RULES
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import Silence
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import DiskCounters, DiskSample, OtherProgram, ProcessCounters, ProcessSample
from pgtop_tune.model.machine import CgroupSample
from pgtop_tune.model.pooler import Pooler, PoolerSample
from pgtop_tune.model.postgres import HIDDEN_QUERY, Backend, PostgresSample, ServerFacts
from pgtop_tune.model.relations import RelationSample
from pgtop_tune.model.replication import HorizonSample, PreparedTransaction
from pgtop_tune.model.waits import LockSample, LockWait, WaitCount, WaitSample
from tests.support.frames import EPOCH_MS, backend
from tests.support.machine_frames import TICKS
from tests.support.made_situations import MADE, PRIMARY, SHARED_CPUS, checkpoints_often, throttled
from tests.support.pooler_frames import bouncer, counters, pool
from tests.support.relation_frames import relations, table
from tests.support.situations import Situation
from tests.support.statement_frames import texts

SLOW_WAL = Situation(
    waits={"IO:WalSync": 0.95, "LWLock:WALWrite": 14.4, "Client:turn": 0.65}, latency_ms=31.0, tps=520.0, cpu=0.3,
    busy=20.0, counters={"wal.wal_syncs": 143.0, "wal.lsn_bytes": 143 * 24_000.0},
)  # fmt: skip
FULL_CPUS = Situation(
    waits={"Client:turn": 12.0, "CPU:": 4.0}, latency_ms=1.6, tps=10_000.0, cpu=3.0, queued=9.0, busy=99.0,
    pgbench=((20.0, 20.0), (20.0, 20.0)),
)  # fmt: skip


def said(situation: Situation, seconds: int = 40) -> Diagnosis:
    """The first look at frames that are there already."""
    return Diagnoser().look(situation.interval(seconds))


def test_a_slow_wal_device_is_said_with_its_flushes() -> None:
    first = said(SLOW_WAL).first
    assert first.rule == "wal.flush"
    assert first.confidence is Confidence.IS
    assert "95 % of each transaction" in first.sentence
    assert "143 flushes/s of 6.64 ms" in first.sentence
    assert first.impact_ms is not None
    assert 29.0 < first.impact_ms <= 31.0


def test_the_same_waits_behind_a_quick_device_are_no_finding_of_it() -> None:
    quick = Situation(waits={"IO:WalSync": 0.5, "LWLock:WALWrite": 1.4, "Client:turn": 14.0}, latency_ms=31.0, tps=520)
    assert said(quick).first.rule != "wal.flush"


def test_a_server_that_fills_its_cpus_is_said_with_the_queue() -> None:
    first = said(FULL_CPUS).first
    assert first.rule == "cpu.server"
    assert "saturates the 4 CPUs" in first.sentence
    assert "0.90 ms waiting for one" in first.sentence


def test_a_server_that_fills_the_cpus_it_is_bound_to_is_said_while_others_rest() -> None:
    def bound(second: int) -> CgroupSample:
        return replace(throttled(second), cpu_quota_cores=None, cpu_throttled_periods=0, cpus_allowed=2)

    first = said(replace(FULL_CPUS, cpu=2.0, busy=55.0, host={"cgroup": bound})).first
    assert first.rule == "cpu.server"
    assert "saturates the 2 CPUs" in first.sentence
    assert said(replace(FULL_CPUS, cpu=2.0, busy=55.0)).first.rule != "cpu.server"


def test_cpus_that_several_fill_are_said_to_be_full_with_the_parts_of_each() -> None:
    first = said(SHARED_CPUS).first
    assert first.rule == "cpu.full"
    assert "the 4 CPUs are saturated: the server uses 2.3, pgbench 0.8, other programs 0.9; " in first.sentence


def test_cpus_that_others_share_without_filling_them_are_before_a_smaller_queue_for_rows() -> None:
    """Other programs had a part: 40 % of the time waited for a CPU, and the line named rows with 13 %."""
    waits = {"Client:turn": 9.0, "CPU:": 4.0, "Lock:transactionid": 2.2}
    first = said(replace(SHARED_CPUS, waits=waits, cpu=1.5, queued=6.5)).first
    assert first.rule == "cpu.full"
    assert "the server uses 1.5, pgbench 0.8, other programs 1.7" in first.sentence


def test_a_long_queue_for_cpus_that_are_not_quite_full_is_no_mystery() -> None:
    """Commits of 8 clients on a quick disk: 40 % of the time waited for a CPU, and the line had no single limit."""
    waits = {"CPU:": 3.8, "IO:WalSync": 1.3, "Client:turn": 10.9}
    first = said(replace(FULL_CPUS, waits=waits, cpu=2.3, queued=2.8, busy=84.0, latency_ms=0.8)).first
    assert first.rule == "cpu.server"
    assert first.sentence.startswith("the server's own work takes 2.3 of the 4 CPUs: ")


PREPARED_TEXTS = {1: "UPDATE pgbench_accounts SET abalance = $1", 7: "END"}


@pytest.mark.parametrize(
    ("of_kind", "per_second", "named"),
    [
        ({1: 40}, 1, "UPDATE pgbench_accounts SET abalance = …"),
        ({7: 40}, 1, ""),
        # A full machine hides the CPU from samples: "100 % by END" rested on three of a thousand.
        ({7: 1}, 5, ""),
        ({1: 1}, 5, ""),
    ],
)
def test_a_statement_is_named_only_where_enough_samples_saw_it_and_a_plan_only_offered_where_there_is_one(
    of_kind: dict[int, int], per_second: int, named: str
) -> None:
    def sampled(second: int) -> WaitSample:
        seen = of_kind if second % per_second == 0 else {}
        counts = tuple(WaitCount("CPU", "", "client backend", n, query_id=number) for number, n in seen.items())
        whole = sections.waits(FULL_CPUS.frame(second))
        assert isinstance(whole, WaitSample)
        return replace(whole, counts=(*(replace(count, query_id=None) for count in whole.counts), *counts))

    sampled_server = {"waits": sampled, "statement_texts": lambda second: texts(float(second), PREPARED_TEXTS)}
    first = said(replace(FULL_CPUS, server=sampled_server)).first
    assert first.rule == "cpu.server"
    assert first.statement == named
    assert ("by " in first.sentence) is bool(named)
    assert [deed.target for deed in first.deeds if deed.kind is DeedKind.EXPLAIN] == (
        [PREPARED_TEXTS[1]] if named else []
    )


def test_full_cpus_without_a_queue_are_full_use_and_no_finding() -> None:
    busy = Situation(waits={"CPU:": 4.0}, latency_ms=0.4, tps=10_000.0, clients=4, cpu=4.0, queued=0.0, busy=99.0)
    assert said(busy).first.rule == "none"


def read_twice(second: int) -> RelationSample:
    """Twice the scans and rows of `scans`."""
    at_s = second // 15 * 15
    orders = table(16_500, "public.orders", 0, seq_scan=16 * at_s, seq_tup_read=9_600_000 * at_s, tuples=600_000)
    return relations(second, tables=(orders,))


def test_the_statement_that_reads_a_table_row_by_row_is_named() -> None:
    """A missing index was "the server's own work fills the CPUs", or more shared_buffers."""
    made = MADE["a missing index"][1]
    first = said(made).first
    statement = "SELECT sum(amount) FROM orders WHERE cu…"
    assert (
        first.sentence
        == f"{statement} reads 600k rows of orders to return 1: 100 % of the time, likely a missing index"
    )
    assert "an index" in first.next_step
    assert (first.deeds[0].kind, first.deeds[0].query_id) == (DeedKind.EXPLAIN, 1)
    # Counters of tables are read at other moments than those of statements: half of the calls were not counted yet.
    late = replace(made, server={**made.server, "relations": read_twice})
    assert "reads 600k rows of orders" in said(late).first.sentence
    unseen = replace(made, server={name: made.server[name] for name in made.server if name != "relations"})
    assert said(unseen).first.sentence == (
        f"{statement} reads 6250 pages to return 1: 100 % of the time, likely a missing index or a wrong plan"
    )


def test_a_standby_that_confirms_nothing_is_first_however_many_wait_behind_the_commit() -> None:
    """remote_apply with a paused replay: for a minute "not clear what binds: 8 active sessions"."""
    sentence = said(MADE["standby that does not confirm"][1]).first.sentence
    assert sentence.startswith("commits are blocked for 39 s: standby b does not confirm them; 1 session in")
    assert sentence.endswith("SyncRep; 7 wait behind")


def test_workers_that_come_and_go_are_work_of_the_server() -> None:
    """Parallel workers that lived for ms each: the server was said to use 0.6 of two full CPUs."""

    waiting = replace(FULL_CPUS, cpu=0.3)

    def with_postmaster(second: int) -> ProcessSample:
        sample = waiting.frame(second).host.processes  # type: ignore[union-attr]
        postmaster = ProcessCounters(
            pid=1, start_ticks=1, state="S", user_ticks=0, system_ticks=0, rss_bytes=0, delay_ticks=None,
            reaped_ticks=round(2.7 * TICKS * second),
        )  # fmt: skip
        return replace(sample, processes=(*sample.processes, postmaster))

    workers = replace(waiting, host={"processes": with_postmaster})
    assert Facts(workers.interval()).server_cpus == pytest.approx(0.3 + 2.7, rel=0.02)


def jammed(second: int, now_ms: int) -> tuple[object, ...]:
    psql = backend(
        900, now_ms, application_name="psql", state="idle in transaction", xact_start_ms=EPOCH_MS,
        state_change_ms=EPOCH_MS + 1000, wait_event_type="Client", wait_event="ClientRead",
    )  # fmt: skip
    wait = {"wait_event_type": "Lock", "wait_event": "transactionid", "query_start_ms": EPOCH_MS + 1000}
    return (psql, *(backend(pid, now_ms, blocked_by=(900,), **wait) for pid in range(10, 26)))


def test_a_stall_names_the_session_at_the_end_of_the_chain() -> None:
    silence = Silence(EPOCH_MS + 1000, None, 30.0, 5.0)
    stalled = Situation(waits={"Lock:transactionid": 16.0}, tps=0.0, backends=jammed, bench={"silences": (silence,)})
    first, *others = said(stalled).findings
    assert "lock.jam" not in {finding.rule for finding in others}, "it is the same jam"
    assert first.kind is FindingKind.OUTAGE
    assert first.sentence == "STALLED 38 s: 16 sessions wait for session 900 (psql), idle in transaction 38 s"
    assert [deed.kind for deed in first.deeds][:2] == [DeedKind.END_SESSION, DeedKind.STAGE_PARAMETER]


def test_a_stall_of_a_server_that_does_not_answer_names_nobody_of_the_look_before() -> None:
    """A frozen server was said to wait for a session that had waited for a lock a moment before."""
    silence = Silence(EPOCH_MS + 27_000, None, 30.0, 5.0)
    frames = list(Situation(waits={"Lock:transactionid": 16.0}, tps=0.0, backends=jammed).interval(30).frames)
    stalled = Situation(tps=0.0, bench={"silences": (silence,)})
    frames += [replace(stalled.frame(n), postgres=Unavailable(Reason.NO_ANSWER, "no answer")) for n in (30, 31)]
    first = Diagnoser().look(Interval(frames)).first
    assert first.sentence == "STALLED 4.0 s: no answer from the server"


def test_a_jam_is_seen_in_one_look_where_others_wait_that_long_already() -> None:
    """A server on a full machine was looked at every 14 s: a minute without a word about five waiting sessions."""
    jam = Situation(waits={"Lock:transactionid": 16.0}, tps=0.0, backends=jammed, load=False).interval(40)
    rule = next(rule for rule in RULES if rule.id == "lock.jam")
    look = root_look(next(iter(jam.recent(sections.activity, 5.0))))
    assert rule.find(Facts(jam, (look,))) is not None
    assert rule.find(Facts(jam, (replace(look, idle_s=2.0),))) is None
    assert rule.find(Facts(jam, (replace(look, idle_s=2.0),) * 3)) is not None


def test_sessions_wait_for_a_root_no_longer_than_for_its_lock() -> None:
    """Left behind by another jam: 34 were said to wait 45 s for a session that had had the lock for 5 s."""
    jam = Situation(waits={"Lock:transactionid": 16.0}, tps=0.0, backends=jammed, load=False).interval(40)
    activity = next(iter(jam.recent(sections.activity, 5.0)))
    waits = [
        LockWait(
            pid=pid, locktype="transactionid", mode="ShareLock", relation=None, target="xid 1", holders=(900,),
            wait_start_ms=activity.now_ms - 100 * pid if pid < 20 else None, held_modes=("ExclusiveLock",), prepared=(),
        )
        for pid in range(10, 26)
    ]  # fmt: skip
    assert root_look(activity).waited_s == 38.0
    assert root_look(activity, LockSample(activity.at_s, tuple(waits))).waited_s == 1.9
    assert root_look(activity, LockSample(activity.at_s, ())).waited_s == 38.0
    newest = jam.newest
    assert not isinstance(newest.postgres, Unavailable)
    read = replace(newest, postgres=replace(newest.postgres, locks=LockSample(activity.at_s, tuple(waits))))
    first = Diagnoser().look(Interval((*jam.frames[:-1], read))).first
    assert first.sentence == "16 sessions wait 1.9 s for session 900 (psql), idle in transaction 38 s"


def test_sessions_that_stay_are_not_one_for_each_transaction() -> None:
    """A pool that opened 296 was called a new session for each transaction, 96 % of the server's time."""
    steady = Situation(
        waits={"Client:turn": 3.0, "CPU:": 0.2}, clients=4, latency_ms=160.0, tps=20.0,
        counters={"databases.sessions": 20.0},
    )  # fmt: skip
    assert said(steady).first.rule == "conn.storm"

    def growing(second: int, now_ms: int) -> tuple[object, ...]:
        return tuple(backend(100 + n, now_ms, state="idle") for n in range(20 * second))

    opened = replace(steady, backends=growing)
    assert "conn.storm" not in [finding.rule for finding in said(opened).findings]


def test_without_a_load_the_same_jam_is_a_jam() -> None:
    first = said(Situation(waits={"Lock:transactionid": 16.0}, tps=0.0, backends=jammed, load=False)).first
    assert first.rule == "lock.jam"
    assert "session 900 (psql), idle in transaction" in first.sentence


def test_an_idle_server_is_said_to_be_idle() -> None:
    assert said(Situation(load=False, tps=0.0, cpu=0.0, busy=2.0)).first.sentence == "idle: no active session"


def test_a_server_whose_sessions_are_hidden_is_not_said_to_be_idle() -> None:
    def others(second: int, at_ms: int) -> tuple[Backend, ...]:
        return (backend(second, at_ms, backend_type=None, query=HIDDEN_QUERY),)

    first = said(Situation(load=False, cpu=0.0, backends=others)).first
    assert first.rule == "none"
    assert "idle" not in first.sentence
    assert first.sentence.endswith("other users' sessions are hidden: GRANT pg_monitor TO bench")


def test_a_server_whose_sessions_cannot_be_read_is_not_said_to_be_idle() -> None:
    """A role without pg_monitor, and a catalogue that is closed: the line was "idle: no active session"."""
    interval = Situation(load=False, tps=0.0, cpu=0.0, busy=2.0).interval(40)
    closed = Unavailable(Reason.NO_PERMISSION, "permission denied for table pg_database")

    def seen_by(frame: Frame, *, monitor_role: bool) -> Frame:
        assert isinstance(frame.postgres, PostgresSample)
        assert isinstance(frame.postgres.server, ServerFacts)
        server = replace(frame.postgres.server, monitor_role=monitor_role)
        return replace(frame, postgres=replace(frame.postgres, activity=closed, server=server))

    def sentence(*, monitor_role: bool) -> str:
        frames = [seen_by(frame, monitor_role=monitor_role) for frame in interval.frames]
        return Diagnoser().look(Interval(frames)).first.sentence

    assert sentence(monitor_role=False).endswith("permission denied for table pg_database")
    assert sentence(monitor_role=True) == "idle: no active session"


def test_clients_that_think_are_no_limit_of_the_server() -> None:
    thinking = Situation(waits={"Client:between": 14.7, "CPU:": 1.3}, latency_ms=16.0, tps=1000.0, cpu=1.2)
    assert said(thinking).first.sentence == "the server waits for its clients: 92 % of each transaction"


def test_a_wait_that_no_rule_knows_is_named_and_not_called_other() -> None:
    """The line said "no single limit: other 14.0 of 14.2 ms" above a budget of Timeout:PgSleep 14.0, other 0.2."""
    asleep = Situation(waits={"Timeout:PgSleep": 7.9, "CPU:": 0.1}, latency_ms=14.2, tps=564.0, clients=8, cpu=0.1)
    sentence = said(asleep).first.sentence
    assert sentence.startswith("no clear bottleneck: CPU 0.18 ms, Timeout:PgSleep 14.0 ms, other 0.0"), sentence


def test_a_transaction_of_ten_seconds_has_one_unit() -> None:
    """It was "of 14.4s ms"."""
    long = Situation(waits={"Timeout:PgSleep": 8.0}, latency_ms=14_400.0, tps=0.6, clients=8, cpu=1.0)
    assert said(long).first.sentence.endswith(" of 14.4 s")


def test_a_full_machine_is_never_called_free_of_limits() -> None:
    asked = Situation(waits={"CPU:": 1.0}, latency_ms=1.0, tps=500.0, rate_per_s=500.0, lag_ms=0.1, busy=60.0)
    assert said(asked).first.sentence.startswith("no bottleneck: 500 tps as requested; CPUs 60 %")
    assert said(replace(asked, busy=100.0)).first.sentence.startswith("500 tps as requested; CPUs 100 %")
    stuck = Situation(waits={"IO:DataFileRead": 2.0}, tps=0.0, load=False, busy=100.0)
    assert "no bottleneck" not in said(stuck).first.sentence


def test_sessions_of_an_application_that_fill_the_cpus_are_found_without_the_kernel_s_queue() -> None:
    busy = Situation(
        waits={"CPU:": 12.0, "IO:DataFileRead": 0.5}, tps=2_000.0, load=False, cpu=3.8, busy=99.0, server={},
    )  # fmt: skip
    first = said(busy).first
    assert first.rule == "cpu.server"
    assert "4.10 ms waiting for one" in first.sentence


def test_each_doubt_takes_one_step_of_confidence() -> None:
    few = {"waits": {"IO:WalSync": 0.95, "LWLock:WALWrite": 14.4, "CPU:": 0.05}}
    disturbed = replace(SLOW_WAL, busy=90.0)
    assert said(SLOW_WAL).first.confidence is Confidence.IS
    assert said(disturbed).first.confidence is Confidence.MOST_LIKELY
    assert said(disturbed).first.sentence.startswith("most likely commits wait for the WAL device")
    overlapping = replace(disturbed, latency_ms=15.0, **few)
    assert said(overlapping).first.confidence is Confidence.PERHAPS


def test_a_part_that_is_most_of_the_time_and_that_no_rule_explains_is_not_called_no_limit() -> None:
    quick = Situation(waits={"IO:WalSync": 0.5, "LWLock:WALWrite": 14.4, "Client:turn": 1.0}, latency_ms=31.0, tps=520)
    assert said(quick).first.sentence.startswith("no clear bottleneck: ")


def test_a_standby_that_does_not_replay_is_not_called_idle() -> None:
    first = said(MADE["standby whose replay is paused"][1]).first
    assert first.sentence == "replay is paused on this standby: 80.0 MB of WAL not replayed, 2m39s old"
    alone = MADE["standby that is cut off"][1]
    assert said(alone).first.sentence == "this standby does not stream: it has no WAL receiver"
    from_archive = replace(alone, parameters=(replace(PRIMARY, setting="", shown=""),))
    assert said(from_archive).first.sentence.startswith("idle")


def test_the_wait_at_a_pooler_of_a_load_of_others_is_not_cut_to_the_time_behind_it() -> None:
    """14 clients that waited 61 ms were said to wait for 7 ms, and the server to have no part."""
    server = Situation(waits={"CPU:": 2.0}, tps=231.0, load=False, cpu=1.0, busy=60.0)

    def with_pooler(second: int) -> Frame:
        pools = (pool("bench", "bench", cl_active=2, cl_waiting=14, sv_active=2, sv_idle=0),)
        counted = (
            counters("bench", second, xacts=231 * second, wait_us=14_000_000 * second, xact_us=2_000_000 * second),
        )
        seen = bouncer(second, servers=2, pools=pools, counters=counted)
        return replace(server.frame(second), pooler=PoolerSample(float(second), (Pooler("b", "x", seen),)))

    first = Diagnoser().look(Interval([with_pooler(second) for second in range(40)])).first
    assert first.rule == "pool.queue"
    assert first.sentence == "14 clients wait 60.6 ms at the pooler: its 2 connections are in use"
    assert ("time on the server", "8.66 ms") in first.evidence


def at_pool(second: int, server: Situation, tps: int) -> Frame:
    pools = (pool("bench", "bench", cl_active=2, cl_waiting=28, sv_active=2, sv_idle=0, maxwait_us=1_000_000),)
    counted = (counters("bench", second, xacts=tps * second, wait_us=800_000 * tps * second),)
    seen = bouncer(second, servers=2, pools=pools, counters=counted)
    return replace(server.frame(second), pooler=PoolerSample(float(second), (Pooler("b", "x", seen),)))


def starting(ago_ms: int) -> Any:
    def rows(second: int, now_ms: int) -> tuple[Backend, ...]:
        return tuple(backend(10 + n, now_ms, state="idle", query_start_ms=now_ms - ago_ms) for n in range(20))

    return rows


def thinking(second: int, now_ms: int) -> tuple[Backend, ...]:
    return tuple(
        backend(pid, now_ms, state="idle in transaction", wait_event_type="Client", wait_event="ClientRead")
        for pid in (10, 11)
    )


def test_clients_that_wait_at_a_pool_are_first_however_few_sessions_are_active() -> None:
    """28 clients that waited 0.8 s at a pool of two heard "nothing is at a limit" for 66 s."""
    thinks = Situation(waits={"Client:turn": 2.0}, load=False, tps=35.0, cpu=0.02, busy=3.0, backends=thinking)
    stuck = replace(thinks, waits={}, tps=0.0)
    moving = replace(thinks, counters={"database.xact_commit": 35.0})
    for server, tps, wait in ((moving, 35, "0.8 s"), (stuck, 0, "1.0 s")):
        first = Diagnoser().look(Interval([at_pool(second, server, tps) for second in range(40)])).first
        assert first.rule == "pool.queue"
        assert (
            first.sentence == f"28 clients wait {wait} at the pooler: its 2 connections are held in client think time"
        )


def test_a_queue_at_a_pool_stays_first_while_the_server_counts_hardly_a_transaction() -> None:
    """Transactions that touch no table came in bunches: a mean of 20 s for each, of which the wait was a 25th."""
    rare = Situation(
        waits={"CPU:": 0.5, "Client:turn": 1.5}, load=False, tps=0.1, cpu=0.3, busy=20.0, backends=thinking
    )
    first = Diagnoser().look(Interval([at_pool(second, rare, 35) for second in range(40)])).first
    assert first.rule == "pool.queue"
    assert first.sentence.startswith("28 clients wait 0.8 s at the pooler")


def test_less_than_one_active_session_of_clients_that_think_is_at_no_limit() -> None:
    """20 clients with think time were "not clear what binds: CPU 4.93 ms" as soon as 0.3 sessions were active."""
    thinks = Situation(waits={"CPU:": 0.5}, load=False, tps=64.0, cpu=0.4, busy=22.0)
    assert said(thinks).first.sentence.startswith("no bottleneck: 64 tps, 0.50 sessions active")


def test_work_on_free_cpus_is_not_unclear() -> None:
    """3,300 point reads a second, as fast as they came, were "not clear what binds: CPU 0.39 of 0.47 ms"."""
    works = Situation(waits={"CPU:": 1.3}, load=False, tps=3300.0, cpu=1.3, busy=40.0)
    assert said(works).first.sentence == "mostly CPU work, and CPUs are free: CPU 0.39 ms, other 0 ms of 0.39 ms"
    assert said(replace(works, busy=96.0)).first.sentence.startswith("other programs take 2.3 of 4 CPUs")


def test_a_server_that_ends_transactions_is_never_idle() -> None:
    """20 clients with think time, and 3,300 point reads a second on full cores, were "idle: no active session"."""
    rests = Situation(waits={"CPU:": 0.02}, load=False, tps=62.0, cpu=0.02, busy=3.0)
    calm = said(replace(rests, counters={"database.xact_commit": 62.0})).first
    assert calm.sentence.startswith("no bottleneck: 62 tps, 0.02 sessions active; CPUs 9 %")
    programs = (OtherProgram(4711, "pip", 95.0),)
    full = replace(rests, waits={"CPU:": 0.2}, cpu=0.9, busy=100.0, programs=programs)
    busy = said(replace(full, counters={"database.xact_commit": 3_300.0})).first
    assert "all CPUs are saturated: the server uses 0.9, other programs" in busy.sentence
    assert "pip (4711) 0.9" in busy.sentence
    assert "3300 tps" in busy.sentence
    none = said(replace(full, waits={}, tps=0.0)).first
    assert "idle" not in none.sentence
    rare = said(replace(rests, tps=0.0, backends=starting(1_000))).first
    assert rare.sentence.startswith("no bottleneck: 20 sessions ran statements in 10 s, 0.02 sessions active")
    quiet = replace(rests, waits={}, tps=0.0, backends=starting(60_000))
    assert said(quiet).first.sentence == "idle: no active session"


def test_full_pages_are_no_reason_for_flushes_nor_for_a_larger_max_wal_size() -> None:
    """Flushes of 3 ms were "95 % of the WAL are full pages, try max_wal_size", 8 minutes after the last checkpoint."""
    pages = {"wal.lsn_bytes": 8e6, "wal.wal_bytes": 8e6, "wal.wal_fpi": 0.95 * 8e6 / 8192}
    flushes = replace(SLOW_WAL, counters={**SLOW_WAL.counters, **pages})
    found = said(flushes)
    assert found.first.rule == "wal.flush"
    assert "wal.fpi" not in [each.rule for each in found.findings]
    writes = Situation(
        waits={"LWLock:WALInsert": 8.0, "IO:WalWrite": 0.9, "Client:turn": 0.65}, latency_ms=31.0, tps=520.0,
        cpu=0.3, busy=20.0, counters={"wal.wal_syncs": 20.0, **pages},
    )  # fmt: skip
    for checkpoints, advised in ((None, False), (checkpoints_often, True)):
        server = {"checkpoints": checkpoints} if checkpoints else {}
        made = said(replace(writes, server=server)).findings
        full = next(each for each in made if each.rule == "wal.fpi")
        assert full.sentence.startswith("full-page images are 95 % of WAL")
        assert bool(full.deeds) is advised
        assert ("max_wal_size" in full.next_step) is advised


def test_a_flush_far_slower_than_the_disk_waits_for_a_cpu_while_cores_are_full() -> None:
    """Flushes of 2.61 ms on a disk of 0.12 ms at 6 % busy were 45 %, and the programs that took the CPUs nothing."""

    def disk(write_ms: int, busy_ms: int) -> Any:
        def read(second: int) -> DiskSample:
            row = DiskCounters(
                "vda", 0, 0, 0, 600 * second, 5_000_000 * second, write_ms * second, 0, busy_ms * second, 0,
                ("data", "wal"),
            )  # fmt: skip
            return DiskSample(float(second), (row,))

        return read

    programs = OtherProgram(4711, "pip", 98.0), OtherProgram(12, "python3", 92.0)
    shared = replace(
        SLOW_WAL, waits={"IO:WalSync": 0.72, "LWLock:WALWrite": 3.0, "Client:turn": 3.0}, tps=270.0, latency_ms=18.4,
        clients=8, cpu=0.2, queued=0.8, cpus=2, busy=99.0, programs=programs,
        counters={"wal.wal_syncs": 276.0, "wal.lsn_bytes": 276 * 8_000.0}, host={"disks": disk(72, 60)},
    )  # fmt: skip
    found = said(shared)
    assert found.first.sentence.startswith("other programs take 1.")
    assert "pip (4711) 1.0, python3 (12) 0.9; cost up to" in found.first.sentence
    flush = next(each for each in found.findings if each.rule == "wal.flush")
    assert "the device takes 0.12 ms, the rest is CPU queue" in flush.sentence
    assert flush.kind is FindingKind.NOTE
    # A limit of a control group is not in the figures of the disk; backends that hardly wait for a CPU tell it.
    limited = said(replace(shared, queued=0.2)).first
    assert (limited.rule, "the device takes 1.87 ms" in limited.sentence) == ("wal.flush", True), limited.sentence
    slow_disk = said(replace(shared, host={"disks": disk(1_500, 950)}))
    assert next(each for each in slow_disk.findings if each.rule == "wal.flush").kind is FindingKind.LATENCY


def test_the_oom_killer_is_first_with_the_limit_of_the_control_group() -> None:
    """It stood below "idle: no active session"."""
    limited = {"memory_max_bytes": 2 << 30, "memory_bytes": 1 << 30, "cpu_quota_cores": None}

    def group(second: int) -> Any:
        return replace(throttled(second), cpu_throttled_periods=0, oom_kills=int(second >= 12), **limited)

    quiet = Situation(load=False, tps=0.0, cpu=0.0, busy=2.0, host={"cgroup": group}, backends=starting(60_000))
    frames = [quiet.frame(second) for second in range(100)]
    away = Unavailable(Reason.NO_ANSWER, "the database system is in recovery mode")
    frames[12:28] = [replace(frame, postgres=away) for frame in frames[12:28]]
    assert Diagnoser().look(Interval(frames[:25])).first.sentence == (
        "the OOM killer ended a backend 13 s ago; the server has not answered since; the cgroup's limit is 2.00 GB"
    )
    first = Diagnoser().look(Interval(frames[:40])).first
    assert first.kind is FindingKind.OUTAGE
    assert first.sentence.startswith(
        "the OOM killer ended a backend 28 s ago; recovery took 16 s; the cgroup's limit is 2"
    )
    assert Diagnoser().look(Interval(frames)).first.rule == "none"


def test_a_prepared_transaction_that_holds_locks_is_named_with_its_gid() -> None:
    def rows(second: int, now_ms: int) -> tuple[Backend, ...]:
        wait = {"wait_event_type": "Lock", "wait_event": "transactionid", "query_start_ms": EPOCH_MS + 1000}
        return tuple(backend(pid, now_ms, blocked_by=(0,), **wait) for pid in (10, 11))

    def locks(second: int) -> LockSample:
        each = LockWait(
            10, "transactionid", "ShareLock", None, "xid 9", EPOCH_MS, (0,), ("ExclusiveLock",), ("order-4711",)
        )
        return LockSample(float(second), (each, replace(each, pid=11)))

    def horizon(second: int) -> HorizonSample:
        row = PreparedTransaction("order-4711", 9, "ann", "bench", EPOCH_MS - 720_000)
        return HorizonSample(float(second), EPOCH_MS + second * 1000, 10, 0, (), (row,))

    held = Situation(
        waits={"Lock:transactionid": 2.0},
        tps=0.0,
        load=False,
        backends=rows,
        server={"locks": locks, "horizon": horizon},
    )
    first = said(held).first
    assert first.sentence == "2 sessions wait 39 s for prepared transaction 'order-4711' in bench, 12m39s old"
    assert first.next_step == "ROLLBACK PREPARED 'order-4711' (in bench), or COMMIT PREPARED"


def test_an_alter_table_in_a_queue_does_not_count_itself() -> None:
    def rows(second: int, now_ms: int) -> tuple[Backend, ...]:
        wait = {"wait_event_type": "Lock", "wait_event": "relation", "query_start_ms": EPOCH_MS + 1000}
        report = backend(18645, now_ms, application_name="report", state="active", xact_start_ms=EPOCH_MS)
        alter = backend(21093, now_ms, query="alter table hot add w int", blocked_by=(18645,), **wait)
        return (report, alter, *(backend(pid, now_ms, blocked_by=(21093, 18645), **wait) for pid in range(10, 18)))

    def locks(second: int) -> LockSample:
        each = LockWait(
            21093, "relation", "AccessExclusiveLock", "hot", "", EPOCH_MS, (18645,), ("AccessShareLock",), ()
        )
        others = (replace(each, pid=pid, mode="AccessShareLock") for pid in range(10, 18))
        return LockSample(float(second), (each, *others))

    for silences in ((), (Silence(EPOCH_MS + 1000, None, 30.0, 5.0),)):
        queue = Situation(
            waits={"Lock:relation": 9.0}, tps=0.0, load=bool(silences), backends=rows, server={"locks": locks},
            bench={"silences": silences} if silences else {},
        )  # fmt: skip
        first = said(queue).first
        assert "ALTER TABLE (21093) waits for session 18645 (report), and blocks 8 sessions" in first.sentence
        assert [deed.target for deed in first.deeds[:2]] == ["21093", "18645"]
