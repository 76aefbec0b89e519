"""What is asked of a switchback, where it stands, and how it ends."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Protocol

from msgspec import Struct

from pgtop_tune.compare.sides.figures import TPS
from pgtop_tune.compare.statistics.switchback import FEWEST_PAIRS, MOST_PAIRS, PairedVerdict
from pgtop_tune.experiment.prediction import Prediction
from pgtop_tune.experiment.switchback.arms import Rival
from pgtop_tune.experiment.switchback.blocks import BY_CHECKPOINTS, Arm, Lengths, Pair, lengths
from pgtop_tune.experiment.switchback.evaluation import Evaluation
from pgtop_tune.experiment.switchback.plans import PlanPair
from pgtop_tune.metrics.steady_state import FEWEST_S


class Phase(StrEnum):
    """What is going on."""

    CHECKING = "checking the values"
    PREPARING = "preparing"
    WARMING_UP = "warming up"
    SETTLING = "settling"
    MEASURING = "measuring"
    PLANNING = "looking at plans"
    PUTTING_BACK = "putting back"
    OVER = "over"


class Ending(StrEnum):
    """Why the experiment is over."""

    BETTER = "better"
    WORSE = "worse"
    EQUIVALENT = "equivalent"
    UNDECIDED = "undecided"
    NOT_ATTRIBUTABLE = "not attributable"
    COLLAPSED = "stopped"
    NOT_STEADY = "not steady"
    TOO_SHORT = "too little time"
    GENERATOR = "generator-bound"
    ENDED = "load or server ended"
    CHANGED = "changed by someone else"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    UNDER_WAY = "under way"


OF_VERDICT: Final = {
    PairedVerdict.BETTER: Ending.BETTER,
    PairedVerdict.WORSE: Ending.WORSE,
    PairedVerdict.EQUIVALENT: Ending.EQUIVALENT,
}
NOT_PUT_BACK: Final = "not put back"
"""What the note begins with that says why values are still in force."""
ANSWERS: Final = frozenset({*OF_VERDICT.values(), Ending.COLLAPSED})
"""Endings that are an answer."""


class Over(Exception):
    """The experiment ends here.

    Attributes:
        ending, reason: As in the state.
    """

    def __init__(self, ending: Ending, reason: str) -> None:
        super().__init__(reason)
        self.ending = ending
        self.reason = reason


class SwitchbackPlan(Struct, frozen=True):
    """What is asked for.

    Attributes:
        rivals: Resolved.
        load: In words.
        loaded: Whether the load is one of ours.
        for_s: At most.
        seed: Of the coin.
        lengths: Of the first blocks.
        objective: The figure that decides, of `compare.sides.figures`, or the same mix of statements.
        keep_better: B stays if it is better.
        a_in_force: A is what was in force before: what B can bring is told of the load as it was.
        most_pairs: That count; then it ends undecided.
        steady: The load runs, and has shown that it is steady.
    """

    rivals: tuple[Rival, ...]
    load: str
    loaded: bool
    for_s: float
    seed: int
    lengths: Lengths = lengths()
    objective: str = TPS
    keep_better: bool = False
    a_in_force: bool = True
    most_pairs: int = MOST_PAIRS
    steady: bool = False

    @property
    def least_s(self) -> float:
        """What the fewest pairs take, with the shortest warm-up."""
        return (0.0 if self.steady else FEWEST_S) + FEWEST_PAIRS * self.lengths.pair_s

    @property
    def by_checkpoints(self) -> bool:
        """Whether blocks have to be whole checkpoint cycles."""
        return not BY_CHECKPOINTS.isdisjoint(rival.name for rival in self.rivals if rival.a != rival.b)


class SwitchbackState(Struct, frozen=True):
    """Where the experiment stands, for lines and screens.

    Attributes:
        pair: From 1; 0 before the first.
        arm: In force as a block; None between blocks.
        arm_since_s: Since when, on the session's clock.
        elapsed_s: Since the load runs.
        remaining_s: At most.
        pairs: Complete ones, with their blocks' places in time.
        evaluation: After the last complete pair; None before the first.
        ending: Why it is over.
        reason: In words; "" while it goes on.
        notes: What happened on the way, in words.
        afterwards: What became of the values at the end, where they are not all put back, in words; also a note.
        warm_up_tps: Second by second, before the first pair.
        prediction: What B can bring, told when the load was steady; None where nothing can be said.
        plans: Of statements under A and B, at the end; empty where none were asked for.
    """

    phase: Phase = Phase.CHECKING
    pair: int = 0
    arm: Arm | None = None
    arm_since_s: float = 0.0
    elapsed_s: float = 0.0
    remaining_s: float = 0.0
    lengths: Lengths = lengths()
    pairs: tuple[Pair, ...] = ()
    evaluation: Evaluation | None = None
    ending: Ending = Ending.UNDER_WAY
    reason: str = ""
    notes: tuple[str, ...] = ()
    afterwards: str = ""
    warm_up_tps: tuple[float, ...] = ()
    prediction: Prediction | None = None
    plans: tuple[PlanPair, ...] = ()

    @property
    def left_in_force(self) -> str:
        """Why values of an arm are still in force at the end, and the command that reverts them; "" where none are."""
        return next((note for note in self.notes if note.startswith(NOT_PUT_BACK)), "")


class ContinuousLoad(Protocol):
    """The load of an experiment."""

    async def start(self) -> None:
        """Raises a PgtopError where it cannot be started."""
        ...

    async def stop(self) -> None:
        """Ends it; one of another program goes on."""
        ...
