"""The plan of a search. It is kept in the journal: a search is replayed from the plan and from what it was told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, TypeAlias

from msgspec import Struct

from pgtop_tune.experiment.prediction import Prediction

# Where a search may go: knobs with grids of values, and points on them.

Point: TypeAlias = tuple[int, ...]
"""The index of a level for each dimension of a space, in its order."""

_ALIKE: Final = 1e-6
"""Numbers that differ by a smaller share are one level."""


class Dimension(Struct, frozen=True, kw_only=True):
    """A knob and the values that a search may give it.

    Attributes:
        name: The name of the parameter, or the setting of the machine.
        levels: Values as typed; those of an ordered dimension rise.
        start: Index of the value in force before the search.
        ordered: Neighbouring levels act alike. Not so for the words of an enum.
        stride: Levels that make one step of the screen's and the climb's: 1 on a grid of doublings, 2 where each level
            is 1.4 times the one before.
        restart: A change takes a restart of the server.
        machine: A setting of the operating system: measured in blocks that have a load of their own.
        group: Group of the knob, for the report.
    """

    name: str
    levels: tuple[str, ...]
    start: int
    ordered: bool = True
    stride: int = 1
    restart: bool = False
    machine: bool = False
    group: str = ""

    @property
    def separate(self) -> bool:
        """Return whether its values cannot be switched within one run of a load."""
        return self.restart or self.machine

    def __post_init__(self) -> None:
        if len(self.levels) < 2 or len(set(self.levels)) < len(self.levels):
            raise ValueError(f"{self.name}: at least two levels are needed, each once")
        if not 0 <= self.start < len(self.levels) or self.stride < 1:
            raise ValueError(f"{self.name}: start or stride outside of the levels")


class KnobSpace(Struct, frozen=True):
    """The knobs that may be searched.

    Attributes:
        dimensions: The dimensions in the order of the parameter screen.
        left_out: (knob, why) of those that were asked for, or belong to the group, and cannot be searched.
    """

    dimensions: tuple[Dimension, ...]
    left_out: tuple[tuple[str, str], ...]

    def beside(self, other_space: KnobSpace) -> KnobSpace:
        """Return the knobs of both spaces."""
        return KnobSpace((*self.dimensions, *other_space.dimensions), (*self.left_out, *other_space.left_out))


class Space(Struct, frozen=True, dict=True):
    """All knobs of a search.

    Raises:
        ValueError: There is none, or a name stands twice.
    """

    dimensions: tuple[Dimension, ...]

    def __post_init__(self) -> None:
        if not self.dimensions or len({dimension.name for dimension in self.dimensions}) < len(self.dimensions):
            raise ValueError("a space needs a dimension, and each name once")

    @cached_property
    def start(self) -> Point:
        """Return the values in force before the search."""
        return tuple(dimension.start for dimension in self.dimensions)

    def axis(self, name: str) -> int:
        """Return the index of a knob, in the order of the dimensions.

        Raises:
            KeyError: There is no such knob.
        """
        for axis, dimension in enumerate(self.dimensions):
            if dimension.name == name:
                return axis
        raise KeyError(name)

    def values(self, point: Point) -> dict[str, str]:
        """Return the value of each knob at a point, by name."""
        return {
            dimension.name: dimension.levels[level] for dimension, level in zip(self.dimensions, point, strict=True)
        }

    def differing(self, first: Point, second: Point) -> tuple[int, ...]:
        """Return the indexes of the dimensions that differ."""
        return tuple(axis for axis, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)

    def differing_names(self, first: Point, second: Point) -> list[str]:
        """Return names of the dimensions that differ."""
        return [self.dimensions[axis].name for axis in self.differing(first, second)]

    def restarts(self, first: Point, second: Point) -> bool:
        """Return whether going from one point to the other takes a restart."""
        return any(self.dimensions[axis].restart for axis in self.differing(first, second))

    def separate(self, first: Point, second: Point) -> bool:
        """Return whether the two points are measured in blocks that have a load of their own."""
        return any(self.dimensions[axis].separate for axis in self.differing(first, second))

    def clipped(self, axis: int, level: int) -> int:
        """Return the nearest level that exists."""
        return min(max(level, 0), len(self.dimensions[axis].levels) - 1)

    def at_start(self, point: Point, axes: Iterable[int]) -> Point:
        """Return the point with these dimensions as they were before the search."""
        back = set(axes)
        return tuple(self.start[axis] if axis in back else level for axis, level in enumerate(point))


def point_with(point: Point, axis: int, level: int) -> Point:
    """Return the point with another level in one dimension."""
    return (*point[:axis], level, *point[axis + 1 :])


def log_grid(
    start: float, low: float, high: float, *, factor: float = 2.0, each_way: int = 8, integer: bool = True
) -> tuple[list[float], int]:
    """Return numbers start · factor^i between both ends, with the ends where the grid is cut; and start's index.

    Args:
        start: Above 0; kept as it is.
        each_way: Most levels on each side of the start.
        integer: Numbers are rounded, and each stands once.

    Raises:
        ValueError: The start is not above 0, not within both ends, or the factor not above 1.
    """
    if not start > 0.0 or not low <= start <= high or factor <= 1.0:
        raise ValueError("a log grid needs 0 < low ≤ start ≤ high and a factor above 1")
    steps = range(-each_way, each_way + 1)
    return _within([start * factor**step for step in steps], start, low, high, integer=integer)


def _within(
    numbers: Sequence[float], start: float, low: float, high: float, *, integer: bool
) -> tuple[list[float], int]:
    cut = [min(max(number, low), high) for number in numbers]
    kept = [start]
    for number in (float(round(number_to_round)) if integer else number_to_round for number_to_round in cut):
        if low <= number <= high and all(abs(number - earlier) > _ALIKE * abs(earlier) for earlier in kept):
            kept.append(number)
    kept.sort()
    return kept, kept.index(start)


class Constraint(Struct, frozen=True, kw_only=True):
    """A limit that a setting must hold: "p99_ms at most 20".

    Attributes:
        figure: A key of the figures that come with an evaluation.
        most, least: Upper and lower limit; None where there is none.
        unit: The unit of the figure.
    """

    figure: str
    most: float | None = None
    least: float | None = None
    unit: str = ""

    def broken(self, figures: Mapping[str, float]) -> str:
        """Return the limit and the figure in words; "" where the figure holds it or was not measured."""
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
        space: The knobs, without values that a guard forbids outright.
        budget: The budget in the unit of the costs: evaluations, or seconds.
        cost: The cost of one evaluation.
        restart_cost: The cost of one evaluation whose two arms differ in a knob that takes a restart.
        machine_cost: The cost of an evaluation whose arms differ in a setting of the machine, in none with a restart.
        seed: The seed of all that is drawn.
        engine: A name of `tuning.engines`.
        worth: The smallest effect worth having, as a share.
        constraints: All must hold.
        predictions: Predictions by knob, as far as something can be said beforehand.
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
    predictions: dict[str, Prediction] = {}

    def cost_of(self, axes: Iterable[int]) -> float:
        """Return the cost of one evaluation whose arms differ in these knobs."""
        knobs = [self.space.dimensions[axis] for axis in axes]
        if any(knob.restart for knob in knobs):
            return self.restart_cost
        return self.machine_cost if any(knob.machine for knob in knobs) else self.cost
