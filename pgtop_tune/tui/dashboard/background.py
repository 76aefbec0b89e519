"""Background processes of the server as one line under the sessions: how many, and those that do something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import percent
from pgtop_tune.metrics.active_sessions import CLIENT_BACKEND
from pgtop_tune.model.postgres import HIDDEN_QUERY
from pgtop_tune.tui.dashboard.session_rows import AUXILIARY, SessionRow, SessionsView
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line
from pgtop_tune.tui.widgets.phrase import Phrase, dot, fitting, padded

_BUSY_PERCENT: Final = 0.5
"""CPU of a process that is named."""
_NAMED: Final = 4


def folded(rows: Sequence[SessionRow], view: SessionsView) -> tuple[list[SessionRow], list[SessionRow]]:
    """The rows that are listed, and those that share the line of background processes.

    All are listed while the operator has opened that line or filters. A process that waits for a session is listed,
    and the selected one.
    """
    if view.background or view.filter:
        return list(rows), []
    listed: list[SessionRow] = []
    background: list[SessionRow] = []
    for row in rows:
        backend = row.backend
        hidden = backend.query == HIDDEN_QUERY or backend.backend_type in ("", CLIENT_BACKEND)
        folds = row.rank == AUXILIARY and not hidden and not backend.blocked_by and row.key != view.selected
        (background if folds else listed).append(row)
    return listed, background


def background_line(rows: Sequence[SessionRow], width: int, glyphs: Glyphs, key: str = "") -> Line:
    """ "8 background processes: checkpointer 1.2 % CPU · a lists them".

    Args:
        rows: The processes.
        width: Cells.
        glyphs: Characters.
        key: Lists them; "" is not said.
    """
    busy = sorted(
        (row for row in rows if (row.cpu_percent or 0.0) >= _BUSY_PERCENT), key=lambda row: -(row.cpu_percent or 0.0)
    )
    phrases = [Phrase(((f"{len(rows)} background process{'' if len(rows) == 1 else 'es'}", "dim"),))]
    phrases += [
        Phrase(((f"{one_line(row.backend.backend_type, 30)} {percent(row.cpu_percent)} % CPU", "label"),), rank)
        for rank, row in enumerate(busy[:_NAMED], 2)
    ]
    if key:
        phrases.append(Phrase(((key, "key"), (" lists them", "dim")), 1))
    return padded(((" ", PLAIN), *fitting(phrases, width - 2, dot(glyphs))), width)
