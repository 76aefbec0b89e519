"""Setup of this machine: CPU, virtualisation, clock, settings, disks, mounts; for frames and for advice. Small files,
read in a thread.

Sources: /proc/cpuinfo, /sys/class/dmi/id, /sys/hypervisor/type, /proc/1/cgroup and /.dockerenv, /run/.containerenv,
Documentation/ABI/stable/sysfs-block, proc_pid_mountinfo(5).
"""

from __future__ import annotations

import ctypes
import re
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.host import block_devices
from pgtop_tune.host.block_devices import by_place, queue
from pgtop_tune.host.kernel_sections import parse_meminfo
from pgtop_tune.host.kernel_text import file_text, link_of, or_why, read_once
from pgtop_tune.host.open_files import parse_limit
from pgtop_tune.host.system_settings import bracketed, default_page_bytes, live_value, names, path_of, settings
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.machine import MachineDetails, MountPoint, PostmasterFacts
from pgtop_tune.model.setup import DiskSetup, MachineSetup, MountSetup, SetValue
from pgtop_tune.process.mount_namespace import Mount, MountNamespace, namespace_of

# Synchronisation of the kernel's clock by NTP, PTP or the hypervisor: adjtimex(2), which any program may read.

_SIZE: Final = 512
"""Buffer size; struct timex has 208 bytes."""
_STATUS: Final = struct.Struct("@illlli")
"""modes, offset, freq, maxerror, esterror, status: the beginning of struct timex."""
_UNSYNCHRONISED: Final = 0x40
"""STA_UNSYNC of linux/timex.h."""


def clock_in_step() -> bool | None:
    """Return whether the clock is kept right; None on other systems than Linux, and where the call is not permitted."""
    if not sys.platform.startswith("linux"):
        return None
    timex = ctypes.create_string_buffer(_SIZE)
    try:
        failed = ctypes.CDLL(None).adjtimex(timex) < 0
    except (AttributeError, OSError):
        return None
    return None if failed else in_step(timex.raw)


def in_step(timex: bytes) -> bool:
    """Return whether a struct timex that the kernel has filled says that the clock is kept right."""
    status: int = _STATUS.unpack_from(timex)[-1]
    return not status & _UNSYNCHRONISED


_CLOCK: Final = "sys/devices/system/clocksource/clocksource0"
_DMI: Final = ("sys_vendor", "product_name")
_CONTAINERS: Final = (".dockerenv", "run/.containerenv", "run/systemd/container")
_NO_OPTIONS: Final = ("upperdir=", "lowerdir=", "workdir=")
"""Directories of an overlay: long, and of no consequence."""
_WORD: Final = re.compile(r"^([^\t:]+?)\s*:\s*(.*)$", re.MULTILINE)


def read_setup(
    root: Path,
    at_s: float,
    devices: Mapping[str, tuple[str, ...]],
    directories: Mapping[str, str],
    namespace: MountNamespace | None = None,
) -> MachineSetup:
    """Return the setup of the machine; a file that cannot be read leaves its field empty.

    Looks at directories of the server, and waits for one that does not answer: call it in a thread of its own.

    Args:
        root: Where /proc and /sys are found.
        at_s: The time it is read.
        devices: Roles by name in /proc/diskstats.
        directories: The server's, by role.
        namespace: The server's mounts; None for ours.
    """
    cpuinfo = file_text(root / "proc/cpuinfo")
    fields = _WORD.findall(cpuinfo)
    models = [value for name, value in fields if name in ("model name", "cpu model", "Model")]
    sockets = {value for name, value in fields if name == "physical id"}
    return MachineSetup(
        at_s=at_s,
        cpu_model=" ".join(models[0].split()) if models else "",
        sockets=len(sockets) or None,
        virtualisation=_virtualisation(root, cpuinfo),
        clock_source=file_text(root / _CLOCK / "current_clocksource"),
        settings=tuple(_settings(root)),
        disks=tuple(_disk(name, roles, root) for name, roles in devices.items() if queue(name, root).is_dir()),
        mounts=tuple(_mounts(directories, namespace or namespace_of(None, root))),
    )


def _virtualisation(root: Path, cpuinfo: str) -> str:
    kinds = []
    hypervisor = file_text(root / "sys/hypervisor/type")
    if _virtual(cpuinfo) or hypervisor:
        model = " ".join(filter(None, (file_text(root / "sys/class/dmi/id" / name) for name in _DMI)))
        kinds.append(model or hypervisor or "hypervisor")
    if any((root / path).exists() for path in _CONTAINERS):
        kinds.append("container")
    return ", ".join(kinds)


