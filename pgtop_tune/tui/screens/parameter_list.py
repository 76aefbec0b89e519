"""The list of parameters: values, what is staged, and how it is drawn. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pgtop_tune.errors import UsageProblem
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.tui.glyphs import Glyphs
from pgtop_tune.tui.lines import PLAIN, Line, clip
from pgtop_tune.tui.text_field import TextField
from pgtop_tune.tui.wrapping import labelled
from pgtop_tune.tuning.knobs.knob import Knob
from pgtop_tune.tuning.stepping import next_value, show

_NAME_CELLS: Final = 31
_VALUE_CELLS: Final = 10
_NEW_CELLS: Final = 16
_WHEN_CELLS: Final = 13
_COLUMNS: Final = (
    ("", 2), ("name", _NAME_CELLS), ("value", _VALUE_CELLS), ("new", _NEW_CELLS), ("takes effect", _WHEN_CELLS),
)  # fmt: skip
_LEAST_RANGE_CELLS: Final = 14
_UNBOUNDED: Final = ("2147483647", "1.79769e+308")
"""pg_settings.max_val of parameters that are bounded by their type alone."""
_WHEN: Final = {
    "internal": "fixed", "postmaster": "restart", "backend": "new sessions", "superuser-backend": "new sessions",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Staged:
    """A value that waits to be applied; None as the value resets the parameter."""

    value: str | None

    def __str__(self) -> str:
        return "reset" if self.value is None else self.value


@dataclass(frozen=True, slots=True)
class ParameterRow:
    """A parameter of the server beside its knob."""

    parameter: Parameter
    knob: Knob
    staged: Staged | None = None


class ParameterTable:
    """Rows, a cursor, and a value being typed.

    Args:
        knobs: What is offered, in this order.
    """

    def __init__(self, knobs: Sequence[Knob]) -> None:
        self._knobs = {knob.name: knob for knob in knobs}
        self.rows: list[ParameterRow] = []
        self.cursor = 0
        self.editing: TextField | None = None

    def load(self, parameters: Sequence[Parameter]) -> None:
        """Takes fresh values; what is staged stays staged."""
        staged = {row.knob.name: row.staged for row in self.rows}
        self.rows = [
            ParameterRow(parameter, self._knobs[parameter.name], staged.get(parameter.name))
            for parameter in parameters
            if parameter.name in self._knobs
        ]
        self.cursor = min(self.cursor, max(len(self.rows) - 1, 0))

    @property
    def selected(self) -> ParameterRow | None:
        """The row under the cursor."""
        return self.rows[self.cursor] if self.rows else None

    def move(self, by: int) -> None:
        """Moves the cursor, stopping at the ends."""
        self.cursor = min(max(self.cursor + by, 0), max(len(self.rows) - 1, 0))

    def stage(self, staged: Staged | None) -> None:
        """Puts a value beside the selected row; the value it has already takes it away."""
        row = self.selected
        if row is not None:
            same = staged is not None and staged.value == row.parameter.shown
            self.rows[self.cursor] = replace(row, staged=None if same else staged)

    def forget(self, name: str) -> None:
        """Takes away what was staged for a parameter: it has been applied."""
        self.rows = [replace(row, staged=None) if row.parameter.name == name else row for row in self.rows]

    def step(self, direction: int) -> None:
        """One step up or down from the staged value, or from the present one.

        Raises:
            UsageProblem: The staged text is not a value steps can start from.
        """
        row = self.selected
        if row is None:
            return
        parameter = row.parameter
        if row.staged is not None and row.staged.value is not None:
            parameter = replace(parameter, setting=row.staged.value)
        self.stage(Staged(next_value(parameter, row.knob, direction)))

    def edit(self) -> None:
        """Begins typing, from the staged value or the present one."""
        row = self.selected
        if row is not None:
            staged = row.staged.value if row.staged is not None else None
            self.editing = TextField(row.parameter.shown if staged is None else staged)

    def end_edit(self, *, keep: bool) -> None:
        """Ends typing; what was typed is staged when it is kept."""
        field, self.editing = self.editing, None
        if keep and field is not None:
            typed = field.text.strip()
            self.stage(Staged(typed) if typed else None)

    def list_lines(self, cells: int, rows: int, glyphs: Glyphs) -> list[Line]:
        """A heading and as many rows as there is room for, around the cursor."""
        heading = "".join(title.ljust(room) for title, room in _COLUMNS) + ("range" if _range_cells(cells) else "")
        shown = max(rows - 1, 1)
        top = min(max(self.cursor - shown // 2, 0), max(len(self.rows) - shown, 0))
        lines: list[Line] = [((clip(heading, cells), "title"),)]
        for index in range(top, min(top + shown, len(self.rows))):
            lines.append(self._row_line(index, cells, glyphs))
        return lines

    def _row_line(self, index: int, cells: int, glyphs: Glyphs) -> Line:
        row, at_cursor = self.rows[index], index == self.cursor
        parameter = row.parameter
        warned = f" {glyphs.warning}" if row.knob.warning else ""
        new: Line = ((_column(f"{glyphs.arrow} {row.staged}" if row.staged else "", _NEW_CELLS), "event-parameter"),)
        if at_cursor and self.editing is not None:
            typed = self.editing.line(_NEW_CELLS - 1)
            new = (*typed, (" " * (_NEW_CELLS - sum(len(text) for text, _ in typed)), PLAIN))
        when = _WHEN.get(parameter.context, "live") + (" (waits)" if parameter.pending_restart else "")
        return (
            (f"{glyphs.pointer} " if at_cursor else "  ", "key"),
            (clip(parameter.name + warned, _NAME_CELLS), "cursor" if at_cursor else PLAIN),
            (_column(parameter.shown, _VALUE_CELLS), "strong"),
            *new,
            (clip(when, _WHEN_CELLS), PLAIN if when == "live" else "warning"),
            (clip(range_of(parameter), _range_cells(cells)), "dim"),
        )

    def word_lines(self, cells: int) -> list[Line]:
        """What the selected parameter is, why one turns it, what it costs."""
        row = self.selected
        if row is None:
            return []
        said = [
            ("why", row.knob.why, PLAIN),
            ("costs", row.knob.trades, PLAIN),
            ("beware", row.knob.warning, "warning"),
            ("range", f"{range_of(row.parameter)}   set by {source_of(row.parameter)}", PLAIN),
        ]
        return [line for label, text, style in said if text for line in labelled(label, text, cells, style, 8)]


def _column(text: str, cells: int) -> str:
    """Cut so that it does not touch the next column."""
    return f"{clip(text, cells - 1)} "


def _range_cells(cells: int) -> int:
    """Room for the column of ranges; 0 where it would be a stump (the selected row's range stands below)."""
    room = cells - sum(taken for _, taken in _COLUMNS)
    return room if room >= _LEAST_RANGE_CELLS else 0


def range_of(parameter: Parameter) -> str:
    """What the server takes: "30s .. 1d", "64kB or more", "off on local …"."""
    if parameter.enumvals:
        return " ".join(parameter.enumvals)
    if parameter.vartype == "bool":
        return "off on"
    if not parameter.min_val or not parameter.max_val:
        return ""
    integer, ends = parameter.vartype == "integer", (parameter.min_val, parameter.max_val)
    try:
        least, most = (show(float(end), parameter.unit, integer=integer) for end in ends)
    except (ValueError, UsageProblem):
        return f"{parameter.min_val} .. {parameter.max_val} {parameter.unit}".rstrip()
    return f"{least} or more" if parameter.max_val in _UNBOUNDED else f"{least} .. {most}"


def source_of(parameter: Parameter) -> str:
    """Where the value comes from, as pg_settings says it."""
    where = parameter.sourcefile or parameter.source
    return f"{where}; waits for a restart" if parameter.pending_restart else where
