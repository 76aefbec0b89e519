"""Measured limits of servers, kept between sessions in the user's state directory.

A file for each server, named by its system identifier; a standby, which shares that with its primary and not the disk,
has one of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.paths import content_of, private, replacing, state_dir
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import NOT_YET, Reason, Unavailable
from pgtop_tune.model.postgres import PostgresSample, ServerFacts
from pgtop_tune.model.setup import Measured

NOT_MEASURED: Final = Unavailable(Reason.SWITCHED_OFF, "not measured: run `pgtop-tune check --measure`")
_DIRECTORY: Final = "ceilings"
_LARGEST_BYTES: Final = 1024 * 1024


def remember(server: ServerFacts, measured: Measured) -> bool:
    """Keep a measurement for later sessions, in place of the one before.

    Returns:
        Whether it was kept: not where nothing was measured, or the role may not see which server it is.

    Raises:
        UsageProblem: It cannot be written.
    """
    path = _place(server)
    if path is None or not measured.ceilings:
        return False
    text = json.dumps({"at_ms": measured.at_ms, "ceilings": msgspec.to_builtins(measured.ceilings)}, indent=1)
    try:
        private(path.parent)
        with replacing(path) as file:
            file.write(text.encode())
    except OSError as problem:
        raise UsageProblem(
            f"{path.parent}: the measured limits were not saved: {problem.strerror or problem}",
            "set XDG_STATE_HOME to another directory",
        ) from None
    return True


def remembered(server: ServerFacts) -> Measured | Unavailable:
    """Return the newest measurement of this server."""
    path = _place(server)
    return NOT_MEASURED if path is None else _read(path)


class MeasuredLimits:
    """The measured limits of the server that frames are of, renewed when it is measured meanwhile.

    Args:
        clock: The session's.
        from_operator: Limits that the operator gave, in place of those in the state directory.
    """

    def __init__(self, clock: Callable[[], float], from_operator: Measured | None = None) -> None:
        self._clock = clock
        self._given = from_operator
        self._path: Path | None = None
        self._stamp: tuple[int, int] | None = None
        self._found: Measured | Unavailable = NOT_YET
        self._due_s = 0.0

    def sample(self, postgres: PostgresSample | Unavailable) -> Measured | Unavailable:
        """Return the limits for a frame with this server; the last ones while it does not answer."""
        if self._given is not None:
            return self._given
        if isinstance(postgres, Unavailable) or isinstance(postgres.server, Unavailable):
            return self._found
        path = _place(postgres.server)
        if path != self._path or self._found is NOT_YET:
            self._path, self._stamp, self._found, self._due_s = path, None, NOT_MEASURED, 0.0
        if path is not None and self._clock() >= self._due_s:
            self._due_s = self._clock() + sections.ceilings.every_s
            self._renew(path)
        return self._found

    def _renew(self, path: Path) -> None:
        try:
            status = path.stat()
        except OSError:
            return
        if (stamp := (status.st_mtime_ns, status.st_ino)) != self._stamp:
            self._stamp, self._found = stamp, _read(path)


def _place(server: ServerFacts) -> Path | None:
    if not server.system_identifier.isdecimal():
        return None
    name = f"{server.system_identifier}{'-standby' if server.in_recovery else ''}.json"
    return state_dir() / _DIRECTORY / name


def _read(path: Path) -> Measured | Unavailable:
    try:
        return msgspec.json.decode(content_of(path, _LARGEST_BYTES), type=Measured)
    except FileNotFoundError:
        return NOT_MEASURED
    except OSError as problem:
        return Unavailable(Reason.FAILED, f"{path}: {problem.strerror}")
    except (ValueError, RecursionError):
        return Unavailable(Reason.FAILED, f"{path} cannot be read; run `pgtop-tune check --measure` to rewrite it")
