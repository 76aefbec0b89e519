"""Frames of a made-up server under a made-up load: deterministic, consistent counters, any moment computed directly.

    session = session_of(120, backends=16)               # two minutes, newest frame last
    frame(7, host=Unavailable(Reason.NOT_LOCAL, "…"))    # any section replaced

Nothing here knows a screen: recordings, comparisons and panes can be fed with the same frames.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from pgtop_tune.metrics.percentiles import bucket_of
from pgtop_tune.model.absence import NOT_RECORDED, Reason, Unavailable
from pgtop_tune.model.bench import BenchProgress, BenchRun, BenchSample, LatencySecond, RunState
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.model.frame import Footprint, Frame
from pgtop_tune.model.host import (
    HostSample,
)
from pgtop_tune.model.pooler import PoolerSample
from pgtop_tune.model.postgres import (
    Activity,
    Backend,
    CheckpointCounters,
    CheckpointCycle,
    DatabaseCounters,
    Parameter,
    ParameterSample,
    PostgresSample,
    ServerFacts,
    StatementTotals,
    WalCounters,
)
from pgtop_tune.model.waits import WaitCount, WaitSample
from pgtop_tune.runtime.history import Charted
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.session import Session
from tests.support.machine_frames import CORES, EPOCH_MS, GIB, MIB, host_sample, wave

FIRST_PID: Final = 2_231
CLIENTS: Final = 16
NO_POOLER: Final = Unavailable(Reason.NO_POOLER, "no pooler was named")

AUXILIARY: Final = (
    ("checkpointer", "Timeout", "CheckpointWriteDelay"),
    ("background writer", "Activity", "BgwriterMain"),
    ("walwriter", "IO", "WALSync"),
    ("autovacuum launcher", "Activity", "AutovacuumMain"),
    ("logical replication launcher", "Activity", "LogicalLauncherMain"),
)
QUERIES: Final = (
    "END;",
    "UPDATE pgbench_branches SET bbalance = bbalance + -2419 WHERE bid = 1;",
    "UPDATE pgbench_accounts SET abalance = abalance + 1827 WHERE aid = 94012;",
    "SELECT abalance FROM pgbench_accounts WHERE aid = 20154;",
)
WAITS: Final[tuple[tuple[str | None, str | None], ...]] = (
    ("IO", "WalSync"),
    ("Lock", "transactionid"),
    (None, None),
    ("LWLock", "WALWrite"),
)
SAMPLED: Final = (
    ("IO", "WalSync", "client backend", 37),
    ("Lock", "transactionid", "client backend", 23),
    ("CPU", "", "client backend", 17),
    ("LWLock", "WALWrite", "client backend", 10),
    ("Client", "ClientRead", "client backend", 3),
    ("IO", "DataFileRead", "client backend", 2),
    ("IO", "DataFileFlush", "checkpointer", 4),
)


def facts(**other: object) -> ServerFacts:
    """A primary of version 18 that has been up for three days."""
    values: dict[str, object] = {
        "version_num": 180006,
        "version": "18.6",
        "started_ms": EPOCH_MS - 273_600_000,
        "in_recovery": False,
        "database": "bench",
        "user": "bench",
        "endpoint": "/run/postgresql:5432",
        "local": True,
        "postmaster_pid": 2_000,
        "cluster_name": "18/main",
        "data_directory": "/var/lib/postgresql/18/main",
        "system_identifier": "7420000000000000001",
        "max_connections": 100,
        "block_bytes": 8192,
        "wal_segment_bytes": 16 * MIB,
        "hot_standby": False,
        "superuser": False,
        "monitor_role": True,
    }
    return ServerFacts(**(values | other))  # type: ignore[arg-type]


def backend(pid: int, now_ms: int, **other: object) -> Backend:
    """A client backend that began its transaction 20 ms ago and its statement 10 ms ago."""
    values: dict[str, object] = {
        "pid": pid,
        "backend_type": "client backend",
        "backend_start_ms": EPOCH_MS - 60_000,
        "leader_pid": None,
        "datname": "bench",
        "usename": "bench",
        "application_name": "pgbench",
        "client": "local",
        "state": "active",
        "wait_event_type": None,
        "wait_event": None,
        "xact_start_ms": now_ms - 20,
        "query_start_ms": now_ms - 10,
        "state_change_ms": now_ms - 10,
        "backend_xmin_age": 3,
        "query_id": 77,
        "query": QUERIES[0],
    }
    return Backend(**(values | other))  # type: ignore[arg-type]


def backends(second: int, now_ms: int, clients: int) -> tuple[Backend, ...]:
    """Busy sessions (each fourth blocked by the first), as many idle ones, one idle in transaction, auxiliaries."""
    found = []
    for index in range(clients):
        wait_event_type, wait_event = WAITS[(index + second) % len(WAITS)]
        blocked = index % 4 == 1
        found.append(
            backend(
                FIRST_PID + index,
                now_ms,
                query=QUERIES[1 if blocked else (index + second) % len(QUERIES)],
                wait_event_type="Lock" if blocked else wait_event_type,
                wait_event="transactionid" if blocked else wait_event,
                blocked_by=(FIRST_PID,) if blocked else (),
            )
        )
    found.append(
        backend(
            3_000,
            now_ms,
            usename="app",
            application_name="shop worker",
            client="10.0.0.7",
            state="idle in transaction",
            wait_event_type="Client",
            wait_event="ClientRead",
            xact_start_ms=EPOCH_MS - 90_000,
            query_start_ms=EPOCH_MS - 80_000,
            state_change_ms=EPOCH_MS - 80_000,
            query="SELECT * FROM cart WHERE id = 7 FOR UPDATE",
        )
    )
    for index in range(clients):
        found.append(
            backend(
                5_000 + index,
                now_ms,
                usename="app",
                application_name="shop",
                client="10.0.0.7",
                state="idle",
                wait_event_type="Client",
                wait_event="ClientRead",
                xact_start_ms=None,
                query_start_ms=EPOCH_MS - 7_000,
                state_change_ms=EPOCH_MS - 7_000,
                query="COMMIT",
            )
        )
    for index, (backend_type, wait_event_type, wait_event) in enumerate(AUXILIARY):
        found.append(
            backend(
                2_001 + index,
                now_ms,
                backend_type=backend_type,
                datname=None,
                usename=None,
                application_name=None,
                client=None,
                state=None,
                wait_event_type=wait_event_type,
                wait_event=wait_event,
                xact_start_ms=None,
                query_start_ms=None,
                state_change_ms=None,
                backend_xmin_age=None,
                query_id=None,
                query=None,
            )
        )
    return tuple(found)


def parameter(name: str, setting: str, shown: str, unit: str = "", vartype: str = "integer") -> Parameter:
    """A row of pg_settings at its default."""
    return Parameter(
        name=name, setting=setting, shown=shown, unit=unit, category="", short_desc="", context="sighup",
        vartype=vartype, source="default", min_val="", max_val="", enumvals=(), boot_val=setting, reset_val=setting,
        sourcefile="", pending_restart=False,
    )  # fmt: skip


PARAMETERS: Final = (
    parameter("checkpoint_completion_target", "0.9", "0.9", vartype="real"),
    parameter("checkpoint_timeout", "300", "5min", "s"),
    parameter("max_connections", "100", "100"),
    parameter("max_wal_size", "16384", "16GB", "MB"),
)


def postgres_sample(second: int, clients: int = CLIENTS, **other: object) -> PostgresSample:
    """The server at that second; sections replaced by name."""
    at_s = float(second)
    now_ms = EPOCH_MS + second * 1000
    values: dict[str, object] = {
        "server": facts(),
        "activity": Activity(at_s, now_ms, backends(second, now_ms, clients), own_backends=1),
        "waits": WaitSample(at_s, 10, tuple(WaitCount(*row[:3], row[3] * clients // CLIENTS) for row in SAMPLED)),
        "database": DatabaseCounters(
            at_s=at_s, xact_commit=wave(second, 1200, 180), xact_rollback=second, blks_read=800 * second,
            blks_hit=42_000 * second, tup_returned=9_000 * second, tup_fetched=5_000 * second,
            tup_inserted=1_200 * second, tup_updated=3_600 * second, tup_deleted=0, conflicts=0, temp_files=0,
            temp_bytes=0, deadlocks=0, stats_reset_ms=EPOCH_MS - 86_400_000, own_transactions=4 * second,
        ),
        "wal": WalCounters(
            at_s=at_s, lsn_bytes=40 * GIB + wave(second, 82 * MIB, 9 * MIB), wal_records=30_000 * second,
            wal_fpi=wave(second, 6_200, 660), wal_bytes=wave(second, 82 * MIB, 9 * MIB), wal_buffers_full=0,
            stats_reset_ms=EPOCH_MS - 86_400_000,
        ),
        "checkpoint_cycle": CheckpointCycle(at_s, 412_000, 0),
        "checkpoints": CheckpointCounters(
            at_s=at_s, timed=212, requested=31 + second // 60, write_ms=0.0, sync_ms=0.0,
            buffers_checkpoint=610 * second, buffers_clean=80 * second, maxwritten_clean=0,
            buffers_backend=310 * second, buffers_alloc=900 * second,
            redo_lsn_bytes=40 * GIB + wave(second // 60 * 60, 82 * MIB, 9 * MIB),
            checkpoint_time_ms=EPOCH_MS + second // 60 * 60_000, stats_reset_ms=EPOCH_MS - 86_400_000,
        ),
        "statements": StatementTotals(at_s, wave(second, 8_410, 900), 0.0, 120, 0, EPOCH_MS - 86_400_000, 4 * second),
        "parameters": ParameterSample(at_s - second % 60, PARAMETERS),
    }  # fmt: skip
    return PostgresSample(**(values | other))  # type: ignore[arg-type]


def bench_sample(second: int, number: int = 1, **other: object) -> BenchSample:
    """pgbench in its `second`-th second: one progress line, one complete second of latencies."""
    tps = 1_200.0 + 180.0 * math.sin(second / 9.0)
    milliseconds = (4.1, 6.2, 7.1, 8.8, 10.4, 14.2, 31.0, 120.0)
    weights = (210, 330, 250, 140, 120, 90, 40, 2)
    buckets: dict[int, int] = {}
    for latency_ms, weight in zip(milliseconds, weights, strict=True):
        index = bucket_of(int(1000 * latency_ms * (1.0 + 0.2 * math.sin(second / 9.0))))
        buckets[index] = buckets.get(index, 0) + weight
    values: dict[str, object] = {
        "run": BenchRun(
            run=number, profile="tpcb-like", command="pgbench -n -c 16 -j 4 -T 300 -M prepared", pgbench_version="18.6",
            pid=4_000, started_ms=EPOCH_MS, state=RunState.RUNNING, clients=CLIENTS, threads=4, duration_s=300,
            rate_per_s=None, protocol="prepared", sampling_rate=1.0,
        ),
        "progress": (BenchProgress(float(second), tps, 8.3, 3.1),),
        "latencies": (
            LatencySecond(
                EPOCH_MS // 1000 + second - 1, sum(weights), 9_800_000, 340_000, tuple(sorted(buckets.items()))
            ),
        ),
    }  # fmt: skip
    return BenchSample(float(second), **(values | other))  # type: ignore[arg-type]


EVENTS: Final = {
    12: (EventKind.LOAD, "tpcb-like 16 clients"),
    20: (EventKind.PARAMETER, "max_wal_size 1GB→16GB"),
    44: (EventKind.CHECKPOINT, "ckpt(wal)"),
    60: (EventKind.AUTOVACUUM, "vacuum accounts"),
    78: (EventKind.NOTE, '"more clients"'),
    100: (EventKind.LOAD, "clients 16→32"),
}
"""What happens at which second of a session."""


def frame(
    sequence: int,
    *,
    backends: int = CLIENTS,
    load: bool = True,
    cores: int = CORES,
    host: HostSample | Unavailable | None = None,
    postgres: PostgresSample | Unavailable | None = None,
    bench: BenchSample | Unavailable | None = None,
    events: Sequence[Event] | None = None,
    pooler: PoolerSample | Unavailable = NO_POOLER,
    interval_s: float | None = None,
) -> Frame:
    """The frame of that second of the made-up session.

    Args:
        sequence: Also the seconds since the session began.
        backends: Busy clients; as many idle ones come with them.
        load: Whether pgbench runs.
        cores: Of the machine.
        host, postgres, bench, events: In place of the made-up ones.
        pooler: Poolers; none were named.
        interval_s: Seconds between frames that were asked for.
    """
    if postgres is None:
        postgres = postgres_sample(sequence, backends)
    if host is None:
        activity = NOT_RECORDED if isinstance(postgres, Unavailable) else postgres.activity
        pids = [] if isinstance(activity, Unavailable) else [row.pid for row in activity.backends]
        host = host_sample(sequence, pids, cores)
    if bench is None:
        bench = bench_sample(sequence) if load else Unavailable(Reason.NO_LOAD)
    if events is None:
        happened = EVENTS.get(sequence)
        events = () if happened is None else (Event(EPOCH_MS + sequence * 1000, *happened),)
    return Frame(
        sequence=sequence,
        taken_at_ms=EPOCH_MS + sequence * 1000,
        elapsed_s=float(sequence),
        host=host,
        postgres=postgres,
        bench=bench,
        footprint=Footprint(
            at_s=float(sequence), cpu_s=0.014 * sequence, rss_bytes=52 * MIB, statements=14 * sequence,
            statement_ms=3.1 * sequence, terminal_bytes=1_946 * sequence,
        ),
        events=tuple(events),
        pooler=pooler,
        interval_s=interval_s,
    )  # fmt: skip


def session_of(
    n_seconds: int,
    *,
    charted: Sequence[Charted] = (),
    backends: int = CLIENTS,
    load: bool = True,
    cores: int = CORES,
    change: Callable[[int], dict[str, object]] | None = None,
) -> Session:
    """A session that has seen so many frames, one a second.

    Args:
        n_seconds: Frames 0 … n_seconds − 1.
        charted: Metrics whose series are kept.
        backends, load, cores: As for `frame`.
        change: Second → other arguments of `frame`, for outages, restarts and the like.
    """
    session = Session(charted)
    for second in range(n_seconds):
        arguments: dict[str, object] = {"backends": backends, "load": load, "cores": cores}
        if change is not None:
            arguments |= change(second)
        session.apply(Step((frame(second, **arguments),)))  # type: ignore[arg-type]
    return session
