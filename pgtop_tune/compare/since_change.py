"""The effect of the newest change of parameters on throughput, computed while the load runs. Pure.

It is looked at few times, each time twice as long after the change as before (`LOOKS`), and nothing is told anew in
between: who looks every second finds a difference in one of four loads that did not change. A claim takes more at the
early looks (`_SPENT`, together 4.7 %), and stays until a later look speaks clearly against it. A look at which the time
before and the time after do not have the same share of checkpoints, of full pages in the WAL, or of foreign CPU time,
makes no claim.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from math import inf
from statistics import fmean
from typing import Final

from msgspec import Struct, field

from pgtop_tune.compare.statistics.effect import LEAST, Effect, Verdict, effect_of, verdict
from pgtop_tune.compare.statistics.verdicts import CONDITIONS, unlike
from pgtop_tune.metrics.load import CLIENT_TPS, under_way
from pgtop_tune.metrics.server import TPS
from pgtop_tune.metrics.steady_state import warm_up
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.runtime.history import Charted, SeriesPoint
from pgtop_tune.runtime.session import Session

SETTLING_S: Final = 5.0
"""Left out after a change; changes that follow each other faster are one."""
NOTICED_S: Final = 2.0
"""Left out before a change: it was made a little before it was read back."""
MOST_S: Final = 300.0
"""The longest window before it, the nearest to the change."""
LOOKS: Final = (5, 15, 30, 60, 120, 240, 480)
"""Seconds after it has settled at which it is told anew; the last one stands."""
FEWEST_S: Final = 5
"""Readings after it below which there is no figure."""
_SPENT: Final = (0.0, 0.002, 0.005, 0.01, 0.01, 0.01, 0.01)
"""At each look how seldom so large a difference must come by chance for a claim; the first has too few blocks."""
_UNCLEAR: Final = 0.2
"""And from which on a claim is taken back."""
_SECOND: Final = 0.95
_ARROW: Final = "→"


class SinceChange(Struct, frozen=True):
    """Transactions per second since a change, against before it under the same load.

    Attributes:
        changed: (name, value) of what is in force by it. Foreign text.
        effect: After against before at the newest look; None until it has settled and five seconds more.
        verdict: What may be said of it.
        unlike: What else was not the same before and after, in words; "" where there is nothing.
        final: There is no further look.
    """

    changed: tuple[tuple[str, str], ...]
    effect: Effect | None
    verdict: Verdict
    unlike: str = ""
    final: bool = False


class _Change(Struct):
    """Ticks of parameters that belong together; `fresh` are those that no earlier value came back by."""

    first_s: float
    last_s: float
    fresh: dict[str, str] = field(default_factory=dict)


def since_change(session: Session) -> SinceChange | None:
    """The newest change and its effect on the client's TPS, or on the server's where no load of ours runs.

    Before is from when the load began, without its warm-up (`steady_state.warm_up`), or from the change before. After
    begins when the change has settled and ends with the newest look.

    Returns:
        None when nothing was changed, when the change was taken back, when another load, a restart or another server
        came after it, and when nothing was measured before it.
    """
    changes, loads, breaks = _read(session.events)
    if not changes or session.now is None or not changes[-1].fresh:
        return None
    change = changes[-1]
    ends = [at_s for at_s in loads if at_s > change.first_s]
    if len(ends) > 1 or (ends and under_way(session.now)) or any(at_s > change.first_s for at_s in breaks):
        return None
    until_s = ends[0] if ends else inf
    begun_s = max((at_s for at_s in (*loads, *breaks) if at_s <= change.first_s), default=0.0)
    settled_s = max((each.last_s + SETTLING_S for each in changes[:-1]), default=0.0)

    def window(metric: Charted, since_s: float, end_s: float) -> list[SeriesPoint]:
        return _by_second(session.history.series(metric, since_s, end_s))

    since_s = max(begun_s, settled_s, change.first_s - NOTICED_S - MOST_S)
    metric: Charted = CLIENT_TPS
    before = window(metric, since_s, change.first_s - NOTICED_S)
    if not before and not ends:
        metric = TPS
        before = window(metric, since_s, change.first_s - NOTICED_S)
    if begun_s >= settled_s:
        before = _warm(before)
    if not before:
        return None
    since_s, values = before[0].at_s, _values(before)
    began_s, now_s = change.last_s + SETTLING_S, min(session.now.elapsed_s, until_s)
    past = [look for look in LOOKS if now_s - began_s >= look]
    looks = []
    for look in past:
        differs = _unlike(session, change.fresh, (since_s, change.first_s - NOTICED_S), (began_s, began_s + look))
        after = window(metric, began_s, began_s + look)
        effect = _effect(values, _values(after)) if len(after) >= FEWEST_S else None
        looks.append((effect, differs))
    final = until_s < inf or len(past) == len(LOOKS)
    return _told(tuple(change.fresh.items()), looks, final=final)


_effect = lru_cache(maxsize=32)(effect_of)
"""A look is told once; its seconds do not change any more."""


def _told(
    changed: tuple[tuple[str, str], ...], looks: Iterable[tuple[Effect | None, str]], *, final: bool
) -> SinceChange:
    """The newest look with the claim that it makes or holds; one at windows that are not alike takes no claim back."""
    found = SinceChange(changed, None, Verdict.UNDECIDED, final=final)
    for (effect, differs), spent in zip(looks, _SPENT, strict=False):
        if effect is None:
            continue
        if differs:
            if found.verdict not in (Verdict.BETTER, Verdict.WORSE):
                found = SinceChange(
                    changed=changed, effect=effect, verdict=Verdict.UNDECIDED, unlike=differs, final=final
                )
            continue
        found = SinceChange(changed, effect, _judged(effect, found, spent), final=final)
    return found


def _judged(effect: Effect, before: SinceChange, spent: float) -> Verdict:
    if effect.chance is None:
        return Verdict.UNDECIDED
    claimed = before.verdict in (Verdict.BETTER, Verdict.WORSE) and before.effect is not None
    if claimed and before.effect is not None and effect.relative * before.effect.relative > 0:
        return before.verdict if effect.chance <= _UNCLEAR else Verdict.UNDECIDED
    certain = effect.chance < spent and abs(effect.relative) >= LEAST
    return verdict(effect, higher_is_better=True, certain=certain and not claimed)


def _unlike(session: Session, changed: Collection[str], *windows: tuple[float, float]) -> str:
    """What else was not the same in two windows."""

    def weighed(metric: Charted, window: tuple[float, float]) -> list[tuple[float, float]]:
        return [(point.value, 1.0) for point in session.history.series(metric, *window) if point.value is not None]

    found = unlike([[weighed(each.metric, window) for window in windows] for each in CONDITIONS], changed)
    return "" if found is None else found.condition.words


def _read(events: Iterable[tuple[float, Event]]) -> tuple[list[_Change], list[float], list[float]]:
    """Changes of parameters, moments of loads, and moments nothing can be compared across."""
    changes: list[_Change] = []
    loads: list[float] = []
    breaks: list[float] = []
    known: dict[str, list[str]] = {}
    for at_s, event in events:
        if event.kind is EventKind.LOAD:
            loads.append(at_s)
        elif event.kind is EventKind.RESTART:
            breaks.append(at_s)
        elif event.kind is EventKind.PARAMETER:
            name, _, values = event.text.partition(" ")
            was, arrow, now = values.partition(_ARROW)
            if arrow:
                if not changes or at_s - changes[-1].last_s > SETTLING_S:
                    changes.append(_Change(at_s, at_s))
                changes[-1].last_s = at_s
                _note(changes[-1].fresh, known.setdefault(name, []), name, was, now)
            elif name.isdigit():
                # So many parameters at once are another server behind the same name.
                breaks.append(at_s)
    return changes, loads, breaks


def _note(fresh: dict[str, str], values: list[str], name: str, was: str, now: str) -> None:
    """Enters a change; `values` are those the parameter had, without those that were taken back."""
    if was not in values:
        values.append(was)
    if now in values:
        del values[values.index(now) + 1 :]
        fresh.pop(name, None)
    else:
        values.append(now)
        fresh[name] = now


def _warm(seconds: list[SeriesPoint]) -> list[SeriesPoint]:
    """Without the warm-up; the second half of what has not settled."""
    cut = warm_up(_values(seconds)) if seconds else 0
    return seconds[len(seconds) // 2 if cut is None else cut :]


def _values(seconds: Iterable[SeriesPoint]) -> tuple[float, ...]:
    return tuple(point.value for point in seconds if point.value is not None)


def _by_second(points: Iterable[SeriesPoint]) -> list[SeriesPoint]:
    """One value a second where frames come faster: readings of the same second say the same twice."""
    moments: list[float] = []
    values: list[list[float]] = []
    for point in points:
        if point.value is None:
            continue
        if not moments or point.at_s - moments[-1] >= _SECOND:
            moments.append(point.at_s)
            values.append([])
        values[-1].append(point.value)
    return [SeriesPoint(at_s, fmean(held)) for at_s, held in zip(moments, values, strict=True)]
