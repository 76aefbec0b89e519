"""A run of pgbench, in one process or in several: its start, the changes of its load, its end.

All calls come from one event loop.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from asyncio import FIRST_COMPLETED
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.base.secret import without_secrets
from pgtop_tune.bench.commit_log import OutageClients
from pgtop_tune.bench.groups import (
    GroupListener,
    GroupOrder,
    MergedProgress,
    PgbenchGroup,
    merged_report,
    shared_level,
    staying,
    wall_ms,
)
from pgtop_tune.bench.messages import hint_for, is_refused, last_words, with_script
from pgtop_tune.bench.phases import LoadStep
from pgtop_tune.bench.silences import Silences
from pgtop_tune.bench.transaction_log import LogStatistics
from pgtop_tune.model.bench import (
    BenchProgress,
    BenchReport,
    BenchRun,
    LatencySecond,
    LoadLevel,
    PhaseSpan,
    RunState,
    Seam,
    Silence,
)

_KEPT: Final = 3600
"""Progress lines and seconds kept for a sampler that does not come."""
_READ_EVERY_S: Final = 1.0
"""Between two reads of the log at most, however seldom a sampler comes."""
_PACE: Final = 5
"""Seconds whose mean is the pace before a seam."""

OVER: Final = (RunState.STOPPED, RunState.FINISHED, RunState.FAILED)


StartGroup = Callable[[GroupOrder], Awaitable[PgbenchGroup]]
"""Starts a pgbench of a run; raises LoadProblem where it cannot be started."""


class _OpenSeam(Struct):
    """A seam whose seconds are not all known. `until_ms` is None while clients end or begin."""

    from_ms: int
    before: LoadLevel
    level: LoadLevel
    pace: float | None
    until_ms: int | None = None
    connection_ms: float | None = None
    lost: float = 0.0

    def closed(self, now_ms: int) -> Seam:
        is_known = self.pace is not None and self.level.clients and self.before.clients
        return Seam(
            from_ms=self.from_ms,
            until_ms=self.until_ms or now_ms,
            before=self.before,
            level=self.level,
            connection_ms=self.connection_ms,
            # New clients may do more in it than were done before.
            lost=max(self.lost, 0.0) if is_known else None,
        )

    def take(self, line: BenchProgress) -> None:
        """Take a second of the seam."""
        if self.pace is not None:
            rate, fewer = self.level.rate_per_s, self.level.clients / max(self.before.clients, 1)
            self.lost += min(self.pace, self.pace * fewer if rate is None else rate) - line.tps


class PgbenchRun:
    """A run of pgbench, in one process or, where its load changes or comes from several machines, in several.

    Made and begun by `start_run`.

    Args:
        facts: As a frame has it; its clients and rate are those at the begin.
        start_group: Starts a process.
        generators: Number of the machines that the clients are shared by.
        steps: Its phases; none for a load that stays.

    Attributes:
        facts: As a frame has it; replaced as the state changes.
        report: pgbench's final report, of several the sum; None while it runs and where there was none.
    """

    def __init__(
        self, facts: BenchRun, start_group: StartGroup, generators: int = 1, steps: Sequence[LoadStep] = ()
    ) -> None:
        self.facts = facts
        self.report: BenchReport | None = None
        self._start_group = start_group
        self._listener = GroupListener(
            take_line=self._take_line,
            take_end=self._take_end,
            take_message=self._take_message,
            take_attempt=self._take_attempt,
        )
        self._generators = generators
        self._steps = steps
        self._level = self._wanted = LoadLevel(facts.clients, facts.rate_per_s)
        self._groups: list[PgbenchGroup] = []
        self._generator_of: dict[int, int] = {}
        self._merged = MergedProgress()
        self._progress: deque[BenchProgress] = deque(maxlen=_KEPT)
        self._latencies: deque[LatencySecond] = deque(maxlen=_KEPT)
        self._silences = Silences()
        self._pace: deque[float] = deque(maxlen=_PACE)
        self._gaps: list[tuple[float, float]] = []
        self._open_seams: list[_OpenSeam] = []
        self._seams: list[Seam] = []
        self._taken_s = time.monotonic()
        self._zero_s: float | None = None
        self._changing = asyncio.Lock()
        self._closing = asyncio.Event()
        self._last = asyncio.Event()
        self._stopping = False
        self._timed = False
        self._failed: PgbenchGroup | None = None
        self._problem = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._life: asyncio.Task[None] | None = None

    @property
    def over(self) -> bool:
        """Return whether pgbench is gone and all of its output was read."""
        return self.facts.state in OVER

    @property
    def level(self) -> LoadLevel:
        """Return the clients and the rate that are wanted last."""
        return self._wanted

    async def begin(self) -> None:
        """Start pgbench. Raises LoadProblem where it cannot be started; then none runs."""
        try:
            parts = enumerate(shared_level(self._level, self._generators))
            await self._start(parts, self.facts.started_ms, bounded=not self._steps)
        except BaseException:
            await asyncio.shield(self._end_groups())
            raise
        first = self._groups[0].facts
        self.facts = replace(
            self.facts, command=first.command, pid=first.pid, machine=self.facts.machine or first.machine,
            clock_ahead_ms=first.clock_ahead_ms, clock_uncertain_ms=first.clock_uncertain_ms, threads=first.threads,
        )  # fmt: skip
        self._life = asyncio.create_task(self._live())
        if self._steps:
            self._go(self._follow_phases())

    async def change(self, level: LoadLevel) -> None:
        """Change clients and rate, or pause. Returns once the new clients run.

        Raises:
            LoadProblem: New clients cannot be started; those that are there go on.
        """
        self._wanted = level
        async with self._changing:
            if self._wanted != self._level and not self._closing.is_set() and not self.over:
                await self._change(self._wanted)

    def take(self) -> tuple[tuple[BenchProgress, ...], tuple[LatencySecond, ...]]:
        """Return progress lines and seconds of the log since the last call; reads `MOST_BYTES` of each log at most."""
        self._taken_s = time.monotonic()
        self._read_logs()
        progress, latencies = tuple(self._progress), tuple(self._latencies)
        self._progress.clear()
        self._latencies.clear()
        return progress, latencies

    def silences(self) -> tuple[Silence, ...]:
        """Return the silences that ended since the last call, and the one that lasts."""
        return self._silences.take()

    def seams(self) -> tuple[Seam, ...]:
        """Return the changes of the load that ended since the last call."""
        seams = tuple(self._seams)
        self._seams.clear()
        return seams

    def output(self) -> tuple[str, str]:
        """Return stdout and stderr, bounded, without progress lines. Foreign text."""
        heads = [
            f"-- pgbench {group.facts.number}: {group.facts.clients} clients {group.facts.machine}\n"
            if len(self._groups) > 1
            else ""
            for group in self._groups
        ]
        outputs = [(group.stdout.text(), group.stderr.text()) for group in self._groups]
        stdout, stderr = (
            "".join(f"{head}{text}" for head, text in zip(heads, texts, strict=True) if text)
            for texts in zip(*outputs, strict=True)
        )
        return stdout, stderr

    def statistics(self) -> LogStatistics:
        """Return the counts of the lines that were read, of all logs."""
        read = [group.log.statistics() for group in self._groups]
        return LogStatistics(
            lines=sum(log.lines for log in read),
            failed=sum(log.failed for log in read),
            skipped=sum(log.skipped for log in read),
            unreadable=sum(log.unreadable for log in read),
            punches=all(log.punches for log in read),
        )

    async def stop(self, ended_for: str = "", reason: str = "") -> None:
        """End all processes, each as `PgbenchGroup.stop`. Returns when they are gone.

        Args:
            ended_for: OVERLOADED or ABORTED; "" where the operator ends it.
            reason: A sentence.
        """
        if not self.over:
            self.facts = replace(self.facts, ended_for=ended_for, message=reason)
            self._stopping = True
            await self._end()
        await self.ended()

    async def fail(self, reason: str) -> None:
        """End all processes; the run has failed for that reason."""
        if not self.over and not self._stopping:
            self._problem = reason
            await self._end()
        await self.ended()

    @property
    def opening(self) -> int | None:
        """See `PgbenchRunner.opening`."""
        pid = self.facts.pid
        if pid is None or self.facts.state is not RunState.STARTING:
            return None
        try:
            return len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            return None

    @property
    def lost_connections(self) -> str:
        """See `PgbenchRunner.lost_connections`."""
        texts = (group.stderr.text() for group in self._running())
        return next((failure_words(text, None, self.facts.scripts) for text in texts if is_refused(text)), "")

    @property
    def outage_clients(self) -> OutageClients | None:
        """See `PgbenchRunner.outage_clients`."""
        return None

    async def ended(self) -> None:
        """Wait for the end of the run."""
        assert self._life is not None
        await asyncio.shield(self._life)

    async def _live(self) -> None:
        reading = asyncio.create_task(self._keep_reading())
        try:
            await self._last.wait()
        finally:
            for task in (reading, *self._tasks):
                task.cancel()
            for group in self._groups:
                if not group.over:
                    # Only a cancelled event loop comes here.
                    group.kill()
            self._finish()

    async def _keep_reading(self) -> None:
        """Keep the logs short where samplers come seldom, and yield to the event loop where there is much to read."""
        while True:
            await asyncio.sleep(_READ_EVERY_S)
            self._give(self._merged.rest(wall_ms()))
            if time.monotonic() - self._taken_s >= _READ_EVERY_S:
                self._read_logs()
            while any(group.log.behind for group in self._groups if not group.over):
                await asyncio.sleep(0)
                self._read_logs()

    # Groups that begin, speak and end.

    async def _start(
        self, parts: Iterable[tuple[int, LoadLevel]], started_ms: int, *, bounded: bool
    ) -> list[PgbenchGroup]:
        """Start a group for each generator and its part of the load."""
        parts_with_clients = [(generator, part) for generator, part in parts if part.clients]
        first = len(self._groups) + 1
        if first + len(parts_with_clients) > 2:
            self._merged.divide()
        for number, (generator, _) in enumerate(parts_with_clients, first):
            self._generator_of[number] = generator
        started = await asyncio.gather(
            *(
                self._start_group(
                    GroupOrder(
                        number=number,
                        level=part,
                        listener=self._listener,
                        started_ms=started_ms,
                        generator=generator,
                        bounded=bounded,
                    )
                )
                for number, (generator, part) in enumerate(parts_with_clients, first)
            ),
            return_exceptions=True,
        )
        groups = [group for group in started if isinstance(group, PgbenchGroup)]
        self._groups += groups
        self._tell_groups()
        for problem in started:
            if isinstance(problem, BaseException):
                raise problem
        return groups

    def _running(self) -> list[PgbenchGroup]:
        return [group for group in self._groups if not group.over]

    def _tell_groups(self) -> None:
        self.facts = replace(self.facts, groups=tuple(group.facts for group in self._groups))

    def _take_line(self, group: PgbenchGroup, line: BenchProgress) -> None:
        heard_ms = wall_ms()
        lines = self._merged.hear(group.facts.number, line, heard_ms)
        if group.facts.connection_ms is None:
            began_ms = heard_ms - 1000.0 * line.elapsed_s
            group.facts = replace(group.facts, connection_ms=max(began_ms - group.spawned_ms, 0.0))
            self._tell_groups()
        self._is_at_work()
        self._give(lines)

    def _take_message(self, group: PgbenchGroup, line: str) -> None:
        """Take a line of stderr that is no progress."""

    def _take_attempt(self, group: PgbenchGroup, report: str) -> None:
        """Take a report of `process/attempts`."""

    def _take_end(self, group: PgbenchGroup) -> None:
        self._take_seconds(group)
        if not group.leaving and group.status not in (0, None):
            message = failure_words(group.stderr.text(), group.status, self.facts.scripts)
            group.facts = replace(group.facts, problem=message)
        self._tell_groups()
        self._give(self._merged.leave(group.facts, group.report))
        if group.leaving or self._closing.is_set():
            return
        running = self._running()
        if group.status == 0 and any(live_group.bounded for live_group in running):
            return
        if group.facts.problem:
            # Another machine's load stands.
            if any(live_group.facts.machine != group.facts.machine for live_group in running):
                return
            self._failed = group
        self._closing.set()
        self._go(self._end())

    def _go(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self) -> None:
        """End all groups; a change under way gives up first."""
        self._closing.set()
        async with self._changing:
            await self._end_groups()
            self._last.set()

    async def _end_groups(self) -> None:
        await asyncio.gather(*(group.stop() for group in self._running()))

    # Changes of the load.

    async def _change(self, level: LoadLevel) -> None:
        before, from_ms = self._level, wall_ms()
        self._merged.divide()
        pace = sum(self._pace) / len(self._pace) if self._pace else None
        seam = _OpenSeam(from_ms=from_ms, before=before, level=level, pace=pace)
        self._open_seams.append(seam)
        if not self._gaps or self._gaps[-1][1] != math.inf:
            self._gaps.append((from_ms, math.inf))
        leaving, missing = self._regrouped(level)
        try:
            await asyncio.gather(*(group.stop() for group in leaving))
            if not self._closing.is_set():
                await self._begin_groups(missing, seam)
        finally:
            running = sum(group.facts.clients for group in self._running())
            self._level = level if running == level.clients else replace(level, clients=running)
            seam.until_ms = wall_ms()
            if running:
                self._gaps[-1] = (self._gaps[-1][0], seam.until_ms)
            self.facts = replace(
                self.facts, clients=running or self.facts.clients, rate_per_s=level.rate_per_s, paused=not running
            )
            if self.facts.duration_s is not None and not self._steps and not self._timed:
                self._timed = True
                self._go(self._end_in_time())

    def _regrouped(self, level: LoadLevel) -> tuple[list[PgbenchGroup], list[tuple[int, LoadLevel]]]:
        """Return the groups that end, and the clients that begin, by generator."""
        leaving, missing = [], []
        for generator, part in enumerate(shared_level(level, self._generators)):
            groups = [group for group in self._running() if self._generator_of[group.facts.number] == generator]
            clients = [group.facts.clients for group in groups]
            rates = [group.facts.rate_per_s for group in groups]
            now = LoadLevel(sum(clients), None if None in rates or not rates else sum(filter(None, rates)))
            stays = staying(clients, now, part)
            leaving += [group for group, stay in zip(groups, stays, strict=True) if not stay]
            clients_missing = part.clients - sum(count for count, stay in zip(clients, stays, strict=True) if stay)
            missing.append((generator, replace(part, clients=clients_missing)))
        return leaving, missing

    async def _begin_groups(self, missing: Sequence[tuple[int, LoadLevel]], seam: _OpenSeam) -> None:
        begun = await self._start(missing, seam.from_ms, bounded=False)
        if begun:
            waits = [asyncio.create_task(group.begun.wait()) for group in begun]
            closing = asyncio.create_task(self._closing.wait())
            try:
                await asyncio.wait(
                    (asyncio.ensure_future(asyncio.gather(*waits)), closing), return_when=FIRST_COMPLETED
                )
            finally:
                for task in (*waits, closing):
                    task.cancel()
            times = [group.facts.connection_ms for group in begun if group.facts.connection_ms is not None]
            seam.connection_ms = max(times, default=None)

    async def _follow_phases(self) -> None:
        await asyncio.gather(*(group.begun.wait() for group in self._groups))
        due_s = 0.0
        try:
            for step in self._steps:
                if step.level != self._wanted:
                    await self.change(step.level)
                due_s += step.seconds
                self._tell_span(step)
                await asyncio.sleep(max(due_s - self._elapsed_s(), 0.0))
        except LoadProblem as problem:
            self._problem = str(problem)
        await self._end()

    def _tell_span(self, step: LoadStep) -> None:
        """Begin a span where its change began: the seam is left out by itself."""
        spans = list(self.facts.spans)
        from_ms = wall_ms()
        if spans and self._open_seams and self._open_seams[-1].level == step.level:
            from_ms = self._open_seams[-1].from_ms
        if not spans:
            from_ms = round(self._merged.zero_ms or from_ms)
        spans[-1:] = [replace(span, until_ms=from_ms) for span in spans[-1:]]
        self.facts = replace(self.facts, spans=(*spans, PhaseSpan(step.phase, step.level, from_ms)))

    async def _end_in_time(self) -> None:
        """End the run where the group with its duration has been replaced."""
        await asyncio.sleep(max((self.facts.duration_s or 0) - self._elapsed_s(), 0.0))
        await self._end()

    def _elapsed_s(self) -> float:
        """Return the seconds since the run's clock began, also where the wall's is set; 0.0 before."""
        if self._zero_s is None and self._merged.zero_ms is not None:
            self._zero_s = time.monotonic() - (wall_ms() - self._merged.zero_ms) / 1000.0
        return 0.0 if self._zero_s is None else time.monotonic() - self._zero_s

    # Lines and seconds of the run.

    def _give(self, lines: Iterable[BenchProgress]) -> None:
        """Take complete lines of the run."""
        self._elapsed_s()
        for line in lines:
            end_ms = (self._merged.zero_ms or 0.0) + 1000.0 * line.elapsed_s
            is_left_out = self._is_left_out(end_ms)
            for seam in self._open_seams:
                if end_ms > seam.from_ms and (seam.until_ms is None or end_ms - 1000.0 < seam.until_ms):
                    seam.take(line)
            self._progress.append(replace(line, left_out=True) if is_left_out else line)
            if is_left_out:
                # The pace of another level is none of the next one.
                self._pace.clear()
                self._silences.rest(line, wall_ms())
            else:
                self._pace.append(line.tps)
                self._silences.hear(line, wall_ms())
            self._close_seams(end_ms)

    def _is_left_out(self, end_ms: float) -> bool:
        """Return whether no figure includes the second that ended then."""
        return any(since < end_ms and until > end_ms - 1000.0 for since, until in self._gaps)

    def _close_seams(self, known_ms: float) -> None:
        while self._open_seams and (until_ms := self._open_seams[0].until_ms) is not None and until_ms <= known_ms:
            self._seams.append(self._open_seams.pop(0).closed(until_ms))

    def _read_logs(self) -> None:
        for group in self._running():
            group.read_log()
            self._take_seconds(group)

    def _take_seconds(self, group: PgbenchGroup) -> None:
        for second in group.seconds:
            is_left_out = self._is_left_out(1000.0 * (second.second + 1))
            self._latencies.append(replace(second, left_out=True) if is_left_out else second)
        group.seconds.clear()
        self._silences.read(self._latencies, wall_ms())
        if self._latencies:
            self._is_at_work()

    def _is_at_work(self) -> None:
        if self.facts.state is RunState.STARTING:
            self.facts = replace(self.facts, state=RunState.RUNNING)

    def _finish(self) -> None:
        ended_ms = wall_ms()
        self._silences.end(ended_ms)
        self._seams += [seam.closed(ended_ms) for seam in self._open_seams]
        self._open_seams.clear()
        self.report = merged_report(self._reports())
        decisive = self._failed or self._groups[-1]
        is_failure = self._failed is not None or bool(self._problem)
        state = RunState.STOPPED if self._stopping else RunState.FAILED if is_failure else RunState.FINISHED
        message = (self._problem or decisive.facts.problem) if state is RunState.FAILED else self.facts.message
        spans = [replace(span, until_ms=span.until_ms or ended_ms) for span in self.facts.spans]
        self.facts = replace(
            self.facts, state=state, exit_status=decisive.status, message=message, paused=False, spans=tuple(spans)
        )

    def _reports(self) -> list[BenchReport]:
        """Return the reports; of a group that died without one, while others have theirs, the counts of its log."""
        reports = [group.report for group in self._groups if group.report is not None]
        logs = [group.log.statistics() for group in self._groups if group.report is None]
        return reports and [
            *reports,
            *(BenchReport(processed=log.lines, failed=log.failed, skipped=log.skipped) for log in logs),
        ]


def failure_words(stderr: str, exit_status: int | None, scripts: Sequence[str]) -> str:
    """Return why pgbench ended, with a hint on a line of its own."""
    message = without_secrets(last_words(stderr)) or _silent_end(exit_status)
    hint = hint_for(message)
    message = with_script(message, stderr, scripts)
    return f"{message}\nhint: {hint}" if hint else message


def _silent_end(exit_status: int | None) -> str:
    if exit_status is not None and exit_status < 0:
        return f"signal {-exit_status} ended pgbench"
    return f"pgbench printed nothing; exit status {exit_status}"
