"""The screen: a Plackett-Burman design finds the knobs that matter, all of them in every evaluation.

Each row gives every knob its upper or its lower level (two steps up or down, on a grid of doublings a factor of four)
and runs against the start. effect = (mean of the rows with the upper level − mean of those with the lower) / 2.

Source: Plackett and Burman, "The Design of Optimum Multifactorial Experiments", Biometrika 33, 1946.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Final

from pgtop_tune.tuning.search import Asking, Favoured, LetGo, Phase, Search
from pgtop_tune.tuning.space import Point

_FIRST_ROWS: Final = {3: "++-", 7: "+++-+--", 11: "++-+++---+-"}
"""By the number of knobs that a design has room for."""
MOST_KNOBS: Final = 11
STEPS: Final = 2
"""Up and down, in strides."""


def design(knobs: int) -> list[tuple[int, ...]]:
    """Rows of +1 and -1 for so many knobs: shifts of the first row, and a last one of -1."""
    room = next(room for room in _FIRST_ROWS if room >= knobs)
    first = [1 if sign == "+" else -1 for sign in _FIRST_ROWS[room]]
    rows = [first[-shift:] + first[:-shift] if shift else first for shift in range(room)]
    return [tuple(row[:knobs]) for row in (*rows, [-1] * room)]


def rows_of(search: Search, places: Sequence[int]) -> list[tuple[int, ...]]:
    """The design for these knobs: 12 rows, or the fewest where each row takes blocks of their own."""
    thrifty = any(search.space.dimensions[place].separate for place in places)
    return design(len(places)) if thrifty else [row[: len(places)] for row in design(MOST_KNOBS)]


def screen(search: Search, places: Sequence[int]) -> Asking[tuple[Favoured, ...]]:
    """Knobs in the order of their effects, the largest first; without effects where rows cannot be tried.

    Args:
        places: At most eleven, the most promising first.

    Raises:
        Spent: The budget is over.
    """
    unknown = tuple(Favoured(place, None) for place in places)
    if len(places) < 2:
        return unknown
    rows = rows_of(search, places)
    points = _points(search, places, rows)
    if points is None:
        return unknown
    effects: list[tuple[tuple[int, ...], float]] = []
    for number, (row, point) in enumerate(zip(rows, points, strict=True), 1):
        found = yield from _measured(search, point, f"screen, row {number} of {len(rows)}")
        if found is not None:
            effects.append((row, found))
    favoured = [
        Favoured(place, _contrast(effects, column), len(effects))
        for column, place in enumerate(places)
        if search.free(place)
    ]
    search.screened.update((each.place, each.effect) for each in favoured if each.effect is not None)
    return tuple(sorted(favoured, key=lambda each: -abs(each.effect or 0.0)))


def _measured(search: Search, point: Point, why: str) -> Asking[float | None]:
    """None where the row was stopped; asked again without a knob that was let go of meanwhile."""
    while True:
        gone = [place for place in range(len(point)) if not search.free(place)]
        candidate = search.space.at_start(point, gone)
        if candidate == search.best:
            return None
        try:
            outcome = yield from search.measure(Phase.SCREEN, candidate, search.best, why)
        except LetGo:
            continue
        return None if outcome.stopped else outcome.effect


def _points(search: Search, places: Sequence[int], rows: Sequence[tuple[int, ...]]) -> list[Point] | None:
    """Two steps from the best so far, one where guards forbid a row; None where they forbid one of these, too."""
    for steps in range(STEPS, 0, -1):
        points = []
        for row in rows:
            levels = list(search.best)
            for place, sign in zip(places, row, strict=True):
                levels[place] = shifted(search, search.best, place, sign * steps)
            points.append(tuple(levels))
        if all(search.allowed(point) for point in points):
            return points
    return None


def shifted(search: Search, point: Point, place: int, steps: int) -> int:
    """The level so many steps away, within the grid; of words, the next one for a step up and the same for one down."""
    dimension = search.space.dimensions[place]
    if dimension.ordered:
        return search.space.clipped(place, point[place] + steps * dimension.stride)
    return (point[place] + 1) % len(dimension.levels) if steps > 0 else point[place]


def _contrast(effects: Sequence[tuple[tuple[int, ...], float]], column: int) -> float | None:
    sides = [[effect for row, effect in effects if row[column] == sign] for sign in (1, -1)]
    return (fmean(sides[0]) - fmean(sides[1])) / 2.0 if all(sides) else None
