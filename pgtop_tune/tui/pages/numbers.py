"""Columns of numbers, one line each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pgtop_tune.tui.pages.page import PageColumn
from pgtop_tune.tui.widgets.lines import PLAIN
from pgtop_tune.units import UNKNOWN

Value = Callable[[Any], float | None]


def number(
    id: str,
    title: str,
    width: int,
    value: Value,
    unit: Callable[[float | None], str],
    definition: str,
    source: str,
    *,
    shown: bool = True,
    critical: float | None = None,
) -> PageColumn:
    """A column that stands right and sorts largest first; nothing and unknown are dim.

    Args:
        id, title, width, definition, source, shown: As of `PageColumn`.
        value: The number of a row.
        unit: How it is written, from `units`.
        critical: Red from there on.
    """
    return PageColumn(
        id=id,
        title=title,
        width=width,
        text=partial(_text, value, unit),
        definition=definition,
        source=source,
        value=value,
        style=partial(_style, value, critical),
        align="right",
        shown=shown,
    )


def _text(value: Value, unit: Callable[[float | None], str], row: Any) -> str:
    found = value(row)
    return "0" if found == 0 else unit(found)


def _style(value: Value, critical: float | None, row: Any) -> str:
    found = value(row)
    if not found:
        return "dim"
    return "critical" if critical is not None and found >= critical else PLAIN


def word(
    id: str,
    title: str,
    width: int,
    text: Callable[[Any], str],
    definition: str,
    source: str,
    *,
    shown: bool = True,
    elastic: bool = False,
    most: int = 0,
) -> PageColumn:
    """A column of words that sorts from a to z; an empty one is drawn as unknown."""
    return PageColumn(
        id=id,
        title=title,
        width=width,
        text=partial(_word, text),
        definition=definition,
        source=source,
        value=text,
        largest_first=False,
        elastic=elastic,
        most=most,
        shown=shown,
    )


def _word(text: Callable[[Any], str], row: Any) -> str:
    return text(row) or UNKNOWN
