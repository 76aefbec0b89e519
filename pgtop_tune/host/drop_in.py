"""Our file in /etc/sysctl.d: one line per setting, written whole or not at all, put back to the byte.

What the kernel starts with where no file and no command line says otherwise.
Sources: mm/vmscan.c (vm_swappiness, node_reclaim_mode), mm/page-writeback.c, mm/util.c (sysctl_overcommit_*),
mm/hugetlb.c, mm/khugepaged.c. What depends on the machine or on how the kernel was built is not among them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pgtop_tune.errors import HostProblem
from pgtop_tune.host.sysctl_files import dotted
from pgtop_tune.model.system_setting import SystemSetting
from pgtop_tune.paths import opened

PATH: Final = "etc/sysctl.d/99-pgtop-tune.conf"

_TEMPORARY: Final = ".new"
"""Not .conf: nobody reads it at boot."""


def content(path: Path) -> str | None:
    """What the file holds, byte for byte (surrogateescape); None when there is none.

    Raises:
        HostProblem: It is there and cannot be read, or is a link to another file.
    """
    try:
        with opened(path, links=False) as file:
            return file.read().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise HostProblem(f"{path} cannot be read: {problem.strerror}", "it must be a file of its own") from None


def with_value(before: str | None, name: str, value: str) -> str:
    """The content with a value for a name: in the place of the line that sets it, else as a new last line."""
    lines = (before or "").split("\n")
    line = f"{name} = {value}"
    own = _own(lines, name)
    if own:
        lines[own[-1]] = line
        return "\n".join(lines)
    if lines[-1] == "":
        lines.pop()
    return "\n".join([*lines, line, ""])


def without_value(now: str, name: str, before: str | None) -> str | None:
    """The content after somebody else edited it: our line as it was before, or gone; None when nothing is left."""
    lines = now.split("\n")
    previous = [line for line in (before or "").split("\n") if _name(line) == name]
    for number in _own(lines, name)[-1:]:
        lines[number : number + 1] = previous[-1:]
    left = "\n".join(lines)
    return left if left.strip() or before is not None else None


def replace(path: Path, text: str | None) -> None:
    """Writes the file anew and whole, or removes it; it is on the disk when this returns.

    Raises:
        HostProblem: It could not be; the file is as it was.
    """
    try:
        if text is None:
            path.unlink(missing_ok=True)
        else:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            _written(path.with_name(path.name + _TEMPORARY), text, path)
        _synced(path.parent)
    except OSError as problem:
        raise HostProblem(f"{path} cannot be written: {problem.strerror}") from None


def without_remains(path: Path) -> None:
    """Removes what a crash in the middle of writing the file may have left beside it.

    Raises:
        HostProblem: It could not be removed.
    """
    try:
        path.with_name(path.name + _TEMPORARY).unlink(missing_ok=True)
    except OSError as problem:
        raise HostProblem(f"{path}{_TEMPORARY} cannot be removed: {problem.strerror}") from None


def _written(new: Path, text: str, path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text.encode("utf-8", "surrogateescape"))
            file.flush()
            os.fsync(file.fileno())
        os.rename(new, path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def _synced(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _own(lines: list[str], name: str) -> list[int]:
    return [number for number, line in enumerate(lines) if _name(line) == name]


def _name(line: str) -> str:
    key, equals, _ = line.strip().partition("=")
    return dotted(key.strip().removeprefix("-").strip()) if equals and key[:1] not in "#;" else ""


DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "vm.nr_hugepages": "0",
        "vm.swappiness": "60",
        "vm.dirty_background_bytes": "0",
        "vm.dirty_background_ratio": "10",
        "vm.dirty_bytes": "0",
        "vm.dirty_ratio": "20",
        "vm.dirty_expire_centisecs": "3000",
        "vm.dirty_writeback_centisecs": "500",
        "vm.overcommit_memory": "0",
        "vm.overcommit_ratio": "50",
        "vm.overcommit_kbytes": "0",
        "vm.zone_reclaim_mode": "0",
    }
)


def starts_with(setting: SystemSetting) -> str | None:
    """What the machine would start with if our file of sysctl.d were not there; None where that is not known."""
    others = [each.value for each in setting.after_reboot.assignments if each.file != f"/{PATH}"]
    return others[-1] if others else DEFAULTS.get(setting.name)
