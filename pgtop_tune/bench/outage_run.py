"""A run that goes through an outage: lost clients are replaced until its time is over.

pgbench names each client that it aborts, and ends when all are. The clients that are missing are started again, as a
group that is tried until it connects. The figures of an outage come from the first message about a lost client, and
from the log of the clients that connected after it.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Iterable
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.secret import without_secrets
from pgtop_tune.bench.commit_log import AcknowledgedLines, CommitLog, CountingClients
from pgtop_tune.bench.groups import PgbenchGroup, wall_ms
from pgtop_tune.bench.messages import lost_clients
from pgtop_tune.bench.places import EVERY_S
from pgtop_tune.bench.run import PgbenchRun, StartGroup, failure_words
from pgtop_tune.model.bench import BenchProgress, BenchRun, LatencySecond, LoadLevel, RunState
from pgtop_tune.model.outage import OutageSpan

MOST_GROUPS: Final = 100
"""Groups that are kept; a load whose clients are lost more often does not go through an outage."""
LATE_S: Final = 10.0
"""Patience with the last transactions of a run, which may wait for a server that is silent."""
_TOGETHER_S: Final = 0.02
"""Clients that are lost within so long are replaced together."""
_ATTEMPTS: Final = re.compile(r"attempts: (\d{1,9}) (\d{1,9}) (\d{1,9}\.\d{3})")
_REASON: Final = re.compile(r"pgbench: (?:error|fatal): (?!could not create connection)(.+)")
_KILLED: Final = 128


class _Loss(Struct):
    """The first message about a lost client of a group."""

    at_ms: float
    clock_s: float
    reason: str


class _OpenSpan(Struct):
    """A time in which clients are lost.

    Attributes:
        groups: Groups that were started in it, but for those that are forgotten.
        tried: Attempts of groups that are forgotten.
    """

    loss: _Loss
    lost_clients: int = 0
    groups: list[PgbenchGroup] = field(default_factory=list)
    tried: int = 0
    longest_wait_s: float = 0.0
    problem: str = ""
    moved_ms: float = 0.0
    closed: bool = False


class _Clients:
    """Clients of one kind, of which a number is to run.

    Attributes:
        groups: Their groups, in the order of their start.
        lost: Set when some are missing.
        number: Number of the last group.
        begun_s: Start of the last group, on the monotonic clock.
    """

    def __init__(self, start: StartGroup, level: LoadLevel, groups: list[PgbenchGroup]) -> None:
        self.start = start
        self.level = level
        self.groups = groups
        self.lost = asyncio.Event()
        self.number = 1
        self.begun_s = -math.inf

    def running(self) -> list[PgbenchGroup]:
        return [group for group in self.groups if not group.over]


class OutageRun(PgbenchRun):
    """A run whose lost clients are replaced. Made and begun by `start_run`.

    Args:
        facts, start_group: As for `PgbenchRun`.
        start_counting: Starts a pgbench of the counting clients; None where commits are not counted.

    Attributes:
        waiting_clients: Clients that still waited for an answer when the run was over, and were ended by force.
        uncounted: Why the counting clients ended before their first commit; "" else. Foreign text.
    """

    def __init__(self, facts: BenchRun, start_group: StartGroup, start_counting: StartGroup | None) -> None:
        super().__init__(facts, start_group)
        self._load = _Clients(start_group, self._level, self._groups)
        level = CountingClients("").spec(1, again=False).level
        self._counting = None if start_counting is None else _Clients(start_counting, level, [])
        self._missing: dict[PgbenchGroup, set[int]] = {}
        self._losses: dict[PgbenchGroup, _Loss] = {}
        self._attempts: dict[PgbenchGroup, int] = {}
        self._at_work: set[PgbenchGroup] = set()
        self._spans: list[_OpenSpan] = []
        self.waiting_clients = 0
        self.uncounted = ""

    async def begin(self) -> None:
        await super().begin()
        try:
            if self._counting is not None:
                await self._start_group_of(self._counting, self._counting.level, again=False)
        except BaseException:
            await asyncio.shield(self.stop())
            raise
        for clients in self._kinds():
            self._go(self._keep(clients))
        self._go(self._end_at_last())

    async def change(self, level: LoadLevel) -> None:
        raise LoadProblem("a load that goes through an outage keeps its clients and its rate", "start one without")

    def take(self) -> tuple[tuple[BenchProgress, ...], tuple[LatencySecond, ...]]:
        progress, latencies = super().take()
        self._tell_outages()
        return progress, latencies

    @property
    def span_is_closed(self) -> bool:
        """Return whether no client is missing."""
        return not self._spans or self._spans[-1].closed

    def acknowledged(self) -> list[AcknowledgedLines]:
        """Return the log lines of the counting clients, after the end."""
        groups = [] if self._counting is None else self._counting.groups
        return [
            lines
            for group in groups
            if isinstance(group.log, CommitLog)
            for lines in group.log.acknowledged(group, self._attempts.get(group, 1))
        ]

    # Clients that are lost.

    def _kinds(self) -> list[_Clients]:
        return [self._load] if self._counting is None else [self._load, self._counting]

    def _kind_of(self, group: PgbenchGroup) -> _Clients:
        return next((clients for clients in self._kinds() if group in clients.groups), self._load)

    def _living(self, clients: _Clients) -> int:
        return sum(group.facts.clients - len(self._missing.get(group, ())) for group in clients.running())

    def _take_message(self, group: PgbenchGroup, line: str) -> None:
        if attempt := _ATTEMPTS.fullmatch(line):
            self._attempts[group] = int(attempt[1])
            group.facts = replace(group.facts, pid=int(attempt[2]))
            for span in self._spans[-1:]:
                span.longest_wait_s = max(span.longest_wait_s, float(attempt[3]))
            self._tell_groups()
            return
        self._lose(group, lost_clients(line), line)
        if self._is_replacement(group) and group not in self._at_work and (reason := _REASON.match(line)):
            self._spans[-1].problem = _words(reason[1])

    def _lose(self, group: PgbenchGroup, numbers: Iterable[int], reason: str) -> None:
        """Take clients that are lost."""
        if self._closing.is_set() or group.leaving or self._never_counted(group):
            return
        missing = self._missing.setdefault(group, set())
        lost = {number for number in numbers if number < group.facts.clients} - missing
        if not lost:
            return
        missing |= lost
        if group not in self._losses:
            stated = _REASON.match(reason)
            message = _words(stated[1] if stated else reason)
            self._losses[group] = _Loss(time.time() * 1000.0, time.monotonic(), message)
        if not self._is_replacement(group):
            self._span_of(self._losses[group]).lost_clients += len(lost)
        self._kind_of(group).lost.set()

    def _never_counted(self, group: PgbenchGroup) -> bool:
        """Return whether a group is the first of the counting clients, and did nothing yet."""
        clients = self._kind_of(group)
        return clients is self._counting and group.facts.number == 1 and group not in self._at_work

    def _is_replacement(self, group: PgbenchGroup) -> bool:
        """Return whether a group is to end the outage that lasts: its losses count once it has, or are attempts."""
        return bool(self._spans) and not self._spans[-1].closed and group in self._spans[-1].groups

    def _span_of(self, loss: _Loss) -> _OpenSpan:
        if not self._spans or self._spans[-1].closed:
            self._spans.append(_OpenSpan(loss))
            self._gaps.append((loss.at_ms, math.inf))
        return self._spans[-1]

    def _take_line(self, group: PgbenchGroup, line: BenchProgress) -> None:
        if group in self._groups:
            super()._take_line(group, line)
        if line.tps and group not in self._at_work:
            self._at_work.add(group)
            self._close_span_if_replaced()

    def _close_span_if_replaced(self) -> None:
        if not self._spans or self._spans[-1].closed:
            return
        are_back = [
            self._living(clients) >= clients.level.clients and self._at_work.issuperset(clients.running())
            for clients in self._kinds()
        ]
        if are_back[0] and self._gaps[-1][1] == math.inf:
            # The load is whole again, whatever the counting clients do. Its first line is of this second and the last.
            self._gaps[-1] = (self._gaps[-1][0], time.time() * 1000.0)
        if all(are_back):
            self._close_span()

    def _close_span(self) -> None:
        """End the outage that lasts; clients of its replacements that were lost meanwhile begin another."""
        span = self._spans[-1]
        span.closed = True
        span.moved_ms = (time.time() * 1000.0 - span.loss.at_ms) - 1000.0 * (time.monotonic() - span.loss.clock_s)
        self._gaps[-1] = (self._gaps[-1][0], min(self._gaps[-1][1], time.time() * 1000.0))
        for group in span.groups:
            if missing := self._missing.get(group):
                self._span_of(self._losses[group]).lost_clients += len(missing)

    def _take_end(self, group: PgbenchGroup) -> None:
        clients = self._kind_of(group)
        is_load = clients is self._load
        if is_load:
            self._take_seconds(group)
            self._give(self._merged.leave(group.facts.number))
        if group.leaving or self._closing.is_set():
            self.waiting_clients += group.forced * (group.facts.clients - len(self._missing.get(group, ())))
        elif is_load and (group.status == 0 or (group.bounded and self._time_is_over())):
            self._closing.set()
            self._go(self._end())
        elif self._never_counted(group):
            self.uncounted = _words(_last_line(group))
            clients.level = LoadLevel(0)
            clients.groups.remove(group)
        elif group.facts.number == 1 and self.facts.state is RunState.STARTING:
            self._fail(group)
        else:
            self._replace(group, clients)
        self._tell_groups()

    def _time_is_over(self) -> bool:
        """Return whether a pgbench with lost clients may have ended because the time of the run is over."""
        zero_ms, duration_s = self._merged.zero_ms, self.facts.duration_s
        return zero_ms is not None and duration_s is not None and wall_ms() - zero_ms > 1000.0 * (duration_s - 1)

    def _fail(self, group: PgbenchGroup) -> None:
        status = None if group.status is None or group.status <= _KILLED else _KILLED - group.status
        message = failure_words(group.stderr.text(), status or group.status, self.facts.scripts)
        group.facts = replace(group.facts, problem=message)
        self._failed, self._problem = group, message
        self._closing.set()
        self._go(self._end())

    def _replace(self, group: PgbenchGroup, clients: _Clients) -> None:
        """Have the clients of a group that has ended replaced; forget one that did nothing."""
        self._lose(group, range(group.facts.clients), _last_line(group))
        if self._is_replacement(group):
            if group.log.first_commit_s is not None:
                self._close_span()
            else:
                self._forget(group, clients)
        clients.lost.set()

    def _forget(self, group: PgbenchGroup, clients: _Clients) -> None:
        span = self._spans[-1]
        span.groups.remove(group)
        span.tried += self._attempts.pop(group, 1)
        if group.status is not None and group.status < _KILLED:
            # The log of one that was killed may have lacked its lines.
            clients.groups.remove(group)
        self._missing.pop(group, None)
        self._losses.pop(group, None)

    # Clients that replace them.

    async def _keep(self, clients: _Clients) -> None:
        """Replace the clients that are lost."""
        while True:
            await clients.lost.wait()
            clients.lost.clear()
            await asyncio.sleep(max(_TOGETHER_S, clients.begun_s + EVERY_S - time.monotonic()))
            async with self._changing:
                missing = clients.level.clients - self._living(clients)
                if self._closing.is_set() or missing <= 0:
                    continue
                if len(clients.groups) >= MOST_GROUPS:
                    self._problem = f"clients were lost and replaced {MOST_GROUPS} times: {self._spans[-1].loss.reason}"
                    self._closing.set()
                    self._go(self._end())
                    return
                rate = clients.level.rate_per_s
                level = LoadLevel(missing, None if rate is None else rate * missing / clients.level.clients)
                try:
                    await self._start_group_of(clients, level, again=True)
                except LoadProblem as problem:
                    self._spans[-1].problem, self._spans[-1].tried = problem.message, self._spans[-1].tried + 1
                    clients.lost.set()

    async def _start_group_of(self, clients: _Clients, level: LoadLevel, *, again: bool) -> None:
        if again:
            clients.number += 1
        if clients is self._load:
            self._merged.divide()
        clients.begun_s = time.monotonic()
        group = await clients.start(
            clients.number,
            0,
            level,
            started_ms=wall_ms(),
            bounded=False,
            take_line=self._take_line,
            take_end=self._take_end,
            take_message=self._take_message,
            again=again,
        )
        clients.groups.append(group)
        if again:
            self._spans[-1].groups.append(group)
        self._tell_groups()

    # The end.

    async def _end_at_last(self) -> None:
        """End the run when its time is over, also where pgbench waits for a server that is silent."""
        if self.facts.duration_s is None:
            return
        await self._groups[0].begun.wait()
        begun_s = (wall_ms() - (self._merged.zero_ms or wall_ms())) / 1000.0
        await asyncio.sleep(max(self.facts.duration_s - begun_s, 0.0))
        if self._groups[0].bounded and not self._groups[0].over:
            # It ends by itself, unless the server is silent.
            await asyncio.wait((asyncio.create_task(self._last.wait()),), timeout=LATE_S)
        await self._end()

    async def _end_groups(self) -> None:
        await asyncio.gather(*(group.stop() for clients in self._kinds() for group in clients.running()))

    def _read_logs(self) -> None:
        super()._read_logs()
        for group in self._counting.running() if self._counting is not None else ():
            group.read_log()

    def _tell_outages(self) -> None:
        self.facts = replace(self.facts, outages=tuple(map(self._facts_of, self._spans)))

    def _facts_of(self, span: _OpenSpan) -> OutageSpan:
        commits = {group: group.log.first_commit_s for group in span.groups}
        commits_ms = [1000.0 * commit_s for commit_s in commits.values() if commit_s is not None]
        return OutageSpan(
            first_error_ms=span.loss.at_ms,
            lost_clients=span.lost_clients,
            reason=span.loss.reason,
            attempts=span.tried + sum(self._attempts.get(group, 1) for group in span.groups),
            longest_wait_s=span.longest_wait_s,
            problem=span.problem,
            first_commit_ms=min(commits_ms, default=None),
            replaced_ms=max(commits_ms) if span.closed and None not in commits.values() and commits_ms else None,
            moved_ms=span.moved_ms,
        )

    def _finish(self) -> None:
        for group in self._counting.running() if self._counting is not None else ():
            # Only a cancelled event loop comes here.
            group.kill()
        self._groups[1:] = [group for group in self._groups[1:] if group in self._at_work or group.report is not None]
        self._tell_groups()
        self._tell_outages()
        super()._finish()


def _last_line(group: PgbenchGroup) -> str:
    if group.status is not None and group.status > _KILLED:
        return f"signal {group.status - _KILLED} ended pgbench"
    return next(iter(reversed(group.stderr.text().splitlines())), "pgbench ended")


def _words(text: str) -> str:
    return one_line(without_secrets(text), 300)
