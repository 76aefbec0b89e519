"""The effect of the newest change of parameters on throughput, computed while the load runs. Pure.

The change is judged at few looks, each twice as long after it as the previous one (`before_after.LOOKS`); between looks
the result stays as it is. Checkpoints that write, full pages in the WAL and CPU time of other programs are columns of
the regression; where full pages or foreign CPU time differ too much between before and after, a look makes no claim.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from math import inf
from operator import itemgetter
from statistics import fmean
from typing import Final
from weakref import WeakKeyDictionary

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.compare.statistics.before_after import (
    CLAIMS,
    CONDITIONS,
    FEWEST_AFTER,
    FEWEST_BEFORE,
    LOOKS,
    AlikeCondition,
    ChangeLook,
    Difference,
    Second,
    claim_after,
    difference,
    moving,
    unlike,
)
from pgtop_tune.compare.statistics.effect import Effect, Verdict
from pgtop_tune.metrics.checkpoints import CHECKPOINT_WRITES
from pgtop_tune.metrics.host import CPU_FOREIGN
from pgtop_tune.metrics.load import CLIENT_TPS, under_way
from pgtop_tune.metrics.server import FULL_PAGES, TPS
from pgtop_tune.metrics.steady_state import warm_up
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.runtime.history import Charted
from pgtop_tune.runtime.session import Session

SETTLING_S: Final = 5.0
"""Seconds left out after a change; changes that follow each other faster are one."""
NOTICED_S: Final = 2.0
"""Seconds left out before a change was read back: it was made a little earlier."""
MOST_S: Final = 300.0
"""Longest window before a change, in seconds; it ends at the change."""
WARM_UP_S: Final = 120.0
"""Seconds left out at the begin of a load; half of them where the change came within `_SOON_S`, and then looks before
`WARM_UP_S` make no claim."""
_SOON_S: Final = 180.0
_FEWEST_UNREAD: Final = 180
"""Fewest seconds before the change on a server that does not show when its checkpoints write."""
_EDGE_S: Final = 10.0
"""Seconds left out around a checkpoint's begin and end, unless that is more than half of a side."""
_SECOND: Final = 0.95
_ARROW: Final = "→"
_SHARES: Final[tuple[tuple[Charted, float], ...]] = ((CPU_FOREIGN, 20.0), (FULL_PAGES, 100.0))
"""Percentages that are columns, and the points of each that may cost as much as a checkpoint."""
_Row = tuple[float, ...]
"""(at_s, value, columns …) of a second."""


class SinceChange(Struct, frozen=True):
    """Transactions per second since a change, against before it under the same load.

    Attributes:
        changed: (name, value) of the parameters that it changed. Foreign text.
        effect: After against before at the newest look; None until the first.
        verdict: The verdict that the looks so far allow.
        unlike: Another condition that was not the same before and after, in words; "" where there is none.
        final: Whether the newest look is the last.
        after_s: Seconds that the newest look has, counted from when the change had settled.
        next_s: Seconds that the next look will have; None after the last.
        withdrawn: Whether an earlier look made a claim that is not clear any more.
        moved: Change of throughput in ten minutes that was under way before the change; None where none is clear.
        too_early: Whether the load was too young before the change for a verdict.
    """

    changed: tuple[tuple[str, str], ...]
    effect: Effect | None
    verdict: Verdict
    unlike: str = ""
    final: bool = False
    after_s: int = 0
    next_s: int | None = None
    withdrawn: bool = False
    moved: float | None = None
    too_early: bool = False


class _ParameterChange(Struct):
    """Changes of parameters that belong together; `fresh` has those that did not bring back an earlier value."""

    first_s: float
    last_s: float
    fresh: dict[str, str] = {}


class _Scope(Struct, frozen=True):
    """The seconds by which a change is judged; with the same scope the result is the same.

    Attributes:
        first_s, last_s: First and last moment of the change.
        begun_s: Begin of the load, or of the server after a restart.
        settled_s: Moment at which the previous change had settled.
        loaded_s: Begin of the load; None where none of ours runs.
        ages_s: Looks so far, in seconds since the change had settled.
        ended: Whether the load is over.
    """

    first_s: float
    last_s: float
    fresh: tuple[tuple[str, str], ...]
    begun_s: float
    settled_s: float
    loaded_s: float | None
    ages_s: tuple[int, ...]
    ended: bool

    @property
    def since_s(self) -> float:
        """Return the begin of the seconds before the change."""
        return max(self.begun_s, self.settled_s, self.first_s - NOTICED_S - MOST_S)

    @property
    def began_s(self) -> float:
        """Return the begin of the seconds after the change."""
        return self.last_s + SETTLING_S

    @property
    def until_s(self) -> float:
        """Return the end of the newest look."""
        return self.began_s + (self.ages_s[-1] if self.ages_s else 0)

    @property
    def hasty(self) -> bool:
        """Return whether looks before `WARM_UP_S` make no claim, because the load was young."""
        return self.loaded_s is not None and self.first_s - self.loaded_s < _SOON_S


