"""A file system that stops answering: FUSE by its protocol, without a library. Root mounts it.

Run as a program, with the mount point, it serves an empty directory until a line of input, then answers nothing
before the next one. A process that waits for it cannot be killed before it has its answer, or this program has ended.

Source: include/uapi/linux/fuse.h.
"""

from __future__ import annotations

import ctypes
import os
import select
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_DEVICE: Final = "/dev/fuse"
_REQUEST: Final = struct.Struct("<IIQQIIII")
_REQUEST_BYTES: Final = 1 << 18
_LOOKUP, _FORGET, _GETATTR, _STATFS, _RELEASE, _INIT, _OPENDIR, _READDIR, _RELEASEDIR = 1, 2, 3, 17, 18, 26, 27, 28, 29
_BATCH_FORGET: Final = 42
_DETACH: Final = 2
_ENOENT, _ENOSYS = -2, -38


def can_mount() -> bool:
    """Return whether this machine lets us make such a file system."""
    return sys.platform == "linux" and os.geteuid() == 0 and os.access(_DEVICE, os.R_OK | os.W_OK)


class HangingMount:
    """A mounted file system, which answers until `hang`, and from `answer` on again."""

    def __init__(self, point: Path) -> None:
        self.point = point
        self._program = subprocess.Popen(
            [sys.executable, "-I", __file__, str(point)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._line()

    def hang(self) -> None:
        """Answer nothing from now on."""
        self._tell()

    def answer(self) -> None:
        """Answer again, also what was asked meanwhile."""
        self._tell()

    def end(self) -> None:
        """Let everybody go who waits, with an error, and unmount it."""
        self._program.kill()
        self._program.communicate()
        _libc().umount2(os.fsencode(self.point), _DETACH)

    def _tell(self) -> None:
        assert self._program.stdin is not None
        self._program.stdin.write(b"\n")
        self._program.stdin.flush()
        self._line()

    def _line(self) -> None:
        assert self._program.stdout is not None
        assert self._program.stdout.readline(), "no file system was mounted"


@contextmanager
def hanging_mount(point: Path) -> Iterator[HangingMount]:
    """Give a file system over an existing directory; it answers until it is told to hang."""
    mount = HangingMount(point)
    try:
        yield mount
    finally:
        mount.end()


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _serve(point: str) -> None:
    device = os.open(_DEVICE, os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    if _libc().mount(b"hanging", os.fsencode(point), b"fuse", 0, options.encode()):
        return
    hangs = False
    unanswered: list[bytes] = []
    while True:
        for ready in select.select([device, 0], [], [])[0]:
            if ready == device:
                unanswered.append(os.read(device, _REQUEST_BYTES))
            elif os.read(0, 64):
                hangs = not hangs
                os.write(1, b"hangs\n" if hangs else b"answers\n")
            else:
                return
        while unanswered and not hangs:
            _attend(device, unanswered.pop(0))
            _mounted()


_told: list[bool] = []


def _mounted() -> None:
    if not _told:
        _told.append(True)
        os.write(1, b"mounted\n")


def _attend(device: int, request: bytes) -> None:
    _, kind, unique, _, _, _, _, _ = _REQUEST.unpack_from(request)
    answer = _answer(kind, request[_REQUEST.size :])
    if answer is not None:
        error, content = answer
        with suppress(FileNotFoundError):  # Nobody waits for it any more.
            os.write(device, struct.pack("<IiQ", 16 + len(content), error, unique) + content)


def _answer(kind: int, body: bytes) -> tuple[int, bytes] | None:
    if kind in (_FORGET, _BATCH_FORGET):
        return None
    if kind == _INIT:
        read_ahead = struct.unpack_from("<III", body)[2]
        return 0, struct.pack("<IIIIHHII28x4x", 7, 31, read_ahead, 0, 12, 10, 1 << 17, 1)
    if kind == _GETATTR:
        mode = stat.S_IFDIR | 0o755
        return 0, struct.pack("<QII6Q10I", 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, mode, 2, 0, 0, 0, 4096, 0)
    if kind == _STATFS:
        return 0, struct.pack("<5Q4I24x", 1_000_000, 500_000, 500_000, 1_000, 900, 4096, 255, 4096, 0)
    if kind == _OPENDIR:
        return 0, bytes(16)
    if kind in (_READDIR, _RELEASE, _RELEASEDIR):
        return 0, b""
    return (_ENOENT if kind == _LOOKUP else _ENOSYS), b""


if __name__ == "__main__":
    _serve(sys.argv[1])
