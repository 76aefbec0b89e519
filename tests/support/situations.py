"""Made-up situations: frames of a server under a load with given waits, CPU use and counters per second.

    session = Situation(waits={"IO:WalSync": 1.0, "LWLock:WALWrite": 13.0}, latency_ms=31.0, tps=520).session()

Everything is steady from frame 0 on, so means of ten seconds are the numbers given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import BenchProgress, BenchSample
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import (
    CpuSample,
    CpuTimes,
    DiskSample,
    HostSample,
    OtherProgram,
    PressureLine,
    PressureSample,
    ProcessCounters,
    ProcessSample,
    ThreadCounters,
)
from pgtop_tune.model.io import DatabaseRow, DatabaseSample
from pgtop_tune.model.postgres import Activity, DatabaseCounters, Parameter, ParameterSample, WalCounters
from pgtop_tune.model.waits import WaitCount, WaitSample
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.session import Session
from tests.support.frames import (
    EPOCH_MS,
    FIRST_PID,
    backend,
    bench_sample,
    facts,
    frame,
    parameter,
    postgres_sample,
)
from tests.support.machine_frames import TICKS, host_sample

LOOKS = 100
"""Of each second: so that small means come out exactly."""
PGBENCH = 4_000
OTHER_PROCESS = 9_999
Rate = float


class Situation(Struct, frozen=True, kw_only=True):
    """What goes on, the same in every second.

    Attributes:
        waits: Mean sessions of the load by wait ("IO:WalSync"); "Client:turn" is idle in transaction.
        beside: Mean processes by (backend type, wait).
        latency_ms, tps: As pgbench measures them; tps 0 is a load that does not end anything.
        load: Whether pgbench runs.
        clients: Of the load.
        cpu: CPUs the load's backends use; `queued` of them wait for one.
        cpus: Of the machine.
        busy: Per cent of them that are busy; `system` of it the kernel's, `steal` the hypervisor's.
        pgbench: CPU and waiting for a CPU of each of its threads, per cent.
        programs: The busiest of others.
        counters: Growth per second of counters, by "section.field": "wal.wal_syncs".
        gauges: Values of fields by the same names.
        parameters: Rows of pg_settings beside the made-up ones, by name.
        backends: The sessions at a second; the load's without.
        change: Second → sections of the server and the host in place of the made-up ones.
    """

    waits: Mapping[str, float] = {}
    beside: Mapping[tuple[str, str], float] = {}
    latency_ms: float = 10.0
    tps: float = 1000.0
    lag_ms: float | None = None
    rate_per_s: float | None = None
    load: bool = True
    clients: int = 16
    cpu: float = 1.0
    queued: float = 0.0
    cpus: int = 4
    busy: float = 50.0
    system: float = 10.0
    steal: float = 0.0
    pgbench: tuple[tuple[float, float], ...] = ((20.0, 0.0),)
    programs: tuple[OtherProgram, ...] = ()
    counters: Mapping[str, Rate] = {}
    gauges: Mapping[str, Any] = {}
    parameters: tuple[Parameter, ...] = ()
    backends: Callable[[int, int], tuple[Any, ...]] | None = None
    server: Mapping[str, Callable[[int], Any]] = {}
    host: Mapping[str, Callable[[int], Any]] = {}
    bench: Mapping[str, Any] = {}
    version_num: int = 180006

    def session(self, seconds: int = 40) -> Session:
        """A session that has seen so many of its seconds."""
        session = Session()
        for second in range(seconds):
            session.apply(Step((self.frame(second),)))
        return session

    def interval(self, seconds: int = 40) -> Interval:
        """Its frames."""
        return Interval([self.frame(second) for second in range(seconds)])

    def frame(self, second: int) -> Frame:
        """Of one second."""
        return frame(
            second,
            postgres=postgres_sample(second, **self._server(second)),
            host=self._host(second),
            bench=self._bench(second),
            events=(),
        )

    def _server(self, second: int) -> dict[str, Any]:
        at_s, now_ms = float(second), EPOCH_MS + 1000 * second
        rows = self.backends(second, now_ms) if self.backends else self.of_load(now_ms)
        found: dict[str, Any] = {
            "server": facts(version_num=self.version_num),
            "activity": Activity(at_s, now_ms, rows),
            "waits": WaitSample(at_s, LOOKS, tuple(self._counts())),
            "database": self._counted("database", _DATABASE, second),
            "databases": DatabaseSample(at_s, (self._counted("databases", _DATABASE_ROW, second),)),
            "wal": self._counted("wal", _WAL, second),
            "parameters": ParameterSample(0.0, tuple({**_PARAMETERS, **_by_name(self.parameters)}.values())),
        }
        return found | {name: made(second) for name, made in self.server.items()}

    def _counts(self) -> list[WaitCount]:
        ours = [
            WaitCount(*_both(label), "client backend", round(mean * LOOKS), 7, "bench", "bench", self.load)
            for label, mean in self.waits.items()
        ]
        return ours + [
            WaitCount(*_both(label), kind, round(mean * LOOKS)) for (kind, label), mean in self.beside.items()
        ]

    def of_load(self, now_ms: int) -> tuple[Any, ...]:
        """The load's sessions, all active; where nothing ends they have begun nothing for a minute."""
        name = "pgbench" if self.load else "shop"
        begun = {} if self.load or self.tps else {"query_start_ms": now_ms - 60_000}
        return tuple(backend(FIRST_PID + n, now_ms, application_name=name, **begun) for n in range(self.clients))

    def _host(self, second: int) -> HostSample:
        at_s, pids = float(second), [FIRST_PID + n for n in range(self.clients)]
        each = self.cpu / max(self.clients, 1)
        delay = self.queued / max(self.clients, 1)
        rows = [
            ProcessCounters(
                pid=pid, start_ticks=pid, state="R", user_ticks=int(each * TICKS * second), system_ticks=0, rss_bytes=0,
                delay_ticks=None, run_delay_ms=round(delay * 1000 * second),
            )
            for pid in pids
        ]  # fmt: skip
        ours = sum(cpu for cpu, _ in self.pgbench)
        rows.append(
            ProcessCounters(
                pid=PGBENCH, start_ticks=7, state="S", user_ticks=round(ours * second), system_ticks=0, rss_bytes=0,
                delay_ticks=None,
            )
        )  # fmt: skip
        threads = tuple(
            ThreadCounters(
                tid=PGBENCH + n, pid=PGBENCH, start_ticks=7, user_ticks=round(cpu * second), system_ticks=0,
                run_delay_ms=round(delay * 10 * second),
            )
            for n, (cpu, delay) in enumerate(self.pgbench)
        )  # fmt: skip
        found: dict[str, Any] = {
            "cpu": self._cpu(second),
            "processes": ProcessSample(at_s, tuple(rows), threads=threads if self.load else (), others=self.programs),
            "disks": DiskSample(at_s, ()),
            "pressure": PressureSample(at_s, PressureLine(0, 0), PressureLine(0, 0), PressureLine(0, 0)),
        }
        return host_sample(
            second, pids, self.cpus, **(found | {name: made(second) for name, made in self.host.items()})
        )

    def _cpu(self, second: int) -> CpuSample:
        whole = self.cpus * TICKS * second * 10
        steal, system = int(whole * self.steal / 100), int(whole * self.system / 100)
        user = int(whole * self.busy / 100) - steal - system
        total = CpuTimes("cpu", user, 0, system, whole - user - system - steal, 0, 0, 0, steal, 0, 0)
        cores = tuple(replace(total, cpu=f"cpu{core}") for core in range(self.cpus))
        return CpuSample(float(second), total, cores, 0, 3, 0, 1.0, 1.0, 1.0)

    def _bench(self, second: int) -> BenchSample | Unavailable:
        if not self.load:
            return Unavailable(Reason.NO_LOAD)
        line = BenchProgress(float(second), self.tps, self.latency_ms, 1.0, lag_ms=self.lag_ms)
        made = bench_sample(second, progress=(line,), latencies=())
        run = replace(
            made.run, rate_per_s=self.rate_per_s, clients=self.clients, pid=PGBENCH, threads=len(self.pgbench)
        )
        return replace(made, run=run, **self.bench)

    def _counted(self, section: str, zero: Any, second: int) -> Any:
        grown = {
            key.removeprefix(f"{section}."): int(rate * second)
            for key, rate in {"database.xact_commit": self.tps, **self.counters}.items()
            if key.startswith(f"{section}.")
        }
        fixed = {
            key.removeprefix(f"{section}."): value
            for key, value in self.gauges.items()
            if key.startswith(f"{section}.")
        }
        times = {"at_s": float(second)} if hasattr(zero, "at_s") else {}
        return replace(zero, **grown, **fixed, **times)


