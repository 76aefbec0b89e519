"""Recordings into streams: standard output, a pipe, a device."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import stat
from pathlib import Path
from typing import Final

STDOUT: Final = Path("/dev/stdout")
_OF_STDOUT: Final = frozenset({"-", str(STDOUT), "/dev/fd/1", "/proc/self/fd/1"})
_PIPE_BYTES: Final = 1 << 20
_PATIENCE_S: Final = 2.0
"""Time without a reader of the pipe after which the rest is given up."""


def is_stdout(path: Path) -> bool:
    """Return whether this path names our standard output."""
    return str(path) in _OF_STDOUT


def is_stream(path: Path) -> bool:
    """Return whether the path is no file: written as it is, never made, locked, cut or removed."""
    if is_stdout(path):
        return True
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def open_stream(path: Path) -> int:
    """Open a descriptor of our own.

    Raises:
        OSError: It cannot be opened; of a named pipe, nobody reads it.
    """
    # Not opened by name: standard output may be a socket.
    flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
    stream = os.dup(1) if is_stdout(path) else os.open(path, flags)
    with contextlib.suppress(OSError, AttributeError):
        # A reader that starts beside us is not ready for the first frames.
        fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return stream


def write_stream(stream: int, data: bytes) -> int:
    """Write until all of it is taken, or nothing is read for a while.

    Returns:
        Bytes written.

    Raises:
        OSError: The stream takes nothing.
    """
    written = 0
    poll = select.poll()
    poll.register(stream, select.POLLOUT)
    while written < len(data) and poll.poll(_PATIENCE_S * 1000):
        try:
            # A pipe takes so many bytes without blocking once it takes any.
            written += os.write(stream, data[written : written + select.PIPE_BUF])
        except BlockingIOError:
            continue
        except OSError:
            if not written:
                raise
            break
    return written
