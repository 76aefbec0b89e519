"""Screens as plain text, and pictures kept in files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.screen import DashboardState, dashboard_layout, dashboard_lines
from pgtop_tune.tui.widgets.lines import UNICODE, Glyphs, plain_text

REGENERATE: Final = "PGTOP_TUNE_REGENERATE_GOLDENS"
"""Set to 1, the pictures are written anew instead of compared; look at the difference before you commit it."""
_ANEW: Final = os.environ.get(REGENERATE) == "1"
"""Read on import: while tests run no variable of whoever runs them is there."""


def dashboard_rows(
    session: Session, width: int, height: int, glyphs: Glyphs = UNICODE, look: DashboardState | None = None
) -> list[str]:
    """The dashboard from top to bottom, one text per row of the screen."""
    panes = dashboard_lines(session, dashboard_layout(width, height), width, glyphs, look or DashboardState())
    return [plain_text(line) for lines in panes.values() for line in lines]


def pane_text(session: Session, pane: str, width: int, height: int, look: DashboardState | None = None) -> str:
    """One pane of a dashboard of that size."""
    panes = dashboard_lines(session, dashboard_layout(width, height), width, UNICODE, look or DashboardState())
    return "\n".join(plain_text(line) for line in panes[pane])


def assert_picture(golden: Path, rows: list[str]) -> None:
    """Compares with the picture in the file; trailing blanks do not count."""
    picture = "".join(f"{row.rstrip()}\n" for row in rows)
    if _ANEW:
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(picture, encoding="utf-8")
    assert picture == golden.read_text(encoding="utf-8"), f"differs from {golden.name}; {REGENERATE}=1 writes it anew"
