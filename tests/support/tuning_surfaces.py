"""Made surfaces for the tuner: eight knobs on seven levels each, of which the true effect of every point is known."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Final, TypeVar

from msgspec import Struct

from pgtop_tune.tuning.plan import Dimension, Point, Space
from pgtop_tune.tuning.protocol import SearchResult, Tuning
from pgtop_tune.tuning.search import Asking, Evaluation, Outcome

T = TypeVar("T")
KNOBS: Final = 8
LEVELS: Final = 7
MIDDLE: Final = 3
KINDS: Final = ("two of eight", "interaction", "start best", "plateau", "cliff", "hard", "nothing")


class Hill(Struct, frozen=True):
    """What one knob does.

    Attributes:
        best: Level.
        slope: Log ratio lost by a level of distance; the first half of it quadratic.
        flat: From the best level upwards nothing changes.
    """

    place: int
    best: int
    slope: float
    flat: bool = False

    def lost(self, level: int) -> float:
        """Against the best level."""
        away = max(self.best - level, 0) if self.flat else abs(level - self.best)
        return self.slope * (away - 0.5 if away > 1 else 0.5 * away**2)


class Surface(Struct, frozen=True):
    """True log ratios.

    Attributes:
        cliffs: (place, level, side, height): beyond the level, on that side, so much is lost.
        twist: Log ratio that the first two hills lose where both are off to opposite sides, for a product of 1.
    """

    start: Point
    hills: tuple[Hill, ...]
    cliffs: tuple[tuple[int, int, int, float], ...] = ()
    twist: float = 0.0

    def height(self, point: Point) -> float:
        """Log of the objective."""
        lost = sum(hill.lost(point[hill.place]) for hill in self.hills)
        if self.twist:
            one, other = self.hills[:2]
            product = (point[one.place] - one.best) * (point[other.place] - other.best)
            lost += self.twist * max(-product, 0)
        lost += sum(height for place, level, side, height in self.cliffs if (point[place] - level) * side > 0)
        return -lost

    def gain(self, point: Point) -> float:
        """Log ratio to the start."""
        return self.height(point) - self.height(self.start)

    @property
    def possible(self) -> float:
        """The best there is."""
        best = list(self.start)
        for hill in self.hills:
            best[hill.place] = hill.best
        return max(self.gain(tuple(best)), 0.0)

    def idle(self, point: Point) -> int:
        """Knobs that were changed although they do nothing."""
        matter = {hill.place for hill in self.hills}
        return sum(a != b and place not in matter for place, (a, b) in enumerate(zip(point, self.start, strict=True)))


def surface(kind: str, seed: int) -> Surface:
    """One of a kind, drawn."""
    draw = random.Random(f"{kind} {seed}")
    places = draw.sample(range(KNOBS), KNOBS)
    start = [MIDDLE] * KNOBS
    if kind == "nothing":
        return Surface(tuple(start), ())
    if kind == "hard":
        start = [draw.choice((0, 1, 5, 6)) for _ in range(KNOBS)]
    hills = []
    for place in places[: 3 if kind in ("hard", "start best") else 2]:
        away = draw.choice((-3, -2, -1, 1, 2, 3))
        best = min(max(start[place] + away, 0), LEVELS - 1)
        if best == start[place]:
            best = start[place] - away
        if kind == "start best":
            best = start[place]
        flat = kind == "plateau"
        if flat:
            best = min(start[place] + abs(away), LEVELS - 2)
        unit = Hill(place, best, 1.0, flat).lost(start[place]) or 2.0
        hills.append(Hill(place, best, math.log1p(draw.uniform(0.02, 0.10)) / unit, flat))
    cliffs: list[tuple[int, int, int, float]] = []
    for height in {"cliff": (0.10,), "hard": (0.12, 0.15)}.get(kind, ()):
        place = places[3 + len(cliffs)]
        side = draw.choice((-1, 1))
        cliffs.append((place, start[place] if height > 0.1 else start[place] + side, side, height))
    twist = {"interaction": 0.005, "hard": 0.01}.get(kind, 0.0)
    return Surface(tuple(start), tuple(hills), tuple(cliffs), twist)


def space_of(found: Surface) -> Space:
    """Eight knobs."""
    levels = tuple(f"{2**power}MB" for power in range(LEVELS))
    return Space(
        tuple(Dimension(name=f"knob_{place}", levels=levels, start=level) for place, level in enumerate(found.start))
    )


def answer(found: Surface, sd: float, draw: random.Random) -> Callable[[Evaluation], Outcome]:
    """Evaluations with normal noise."""

    def told(wanted: Evaluation) -> Outcome:
        return Outcome(effect=found.height(wanted.candidate) - found.height(wanted.against) + draw.gauss(0.0, sd))

    return told


def run(tuning: Tuning, told: Callable[[Evaluation], Outcome]) -> SearchResult:
    """To the end."""
    while not isinstance(wanted := tuning.next(), SearchResult):
        tuning.tell(told(wanted))
    return wanted


def driven(asking: Asking[T], told: Callable[[Point, Point], Outcome]) -> T:
    """A part of a search alone, to its end."""
    outcome: Outcome | None = None
    while True:
        try:
            wanted = next(asking) if outcome is None else asking.send(outcome)
        except StopIteration as over:
            found: T = over.value
            return found
        outcome = told(wanted.candidate, wanted.against)
