"""The control of an experiment: A against B by turns in one run, its progress and its verdict.

Everything is called from the engine's thread unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from pgtop_tune.runtime.ports import FrameSink

if TYPE_CHECKING:
    from pgtop_tune.model.bench import BenchRun


KILLED: Final = "killed"
"""The ending of an experiment whose program was killed: it is not known yet whether its changes are reverted."""


class ArmValues(Struct, frozen=True):
    """A parameter and its two values.

    Attributes:
        a: The value in force.
        b: The proposed value.
        refused: Why the parameter cannot be judged in a running load, and the command that judges it; "" where it can.
    """

    name: str
    a: str
    b: str
    refused: str = ""


class ExperimentPreview(Struct, frozen=True):
    """Changes and noise of an experiment before it starts.

    Attributes:
        values: Values of each requested parameter that would change.
        pair_sd: Standard deviation of the logarithm of a pair's ratio on this machine and load; None where unknown.
        seen_after_s: (difference, seconds until it is seen) over that noise, smallest difference first.
        score: Quality of earlier predictions on this server, in words; "" without any.
    """

    values: tuple[ArmValues, ...]
    pair_sd: float | None = None
    seen_after_s: tuple[tuple[float, float], ...] = ()
    score: str = ""


class ExperimentRequest(Struct, frozen=True):
    """An experiment to be started.

    Attributes:
        values: (name, B) of each parameter; A is what is in force.
        run: Our running load; None judges the transactions of the server under the load of another program.
        for_s: Most seconds that it takes.
        confirmed: Names that were typed to unlock values that can lose data.
    """

    values: tuple[tuple[str, str], ...]
    run: BenchRun | None
    for_s: float
    confirmed: frozenset[str] = frozenset()


class ExperimentState(Struct, frozen=True):
    """State of the newest experiment.

    Attributes:
        number: Number of the experiment in this session, from 1; 0 before the first.
        kind: "A/B", "tuning" or "plan"; older programs have "twin".
        where: The other program that runs it: "detached", "process 4711"; "" for this one.
        under_way: True while it goes on or reverts values.
        arm: "A" or "B"; "" between blocks.
        arm_since_ms: Begin of the arm of the last block, milliseconds since the epoch; 0 before.
        pair: Number of the pair, from 1; 0 before the first. Of a plan: number of cells that are done.
        of: Number of cells of a plan; 0 for pairs, whose number is not known in advance.
        figure: The figure that decides, as "TPS".
        effect, low, high: B against A with its interval, as shares; None before that is known.
        counted: Pairs that count.
        ending: In a word or two; "" while it goes on.
        better: B is better, and is no trade: it may be kept.
        details: The result so far with all figures, as text.
        problem: Values that could not be reverted; "" where all were.
    """

    number: int = 0
    kind: str = "A/B"
    where: str = ""
    under_way: bool = False
    values: tuple[ArmValues, ...] = ()
    phase: str = ""
    arm: str = ""
    arm_since_ms: int = 0
    pair: int = 0
    of: int = 0
    elapsed_s: float = 0.0
    remaining_s: float = 0.0
    figure: str = ""
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    counted: int = 0
    ending: str = ""
    better: bool = False
    details: str = ""
    problem: str = ""

    @property
    def arm_words(self) -> str:
        """The arm in force with its values: "B: work_mem=64MB"; "" between blocks."""
        if not self.arm:
            return ""
        values = ((parameter.name, parameter.b if self.arm == "B" else parameter.a) for parameter in self.values)
        return f"{self.arm}: {', '.join(f'{name}={value}' for name, value in values)}"


class ExperimentView(FrameSink, Protocol):
    """An experiment that can be looked at and stopped. A sink of the engine."""

    def state(self) -> ExperimentState:
        """Return the newest state. Thread-safe."""
        ...

    async def stop(self) -> None:
        """End the experiment, and wait until every value is reverted.

        Raises:
            PgtopError: It could not be ended.
        """
        ...


class ExperimentControl(ExperimentView, Protocol):
    """One experiment of ours at a time."""

    async def look(self, values: Sequence[tuple[str, str]], run: BenchRun | None) -> ExperimentPreview:
        """Return the changes and the noise of an experiment with these values of B; changes nothing.

        Raises:
            ConnectionProblem: The server is not there.
        """
        ...

    async def start(self, request: ExperimentRequest) -> None:
        """Begin an experiment; `state` shows its progress.

        Raises:
            PgtopError: A value cannot be judged, or an experiment is under way.
        """
        ...
