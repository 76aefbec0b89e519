"""What the first data on the screen must not wait for: pages, dialogs and help, made ready once it is there.

A key that comes earlier imports what it needs itself.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from importlib import import_module
from typing import Final

from pgtop_tune.tui.pages.registry import PAGES
from pgtop_tune.tui.scene.explain import PANE_METRICS, explain_lines

_DIALOGS: Final = (
    "dialogs.help",
    "compare.windows_dialog",
    "compare.overlay_dialog",
    "load.dialog",
    "load.results_dialog",
    "parameters.dialog",
    "dialogs.password",
    "dialogs.prompt",
    "dialogs.leave",
    "parameters.undo_dialog",
    "pages.screen",
    "scene.session_actions",
)
"""Modules of `tui` that a key asks for."""
LATER: Final = tuple(f"pgtop_tune.tui.{name}" for name in (*_DIALOGS, *(f"pages.{row.module}" for row in PAGES)))
_PAUSE_S: Final = 0.05
"""Between two imports: each holds everything else up."""


def import_the_rest() -> None:
    """Begins to import every page and dialog and to wrap the help. Returns at once, and nobody waits for the end."""
    if missing := [name for name in LATER if name not in sys.modules]:
        threading.Thread(target=_import, args=(missing,), name="later", daemon=True).start()


def _import(names: list[str]) -> None:
    for name in names:
        import_module(name)
        time.sleep(_PAUSE_S)
    from pgtop_tune.tui.dialogs.help import HelpDialog

    for pane in PANE_METRICS:
        explain_lines(pane, HelpDialog.CELLS)
    # What was imported stays: nobody has to look through it for garbage again.
    gc.freeze()
