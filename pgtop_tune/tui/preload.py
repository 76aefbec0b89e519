"""Imports what draws ahead of need, until the server's place is known. Importing this module imports nothing else of
`tui`.

Pages and dialogs are imported at their key: all of them are 4 MB beside the server, the largest is 25 ms, once. Their
files are read ahead, into memory that the kernel takes back when it needs it: no key waits for a disk that is busy.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
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
_OF_KEYS: Final = ("pgtop_tune", "psycopg", "psycopg_binary")
_BUNDLED: Final = "psycopg_binary.libs"
"""Where wheels of psycopg have libpq and what it needs, beside the package."""
_COMPILED: Final = frozenset({".pyc", ".so"})


def preload_drawing(enough: Callable[[], bool]) -> None:
    """Import Textual step by step until it is enough. TEXTUAL_FPS must be set before: Textual reads it then."""
    for name in _DRAWING:
        if enough():
            return
        import_module(name)


def read_ahead_for_keys() -> None:
    """Have the kernel begin to read what a key may import. Returns at once, and nobody waits for the end."""
    threading.Thread(target=lambda: read_ahead(_directories()), name="read-ahead", daemon=True).start()


def read_ahead(directories: Iterable[Path]) -> None:
    """Have the kernel begin to read the compiled files in these directories; what cannot be read is left out."""
    for directory in directories:
        for path in directory.rglob("*"):
            if not _COMPILED.isdisjoint(path.suffixes):
                with suppress(OSError):
                    _advise(path)


def _directories() -> tuple[Path, ...]:
    specs = (find_spec(name) for name in _OF_KEYS)
    places = [
        Path(directory) for spec in specs if spec is not None for directory in spec.submodule_search_locations or ()
    ]
    return (
        *places,
        *(directory.with_name(_BUNDLED) for directory in places if directory.name == _BUNDLED.partition(".")[0]),
    )


def _advise(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
    finally:
        os.close(descriptor)
