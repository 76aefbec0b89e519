"""What a search measures in blocks of their own: consent to restarts, what stands in force behind one, the blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pgtop_tune.base.errors import ServerProblem, UsageProblem
from pgtop_tune.base.units import counted
from pgtop_tune.changes.change_sets import ChangeSets, WithRestart, check_up
from pgtop_tune.changes.model.change import Terms
from pgtop_tune.changes.ports import MachineControl
from pgtop_tune.cli.output import tell
from pgtop_tune.cli.restarting import confirm
from pgtop_tune.cli.wiring import LiveSession
from pgtop_tune.experiment.answering import until_frames_show_it
from pgtop_tune.experiment.load_run import LoadRun
from pgtop_tune.experiment.run_cell import RunCell
from pgtop_tune.experiment.standing_values import StandingValues
from pgtop_tune.experiment.switchback.arms import Arm, Arms, Lengths, RivalSettings
from pgtop_tune.experiment.switchback.block_frames import OwnCycles
from pgtop_tune.experiment.switchback.loads import ArmLoads
from pgtop_tune.experiment.switchback.separate_blocks import CheckedArms, SeparateBlocks, SeparatePlan
from pgtop_tune.experiment.switchback.switchback import Switchback
from pgtop_tune.runtime.run_frames import FrameKeeper
from pgtop_tune.tuning.on_server.evaluating import SeparateWanted

_RESTARTED_S: Final = 15.0
_PREPARED_S: Final = 5.0
_BLOCKS: Final = 8


def separate_lengths(block_s: float, *, restart: bool) -> Lengths:
    """Of a block with a load of its own: 30 s that count where a block of one run counts 10 s, behind 10 s to warm up,
    or 20 s after a restart."""
    return Lengths(settle_s=(2.0 if restart else 1.0) * block_s, measured_s=3.0 * block_s)


def separate_cost_s(block_s: float, *, restart: bool) -> float:
    """What an evaluation takes, as assumed before the first."""
    lengths = separate_lengths(block_s, restart=restart)
    return _BLOCKS * (_around_s(restart=restart) + lengths.settle_s + lengths.measured_s)


def _around_s(*, restart: bool) -> float:
    return _RESTARTED_S if restart else _PREPARED_S


class OwnBlocks:
    """Fits `tuning.evaluating_parts.OwnBlocks`.

    Args:
        session: The watched server.
        machine: Settings of the operating system; None where none is among the knobs.
        settings: Their names.
        run, cell: The load.
        keeper: Frames.
        before_set: Told the id of a change set before it is made.
        block_s: Of a block in one run.
        own_cycles: Of knobs that work through checkpoints; None for those of the server.

    Raises:
        UsageProblem: Another program drives the load: the load would not survive a restart, and has no blocks.
    """

    def __init__(
        self,
        session: LiveSession,
        machine: MachineControl | None,
        settings: frozenset[str],
        run: LoadRun,
        keeper: FrameKeeper,
        cell: RunCell | None,
        before_set: Callable[[str], None],
        block_s: float,
        own_cycles: OwnCycles | None,
    ) -> None:
        self._block_s: Final = block_s
        self._own_cycles: Final = own_cycles
        if cell is None:
            raise UsageProblem(
                "a load that another program drives does not survive a restart", "leave --allow-restart out"
            )
        self._session: Final = session
        self._machine: Final = machine
        self._keeper: Final = keeper
        self._door: Final = WithRestart(session.parameters, session.restart, tell, anyway=False)
        self._loads: Final = ArmLoads(run, session.load, dict.fromkeys(Arm, cell))
        self.standing: Final = StandingValues(self._door, before_set, "tune:", machine, settings)

    async def agree(self, start: Mapping[str, str], *, yes: bool) -> None:
        """Confirms the restarts with the operator; makes one at once where a kill left a value of the search in force.

        Args:
            start: Values of the knobs before the search.

        Raises:
            UsageProblem: Something waits for a restart already, or nobody can be asked.
            ServerProblem: The server cannot be restarted from here, or nobody says yes.
        """
        plan = await self._session.restart.plan()
        left = [each.name for each in plan.pending if start.get(each.name) == each.after]
        if others := ", ".join(each.name for each in plan.pending if each.name not in left):
            raise UsageProblem(
                f"{others} waits for a restart already, which would apply it", "`pgtop-tune set --restart` first"
            )
        if not plan.by_us:
            raise ServerProblem(f"pgtop-tune cannot restart the server: {plan.why_not}", "leave --allow-restart out")
        tell(f"the server is restarted many times; a restart ends {counted(plan.sessions, 'session')} now")
        confirm(plan, yes=yes, anyway=False)
        if left:
            tell(f"{', '.join(left)}: a value of the search is in force until a restart, which is made now")
            await self._restart()

    async def answers(self) -> None:
        """See `tuning.evaluating_parts.OwnBlocks.answers`."""
        await until_frames_show_it(self._session.open_sql_session, self._keeper)

    def experiment(self, wanted: SeparateWanted) -> Switchback:
        """See `tuning.evaluating_parts.OwnBlocks.experiment`."""
        plan, restart = wanted.plan, wanted.restart
        meant = SeparatePlan(
            rivals=plan.rivals,
            load=plan.load,
            loaded=True,
            for_s=plan.for_s,
            seed=plan.seed,
            lengths=separate_lengths(self._block_s, restart=restart),
            objective=plan.objective,
            a_in_force=False,
            most_pairs=plan.most_pairs,
            around_s=_around_s(restart=restart),
        )
        control = self._session.parameters
        door = self._door if restart else control
        machine, settings = self._machine, wanted.settings
        of_machine = None if machine is None or not settings else RivalSettings(machine, settings)
        kind = CheckedArms if restart else Arms
        arms = kind(ChangeSets(door, machine), control, wanted.parameters, frozenset(), of_machine, door)
        restarts = self._restart if restart else None
        own_cycles = self._own_cycles if plan.by_checkpoints else None
        return SeparateBlocks(meant, wanted.frames, arms, self._loads, self.answers, restarts, wanted.seen, own_cycles)

    async def _restart(self) -> None:
        outcome = await self._session.restart.apply((), Terms(), tell)
        check_up(outcome)
        tell(outcome.words)
