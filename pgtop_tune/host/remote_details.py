"""Settings of the machine of a server elsewhere: the kernel's files through the server, read as those of this machine.

The files are put into a directory of our own, for the same readers. What the machine starts with is in /etc, which
cannot be listed over SQL: it is told as not read. Sources as in `machine_details`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from pgtop_tune.host.block_devices import QUEUE_SETTINGS, queue
from pgtop_tune.host.machine_setup import machine_details, mount_points
from pgtop_tune.host.mounts import mount_of, parse_mountinfo
from pgtop_tune.host.over_sql import ReadFiles
from pgtop_tune.host.process_files import parse_lineage
from pgtop_tune.host.system_settings import SYSCTLS, TRANSPARENT, path_of
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.machine import AfterReboot, MachineDetails

_CLOCK: Final = "sys/devices/system/clocksource/clocksource0"
_MOUNTS: Final = "proc/self/mountinfo"
_OWN: Final = "proc/self/stat"
_FIXED: Final = (
    *map(path_of, SYSCTLS),
    *map(path_of, TRANSPARENT),
    "proc/meminfo",
    "proc/cpuinfo",
    _MOUNTS,
    f"{_CLOCK}/current_clocksource",
    f"{_CLOCK}/available_clocksource",
)
_NOT_READ: Final = AfterReboot(not_read=("files of a machine that is seen over SQL",))


async def remote_details(
    read_files: ReadFiles, disks: Mapping[str, bool], directories: Mapping[str, str], numa_nodes: int
) -> MachineDetails | Unavailable:
    """Everything there is to read.

    Args:
        read_files: Asks the server for files.
        disks: Names of those under the server's directories; whether they are made of others.
        directories: Role → absolute path on the server's machine.
        numa_nodes: How many there are.

    Returns:
        Unavailable in the server's words when it does not hand out its files.
    """
    own = await read_files([f"/{_OWN}"])
    if isinstance(own, Unavailable):
        return own
    if own[0] is None:
        return Unavailable(Reason.NOT_SUPPORTED, "the server's machine has no /proc: host numbers need Linux")
    pid = parse_lineage(own[0]).parent_pid
    process = (f"proc/{pid}/limits", f"proc/{pid}/oom_score_adj")
    queues = [f"{queue(name, Path())}/{setting}" for name in disks for setting in (*QUEUE_SETTINGS, "rotational")]
    paths: Sequence[str] = (*_FIXED, *process, *queues)
    found = await read_files([f"/{path}" for path in paths])
    if isinstance(found, Unavailable):
        return found
    with tempfile.TemporaryDirectory(prefix="pgtop-tune-") as directory:
        root = Path(directory)
        for path, content in zip(paths, found, strict=True):
            if content is not None:
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_bytes(content)
        details = machine_details(root, disks, {}, pid)
    mounted = parse_mountinfo(dict(zip(paths, found, strict=True))[_MOUNTS] or b"")
    # No link can be seen over SQL, and pg_wal is the directory that is often one.
    mounts = {role: mount_of(directory, mounted) for role, directory in directories.items()}
    linked = [role for role, mount in mounts.items() if role == "wal" and mount and not mount.point.endswith("/pg_wal")]
    return replace(
        details,
        settings=tuple(replace(each, writable=False, after_reboot=_NOT_READ) for each in details.settings),
        queues=tuple(replace(each, stacked=disks[each.name]) for each in details.queues),
        mounts=mount_points({role: mount for role, mount in mounts.items() if role not in linked}),
        unplaced=tuple(linked),
        numa_nodes=numa_nodes,
    )
