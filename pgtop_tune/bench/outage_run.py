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
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.secret import without_secrets
from pgtop_tune.bench.commit_log import CommitLog, CountingClients, OutageClients
from pgtop_tune.bench.groups import GroupOrder, PgbenchGroup, wall_ms
from pgtop_tune.bench.messages import is_of_script, last_words, lost_clients
from pgtop_tune.bench.places import EVERY_S
from pgtop_tune.bench.run import PgbenchRun, StartGroup, failure_words
from pgtop_tune.model.bench import BenchProgress, BenchRun, LatencySecond, LoadLevel, RunState
from pgtop_tune.model.outage import OutageSpan
from pgtop_tune.process.attempts import AGAIN, READY

MOST_GROUPS: Final = 100
"""Groups that are kept; a load whose clients are lost more often does not go through an outage."""
LATE_S: Final = 10.0
"""Patience with the last transactions of a run, which may wait for a server that is silent."""
_BACK_S: Final = 5.0
"""Patience with counting clients where those of the load are back; they may lack their table."""
_TOGETHER_S: Final = 0.05
"""Clients of the load that are lost within so long are replaced together. Of counting clients there may be more than
asked for."""
_LONGEST_WAIT_S: Final = 0.15
_ATTEMPT: Final = re.compile(r"(\d{1,9}) (\d{1,9}) (\d{1,9}\.\d{3})")
_REASON: Final = re.compile(r"pgbench: (?:error|fatal): (?!could not create connection|Run was aborted)(.+)")


class _Loss(Struct):
    """The first message about a lost client of a group."""

    group: PgbenchGroup
    at_ms: float
    clock_s: float
    reason: str


class _GroupState(Struct):
    """The clients of a group.

    Attributes:
        missing: Numbers of those that are lost.
        loss: The first of these.
        attempts: Starts of its pgbench.
        ready: Its attempts wait to be begun.
        worked: It has committed.
    """

    missing: set[int] = field(default_factory=set)
    loss: _Loss | None = None
    attempts: int = 1
    ready: bool = False
    worked: bool = False


class _OpenSpan(Struct):
    """A time in which clients are lost.

    Attributes:
        groups: Groups that were started in it, but for those that are forgotten.
        tried: Attempts of groups that are forgotten.
        load_back_s: When the clients of the load were whole again, on the monotonic clock.
    """

    loss: _Loss
    lost_clients: int = 0
    groups: list[PgbenchGroup] = []
    tried: int = 0
    longest_wait_s: float = 0.0
    problem: str = ""
    moved_ms: float = 0.0
    load_back_s: float = math.inf
    closed: bool = False


class _Clients:
    """Clients of one kind, of which a number is to run.

    Attributes:
        groups: Their groups, in the order of their start.
        lost: Set when some are missing.
        number: Number of the last group.
        begun_s: Start of the last group, on the monotonic clock.
        spare: A group of all of them that waits to be begun: a new one would take two starts of Python.
    """

    def __init__(self, start: StartGroup, level: LoadLevel, groups: list[PgbenchGroup]) -> None:
        self.start = start
        self.level = level
        self.groups = groups
        self.lost = asyncio.Event()
        self.number = 1
        self.begun_s = -math.inf
        self.spare: PgbenchGroup | None = None

    def running(self) -> list[PgbenchGroup]:
        return [group for group in self.groups if not group.over]


