"""A copy with its load: its figures over the seconds of a block."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.bench.ports import SqlSession
from pgtop_tune.bench.runner import PgbenchRunner
from pgtop_tune.cluster.copied_server import CopiedServer
from pgtop_tune.compare.sides.figures import line_sums
from pgtop_tune.compare.sides.gathered import LatencySums
from pgtop_tune.experiment.switchback.blocks import Arm, Block
from pgtop_tune.experiment.twin.processes import bind, cpu_ms
from pgtop_tune.metrics.load import UNDER_WAY
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchProgress, LatencySecond, RunState

LATE_S: Final = 0.3
"""After a block, for the line of its last second."""
_WAL: Final = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8"


class SideCounters(Struct, frozen=True):
    """Of a copy at one moment: WAL written and CPU time taken since it exists."""

    wal_bytes: float
    cpu_ms: float


class Span(Struct, frozen=True):
    """Seconds of both copies, by the wall clock, with the counters at either end."""

    began_s: float
    ended_s: float
    first: SideCounters
    last: SideCounters


class Side:
    """A copy and the pgbench that loads it. All calls come from one event loop.

    Attributes:
        server: The copy.
        runner: Its load.
        trouble: Why its load goes on no more; "" while it does.
    """

    def __init__(self, server: CopiedServer, runner: PgbenchRunner) -> None:
        self.server: Final = server
        self.runner: Final = runner
        self.trouble = ""
        self._lines: list[tuple[float, float, BenchProgress]] = []
        self._seconds: list[LatencySecond] = []
        self._line_s = 0.0
        self._pgbench_pid: int | None = None

    def begin(self) -> None:
        """A new load was started."""
        self._line_s, self.trouble = 0.0, ""

    @property
    def has_begun(self) -> bool:
        """Whether the load has told its first second."""
        return self._line_s > 0.0

    def collect(self) -> None:
        """Takes what the load has told since; often, as a line counts from its arrival."""
        now_s = time.time()
        sample = self.runner.sample(now_s)
        if isinstance(sample, Unavailable):
            return
        self._pgbench_pid = sample.run.pid
        for line in sample.progress:
            self._lines.append((now_s, line.elapsed_s - self._line_s, line))
            self._line_s = line.elapsed_s
        self._seconds += sample.latencies
        if sample.run.state not in UNDER_WAY:
            words = sample.run.message.splitlines()[0] if sample.run.message else ""
            self.trouble = f"the load failed: {words}" if sample.run.state is RunState.FAILED else "the load ended"

    def bind(self, cpus: tuple[int, ...]) -> None:
        """Lets server and load run on these CPUs only."""
        pids = (self.server.postmaster_pid, self._pgbench_pid)
        bind((pid for pid in pids if pid is not None), cpus)

    async def counters(self, sql_session: SqlSession) -> SideCounters:
        """Now."""
        rows = await sql_session.rows(_WAL)
        return SideCounters(float(str(rows[0][0])), cpu_ms(self.server.postmaster_pid))

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
        )
        done = found.mean_tps * seconds
        per_transaction = {
            "wal_per_tx": (span.last.wal_bytes - span.first.wal_bytes, done),
            "cpu_per_tx": (span.last.cpu_ms - span.first.cpu_ms, done),
        }
        return replace(found, sums={**found.sums, **per_transaction})
