"""Settings of the machine of a remote server: the kernel's files through the server, read as those of this machine.

The files are put into a directory of our own, for the same readers. What the machine starts with is in /etc, which
cannot be listed over SQL: it is told as not read. Sources as in `machine_details`.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from pgtop_tune.host.block_devices import QUEUE_SETTINGS, queue
from pgtop_tune.host.machine_setup import machine_details, mount_points
from pgtop_tune.host.over_sql import ReadFiles
from pgtop_tune.host.process_files import parse_lineage
from pgtop_tune.host.system_settings import SYSCTLS, TRANSPARENT, path_of
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.machine import AfterReboot, MachineDetails
from pgtop_tune.process.mount_namespace import Mount, mount_of, parse_mountinfo

_CLOCK: Final = "sys/devices/system/clocksource/clocksource0"
_MOUNTS: Final = "proc/self/mountinfo"
_BACKEND: Final = "proc/self/stat"
_FIXED: Final = (
    *map(path_of, SYSCTLS),
    *map(path_of, TRANSPARENT),
    "proc/meminfo",
    "proc/cpuinfo",
    _MOUNTS,
    f"{_CLOCK}/current_clocksource",
    f"{_CLOCK}/available_clocksource",
)
_OPEN: Final = tuple(f"proc/self/fdinfo/{number}" for number in range(3, 48))
"""Descriptors of the backend from 3 on: those that it opened itself."""
_OF_KERNEL: Final = frozenset({"proc", "sysfs", "devtmpfs", "devpts", "mqueue", "cgroup", "cgroup2"})
"""File systems of the kernel: their open files are no data."""
_MOUNT_ID: Final = re.compile(rb"^mnt_id:\s*(\d+)", re.MULTILINE)
_NOT_READ: Final = AfterReboot(not_read=("files of a machine read over SQL",))


async def remote_details(
    read_files: ReadFiles, disks: Mapping[str, bool], directories: Mapping[str, str], numa_nodes: int
) -> MachineDetails | Unavailable:
    """Return the settings of the server's machine and its postmaster.

    Args:
        read_files: Reads files of the server's machine.
        disks: Names of those under the server's directories; whether they are made of others.
        directories: Role → absolute path on the server's machine.
        numa_nodes: Number of NUMA nodes.

    Returns:
        Unavailable in the server's words when it does not hand out its files.
    """
    own_stat = await read_files([f"/{_BACKEND}"])
    if isinstance(own_stat, Unavailable):
        return own_stat
    if own_stat[0] is None:
        return Unavailable(Reason.NOT_SUPPORTED, "the server's machine has no /proc: host metrics require Linux")
    pid = parse_lineage(own_stat[0]).parent_pid
    process = (f"proc/{pid}/limits", f"proc/{pid}/oom_score_adj")
    queues = [f"{queue(name, Path())}/{setting}" for name in disks for setting in (*QUEUE_SETTINGS, "rotational")]
    paths: Sequence[str] = (*_FIXED, *_OPEN, *process, *queues)
    files = await read_files([f"/{path}" for path in paths])
    if isinstance(files, Unavailable):
        return files
    with tempfile.TemporaryDirectory(prefix="pgtop-tune-") as directory:
        root = Path(directory)
        for path, content in zip(paths, files, strict=True):
            if content is not None:
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_bytes(content)
        details = machine_details(root, disks, {}, pid)
    contents = dict(zip(paths, files, strict=True))
    mounts, linked = _placed(directories, parse_mountinfo(contents[_MOUNTS] or b""), [contents[name] for name in _OPEN])
    return replace(
        details,
        settings=tuple(replace(setting, writable=False, after_reboot=_NOT_READ) for setting in details.settings),
        queues=tuple(replace(disk, stacked=disks[disk.name]) for disk in details.queues),
        mounts=mount_points(mounts),
        unplaced=linked,
        numa_nodes=numa_nodes,
    )


def _placed(
    directories: Mapping[str, str], mounts: Sequence[Mount], open_files: Sequence[bytes | None]
) -> tuple[dict[str, Mount | None], tuple[str, ...]]:
    """Return the mounts by role, and the roles that a link may lead elsewhere: over SQL no link can be followed.

    A backend keeps files of its database open. They say where the data directory is; pg_wal is a link more often, and
    known only where it is a mount of its own.

    Args:
        directories: Role → absolute path.
        mounts: Mounts of the server's process.
        open_files: Contents of the backend's /proc/PID/fdinfo.
    """
    placed = {role: mount_of(directory, mounts) for role, directory in directories.items()}
    by_id = {mount.id: mount for mount in mounts if mount.kind not in _OF_KERNEL}
    ids = {int(number[1]) for text in open_files if text and (number := _MOUNT_ID.search(text))}
    used = [by_id[number] for number in sorted(ids) if number in by_id]
    linked = []
    data, wal = placed.get("data"), placed.get("wal")
    if data is not None and used and data not in used:
        placed["data"] = used[0] if len(used) == 1 else None
        linked += [] if len(used) == 1 else ["data"]
    if wal is not None and not wal.point.endswith("/pg_wal"):
        placed["wal"] = None
        linked.append("wal")
    return placed, tuple(linked)
