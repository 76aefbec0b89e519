"""How this machine is set up: CPU, virtualisation, clock, settings, disks, mounts. Small files, read in a thread.

Sources: /proc/cpuinfo, /sys/class/dmi/id, /sys/hypervisor/type, /proc/1/cgroup and /.dockerenv, /run/.containerenv,
Documentation/ABI/stable/sysfs-block, proc_pid_mountinfo(5).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from pgtop_tune.host.block_queue import queue
from pgtop_tune.host.kernel_text import bytes_of, text_of
from pgtop_tune.host.mounts import Mount, mount_of, parse_mountinfo
from pgtop_tune.host.system_settings import live_value, names, path_of
from pgtop_tune.model.setup import DiskSetup, MachineSetup, MountSetup, SetValue

_CLOCK: Final = "sys/devices/system/clocksource/clocksource0/current_clocksource"
_DMI: Final = ("sys_vendor", "product_name")
_CONTAINERS: Final = (".dockerenv", "run/.containerenv", "run/systemd/container")
_NO_OPTIONS: Final = ("upperdir=", "lowerdir=", "workdir=")
"""Directories of an overlay: long, and of no consequence."""
_WORD: Final = re.compile(r"^([^\t:]+?)\s*:\s*(.*)$", re.MULTILINE)


def read_setup(
    root: Path, at_s: float, devices: Mapping[str, tuple[str, ...]], directories: Mapping[str, str]
) -> MachineSetup:
    """What there is to be known; what cannot be read is empty.

    Looks into directories of the server, which can hang on a dead network mount: call it in a thread of its own.

    Args:
        root: Where /proc and /sys are found.
        at_s: The time it is read.
        devices: Roles by name in /proc/diskstats.
        directories: The server's, by role.
    """
    cpuinfo = text_of(root / "proc/cpuinfo")
    found = _WORD.findall(cpuinfo)
    models = [value for name, value in found if name in ("model name", "cpu model", "Model")]
    sockets = {value for name, value in found if name == "physical id"}
    below = any("hypervisor" in value.split() for name, value in found if name == "flags")
    mounts = parse_mountinfo(bytes_of(root / "proc/self/mountinfo"))
    return MachineSetup(
        at_s=at_s,
        cpu_model=" ".join(models[0].split()) if models else "",
        sockets=len(sockets) or None,
        virtualisation=_virtualisation(root, below),
        clock_source=text_of(root / _CLOCK),
        settings=tuple(_settings(root)),
        disks=tuple(_disk(name, roles, root) for name, roles in devices.items() if queue(name, root).is_dir()),
        mounts=tuple(_mounts(directories, mounts)),
    )


def _virtualisation(root: Path, below: bool) -> str:
    words = []
    if below or text_of(root / "sys/hypervisor/type"):
        named = " ".join(filter(None, (text_of(root / "sys/class/dmi/id" / name) for name in _DMI)))
        words.append(named or text_of(root / "sys/hypervisor/type") or "hypervisor")
    if any((root / path).exists() for path in _CONTAINERS):
        words.append("container")
    return ", ".join(words)


def _settings(root: Path) -> Iterator[SetValue]:
    for name in names(root):
        try:
            yield SetValue(name, live_value(path_of(name), root))
        except OSError:
            continue


def _disk(name: str, roles: tuple[str, ...], root: Path) -> DiskSetup:
    files = queue(name, root)
    device = files.parent
    model = " ".join(filter(None, (text_of(device / "device" / word) for word in ("vendor", "model"))))
    sectors = _number(device / "size")
    return DiskSetup(
        name=name,
        roles=roles,
        model=model,
        size_bytes=None if sectors is None else sectors * 512,
        rotational={"0": False, "1": True}.get(text_of(files / "rotational")),
        write_cache=text_of(files / "write_cache"),
        scheduler=_chosen(text_of(files / "scheduler")),
        read_ahead_kb=_number(files / "read_ahead_kb"),
        nr_requests=_number(files / "nr_requests"),
    )


def _mounts(directories: Mapping[str, str], mounts: tuple[Mount, ...]) -> Iterator[MountSetup]:
    for role, directory in directories.items():
        mount = mount_of(os.path.realpath(directory), mounts)
        if mount is not None:
            options = {*mount.flags, *mount.options}
            yield MountSetup(
                role, mount.kind, tuple(sorted(each for each in options if not each.startswith(_NO_OPTIONS)))
            )


def _chosen(text: str) -> str:
    found = re.search(r"\[([^\]]+)\]", text)
    return found[1] if found else text


def _number(path: Path) -> int | None:
    text = text_of(path)
    return int(text) if text.isascii() and text.isdecimal() else None