def _settings(root: Path) -> Iterator[SetValue]:
    for name in names(root):
        try:
            yield SetValue(name, live_value(path_of(name), root))
        except OSError:
            continue


def _disk(name: str, roles: tuple[str, ...], root: Path) -> DiskSetup:
    files = queue(name, root)
    device = files.parent
    model = " ".join(filter(None, (file_text(device / "device" / word) for word in ("vendor", "model"))))
    sectors = _number(device / "size")
    return DiskSetup(
        name=name,
        roles=roles,
        model=model,
        size_bytes=None if sectors is None else sectors * 512,
        rotational={"0": False, "1": True}.get(file_text(files / "rotational")),
        write_cache=file_text(files / "write_cache"),
        scheduler=bracketed(file_text(files / "scheduler")),
        read_ahead_kb=_number(files / "read_ahead_kb"),
        nr_requests=_number(files / "nr_requests"),
    )


def _mounts(directories: Mapping[str, str], namespace: MountNamespace) -> Iterator[MountSetup]:
    for role, directory in directories.items():
        mount = namespace.mount(directory)
        if mount is not None:
            options = {*mount.flags, *mount.options}
            yield MountSetup(
                role, mount.kind, tuple(sorted(option for option in options if not option.startswith(_NO_OPTIONS)))
            )


def _number(path: Path) -> int | None:
    text = file_text(path)
    return int(text) if text.isascii() and text.isdecimal() else None


# Settings of the machine and the postmaster, for checks and advice, read once.
# Sources: Documentation/admin-guide/sysctl, ABI/stable/sysfs-block, ABI/testing/sysfs-devices-system-clocksource,
# proc_pid_oom_score_adj(5), proc_pid_limits(5), proc_pid_mountinfo(5).

_DATA: Final = "data"
_PARTS: Final = (
    "base",
    "global",
    "pg_xact",
    "pg_multixact",
    "pg_commit_ts",
    "pg_twophase",
    "pg_logical",
    "pg_replslot",
)
"""Directories of the data directory that must not be lost, besides pg_wal."""
_MAGIC: Final = re.compile(rb"(.{4})" + b"".join(number.to_bytes(4, "little") for number in (100, 32, 64)), re.DOTALL)
"""Version / 100, FUNC_MAX_ARGS, INDEX_MAX_KEYS and NAMEDATALEN of Pg_magic_struct (fmgr.h)."""
_LIBRARY_BYTES: Final = 64 << 20
_FLUSHES_NOTHING: Final = re.compile(r"/\S*/(?:libeatmydata|nosync|libnosync)\.so\S*")
NO_POSTMASTER: Final = Unavailable(Reason.NO_PERMISSION, "the postmaster process is unknown")


def machine_details(
    root: Path, devices: Iterable[str], directories: Mapping[str, str], postmaster_pid: int | None
) -> MachineDetails:
    """Return the settings of the machine and the postmaster. Looks into directories of the server: call it in a thread
    of its own.

    Args:
        root: Where /proc, /sys and /etc are found.
        devices: Disks under the server's directories.
        directories: Role → absolute path.
        postmaster_pid: None where it is not known.
    """
    names = tuple(devices)
    facts = machine_facts(root)
    namespace = namespace_of(postmaster_pid, root)
    mounts = {role: namespace.mount(directory) for role, directory in directories.items()}
    mounts |= dict(_apart(directories.get(_DATA), mounts.get(_DATA), namespace))
    return MachineDetails(
        settings=settings(root, names),
        queues=block_devices.disks(names, root),
        mounts=tuple(_with_kind_below(mount, root) for mount in mount_points(mounts)),
        unplaced=tuple(role for role, mount in mounts.items() if mount is None and namespace.mounts),
        postmaster=(
            NO_POSTMASTER
            if postmaster_pid is None
            else or_why(lambda: _postmaster(postmaster_pid, root), f"no process {postmaster_pid} here")
        ),
        clock_source=file_text(root / _CLOCK / "current_clocksource"),
        clock_sources=tuple(file_text(root / _CLOCK / "available_clocksource").split()),
        numa_nodes=facts.numa_nodes,
        huge_page_bytes=facts.huge_page_bytes,
        virtual=_virtual(file_text(root / "proc/cpuinfo")),
        clock_in_step=clock_in_step() if root == block_devices.ROOT else None,
    )


