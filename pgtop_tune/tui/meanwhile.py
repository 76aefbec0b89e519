"""What draws, imported in small steps by somebody who waits for something else."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final

_STEPS: Final = (
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


def import_until(enough: Callable[[], bool]) -> None:
    """Imports until it is enough. TEXTUAL_FPS and the like must be set before: Textual reads them then."""
    for name in _STEPS:
        if enough():
            return
        import_module(name)