class _Sides(Struct):
    """Seconds before a change, and those after it.

    Attributes:
        checkpoints: Whether the server shows when they write.
    """

    before: list[_Row]
    after: list[_Row]
    checkpoints: bool


_KEPT: WeakKeyDictionary[Session, tuple[_Scope, int, SinceChange | None]] = WeakKeyDictionary()
"""Scope, number of its readings, and result of each session's last look: between looks nothing is computed anew."""


def since_change(session: Session) -> SinceChange | None:
    """Return the newest change and its effect on the client's TPS, or on the server's where no load of ours runs.

    The seconds before begin with the load, without its warm-up, or with the previous change. The seconds after begin
    when the change has settled and end with the newest look.

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
    until_s = min(session.now.elapsed_s, ends[0] if ends else inf)
    scope = _Scope(
        first_s=change.first_s,
        last_s=change.last_s,
        fresh=tuple(change.fresh.items()),
        begun_s=max((at_s for at_s in (*loads, *breaks) if at_s <= change.first_s), default=0.0),
        settled_s=max((earlier.last_s + SETTLING_S for earlier in changes[:-1]), default=0.0),
        loaded_s=max((at_s for at_s in loads if at_s <= change.first_s), default=None),
        ages_s=tuple(look for look in LOOKS if until_s - change.last_s - SETTLING_S >= look),
        ended=bool(ends),
    )
    readings = session.history.count(scope.since_s, scope.until_s)
    kept = _KEPT.get(session)
    if kept is None or kept[:2] != (scope, readings):
        kept = _KEPT[session] = scope, readings, _since(session, scope)
    return kept[2]


def _since(session: Session, scope: _Scope) -> SinceChange | None:
    """Judge the change by the seconds of all looks so far; None where nothing was measured before it."""
    metric: Charted = CLIENT_TPS
    before = _by_second(session, metric, scope.since_s, scope.first_s - NOTICED_S)
    if not before and not scope.ended:
        metric = TPS
        before = _by_second(session, metric, scope.since_s, scope.first_s - NOTICED_S)
    if not before:
        return None
    if scope.begun_s >= scope.settled_s:
        before = _warm(before)
    after = _by_second(session, metric, scope.began_s, scope.until_s)
    sides = _sides(session, scope, before, after)
    final = scope.ended or len(scope.ages_s) == len(LOOKS)
    so_far = SinceChange(
        changed=scope.fresh, effect=None, verdict=Verdict.UNDECIDED, final=final,
        next_s=None if final else LOOKS[len(scope.ages_s)],
    )  # fmt: skip
    if len(sides.before) < (FEWEST_BEFORE if sides.checkpoints else _FEWEST_UNREAD):
        return replace(so_far, too_early=True)
    return _with_claim(session, scope, sides, so_far)


def _sides(
    session: Session, scope: _Scope, before: list[tuple[float, float]], after: Sequence[tuple[float, float]]
) -> _Sides:
    """Return the seconds that count, with the columns of other influences on them."""
    if scope.loaded_s is not None:
        warm_s = scope.loaded_s + (WARM_UP_S / 2.0 if scope.hasty else WARM_UP_S)
        before = [point for point in before if point[0] >= warm_s]
    since_s = before[0][0] if before else scope.began_s
    writes = _by_second(session, CHECKPOINT_WRITES, since_s, scope.until_s)
    edges = [at_s for (_, was), (at_s, now) in pairwise(writes) if (was > 0.0) != (now > 0.0)]
    columns = [[(at_s, float(value > 0.0)) for at_s, value in writes]]
    for share, points in _SHARES:
        columns.append([(at_s, value / points) for at_s, value in _by_second(session, share, since_s, scope.until_s)])
    telling_columns = [column for column in columns if any(value for _, value in column)]

    def side(points: Sequence[tuple[float, float]]) -> list[_Row]:
        inside = [point for point in points if all(abs(point[0] - edge_s) > _EDGE_S for edge_s in edges)]
        kept = inside if 2 * len(inside) >= len(points) else points
        return [
            (at_s - scope.first_s, value, *(_at(column, at_s) for column in telling_columns)) for at_s, value in kept
        ]

    return _Sides(before=side(before), after=side(after), checkpoints=bool(writes))


def _with_claim(session: Session, scope: _Scope, sides: _Sides, so_far: SinceChange) -> SinceChange:
    """Return the result with the claim of the looks so far."""
    before_s = scope.first_s + sides.before[0][0], scope.first_s - NOTICED_S
    before = tuple(sides.before)
    looks: list[ChangeLook] = []
    ages_s: list[int] = []
    differs: AlikeCondition | None = None
    for age_s in scope.ages_s:
        after = tuple(row for row in sides.after if row[0] < scope.began_s - scope.first_s + age_s)
        if len(after) < FEWEST_AFTER:
            continue
        differs = _unlike(session, dict(scope.fresh), before_s, (scope.began_s, scope.began_s + age_s))
        claims = (differs is None or differs.column) and not (scope.hasty and age_s < WARM_UP_S)
        looks.append(ChangeLook(_difference(before, after), (len(before), len(after)), claims))
        ages_s.append(age_s)
    claim = claim_after(looks)
    if claim is None:
        return so_far
    return replace(
        so_far, effect=claim.effect, verdict=claim.verdict, after_s=ages_s[claim.look], withdrawn=claim.withdrawn,
        unlike="" if claim.verdict in CLAIMS or differs is None else differs.summary, moved=moving(_seconds(before)),
    )  # fmt: skip


def _at(column: Sequence[tuple[float, float]], at_s: float) -> float:
    """Return the newest value of a column at a moment; 0 before its first."""
    position = bisect_right(column, at_s + _SECOND / 2.0, key=itemgetter(0))
    return column[position - 1][1] if position else 0.0


@lru_cache(maxsize=32)
def _difference(before: tuple[_Row, ...], after: tuple[_Row, ...]) -> Difference:
    """Return the difference of a look; each look is judged once, as its seconds no longer change."""
    return difference(_seconds(before), _seconds(after))


def _seconds(rows: Iterable[_Row]) -> list[Second]:
    return [Second(row[0], row[1], row[2:]) for row in rows]


def _unlike(session: Session, changed: Collection[str], *windows: tuple[float, float]) -> AlikeCondition | None:
    """Return another condition that was not the same in two windows."""

    def weighed(metric: Charted, window: tuple[float, float]) -> list[tuple[float, float]]:
        return [(point.value, 1.0) for point in session.history.series(metric, *window) if point.value is not None]

    difference = unlike(
        [[weighed(condition.metric, window) for window in windows] for condition in CONDITIONS], changed
    )
    return None if difference is None else difference.condition


def _read(events: Iterable[tuple[float, Event]]) -> tuple[list[_ParameterChange], list[float], list[float]]:
    """Return changes of parameters, moments of loads, and moments across which nothing can be compared."""
    changes: list[_ParameterChange] = []
    loads: list[float] = []
    breaks: list[float] = []
    values_by_name: dict[str, list[str]] = {}
    for at_s, event in events:
        if event.kind is EventKind.LOAD:
            loads.append(at_s)
        elif event.kind in (EventKind.RESTART, EventKind.SWITCH):
            # An experiment judges its switches itself.
            breaks.append(at_s)
        elif event.kind is EventKind.PARAMETER:
            name, _, values = event.text.partition(" ")
            old_value, arrow, new_value = values.partition(_ARROW)
            if arrow:
                if not changes or at_s - changes[-1].last_s > SETTLING_S:
                    changes.append(_ParameterChange(at_s, at_s))
                changes[-1].last_s = at_s
                _note(changes[-1].fresh, values_by_name.setdefault(name, []), name, old_value, new_value)
            elif name.isdigit():
                # So many parameters at once are another server behind the same name.
                breaks.append(at_s)
    return changes, loads, breaks


def _note(fresh: dict[str, str], values: list[str], name: str, old_value: str, new_value: str) -> None:
    """Enter a change; `values` are those the parameter had, without those that were taken back."""
    if old_value not in values:
        values.append(old_value)
    if new_value in values:
        del values[values.index(new_value) + 1 :]
        fresh.pop(name, None)
    else:
        values.append(new_value)
        fresh[name] = new_value


def _warm(seconds: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the seconds without the warm-up; where they have not settled, their second half."""
    cut = warm_up([value for _, value in seconds]) if seconds else 0
    return seconds[len(seconds) // 2 if cut is None else cut :]


def _by_second(session: Session, metric: Charted, since_s: float, until_s: float) -> list[tuple[float, float]]:
    """Return (at_s, value), one a second: faster readings of the same second are averaged."""
    moments: list[float] = []
    values: list[list[float]] = []
    for point in session.history.series(metric, since_s, until_s):
        if point.value is None:
            continue
        if not moments or point.at_s - moments[-1] >= _SECOND:
            moments.append(point.at_s)
            values.append([])
        values[-1].append(point.value)
    return [
        (at_s, second_values[0] if len(second_values) == 1 else fmean(second_values))
        for at_s, second_values in zip(moments, values, strict=True)
    ]
