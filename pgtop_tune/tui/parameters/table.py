"""The list itself: which rows are in view, the cursor, what is staged, a value or a filter being typed. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from pgtop_tune.tui.parameters.row import PanelRow, Staged
from pgtop_tune.tui.widgets.text_field import TextField


class PanelTable:
    """Rows in the order of the catalogue.

    Attributes:
        rows: All of them, also those that the filter hides.
        editing: The value being typed in the selected row.
        filtering: The filter being typed.
    """

    def __init__(self) -> None:
        self.rows: tuple[PanelRow, ...] = ()
        self.editing: TextField | None = None
        self.filtering: TextField | None = None
        self._filter = ""
        self._at = ""

    def load(self, rows: Sequence[PanelRow]) -> None:
        """Takes fresh rows; what is staged stays staged, unless the server has it by now."""
        staged = {row.name: row.staged for row in self.rows if row.staged is not None}
        self.rows = tuple(
            replace(row, staged=row.meaning(staged[row.name])) if row.name in staged else row for row in rows
        )
        if not self._at and self.rows:
            self._at = self.rows[0].name

    @property
    def filter(self) -> str:
        """The filter in force."""
        return self._filter

    @property
    def view(self) -> tuple[PanelRow, ...]:
        """The rows that the filter shows."""
        if not self._filter:
            return self.rows
        return tuple(row for row in self.rows if row.matches(self._filter))

    @property
    def cursor(self) -> int:
        """Place of the selected row in the view; 0 where it is hidden."""
        names = [row.name for row in self.view]
        return names.index(self._at) if self._at in names else 0

    @property
    def selected(self) -> PanelRow | None:
        """The row under the cursor."""
        view = self.view
        return view[self.cursor] if view else None

    @property
    def staged(self) -> tuple[PanelRow, ...]:
        """Every row with a value that waits, also hidden ones."""
        return tuple(row for row in self.rows if row.staged is not None)

    def move(self, by: int) -> None:
        """Moves the cursor, stopping at the ends."""
        view = self.view
        if view:
            self._at = view[min(max(self.cursor + by, 0), len(view) - 1)].name

    def turn_group(self, by: int) -> None:
        """Moves the cursor to the first row of the next or the previous group, round and round."""
        view, here = self.view, self.selected
        if here is None:
            return
        groups = list(dict.fromkeys(row.group for row in view))
        wanted = groups[(groups.index(here.group) + by) % len(groups)]
        self._at = next(row.name for row in view if row.group == wanted)

    def narrow(self, text: str) -> None:
        """Another filter; the cursor stays on its row where that is still in view."""
        self._filter = text.strip()
        here = self.selected
        if here is not None:
            self._at = here.name

    def stage(self, staged: Staged | None) -> None:
        """Puts a value beside the selected row; the value it has already takes it away."""
        row = self.selected
        if row is not None:
            meant = None if staged is None else row.meaning(staged)
            self._replace(row, replace(row, staged=meant))

    def step(self, direction: int) -> None:
        """One step up or down.

        Raises:
            UsageProblem: See `PanelRow.stepped`.
        """
        row = self.selected
        if row is not None:
            self._replace(row, replace(row, staged=row.stepped(direction)))

    def forget(self, names: Sequence[str]) -> None:
        """Takes away what was staged for parameters: it has been applied."""
        self.rows = tuple(replace(row, staged=None) if row.name in names else row for row in self.rows)

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

    def _replace(self, old: PanelRow, new: PanelRow) -> None:
        self.rows = tuple(new if row is old else row for row in self.rows)
