"""Which CPUs a copy and its load run on: by control groups where we may make them, else by the processes' affinity.

Source: Documentation/admin-guide/cgroup-v2.rst (cpuset, io.weight), cgroup-v1/cpusets.rst, sched_setaffinity(2).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.experiment.twin.processes import bind, tree
from pgtop_tune.host.cgroup_files import parse_membership
from pgtop_tune.host.kernel_text import read_once
from pgtop_tune.host.mounts import Mount, parse_mountinfo
from pgtop_tune.process.process_key import key_of, own_key

_NAME: Final = "pgtop-tune-twin-{pid}-{start}-{number}"
_OURS: Final = re.compile(r"pgtop-tune-twin-(\d+)-(\d+)-\d+")
_CPUSET: Final = "cpuset"
_BALANCE: Final = "cpuset.sched_load_balance"
_numbers = count(1)
_ROUNDS: Final = 2
"""A child that is forked while we look is moved in the next one."""


class GroupParent(Struct, frozen=True):
    """A control group in which groups for the copies can be made.

    Attributes:
        path: Its directory.
        version: 1 or 2.
    """

    path: Path
    version: int


def parent_of(mounts: Sequence[Mount], membership: Mapping[str, str]) -> GroupParent | None:
    """The group nearest to us that hands the controller cpuset down; None without one.

    Args:
        membership: Controller → path, of this process.
    """
    for mount in mounts:
        if mount.kind == "cgroup" and _CPUSET in mount.options:
            return GroupParent(_level(mount, membership.get(_CPUSET, "/")), 1)
    unified = next((mount for mount in mounts if mount.kind == "cgroup2"), None)
    if unified is None:
        return None
    own = _level(unified, membership.get("", "/"))
    root = Path(unified.point)
    for path in (own, *own.parents):
        if path.is_relative_to(root) and _CPUSET in _read(path / "cgroup.subtree_control").split():
            return GroupParent(path, 2)
    return None


def _level(mount: Mount, path: str) -> Path:
    return Path(mount.point, path.lstrip("/"))


def _read(path: Path) -> str:
    try:
        return read_once(path).decode("ascii", "replace")
    except OSError:
        return ""


class Placement:
    """Keeps two copies apart. All calls come from one thread.

    Args:
        parent: Where groups may be made; None binds processes one by one.

    Attributes:
        groups: Of the copies; () where their processes are bound one by one.
        io: The disks are shared out by weight, evenly.
        why: Why there are no groups; "" where there are.
    """

    def __init__(self, parent: GroupParent | None) -> None:
        self.groups: tuple[Path, ...] = ()
        self.io = False
        self.why = "no control group here hands cpuset down" if parent is None else ""
        self._pids: list[tuple[int, ...]] = [(), ()]
        self._moved = [False, False]
        self._parent: Final = parent
        if parent is not None:
            _remove_leftovers(parent.path)
            self._make(parent)

    @classmethod
    def here(cls) -> Placement:
        """By the groups of this process, and of its rights."""
        try:
            mounts = parse_mountinfo(read_once("/proc/self/mountinfo"))
            membership = parse_membership(read_once("/proc/self/cgroup"))
        except OSError:
            return cls(None)
        return cls(parent_of(mounts, membership))

    def _make(self, parent: GroupParent) -> None:
        key = own_key()
        try:
            for _ in self._pids:
                group = parent.path / _NAME.format(pid=key.pid, start=key.start_ticks, number=next(_numbers))
                group.mkdir()
                self.groups = (*self.groups, group)
                if parent.version == 1:
                    (group / "cpuset.mems").write_text(_read(parent.path / "cpuset.mems"))
                    if _read(parent.path / _BALANCE).strip() == "1":
                        # The scheduling domain above covers the group; one of its own is made anew at each exchange.
                        (group / _BALANCE).write_text("0")
            self.io = all(_weighed(group) for group in self.groups)
        except OSError as problem:
            self._give_up(f"control groups cannot be made in {parent.path}: {problem.strerror}")

    def _give_up(self, why: str) -> None:
        groups, self.groups, self.io, self.why = self.groups, (), False, why
        for group in groups:
            if self._parent is not None:
                for pid in _read(group / "cgroup.procs").split():
                    try:
                        (self._parent.path / "cgroup.procs").write_text(pid)
                    except OSError:
                        continue
            _remove(group)

    def enter(self, copy: int, pids: Sequence[int]) -> None:
        """These processes and all that descends from them are this copy's, `give` comes next."""
        self._pids[copy], self._moved[copy] = tuple(pids), False

    def give(self, copy: int, cpus: Sequence[int]) -> None:
        """Lets a copy run on these CPUs only.

        Raises:
            PermissionError: Its processes are another user's.
        """
        if self.groups:
            try:
                self._give_group(self.groups[copy], () if self._moved[copy] else self._pids[copy], cpus)
            except OSError as problem:
                self._give_up(f"processes cannot be put into a control group: {problem.strerror}")
            else:
                self._moved[copy] = True
                return
        bind(self._pids[copy], cpus)

    def _give_group(self, group: Path, pids: Sequence[int], cpus: Sequence[int]) -> None:
        (group / "cpuset.cpus").write_text(",".join(map(str, cpus)))
        for _ in range(_ROUNDS if pids else 0):
            for pid in (each for root in pids for each in tree(root)):
                try:
                    (group / "cgroup.procs").write_text(str(pid))
                except ProcessLookupError:
                    continue

    def close(self) -> None:
        """Removes the groups; nothing runs in them."""
        for group in self.groups:
            _remove(group)

    @property
    def words(self) -> str:
        """How the copies are kept apart."""
        if not self.groups:
            return f"by CPU affinity ({self.why})"
        return "by control groups" + (", the disks by even weight" if self.io else ", the disks shared")


def _weighed(group: Path) -> bool:
    """Whether the disks are shared out by weight; siblings of the same weight have as much."""
    weight = group / "io.weight"
    try:
        # It is there or not: it is not made.
        with weight.open("r+") as file:
            file.write("default 100")
    except OSError:
        return False
    return True


def _remove(group: Path) -> None:
    try:
        group.rmdir()
    except OSError:
        # Processes on their way out hold it: the next start removes it.
        return


def _remove_leftovers(parent: Path) -> None:
    """Groups of programs that were killed."""
    try:
        names = os.listdir(parent)
    except OSError:
        return
    for name in names:
        if (found := _OURS.fullmatch(name)) is not None:
            key = key_of(int(found[1]))
            if key is None or key.start_ticks != int(found[2]):
                _remove(parent / name)