def _apart(data: str | None, mount: Mount | None, namespace: MountNamespace) -> Iterator[tuple[str, Mount]]:
    """Yield parts of the data directory that lie elsewhere, by a link or a mount of their own."""
    for part in _PARTS if data is not None and mount is not None else ():
        elsewhere = namespace.mount(f"{data}/{part}")
        if elsewhere is not None and elsewhere != mount:
            yield f"{_DATA}/{part}", elsewhere


def _with_kind_below(mount: MountPoint, root: Path) -> MountPoint:
    """Return a mount with the kind of its device: a file (loop), or memory (brd, zram)."""
    device = Path(mount.source).name if mount.source.startswith("/dev/") else ""
    if device.startswith(("ram", "zram")):
        return replace(mount, kind_below="ramfs")
    file = file_text(root / "sys/block" / device / "loop/backing_file") if device.startswith("loop") else ""
    below = namespace_of(None, root).mount(file) if file else None
    return mount if below is None else replace(mount, kind_below=below.kind)


def _postmaster(pid: int, root: Path) -> PostmasterFacts:
    home = root / f"proc/{pid}"
    soft, hard = parse_limit(read_once(home / "limits").decode(errors="replace"))
    children = file_text(home / f"task/{pid}/children").split()
    adjusted = [file_text(root / f"proc/{child}/oom_score_adj") for child in children]
    adjustments = [int(value) for value in adjusted if value]
    return PostmasterFacts(
        oom_score_adj=int(read_once(home / "oom_score_adj")),
        children_adj=max(adjustments, default=None),
        open_files_soft=soft,
        open_files_hard=hard,
        stderr=link_of(home / "fd/2"),
        no_flushes=_no_flushes(home),
    )


def _no_flushes(home: Path) -> str:
    """Return the library that a process has in place of fsync, and which does nothing."""
    library = _FLUSHES_NOTHING.search(file_text(home / "maps"))
    return library[0] if library else ""


def library_major(path: str, namespace: MountNamespace) -> int | None:
    """Return the major version that a library is made for, without loading it; None where that is not known."""
    try:
        real = namespace.real_path(path)
        if real is None or not 0 < namespace.stat(real).st_size <= _LIBRARY_BYTES:
            return None
        with namespace.open_file(real) as file:
            content = file.read(_LIBRARY_BYTES)
    except OSError:
        return None
    numbers = {int.from_bytes(number, "little") for number in _MAGIC.findall(content)}
    majors = {number // 100 for number in numbers if number % 100 == 0 and 900 <= number <= 9900}
    return majors.pop() if len(majors) == 1 else None


def mount_points(mounts: Mapping[str, Mount | None]) -> tuple[MountPoint, ...]:
    """Return the mounts that hold something, each once with its roles.

    Args:
        mounts: By role; None where it cannot be told.
    """
    return tuple(
        MountPoint(
            point=mount.point,
            kind=mount.kind,
            source=mount.source,
            options=tuple(dict.fromkeys((*mount.flags, *mount.options))),
            roles=names,
        )
        for mount, names in by_place(mounts.items()).items()
    )


def _virtual(cpuinfo: str) -> bool | None:
    flags = next((line for line in cpuinfo.splitlines() if line.startswith("flags")), None)
    return None if flags is None else "hypervisor" in flags.split()


_NODES: Final = "sys/devices/system/node"
_NODE: Final = re.compile(r"node\d+")


class MachineFacts(Struct, frozen=True):
    """Memory of a machine; None where it is not known.

    Attributes:
        ram_bytes: MemTotal.
        swap_bytes: SwapTotal.
        huge_page_bytes: The default size of huge pages.
        numa_nodes: Number of nodes; 1 in a kernel without NUMA.
    """

    ram_bytes: int | None
    swap_bytes: int | None
    huge_page_bytes: int | None
    numa_nodes: int


def machine_facts(root: Path) -> MachineFacts:
    """Return the memory and the NUMA nodes of this machine.

    Args:
        root: Where /proc and /sys are found.
    """
    try:
        memory = parse_meminfo(0.0, read_once(root / "proc/meminfo"))
    except (OSError, ValueError):
        memory = None
    return MachineFacts(
        ram_bytes=None if memory is None else memory.total_bytes,
        swap_bytes=None if memory is None else memory.swap_total_bytes,
        huge_page_bytes=default_page_bytes(root),
        numa_nodes=max(sum(1 for path in (root / _NODES).glob("node*") if _NODE.fullmatch(path.name)), 1),
    )
