"""Made-up situations, each with the rule that is to be first in it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from pgtop_tune.model.bench import Silence
from pgtop_tune.model.host import (
    DiskCounters,
    DiskSample,
    FileSystem,
    FileSystemSample,
    InterfaceCounters,
    NetworkSample,
    PressureLine,
    PressureSample,
)
from pgtop_tune.model.io import IoCounters, IoSample, SlruCounters, SlruSample
from pgtop_tune.model.machine import CgroupSample
from pgtop_tune.model.postgres import Backend, CheckpointCounters, StatementTotals
from pgtop_tune.model.relations import DatabaseFacts, DatabaseLimits
from pgtop_tune.model.replication import Receiver, ReplicationSample, Sender, Slot, SlotSample
from pgtop_tune.model.waits import WaitCount, WaitSample
from tests.support.frames import EPOCH_MS, FIRST_PID, backend, parameter
from tests.support.machine_frames import GIB, host_sample
from tests.support.relation_frames import relations, table
from tests.support.situations import Situation
from tests.support.statement_frames import sample, statement, texts

SLOW_WAL: Final = Situation(
    waits={"IO:WalSync": 0.95, "LWLock:WALWrite": 14.4, "Client:turn": 0.65}, latency_ms=31.0, tps=520.0, cpu=0.3,
    busy=20.0, counters={"wal.wal_syncs": 143.0, "wal.lsn_bytes": 143 * 24_000.0},
)  # fmt: skip
SHARED_CPUS: Final = Situation(
    waits={"Client:turn": 12.0, "CPU:": 4.0}, latency_ms=1.6, tps=10_000.0, cpu=2.3, queued=9.0, busy=99.0,
    pgbench=((40.0, 20.0), (40.0, 20.0)),
)  # fmt: skip
FULL_CPUS: Final = Situation(
    waits={"Client:turn": 12.0, "CPU:": 4.0}, latency_ms=1.6, tps=10_000.0, cpu=3.0, queued=9.0, busy=99.0,
    pgbench=((20.0, 20.0), (20.0, 20.0)),
)  # fmt: skip


def queued_rows(wait: str, event: str) -> Any:
    """Sessions of the load behind another one of the load, which waits for that and is another one each second."""

    def rows(second: int, now_ms: int) -> tuple[Backend, ...]:
        holder = FIRST_PID + second % 16
        blocked = {"wait_event_type": "Lock", "wait_event": "transactionid", "blocked_by": (holder,)}
        return tuple(
            backend(pid, now_ms, wait_event_type=wait or None, wait_event=event or None)
            if pid == holder
            else backend(pid, now_ms, **blocked)
            for pid in range(FIRST_PID, FIRST_PID + 16)
        )

    return rows


def jammed_since(begun: int) -> Callable[[int, int], tuple[Backend, ...]]:
    """Sixteen sessions wait for a psql that has been idle in its transaction since that second."""
    begun_ms = EPOCH_MS + 1000 * begun

    def rows(second: int, now_ms: int) -> tuple[Backend, ...]:
        psql = backend(
            900, now_ms, application_name="psql", state="idle in transaction", xact_start_ms=begun_ms,
            state_change_ms=begun_ms + 1000, wait_event_type="Client", wait_event="ClientRead",
        )  # fmt: skip
        wait = {"wait_event_type": "Lock", "wait_event": "transactionid", "query_start_ms": begun_ms + 1000}
        return (psql, *(backend(pid, now_ms, blocked_by=(900,), **wait) for pid in range(10, 26)))

    return rows


jammed: Final = jammed_since(0)


def paused_standby(second: int) -> ReplicationSample:
    """80 MB have come since replay was paused two minutes before the first second."""
    now_ms = EPOCH_MS + 1000 * second
    received, replayed = 200 << 20, 120 << 20
    receiver = Receiver(
        "streaming", "db1:5432", None, received, received, now_ms, replayed, EPOCH_MS - 120_000, "paused"
    )  # fmt: skip
    return ReplicationSample(at_s=float(second), now_ms=now_ms, lsn_bytes=received, senders=(), receiver=receiver)


def lone_standby(second: int) -> ReplicationSample:
    """Everything that had come is replayed; nothing comes any more."""
    found = paused_standby(second)
    assert found.receiver is not None
    gone = replace(
        found.receiver, status=None, sender="", received_lsn_bytes=None, latest_end_lsn_bytes=None, message_ms=None,
        replay_state="not paused",
    )  # fmt: skip
    return replace(found, receiver=gone)


def checkpoints_often(second: int) -> CheckpointCounters:
    """A requested checkpoint each second."""
    return CheckpointCounters(
        at_s=float(second), timed=1, requested=2 * second, write_ms=0.0, sync_ms=0.0, buffers_checkpoint=0,
        buffers_clean=0, maxwritten_clean=0, buffers_backend=0, buffers_alloc=0, redo_lsn_bytes=0,
        checkpoint_time_ms=EPOCH_MS + second * 1000, stats_reset_ms=None,
    )  # fmt: skip


def capped_disk(second: int) -> DiskSample:
    """P1: 5,940 requests a second of the 6,000 that the data disk may do, WAL on it as well."""
    disk = DiskCounters(
        "vda", 2_000 * second, 16_384_000 * second, 9_000 * second, 3_940 * second, 40_000_000 * second,
        40_000 * second, 50, 1_000 * second, 49_000 * second, ("data", "wal"), cap_iops=6_000.0, cap_bytes_per_s=9e7,
    )  # fmt: skip
    return DiskSample(float(second), (disk,))


def idle_disk(second: int) -> DiskSample:
    """The data disk, which delivers a tenth of the blocks."""
    disk = DiskCounters("vda", 400 * second, 3_276_800 * second, 4_000 * second, 0, 0, 0, 1, 900 * second, 0, ("data",))
    return DiskSample(float(second), (disk,))


def reads(second: int) -> IoSample:
    """4,000 reads a second of 2 ms each."""
    row = IoCounters(
        id="client backend/relation/normal", backend_type="client backend", object="relation", context="normal",
        reads=4_000 * second, read_bytes=8_192 * 4_000 * second, read_us=8_000_000 * second, writes=0, write_bytes=0,
        write_us=0, writebacks=0, writeback_us=0, extends=0, extend_bytes=0, extend_us=0, hits=0, evictions=0,
        reuses=0, fsyncs=0, fsync_us=0,
    )  # fmt: skip
    return IoSample(float(second), None, (row,))


def throttled(second: int) -> CgroupSample:
    """Half a CPU, used up in most periods."""
    return CgroupSample(
        at_s=float(second), path="/pg", version=2, memory_max_bytes=None, memory_high_bytes=None, memory_bytes=None,
        memory_max_events=0, oom_kills=0, cpu_quota_cores=0.5, cpu_periods=10 * second,
        cpu_throttled_periods=9 * second, cpu_throttled_us=0, cpu_used_us=None, io_some_us=None, io_full_us=None,
        memory_some_us=None, memory_full_us=None,
    )  # fmt: skip


def standby(second: int) -> ReplicationSample:
    """One synchronous standby that takes 20 ms for its flush."""
    sender = Sender(
        pid=70, usename="repl", application_name="b", client="10.0.0.2", state="streaming", sent_lsn_bytes=0,
        write_lsn_bytes=0, flush_lsn_bytes=0, replay_lsn_bytes=0, write_lag_ms=0.5, flush_lag_ms=20.0,
        replay_lag_ms=21.0, sync_state="sync", reply_time_ms=None,
    )  # fmt: skip
    return ReplicationSample(float(second), EPOCH_MS, 0, (sender,))


def nobody(second: int) -> ReplicationSample:
    """No standby."""
    return ReplicationSample(float(second), EPOCH_MS, 0, ())


def slot(second: int) -> SlotSample:
    """A slot that nobody uses and that keeps 5 GB."""
    row = Slot(
        slot_name="gone", slot_type="physical", plugin=None, database=None, temporary=False, active_pid=None, xmin=None,
        catalog_xmin=None, restart_lsn_bytes=0, confirmed_lsn_bytes=None, wal_status="extended", safe_wal_bytes=None,
        inactive_since_ms=None, invalid="", failover=None, spill_txns=None, spill_bytes=None, stream_txns=None,
        stream_bytes=None, total_txns=None, total_bytes=None, stats_reset_ms=None,
    )  # fmt: skip
    return SlotSample(float(second // 5 * 5), EPOCH_MS, 5 * GIB, 1_000, (row,))


def spilling(second: int) -> SlotSample:
    """A slot that spills 20 MB of changes each second."""
    at = second // 5 * 5
    whole = slot(second)
    rows = tuple(replace(row, slot_type="logical", active_pid=77, spill_bytes=20_000_000 * at) for row in whole.slots)
    return replace(whole, lsn_bytes=GIB, slots=rows)


def filling(second: int) -> FileSystemSample:
    """A disk that loses a hundredth of itself each second."""
    at = second // 5 * 5
    left = 60 * GIB - at * GIB
    return FileSystemSample(
        float(at), (FileSystem("/data", "xfs", "/dev/vda1", ("data",), 100 * GIB, left, left, 0, 0),)
    )


def slru(second: int) -> SlruSample:
    """A thousand pages of subtransactions read each second."""
    at = second // 5 * 5
    return SlruSample(float(at), (SlruCounters("subtransaction", 0, 0, 1_000 * at, 0, 0, 0, 0, None),))


def full_link(second: int) -> NetworkSample:
    """A link of 1 Gbit/s with 119 MB/s on it."""
    sent = 119_000_000 * second
    row = InterfaceCounters("ens5", 0, 0, 0, 0, sent, 90_000 * second, 0, 0, 1_000_000_000)
    return NetworkSample(float(second), (row,))


def swapping(second: int) -> Any:
    """3,000 pages a second come back from swap."""
    return replace(host_sample(second).memory, swap_in_pages=3_000 * second)  # type: ignore[type-var]


def pressed(second: int) -> PressureSample:
    """Tasks wait for memory 30 % of the time."""
    line = PressureLine(0, 0)
    return PressureSample(float(second), line, line, PressureLine(300_000 * second, 0))


def old_ids(second: int) -> DatabaseLimits:
    """A database 1.98 thousand million transactions old."""
    return DatabaseLimits(float(second // 30 * 30), 1_980_000_003, 5, (DatabaseFacts(5, "bench", 3, 1, -1, True),))


def _waits(seconds_of: dict[str, float], **others: Any) -> Situation:
    values: dict[str, Any] = {"latency_ms": 16.0, "tps": 1_000.0, "cpu": 0.4, "busy": 30.0, **others}
    return Situation(waits=seconds_of, **values)


def unconfirmed(second: int, now_ms: int) -> tuple[Backend, ...]:
    """A commit that waits for its standby since the first second, and seven sessions that want the same row."""
    commit = {"wait_event_type": "IPC", "wait_event": "SyncRep", "query_start_ms": EPOCH_MS}
    behind = {"wait_event_type": "Lock", "wait_event": "transactionid", "blocked_by": (10,), "query_start_ms": EPOCH_MS}
    return (backend(10, now_ms, **commit), *(backend(pid, now_ms, **behind) for pid in range(11, 18)))


def scans(second: int) -> dict[str, Any]:
    """One statement, eight times a second, each time with all 600,000 rows of a table without an index."""
    look = second // 2 * 2
    entry = statement(1, calls=8 * look, exec_us=3_500_000 * look, rows=8 * look, shared_blks_hit=50_000 * look)
    orders = table(
        16_500, "public.orders", 0, seq_scan=8 * (second // 15 * 15), seq_tup_read=4_800_000 * (second // 15 * 15)
    )
    return {
        "statements": StatementTotals(float(look), 8 * look, 3_500.0 * look, 1, 0, None),
        "statement_counters": sample(float(look), float(look - 2) if look else None, (entry,)),
        "statement_texts": texts(float(look), {1: "SELECT sum(amount)\n FROM orders WHERE customer = $1"}),
        "relations": relations(second, tables=(orders,)),
    }


def of_statements(*entries: dict[str, Any], text: str, other_texts: dict[int, str] | None = None) -> dict[str, Any]:
    """Sections of statements whose counters grow by these figures each second; the first has the text."""

    def totals(second: int) -> StatementTotals:
        look = second // 2 * 2
        grown = [sum(entry.get(name, 0) for entry in entries) for name in ("calls", "exec_us")]
        return StatementTotals(float(look), grown[0] * look, grown[1] * look / 1000.0, len(entries), 0, None)

    def counters(second: int) -> Any:
        look = second // 2 * 2
        rows = [
            statement(number, **{name: value * look for name, value in entry.items()})
            for number, entry in enumerate(entries, 1)
        ]
        return sample(float(look), float(look - 2) if look else None, rows)

    return {
        "statements": totals,
        "statement_counters": counters,
        "statement_texts": lambda second: texts(float(second // 2 * 2), {1: text, **(other_texts or {})}),
    }


def sampled(counts: dict[str, float], query_id: int | None = 1) -> Callable[[int], WaitSample]:
    """Mean sessions of others by wait, all of which run one statement."""

    def of_second(second: int) -> WaitSample:
        rows = [
            WaitCount(*label.split(":"), "client backend", round(100 * mean), query_id=query_id)
            for label, mean in counts.items()
        ]
        return WaitSample(float(second), 100, tuple(rows))

    return of_second


REPORT: Final = "SELECT count(*) FROM big JOIN parts USING (id) WHERE v = $1"
COMPILED: Final = Situation(
    waits={"CPU:": 3.0}, load=False, tps=250.0, latency_ms=12.0, cpu=2.9, busy=75.0,
    server=of_statements(
        {"calls": 250, "exec_us": 2_800_000, "jit_us": 2_520_000, "jit_functions": 1_250}, text=REPORT
    ),
    parameters=(parameter("jit_above_cost", "10", "10"),),
)  # fmt: skip
PLANNED: Final = Situation(
    load=False, tps=40.0, latency_ms=72.5, cpu=2.9, busy=75.0,
    server={**of_statements({"calls": 40, "exec_us": 400_000}, text=REPORT), "waits": sampled({"CPU:": 2.9})},
    parameters=(parameter("pg_stat_statements.track_planning", "off", "off"),),
)  # fmt: skip
COUNTED: Final = replace(
    PLANNED,
    server={
        **of_statements({"calls": 40, "exec_us": 400_000, "plans": 40, "plan_us": 2_400_000}, text=REPORT),
        "waits": sampled({"CPU:": 2.9}),
    },
    parameters=(parameter("pg_stat_statements.track_planning", "on", "on"),),
)


def timing_out(second: int, now_ms: int) -> tuple[Backend, ...]:
    """Six sessions that have run one statement for up to 0.3 s."""
    return tuple(
        backend(pid, now_ms, application_name="web", query=REPORT, query_id=1, query_start_ms=now_ms - 50 * (pid - 9))
        for pid in range(10, 16)
    )


TIMED_OUT: Final = Situation(
    load=False, tps=1.0, latency_ms=6_000.0, cpu=2.9, busy=99.0, backends=timing_out,
    counters={"database.xact_rollback": 20.0},
    server={**of_statements({"calls": 1, "exec_us": 40}, text=REPORT), "waits": sampled({"CPU:": 6.0})},
)  # fmt: skip
POINT: Final = "SELECT * FROM item WHERE id = $1"
REPEATED: Final = Situation(
    waits={"Client:turn": 2.0, "CPU:": 0.1}, load=False, tps=17.0, latency_ms=124.0, cpu=0.2, busy=20.0,
    server=of_statements({"calls": 3_400, "exec_us": 41_000}, {"calls": 17, "exec_us": 20}, text=POINT),
)  # fmt: skip


def crowded(second: int) -> Any:
    """A thousand updates a second of a table with nine indexes, none of them HOT; two were never scanned."""
    at = second // 15 * 15
    orders = table(16_500, "public.orders", 0, n_tup_upd=1_000 * at, n_tup_hot_upd=0, n_dead_tup=0)
    indexes = tuple(
        replace(
            relations(0).indexes[0], oid=16_600 + n, table_oid=16_500, name=f"public.orders_{n}",
            table="public.orders", is_constraint=n == 0, idx_scan=0 if n > 6 else 40 * at,
        )
        for n in range(9)
    )  # fmt: skip
    return relations(second, tables=(orders,), indexes=indexes)


CROWDED: Final = Situation(
    waits={"CPU:": 3.8}, load=False, tps=1_000.0, cpu=3.0, busy=80.0, counters={"database.tup_updated": 1_000.0},
    server={
        **of_statements({"calls": 1_000, "exec_us": 2_900_000}, text="UPDATE orders SET note = $1 WHERE id = $2"),
        "relations": crowded,
    },
)  # fmt: skip
FREEZE: Final = parameter("autovacuum_freeze_max_age", "200000000", "200000000")
MULTIXACTS: Final = parameter("autovacuum_multixact_freeze_max_age", "400000000", "400000000")
PRIMARY: Final = parameter("primary_conninfo", "host=db1", "host=db1", vartype="string")
STANDBY: Final = parameter("synchronous_standby_names", "b", "b", vartype="string")

MADE: Final[dict[str, tuple[str, Situation]]] = {
    "slow WAL device": ("wal.flush", SLOW_WAL),
    "full CPUs": ("cpu.server", FULL_CPUS),
    "CPUs that several fill": ("cpu.full", SHARED_CPUS),
    "a missing index": (
        "stmt.scan",
        replace(
            FULL_CPUS,
            tps=8.0,
            latency_ms=2_000.0,
            server={
                name: partial(lambda second, name: scans(second)[name], name=name)
                for name in ("statements", "statement_counters", "statement_texts", "relations")
            },
        ),
    ),
    "JIT compilation": ("plan.jit", COMPILED),
    "planning that is counted": ("plan.time", COUNTED),
    "planning that is not counted": ("plan.time", PLANNED),
    "a statement that times out": ("stmt.fails", TIMED_OUT),
    "a statement for each row": ("client.think", REPEATED),
    "many indexes": ("upd.cold", CROWDED),
    "stall behind psql": (
        "out.stall",
        Situation(
            waits={"Lock:transactionid": 16.0},
            tps=0.0,
            backends=jammed,
            bench={"silences": (Silence(EPOCH_MS + 1000, None, 30.0, 5.0),)},
        ),
    ),
    "jam without a load": (
        "lock.jam",
        Situation(waits={"Lock:transactionid": 16.0}, tps=0.0, backends=jammed, load=False),
    ),
    "standby whose replay is paused": (
        "standby.paused",
        Situation(load=False, tps=0.0, cpu=0.0, busy=2.0, server={"replication": paused_standby}),
    ),
    "standby that is cut off": (
        "standby.alone",
        Situation(
            load=False,
            tps=0.0,
            cpu=0.0,
            busy=2.0,
            server={"replication": lone_standby},
            parameters=(PRIMARY,),
        ),
    ),
    "standby missing": (
        "out.syncrep",
        Situation(
            waits={"IPC:SyncRep": 16.0},
            tps=0.0,
            server={"replication": nobody},
            parameters=(STANDBY,),
            bench={"silences": (Silence(EPOCH_MS + 1000, None, 30.0, 5.0),)},
        ),
    ),
    "standby that does not confirm": (
        "out.syncrep",
        Situation(
            waits={"IPC:SyncRep": 1.0, "Lock:transactionid": 7.0},
            tps=0.0,
            backends=unconfirmed,
            server={"replication": standby},
            parameters=(STANDBY,),
            load=False,
        ),
    ),
    "commits that sleep": (
        "wal.delay",
        _waits(
            {"LWLock:WALWrite": 6.0, "IO:WalSync": 1.0, "Client:turn": 1.0},
            clients=8,
            latency_ms=130.0,
            tps=62.0,
            parameters=(parameter("commit_delay", "100000", "100000"),),
        ),
    ),
    "one standby of two": (
        "out.syncrep",
        Situation(
            waits={"IPC:SyncRep": 16.0},
            tps=0.0,
            server={"replication": standby},
            parameters=(parameter("synchronous_standby_names", "FIRST 2 (b, c)", "FIRST 2 (b, c)", vartype="string"),),
            bench={"silences": (Silence(EPOCH_MS + 1000, None, 30.0, 5.0),)},
        ),
    ),
    "hot row": (
        "lock.row",
        _waits({"Lock:transactionid": 8.0, "Lock:tuple": 4.0, "LWLock:LockManager": 1.5}, backends=queued_rows("", "")),
    ),
    "hot row on a slow WAL device": (
        "wal.flush",
        _waits(
            {"Lock:transactionid": 12.0, "Lock:tuple": 2.8, "IO:WalSync": 0.98},
            latency_ms=112.0,
            tps=143.0,
            backends=queued_rows("IO", "WalSync"),
            counters={"wal.wal_syncs": 124.0, "wal.lsn_bytes": 124 * 9_000.0},
        ),
    ),
    "deadlocks": (
        "lock.dead",
        _waits({"Lock:transactionid": 15.0}, latency_ms=1_588.0, tps=10.0, counters={"database.deadlocks": 2.5}),
    ),
    "much WAL": (
        "wal.volume",
        _waits(
            {"LWLock:WALWrite": 6.0, "IO:WalSync": 0.4, "IO:WalWrite": 0.35},
            counters={"wal.wal_syncs": 500.0, "wal.lsn_bytes": 500 * 281_000.0},
        ),
    ),
    "small wal_buffers": (
        "wal.buffers",
        _waits(
            {"LWLock:WALInsert": 3.2, "LWLock:WALWrite": 6.0, "IO:WalWrite": 0.5, "IO:WalSync": 0.1},
            counters={"wal.wal_buffers_full": 8_300.0, "wal.wal_syncs": 500.0, "wal.lsn_bytes": 500 * 281_000.0},
        ),
    ),
    "checkpoints without end": (
        "ckpt.often",
        _waits(
            {"LWLock:WALWrite": 6.0, "IO:WalSync": 0.8},
            server={"checkpoints": checkpoints_often},
            counters={
                "wal.wal_syncs": 500.0,
                "wal.lsn_bytes": 32e6,
                "wal.wal_bytes": 32e6,
                "wal.wal_fpi": 0.96 * 32e6 / 8192,
            },
        ),
    ),
    "the data disk at its cap (P1)": (
        "io.cap",
        _waits(
            {"IO:DataFileRead": 3.0, "LWLock:WALWrite": 9.0, "IO:WalSync": 0.98, "Client:turn": 2.0},
            latency_ms=13.34,
            tps=1_199.0,
            host={"disks": capped_disk},
            counters={"wal.wal_syncs": 450.0, "wal.lsn_bytes": 8e6},
        ),
    ),
    "reads from a disk": (
        "io.read.disk",
        _waits(
            {"IO:DataFileRead": 8.0},
            server={"io": reads},
            host={"disks": idle_disk},
            counters={"database.blks_read": 4_000.0},
        ),
    ),
    "sessions write": ("io.write", _waits({"IO:DataFileWrite": 5.0})),
    "spills": (
        "io.temp",
        _waits({"IO:BuffileWrite": 3.0, "IO:BuffileRead": 2.0}, counters={"database.temp_bytes": 2e8}),
    ),
    "extension": ("io.extend", _waits({"Lock:extend": 5.0, "IO:DataFileExtend": 1.0})),
    "sync queue": ("io.syncqueue", _waits({"Timeout:RegisterSyncRequest": 4.0})),
    "a thread of pgbench": ("client.thread", _waits({"Client:between": 14.0, "CPU:": 1.0}, pgbench=((96.0, 2.0),))),
    "pgbench without a CPU": (
        "cpu.pgbench",
        _waits(
            {"Client:between": 14.0, "CPU:": 1.0},
            busy=99.0,
            latency_ms=0.2,
            tps=65_000.0,
            pgbench=((12.0, 82.0),),
            cpu=1.0,
        ),
    ),
    "thinking": ("client.think", _waits({"Client:turn": 14.0, "CPU:": 1.0})),
    "new sessions": (
        "conn.storm",
        _waits(
            {"Client:turn": 3.0, "CPU:": 0.2},
            clients=4,
            latency_ms=5.5,
            tps=840.0,
            counters={"databases.sessions": 858.0},
        ),
    ),
    "a full link": ("net.full", _waits({"Client:ClientWrite": 8.0, "Client:turn": 3.0}, host={"network": full_link})),
    "other programs": (
        "cpu.others",
        _waits(
            {"Client:turn": 12.0, "CPU:": 1.0}, latency_ms=2.3, tps=1_770.0, clients=4, cpu=0.5, queued=1.2, busy=99.0
        ),
    ),
    "a hypervisor that takes": (
        "cpu.steal",
        _waits(
            {"Client:between": 2.0, "CPU:": 4.0},
            cpu=1.0,
            queued=2.5,
            clients=6,
            latency_ms=6.0,
            busy=70.0,
            steal=40.0,
            cpus=2,
        ),
    ),
    "a quota": (
        "cpu.quota",
        _waits(
            {"Client:between": 4.0, "CPU:": 4.0},
            clients=8,
            cpu=0.49,
            queued=4.5,
            latency_ms=0.18,
            tps=42_000.0,
            busy=40.0,
            host={"cgroup": throttled},
        ),
    ),
    "swapping": ("mem.swap", _waits({"CPU:": 6.0}, host={"memory": swapping, "pressure": pressed})),
    "a slow standby": (
        "sync.disk",
        _waits(
            {"IPC:SyncRep": 15.0}, latency_ms=25.0, tps=650.0, server={"replication": standby}, parameters=(STANDBY,)
        ),
    ),
    "the lock table": ("lw.locks", _waits({"LWLock:LockManager": 9.0, "CPU:": 1.0})),
    "the buffer table": ("lw.mapping", _waits({"LWLock:BufferMapping": 6.0})),
    "a hot page": ("lw.page", _waits({"LWLock:BufferContent": 6.0})),
    "snapshots": ("lw.snapshot", _waits({"LWLock:ProcArray": 6.0})),
    "commits that notify": ("lock.other", _waits({"Lock:object": 12.0, "IO:WalSync": 0.9})),
    "decoding that spills": (
        "slot.spill",
        _waits({"IO:ReorderBufferWrite": 12.0, "CPU:": 2.0}, server={"slots": spilling}),
    ),
    "subtransactions": ("slru.sub", _waits({"LWLock:SubtransSLRU": 6.0}, server={"slru": slru})),
    "multixacts": ("slru.multi", _waits({"LWLock:MultiXactOffsetBuffer": 6.0})),
    "connections": (
        "full.connections",
        Situation(
            waits={"Client:between": 15.0, "CPU:": 1.0},
            clients=96,
            latency_ms=16.0,
            cpu=0.5,
        ),
    ),
    "a filling disk": ("full.disk", _waits({"CPU:": 1.0}, host={"file_systems": filling})),
    "an old database": (
        "full.xid",
        _waits({"CPU:": 1.0}, server={"database_limits": old_ids}, parameters=(FREEZE, MULTIXACTS)),
    ),
    "idle": ("none", Situation(load=False, tps=0.0, cpu=0.0, busy=2.0)),
    "clients that think": ("none", _waits({"Client:between": 14.7, "CPU:": 1.3}, cpu=1.2)),
    "a rate that is reached": ("none", _waits({"CPU:": 0.2}, rate_per_s=500.0, tps=500.0, lag_ms=0.2, latency_ms=0.4)),
    "nothing in particular": ("none", _waits({"CPU:": 5.0, "Client:turn": 6.0, "Lock:transactionid": 0.4}, cpu=4.0)),
}
RETAINED: Final = _waits({"CPU:": 1.0}, server={"slots": slot})
"""A note at the foot: a slot keeps WAL, and the disk has room."""
