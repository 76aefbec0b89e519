"""What a server wrote while it was started: of its log files what is new, of systemd's journal its unit's lines."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.model.instance import ServerPlace
from pgtop_tune.paths import opened

_MOST_BYTES: Final = 65_536
_NEWEST: Final = 3
_TIMEOUT_S: Final = 10.0


class LogPiece(Struct, frozen=True):
    """New lines of one file.

    Attributes:
        file: Its name, which tells the format.
        content: From the beginning of a line on.
    """

    file: str
    content: bytes


class StartLog:
    """Looks at the log files now, and later at what came to them.

    Args:
        place: The server.
        now_s: Seconds since the epoch.
    """

    def __init__(self, place: ServerPlace, now_s: float) -> None:
        self._place: Final = place
        self._since_s: Final = now_s
        self._sizes: Final = {path: _size(path) for path in self._files()}

    def pieces(self) -> tuple[LogPiece, ...]:
        """What was written since; a file that cannot be read has nothing."""
        found = [LogPiece(path.name, _tail(path, self._sizes.get(path, 0))) for path in self._files()]
        if self._place.unit:
            found.append(LogPiece(self._place.unit, _journal(self._place.unit, self._since_s)))
        return tuple(piece for piece in found if piece.content)

    def _files(self) -> Iterator[Path]:
        if self._place.log_file:
            yield Path(self._place.log_file)
        if self._place.log_directory:
            try:
                files = [path for path in Path(self._place.log_directory).iterdir() if path.is_file()]
                yield from sorted(files, key=lambda path: path.stat().st_mtime)[-_NEWEST:]
            except OSError:
                return


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _tail(path: Path, offset: int) -> bytes:
    try:
        # The server's user made them, and we may be root.
        with opened(path, links=False) as file:
            size = os.fstat(file.fileno()).st_size
            # Truncated by a rotation: all of it is new.
            begin = max(offset if offset <= size else 0, size - _MOST_BYTES)
            file.seek(begin)
            content = file.read(_MOST_BYTES)
    except OSError:
        return b""
    return content if begin in (0, offset) else content.partition(b"\n")[2]


def _journal(unit: str, since_s: float) -> bytes:
    command = ["journalctl", "--no-pager", "--output=cat", f"--since=@{since_s:.0f}", "--lines=100", f"--unit={unit}"]
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=False,
        ).stdout[-_MOST_BYTES:]
    except (OSError, subprocess.SubprocessError):
        return b""
