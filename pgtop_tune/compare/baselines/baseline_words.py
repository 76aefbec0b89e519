"""Baselines as a table and as JSON, and changes of level in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pgtop_tune.compare import words
from pgtop_tune.compare.baselines.baselines import Kept
from pgtop_tune.compare.baselines.trend import LevelChange
from pgtop_tune.compare.reports.tables import Table, as_text
from pgtop_tune.compare.sides.figures import BY_ID
from pgtop_tune.safe_text import one_line

_SHOWN = ("tps", "p50", "p99", "latency")


def table(rows: Sequence[tuple[str, Kept]]) -> str:
    """A line for each load of each run."""
    heads = ("baseline", "measured", "load", *(words.title(BY_ID[name]) for name in _SHOWN), "note")
    cells = tuple(
        (
            name,
            words.moment(run.began_ms),
            one_line(load, 40),
            *(words.value(BY_ID[figure], figures.get(figure)) for figure in _SHOWN),
            one_line(run.note, 60),
        )
        for name, run in rows
        for load, figures in run.loads.items()
    )
    return as_text(Table(heads, cells, frozenset(range(3, 3 + len(_SHOWN)))))


def as_json(rows: Sequence[tuple[str, Kept]]) -> list[dict[str, Any]]:
    """An object for each run."""
    return [
        {
            "baseline": name,
            "file": str(run.path),
            "began_ms": run.began_ms,
            "note": run.note,
            "loads": {load: dict(figures) for load, figures in run.loads.items()},
        }
        for name, run in rows
    ]


def change_words(change: LevelChange) -> str:
    """One line: since when, what, how much."""
    figure, point = change.figure, change.point
    return one_line(
        f"since {words.moment(change.since.began_ms)}: {words.title(figure)} of {change.load}"
        f" {words.value(figure, point.before)} -> {words.value(figure, point.after)}"
        f" ({words.signed(100 * point.relative)} %), {change.verdict}",
        300,
    )
