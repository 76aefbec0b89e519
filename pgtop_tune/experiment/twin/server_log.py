"""The log of a copy, followed while it runs: when its checkpoints wrote, and whether it crashed.

Source: log_checkpoints; the prefix of every line is `settings.LOG_PREFIX`, seconds since the epoch.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from pgtop_tune.paths import opened
from pgtop_tune.safe_text import printable_lines

_LINE: Final = re.compile(r"(\d{9,}\.\d+) (LOG|PANIC|FATAL): +(.*)")
_BEGINS: Final = "checkpoint starting:"
_ENDS: Final = "checkpoint complete:"
_CRASH: Final = re.compile(r".*\(PID \d+\) was terminated by .*")
_CHUNK: Final = 2**20


class ServerLog:
    """One log, from where it ends now.

    Attributes:
        crash: The server's words about its crash; "" without one. Made safe to show.
    """

    def __init__(self, path: Path) -> None:
        self.crash = ""
        self._path: Final = path
        self._rest = b""
        self._checkpoints: list[tuple[float, float | None]] = []
        try:
            self._offset = path.stat().st_size
        except OSError:
            self._offset = 0

    def look(self) -> None:
        """Reads what came since."""
        try:
            with opened(self._path, links=False) as file:
                if os.fstat(file.fileno()).st_size == self._offset:
                    return
                file.seek(self._offset)
                while chunk := file.read(_CHUNK):
                    self._offset += len(chunk)
                    self._take(chunk)
        except OSError:
            return

    def _take(self, chunk: bytes) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            # Statements may be logged: most lines are none of ours.
            if (found := _LINE.match(line.decode("utf-8", "replace"))) is not None:
                self._understand(float(found[1]), found[2], found[3])

    def _understand(self, at_s: float, level: str, words: str) -> None:
        if words.startswith(_BEGINS):
            self._checkpoints.append((at_s, None))
        elif words.startswith(_ENDS) and self._checkpoints:
            self._checkpoints[-1] = (self._checkpoints[-1][0], at_s)
        elif not self.crash and (level == "PANIC" or (level == "LOG" and _CRASH.fullmatch(words))):
            self.crash = printable_lines(words)[0]

    def checkpoint_share(self, began_s: float, ended_s: float) -> float:
        """Share of the time between two moments in which a checkpoint was under way."""
        within = sum(
            max(min(ended_s, ended_s if last_s is None else last_s) - max(began_s, first_s), 0.0)
            for first_s, last_s in self._checkpoints
        )
        return min(within / (ended_s - began_s), 1.0) if ended_s > began_s else 0.0
