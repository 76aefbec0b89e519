"""What is said of made-up seconds: rules in which they are first, and seconds in which they are not."""

from __future__ import annotations

from msgspec.structs import replace

from pgtop_tune.diagnosis.blockers import root_look
from pgtop_tune.diagnosis.diagnosing import Diagnosing
from pgtop_tune.diagnosis.facts import Facts
from pgtop_tune.diagnosis.finding import Confidence, Diagnosis, FindingKind
from pgtop_tune.diagnosis.rules.locks import RULES
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import Silence
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.machine import CgroupSample
from pgtop_tune.model.pooler import Pooler, PoolerSample
from pgtop_tune.model.postgres import HIDDEN_QUERY, Backend
from pgtop_tune.model.waits import LockSample, LockWait
from tests.support.frames import EPOCH_MS, backend
from tests.support.made_situations import MADE, PRIMARY, SHARED_CPUS, throttled
from tests.support.pooler_frames import bouncer, counters, pool
from tests.support.situations import Situation

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
    return Diagnosing().look(situation.interval(seconds))


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
    assert "fills the 4 CPUs" in first.sentence
    assert "0.90 ms waiting for one" in first.sentence


def test_a_server_that_fills_the_cpus_it_is_bound_to_is_said_while_others_rest() -> None:
    def bound(second: int) -> CgroupSample:
        return replace(throttled(second), cpu_quota_cores=None, cpu_throttled_periods=0, cpus_allowed=2)

    first = said(replace(FULL_CPUS, cpu=2.0, busy=55.0, host={"cgroup": bound})).first
    assert first.rule == "cpu.server"
    assert "fills the 2 CPUs" in first.sentence
    assert said(replace(FULL_CPUS, cpu=2.0, busy=55.0)).first.rule != "cpu.server"


def test_cpus_that_several_fill_are_said_to_be_full_with_the_parts_of_each() -> None:
    first = said(SHARED_CPUS).first
    assert first.rule == "cpu.full"
    assert "the 4 CPUs are full: the server 2.3, pgbench 0.8, other programs 0.9; " in first.sentence


def test_full_cpus_without_a_queue_are_full_use_and_no_finding() -> None:
    busy = Situation(waits={"CPU:": 4.0}, latency_ms=0.4, tps=10_000.0, clients=4, cpu=4.0, queued=0.0, busy=99.0)
    assert said(busy).first.rule == "none"


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
    first = said(stalled).first
    assert first.kind is FindingKind.OUTAGE
    assert first.sentence == "STALLED 38 s: 16 sessions wait for 900, idle in transaction 38 s (psql)"
    assert first.advice is not None


def test_a_stall_of_a_server_that_does_not_answer_names_nobody_of_the_look_before() -> None:
    """A frozen server was said to wait for a session that had waited for a lock a moment before."""
    silence = Silence(EPOCH_MS + 27_000, None, 30.0, 5.0)
    frames = list(Situation(waits={"Lock:transactionid": 16.0}, tps=0.0, backends=jammed).interval(30).frames)
    stalled = Situation(tps=0.0, bench={"silences": (silence,)})
    frames += [replace(stalled.frame(n), postgres=Unavailable(Reason.NO_ANSWER, "no answer")) for n in (30, 31)]
    first = Diagnosing().look(Interval(frames)).first
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
    first = Diagnosing().look(Interval((*jam.frames[:-1], read))).first
    assert first.sentence == "16 sessions wait 1.9 s for 900, idle in transaction 38 s (psql)"


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
    assert "900, idle in transaction" in first.sentence


def test_an_idle_server_is_said_to_be_idle() -> None:
    assert said(Situation(load=False, tps=0.0, cpu=0.0, busy=2.0)).first.sentence == "idle: no active session"


