"""Experiments of a screen: A against B under the load that runs (`ExperimentControl`), and those of other programs.

The modules that measure and judge are imported with the first experiment: a screen that only watches does without.
Files of other programs (`ab`, `tune` and plans, detached or not) are read in a thread, every other second.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from pgtop_tune.base.errors import PgtopError, RecordingProblem, UsageProblem
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.process.process_key import Interruption, own_key
from pgtop_tune.runtime.experiment_control import (
    KILLED,
    ArmValues,
    ExperimentPreview,
    ExperimentRequest,
    ExperimentState,
)
from pgtop_tune.runtime.running_experiments import RunningExperiment, ServerKey, running_experiments, server_of

if TYPE_CHECKING:
    from pgtop_tune.changes.ports import ChangeControl
    from pgtop_tune.experiment.switchback.block_frames import BlockFrames
    from pgtop_tune.experiment.switchback.state import RecordFile, SwitchbackPlan, SwitchbackState
    from pgtop_tune.experiment.switchback.switchback import Switchback
    from pgtop_tune.experiment.switchback.words import ShownStates
    from pgtop_tune.model.bench import BenchRun
    from pgtop_tune.model.frame import Frame
    from pgtop_tune.model.postgres import Parameter
    from pgtop_tune.runtime.ports import Step
    from pgtop_tune.runtime.running_experiments import Announcement

_UNKNOWN: Final = "this server does not have it"


class SwitchbackService:
    """The `ExperimentControl` of a screen.

    Args:
        parameters: The door to the server.
        note: Puts an event into the next frame.
        switching: Takes the names of parameters whose changes are switches of an experiment; empty once it is over.
        facts: Facts of server and program, for the record.
    """

    def __init__(
        self,
        parameters: ChangeControl,
        note: Callable[[Event], None],
        switching: Callable[[frozenset[str]], None],
        facts: dict[str, str],
    ) -> None:
        self._parameters: Final = parameters
        self._note: Final = note
        self._switching: Final = switching
        self._facts: Final = facts
        self._state = ExperimentState()
        self._newest: Frame | None = None
        self._frames: BlockFrames | None = None
        self._task: asyncio.Task[None] | None = None
        self._announcement: Announcement | None = None

    def state(self) -> ExperimentState:
        """See `ExperimentControl.state`."""
        return self._state

    def accept(self, step: Step) -> None:
        """See `FrameSink.accept`."""
        self._newest = step.frames[-1] if step.frames else self._newest
        if self._frames is not None:
            self._frames.accept(step)
        if self._announcement is not None:
            self._announcement.accept(step)

    def close(self) -> None:
        """See `FrameSink.close`."""
        if self._frames is not None:
            self._frames.close()

    async def look(self, wanted: Sequence[tuple[str, str]], run: BenchRun | None) -> ExperimentPreview:
        """See `ExperimentControl.look`."""
        from pgtop_tune.experiment.switchback.arms import as_shown

        parameters = {
            parameter.name.lower(): parameter
            for parameter in await self._parameters.list(tuple(name for name, _ in wanted))
        }
        values = []
        for name, b in wanted:
            parameter = parameters.get(name.lower())
            if parameter is None:
                values.append(ArmValues(name, "", b, _UNKNOWN))
            elif as_shown(parameter, b) != parameter.shown:
                values.append(
                    ArmValues(parameter.name, parameter.shown, as_shown(parameter, b), _refusal(parameter, b))
                )
        preview = ExperimentPreview(tuple(values), score=await asyncio.to_thread(self._score))
        return preview if run is None else await asyncio.to_thread(self._with_noise, preview, run)

    def _score(self) -> str:
        from pgtop_tune.experiment.prediction import score, score_words
        from pgtop_tune.experiment.switchback.state import trials_of

        return score_words(score(trials_of(self._facts.get("server", ""), self._system_identifier)))

    @property
    def _server(self) -> ServerKey | None:
        return None if self._newest is None else server_of(self._newest)

    @property
    def _system_identifier(self) -> str:
        return "" if (server := self._server) is None else server.system_identifier

    def _with_noise(self, preview: ExperimentPreview, run: BenchRun) -> ExperimentPreview:
        """Return the preview with the known noise of this machine and load."""
        from pgtop_tune.experiment.noise_floor import PAIR_S, SHARES, known_floor, pairs_needed

        floor = None if self._newest is None else known_floor(self._newest, run)
        if floor is None:
            return preview
        needed = ((share, pairs_needed(floor.pair_sd, share)) for share in SHARES)
        seen_after_s = tuple((share, pairs * PAIR_S) for share, pairs in needed if pairs is not None)
        return replace(preview, pair_sd=floor.pair_sd, seen_after_s=seen_after_s)

    async def start(self, wanted: ExperimentRequest) -> None:
        """See `ExperimentControl.start`."""
        if self._task is not None:
            raise UsageProblem("an experiment is running already", "its dialog shows it")
        from pgtop_tune.changes.change_sets import ChangeSets
        from pgtop_tune.experiment.switchback.arms import CURRENT, Arms, Rival, resolved
        from pgtop_tune.experiment.switchback.block_frames import BlockFrames
        from pgtop_tune.experiment.switchback.separate_blocks import ForeignLoad, check_nothing_pending
        from pgtop_tune.experiment.switchback.state import RecordFile, trials_of
        from pgtop_tune.experiment.switchback.switchback import Switchback
        from pgtop_tune.experiment.switchback.words import ShownStates
        from pgtop_tune.runtime.running_experiments import Announcement, check_alone

        names = tuple(name for name, _ in wanted.values)
        parameters = {parameter.name.lower(): parameter for parameter in await self._parameters.list(names)}
        missing = [name for name in names if name.lower() not in parameters]
        if missing or not names:
            raise UsageProblem(
                f"{', '.join(missing) or 'nothing'}: {_UNKNOWN}", "the list of parameters has their names"
            )
        rivals = resolved([Rival(name, CURRENT, b) for name, b in wanted.values], parameters)
        server = self._server
        if server is not None:
            await asyncio.to_thread(check_alone, server)
        await check_nothing_pending(self._parameters)
        facts = {**self._facts, "system_identifier": self._system_identifier}
        trials = await asyncio.to_thread(trials_of, self._facts.get("server", ""), self._system_identifier)
        plan = _plan(rivals, wanted)
        announcement = Announcement("screen", [rival.name for rival in rivals], self.state, server)
        await self._parameters.claim_experiment(names)
        try:
            await asyncio.to_thread(announcement.begin)
        except PgtopError:
            await self._parameters.release_experiment()
            raise
        frames, self._announcement = BlockFrames(loaded=plan.loaded), announcement
        self._frames = frames
        arms = Arms(ChangeSets(self._parameters, None), self._parameters, plan.rivals, wanted.confirmed)
        shown_states = ShownStates(plan, self._state.number + 1)
        file = RecordFile((rival.name for rival in plan.rivals), time.strftime("%Y%m%d-%H%M%S"))
        watch = _StateWatch(shown_states, plan, self._note, file, facts)
        self._state = shown_states.newest

        def seen(state: SwitchbackState) -> None:
            self._state = watch.taken(state)

        # The load goes on whatever becomes of the experiment.
        experiment = Switchback(plan, frames, arms, ForeignLoad(), seen, trials)
        self._switching(frozenset(rival.name for rival in rivals))
        self._task = asyncio.create_task(self._run(experiment))

    async def _run(self, experiment: Switchback) -> None:
        """Run the experiment; a failure is shown, and the experiment does not stay under way."""
        problem = ""
        try:
            await experiment.run()
        except asyncio.CancelledError:
            pass
        except PgtopError as told:
            problem = str(told)
        except Exception as surprise:
            problem = f"{type(surprise).__name__}: {surprise}: this should not happen, please report it"
        finally:
            self._task = self._frames = None
            self._switching(frozenset())
            if problem:
                self._state = replace(self._state, ending="failed", problem=problem)
            ending = self._state.ending or "interrupted"
            self._state = replace(self._state, under_way=False, arm="", ending=ending)
            if self._announcement is not None:
                self._announcement.end()
                self._announcement = None
            with suppress(PgtopError):
                await self._parameters.release_experiment()

    async def stop(self) -> None:
        """See `ExperimentControl.stop`."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def aclose(self) -> None:
        """End it with the session."""
        await self.stop()


