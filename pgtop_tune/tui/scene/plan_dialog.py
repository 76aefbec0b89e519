"""What EXPLAIN says of a session's statement, to read and to copy."""

from __future__ import annotations

from textual import events

from pgtop_tune.model.backend_action import QueryPlan
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.terminal.clipboard import copy
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import Line
from pgtop_tune.tui.widgets.wrapping import hanging, wrapped


class PlanDialog(Dialog[None]):
    """The plan first, then the statement and under which circumstances it was planned.

    Args:
        pid: Whose statement it is.
        plan: What the server wrote.
        glyphs: What it is drawn with.
    """

    CELLS = 140

    def __init__(self, pid: int, plan: QueryPlan, glyphs: Glyphs) -> None:
        super().__init__(f"plan of session {pid}", glyphs, keys="y copy  Esc back")
        self._plan = plan

    def content(self, cells: int) -> list[Line]:
        """The plan's lines, wrapped where they must be."""
        plan = self._plan
        lines = [line for said in plan.lines for line in hanging(said, cells)]
        where = f"Planned by role {plan.user} in database {plan.database}, not executed; its functions"
        where += " marked IMMUTABLE or STABLE may have run during planning."
        where += f" Settings and search_path are those of a new session of {plan.user}, not of the session itself"
        where += (
            "." if plan.user == plan.session_role else f", which is one of {plan.session_role or 'a dropped role'}."
        )
        if plan.generic:
            where += " Generic: the plan for any values of the placeholders."
        return [*lines, (), *wrapped(where, cells, "dim"), (), *wrapped(plan.statement, cells, "dim")]

    def on_key(self, event: events.Key) -> None:
        """Scrolling, copying."""
        if event.key == "y":
            event.stop()
            said = copy(self.app, "\n".join(self._plan.lines), "the plan is in your terminal's clipboard")
            self.app.notify(said, markup=False)
        elif event.key in ("enter", "e"):
            event.stop()
            self.dismiss(None)
        elif self.scroll_key(event.key):
            event.stop()
