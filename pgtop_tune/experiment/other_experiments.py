"""Experiments of other programs on the watched server, for the screen: `ab`, `tune` and plans, detached or not.

Files are looked at in a thread, every other second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.process.process_key import Interruption, own_key
from pgtop_tune.runtime.experiment_control import KILLED, ExperimentState
from pgtop_tune.runtime.running_experiments import RunningExperiment, ServerKey, running_experiments, server_of

if TYPE_CHECKING:
    from pgtop_tune.runtime.ports import Step

_EVERY_S: Final = 2.0
_STOP_LOOK_S: Final = 0.2
_SWITCHED: Final = frozenset({"A/B", "tuning"})
"""Kinds whose switches of parameters are no changes that the title judges."""
_KILLED: Final = "Its program was killed. The revert watchdog puts its values back; u lists changes that are in force."


class OtherExperiments:
    """Implements `ExperimentView`.

    Args:
        note: Puts an event into the next frame.
        switching: Takes the names of parameters whose changes are switches of an experiment; empty once it is over.
    """

    def __init__(self, note: Callable[[Event], None], switching: Callable[[frozenset[str]], None]) -> None:
        self._note: Final = note
        self._switching: Final = switching
        self._ours: Final = own_key()
        self._server: ServerKey | None = None
        self._shown: RunningExperiment | None = None
        self._number = 0
        self._arm_since_ms = 0
        self._due_s = 0.0
        self._looking: asyncio.Task[None] | None = None

    def state(self) -> ExperimentState:
        """See `ExperimentView.state`; its clock goes on between two looks."""
        shown, number = self._shown, self._number
        if shown is None:
            return ExperimentState()
        where = "detached" if shown.detached else f"process {shown.key.pid}"
        state = replace(shown.state, number=number, where=where, better=False)
        if not state.under_way:
            return state
        age_s = max(time.time_ns() // 1_000_000 - shown.written_ms, 0) / 1000.0
        return replace(state, elapsed_s=state.elapsed_s + age_s, remaining_s=max(state.remaining_s - age_s, 0.0))

    def accept(self, step: Step) -> None:
        """See `FrameSink.accept`."""
        if step.frames:
            self._server = server_of(step.frames[-1]) or self._server
        now_s = time.monotonic()
        if self._server is not None and self._looking is None and now_s >= self._due_s:
            self._due_s = now_s + _EVERY_S
            self._looking = asyncio.get_running_loop().create_task(self._look(self._server))

    def close(self) -> None:
        """See `FrameSink.close`."""

    async def _look(self, server: ServerKey) -> None:
        try:
            self._take(*await asyncio.to_thread(self._found, server))
        finally:
            self._looking = None

    def _found(self, server: ServerKey) -> tuple[RunningExperiment | None, RunningExperiment | None]:
        """The experiment that was shown, as it is now, and the newest other one that goes on here. Blocking."""
        others = [each for each in running_experiments() if each.key != self._ours]
        shown = self._shown
        same = None if shown is None else _same(shown, others)
        return same, _newest(others, server)

    def _take(self, same: RunningExperiment | None, newest: RunningExperiment | None) -> None:
        shown = self._shown
        if shown is not None and shown.state.under_way:
            if same is None:
                same = replace(
                    shown, state=replace(shown.state, under_way=False, arm="", ending=KILLED, details=_KILLED)
                )
            self._shown = same
            self._tell_switch(same)
        elif newest is not None:
            self._shown, self._arm_since_ms = newest, 0
            self._number += 1
            if newest.state.kind in _SWITCHED:
                self._switching(frozenset(newest.parameters))
            self._tell_switch(newest)

    def _tell_switch(self, shown: RunningExperiment) -> None:
        """A tick where another arm began, and where the last one ended."""
        state = shown.state
        if state.kind not in _SWITCHED:
            return
        if not state.under_way:
            self._switching(frozenset())
            self._note(Event(shown.written_ms, EventKind.SWITCH, f"{state.kind} {state.ending}"))
        elif state.arm and state.arm_since_ms != self._arm_since_ms:
            self._arm_since_ms = state.arm_since_ms
            self._note(Event(state.arm_since_ms, EventKind.SWITCH, state.arm_words))

    async def stop(self) -> None:
        """See `ExperimentView.stop`: interrupts its program as Ctrl-C does."""
        shown = self._shown
        if shown is None or not shown.key.lives:
            return
        if shown.program == "screen":
            raise UsageProblem(f"it belongs to the screen of process {shown.key.pid}", "press x and s there")
        interruption = Interruption(shown.key, shown.words)
        while True:
            if not await asyncio.to_thread(interruption.goes_on):
                return
            await asyncio.sleep(_STOP_LOOK_S)


def _same(shown: RunningExperiment, others: Sequence[RunningExperiment]) -> RunningExperiment | None:
    """The same experiment as its program told it last; None where the program is gone without a last word."""
    same = next((each for each in others if (each.key, each.began_ms) == (shown.key, shown.began_ms)), None)
    return same if same is not None and (not same.state.under_way or same.key.lives) else None


def _newest(others: Sequence[RunningExperiment], server: ServerKey) -> RunningExperiment | None:
    return next(
        (each for each in reversed(others) if each.state.under_way and each.server.is_same(server) and each.key.lives),
        None,
    )