def _refusal(parameter: Parameter, b: str) -> str:
    from pgtop_tune.experiment.switchback.arms import CURRENT, Rival, resolved

    try:
        resolved([Rival(parameter.name, CURRENT, b)], {parameter.name.lower(): parameter})
    except UsageProblem as problem:
        return f"{problem.message.removeprefix(parameter.name).strip()}; {problem.hint}".removesuffix("; ")
    return ""


def _plan(rivals: Sequence[Any], request: ExperimentRequest) -> SwitchbackPlan:
    from pgtop_tune.compare.sides.figures import LATENCY, TPS
    from pgtop_tune.compare.statement_rows import SAME_MIX
    from pgtop_tune.experiment.switchback.state import SwitchbackPlan

    run = request.run
    load = "of the server as it is"
    if run is not None:
        rate = f" -R {run.rate_per_s:g}" if run.rate_per_s else ""
        load = f"{run.load_name} -c {run.clients} -M {run.protocol}{rate}"
    return SwitchbackPlan(
        rivals=tuple(rivals),
        load=load,
        loaded=run is not None,
        for_s=request.for_s,
        seed=random.SystemRandom().getrandbits(32),
        objective=SAME_MIX if run is None else LATENCY if run.rate_per_s else TPS,
    )


class _StateWatch:
    """The taker of an experiment's states: it makes ticks for the tape, the state for the screen, and the record."""

    def __init__(
        self, states: ShownStates, plan: SwitchbackPlan, note: Callable[[Event], None], file: RecordFile,
        facts: dict[str, str],
    ) -> None:  # fmt: skip
        self._shown: Final = states
        self._plan: Final = plan
        self._note: Final = note
        self._file: Final = file
        self._facts: Final = facts
        self._arm_since_ms = 0
        self._spoiled = 0
        self._over = False
        self._problem = ""

    def taken(self, state: SwitchbackState) -> ExperimentState:
        """Return the next state of the screen."""
        judged = self._shown.take(state)
        if judged:
            self._write(state)
            self._tell_spoiled(state)
        newest = self._shown.newest
        self._tell_switch(newest)
        return replace(newest, details=f"{newest.details}\n{self._problem}") if newest.details else newest

    def _tell_switch(self, state: ExperimentState) -> None:
        """Put a tick on the tape where another arm begins, and where the last one ends."""
        if state.arm and state.arm_since_ms != self._arm_since_ms:
            self._arm_since_ms = state.arm_since_ms
            self._tick(state.arm_words)
        elif state.ending and not self._over:
            self._over = True
            self._tick(f"A/B {state.ending}")

    def _tell_spoiled(self, state: SwitchbackState) -> None:
        """Tell once of a pair in which another session changed a compared value: the tape leaves that out."""
        pair = state.pairs[-1] if state.pairs else None
        if pair is not None and pair.spoiled and pair.number != self._spoiled:
            self._spoiled = pair.number
            self._tick(f"pair {pair.number} does not count: {pair.spoiled}", EventKind.WARNING)

    def _tick(self, text: str, kind: EventKind = EventKind.SWITCH) -> None:
        self._note(Event(time.time_ns() // 1_000_000, kind, text))

    def _write(self, state: SwitchbackState) -> None:
        from pgtop_tune.experiment.switchback.state import switchback_json

        try:
            self._file.write(switchback_json(self._plan, state, self._facts))
            self._problem = f"record: {self._file.path}"
        except RecordingProblem as problem:
            self._problem = f"not saved: {problem.message}"


_EVERY_S: Final = 2.0
_STOP_LOOK_S: Final = 0.2
_SWITCHED: Final = frozenset({"A/B", "tuning"})
"""Kinds whose switches of parameters are no changes that the title judges."""
_KILLED: Final = "Its program was killed. The revert watchdog restores the values."


class OtherExperiments:
    """The `ExperimentView` of other programs' experiments.

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
        running, number = self._shown, self._number
        if running is None:
            return ExperimentState()
        where = "detached" if running.detached else f"process {running.key.pid}"
        state = replace(running.state, number=number, where=where, better=False)
        if not state.under_way:
            return state
        age_s = max(time.time_ns() // 1_000_000 - running.written_ms, 0) / 1000.0
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
        """Return the experiment that was shown, as it is now, and the newest other one that goes on here. Blocking."""
        going_on = [
            experiment
            for experiment in running_experiments()
            if experiment.key != self._ours and (not experiment.state.under_way or experiment.key.lives)
        ]
        before = None if self._shown is None else (self._shown.key, self._shown.began_ms)
        same = next((experiment for experiment in going_on if (experiment.key, experiment.began_ms) == before), None)
        here = (one for one in reversed(going_on) if one.state.under_way and one.server.is_same(server))
        return same, next(here, None)

    def _take(self, same: RunningExperiment | None, newest: RunningExperiment | None) -> None:
        shown_before = self._shown
        if shown_before is not None and shown_before.state.under_way:
            if same is None:
                same = replace(
                    shown_before,
                    state=replace(shown_before.state, under_way=False, arm="", ending=KILLED, details=_KILLED),
                )
            self._shown = same
            self._tell_switch(same)
        elif newest is not None:
            self._shown, self._arm_since_ms = newest, 0
            self._number += 1
            if newest.state.kind in _SWITCHED:
                self._switching(frozenset(newest.parameters))
            self._tell_switch(newest)

    def _tell_switch(self, experiment: RunningExperiment) -> None:
        """Put a tick on the tape where another arm began, and where the last one ended."""
        state = experiment.state
        if state.kind not in _SWITCHED:
            return
        if not state.under_way:
            self._switching(frozenset())
            self._note(Event(experiment.written_ms, EventKind.SWITCH, f"{state.kind} {state.ending}"))
        elif state.arm and state.arm_since_ms != self._arm_since_ms:
            self._arm_since_ms = state.arm_since_ms
            self._note(Event(state.arm_since_ms, EventKind.SWITCH, state.arm_words))

    async def stop(self) -> None:
        """See `ExperimentView.stop`: interrupts its program as Ctrl-C does."""
        experiment = self._shown
        if experiment is None or not experiment.key.lives:
            return
        if experiment.program == "screen":
            raise UsageProblem(f"it belongs to the screen of process {experiment.key.pid}", "stop it on that screen")
        interruption = Interruption(experiment.key, experiment.words)
        while True:
            if not await asyncio.to_thread(interruption.goes_on):
                return
            await asyncio.sleep(_STOP_LOOK_S)