class OutageRun(PgbenchRun):
    """A run whose lost clients are replaced. Made and begun by `start_run`.

    Args:
        facts, start_group: As for `PgbenchRun`.
        start_counting: Starts a pgbench of the counting clients; None where commits are not counted.
    """

    def __init__(self, facts: BenchRun, start_group: StartGroup, start_counting: StartGroup | None) -> None:
        super().__init__(facts, start_group)
        self._load = _Clients(start_group, self._level, self._groups)
        # None where commits are not counted.
        level = LoadLevel(0) if start_counting is None else CountingClients("").spec(1, again=False).level
        self._counting = _Clients(start_counting or start_group, level, [])
        self._kinds = (self._load, self._counting)
        self._states: defaultdict[PgbenchGroup, _GroupState] = defaultdict(_GroupState)
        self._spans: list[_OpenSpan] = []
        self._waiting_clients = 0
        self._uncounted = ""

    async def begin(self) -> None:
        await super().begin()
        try:
            if self._counting.level.clients:
                self._counting.groups.append(await self._made(self._counting, self._counting.level, again=False))
        except BaseException:
            await asyncio.shield(self.stop())
            raise
        for clients in self._kinds:
            clients.lost.set()
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

    @property
    def outage_clients(self) -> OutageClients:
        return OutageClients(
            acknowledged=tuple(
                lines
                for group in self._counting.groups
                if isinstance(group.log, CommitLog) and not self._never_connected(group)
                for lines in group.log.acknowledged(group, self._states[group].attempts)
            ),
            uncounted=self._uncounted,
            waiting=self._waiting_clients,
            finished=self.facts.state is RunState.FINISHED,
        )

    def _never_connected(self, group: PgbenchGroup) -> bool:
        """Return whether attempts were still under way when the run ended."""
        ended_in_order = group.leaving and not group.forced
        return ended_in_order and not self._states[group].worked and group.log.first_commit_s is None

    # Clients that are lost.

    def _kind_of(self, group: PgbenchGroup) -> _Clients:
        return self._counting if group in self._counting.groups else self._load

    def _working(self, group: PgbenchGroup) -> int:
        """Return the number of clients that are not lost."""
        return group.facts.clients - len(self._states[group].missing)

    def _living(self, clients: _Clients) -> int:
        """Return the number of clients that run, or are being started."""
        return sum(
            self._working(group) if self._has_worked(group) else group.facts.clients for group in clients.running()
        )

    def _take_attempt(self, group: PgbenchGroup, report: str) -> None:
        state = self._states[group]
        if report == READY:
            state.ready = True
        elif report == AGAIN:
            state.missing, state.loss = set(), None
        elif attempt := _ATTEMPT.fullmatch(report):
            state.attempts = int(attempt[1])
            group.facts = replace(group.facts, pid=int(attempt[2]))
            for span in self._spans[-1:]:
                span.longest_wait_s = max(span.longest_wait_s, float(attempt[3]))
            self._tell_groups()

    def _take_message(self, group: PgbenchGroup, line: str) -> None:
        self._lose(group, lost_clients(line), line)
        if self._spans and not self._has_worked(group) and (reason := _REASON.match(line)):
            self._spans[-1].problem = _words(reason[1])

    def _lose(self, group: PgbenchGroup, numbers: Iterable[int], reason: str) -> None:
        """Take clients that are lost."""
        if self._closing.is_set() or group.leaving or self._never_counted(group):
            return
        state = self._states[group]
        lost = {number for number in numbers if number < group.facts.clients} - state.missing
        if not lost:
            return
        state.missing |= lost
        if state.loss is None:
            stated = _REASON.match(reason)
            message = _words(stated[1] if stated else reason)
            state.loss = _Loss(group, time.time() * 1000.0, time.monotonic(), message)
        if self._has_worked(group):
            self._count_loss(group, len(lost))
        self._kind_of(group).lost.set()

    def _never_counted(self, group: PgbenchGroup) -> bool:
        """Return whether a group is the first of the counting clients, and did nothing yet."""
        has_commits = self._states[group].worked or group.log.first_commit_s is not None
        return group in self._counting.groups and group.facts.number == 1 and not has_commits

    def _has_worked(self, group: PgbenchGroup) -> bool:
        """Return whether clients of a group are lost, not just not there yet."""
        return self._states[group].worked or (group.facts.number == 1 and group in self._groups)

    def _count_loss(self, group: PgbenchGroup, count: int) -> None:
        if not self.span_is_closed and group in self._spans[-1].groups:
            # It had ended that outage.
            self._close_span()
        loss = self._states[group].loss
        if self.span_is_closed and loss is not None:
            self._spans.append(_OpenSpan(loss))
            self._gaps.append((loss.at_ms, math.inf))
        self._spans[-1].lost_clients += count

    def _works(self, group: PgbenchGroup) -> None:
        """Take the first commit of a group."""
        state = self._states[group]
        if not state.worked:
            state.worked = True
            if state.missing:
                self._count_loss(group, len(state.missing))
                self._kind_of(group).lost.set()

    def _take_line(self, group: PgbenchGroup, line: BenchProgress) -> None:
        if group in self._groups:
            super()._take_line(group, line)
        if line.tps:
            self._works(group)
            self._close_span_if_replaced()

    def _close_span_if_replaced(self) -> None:
        if self.span_is_closed:
            return
        span, now_s = self._spans[-1], time.monotonic()
        are_back = [
            self._living(clients) >= clients.level.clients
            and all(self._states[group].worked for group in clients.running())
            for clients in self._kinds
        ]
        if are_back[0] and self._gaps[-1][1] == math.inf:
            # The load is whole again, whatever the counting clients do. Its first line is of this second and the last.
            self._gaps[-1] = (self._gaps[-1][0], time.time() * 1000.0)
            span.load_back_s = now_s
        if all(are_back) or now_s - span.load_back_s > _BACK_S:
            self._close_span()
            for clients in self._kinds:
                # For the next outage.
                clients.lost.set()

    def _close_span(self) -> None:
        """End the outage that lasts."""
        span = self._spans[-1]
        span.closed = True
        span.moved_ms = (time.time() * 1000.0 - span.loss.at_ms) - 1000.0 * (time.monotonic() - span.loss.clock_s)
        self._gaps[-1] = (self._gaps[-1][0], min(self._gaps[-1][1], time.time() * 1000.0))

    def _take_end(self, group: PgbenchGroup) -> None:
        for clients in self._kinds:
            if clients.spare is group:
                clients.spare = None
                return
        clients = self._kind_of(group)
        is_load = clients is self._load
        if is_load:
            self._take_seconds(group)
            self._give(self._merged.leave(group.facts, group.report))
        if group.leaving or self._closing.is_set():
            self._waiting_clients += group.forced * self._working(group)
        elif is_load and (group.status == 0 or (group.bounded and self._time_is_over())):
            self._closing.set()
            self._go(self._end())
        elif self._never_counted(group):
            self._stop_counting(group)
            clients.groups.remove(group)
        elif group.facts.number == 1 and self.facts.state is RunState.STARTING:
            self._fail(group)
        else:
            self._replace(group, clients)
        self._tell_groups()

    def _time_is_over(self) -> bool:
        """Return whether a pgbench with lost clients may have ended because the time of the run is over."""
        return self.facts.duration_s is not None and self._elapsed_s() > max(self.facts.duration_s - 1, 0)

    def _fail(self, group: PgbenchGroup) -> None:
        message = failure_words(group.stderr.text(), group.status, self.facts.scripts)
        group.facts = replace(group.facts, problem=message)
        self._failed, self._problem = group, message
        self._closing.set()
        self._go(self._end())

    def _stop_counting(self, group: PgbenchGroup) -> None:
        self._uncounted = _words(last_words(group.stderr.text()) or _last_line(group))
        self._counting.level = LoadLevel(0)

    def _is_no_outage(self, clients: _Clients) -> bool:
        """Return whether clients were lost because of their script; end what has this script, and forget the span."""
        span, group = self._spans[-1], self._spans[-1].loss.group
        if span.groups or group not in clients.groups or not is_of_script(group.stderr.text()):
            return False
        self._spans.pop()
        self._gaps.pop()
        if clients is self._load:
            self._fail(group)
        else:
            self._stop_counting(group)
        return True

    def _replace(self, group: PgbenchGroup, clients: _Clients) -> None:
        """Have the clients of a group that has ended replaced; forget one that did nothing."""
        if group.log.first_commit_s is not None:
            self._works(group)
        self._lose(group, range(group.facts.clients), _last_line(group))
        if not self._has_worked(group):
            self._forget(group, clients)
        clients.lost.set()

    def _forget(self, group: PgbenchGroup, clients: _Clients) -> None:
        for span in self._spans:
            if group in span.groups:
                span.groups.remove(group)
                span.tried += self._states[group].attempts
        if group.status is not None and group.status >= 0:
            # The log of one that was killed may have lacked its lines.
            clients.groups.remove(group)
        self._states.pop(group, None)

    # Clients that replace them.

    async def _keep(self, clients: _Clients) -> None:
        """Replace the clients that are lost."""
        while True:
            await clients.lost.wait()
            await asyncio.sleep(max(clients.begun_s + EVERY_S - time.monotonic(), 0.0))
            if clients is self._load:
                await self._until_others_are_lost()
            clients.lost.clear()
            async with self._changing:
                missing = clients.level.clients - self._living(clients)
                if self._closing.is_set():
                    return
                if missing <= 0:
                    await self._prepare_spare(clients)
                    continue
                if self._is_no_outage(clients):
                    continue
                if len(clients.groups) >= MOST_GROUPS:
                    self._problem = f"clients were lost and replaced {MOST_GROUPS} times: {self._spans[-1].loss.reason}"
                    self._closing.set()
                    self._go(self._end())
                    return
                rate, level = clients.level.rate_per_s, clients.level
                if clients is self._load:
                    level = LoadLevel(missing, None if rate is None else rate * missing / level.clients)
                try:
                    await self._begin_replacement(clients, level)
                except LoadProblem as problem:
                    self._spans[-1].problem, self._spans[-1].tried = problem.message, self._spans[-1].tried + 1
                    clients.lost.set()

    async def _until_others_are_lost(self) -> None:
        """Wait while clients are lost one after the other: those of one server notice its end when they next use it."""
        until_s = time.monotonic() + _LONGEST_WAIT_S
        while self._living(self._load) and time.monotonic() < until_s:
            self._load.lost.clear()
            try:
                async with asyncio.timeout(_TOGETHER_S):
                    await self._load.lost.wait()
            except TimeoutError:
                return

    async def _begin_replacement(self, clients: _Clients, level: LoadLevel) -> None:
        clients.begun_s = time.monotonic()
        if clients is self._load:
            self._merged.divide()
        group = clients.spare
        if group is not None and self._states[group].ready and level == clients.level:
            clients.spare = None
            group.begin_attempts()
        else:
            clients.number += 1
            group = await self._made(clients, level, again=True)
        clients.groups.append(group)
        self._spans[-1].groups.append(group)
        self._tell_groups()

    async def _prepare_spare(self, clients: _Clients) -> None:
        if clients.spare is None and clients.level.clients and self.span_is_closed:
            clients.number += 1
            try:
                clients.spare = await self._made(clients, clients.level, again=True, waits=True)
            except LoadProblem:
                # It is made when it is needed.
                return

    async def _made(self, clients: _Clients, level: LoadLevel, *, again: bool, waits: bool = False) -> PgbenchGroup:
        order = GroupOrder(
            number=clients.number,
            level=level,
            listener=self._listener,
            started_ms=wall_ms(),
            again=again,
            waits=waits,
        )
        return await clients.start(order)

    # The end.

    async def _end_at_last(self) -> None:
        """End the run when its time is over, also where pgbench waits for a server that is silent."""
        if self.facts.duration_s is None:
            return
        await self._groups[0].begun.wait()
        await asyncio.sleep(max(self.facts.duration_s - self._elapsed_s(), 0.0))
        if self._groups[0].bounded and not self._groups[0].over:
            # It ends by itself, unless the server is silent.
            await asyncio.wait((asyncio.create_task(self._last.wait()),), timeout=LATE_S)
        await self._end()

    async def _end_groups(self) -> None:
        spares = [clients.spare for clients in self._kinds if clients.spare is not None]
        running = [group for clients in self._kinds for group in clients.running()]
        await asyncio.gather(*(group.stop() for group in (*running, *spares)))

    def _read_logs(self) -> None:
        super()._read_logs()
        for group in self._counting.running():
            group.read_log()

    def _tell_outages(self) -> None:
        self.facts = replace(self.facts, outages=tuple(map(self._facts_of, self._spans)))

    def _facts_of(self, span: _OpenSpan) -> OutageSpan:
        commits_s = [(group in self._groups, group.log.first_commit_s) for group in span.groups]
        commits_ms = [1000.0 * commit_s for _, commit_s in commits_s if commit_s is not None]
        of_load = [commit_s for is_load, commit_s in commits_s if is_load]
        # Where only counting clients were lost, they are all.
        replacements = of_load or [commit_s for _, commit_s in commits_s]
        replaced_s = [commit_s for commit_s in replacements if commit_s is not None]
        are_back = span.closed and replaced_s and len(replaced_s) == len(replacements)
        return OutageSpan(
            first_error_ms=span.loss.at_ms,
            lost_clients=span.lost_clients,
            reason=span.loss.reason,
            attempts=span.tried + sum(self._states[group].attempts for group in span.groups),
            longest_wait_s=span.longest_wait_s,
            problem=span.problem,
            first_commit_ms=min(commits_ms, default=None),
            replaced_ms=1000.0 * max(replaced_s) if are_back else None,
            moved_ms=span.moved_ms,
        )

    def _finish(self) -> None:
        for group in (
            *self._counting.running(),
            *(clients.spare for clients in self._kinds if clients.spare is not None),
        ):
            # Only a cancelled event loop comes here.
            group.kill()
        if not self.span_is_closed and self._was_whole():
            self._close_span()
        self._groups[1:] = [
            group for group in self._groups[1:] if self._states[group].worked or group.report is not None
        ]
        self._tell_groups()
        self._tell_outages()
        super()._finish()

    def _was_whole(self) -> bool:
        """Return whether all clients of the load worked when the run ended, however few seconds before."""
        stayed = [group for group in self._groups if group.leaving and group.log.first_commit_s is not None]
        return sum(map(self._working, stayed)) >= self._load.level.clients


def _last_line(group: PgbenchGroup) -> str:
    if group.status is not None and group.status < 0:
        return f"signal {-group.status} ended pgbench"
    return next(iter(reversed(group.stderr.text().splitlines())), "pgbench ended")


def _words(text: str) -> str:
    return one_line(without_secrets(text), 300)