def _both(label: str) -> tuple[str, str]:
    kind, _, event = label.partition(":")
    return kind, event


_DATABASE = DatabaseCounters(
    at_s=0.0, xact_commit=0, xact_rollback=0, blks_read=0, blks_hit=0, tup_returned=0, tup_fetched=0, tup_inserted=0,
    tup_updated=0, tup_deleted=0, conflicts=0, temp_files=0, temp_bytes=0, deadlocks=0, stats_reset_ms=None,
)  # fmt: skip
_DATABASE_ROW = DatabaseRow(
    datid=5, datname="bench", numbackends=1, xact_commit=0, xact_rollback=0, blks_read=0, blks_hit=0, tup_returned=0,
    tup_fetched=0, tup_inserted=0, tup_updated=0, tup_deleted=0, conflicts=0, temp_files=0, temp_bytes=0, deadlocks=0,
    checksum_failures=None, blk_read_us=0, blk_write_us=0, session_us=0, active_us=0, idle_in_transaction_us=0,
    sessions=0, sessions_abandoned=0, sessions_fatal=0, sessions_killed=0, stats_reset_ms=None,
)  # fmt: skip
_WAL = WalCounters(
    at_s=0.0, lsn_bytes=0, wal_records=0, wal_fpi=0, wal_bytes=0, wal_buffers_full=0, stats_reset_ms=None, wal_syncs=0,
    wal_sync_us=0,
)  # fmt: skip


def _by_name(rows: tuple[Parameter, ...]) -> dict[str, Parameter]:
    return {row.name: row for row in rows}


_PARAMETERS = _by_name(
    (
        parameter("checkpoint_timeout", "300", "5min", "s"),
        parameter("commit_delay", "0", "0"),
        parameter("idle_in_transaction_session_timeout", "0", "0", "ms"),
        parameter("max_connections", "100", "100"),
        parameter("max_locks_per_transaction", "64", "64"),
        parameter("max_wal_size", "1024", "1GB", "MB"),
        parameter("shared_buffers", "16384", "128MB", "8kB"),
        parameter("synchronous_standby_names", "", ""),
        parameter("wal_buffers", "512", "4MB", "8kB"),
        parameter("wal_compression", "off", "off", vartype="enum"),
    )
)
