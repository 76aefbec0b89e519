"""Samples of the waits of backends, up to ten times a second, added up from frame to frame.

A look usually wakes no task: a timer sends the query, and a callback takes the answer. The sampler's task is woken only
for work of several statements, and for an answer that is late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.waits import (
    ACTIVITY_SOURCE,
    PROFILE_SOURCE,
    Blocker,
    OldTransaction,
    TailRow,
    TailSample,
    WaitCount,
    WaitLook,
    WaitPeak,
    WaitSample,
    class_edge_ms,
    length_class,
)

MOST_KINDS: Final = 256
"""Rows of a sample. Where there are more, the rarest lose their query id and become one."""
_KEPT: Final = 20
"""Samples for which an unseen kind stays: a wait that comes and goes is one small number in a recording."""


class WaitCounts:
    """Sums of looks; every kind of wait keeps its place from sample to sample while it is seen now and then."""

    def __init__(self) -> None:
        self._rows: dict[str, WaitCount] = {}
        self._seen: dict[str, int] = {}
        self._unseen: dict[str, int] = {}
        self._peaks: dict[tuple[str, str], int] = {}
        self._looks = 0

    def add(self, look: Iterable[WaitCount], looks: int = 1) -> None:
        """Add one look, or the sum of several looks that pg_wait_sampling took."""
        self._looks += looks
        observations = self._seen
        at_once: dict[tuple[str, str], int] = {}
        for count in look:
            wait = count.wait_event_type, count.wait_event
            at_once[wait] = at_once.get(wait, 0) + count.observations
            kind = count.kind
            if kind not in self._rows:
                self._rows[kind] = replace(count, observations=0)
            observations[kind] = observations.get(kind, 0) + count.observations
        for wait, most in at_once.items() if looks == 1 else ():
            self._peaks[wait] = max(most, self._peaks.get(wait, 0))

    def drain(self, at_s: float, source: str = ACTIVITY_SOURCE) -> WaitSample:
        """Return the sums since the last call."""
        if len(self._rows) > MOST_KINDS:
            self._forget_unseen()
        if len(self._rows) > MOST_KINDS:
            self._forget_queries()
        counts = tuple(replace(row, observations=self._seen.get(kind, 0)) for kind, row in self._rows.items())
        for kind in tuple(self._rows):
            unseen = 0 if kind in self._seen else self._unseen.get(kind, 0) + 1
            self._unseen[kind] = unseen
            if unseen >= _KEPT:
                del self._rows[kind], self._unseen[kind]
        from_activity = source == ACTIVITY_SOURCE
        peaks = tuple(WaitPeak(*wait, most) for wait, most in self._peaks.items() if most > 1 and from_activity)
        sample = WaitSample(at_s=at_s, samples=self._looks, counts=counts, source=source, peaks=peaks)
        self._seen, self._peaks = {}, {}
        self._looks = 0
        return sample

    def clear(self) -> None:
        """Forget everything: the server was gone."""
        self._rows.clear()
        self._seen.clear()
        self._unseen.clear()
        self._peaks.clear()
        self._looks = 0

    def _forget_unseen(self) -> None:
        for kind in [kind for kind in self._rows if kind not in self._seen]:
            del self._rows[kind]
            self._unseen.pop(kind, None)

    def _forget_queries(self) -> None:
        rarest = sorted(
            (kind for kind in self._rows if self._rows[kind].query_id is not None), key=self._seen.__getitem__
        )
        for kind in rarest[: len(self._rows) - MOST_KINDS // 2]:
            row = replace(self._rows.pop(kind), query_id=None)
            self._unseen.pop(kind, None)
            self._rows.setdefault(row.kind, row)
            self._seen[row.kind] = self._seen.get(row.kind, 0) + self._seen.pop(kind)


# Old transactions are followed from look to look; when they have ended, their waits are added up.
#
# A look returns the transactions older than a floor. One that a look does not return any more has ended: its greatest
# age seen is its length, short by half the time between two looks on average. Every transaction counts once, however
# many looks saw it: a look weighs 1 / (looks of its transaction). `metrics.tail` says why this is free of length bias.

FLOOR_MS: Final = 50
"""Half the time between two looks: a transaction that lasts for two of them is seen for certain."""
MOST_FOLLOWED: Final = 64
"""Transactions followed at once; where there are more, only every second session is, every fourth, and so on."""
MOST_ROWS: Final = 40
_NEVER_TOLD: Final = 0.8
"""Factor on the time between two looks: shorter transactions are in no tail that `metrics.tail` shows."""
_MOST_ASKED: Final = 8
"""Lock waiters asked about in one look."""
_MOST_ONE_IN: Final = 1024

_Wait = tuple[str, str, int | None]


class _Followed(Struct):
    age_ms: float
    of_load: bool
    waits: dict[_Wait, int] = {}
    is_asked: bool = False
    root: Blocker | None = None


class TailLooks:
    """Sums of the looks between two frames.

    Attributes:
        floor_ms: Age from which on transactions are asked for.
        one_in: One session in so many is asked for; 1 is all.
    """

    def __init__(self) -> None:
        self.floor_ms = FLOOR_MS
        self.one_in = 1
        self._followed: dict[tuple[int, int], _Followed] = {}
        self._sums: dict[TailRow, tuple[float, int]] = {}
        self._looks = 0
        self._waiting: tuple[tuple[int, int], ...] = ()
        self._looked_s: float | None = None
        self._between_s = 0.0

    def look(self, transactions: Sequence[OldTransaction], at_s: float) -> None:
        """Take a look; transactions that are not in it have ended."""
        if self._looked_s is not None:
            self._looks += 1
            self._between_s += at_s - self._looked_s
        self._looked_s = at_s
        before, self._followed = self._followed, {}
        waiting = []
        for one in transactions:
            key = one.pid, one.xact_start_ms
            followed = before.pop(key) if key in before else _Followed(one.age_ms, one.of_load)
            self._followed[key] = followed
            followed.age_ms = one.age_ms
            wait = one.wait_event_type, one.wait_event, one.query_id
            followed.waits[wait] = followed.waits.get(wait, 0) + 1
            if one.wait_event_type == "Lock" and not followed.is_asked:
                waiting.append(key)
        self._waiting = tuple(waiting[:_MOST_ASKED])
        for ended in before.values():
            # A younger transaction is not asked for any longer, since a burst of looks has ended.
            if ended.age_ms >= self.floor_ms:
                self._add(self._sums, ended, is_open=False)
        self._share_out(len(transactions))

    def _share_out(self, transactions: int) -> None:
        """Follow fewer sessions where there are too many, and more of them again where there are few."""
        if transactions > MOST_FOLLOWED and self.one_in < _MOST_ONE_IN:
            self.one_in *= 2
            # The others have not ended; they are not followed any longer.
            self._followed = {key: one for key, one in self._followed.items() if key[0] % self.one_in == 0}
        elif transactions < MOST_FOLLOWED // 4 and self.one_in > 1:
            self.one_in //= 2

    @property
    def unasked(self) -> tuple[int, ...]:
        """Pids that wait for a lock and whose blocker is not known; at most `_MOST_ASKED`."""
        return tuple(pid for pid, _ in self._waiting)

    def blocked(self, blockers: Mapping[int, Blocker]) -> None:
        """Take a blocker of each pid of `unasked`, and of each blocker that waits itself."""
        for key in self._waiting:
            followed = self._followed.get(key)
            if followed is not None:
                followed.is_asked = True
                followed.root = _root(key[0], blockers)
        self._waiting = ()

    def drain(self, at_s: float) -> TailSample:
        """Return the transactions that ended since the last call, and the open ones."""
        sums = self._sums
        for followed in self._followed.values():
            self._add(sums, followed, is_open=True)
        every_ms = round(1000.0 * self._between_s / self._looks, 1) if self._looks else 0.0
        told_sums = {
            row: counted for row, counted in sums.items() if class_edge_ms(row.length + 1) > _NEVER_TOLD * every_ms
        }
        sample = TailSample(
            at_s=at_s,
            looks=self._looks,
            every_ms=every_ms,
            floor_ms=self.floor_ms,
            one_in=self.one_in,
            rows=_rows(told_sums),
        )
        self._sums, self._looks, self._between_s = {}, 0, 0.0
        return sample

    def clear(self) -> None:
        """Forget everything: the server was gone."""
        self._followed, self._sums, self._waiting = {}, {}, ()
        self._looks, self._looked_s, self._between_s, self.one_in = 0, None, 0.0, 1

    def _add(self, sums: dict[TailRow, tuple[float, int]], followed: _Followed, *, is_open: bool) -> None:
        all_looks = sum(followed.waits.values())
        for (kind, event, query_id), looks in followed.waits.items():
            root = followed.root if kind == "Lock" else None
            row = TailRow(
                length=length_class(followed.age_ms), open=is_open, wait_event_type=kind, wait_event=event,
                transactions=0.0, looks=0, query_id=query_id, root_pid=root.pid if root else None,
                root=root.does if root else "", of_load=followed.of_load,
            )  # fmt: skip
            _count(sums, row, self.one_in * looks / all_looks, looks)


def _count(sums: dict[TailRow, tuple[float, int]], row: TailRow, transactions: float, looks: int) -> None:
    before = sums.get(row, (0.0, 0))
    sums[row] = before[0] + transactions, before[1] + looks


def _root(pid: int, blockers: Mapping[int, Blocker]) -> Blocker | None:
    """Follow the queue to a session that waits for none; in a circle return any of it."""
    blocker, passed = blockers.get(pid), {pid}
    while blocker is not None and blocker.pid not in passed and blocker.pid in blockers:
        passed.add(blocker.pid)
        blocker = blockers[blocker.pid]
    return blocker


_COARSER: Final[tuple[Callable[[TailRow], TailRow], ...]] = (
    lambda row: replace(row, root_pid=None),
    lambda row: replace(row, query_id=None),
    lambda row: replace(row, length=row.length // 4 * 4),
    lambda row: replace(row, wait_event="", root=""),
)


def _rows(sums: dict[TailRow, tuple[float, int]]) -> tuple[TailRow, ...]:
    """Return at most `MOST_ROWS`: first without pids of roots, then without statements, then with coarser lengths."""
    for coarser in _COARSER:
        if len(sums) <= MOST_ROWS:
            break
        fewer: dict[TailRow, tuple[float, int]] = {}
        for row, (transactions, looks) in sums.items():
            _count(fewer, coarser(row), transactions, looks)
        sums = fewer
    return tuple(
        replace(row, transactions=round(transactions, 2), looks=looks) for row, (transactions, looks) in sums.items()
    )


class WaitsReader(Protocol):
    """The part of `ServerReader` that samples waits."""

    def look_at_waits(self, floor_ms: int, one_in: int, take: Callable[[WaitLook | None], None]) -> bool: ...

    async def waits(self, floor_ms: int, one_in: int) -> WaitLook | Unavailable: ...

    async def blockers(self, pids: Sequence[int]) -> Mapping[int, Blocker] | Unavailable: ...

    async def exact_waits(self) -> WaitLook | Unavailable: ...


_COST: Final = 10.0
"""Looks take at most one part in so many of the time."""
_REST_S: Final = 9.0
"""Longest rest, less than the window of the wait figures: however slow the server is, each window has a look."""
_CROWDS: Final = ((1000, 0.65), (500, 0.5), (250, 0.3), (100, 0.2))
"""Least number of sessions, and seconds from look to look: a look at more sessions costs the server more, and counts
more of them, so that figures are as exact as with fewer. The burst sees shorter transactions."""
BURST_S: Final = 20.0
_BURST_COST: Final = 3.0
"""`_COST` during a burst, which an operator has requested and which ends soon."""
BURST_EVERY_S: Final = 0.02
BURST_FLOOR_MS: Final = 10
_BLOCKERS_COST: Final = 20.0
_BLOCKERS_REST_S: Final = 0.2
_EARLY_S: Final = 0.001
"""Time by which timers of the event loop may come early."""
_LATE_S: Final = 4.0
"""Time after which the task waits for the answer: it notices a server that is gone."""

_COUNTED_BY_THE_SERVER: Final = Unavailable(
    Reason.NOT_SUPPORTED, "pg_wait_sampling counts waits, but not by transaction"
)


def next_waits(
    due: float, now: float, cost_s: float, every_s: float = sections.waits.every_s, cost: float = _COST
) -> float:
    """Return when waits are sampled again, by the clock of the two moments.

    Args:
        due: Moment at which the last look was due; one that is late is skipped, not made up for.
        now: End of the last look.
        cost_s: Duration of the last look. A stop of this program in the middle of it is no cost of the server.
        every_s: Time from look to look.
        cost: One part in so many of the time is for looks.
    """
    following = due + every_s
    return max(now + every_s if following < now else following, now + min(cost_s * (cost - 1), _REST_S))


def waits_every_s(sessions: int) -> float:
    """Return the time from look to look at the waits of so many sessions."""
    return next((every_s for least, every_s in _CROWDS if sessions >= least), sections.waits.every_s)


class WaitLooks:
    """Sampler of waits that works by itself between `begin` and `end`.

    Args:
        reader: The connection.
        clock: The session's clock.
        call: Wakes the sampler's task, which calls `catch_up`.

    Attributes:
        sessions: Sessions of the server, as far as known: a crowd is looked at less often.
        answered_s: Moment of the last answer.
    """

    def __init__(self, reader: WaitsReader, clock: Callable[[], float], call: Callable[[], None]) -> None:
        self._reader = reader
        self._clock = clock
        self._call = call
        self.sessions = 0
        self.answered_s = 0.0
        self._counts = WaitCounts()
        self._tail = TailLooks()
        self._absent: Unavailable | None = None
        self._exact = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._late_at = 0.0
        self._is_awaited = False
        self._asked_s = 0.0
        self._is_due = False
        self._by_task = False
        self._blockers_due_s = 0.0
        self._burst_until_s = 0.0
        self._every_s = sections.waits.every_s
        self._cost = _COST

    def clear(self) -> None:
        """Forget everything: the server was gone."""
        self._counts.clear()
        self._tail.clear()
        self.sessions = 0

    def begin(self) -> None:
        """Begin; the first look is due now."""
        self._loop = asyncio.get_running_loop()
        self._is_due = self._by_task = self._is_awaited = False
        self._due = self._loop.time()
        self._wake_at(self._due)

    def end(self) -> None:
        """End; an answer that is still to come is ignored."""
        self._wake_never()
        self._loop = None

    def _wake_at(self, moment: float) -> None:
        self._wake_never()
        if self._loop is not None:
            self._alarm = self._loop.call_at(moment, self._alarmed)

    def _wake_never(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _alarmed(self) -> None:
        """Send the next query, or handle an answer that is late: one timer serves both."""
        self._alarm = None
        assert self._loop is not None
        now = self._loop.time()
        if self._is_awaited and now >= self._late_at:
            self._leave_to_task()
        elif self._is_awaited or now < self._due - _EARLY_S:
            self._wake_at(now + self._every_s if self._is_awaited else self._due)
        elif not self._asks():
            # The connection is busy, or cannot be asked in this way.
            self._is_due = True
            self._call()

    def _leave_to_task(self) -> None:
        self._wake_never()
        self._is_awaited = False
        self._is_due = self._by_task = True
        self._call()

    def _asks(self) -> bool:
        self._begin_look()
        is_asked = self._reader.look_at_waits(self._tail.floor_ms, self._tail.one_in, self._seen)
        if is_asked and self._loop is not None:
            now = self._loop.time()
            self._is_awaited, self._late_at = True, now + _LATE_S
            due = self._due + self._every_s
            self._wake_at(due if due > now else now + self._every_s)
        return is_asked

    def _begin_look(self) -> None:
        self._asked_s = self._clock()
        if self._asked_s < self._burst_until_s:
            self._every_s, self._cost, self._tail.floor_ms = BURST_EVERY_S, _BURST_COST, BURST_FLOOR_MS
        else:
            self._every_s, self._cost, self._tail.floor_ms = waits_every_s(self.sessions), _COST, FLOOR_MS

    def _seen(self, look: WaitLook | None) -> None:
        self._is_awaited = False
        if self._loop is None or self._by_task or self._exact:
            return
        if look is None:
            self._leave_to_task()
            return
        self._take(look)
        if self._tail.unasked and self.answered_s >= self._blockers_due_s:
            self._call()

    def _take(self, look: WaitLook | Unavailable) -> None:
        now_s = self.answered_s = self._clock()
        self._absent = look if isinstance(look, Unavailable) else None
        if not isinstance(look, Unavailable):
            self._counts.add(look.counts)
            self._tail.look(look.old, now_s)
        if self._loop is not None:
            cost_s = now_s - self._asked_s
            self._due = next_waits(self._due, self._loop.time(), cost_s, self._every_s, self._cost)
            if self._alarm is None:
                self._wake_at(self._due)

    async def catch_up(self) -> None:
        """Do the pending looks in the task. Raises as the reader does."""
        if self._is_due and (self._by_task or not self._asks()):
            self._begin_look()
            look = await self._reader.waits(self._tail.floor_ms, self._tail.one_in)
            self._by_task = False
            self._take(look)
        self._is_due = False
        await self._ask_for_blockers()

    async def _ask_for_blockers(self) -> None:
        """Ask once for the blocker of each old transaction that waits for a lock; rest for twenty times as long."""
        begun_s = self._clock()
        pids = self._tail.unasked
        if not pids or begun_s < self._blockers_due_s:
            return
        blockers = await self._reader.blockers(pids)
        self._tail.blocked({} if isinstance(blockers, Unavailable) else blockers)
        self.answered_s = self._clock()
        self._blockers_due_s = self.answered_s + max((self.answered_s - begun_s) * _BLOCKERS_COST, _BLOCKERS_REST_S)

    def burst(self) -> float:
        """Sample fifty times a second, within `_BURST_COST`; return for how many seconds. In the engine's loop."""
        self._burst_until_s = self._clock() + BURST_S
        return BURST_S

    async def since(self) -> WaitSample | Unavailable:
        """Return the waits since the last call: the counts of pg_wait_sampling where it is loaded, else those of the
        looks."""
        exact = await self._reader.exact_waits()
        counted = not isinstance(exact, Unavailable)
        if counted != self._exact:
            self._exact = counted
            self._counts.clear()
            self._tail.clear()
            self._look_or_not()
        if isinstance(exact, Unavailable):
            return self._absent or self._counts.drain(self._clock())
        self._counts.add(exact.counts, exact.samples)
        return self._counts.drain(self._clock(), PROFILE_SOURCE)

    def _look_or_not(self) -> None:
        self._is_due = self._by_task = False
        if self._exact:
            self._wake_never()
        elif self._loop is not None:
            self._due = self._loop.time()
            self._wake_at(self._due)

    def tail_since(self) -> TailSample | Unavailable:
        """Return the old transactions since the last call, by the same looks."""
        if self._exact:
            return _COUNTED_BY_THE_SERVER
        return self._absent or self._tail.drain(self._clock())
