"""Cells that were run several times as a table: runs, mean, how they differ, the interval of the mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.compare.noise.cells import CellOfRuns
from pgtop_tune.compare.reports.tables import MISSING, Table

_TITLE = 60
_NOTE = 300


def cell_table(cells: Sequence[CellOfRuns], names: Sequence[str] = ()) -> Table:
    """A row for each cell.

    Args:
        names: In place of the cells' own titles.
    """
    heads = ("cell", "runs", "mean tps", "sd between runs", "98 % interval of the mean", "")
    rows = tuple(
        (one_line(name, _TITLE), *_figures(cell))
        for name, cell in zip(names or [cell.title for cell in cells], cells, strict=True)
    )
    return Table(heads, rows, frozenset({1, 2, 3, 4}))


def _figures(cell: CellOfRuns) -> tuple[str, ...]:
    runs = str(cell.runs) if cell.runs == cell.made else f"{cell.runs} of {cell.made}"
    tps = MISSING if cell.tps is None else f"{cell.tps:.1f}"
    sd = MISSING if cell.sd is None else f"{100 * cell.sd:.1f} %"
    if cell.interval is None or cell.half is None:
        return runs, tps, sd, MISSING, ""
    low, high = cell.interval
    return runs, tps, sd, f"{low:.1f} … {high:.1f}", f"±{100 * cell.half:.1f} %"


def configuration_table(loads: Mapping[str, Mapping[str, CellOfRuns]]) -> Table:
    """Loads down and configurations across: the mean of each, with half of its interval.

    Args:
        loads: By title; their cells by name of the configuration.
    """
    names = list(dict.fromkeys(name for cells in loads.values() for name in cells))
    rows = tuple(
        (one_line(load, _TITLE), *(_mean(cells[name]) if name in cells else MISSING for name in names))
        for load, cells in loads.items()
    )
    return Table(("tps", *names), rows, frozenset(range(1, len(names) + 1)))


def _mean(cell: CellOfRuns) -> str:
    if cell.tps is None:
        return MISSING
    return f"{cell.tps:.1f}" if cell.half is None else f"{cell.tps:.1f} ±{100 * cell.half:.1f} %"


def cell_notes(cells: Sequence[CellOfRuns]) -> tuple[str, ...]:
    """What a reader of the table must know, each line with its cell unless it is true of all."""
    found: dict[str, list[str]] = {}
    for cell in cells:
        for note in (*cell.notes, *_behind(cell)):
            found.setdefault(note, []).append(cell.title)
    return tuple(
        one_line(note if len(titles) == len(cells) else f"{', '.join(dict.fromkeys(titles))}: {note}", _NOTE)
        for note, titles in found.items()
    )


def _behind(cell: CellOfRuns) -> list[str]:
    """What the interval rests on, besides the runs of the table."""
    if cell.half is None:
        return []
    if cell.assumed:
        return ["one run says nothing of the next: that runs differ by 2 % is assumed"]
    if cell.from_history:
        return [f"the interval also rests on earlier runs here ({cell.from_history} degrees of freedom)"]
    return []
