"""Small files of the kernel that may be missing: reads them once as text, or cheaply over and over.

`or_why` says in words that an operator can act on why a file cannot be read. `unsigned` reads a number; kernel files
have unsigned ones of at most 64 bits.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, TypeVar

from pgtop_tune.model.absence import Reason, Unavailable

# Cheap reading of small kernel files, over and over: descriptors stay open between ticks and are read with pread.
#
# On one machine reading /proc/PID/stat through a kept descriptor took 3.4 µs, open + read + close 7.7 µs.

_CHUNK_BYTES: Final = 64 * 1024
_LARGEST_BYTES: Final = 4 * 1024 * 1024
"""No kernel file we read is larger, on any machine; a reader must not follow a file that never ends."""
_PROCESS_BYTES: Final = 1024
"""/proc/PID/stat and /proc/PID/io are well below it: 52 numbers of at most 20 digits, in practice 350 bytes."""
_KEPT_MOST: Final = 4096
_STALE: Final = (errno.ESRCH, errno.ENOENT, errno.EBADF, errno.ENODEV, errno.EIO)


def read_once(path: str | Path) -> bytes:
    """Return the content of a kernel file, opened and closed.

    Raises:
        OSError: It cannot be opened or read.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return _whole(descriptor)
    finally:
        os.close(descriptor)


def _whole(descriptor: int) -> bytes:
    """Return all of a file from its beginning; a seq_file delivers a page at a time, so a short read is not the end."""
    chunk = os.pread(descriptor, _CHUNK_BYTES, 0)
    length = len(chunk)
    if not chunk:
        return chunk
    chunks = [chunk]
    while length < _LARGEST_BYTES and (chunk := os.pread(descriptor, _CHUNK_BYTES, length)):
        chunks.append(chunk)
        length += len(chunk)
    return b"".join(chunks)


class KeptFile:
    """One file that is read every tick.

    Args:
        path: Absolute path. It need not exist yet; every read tries again.
    """

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self._descriptor = -1

    def read(self) -> bytes:
        """Return the whole content as it is now.

        Raises:
            OSError: It cannot be opened or read.
        """
        if self._descriptor >= 0:
            try:
                return _whole(self._descriptor)
            except OSError as problem:
                self.close()
                if problem.errno not in _STALE:
                    raise
        self._descriptor = os.open(self.path, os.O_RDONLY)
        return _whole(self._descriptor)

    def close(self) -> None:
        """Close the descriptor; the next read opens the file again."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


def kept_descriptors() -> int:
    """Return how many descriptors may stay open for processes: a third of RLIMIT_NOFILE (soft), at most 4096."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _KEPT_MOST if soft == resource.RLIM_INFINITY else min(soft // 3, _KEPT_MOST)


class ProcessFiles:
    """One small file of many processes: /proc/PID/`name`.

    A kept descriptor belongs to the process it was opened for: when that is gone, reading fails with ESRCH even if
    another process has its number by now, and the number is looked up anew.

    Args:
        proc: The /proc directory.
        name: Name of the file in a process's directory.
        most: Descriptors kept at most; files beyond it are opened and closed at each read.
    """

    __slots__ = ("_descriptors", "_most", "_name", "_proc")

    def __init__(self, proc: str | Path, name: str, most: int) -> None:
        self._proc = str(proc)
        self._name = name
        self._most = most
        self._descriptors: dict[int, int] = {}

    def read(self, pid: int) -> bytes:
        """Return the file of one process.

        Raises:
            OSError: FileNotFoundError or ProcessLookupError when there is no such process, PermissionError when we
                may not look.
        """
        descriptor = self._descriptors.get(pid)
        if descriptor is not None:
            try:
                return os.pread(descriptor, _PROCESS_BYTES, 0)
            except OSError as problem:
                self._forget(pid)
                if problem.errno not in _STALE:
                    raise
        descriptor = os.open(f"{self._proc}/{pid}/{self._name}", os.O_RDONLY)
        keep = len(self._descriptors) < self._most
        try:
            content = os.pread(descriptor, _PROCESS_BYTES, 0)
        except OSError:
            keep = False
            raise
        finally:
            if keep:
                self._descriptors[pid] = descriptor
            else:
                os.close(descriptor)
        return content

    def keep_only(self, pids: Collection[int]) -> None:
        """Close the descriptors of all other processes."""
        for pid in self._descriptors.keys() - set(pids):
            self._forget(pid)

    def close(self) -> None:
        for pid in list(self._descriptors):
            self._forget(pid)

    def _forget(self, pid: int) -> None:
        os.close(self._descriptors.pop(pid))

    def __len__(self) -> int:
        """Return how many descriptors are open now."""
        return len(self._descriptors)


_LIMIT: Final = 1 << 64


def unsigned(word: bytes) -> int:
    """Return the number in a kernel file.

    Raises:
        ValueError: Not a decimal number of 0 to 2^64-1. The files of a remote server are foreign: a number of a
            thousand digits would break arithmetic far from here.
    """
    if not word.isdigit() or len(word) > 20 or (value := int(word)) >= _LIMIT:
        raise ValueError(f"not a kernel counter: {word[:40]!r}")
    return value


T = TypeVar("T")

NO_PROC: Final = "host metrics require Linux with /proc mounted"
NO_PSI: Final = "no /proc/pressure: the kernel lacks PSI (Linux 4.20 or later); boot with psi=1"
NO_DISKSTATS: Final = "no /proc/diskstats: this container or platform hides its disks"
NO_SYSFS: Final = "/sys is not mounted here, so disks and partitions cannot be distinguished"
NO_NETWORK: Final = "no /proc/net/dev: the kernel has no networking"
NO_NUMA: Final = "no /sys/devices/system/node: the kernel has no NUMA support"
NO_FREQUENCY: Final = "no /sys/devices/system/cpu/cpufreq: hidden in virtual machines"
NO_LIMITS: Final = "no control group limits the server"


def or_why(read: Callable[[], T | Unavailable], absent: str) -> T | Unavailable:
    """Return the result of the reader, or its failure as absence; `absent` is the text for a missing file."""
    try:
        return read()
    except (FileNotFoundError, NotADirectoryError):
        return Unavailable(Reason.NOT_SUPPORTED, absent)
    except PermissionError as problem:
        return Unavailable(Reason.NO_PERMISSION, f"{problem.filename or '/proc'} is not readable; run as root")
    except OSError as problem:
        # A kernel with PSI compiled in but switched off lets the files be opened and refuses to read them.
        if problem.errno == errno.EOPNOTSUPP:
            return Unavailable(Reason.NOT_SUPPORTED, absent)
        return Unavailable(Reason.FAILED, f"{problem.filename or '/proc'}: {problem.strerror}")
    except ValueError as problem:
        return Unavailable(Reason.FAILED, str(problem))


def bytes_of(path: Path) -> bytes:
    """Return the content of a file; b"" where it cannot be read."""
    try:
        return read_once(path)
    except OSError:
        return b""


def file_text(path: Path) -> str:
    """Return the text of a file without white space around it, nor the NUL that ends texts of a device tree; "" where
    it cannot be read."""
    return bytes_of(path).decode("utf-8", "replace").strip("\0\t\n\v\f\r ")


def link_of(path: Path) -> str:
    """Return where a symbolic link leads; "" where that cannot be read."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def entries_of(directory: Path) -> list[Path]:
    """Return the entries of a directory, by name; none where it cannot be listed."""
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []
