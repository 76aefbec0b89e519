"""A directory of a test that other accounts may enter, however deep pytest has put it."""

from __future__ import annotations

from pathlib import Path


def open_to_all(directory: Path) -> None:
    """The directory and those that pytest made above it."""
    for each in (directory, *directory.parents):
        if each == directory or each.name.startswith(("pytest-", "popen-")):
            each.chmod(0o755)
