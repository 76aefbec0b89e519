"""Files and directories of the kernel that may as well not be there: what is missing or forbidden reads as empty."""

from __future__ import annotations

from pathlib import Path

from pgtop_tune.host.proc_files import read_once


def bytes_of(path: Path) -> bytes:
    """The file as it is; b"" where it cannot be read."""
    try:
        return read_once(path)
    except OSError:
        return b""


def text_of(path: Path) -> str:
    """The file without white space around it, nor the NUL that a device tree ends its texts with; "" where it cannot
    be read."""
    return bytes_of(path).decode("utf-8", "replace").strip("\0\t\n\v\f\r ")


def entries_of(directory: Path) -> list[Path]:
    """What is in it, by name; nothing where it cannot be listed."""
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []
