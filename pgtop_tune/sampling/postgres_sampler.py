"""Sampler of the server: sections once a tick, wait events up to ten times a second, over one connection.

The sampler runs as a task of its own, so that a server that hangs stops nothing but its own numbers. It asks expensive
questions less often: no section takes more than a twentieth of the time, that of pg_stat_statements no more than a
two-hundredth, wait sampling no more than a tenth.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable
from math import ceil
from typing import Final, Protocol, TypeVar

from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem, NotLetIn, NotReady, PasswordNeeded, WrongPassword
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Reading, Section
from pgtop_tune.metrics.server import checkpoints_between
from pgtop_tune.model.absence import NOT_YET, Reason, Unavailable
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.model.postgres import (
    Activity,
    CheckpointCounters,
    CheckpointCycle,
    PostgresSample,
    ServerFacts,
    WalCounters,
)
from pgtop_tune.sampling.wait_looks import WaitLooks, WaitsReader

# Rests of questions that cost the server: most take at most a twentieth of the time, those of many rows less.

_PART: Final = 20.0
_PART_BY_ROWS: Final = 300.0
"""A question of many rows takes a third of a per cent of a core, and with the texts of the rows at most half of one."""
_ANSWERS: Final = 10


class Resting:
    """Rests of one connection's questions, each by the cheaper of its last two answers.

    A stop of this program, the server or the network in the middle of one answer is no cost of the question: a rest of
    twenty times as long would leave the throughput unknown for minutes. The first answer, with cold caches, is free.

    A question of many rows rests in proportion to their number and to the least time per row in its last answers: a
    busy machine makes an answer late, not expensive; a sudden growth of the number lengthens the rest at once.
    """

    def __init__(self) -> None:
        self._cost_s: dict[str, float] = {}
        self._row_s: dict[str, deque[float]] = {}

    def due_s(self, question: str, began_s: float, ended_s: float, every_s: float, rows: int | None = None) -> float:
        """Return when the question is due again: `every_s` after it began, or later where it is expensive.

        Args:
            question: Name of the question.
            began_s, ended_s: Moments of question and answer.
            every_s: Least time between two questions.
            rows: Number of rows of the answer; None for a question that does not rest by rows.
        """
        cost_s = ended_s - began_s
        paid_s, self._cost_s[question] = min(cost_s, self._cost_s.get(question, 0.0)), cost_s
        if rows is None:
            return began_s + max(every_s, paid_s * _PART)
        row_s = self._row_s.setdefault(question, deque(maxlen=_ANSWERS))
        paid_s = min((*row_s, cost_s / max(rows, 1))) * rows if row_s else 0.0
        row_s.append(cost_s / max(rows, 1))
        return began_s + max(every_s, paid_s * _PART_BY_ROWS)


# Full pages written when checkpoints began: frames alone forget them within minutes.


class CheckpointCycles:
    """Full pages at the begin of checkpoints, from the counters of every tick."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything: the server restarted, or was away and may have begun any number of checkpoints."""
        self._counters: CheckpointCounters | None = None
        self._wal: WalCounters | None = None
        self._at_begin: int | None = None
        self._at_previous: int | None = None

    def seen(
        self, counters: CheckpointCounters | Unavailable, wal: WalCounters | Unavailable
    ) -> CheckpointCycle | Unavailable:
        """Return the known figures of this checkpoint cycle and the one before; the reason where a counter is
        absent."""
        if isinstance(counters, Unavailable):
            self.clear()
            return counters
        if isinstance(wal, Unavailable):
            self.clear()
            return wal
        if self._wal is not None and (
            wal.wal_fpi < self._wal.wal_fpi or wal.stats_reset_ms != self._wal.stats_reset_ms
        ):
            self.clear()
        if self._counters is not None and self._wal is not None and counters.at_s > self._counters.at_s:
            began = checkpoints_between(self._counters, counters)
            if began is None:
                self.clear()
            elif sum(began):
                # The checkpoint began between two looks: the full pages of the earlier look are surely not its own.
                single = sum(began) == 1
                self._at_previous, self._at_begin = (self._at_begin if single else None), self._wal.wal_fpi
        self._counters, self._wal = counters, wal
        return CheckpointCycle(wal.at_s, self._at_begin, self._at_previous)


# The session's clocks.


class SessionClock:
    """Seconds since it was made, monotonic, to a tenth of a millisecond (finer digits only cost space on disk)."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def __call__(self) -> float:
        return round(time.monotonic() - self._start, 4)

    @staticmethod
    def wall_ms() -> int:
        """Return milliseconds since the epoch on this machine's wall clock."""
        return int(time.time() * 1000)


# What sampling needs of a server: fits `postgres.reader.PostgresReader`, and scripts in tests.

R = TypeVar("R", bound=Reading)


class ServerReader(WaitsReader, Protocol):
    """One read-only connection. Every call raises ConnectionProblem when the server is gone or does not answer."""

    async def connect(self) -> ServerFacts: ...

    async def facts(self) -> ServerFacts | Unavailable: ...

    async def read(self, section: Section[R]) -> R | Unavailable: ...

    def share_statements(self, shared: bool) -> None: ...

    async def aclose(self) -> None: ...


