"""The seconds of each step in which a data set was made, as text, JSON or Markdown."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.cli.commands.bench.formats import TableFormat
from pgtop_tune.model.run_result import INIT_FORMAT

_HEAD: Final = "init step, s"
_TOTAL: Final = "total"


class StepsMade(Struct, frozen=True):
    """What came of it.

    Attributes:
        title: What was made, as the head of a column: "scale 5".
        facts: Further keys of the JSON object.
        steps_s: (name, seconds) in the order done.
        notes: What a reader of the figures must know.
    """

    dataset: str
    title: str
    facts: Mapping[str, Any]
    steps_s: tuple[tuple[str, float], ...]
    total_s: float
    notes: tuple[str, ...] = ()


def written(made: StepsMade, format: TableFormat) -> list[str]:
    """Lines for stdout."""
    return _WRITERS[format](made)


def _text(made: StepsMade) -> list[str]:
    rows = [*made.steps_s, (_TOTAL, made.total_s)]
    left = max(len(_HEAD), *(len(name) for name, _ in rows))
    right = max(len(made.title), 8)
    return [
        f"{_HEAD:<{left}}  {made.title:>{right}}",
        *(f"{name:<{left}}  {seconds:>{right}.2f}" for name, seconds in rows),
        *(f"note: {note}" for note in made.notes),
    ]


def _markdown(made: StepsMade) -> list[str]:
    rows = [*made.steps_s, (_TOTAL, made.total_s)]
    return [
        f"| {_HEAD} | {made.title} |",
        "|---|---:|",
        *(f"| {name} | {seconds:.2f} |" for name, seconds in rows),
        *(f"\nNote: {note}." for note in made.notes),
    ]


def _json(made: StepsMade) -> list[str]:
    told = {
        "format": INIT_FORMAT,
        "dataset": made.dataset,
        "title": made.title,
        **made.facts,
        "steps_s": {name: round(seconds, 3) for name, seconds in made.steps_s},
        "total_s": round(made.total_s, 3),
        "notes": list(made.notes),
    }
    return [json.dumps(told, ensure_ascii=False)]


_WRITERS: Final[Mapping[TableFormat, Callable[[StepsMade], list[str]]]] = {
    TableFormat.TEXT: _text,
    TableFormat.MARKDOWN: _markdown,
    TableFormat.JSON: _json,
}
