"""Why a kernel file cannot be had, in words an operator can act on."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final, TypeVar

from pgtop_tune.model.absence import Reason, Unavailable

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
