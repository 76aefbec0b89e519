"""Statements of two windows: time per call, and one figure over the same mix of statements on both sides.

The figure "statements, same mix" is Σ calls_A · mean(block) / Σ calls_A · mean_A over a fixed set of statements: those
with enough calls on both sides, in every block. Its weights are calls of A, so that another mix in B is no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.compare.sides.figures import Better
from pgtop_tune.compare.statistics.effect import FEWEST, Effect, block_length, certain_together, effect_of_whole
from pgtop_tune.compare.statistics.verdicts import worded
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.growth import growth
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import StatementTotals
from pgtop_tune.model.statements import OWN_MARK, StatementCounters, StatementSample

ENOUGH_CALLS: Final = 20
"""On each side, for a statement of the fixed set."""
SHOWN: Final = 30
Look = Mapping[str, tuple[int, float]]
"""Calls and milliseconds of each statement between two looks at the server's counters."""


class StatementsSeen:
    """Counters of statements in a window, look by look."""

    def __init__(self) -> None:
        self.looks: list[Look] = []
        self.seconds = 0.0
        self.texts: dict[int, str] = {}
        self.queryids: dict[str, int] = {}
        self._last: StatementSample | None = None
        self._totals: list[StatementTotals] = []

    def take(self, frame: Frame) -> None:
        """The next frame of the window."""
        texts, totals = sections.statement_texts(frame), sections.statements(frame)
        if not isinstance(texts, Unavailable):
            self.texts |= {text.queryid: text.query for text in texts.texts}
        if not isinstance(totals, Unavailable):
            self._totals[min(len(self._totals), 1) :] = [totals]
        sample = sections.statement_counters(frame)
        if isinstance(sample, Unavailable) or (self._last is not None and sample.at_s <= self._last.at_s):
            return
        older, self._last = self._last, sample
        if older is None or sample.before_s != older.at_s:
            return
        before = {row.id: row for row in (*older.statements, *sample.before)}
        look: dict[str, tuple[int, float]] = {}
        for row in sample.statements:
            grown = _grown(before.get(row.id), row, sample)
            if row.toplevel and grown is not None and grown["calls"] > 0:
                look[row.id] = grown["calls"], grown["exec_us"] / 1000.0
                self.queryids[row.id] = row.queryid
        self.looks.append(look)
        self.seconds += sample.at_s - older.at_s

    @property
    def all_ms(self) -> float | None:
        """Execution time of every top-level statement in the window; None where the server did not tell."""
        if len(self._totals) < 2 or self._totals[0].stats_reset_ms != self._totals[1].stats_reset_ms:
            return None
        first, last = self._totals
        grown = last.total_exec_ms - first.total_exec_ms
        # Totals and entries are read at moments of their own.
        return grown * self.seconds / (last.at_s - first.at_s) if grown > 0 and last.at_s > first.at_s else None


def _grown(older: StatementCounters | None, newer: StatementCounters, sample: StatementSample) -> dict[str, int] | None:
    if older is None:
        return None if newer.id in sample.unknown_before else growth(None, newer, ("calls", "exec_us"))
    return growth(older, newer, ("calls", "exec_us")) if older.stats_since_ms == newer.stats_since_ms else None


class StatementRow(Struct, frozen=True):
    """A statement.

    Attributes:
        text: Foreign; "" where it is not known.
        calls_a, calls_b: In the window.
        a_ms, b_ms: Per call; None without calls.
        effect: Of the time per call; None for a statement of one side.
        weight_ms: Milliseconds that the change costs over A's calls, and for a new or gone one all of its time.
        verdict: "new", "gone", or as of other figures.
    """

    id: str
    text: str
    calls_a: int
    calls_b: int
    a_ms: float | None
    b_ms: float | None
    effect: Effect | None
    weight_ms: float
    fixed: bool
    verdict: str = ""


class StatementComparison(Struct, frozen=True):
    """Statements of two windows.

    Attributes:
        rows: The largest effect on the time of the server first.
        same_mix: Of the fixed set; None where it is empty.
        verdict: Of `same_mix`.
        fixed: Statements in the fixed set.
        covered_a, covered_b: Share of the execution time of all statements that the fixed set has; None when unknown.
    """

    rows: tuple[StatementRow, ...]
    same_mix: Effect | None
    verdict: str
    fixed: int
    covered_a: float | None
    covered_b: float | None


