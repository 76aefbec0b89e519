"""Files and directories of the kernel that may as well not be there: what is missing or forbidden reads as empty.

Why a kernel file cannot be had, in words an operator can act on.

Numbers in kernel files: unsigned, at most 64 bits. Anything else is not a kernel file.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from pgtop_tune.host.proc_files import read_once
from pgtop_tune.model.absence import Reason, Unavailable

_LIMIT: Final = 1 << 64


def unsigned(word: bytes) -> int:
    """The number a kernel file spells.

    Raises:
        ValueError: Not a decimal number of 0 to 2^64-1. The files of a remote server are foreign: a number of a
            thousand digits would break arithmetic far from here.
    """
    if not word.isdigit() or len(word) > 20 or (value := int(word)) >= _LIMIT:
        raise ValueError(f"not a kernel counter: {word[:40]!r}")
    return value


T = TypeVar("T")

NO_PROC: Final = "host numbers need Linux with /proc mounted"
NO_PSI: Final = "no /proc/pressure: a kernel without PSI (needs Linux 4.20 or later); boot with psi=1"
NO_DISKSTATS: Final = "no /proc/diskstats: this container or platform hides its disks"
NO_SYSFS: Final = "/sys is not mounted here: disks and partitions cannot be told apart"
NO_NETWORK: Final = "no /proc/net/dev: a kernel without networking"
NO_NUMA: Final = "no /sys/devices/system/node: a kernel without NUMA"
NO_FREQUENCY: Final = "no /sys/devices/system/cpu/cpufreq: a virtual machine does not see the frequency of its CPUs"
NO_LIMITS: Final = "the server is in no control group that limits it"


def or_why(read: Callable[[], T | Unavailable], absent: str) -> T | Unavailable:
    """What the reader returns; its failure as absence, `absent` being the words for a file that is not there."""
    try:
        return read()
    except (FileNotFoundError, NotADirectoryError):
        return Unavailable(Reason.NOT_SUPPORTED, absent)
    except PermissionError as problem:
        return Unavailable(Reason.NO_PERMISSION, f"{problem.filename or '/proc'} is closed to us; run as root")
    except OSError as problem:
        # A kernel with PSI compiled in but switched off lets the files be opened and refuses to read them.
        if problem.errno == errno.EOPNOTSUPP:
            return Unavailable(Reason.NOT_SUPPORTED, absent)
        return Unavailable(Reason.FAILED, f"{problem.filename or '/proc'}: {problem.strerror}")
    except ValueError as problem:
        return Unavailable(Reason.FAILED, str(problem))


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
