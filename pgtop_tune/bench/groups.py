"""Groups of clients: several pgbench processes behind one run.

pgbench keeps its clients (-c) and its rate (-R) for as long as it runs. So a run whose load changes consists of groups,
processes that are started and ended while others go on. Their progress lines become lines of the run, their logs
seconds of the run, their reports one report: counts are added, percentiles never.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from msgspec import Struct
from msgspec.structs import asdict, replace

from pgtop_tune.bench.messages import BoundedText
from pgtop_tune.bench.places import Running
from pgtop_tune.bench.report import parse_progress, parse_report
from pgtop_tune.bench.transaction_log import LogStatistics
from pgtop_tune.model.bench import (
    BenchProgress,
    BenchReport,
    ClientGroup,
    LatencySecond,
    LoadLevel,
    ScriptReport,
    StatementReport,
)
from pgtop_tune.process.attempts import AGAIN

STOP_GRACE_S: Final = 3.0
"""For pgbench to end in order: transactions under way are finished, log and report are written."""
_SIGNALLED: Final = 128
"""`Running.follow` returns more where a signal ended the program."""
_PATIENCE_S: Final = 3.0
"""The longest wait for the progress line of a group; one that comes later counts in the next second."""


class GroupLog(Protocol):
    """The transaction log of a pgbench; see `TransactionLog`."""

    @property
    def behind(self) -> bool: ...
    @property
    def first_commit_s(self) -> float | None: ...
    def read(self, *, final: bool = False) -> Sequence[LatencySecond]: ...
    def statistics(self) -> LogStatistics: ...
    def close(self) -> None: ...


class GroupListener(Struct, frozen=True):
    """The callbacks of a run.

    Attributes:
        take_line: Takes each progress line.
        take_end: Is called once, when pgbench is gone and all of its output was read.
        take_message: Takes each other line of stderr.
        take_attempt: Takes what `process/attempts` reports.
    """

    take_line: Callable[[PgbenchGroup, BenchProgress], None]
    take_end: Callable[[PgbenchGroup], None]
    take_message: Callable[[PgbenchGroup, str], None]
    take_attempt: Callable[[PgbenchGroup, str], None]


class GroupOrder(Struct, frozen=True):
    """An order to start a pgbench of a run.

    Attributes:
        number: From 1 in the run.
        level: Its clients and rate.
        listener: Hears of it.
        started_ms: Begin of the run, or of the change.
        generator: Number of the machine, from 0.
        bounded: It ends by itself, with the time, or the transactions, of the run; else it is stopped.
        again: Start it again until its clients are connected (`process/attempts`).
        waits: The first attempt waits for `PgbenchGroup.begin_attempts`.
    """

    number: int
    level: LoadLevel
    listener: GroupListener
    started_ms: int
    generator: int = 0
    bounded: bool = False
    again: bool = False
    waits: bool = False


class PgbenchGroup:
    """A pgbench of a run, running or ended.

    Args:
        facts: As a frame has it.
        spawned_ms: Time at which its process was started.

    Attributes:
        facts: As a frame has it.
        leaving: Whether it was told to end.
        forced: Whether it did not end in order when it was asked to.
        status: Exit status of pgbench, negative for the signal that ended it; None while it runs, and after a torn-down
            loop.
        report: pgbench's final report, None while it runs and where there was none.
        stdout: Text that it printed there, bounded. Foreign text.
        stderr: The same, without progress lines.
        begun: Set by the first progress line, and by the end.
        seconds: Seconds of its log that were not taken yet.
    """

    def __init__(
        self,
        order: GroupOrder,
        facts: ClientGroup,
        running: Running,
        log: GroupLog,
        spawned_ms: int,
    ) -> None:
        self.facts = facts
        self.spawned_ms = spawned_ms
        self.bounded = order.bounded
        self.leaving = self.forced = False
        self.over = False
        self.status: int | None = None
        self.report: BenchReport | None = None
        self.stdout = BoundedText()
        self.stderr = BoundedText()
        self.begun = asyncio.Event()
        self.seconds: list[LatencySecond] = []
        self.log = log
        self._running = running
        # Seconds of the log are those of the machine that pgbench runs on.
        self._ahead_s = round((running.clock.ahead_ms if running.clock else 0.0) / 1000.0)
        self._listener = order.listener
        self._life = asyncio.create_task(self._live())

    def read_log(self, *, final: bool = False) -> None:
        """Read `MOST_BYTES` of the log at most, at the end all of it."""
        if not self.over:
            read = self.log.read(final=final)
            self.seconds += [replace(second, second=second.second - self._ahead_s) for second in read]

    async def stop(self) -> None:
        """End pgbench: in order if it can be had within 3 s, else by force. Returns when it is gone.

        A run by transactions has no such end: it prints no report, and the last lines of its log are lost.
        """
        self.leaving = True
        if not self.over:
            # What ends a run with -T when its time is over; it then writes its log and its report.
            self._running.signal("ALRM")
            done, _ = await asyncio.wait((self._life,), timeout=STOP_GRACE_S)
            if not done:
                self.forced = True
                await self._running.stop()
            await asyncio.shield(self._life)

    def kill(self) -> None:
        """End it at once, for an event loop that is being torn down."""
        self._running.kill()

    async def _live(self) -> None:
        status: int | None = None
        try:
            status = await self._running.follow(self._take_output, self._hear)
        finally:
            if status is None:
                # Only a cancelled event loop comes here.
                self._running.kill()
            self._finish(status)

    def begin_attempts(self) -> None:
        """Begin to start it, where it waits for that."""
        self.spawned_ms = wall_ms()
        self.facts = replace(self.facts, started_ms=self.spawned_ms)
        self._running.signal("USR1")

    def _take_output(self, line: str) -> None:
        if self._attempt_report(line) == AGAIN:
            # The report of an attempt that did nothing.
            self.stdout = BoundedText()
        else:
            self.stdout.add(line)

    def _attempt_report(self, line: str) -> str:
        """Return the report of `process/attempts` on a line; "" where the line is of pgbench."""
        token = self._running.attempts_token
        return line.removeprefix(token) if token and line.startswith(token) else ""

    def _hear(self, line: str) -> None:
        if report := self._attempt_report(line):
            self._listener.take_attempt(self, report)
        elif (progress := parse_progress(line, self.facts.started_ms / 1000.0)) is not None:
            self._listener.take_line(self, progress)
            self.begun.set()
        else:
            self.stderr.add(line)
            self._listener.take_message(self, line)

    def _finish(self, status: int | None) -> None:
        ended_ms = wall_ms()
        try:
            self.read_log(final=True)
        finally:
            self.log.close()
            self._running.remove()
            self.status = status if status is None or status <= _SIGNALLED else _SIGNALLED - status
            self.over = True
            self.report = parse_report(self.stdout.text())
            self._close_facts(ended_ms)
            self.begun.set()
            self._listener.take_end(self)

    def _close_facts(self, ended_ms: int) -> None:
        """Put the end, and the figures of the report, into the facts."""
        cpu_s = self._running.cpu_s
        self.facts = replace(self.facts, ended_ms=ended_ms, network=self._running.network)
        if self.report is not None:
            self.facts = replace(
                self.facts,
                processed=self.report.processed,
                latency_ms=self.report.latency_average_ms,
                lag_ms=self.report.schedule_lag_ms,
            )
        if cpu_s is not None:
            length_s = (ended_ms - self.spawned_ms) / 1000.0
            self.facts = replace(self.facts, cpus=cpu_s / length_s if length_s > 0 else None)


def shared_level(level: LoadLevel, generators: int) -> tuple[LoadLevel, ...]:
    """Return the part of each generator: clients as evenly as they go, the rate in proportion to them."""
    parts = [level.clients // generators + (number < level.clients % generators) for number in range(generators)]
    rate = level.rate_per_s
    return tuple(
        LoadLevel(clients, None if rate is None else rate * clients / max(level.clients, 1)) for clients in parts
    )


def staying(clients: Sequence[int], now: LoadLevel, next_level: LoadLevel) -> tuple[bool, ...]:
    """Return which groups stay when a load changes; a new group has the clients that are then missing.

    Without a rate the oldest groups that fit stay. With a rate, none does: each has its part of the old one.

    Args:
        clients: Clients of each group, the oldest first.
        now: The load of these groups together.
        next_level: The load to have.
    """
    if now.rate_per_s != next_level.rate_per_s or next_level.rate_per_s is not None:
        return (now == next_level,) * len(clients)
    stay, unassigned = [], next_level.clients
    for count in clients:
        stay.append(count <= unassigned)
        unassigned -= count * stay[-1]
    return tuple(stay)


class _Clock(Struct):
    """The clock of a group in the seconds of the run.

    Attributes:
        offset_s: Its zero.
        until_s: Time up to which its lines are known.
        heard: Transactions of these lines.
    """

    offset_s: float
    until_s: float
    heard: float = 0.0


class _Tick(Struct):
    """Sums of a second of the run."""

    done: float = 0.0
    latency: float = 0.0
    squares: float = 0.0
    lag: float | None = None
    failed: int = 0
    skipped: int | None = None
    retried: int | None = None
    retries: int | None = None

    def line(self, second: int) -> BenchProgress:
        mean_ms = self.latency / self.done if self.done else 0.0
        variance = self.squares / self.done - mean_ms**2 if self.done else 0.0
        return BenchProgress(
            elapsed_s=float(second),
            tps=self.done,
            latency_ms=mean_ms,
            stddev_ms=math.sqrt(max(variance, 0.0)),
            failed=self.failed,
            lag_ms=None if self.lag is None else self.lag / self.done if self.done else 0.0,
            skipped=self.skipped,
            retried=self.retried,
            retries=self.retries,
        )


class MergedProgress:
    """Progress lines of the groups as lines of the run, a second each. Its clock begins with the first transaction.

    The lines of a run with one group are those of pgbench. With several, each line is spread over the seconds that it
    covers, so that no transaction is lost or counted twice.

    Attributes:
        zero_ms: Begin of the run's clock, on the wall; None before the first line.
    """

    def __init__(self) -> None:
        self.zero_ms: float | None = None
        self._clocks: dict[int, _Clock] = {}
        self._ticks: dict[int, _Tick] = {}
        self._given = 0
        self._several = False

    def divide(self) -> None:
        """From now on there are several groups."""
        self._several = True

    def hear(self, group: int, line: BenchProgress, now_ms: float) -> list[BenchProgress]:
        """Take a line of a group; return the lines of the run that became complete."""
        began_ms = now_ms - 1000.0 * line.elapsed_s
        if self.zero_ms is None:
            self.zero_ms = began_ms
        if group not in self._clocks:
            offset_s = (began_ms - self.zero_ms) / 1000.0
            self._clocks[group] = _Clock(offset_s, offset_s)
        clock = self._clocks[group]
        before_s, clock.until_s = clock.until_s, clock.offset_s + line.elapsed_s
        clock.heard += line.tps * (clock.until_s - before_s)
        if not self._several:
            self._given = math.ceil(line.elapsed_s)
            return [line]
        self._spread(line, before_s, clock.until_s)
        return self._complete(self._known_until_s())

    def leave(self, group: ClientGroup, report: BenchReport | None = None) -> list[BenchProgress]:
        """Forget a group that has ended: the others no longer wait for it.

        Args:
            report: Its report: pgbench prints no line for its last part of a second.
        """
        ended = self._clocks.pop(group.number, None)
        if ended is None or self.zero_ms is None or not self._several:
            return []
        end_s = ((group.ended_ms or 0) - self.zero_ms) / 1000.0
        if report is not None and end_s > ended.until_s:
            tps = max((report.processed or 0) - ended.heard, 0.0) / (end_s - ended.until_s)
            latencies_ms = report.latency_average_ms or 0.0, report.latency_stddev_ms or 0.0
            line = BenchProgress(end_s, tps, *latencies_ms, lag_ms=report.schedule_lag_ms)
            self._spread(line, ended.until_s, end_s)
        return self._complete(self._known_until_s() if self._clocks else max(end_s, ended.until_s))

    def rest(self, now_ms: float) -> list[BenchProgress]:
        """Return the lines of a time without any group."""
        return [] if self.zero_ms is None or self._clocks else self._complete((now_ms - self.zero_ms) / 1000.0)

    def _known_until_s(self) -> float:
        """Return up to when every group has spoken, but for one that is silent: the others do not wait for it."""
        ends_s = [clock.until_s for clock in self._clocks.values()]
        return min(end_s for end_s in ends_s if end_s >= max(ends_s) - _PATIENCE_S)

    def _spread(self, line: BenchProgress, from_s: float, until_s: float) -> None:
        length_s = until_s - from_s
        if length_s <= 0:
            return
        done = line.tps * length_s
        for second in range(math.floor(from_s) + 1, math.ceil(until_s) + 1):
            share = (min(until_s, second) - max(from_s, second - 1)) / length_s
            tick = self._tick(second)
            tick.done += done * share
            tick.latency += done * share * line.latency_ms
            tick.squares += done * share * (line.stddev_ms**2 + line.latency_ms**2)
            if line.lag_ms is not None:
                tick.lag = (tick.lag or 0.0) + done * share * line.lag_ms
        middle = self._tick(math.ceil((from_s + until_s) / 2))
        middle.failed += line.failed
        for name in ("skipped", "retried", "retries"):
            if (count := getattr(line, name)) is not None:
                setattr(middle, name, (getattr(middle, name) or 0) + count)

    def _tick(self, second: int) -> _Tick:
        # A line that comes late counts in the next second.
        return self._ticks.setdefault(max(second, self._given + 1), _Tick())

    def _complete(self, until_s: float) -> list[BenchProgress]:
        seconds = range(self._given + 1, math.floor(until_s + 1e-6) + 1)
        self._given = max(self._given, *seconds, 0) if seconds else self._given
        return [self._ticks.pop(second, _Tick()).line(second) for second in seconds]


_SUMS: Final = ("processed", "failed", "serialization_failures", "deadlock_failures", "retried", "retries", "skipped")
_OF_RUN: Final = (*_SUMS, "asked", "latency_limit_exceeded")
_MEANS: Final = ("latency_average_ms", "schedule_lag_ms")
_WORST: Final = ("schedule_lag_max_ms", "initial_connection_ms", "average_connection_ms")


def merged_report(reports: Sequence[BenchReport]) -> BenchReport | None:
    """Return the reports of groups as one; None without any.

    Counts are added, means weighed by the transactions, and of times to connect the longest counts. The sum has no tps
    and no deviation: groups ran at different times.
    """
    if len(reports) < 2:
        return reports[0] if reports else None
    figures = {name: _total(getattr(report, name) for report in reports) for name in _OF_RUN}
    means = {name: _mean(reports, name) for name in _MEANS}
    worst = {name: max(filter(None, (getattr(report, name) for report in reports)), default=None) for name in _WORST}
    return replace(
        reports[0],
        tps=None,
        latency_stddev_ms=None,
        clients=None,
        threads=None,
        duration_s=None,
        **figures,
        **means,
        **worst,
        scripts=tuple(map(_merged_script, zip(*(row.scripts for row in reports if row.scripts), strict=False))),
        statements=_merged_statements(reports),
        raw="\n".join(report.raw for report in reports),
    )


def _total(counts: Iterable[int | None]) -> int | None:
    counted = [count for count in counts if count is not None]
    return sum(counted) if counted else None


def _mean(reports: Sequence[BenchReport] | Sequence[ScriptReport], name: str) -> float | None:
    weighed = [(value, report.processed or 0) for report in reports if (value := getattr(report, name)) is not None]
    weight = sum(count for _, count in weighed)
    return sum(value * count for value, count in weighed) / weight if weight else None


def _merged_script(scripts: Sequence[ScriptReport]) -> ScriptReport:
    figures: dict[str, Any] = {name: _total(getattr(script, name) for script in scripts) for name in _SUMS}
    figures["latency_average_ms"] = _mean(scripts, "latency_average_ms")
    merged = asdict(scripts[0]) | figures | {"tps": None, "latency_stddev_ms": None}
    return ScriptReport(**merged | {"statements": _merged_statements(scripts)})


def _merged_statements(reports: Sequence[BenchReport] | Sequence[ScriptReport]) -> tuple[StatementReport, ...]:
    complete = [report for report in reports if report.statements]
    weights = [report.processed or 0 for report in complete]
    if not sum(weights):
        return reports[0].statements
    merged = []
    for statements in zip(*(report.statements for report in complete), strict=False):
        latency = sum(row.latency_ms * weight for row, weight in zip(statements, weights, strict=True)) / sum(weights)
        failures = _total(row.failures for row in statements)
        retries = _total(row.retries for row in statements)
        merged.append(StatementReport(statements[0].text, latency, failures, retries))
    return tuple(merged)


def wall_ms() -> int:
    return time.time_ns() // 1_000_000
