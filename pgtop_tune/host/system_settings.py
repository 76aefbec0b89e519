"""The settings of the operating system that matter to a database server: where they are, live and after a reboot.

Sources: Documentation/admin-guide/sysctl/{vm,kernel}.rst, mm/transhuge.rst, mm/hugetlbpage.rst,
Documentation/ABI/stable/sysfs-block.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from pgtop_tune.host import sysctl_files
from pgtop_tune.host.block_devices import QUEUE_SETTINGS, queue
from pgtop_tune.host.kernel_text import entries_of, file_text, or_why, read_once
from pgtop_tune.host.sysctl_files import SysctlFiles
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.machine import AfterReboot, Assignment, SystemSetting

SYSCTLS: Final = (
    "vm.nr_hugepages",
    "vm.swappiness",
    "vm.dirty_background_bytes",
    "vm.dirty_background_ratio",
    "vm.dirty_bytes",
    "vm.dirty_ratio",
    "vm.dirty_expire_centisecs",
    "vm.dirty_writeback_centisecs",
    "vm.overcommit_memory",
    "vm.overcommit_ratio",
    "vm.overcommit_kbytes",
    "vm.min_free_kbytes",
    "vm.zone_reclaim_mode",
    "kernel.numa_balancing",
    "kernel.sched_autogroup_enabled",
)
TRANSPARENT: Final = (
    "transparent_hugepage/enabled",
    "transparent_hugepage/defrag",
    "transparent_hugepage/khugepaged/defrag",
)
ALONG: Final[Mapping[str, tuple[str, ...]]] = {
    "vm.dirty_background_bytes": ("vm.dirty_background_ratio",),
    "vm.dirty_background_ratio": ("vm.dirty_background_bytes",),
    "vm.dirty_bytes": ("vm.dirty_ratio",),
    "vm.dirty_ratio": ("vm.dirty_bytes",),
    "vm.overcommit_kbytes": ("vm.overcommit_ratio",),
    "vm.overcommit_ratio": ("vm.overcommit_kbytes",),
    "transparent_hugepage/enabled": ("vm.min_free_kbytes",),
}
"""Settings that the kernel changes along with one: of a pair the other becomes 0; khugepaged raises min_free_kbytes."""

_MM: Final = "sys/kernel/mm"
_POOL: Final = re.compile(r"hugepages-(\d+)kB")
_CHOSEN: Final = re.compile(r"\[([^\]\s]+)\]")
_DEFAULT_SIZE: Final = re.compile(r"^Hugepagesize:\s+(\d+) kB$", re.MULTILINE)
_TUNED: Final = "etc/tuned/active_profile"
_NOT_READ: Final[Mapping[str, str]] = {"sys/kernel": "tmpfiles.d and units", "sys/block": "udev rules"}


def path_of(name: str) -> str:
    """Return the kernel's file of a setting, without the leading slash."""
    if name.startswith("transparent_hugepage/"):
        return f"{_MM}/{name}"
    if name.startswith("hugepages-"):
        return f"{_MM}/hugepages/{name}"
    if "/" in name:
        device, _, setting = name.rpartition("/")
        return f"{queue(device, Path())}/{setting}"
    return f"proc/sys/{name.replace('.', '/')}"


def is_sysctl(name: str) -> bool:
    """Return whether files of sysctl.d can set it."""
    return "/" not in name


def names(root: Path, devices: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the names of the settings: those of every kernel, pools of this one, queues of the named devices."""
    default = default_page_bytes(root)
    sizes = sorted(
        int(match[1]) * 1024 for pool in entries_of(root / _MM / "hugepages") if (match := _POOL.match(pool.name))
    )
    pools = tuple(sysctl_files.pool_name(size, default) for size in sizes if size != default)
    queues = tuple(f"{device}/{setting}" for device in devices for setting in QUEUE_SETTINGS)
    return (*SYSCTLS[:1], *pools, *SYSCTLS[1:], *TRANSPARENT, *queues)


def settings(root: Path, devices: Iterable[str] = ()) -> tuple[SystemSetting, ...]:
    """Return all settings, as they are now.

    Args:
        root: Where /proc, /sys, /etc, /run, /usr and /lib are found.
        devices: Disks of the server's directories, as in /proc/diskstats.
    """
    boot = BootSettings(root)
    return tuple(setting(name, root, boot) for name in names(root, devices))


def setting(name: str, root: Path, boot: BootSettings) -> SystemSetting:
    """Return one setting, as it is now."""
    path = root / path_of(name)
    text = or_why(lambda: read_once(path).decode("utf-8", "replace").strip(), _absent(name, root))
    live = text if isinstance(text, Unavailable) else bracketed(text)
    return SystemSetting(
        name=name,
        path=f"/{path_of(name)}",
        live=live,
        choices=() if isinstance(text, Unavailable) or live == text else tuple(re.sub(r"[\[\]]", "", text).split()),
        after_reboot=boot.of(name),
        writable=not isinstance(text, Unavailable) and os.access(path, os.W_OK, effective_ids=True),
    )


def _absent(name: str, root: Path) -> str:
    """Return the reason why the kernel's file of a setting is missing: the kernel lacks it, or this process does not
    see its kind."""
    file = Path(path_of(name))
    tree = Path(*file.parts[:2])
    if (root / tree).is_dir():
        return f"this kernel has no /{file}"
    return f"/{tree} is hidden from this process, or not mounted"


def live_value(path: str, root: Path) -> str:
    """Return the value in a file of the kernel; of several words, the one in brackets.

    Raises:
        OSError: The file cannot be read.
    """
    return bracketed(read_once(root / path.lstrip("/")).decode("utf-8", "replace").strip())


def bracketed(text: str) -> str:
    """Return the word in brackets; without any, the whole text."""
    chosen = _CHOSEN.search(text)
    return chosen[1] if chosen else text


def default_page_bytes(root: Path) -> int | None:
    """Return Hugepagesize of /proc/meminfo; None in a kernel without huge pages."""
    try:
        size = _DEFAULT_SIZE.search(read_once(root / "proc/meminfo").decode("ascii", "replace"))
    except OSError:
        return None
    return int(size[1]) * 1024 if size else None


class BootSettings:
    """Values that files of sysctl.d and the kernel's command line set at boot, read once.

    Args:
        root: Where /proc, /etc, /run, /usr and /lib are found.
    """

    def __init__(self, root: Path) -> None:
        self._files = SysctlFiles(root)
        self._command_line = sysctl_files.command_line_settings(
            file_text(root / "proc/cmdline"), default_page_bytes(root)
        )
        self._tuned = file_text(root / _TUNED)

    def of(self, name: str) -> AfterReboot:
        """Return the values that a setting starts with."""
        first = self._command_line.get(name)
        fixed = () if first is None else (Assignment(first, sysctl_files.FILE, 1),)
        unread = [sources for where, sources in _NOT_READ.items() if path_of(name).startswith(where)]
        if self._tuned:
            unread.append(f"tuned (profile {self._tuned})")
        pair = [partner for partner in ALONG.get(name, ()) if name in ALONG.get(partner, ())]
        return AfterReboot((*fixed, *(self._files.of(name, pair) if is_sysctl(name) else ())), tuple(unread))
