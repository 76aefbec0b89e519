"""Imports ahead of need: what draws, until the server's place is known; what keys ask for, once there is a picture.

A key that comes earlier imports what it needs itself. Importing this module imports nothing else of `tui`.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Final

_DRAWING: Final = (
    "rich.console",
    "textual.geometry",
    "textual.color",
    "textual.css.styles",
    "textual.css.model",
    "textual.widget",
    "textual.containers",
    "textual.screen",
    "textual.command",
    "textual.app",
)
"""Each takes a few milliseconds beyond the one before."""
_DIALOGS: Final = (
    "dialogs.help",
    "compare.overlay_dialog",
    "load.dialog",
    "load.results_dialog",
    "parameters.dialog",
    "dialogs.prompt",
    "dialogs.confirm",
    "parameters.undo_dialog",
    "experiment.start_dialog",
    "experiment.progress_dialog",
    "pages.screen",
    "scene.session_actions",
)
"""Modules of `tui` that a key asks for; not the comparison of windows, which takes as much memory as all of them."""
_PAUSE_S: Final = 0.05
"""Between two imports: each holds everything else up."""


def preload_drawing(enough: Callable[[], bool]) -> None:
    """Imports Textual step by step until it is enough. TEXTUAL_FPS must be set before: Textual reads it then."""
    for name in _DRAWING:
        if enough():
            return
        import_module(name)


def modules_of_keys() -> tuple[str, ...]:
    """Every page and dialog: nothing of it is imported before the first picture."""
    from pgtop_tune.tui.pages.registry import PAGES

    return tuple(f"pgtop_tune.tui.{name}" for name in (*_DIALOGS, *(f"pages.{row.module}" for row in PAGES)))


def preload_keys() -> None:
    """Begins to import every page and dialog and to wrap the help. Returns at once, and nobody waits for the end."""
    if missing := [name for name in modules_of_keys() if name not in sys.modules]:
        threading.Thread(target=_import, args=(missing,), name="preload", daemon=True).start()


def _import(names: list[str]) -> None:
    for name in names:
        import_module(name)
        time.sleep(_PAUSE_S)
    from pgtop_tune.tui.dialogs.help import HelpDialog
    from pgtop_tune.tui.scene.explain import PANE_METRICS, explain_lines

    for pane in PANE_METRICS:
        explain_lines(pane, HelpDialog.CELLS)
    # What was imported stays: nobody has to look through it for garbage again.
    gc.freeze()