def test_a_server_whose_sessions_are_hidden_is_not_said_to_be_idle() -> None:
    def others(second: int, at_ms: int) -> tuple[Backend, ...]:
        return (backend(second, at_ms, backend_type=None, query=HIDDEN_QUERY),)

    first = said(Situation(load=False, cpu=0.0, backends=others)).first
    assert first.rule == "none"
    assert "idle" not in first.sentence
    assert first.sentence.endswith("other users' sessions are hidden: GRANT pg_monitor TO bench shows them")


def test_clients_that_think_are_no_limit_of_the_server() -> None:
    thinking = Situation(waits={"Client:between": 14.7, "CPU:": 1.3}, latency_ms=16.0, tps=1000.0, cpu=1.2)
    assert said(thinking).first.sentence == "nothing is at a limit: clients think 92 % of each transaction"


def test_a_wait_that_no_rule_knows_is_named_and_not_called_other() -> None:
    """The line said "no single limit: other 14.0 of 14.2 ms" above a budget of Timeout:PgSleep 14.0, other 0.2."""
    asleep = Situation(waits={"Timeout:PgSleep": 7.9, "CPU:": 0.1}, latency_ms=14.2, tps=564.0, clients=8, cpu=0.1)
    sentence = said(asleep).first.sentence
    assert sentence.startswith("not clear what binds: CPU 0.18, Timeout:PgSleep 14.0, other 0.0"), sentence


def test_a_transaction_of_ten_seconds_has_one_unit() -> None:
    """It was "of 14.4s ms"."""
    long = Situation(waits={"Timeout:PgSleep": 8.0}, latency_ms=14_400.0, tps=0.6, clients=8, cpu=1.0)
    assert said(long).first.sentence.endswith(" of 14.4 s")


def test_a_full_machine_is_never_called_free_of_limits() -> None:
    asked = Situation(waits={"CPU:": 1.0}, latency_ms=1.0, tps=500.0, rate_per_s=500.0, lag_ms=0.1, busy=60.0)
    assert said(asked).first.sentence.startswith("nothing is at a limit: 500/s as asked; CPUs 60 %")
    assert said(replace(asked, busy=100.0)).first.sentence.startswith("500/s as asked; CPUs 100 %")
    stuck = Situation(waits={"IO:DataFileRead": 2.0}, tps=0.0, load=False, busy=100.0)
    assert "nothing is at a limit" not in said(stuck).first.sentence


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
    assert said(quick).first.sentence.startswith("not clear what binds: ")


def test_a_standby_that_does_not_replay_is_not_called_idle() -> None:
    first = said(MADE["standby whose replay is paused"][1]).first
    assert first.sentence == "replay is paused on this standby: 80.0M of WAL wait, 2m39s old"
    alone = MADE["standby that is cut off"][1]
    assert said(alone).first.sentence == "this standby does not stream: it has no WAL receiver"
    from_archive = replace(alone, parameters=(replace(PRIMARY, setting="", shown=""),))
    assert said(from_archive).first.sentence.startswith("idle")


def test_the_wait_at_a_pooler_of_a_load_of_others_is_not_cut_to_the_time_behind_it() -> None:
    """14 clients that waited 61 ms were said to wait for 7 ms, and the server to have no part."""
    server = Situation(waits={"CPU:": 2.0}, tps=231.0, load=False, cpu=1.0, busy=60.0)

    def with_pooler(second: int) -> Frame:
        pools = (pool("bench", "bench", cl_active=2, cl_waiting=14, sv_active=2, sv_idle=0),)
        counted = (counters("bench", second, xacts=231 * second, wait_us=14_000_000 * second),)
        seen = bouncer(second, servers=2, pools=pools, counters=counted)
        return replace(server.frame(second), pooler=PoolerSample(float(second), (Pooler("b", "x", seen),)))

    first = Diagnosing().look(Interval([with_pooler(second) for second in range(40)])).first
    assert first.rule == "pool.queue"
    assert "14 clients queue at b for 60.6 ms" in first.sentence
    assert ("the server's part", "8.66 ms") in first.evidence
