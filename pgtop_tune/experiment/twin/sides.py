"""A copy with its load: its figures over the seconds of a block."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.bench.ports import SqlSession
from pgtop_tune.bench.runner import PgbenchRunner
from pgtop_tune.cluster.copied_server import CopiedServer
from pgtop_tune.compare.sides.figures import line_sums
from pgtop_tune.compare.sides.gathered import LatencySums
from pgtop_tune.errors import ClusterProblem
from pgtop_tune.experiment.switchback.blocks import Arm, Block
from pgtop_tune.experiment.twin.processes import TICKS_PER_S, cpu_ms, threads
from pgtop_tune.experiment.twin.server_log import ServerLog
from pgtop_tune.metrics.client_bound import never_slept, thread_use
from pgtop_tune.metrics.load import UNDER_WAY
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchProgress, LatencySecond, RunState
from pgtop_tune.model.host import ThreadCounters

LATE_S: Final = 0.3
"""After a block, for the line of its last second."""
_WAL: Final = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8"


class SideCounters(Struct, frozen=True):
    """Of a copy at one moment; WAL since the copy exists, CPU time since it was started.

    Attributes:
        cpu_ms: Of the server.
        load_ms: CPU time of its load.
        half_ms, steal_ms: Of the CPUs that it had; None where the CPUs are shared.
        generator: Threads of its load by id.
    """

    wal_bytes: float
    cpu_ms: float
    load_ms: float
    half_ms: float | None
    steal_ms: float | None
    generator: Mapping[int, ThreadCounters]


class Span(Struct, frozen=True):
    """Seconds of both copies, by the wall clock, with the counters at either end.

    Attributes:
        cpus: Of the machine.
        checkpoint: Share of the time in which a checkpoint of the copy was under way.
    """

    began_s: float
    ended_s: float
    cpus: int
    checkpoint: float
    first: SideCounters
    last: SideCounters


class Side:
    """A copy and the pgbench that loads it. All calls come from one event loop.

    Attributes:
        server: The copy.
        runner: Its load.
        log: Of the copy.
        trouble: Why its load goes on no more, or its server; "" while they do.
        tps: Second by second, of the load under way.
    """

    def __init__(self, server: CopiedServer, runner: PgbenchRunner) -> None:
        self.server: Final = server
        self.runner: Final = runner
        self.log: Final = ServerLog(server.log_file)
        self.trouble = ""
        self.tps: list[float] = []
        self._lines: list[tuple[float, float, BenchProgress]] = []
        self._seconds: list[LatencySecond] = []
        self._line_s = 0.0
        self._pgbench_pid: int | None = None

    def begin(self) -> None:
        """A new load is going to be started."""
        self._line_s, self.trouble, self.tps, self._pgbench_pid = 0.0, "", [], None

    @property
    def has_begun(self) -> bool:
        """Whether the load has told its first second."""
        return self._line_s > 0.0

    def collect(self) -> None:
        """Takes what the load has told since; often, as a line counts from its arrival."""
        now_s = time.time()
        self.log.look()
        sample = self.runner.sample(now_s)
        if isinstance(sample, Unavailable):
            return
        self._pgbench_pid = sample.run.pid
        for line in sample.progress:
            self._lines.append((now_s, line.elapsed_s - self._line_s, line))
            self._line_s = line.elapsed_s
            self.tps.append(line.tps)
        self._seconds += sample.latencies
        if sample.run.state not in UNDER_WAY:
            words = sample.run.message.splitlines()[0] if sample.run.message else ""
            self.trouble = f"the load failed: {words}" if sample.run.state is RunState.FAILED else "the load ended"

        if self.log.crash or not self._runs:
            self.trouble = f"its server crashed: {self.log.crash}" if self.log.crash else "its server ended"

    @property
    def _runs(self) -> bool:
        try:
            return self.server.postmaster_pid > 0
        except ClusterProblem:
            return False

    @property
    def pids(self) -> tuple[int, ...]:
        """Server and load: all that descends from them is on their half of the CPUs."""
        pids = (self.server.postmaster_pid, self._pgbench_pid)
        return tuple(pid for pid in pids if pid is not None)

    async def wal_bytes(self, sql_session: SqlSession) -> float:
        """Written since the copy exists."""
        rows = await sql_session.rows(_WAL)
        return float(str(rows[0][0]))

    def counters(self, wal_bytes: float, half_ms: float | None, steal_ms: float | None) -> SideCounters:
        """Now; see `SideCounters`."""
        load = self._pgbench_pid
        return SideCounters(
            wal_bytes=wal_bytes,
            cpu_ms=cpu_ms(self.server.postmaster_pid),
            load_ms=0.0 if load is None else cpu_ms(load),
            half_ms=half_ms,
            steal_ms=steal_ms,
            generator={} if load is None else threads(load),
        )

    def block(self, arm: Arm, span: Span) -> Block:
        """The figures of whole seconds within a span; latencies may still come."""
        sums: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        tps = []
        for came_s, lasted_s, line in self._lines:
            if came_s - lasted_s < span.began_s or came_s > span.ended_s + LATE_S:
                continue
            tps.append(line.tps)
            for name, part, whole in line_sums(line, lasted_s):
                sums[name][0] += part
                sums[name][1] += whole
        latencies = LatencySums()
        for second in self._seconds:
            if math.ceil(span.began_s) <= second.second < int(span.ended_s):
                latencies.add(second)
        merged = latencies.merged()
        seconds = span.ended_s - span.began_s
        found = Block(
            arm=arm,
            began_ms=round(1000.0 * span.began_s),
            began_s=span.began_s,
            seconds=seconds,
            settled_s=0.0,
            tps=tuple(tps),
            sums={name: (part, whole) for name, (part, whole) in sums.items()},
            latencies=merged if merged.logged else None,
            checkpoint=span.checkpoint,
            generator=_generator(span),
        )
        done = found.mean_tps * seconds
        first, last = span.first, span.last
        per_transaction = {
            "wal_per_tx": (last.wal_bytes - first.wal_bytes, done),
            "cpu_per_tx": (last.cpu_ms - first.cpu_ms, done),
        }
        found = replace(found, sums={**found.sums, **per_transaction})
        return found if span.cpus == 0 else _with_cpu(found, span)


def _with_cpu(block: Block, span: Span) -> Block:
    """The block with the CPU time on its half, as a share of that of all CPUs."""
    first, last = span.first, span.last
    if first.half_ms is None or last.half_ms is None or first.steal_ms is None or last.steal_ms is None:
        return block
    whole_ms = 1000.0 * (span.ended_s - span.began_s) * span.cpus
    half_ms = last.half_ms - first.half_ms
    own_ms = last.cpu_ms - first.cpu_ms + last.load_ms - first.load_ms
    return replace(
        block,
        sums={**block.sums, "cpu": (100.0 * half_ms, whole_ms)},
        foreign=100.0 * max(half_ms - own_ms, 0.0) / whole_ms,
        steal=100.0 * (last.steal_ms - first.steal_ms) / whole_ms,
        cpus=span.cpus,
    )


def _generator(span: Span) -> str:
    """Why the load is the limit; "" where it is not."""
    seconds = span.ended_s - span.began_s
    before = span.first.generator
    return never_slept(
        thread_use(before[tid], thread, seconds, TICKS_PER_S)
        for tid, thread in span.last.generator.items()
        if tid in before and before[tid].start_ticks == thread.start_ticks
    )
