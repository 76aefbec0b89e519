"""Imports what draws ahead of need, until the server's place is known. Importing this module imports nothing else of
`tui`.

Pages and dialogs are imported at their key: all of them are 4 MB beside the server, the largest is 25 ms, once.
"""

from __future__ import annotations

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


def preload_drawing(enough: Callable[[], bool]) -> None:
    """Imports Textual step by step until it is enough. TEXTUAL_FPS must be set before: Textual reads it then."""
    for name in _DRAWING:
        if enough():
            return
        import_module(name)