def compare_statements(
    a: StatementsSeen, b: StatementsSeen, *, comparable: bool, decisive: bool
) -> StatementComparison | None:
    """B against A; None where a side has no counters of statements.

    Args:
        comparable, decisive: As of `worded`.
    """
    if not a.looks or not b.looks:
        return None
    whole = _sum(a.looks), _sum(b.looks)
    texts = {id: (a.texts | b.texts).get(queryid, "") for id, queryid in (a.queryids | b.queryids).items()}
    ids = [id for id in dict.fromkeys((*whole[0], *whole[1])) if OWN_MARK not in texts[id]]
    often = [id for id in ids if all(side.get(id, (0, 0.0))[0] >= ENOUGH_CALLS for side in whole)]
    length = _length(a, b, often, whole)
    blocks = [_blocks(seen.looks, length) for seen in (a, b)]
    fixed = [id for id in often if all(id in block for side in blocks for block in side)]
    effects = {
        id: effect_of_whole((_mean(whole[0][id]), _mean(whole[1][id])), *_means(blocks, id), length) for id in fixed
    }
    sure = certain_together({id: each.chance for id, each in effects.items() if each and each.chance is not None})
    rows = []
    for id in ids:
        one, other = whole[0].get(id), whole[1].get(id)
        effect = effects.get(id)
        if one is None or other is None:
            said, weight = "gone" if other is None else "new", (other or (0, 0.0))[1] - (one or (0, 0.0))[1]
        else:
            said = worded(effect, Better.LOWER, id in sure, comparable=comparable, decisive=decisive)
            weight = one[0] * (_mean(other) - _mean(one))
        rows.append(
            StatementRow(
                id=id,
                text=texts[id],
                calls_a=one[0] if one else 0,
                calls_b=other[0] if other else 0,
                a_ms=_mean(one) if one else None,
                b_ms=_mean(other) if other else None,
                effect=effect,
                weight_ms=weight,
                fixed=id in effects,
                verdict=said,
            )
        )
    mix = _same_mix(blocks, whole, fixed, length)
    return StatementComparison(
        rows=tuple(sorted(rows, key=lambda row: -abs(row.weight_ms))),
        same_mix=mix,
        verdict=worded(mix, Better.LOWER, None, comparable=comparable, decisive=decisive),
        fixed=len(fixed),
        covered_a=_covered(a, whole[0], fixed),
        covered_b=_covered(b, whole[1], fixed),
    )


def _sum(looks: Iterable[Look]) -> dict[str, tuple[int, float]]:
    found: dict[str, tuple[int, float]] = {}
    for look in looks:
        for id, (calls, ms) in look.items():
            known = found.get(id, (0, 0.0))
            found[id] = known[0] + calls, known[1] + ms
    return found


def _mean(counted: tuple[int, float]) -> float:
    return counted[1] / counted[0]


def _length(a: StatementsSeen, b: StatementsSeen, often: Sequence[str], whole: Sequence[Look]) -> int:
    """Looks of a block: by the series of the same mix, in which a statement that was not called has its mean."""
    series = [
        [sum(whole[0][id][0] * _mean(look.get(id, side[id])) for id in often) for look in seen.looks]
        for seen, side in ((a, whole[0]), (b, whole[1]))
    ]
    return block_length(series)


def _blocks(looks: Sequence[Look], length: int) -> list[dict[str, tuple[int, float]]]:
    """Whole blocks of so many looks; the rest at the beginning is left out."""
    return [_sum(looks[at : at + length]) for at in range(len(looks) % length, len(looks), length)]


def _means(blocks: Sequence[Sequence[Look]], id: str) -> tuple[list[float], list[float]]:
    one, other = ([_mean(block[id]) for block in side] for side in blocks)
    return one, other


def _same_mix(
    blocks: Sequence[Sequence[Look]], whole: Sequence[Look], fixed: Sequence[str], length: int
) -> Effect | None:
    if not fixed or min(map(len, blocks)) < FEWEST:
        return None
    weights = {id: whole[0][id][0] for id in fixed}

    def mixed(side: Look) -> float:
        return sum(weight * _mean(side[id]) for id, weight in weights.items())

    one, other = ([mixed(block) for block in side] for side in blocks)
    return effect_of_whole((mixed(whole[0]), mixed(whole[1])), one, other, length)


def _covered(seen: StatementsSeen, whole: Look, fixed: Sequence[str]) -> float | None:
    every = seen.all_ms
    return None if not every else min(sum(whole[id][1] for id in fixed) / every, 1.0)
