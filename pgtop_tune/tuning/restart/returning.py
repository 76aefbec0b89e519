"""Waits for a server that is being restarted: whether it is back, still the old one, or gone. For an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Final

from pgtop_tune.cluster.postmaster import pid_of
from pgtop_tune.errors import ConnectionProblem, NotLetIn
from pgtop_tune.model.server_place import ServerPlace
from pgtop_tune.postgres.control import PostgresControl
from pgtop_tune.tuning.restart.gather import started_ms

_POLL_S: Final = 0.1
_PATIENCE_S: Final = 300.0
"""As long as a process holds the data directory: it recovers, or waits for a standby to be consistent."""
_GONE_S: Final = {False: 3.0, True: 0.3}
"""Without a process for so long it does not come by itself, by whether the program that started it has failed."""


class Return(StrEnum):
    """What became of the server."""

    BACK = "back"
    THE_OLD_ONE = "the old one"
    GONE = "gone"


async def wait_for(
    control: PostgresControl, place: ServerPlace, before_ms: int, progress: Callable[[str], None], *, failed: bool
) -> Return:
    """Waits until the server answers, or nobody is there who could.

    Args:
        control: To ask.
        place: Of the server.
        before_ms: When the one before was started.
        progress: Told when it takes long.
        failed: The program that was to restart it has failed.
    """
    deadline, gone_since, told = time.monotonic() + _PATIENCE_S, 0.0, False
    while time.monotonic() < deadline:
        now_ms = await start_of(control)
        if now_ms is not None:
            return Return.BACK if now_ms != before_ms else Return.THE_OLD_ONE
        if _runs(place):
            gone_since = 0.0
            if not told:
                progress("it is starting")
                told = True
        else:
            gone_since = gone_since or time.monotonic()
            if time.monotonic() - gone_since >= _GONE_S[failed]:
                return Return.GONE
        await asyncio.sleep(_POLL_S)
    return Return.GONE


async def until_restarted(
    control: PostgresControl, before_ms: int, progress: Callable[[str], None], given_up: asyncio.Event
) -> bool:
    """Waits for as long as it takes somebody else to restart the server; whether that was not given up."""
    away = False
    while (now_ms := await start_of(control)) in (None, before_ms):
        if given_up.is_set():
            return False
        if now_ms is None and not away:
            progress("the server is away")
        away = now_ms is None
        await asyncio.sleep(_POLL_S)
    return True


async def start_of(control: PostgresControl) -> int | None:
    """When the server that answers now was started; None where none does.

    Raises:
        NotLetIn: It is there, and says no.
    """
    try:
        return await control.ask(started_ms)
    except NotLetIn:
        raise
    except ConnectionProblem:
        return None


def _runs(place: ServerPlace) -> bool:
    try:
        return pid_of(Path(place.data_directory)) is not None
    except PermissionError:
        return True
