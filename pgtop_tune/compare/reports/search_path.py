"""A search for better values as a table: each step against the previous best it, kept or gone back from."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from pgtop_tune.compare import words
from pgtop_tune.compare.comparison import Comparison, FigureRow, compare
from pgtop_tune.compare.reports.sheets import Sheet
from pgtop_tune.compare.reports.tables import Table
from pgtop_tune.compare.sides.material import FactKind, Material
from pgtop_tune.compare.statistics.effect import Verdict
from pgtop_tune.safe_text import one_line

_FEWEST: Final = 3
_MOST_CHANGED: Final = 2
"""Settings that a step of a search changes; sides that differ in more are configurations."""
_AIMS: Final = ("tps", "server_tps")


def search_sheet(sides: Sequence[Material], under_test: Collection[str] = ()) -> Sheet | None:
    """One row for each side, in the order given; None where sides are no steps of a search.

    Args:
        under_test: As for `compare`.
    """
    if len(sides) < _FEWEST:
        return None
    best = sides[0]
    rows: list[tuple[str, ...]] = []
    for side in sides[1:]:
        found = compare(best, side, under_test)
        changed = [each for each in found.fingerprints.under_test if each.kind is FactKind.SETTING]
        row = _aim(found)
        if row is None or not 1 <= len(changed) <= _MOST_CHANGED:
            return None
        if not rows:
            rows.append((one_line(best.name, 40), "start", words.value(row.figure, row.a), "", "", "", ""))
        ahead = row.verdict == Verdict.DIFFER and row.effect is not None and row.effect.relative > 0
        kept = row.verdict == Verdict.BETTER or ahead
        rows.append(
            (
                one_line(side.name, 40),
                one_line("; ".join(f"{each.name} {each.a} -> {each.b}" for each in changed), 100),
                words.value(row.figure, row.b),
                words.effect(row),
                words.interval(row),
                row.verdict,
                "keep for now: no verdict" if ahead else "keep" if kept else one_line(f"back to {best.name}", 50),
            )
        )
        best = side if kept else best
    heads = ("step", "changed", "tps", "against the previous best", "95 % interval", "verdict", "")
    return Sheet(
        heading="search path",
        lines=(),
        table=Table(heads, tuple(rows), frozenset({2, 3, 4})),
        notes=_outcome(sides[0], best, under_test),
    )


def _aim(found: Comparison) -> FigureRow | None:
    """Throughput of the first load that both ran."""
    phase = next(iter(found.phases), None)
    return None if phase is None else next((row for name in _AIMS if (row := phase.row(name)) is not None), None)


def _outcome(first: Material, best: Material, under_test: Collection[str]) -> tuple[str, ...]:
    if best is first:
        return (one_line(f"no step is proven better than {first.name}", 200),)
    row = _aim(compare(first, best, under_test))
    assert row is not None
    said = f"best: {best.name}; against {first.name} tps {words.effect(row)} ({words.interval(row)}), {row.verdict}"
    chosen = "the highest figure may be due to chance: measure both once more"
    return one_line(said, 300), chosen
