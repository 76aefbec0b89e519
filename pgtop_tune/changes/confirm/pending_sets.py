"""Change sets pending confirmation in this program: reverted at their deadline or by a trip wire, unless confirmed."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.changes.model.change import ParameterChange, Terms
from pgtop_tune.changes.model.change_set import Change, ChangeSet, LostBetweenHalves, Settled, value_before
from pgtop_tune.changes.model.pending_set import NOT_CONFIRMED, deadline_ms
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.process.process_key import boot_clock_s

if TYPE_CHECKING:
    from pgtop_tune.changes.change_sets import ChangeSets
    from pgtop_tune.changes.ports import AdoptedSet, AdoptionControl
    from pgtop_tune.metrics.trip_wires import TripWire
    from pgtop_tune.model.frame import Frame
    from pgtop_tune.runtime.ports import Step


_LOOK_S: Final = 2.0
"""How soon it is noticed that a journal is gone."""
_SLEEP_S: Final = 1.0
"""The clock of an event loop stands still while the machine sleeps."""


async def _sleep_until(boot_s: float) -> None:
    """Wait for a moment of the boot clock."""
    # No event comes with a machine that wakes up.
    while (left_s := boot_s - boot_clock_s()) > 0:  # noqa: ASYNC110
        await asyncio.sleep(min(left_s, _SLEEP_S))


class Pending(Struct, frozen=True, kw_only=True):
    """A set that is in force until its deadline.

    Attributes:
        set_id: Id of the set in the journal.
        changes: In the order they were made.
        until_ms: The deadline, milliseconds since the epoch.
        until_boot_s: The deadline on the boot clock; None counts by the other one.
        wires: Trip wires: lines that revert it at once when they are crossed.
        adopted_from: The program that made it and is gone, "user@host, pid"; "" for a set of our own.
        with_restart: Whether reverting it restarts the server where the old values need it.
        of_server: Whether it has, or may have, a half of the server.
        reverting: Why it is being reverted right now; "" while it stands.
        problem: Why that has not worked yet, and is tried again; or why no journal has the set any more.
    """

    set_id: str
    changes: tuple[Change, ...]
    until_ms: int
    wires: tuple[TripWire, ...] = ()
    adopted_from: str = ""
    with_restart: bool = False
    of_server: bool = True
    reverting: str = ""
    problem: str = ""
    until_boot_s: float | None = None

    def remaining_s(self, now_ms: int) -> float:
        """Return seconds until the deadline, 0 when it has passed; a wall clock that was set does not count."""
        left_s = (self.until_ms - now_ms) / 1000.0 if self.until_boot_s is None else self.until_boot_s - boot_clock_s()
        return max(left_s, 0.0)


class AutoReverted(Struct, frozen=True, kw_only=True):
    """A set that went back without having been confirmed.

    Attributes:
        number: 1, 2, 3 … within a session.
        changes: The pending changes.
        why: The trip wire, or the lack of a confirmation.
    """

    number: int
    changes: tuple[Change, ...]
    why: str


class PendingSets:
    """A `FrameSink` with the sets that are pending confirmation: one of our own at a time, and those that were adopted.

    Coroutines run in the engine's loop.

    Args:
        sets: Makes and reverts them.
        note: Puts an event into the next frame.
        wall_ms: Milliseconds since the epoch.
        adoptions: Sets of programs that are gone; None where nothing is adopted.
        report: Takes each problem with reverting a set at its deadline or at a trip wire.
        at_deadline: Why a set is reverted at its deadline, for the journal.
    """

    def __init__(
        self,
        sets: ChangeSets,
        note: Callable[[Event], None],
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        adoptions: AdoptionControl | None = None,
        report: Callable[[PgtopError], None] = lambda problem: None,
        at_deadline: str = NOT_CONFIRMED,
    ) -> None:
        self._sets: Final = sets
        self._note: Final = note
        self._wall_ms: Final = wall_ms
        self._adoptions: Final = adoptions
        self._told: Final = report
        self._at_deadline: Final = at_deadline
        self._adopted = 0
        self._now_s = 0.0
        self._pending: dict[str, Pending] = {}
        self._watches: dict[str, TripWatch] = {}
        self._deadlines: dict[str, asyncio.Task[None]] = {}
        self._reverts: dict[str, asyncio.Task[None]] = {}
        self._outcomes: dict[str, asyncio.Future[Settled]] = {}
        self._current: Pending | None = None
        self._ended: AutoReverted | None = None

    @property
    def current(self) -> Pending | None:
        """The pending set; of several that with the next deadline. Thread-safe."""
        return self._current

    @property
    def ended(self) -> AutoReverted | None:
        """The last set that went back without having been confirmed. Thread-safe."""
        return self._ended

    def accept(self, step: Step) -> None:
        """See `FrameSink.accept`: adopts, and watches trip wires."""
        if step.frames:
            self._now_s = step.frames[-1].elapsed_s
        if self._adoptions is not None:
            adopted = self._adoptions.adopted()
            for adoption in adopted[self._adopted :]:
                self._adopt(adoption)
            self._adopted = len(adopted)
        for set_id, watch in tuple(self._watches.items()):
            if reason := watch.accept(step):
                self._begin_reverting(set_id, reason)

    def close(self) -> None:
        """See `FrameSink.close`; a pending set is reverted by the doors when they are closed."""
        for task in (*self._deadlines.values(), *self._reverts.values()):
            task.cancel()

    async def apply(self, change_set: ChangeSet, terms: Terms, wires: Sequence[TripWire] = ()) -> Settled:
        """Make a set of changes; pending confirmation where the terms have a time.

        Raises:
            UsageProblem: Another set is pending, or there is no way to the machine.
            LostBetweenHalves: See `ChangeSets.apply`; the set is pending, so that both halves go back together.
            PgtopError: See `ChangeSets.apply`.
        """
        if self._current is not None:
            names = ", ".join(change.name for change in self._current.changes)
            raise UsageProblem(f"{names}: still pending confirmation", "confirm or undo it first")
        terms = replace(terms, trip_wires=tuple(wire.text for wire in wires))
        try:
            settled = await self._sets.apply(change_set, terms)
        except LostBetweenHalves as lost:
            self._begin(lost.made, terms, wires, of_server=True)
            raise
        self._begin(settled, terms, wires, of_server=bool(settled.parameters))
        return settled

    def _begin(self, settled: Settled, terms: Terms, wires: Sequence[TripWire], *, of_server: bool) -> None:
        if terms.keep_within_s is None or not settled.changes:
            return
        now_ms = self._wall_ms()
        # The journal's deadline counts. With one half it began before the change was made, with two after both were.
        recorded = [until_ms for change in settled.changes if (until_ms := deadline_ms(change)) is not None]
        until_ms = min([now_ms + int(terms.keep_within_s * 1000), *recorded])
        pending = Pending(
            set_id=settled.set_id, changes=settled.changes, until_ms=until_ms, wires=tuple(wires), of_server=of_server
        )
        self._hold(pending, (until_ms - now_ms) / 1000.0)

    def _hold(self, pending: Pending, within_s: float) -> None:
        # What watches is loaded when there is something to watch.

        loop = asyncio.get_running_loop()
        self._outcomes[pending.set_id] = loop.create_future()
        self._watches[pending.set_id] = TripWatch(self._now_s, pending.wires)
        until_boot_s = boot_clock_s() + within_s
        self._deadlines[pending.set_id] = loop.create_task(self._expire(pending.set_id, until_boot_s))
        self._put(replace(pending, until_boot_s=until_boot_s))

    def _adopt(self, adopted: AdoptedSet) -> None:
        known_set = self._pending.get(adopted.set_id)
        if known_set is not None:
            changes = (*known_set.changes, *adopted.changes)
            self._put(replace(known_set, changes=changes, of_server=_of_server(changes)))
            return
        pending = Pending(
            set_id=adopted.set_id,
            changes=adopted.changes,
            until_ms=adopted.until_ms,
            wires=_wires(adopted.trip_wires),
            adopted_from=adopted.by,
            with_restart=adopted.with_restart,
            of_server=_of_server(adopted.changes),
        )
        self._hold(pending, pending.remaining_s(self._wall_ms()))

    async def confirm(self) -> tuple[Change, ...]:
        """Confirm the pending set; return nothing where there is none, or where its revert has begun."""
        pending = self._current
        if pending is None or pending.reverting:
            return ()
        kept = await self._sets.confirm(pending.set_id, of_server=pending.of_server)
        self._forget(pending.set_id)
        return kept.changes

    def reverted_by_hand(self, changes: Sequence[Change]) -> None:
        """Take note that the operator has reverted changes: their sets are not pending any more."""
        for change in changes:
            self._forget(change.set_key)

    async def over(self, set_id: str) -> Settled:
        """Wait until a pending set was reverted; empty where that was not at its deadline or by a trip wire."""
        return await asyncio.shield(self._outcomes[set_id])

    async def revert_now(self, set_id: str) -> Settled:
        """Revert a pending set once, before its deadline; the outcome has the problem of a half that still stands."""
        pending = self._pending.get(set_id)
        self._forget(set_id)
        running = self._reverts.pop(set_id, None)
        if running is not None:
            # It ends after the attempt under way: two at once would share a connection.
            await running
        return await self._sets.revert(set_id, of_server=pending is None or pending.of_server)

    async def _expire(self, set_id: str, until_boot_s: float) -> None:
        lost = False
        while (now_s := boot_clock_s()) < until_boot_s:
            lost = lost or await self._tell_lost(set_id)
            await _sleep_until(min(now_s + _LOOK_S, until_boot_s))
        self._begin_reverting(set_id, self._at_deadline)

    async def _tell_lost(self, set_id: str) -> bool:
        """Return whether no journal has the set any more, so that only this program and its watchdog revert it."""
        problem = await self._sets.lost(set_id)
        if problem is None or set_id not in self._pending:
            return False
        self._told(problem)
        self._note(Event(self._wall_ms(), EventKind.WARNING, problem.message, problem.hint))
        self._put(replace(self._pending[set_id], problem=problem.message))
        return True

    def _begin_reverting(self, set_id: str, reason: str) -> None:
        if set_id in self._pending and set_id not in self._reverts:
            self._reverts[set_id] = asyncio.get_running_loop().create_task(self._revert(set_id, reason))

    async def _revert(self, set_id: str, reason: str) -> None:
        """Go on until it is done, also while the server is away."""
        pending = self._pending[set_id]
        self._put(replace(pending, reverting=reason))

        def told(problem: PgtopError) -> None:
            self._told(problem)
            if set_id in self._pending:
                self._put(replace(self._pending[set_id], problem=problem.message))

        settled = await self._sets.revert_until_done(
            set_id,
            reason,
            told,
            lambda: set_id in self._pending,
            with_restart=pending.with_restart,
            of_server=pending.of_server,
        )
        if settled.problem is not None or self._outcomes[set_id].done():
            # The operator has reverted it by hand meanwhile.
            return
        self._outcomes[set_id].set_result(settled)
        self._forget(set_id)
        self._ended = AutoReverted(
            number=1 if self._ended is None else self._ended.number + 1, changes=pending.changes, why=reason
        )
        detail = "; ".join(f"{change.name} {change.shown_after}→{value_before(change)}" for change in pending.changes)
        self._note(Event(at_ms=self._wall_ms(), kind=EventKind.WARNING, text=f"reverted: {reason}", detail=detail))

    def _put(self, pending: Pending) -> None:
        self._pending[pending.set_id] = pending
        self._choose()

    def _forget(self, set_id: str) -> None:
        self._pending.pop(set_id, None)
        self._watches.pop(set_id, None)
        deadline = self._deadlines.pop(set_id, None)
        if deadline is not None:
            deadline.cancel()
        outcome = self._outcomes.get(set_id)
        if outcome is not None and not outcome.done():
            outcome.set_result(Settled(set_id=set_id))
        self._choose()

    def _choose(self) -> None:
        self._current = min(self._pending.values(), key=lambda pending: pending.until_ms, default=None)


def _of_server(changes: Sequence[Change]) -> bool:
    return any(isinstance(change, ParameterChange) for change in changes)


def _wires(texts: Sequence[str]) -> tuple[TripWire, ...]:
    """Trip wires of a journal; one that only a newer version knows is passed over."""
    from pgtop_tune.metrics.trip_wires import trip_wire

    wires = []
    for text in texts:
        with suppress(UsageProblem):
            wires.append(trip_wire(text))
    return tuple(wires)


# Trip wires over arriving frames: which line has been crossed for long enough to revert a set at once. Pure.

SUSTAINED_S: Final = 3.0
"""How long a line must stay crossed: one slow second is no verdict."""
SETTLE_S: Final = 2.0
"""After the change, before wires count: the first measurements still belong to the time before."""
_FRAMES: Final = 120
"""Frames that are kept for trip wires, which look back over seconds."""


class TripWatch:
    """Watches the trip wires of one set.

    Args:
        began_s: When the set was made, on the session's clock.
        wires: Lines that must not be crossed.
    """

    def __init__(self, began_s: float, wires: Sequence[TripWire]) -> None:
        self._began_s: Final = began_s
        self._wires: Final = tuple(wires)
        self._frames: deque[Frame] = deque(maxlen=_FRAMES)
        self._crossed_since_s: dict[str, float] = {}

    def accept(self, step: Step) -> str:
        """Return the reason to revert the set, "p99>50ms for 3 s"; "" for none."""
        if step.restart:
            self._frames.clear()
        for frame in step.frames if self._wires else ():
            self._frames.append(frame)
            reason = self._saw(frame.elapsed_s, Interval(tuple(self._frames)))
            if reason:
                return reason
        return ""

    def _saw(self, now_s: float, interval: Interval) -> str:
        if now_s < self._began_s + SETTLE_S:
            return ""
        for wire in self._wires:
            if not wire.crossed(interval):
                self._crossed_since_s.pop(wire.text, None)
                continue
            crossed_s = now_s - self._crossed_since_s.setdefault(wire.text, now_s)
            if crossed_s >= SUSTAINED_S:
                return f"{wire.text} for {crossed_s:.0f} s"
        return ""
