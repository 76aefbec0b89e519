"""The role of a server, as its data directory says it, and the promotion of a standby. Blocking.

Source: ControlFileData of src/include/catalog/pg_control.h, whose beginning is the same from 14 to 19; xlog.h
(PROMOTE_SIGNAL_FILE, STANDBY_SIGNAL_FILE).
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import ClusterProblem
from pgtop_tune.base.foreign_directory import ForeignDirectory

STANDBY_FILE: Final = "standby.signal"
"""A server that starts with it is a standby; a promotion removes it."""
PROMOTE_FILE: Final = "promote"
"""Asks a running standby for its promotion, with a signal."""
ENDED: Final = 1
"""State of a primary that was shut down."""
ENDED_AS_STANDBY: Final = 2
"""The same of a standby."""
_IN_PRODUCTION: Final = 6
"""State of a primary that runs, or has crashed."""
_BEGINNING: Final = struct.Struct("=QIIi4xqQ")
_PROMOTION_S: Final = 60.0
_POLL_S: Final = 0.01


class ServerState(Struct, frozen=True):
    """The beginning of pg_control.

    Attributes:
        state: DBState when the server last wrote it.
        checkpoint: Position of the newest checkpoint record, in bytes of WAL.
    """

    state: int
    checkpoint: int


def read_state(data: ForeignDirectory) -> ServerState:
    """Return the state of a data directory's server. Raises OSError."""
    fields = _BEGINNING.unpack(data.read("global/pg_control", _BEGINNING.size))
    return ServerState(fields[3], fields[5])


def promote(data: ForeignDirectory, tell_postmaster: Callable[[], None]) -> None:
    """Make a primary of a running standby, and return when it is one.

    Args:
        data: Its directory.
        tell_postmaster: Sends its postmaster SIGUSR1.

    Raises:
        ClusterProblem: It does not become one in time.
        OSError: Its directory cannot be read or written.
    """
    data.replace(PROMOTE_FILE, b"")
    tell_postmaster()
    deadline = time.monotonic() + _PROMOTION_S
    while read_state(data).state != _IN_PRODUCTION:
        if time.monotonic() > deadline:
            data.unlink(PROMOTE_FILE)
            raise ClusterProblem(f"the standby was not promoted within {_PROMOTION_S:.0f} s")
        time.sleep(_POLL_S)
