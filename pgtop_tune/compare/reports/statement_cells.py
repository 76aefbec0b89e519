"""Statements of two sides as cells of a table: time per call, and what lies below the noise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from pgtop_tune.base import units
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.compare import words
from pgtop_tune.compare.statement_rows import ENOUGH_CALLS, SAME_MIX_TITLE, SHOWN, StatementComparison
from pgtop_tune.compare.statistics.effect import Effect, Verdict

_NAME: Final = 60
_TIMES: Final = 9.0
"""As a share: a larger effect is told as so many times."""
HEADING: Final = "statements, largest effect first"
BELOW_NOISE: Final = "below the noise"
OF_SIDES: Final = "on both sides and some in every block or run, weighted by A's calls"
OF_PAIRS: Final = "under A and under B in the first four pairs, weighted by the calls of both"


class StatementCells(Struct, frozen=True):
    """A row as a table has it; what is foreign in it is made harmless."""

    name: str
    a: str
    b: str
    change: str
    interval: str
    verdict: str


def statement_cells(found: StatementComparison) -> Iterator[StatementCells]:
    """The figure over the same mix, then the statements with the largest effect."""
    yield _cells(SAME_MIX_TITLE, (found.a_ms, found.b_ms), found.same_mix, found.verdict)
    for row in found.rows[:SHOWN]:
        yield _cells(one_line(row.text or row.id, _NAME), (row.a_ms, row.b_ms), row.effect, row.verdict)


def _cells(
    name: str, per_call: tuple[float | None, float | None], effect: Effect | None, verdict: str
) -> StatementCells:
    change, interval = _effect(effect)
    said = BELOW_NOISE if verdict == Verdict.UNDECIDED and effect is not None else verdict
    a, b = map(_ms, per_call)
    return StatementCells(name=name, a=a, b=b, change=change, interval=interval, verdict=said)


def statement_notes(found: StatementComparison, rule: str = OF_SIDES) -> Iterator[str]:
    """What the figure over the same mix stands on, and what is not shown.

    Args:
        rule: By which statements are in the mix.
    """
    count = f"{found.fixed} statement" if found.fixed == 1 else f"{found.fixed} statements"
    yield f"same mix: {count} with at least {ENOUGH_CALLS} calls {rule}"
    yield (
        f"they are {_share(found.covered_a)} of the execution time of all statements in A,"
        f" {_share(found.covered_b)} in B"
    )
    if found.same_mix is not None and found.same_mix.smallest_seen is not None:
        yield f"a difference of the same mix of {100 * found.same_mix.smallest_seen:.1f} % was detectable"
    if len(found.rows) > SHOWN:
        yield f"and {len(found.rows) - SHOWN} statements with less effect"


def statement_confidence(found: StatementComparison) -> str:
    """Of the intervals, as the heading of a column."""
    effects = (found.same_mix, *(row.effect for row in found.rows))
    confidence = next((effect.confidence for effect in effects if effect is not None), 0.95)
    return f"{100 * confidence:.0f} % interval"


def _ms(value: float | None) -> str:
    return units.UNKNOWN if value is None else f"{value:.3g}"


def _share(value: float | None) -> str:
    return "an unknown share" if value is None else f"{100 * value:.0f} %"


def _effect(effect: Effect | None) -> tuple[str, str]:
    if effect is None:
        return units.UNKNOWN, units.UNKNOWN
    if effect.relative >= _TIMES:
        change, interval = f"{1.0 + effect.relative:.0f}x", _times
    else:
        change, interval = f"{words.signed(100.0 * effect.relative)} %", _shares
    return change, units.UNKNOWN if effect.low is None or effect.high is None else interval(effect.low, effect.high)


def _shares(low: float, high: float) -> str:
    return f"{words.signed(100.0 * low)} … {words.signed(100.0 * high)} %"


def _times(low: float, high: float) -> str:
    return f"{1.0 + low:.{0 if low >= _TIMES else 1}f} … {1.0 + high:.0f}x"
