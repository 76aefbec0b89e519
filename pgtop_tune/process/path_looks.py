"""Looks at paths on file systems that may hang: NFS whose server is gone, FUSE, a device that does not come back.

The kernel may keep who waits for such a file system from ending, and a program with a thread there does not end either.
So another process looks (process/path_server.py). It is abandoned when it does not answer, and its mount is not looked
at again before it has come back: one process waits for a mount, never a second.
"""

from __future__ import annotations

import atexit
import errno
import os
import select
import subprocess
import threading
import time
from contextlib import suppress
from typing import Final

from pgtop_tune.process import path_server
from pgtop_tune.process.own_program import file_argv

PATIENCE_S: Final = 2.0
"""Time limit of a look, which takes microseconds, on a busy disk milliseconds."""
NO_ANSWER: Final = "does not answer"
_START_S: Final = 10.0
"""Time limit for the start of the process that looks; a busy machine starts one slowly."""
_CHUNK_BYTES: Final = 65_536
_END: Final = b"\0"


class PathLooks:
    """Asks for paths in another process, which is started with the first question. Thread-safe.

    Each method raises a TimeoutError where the file system does not answer, and an OSError as the function of `os`
    does.

    Args:
        patience_s: For one answer.
    """

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._abandoned: dict[str, subprocess.Popen[bytes]] = {}

    def readlink(self, path: str, mount: str) -> str:
        """Return what os.readlink does.

        Args:
            path: None of its directories is a link to another mount.
            mount: That holds it: any text that is the same for the same file system.
        """
        return os.fsdecode(self._answer(b"l", path, mount))

    def stat(self, path: str, mount: str) -> os.stat_result:
        """Return the first ten figures of os.stat; see `readlink`."""
        return os.stat_result(map(int, self._answer(b"s", path, mount).split()))

    def statvfs(self, path: str, mount: str) -> os.statvfs_result:
        """Return what os.statvfs does; see `readlink`."""
        return os.statvfs_result(map(int, self._answer(b"v", path, mount).split()))

    def hangs(self, mount: str) -> bool:
        """Return whether a look at this mount has had no answer so far."""
        process = self._abandoned.get(mount)
        if process is not None and process.poll() is not None:
            self._abandoned.pop(mount, None)
            return False
        return process is not None

    def close(self) -> None:
        """End the process that looks; another question starts another one."""
        with self._lock:
            process, self._process = self._process, None
            if process is not None:
                _let_go(process)
                process.wait()
            for mount in tuple(self._abandoned):
                self.hangs(mount)

    def _answer(self, kind: bytes, path: str, mount: str) -> bytes:
        with self._lock:
            if self.hangs(mount):
                raise TimeoutError(errno.ETIMEDOUT, NO_ANSWER, path)
            process, self._process = self._process, None
            if process is not None and process.poll() is not None:
                _let_go(process)
                process = None
            process = process or _started()
            try:
                _write(process, kind + os.fsencode(path) + _END)
                answer = _read(process, self._patience_s)
            except TimeoutError:
                self._abandoned[mount] = process
                raise TimeoutError(errno.ETIMEDOUT, NO_ANSWER, path) from None
            else:
                self._process = process
            finally:
                if self._process is None:
                    _let_go(process)
        if not answer.startswith(b"="):
            number = int(answer[1:])
            raise OSError(number, os.strerror(number), path)
        return answer[1:]


def _started() -> subprocess.Popen[bytes]:
    """Return a process that is ready to look. It holds nothing of ours that another process may wait for."""
    process = subprocess.Popen(
        file_argv(path_server.__file__),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        bufsize=0,
        start_new_session=True,
    )
    try:
        _read(process, _START_S)
    except OSError:
        _let_go(process)
        process.kill()
        raise
    return process


def _write(process: subprocess.Popen[bytes], question: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(question)


def _read(process: subprocess.Popen[bytes], patience_s: float) -> bytes:
    """Return one answer, without its end.

    Raises:
        TimeoutError: There is none in time.
        ConnectionError: The process has ended.
    """
    assert process.stdout is not None
    poll, answer = select.poll(), b""
    poll.register(process.stdout, select.POLLIN)
    until_s = time.monotonic() + patience_s
    while not answer.endswith(_END):
        if not poll.poll(max(until_s - time.monotonic(), 0.0) * 1000):
            raise TimeoutError
        chunk = process.stdout.read(_CHUNK_BYTES)
        if not chunk:
            raise ConnectionResetError(errno.ECONNRESET, "the process that reads paths has ended")
        answer += chunk
    return answer[:-1]


def _let_go(process: subprocess.Popen[bytes]) -> None:
    """Close our ends of its pipes: it ends as soon as it has its answer."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


LOOKS: Final = PathLooks()
"""The one of this program."""
atexit.register(LOOKS.close)