_CROWD: Final = 500
_CROWD_EVERY_S: Final = 1.9
"""Time between two lists of sessions of a crowd, which the head of the list shows: the list is the bulk of our cost.
Locks are read together with the list: beside an older list they would cost as much and say no more."""
_RETRY_S: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
"""Waits between attempts to connect: a restart is seen within a second, a server that is gone costs little."""


class PostgresSampler:
    """The server's sampler: it keeps a connection, samples, and reconnects for ever.

    Args:
        reader: The connection.
        clock: The session's clock.
        note: Takes events: the server gone, back, restarted.
        localise: Completes the facts with whether the server runs on this machine.
        waits_for_password: An operator can type a password; if not, a server that wants one ends the session.
    """

    def __init__(
        self,
        reader: ServerReader,
        clock: SessionClock,
        note: Callable[[Event], None],
        localise: Callable[[ServerFacts], Awaitable[ServerFacts]],
        waits_for_password: bool = False,
    ) -> None:
        self._reader = reader
        self._clock = clock
        self._note = note
        self._localise = localise
        self._waits_for_password = waits_for_password
        self._typed = False
        self._facts: ServerFacts | None = None
        self._facts_due_s = 0.0
        self._readings: dict[str, Reading | Unavailable] = {}
        self._due_s: dict[str, float] = {}
        self._resting = Resting()
        self._cycles = CheckpointCycles()
        self._connected = False
        self._answered_s = clock()
        self._problem: ConnectionProblem | None = None
        self._retry_at_s = 0.0
        self._called = asyncio.Event()
        self._waits = WaitLooks(reader, clock, self._called.set)
        self._configured_ms = 0
        self._looked = False
        self._answers: list[asyncio.Future[PostgresSample]] = []
        self._wake = asyncio.Event()
        self._tried = asyncio.Event()

    @property
    def facts(self) -> ServerFacts | None:
        """The newest facts, also while the server is away; None before the first connection."""
        return self._facts

    @property
    def why(self) -> str:
        """The reason why the last attempt to connect failed; "" while connected or before the first."""
        return "" if self._problem is None else self._problem.message

    @property
    def problem(self) -> ConnectionProblem | None:
        """The problem of the last attempt to connect; None while connected or before the first."""
        return self._problem

    @property
    def may_answer(self) -> bool:
        """False once the server refused the first login: nothing will come, unless it only starts."""
        return self._problem is None or self._facts is not None or isinstance(self._problem, NotReady)

    @property
    def password_needed(self) -> bool:
        """True while the server waits for a password that an operator must type."""
        return self._problem is not None and self._asks(self._problem)

    def _asks(self, problem: ConnectionProblem) -> bool:
        """Return whether to ask for a password again: a typed one may be mistyped; one from a file would be wrong
        again."""
        return isinstance(problem, PasswordNeeded) or (self._typed and isinstance(problem, WrongPassword))

    def refresh(self, section: Section[Reading]) -> None:
        """Read a slow section with the next tick."""
        self._due_s.pop(section.name, None)

    def retry_now(self) -> None:
        """Connect at once, with a password that was typed. In the engine's loop."""
        self._typed = True
        self._wake.set()

    async def look(self, patience_s: float) -> PostgresSample | Unavailable:
        """Return a sample of the server.

        Args:
            patience_s: Longest time that a tick waits for the answer.
        """
        if not self._tried.is_set():
            # The first picture waits a moment for the first answer instead of showing none for a whole interval.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._tried.wait()
        if not self._connected:
            return self._away()
        answer: asyncio.Future[PostgresSample] = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        self._called.set()
        done, _ = await asyncio.wait((answer,), timeout=patience_s)
        if done and not answer.cancelled():
            return answer.result()
        return self._away()

    def _away(self) -> Unavailable:
        if self._facts is None and self._problem is None:
            return NOT_YET
        now_s = self._clock()
        answered_s = max(self._answered_s, self._waits.answered_s)
        parts = [] if self._facts is None else [f"no answer for {now_s - answered_s:.0f} s"]
        if self._problem is not None:
            left_s = self._retry_at_s - now_s
            again = f"; trying again in {ceil(left_s)} s" if left_s > 0 else "; trying again"
            hint = f"; {self._problem.hint}" if self._problem.hint else ""
            parts.append(self._problem.message + ("" if self.password_needed else again) + hint)
        return Unavailable(Reason.NO_ANSWER, ": ".join(parts))

    async def run(self) -> None:
        """Connect, sample and reconnect until cancelled.

        Raises:
            NotLetIn: The server refused the first login; it would refuse the next one, too.
        """
        attempt = 0
        try:
            while True:
                try:
                    await self._connect()
                    attempt = 0
                    await self._sample()
                except ConnectionProblem as problem:
                    if self._is_final(problem):
                        raise
                    self._lost(problem)
                await self._pause(attempt)
                attempt += 1
        finally:
            self._give_up_answers()
            await self._reader.aclose()

    def _is_final(self, problem: ConnectionProblem) -> bool:
        """Return whether the session ends: a later refusal does not end it for an operator who was let in once."""
        asked_for = self._waits_for_password and self._asks(problem)
        return isinstance(problem, NotLetIn) and self._facts is None and not asked_for

    async def _pause(self, attempt: int) -> None:
        wait_s = None if self.password_needed else _RETRY_S[min(attempt, len(_RETRY_S) - 1)]
        self._retry_at_s = self._clock() + (wait_s or 0.0)
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._wake.wait()

    async def _connect(self) -> None:
        before = self._facts
        self._facts = await self._localise(await self._reader.connect())
        self._problem = None
        self._answered_s = self._clock()
        self._readings.clear()
        self._due_s.clear()
        self._facts_due_s = self._answered_s + sections.server.every_s
        self._waits.clear()
        self._cycles.clear()
        self._connected = True
        self._tried.set()
        if before is not None:
            restarted = before.started_ms != self._facts.started_ms
            kind = EventKind.RESTART if restarted else EventKind.CONNECTION
            self._event(kind, "server restarted" if restarted else "reconnected")
            self._note_role(before, self._facts)

    def _lost(self, problem: ConnectionProblem) -> None:
        if self._connected:
            self._event(EventKind.CONNECTION, "server gone", problem.message)
        self._connected = False
        self._problem = problem
        self._tried.set()
        self._give_up_answers()

    def _give_up_answers(self) -> None:
        for answer in self._answers:
            answer.cancel()
        self._answers.clear()

    def _event(self, kind: EventKind, text: str, detail: str = "") -> None:
        self._note(Event(at_ms=SessionClock.wall_ms(), kind=kind, text=text, detail=detail))

    async def _sample(self) -> None:
        self._waits.begin()
        try:
            while True:
                await self._called.wait()
                self._called.clear()
                if self._answers:
                    await self._answer()
                await self._waits.catch_up()
        finally:
            self._waits.end()

    def burst(self) -> float:
        return self._waits.burst()

    async def _look_at_facts(self) -> None:
        """Read the facts that can change during a connection; the machine of the server cannot."""
        assert self._facts is not None
        begun_s = self._clock()
        if begun_s < self._facts_due_s:
            return
        facts = await self._reader.facts()
        self._facts_due_s = self._resting.due_s("facts", begun_s, self._clock(), sections.server.every_s)
        if isinstance(facts, Unavailable):
            return
        before = self._facts
        self._facts = replace(facts, local=before.local, postmaster_pid=before.postmaster_pid)
        if self._note_role(before, self._facts):
            self._due_s.clear()

    def _note_role(self, before: ServerFacts, now: ServerFacts) -> bool:
        if before.in_recovery == now.in_recovery:
            return False
        detail = "pg_is_in_recovery() changed; WAL, checkpoints and replication are shown for the new role"
        self._event(EventKind.ROLE, "now a standby" if now.in_recovery else "promoted: now a primary", detail)
        return True

    def _look_at_configuration(self, activity: Activity) -> None:
        """Read the parameters with the next tick when the server has reloaded its configuration files."""
        configured_ms = activity.configured_ms or 0
        # Behind a pooler each look may come from another session; only a later moment is news.
        if configured_ms > self._configured_ms:
            self._configured_ms = configured_ms
            self.refresh(sections.parameters)

    async def _answer(self) -> None:
        await self._look_at_facts()
        assert self._facts is not None
        began_s = self._clock()
        due = [section for section in sections.READ if began_s >= self._due_s.get(section.name, 0.0)]
        due = [section for section in due if section.made_from is None or section.made_from in due]
        if not self._looked:
            self._readings.update((section.name, NOT_YET) for section in due if not section.first_look)
            due = [section for section in due if section.first_look]
        self._reader.share_statements(True)
        for section in due:
            now_s = self._clock()
            reading = await self._reader.read(section)
            self._readings[section.name] = reading
            every_s = section.every_s
            if section is sections.activity:
                self._waits.sessions = len(reading.backends) if isinstance(reading, Activity) else 0
            if section.of_sessions and self._waits.sessions >= _CROWD:
                every_s = _CROWD_EVERY_S
            if isinstance(reading, Activity):
                self._look_at_configuration(reading)
            rows = None
            if section.of_rows is not None and not isinstance(reading, Unavailable):
                rows = section.of_rows(reading)
            self._due_s[section.name] = self._resting.due_s(section.name, now_s, self._clock(), every_s, rows)
        self._reader.share_statements(False)
        self._looked = True
        self._answered_s = self._clock()
        sample = PostgresSample(server=self._facts, waits=await self._waits.since(), tail=self._waits.tail_since())
        sample = replace(sample, **self._readings)
        sample = replace(sample, checkpoint_cycle=self._cycles.seen(sample.checkpoints, sample.wal))
        answers, self._answers = self._answers, []
        for answer in answers:
            if not answer.done():
                answer.set_result(sample)
