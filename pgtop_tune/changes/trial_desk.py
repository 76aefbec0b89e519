"""Sets of changes on trial: made, watched by trip wires, kept or taken back, and what became of each."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.changes.model.change import ParameterChange
from pgtop_tune.changes.model.machine_change import HostChange
from pgtop_tune.errors import PgtopError, UsageProblem
from pgtop_tune.model.events import Event, EventKind

if TYPE_CHECKING:
    from pgtop_tune.changes.confirm.trip_watch import TrialWatch
    from pgtop_tune.changes.model.change import Terms, Wanted
    from pgtop_tune.changes.model.machine_change import WantedSetting
    from pgtop_tune.changes.ports import AdoptedSet, AdoptionControl, ChangeControl, MachineControl, RestartControl
    from pgtop_tune.metrics.trip_wires import TripWire
    from pgtop_tune.runtime.ports import Step

_AGAIN_S: Final = 2.0

Change = ParameterChange | HostChange
"""Of the server, or of its machine."""


class OnTrial(Struct, frozen=True):
    """A set that is in force until its time is over.

    Attributes:
        set_id: Of the journal.
        changes: In the order they were made.
        until_ms: When it is taken back unless somebody keeps it, milliseconds since the epoch.
        wires: Lines that take it back at once when they are crossed.
        adopted_from: The program that made it and is gone, "user@host, pid"; "" for a set of our own.
        with_restart: Whether taking it back restarts the server where the old values need it.
        reverting: Why it is being taken back right now; "" while it stands.
        problem: Why that has not worked yet; it is tried again.
    """

    set_id: str
    changes: tuple[Change, ...]
    until_ms: int
    wires: tuple[TripWire, ...] = ()
    adopted_from: str = ""
    with_restart: bool = False
    reverting: str = ""
    problem: str = ""

    def remaining_s(self, now_ms: int) -> float:
        """Seconds until it is taken back, 0 when the time is over."""
        return max((self.until_ms - now_ms) / 1000.0, 0.0)


class TakenBack(Struct, frozen=True):
    """A trial that ended without being kept.

    Attributes:
        number: 1, 2, 3 … within a session.
        changes: What was on trial.
        why: The trip wire, or that nobody kept it.
    """

    number: int
    changes: tuple[Change, ...]
    why: str


class TrialDesk:
    """A `FrameSink` with the trials under way: one of our own at a time, and those that were adopted. Coroutines run
    in the engine's loop.

    Args:
        control: The door to the server.
        note: Puts an event into the next frame.
        machine: The door to its operating system; None where there is none.
        wall_ms: Milliseconds since the epoch.
        adoptions: Sets of programs that are gone; None where nothing is adopted.
        restart: Restarts the server where an adopted set needs it; None where nobody does.
    """

    def __init__(
        self,
        control: ChangeControl,
        note: Callable[[Event], None],
        machine: MachineControl | None = None,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        adoptions: AdoptionControl | None = None,
        restart: RestartControl | None = None,
    ) -> None:
        self._control: Final = control
        self._note: Final = note
        self._machine: Final = machine
        self._wall_ms: Final = wall_ms
        self._adoptions: Final = adoptions
        self._restart: Final = restart
        self._adopted = 0
        self._watches: dict[str, TrialWatch] = {}
        self._now_s = 0.0
        self._trials: dict[str, OnTrial] = {}
        self._current: OnTrial | None = None
        self._ended: TakenBack | None = None

    @property
    def current(self) -> OnTrial | None:
        """What is on trial; of several sets that with the next deadline. Thread-safe."""
        return self._current

    @property
    def ended(self) -> TakenBack | None:
        """The last trial that was taken back. Thread-safe."""
        return self._ended

    def accept(self, step: Step) -> None:
        """See `FrameSink.accept`: judges the trials under way."""
        if step.frames:
            self._now_s = step.frames[-1].elapsed_s
        if self._adoptions is not None:
            adopted = self._adoptions.adopted()
            for each in adopted[self._adopted :]:
                self._adopt(each)
            self._adopted = len(adopted)
        for watch in tuple(self._watches.values()):
            watch.accept(step)

    def close(self) -> None:
        """See `FrameSink.close`; what is on trial is taken back by the control when that is closed."""

    async def apply(
        self,
        wanted: Sequence[Wanted],
        terms: Terms,
        wires: Sequence[TripWire] = (),
        settings: Sequence[WantedSetting] = (),
    ) -> tuple[Change, ...]:
        """Makes a set of changes; on trial where the terms have a time.

        Settings of the machine come first: huge pages before the server wants them. They are taken back when the
        server refuses the rest.

        Raises:
            UsageProblem: Another set is on trial, or there is no way to the machine.
            PgtopError: See `ChangeControl.apply_set` and `MachineControl.apply_set`.
        """
        if self._current is not None:
            names = ", ".join(change.name for change in self._current.changes)
            raise UsageProblem(f"{names}: still on trial", "keep it or undo it first")
        terms = replace(terms, trip_wires=tuple(wire.text for wire in wires))
        if settings:
            terms = replace(terms, set_id=terms.set_id or uuid.uuid4().hex[:12])
        made = await self._made(wanted, terms, settings)
        until_ms = made[0].until_ms
        if terms.keep_within_s is not None and until_ms is not None:
            self._begin(OnTrial(made[0].set_id or made[0].id, made, until_ms, tuple(wires)), terms.keep_within_s)
        return made

    def _begin(self, trial: OnTrial, within_s: float) -> None:
        # The judge is loaded when there is something to judge.
        from pgtop_tune.changes.confirm.pending import Trial
        from pgtop_tune.changes.confirm.trip_watch import TrialWatch

        async def take_back(why: str) -> None:
            await self._take_back(trial.set_id, why)

        self._watches[trial.set_id] = TrialWatch(Trial(self._now_s, within_s, trial.wires), take_back)
        self._put(trial)

    def _adopt(self, adopted: AdoptedSet) -> None:
        known = self._trials.get(adopted.set_id)
        if known is not None:
            self._put(replace(known, changes=(*known.changes, *adopted.changes)))
            return
        trial = OnTrial(
            set_id=adopted.set_id,
            changes=adopted.changes,
            until_ms=adopted.until_ms,
            wires=_wires(adopted.trip_wires),
            adopted_from=adopted.by,
            with_restart=adopted.with_restart,
        )
        self._begin(trial, trial.remaining_s(self._wall_ms()))

    async def _made(
        self, wanted: Sequence[Wanted], terms: Terms, settings: Sequence[WantedSetting]
    ) -> tuple[Change, ...]:
        if not settings:
            return await self._control.apply_set(wanted, terms)
        if self._machine is None:
            raise UsageProblem("there is no way to the settings of the machine from here")
        of_machine = await self._machine.apply_set(settings, terms)
        if not wanted:
            return of_machine
        try:
            return (*of_machine, *await self._control.apply_set(wanted, terms))
        except PgtopError:
            await self._machine.revert_set(terms.set_id, "the server refused the rest")
            raise

    async def keep(self) -> tuple[Change, ...]:
        """What is on trial stays; empty when nothing is, or when it has been taken back by then."""
        trial = self._current
        if trial is None:
            return ()
        kept: tuple[Change, ...] = await self._control.keep(trial.set_id) if _of_server(trial) else ()
        if self._machine is not None and _of_machine(trial):
            kept = (*await self._machine.keep(trial.set_id), *kept)
        self._forget(trial.set_id)
        return kept

    def undone(self, changes: Sequence[Change]) -> None:
        """Somebody has taken changes back: what was on trial among them is not any more."""
        for change in changes:
            self._forget(change.set_id or change.id)

    def _put(self, trial: OnTrial) -> None:
        self._trials[trial.set_id] = trial
        self._choose()

    def _forget(self, set_id: str) -> None:
        self._trials.pop(set_id, None)
        self._watches.pop(set_id, None)
        self._choose()

    def _choose(self) -> None:
        self._current = min(self._trials.values(), key=lambda trial: trial.until_ms, default=None)

    async def _take_back(self, set_id: str, why: str) -> None:
        """Goes on until it is done, also while the server is away."""
        while (trial := self._trials.get(set_id)) is not None:
            self._put(replace(trial, reverting=why))
            try:
                await self._revert(trial, why)
            except PgtopError as problem:
                if set_id in self._trials:
                    self._put(replace(self._trials[set_id], problem=problem.message))
                await asyncio.sleep(_AGAIN_S)
                continue
            self._forget(set_id)
            self._ended = TakenBack(1 if self._ended is None else self._ended.number + 1, trial.changes, why)
            detail = "; ".join(f"{each.name} {each.shown_after}→{before(each)}" for each in trial.changes)
            self._note(Event(self._wall_ms(), EventKind.WARNING, f"taken back: {why}", detail))

    async def _revert(self, trial: OnTrial, why: str) -> None:
        if _of_server(trial) and trial.with_restart and self._restart is not None:
            await self._restart.revert_set(trial.set_id, why)
        elif _of_server(trial):
            await self._control.revert_set(trial.set_id, why)
        if self._machine is not None and _of_machine(trial):
            await self._machine.revert_set(trial.set_id, why)


def before(change: Change) -> str:
    """The value before a change, as the server or the kernel shows it."""
    return change.value_before if isinstance(change, HostChange) else change.shown_before


def _of_server(trial: OnTrial) -> bool:
    return any(isinstance(each, ParameterChange) for each in trial.changes)


def _of_machine(trial: OnTrial) -> bool:
    return any(isinstance(each, HostChange) for each in trial.changes)


def _wires(texts: Sequence[str]) -> tuple[TripWire, ...]:
    """Trip wires of a journal; one that only a newer version knows is passed over."""
    from pgtop_tune.metrics.trip_wires import trip_wire

    wires = []
    for text in texts:
        with suppress(UsageProblem):
            wires.append(trip_wire(text))
    return tuple(wires)
