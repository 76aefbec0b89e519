"""Coordinate climb on grids, raced. First all knobs that the screen favours clearly, together; then knob by knob.

A knob's steps are +2, +1 towards the side that the screen favours, then −2 (and −1 where there was no screen); each is
repeated while it wins. Knobs that were moved are refined by a golden section on their levels, between those beside the
best that lost. Passes repeat until none moves a knob: over the clear ones, then over all. Words of an enum are tried in
their order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from pgtop_tune.tuning.racing import race
from pgtop_tune.tuning.screening import shifted
from pgtop_tune.tuning.search import Asking, Favoured, Move, Phase, Search
from pgtop_tune.tuning.space import moved

_STEPS: Final = (2, 1)
_CLEAR: Final = 2.0
"""Errors of the screen's effect."""
_SECTION: Final = 0.382
"""1 − 1/φ."""


def climb(search: Search, order: tuple[Favoured, ...]) -> Asking[None]:
    """Moves `search.best` wherever a race is won."""
    clear = [knob for knob in order if knob.effect is None or _clearly(search, knob)]
    yield from _jump(search, [knob for knob in clear if knob.effect is not None and search.free(knob.place)])
    for knobs in (clear, order):
        yield from _passes(search, knobs)


def _clearly(search: Search, knob: Favoured) -> bool:
    return abs(knob.effect or 0.0) > _CLEAR * search.spread.sd() / math.sqrt(max(knob.rows, 1))


def _jump(search: Search, knobs: Sequence[Favoured]) -> Asking[None]:
    """All knobs that the screen favours clearly, together."""
    if len(knobs) < 2:
        return
    for steps in _STEPS:
        candidate = search.best
        for knob in knobs:
            side = 1 if (knob.effect or 0.0) > 0.0 else -1
            candidate = moved(candidate, knob.place, shifted(search, search.best, knob.place, side * steps))
        if candidate == search.best or (candidate, search.best) in search.lost or not search.allowed(candidate):
            continue
        why = f"{len(knobs)} knobs together, {steps} steps"
        raced = yield from race(search, Phase.SEARCH, candidate, search.best, why)
        if raced.accepted:
            search.move(candidate, raced)
            return
        search.lost.add((candidate, search.best))


def _passes(search: Search, order: Sequence[Favoured]) -> Asking[None]:
    again = True
    while again:
        before = search.best
        for knob in order:
            if search.free(knob.place):
                yield from _along(search, knob)
        for knob in order:
            if search.free(knob.place) and search.best[knob.place] != search.space.start[knob.place]:
                yield from _refine(search, knob.place)
        again = search.best != before


def _along(search: Search, knob: Favoured) -> Asking[None]:
    dimension = search.space.dimensions[knob.place]
    if not dimension.ordered:
        for level in range(len(dimension.levels)):
            yield from _try(search, knob.place, level)
        return
    side = -1 if (knob.effect or 0.0) < 0.0 else 1
    if search.space.clipped(knob.place, search.best[knob.place] + side) == search.best[knob.place]:
        side = -side
    for direction in (side, -side) if search.best[knob.place] == search.space.start[knob.place] else (side,):
        came_from = search.best
        for steps in _STEPS if direction == side or knob.effect is None else _STEPS[:1]:
            while (yield from _try(search, knob.place, search.best[knob.place] + direction * steps * dimension.stride)):
                pass
        if search.best != came_from:
            return


def _try(search: Search, place: int, level: int) -> Asking[bool]:
    """Whether the level took the place of the one in force."""
    against = search.best
    candidate = moved(against, place, search.space.clipped(place, level))
    if candidate == against or (candidate, against) in search.lost or not search.allowed(candidate):
        return False
    move, back = Move(place, against[place], candidate[place]), Move(place, candidate[place], against[place])
    if move in search.beaten:
        return False
    dimension = search.space.dimensions[place]
    why = f"{dimension.name} {dimension.levels[against[place]]} → {dimension.levels[candidate[place]]}"
    raced = yield from race(search, Phase.SEARCH, candidate, against, why)
    if raced.accepted:
        search.move(candidate, raced)
        search.beaten.add(back)
    else:
        search.lost.add((candidate, against))
        if raced.high is None or raced.high < 0.0:
            search.beaten.add(move)
    return raced.accepted


def _refine(search: Search, place: int) -> Asking[None]:
    """Golden section: the larger side of the bracket is cut until both neighbours of the level in force have lost."""
    if not search.space.dimensions[place].ordered:
        return
    low, high = _bracket(search, place)
    while True:
        now = search.best[place]
        below, above = now - low, high - now
        if max(below, above) <= 1:
            return
        cut = max(round(_SECTION * max(below, above)), 1)
        level = now - cut if below >= above else now + cut
        if (yield from _try(search, place, level)):
            low, high = (low, now) if level < now else (now, high)
        elif level < now:
            low = level
        else:
            high = level


def _bracket(search: Search, place: int) -> tuple[int, int]:
    """The nearest levels on both sides that lost a race; beyond the ends of the grid where none did."""
    now, beaten = search.best[place], _beaten(search, place)
    last = len(search.space.dimensions[place].levels)
    return max((each for each in beaten if each < now), default=-1), min(
        (each for each in beaten if each > now), default=last
    )


def _beaten(search: Search, place: int) -> Sequence[int]:
    """Levels that lost a race of this dimension."""
    return [
        (raced.against if raced.accepted else raced.candidate)[place]
        for raced in search.races
        if search.space.differing(raced.candidate, raced.against) == (place,)
    ]
