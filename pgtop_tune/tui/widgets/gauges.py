"""Shares drawn in one line: a bar, a strip with one cell per core, and more values than cells."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import Line

# More values than cells: neighbours share a cell.


def fold_to_largest(values: Sequence[float | None], cells: int) -> list[float | None]:
    """At most so many values: each the largest of a group of neighbours, None when all of a group are None."""
    count = len(values)
    if count <= cells:
        return list(values)
    groups = (values[count * cell // cells : count * (cell + 1) // cells] for cell in range(cells))
    return [max((value for value in group if value is not None), default=None) for group in groups]


_HEAT: Final = ("heat-0", "heat-1", "heat-2", "heat-3", "heat-4")


def bar(share: float | None, cells: int, glyphs: Glyphs) -> str:
    """A bar that fills its share of the cells; exactly `cells` wide, blank when unknown.

    Args:
        share: 0 to 1; what lies outside is drawn as 0 or 1. A share above 0 always shows.
        cells: Width of the full bar.
        glyphs: Its last cell is drawn in as many steps as `glyphs.growing` has.
    """
    if share is None or share <= 0:
        return " " * cells
    steps = len(glyphs.growing) - 1
    filled = max(1, round(min(share, 1.0) * cells * steps))
    whole, rest = divmod(filled, steps)
    drawn = glyphs.full * whole + (glyphs.growing[rest] if rest else "")
    return drawn.ljust(cells)[:cells]


def heat_strip(shares: Sequence[float | None], cells: int, glyphs: Glyphs) -> Line:
    """How busy each core is: one cell per core, or per group of neighbours when there are more cores than cells.

    Args:
        shares: 0 to 1 per core; None is drawn as a dim dot. A group shows the busiest of its cores, so that one
            saturated core is never averaged away.
        cells: At most so many cells are used.
        glyphs: Drawn with `glyphs.rising`.
    """
    drawn = (_heat(share, glyphs) for share in fold_to_largest(shares, cells))
    return tuple(("".join(text for text, _ in run), style) for style, run in groupby(drawn, key=lambda cell: cell[1]))


def _heat(share: float | None, glyphs: Glyphs) -> tuple[str, str]:
    if share is None:
        return glyphs.separator, "dim"
    share = min(max(share, 0.0), 1.0)
    highest = len(glyphs.rising) - 1
    return glyphs.rising[max(1, round(share * highest))], heat_style(share)


def heat_style(share: float | None) -> str:
    """The style of a share from 0 to 1."""
    return "dim" if share is None else _HEAT[min(max(int(share * 5), 0), 4)]
