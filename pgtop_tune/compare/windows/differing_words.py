"""Two windows as headings and tables, and as one JSON object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pgtop_tune.base import units
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.compare import words
from pgtop_tune.compare.reports.sheets import (
    Sheet,
    event_sheet,
    figure_sheet,
    fingerprint_sheet,
    settling_sheet,
    statement_sheet,
    wait_sheet,
)
from pgtop_tune.compare.reports.tables import Table
from pgtop_tune.compare.windows.differing import Differing, ToldChange, WindowComparison

_HEADS: Final = ("A", "B", "effect", "95 % interval", "size", "verdict")
_NAME: Final = 60
_HUGE: Final = 99.95
"""Standard deviations that are told as more than a number says."""

_IN_UNITS: Final[Mapping[str, Callable[[float], str]]] = {
    "%": lambda value: f"{value:.1f}",
    "ms": units.ms,
    "bytes": units.size,
    "bytes/s": units.size,
}
_SUFFIXES: Final[Mapping[str, str]] = {"": "", "bytes": "B", "bytes/s": "B/s"}


def titled(row: Differing) -> str:
    """The name with its unit; what is foreign in it is made harmless."""
    unit = _SUFFIXES.get(row.unit, row.unit)
    return one_line(row.name, _NAME) + (f", {unit}" if unit else "")


def amount(row: Differing, value: float) -> str:
    """A figure in the row's unit."""
    negative = value < 0
    text = _IN_UNITS.get(row.unit, units.count)(abs(value))
    return f"-{text}" if negative else text


def changed(row: Differing) -> str:
    """The change: "+3.9 %", "-12.0 pt", "+4.5M"."""
    return units.UNKNOWN if row.change is None else f"{_told(row, row.change[0])}{_sign(row)}"


def between(row: Differing) -> str:
    """Its 95 % interval."""
    if row.change is None or row.change[1] is None or row.change[2] is None:
        return units.UNKNOWN
    return f"{_told(row, row.change[1])} … {_told(row, row.change[2])}{_sign(row)}"


def sized(row: Differing) -> str:
    """The effect in standard deviations of blocks."""
    if row.size is None:
        return units.UNKNOWN
    if abs(row.size) > _HUGE:
        return ">99" if row.size > 0 else "<-99"
    return f"{row.size:+.1f}"


def _told(row: Differing, value: float) -> str:
    if row.told is ToldChange.AMOUNT:
        return ("-" if value < 0 else "+") + amount(row, abs(value))
    return words.signed(100.0 * value)


def _sign(row: Differing) -> str:
    return {ToldChange.SHARE: " %", ToldChange.POINTS: " pt", ToldChange.AMOUNT: ""}[row.told]


def window_sheets(found: WindowComparison) -> tuple[Sheet, ...]:
    """All of it, in the order in which it is read."""
    comparison = found.comparison
    sheets = [fingerprint_sheet(comparison)]
    if found.outcomes:
        sheets.append(Sheet("outcome", (), _table("", found.outcomes)))
    if found.statements is not None:
        sheets.append(statement_sheet(found.statements))
    sheets.append(differing_sheet(found))
    sheets += [wait_sheet(phase) for phase in comparison.phases if phase.waits]
    sheets += [settling_sheet(phase) for phase in comparison.phases if phase.to_settle]
    for name, side in (("A", comparison.a), ("B", comparison.b)):
        events = event_sheet(f"events in {name}", side)
        if events is not None:
            sheets.append(events)
    return tuple(sheets)


def differing_sheet(found: WindowComparison) -> Sheet:
    """Every other number that can be told of both windows."""
    notes = [*found.notes]
    if found.alike:
        notes.append(f"{found.alike} numbers are constant and equal in both")
    for phase in found.comparison.phases:
        notes += figure_sheet(phase).notes
    return Sheet(
        heading="what differs",
        lines=("certain differences by size in standard deviations of blocks, then the largest uncertain ones",),
        table=_table("largest effect first", found.others) if found.others else None,
        notes=tuple(one_line(note, 300) for note in notes),
    )


def _table(head: str, told: Sequence[Differing]) -> Table:
    rows = tuple(
        (titled(row), amount(row, row.a), amount(row, row.b), changed(row), between(row), sized(row), row.verdict)
        for row in told
    )
    return Table((head, *_HEADS), rows, frozenset({1, 2, 3, 4, 5}))


def differences_json(found: WindowComparison) -> dict[str, Any]:
    """What a comparison of windows has beyond one of whole recordings."""
    return {
        "differences": [_row(row) for row in found.rows],
        "alike": found.alike,
        "notes": list(found.notes),
    }


def _row(row: Differing) -> dict[str, Any]:
    change = row.change or (None, None, None)
    return {
        "name": row.name,
        "unit": row.unit,
        "a": row.a,
        "b": row.b,
        "told_as": str(row.told),
        "change": change[0],
        "low": change[1],
        "high": change[2],
        "size": row.size,
        "verdict": row.verdict,
        "blocks_a": 0 if row.effect is None else row.effect.blocks_a,
        "blocks_b": 0 if row.effect is None else row.effect.blocks_b,
        "block_s": None if row.effect is None else row.effect.block_s,
    }
