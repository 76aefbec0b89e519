"""What a search is asked to do. Kept with its journal: a search is replayed from the plan and what it was told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from msgspec import Struct, field

from pgtop_tune.experiment.prediction import Prediction
from pgtop_tune.tuning.space import Space


class Constraint(Struct, frozen=True, kw_only=True):
    """A limit that a setting must hold: "p99_ms at most 20".

    Attributes:
        figure: A key of the figures that come with an evaluation.
        most, least: None where there is no such end.
        unit: Of the figure.
    """

    figure: str
    most: float | None = None
    least: float | None = None
    unit: str = ""

    def broken(self, figures: Mapping[str, float]) -> str:
        """The limit and the figure in words; "" where the figure holds it or was not measured."""
        value = figures.get(self.figure)
        if value is None:
            return ""
        unit = f" {self.unit}".rstrip()
        if self.most is not None and value > self.most:
            return f"{self.figure} {value:.4g}{unit} is above {self.most:g}{unit}"
        if self.least is not None and value < self.least:
            return f"{self.figure} {value:.4g}{unit} is below {self.least:g}{unit}"
        return ""


class TuningPlan(Struct, frozen=True, kw_only=True):
    """A search before it begins.

    Attributes:
        space: Without values that a guard forbids outright.
        budget: In the unit of the costs: evaluations, or seconds.
        cost: Of one evaluation.
        restart_cost: Of one evaluation whose two arms differ in a knob that takes a restart.
        machine_cost: Of one whose arms differ in a setting of the machine, and in none that takes a restart.
        seed: Of all that is drawn.
        engine: A name of `engines.registry`.
        worth: The smallest effect worth having, as a share.
        constraints: All must hold.
        predictions: By knob, as far as something can be said beforehand.
    """

    space: Space
    budget: float
    cost: float = 1.0
    restart_cost: float = 1.0
    machine_cost: float = 1.0
    seed: int = 0
    engine: str = "climb"
    worth: float = 0.02
    constraints: tuple[Constraint, ...] = ()
    predictions: dict[str, Prediction] = field(default_factory=dict)

    def cost_of(self, places: Iterable[int]) -> float:
        """Of one evaluation whose arms differ in these knobs."""
        knobs = [self.space.dimensions[place] for place in places]
        if any(knob.restart for knob in knobs):
            return self.restart_cost
        return self.machine_cost if any(knob.machine for knob in knobs) else self.cost


NO_FIGURES: Mapping[str, float] = MappingProxyType({})
