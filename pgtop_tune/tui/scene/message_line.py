"""The newest message to the operator: its lines above the footer, or on the lower edge of a dialog. Pure."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line, wrap

_MOST_LINES: Final = 3
_STYLES: Final = {"information": "strong", "warning": "warning", "error": "critical"}
_LONGEST: Final = 2_000


class ShownMessage(Struct, frozen=True):
    """A message as it is shown.

    Attributes:
        text: One or two sentences; may be foreign.
        severity: information, warning or error.
    """

    text: str
    severity: str

    @property
    def style(self) -> str:
        """Of its words."""
        return _STYLES[self.severity]

    @property
    def line(self) -> str:
        """On one line: a problem's hint, which has a line of its own in a terminal, follows a semicolon."""
        return one_line("; ".join(self.text.splitlines()), _LONGEST)


def message_lines(message: ShownMessage, width: int, glyphs: Glyphs) -> list[Line]:
    """One line; up to three where its words need them."""
    sign = glyphs.bullet if message.severity == "information" else glyphs.warning
    room = max(width - 4, 8)
    rows = wrap(message.line, room)
    if len(rows) > _MOST_LINES:
        rows = [*rows[: _MOST_LINES - 1], rows[_MOST_LINES - 1][: room - 1] + glyphs.ellipsis]
    return [
        ((f" {' ' if number else sign} ", message.style), (row, message.style), (" ", PLAIN))
        for number, row in enumerate(rows)
    ]
