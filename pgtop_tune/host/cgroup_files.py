"""Control groups, versions 1 and 2. Source: Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/{memory,cpuacct}.rst,
Documentation/scheduler/sched-bwc.rst.

A limit may stand at any level above the server: each is read at all of them, and the tightest counts. CPUs that the
server may run on, by a cpuset or sched_setaffinity(2): Cpus_allowed_list of proc_pid_status(5).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from msgspec import Struct

from pgtop_tune.host.kernel_sections import parse_id_list
from pgtop_tune.host.kernel_text import NO_LIMITS, unsigned
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.machine import CgroupSample
from pgtop_tune.process.mount_namespace import Mount

Read = Callable[[str], bytes]
"""Content of a file by its path without the leading slash; raises OSError."""

N = TypeVar("N", int, float)

_LEVELS_MOST: Final = 16
_UNLIMITED_FROM: Final = 1 << 60
"""Version 1 writes the largest number of whole pages for "no limit"."""
_MEMORY_FILES: Final = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.failcnt", "memory.oom_control"),
    2: ("memory.max", "memory.high", "memory.current", "memory.events"),
}
_CPU_FILES: Final = {1: ("cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.stat"), 2: ("cpu.max", "cpu.stat")}
_PRESSURE_FILES: Final = ("io.pressure", "memory.pressure")
_ONLINE: Final = "sys/devices/system/cpu/online"
_ALLOWED: Final = re.compile(rb"^Cpus_allowed_list:\s*([0-9,-]+)$", re.MULTILINE)
_TOTAL: Final = re.compile(rb"^(some|full) [^\n]*\btotal=(\d+)$", re.MULTILINE)


def parse_membership(cgroup: bytes) -> dict[str, str]:
    """Return the path by controller of a /proc/PID/cgroup; "" is the unified hierarchy of version 2."""
    paths: dict[str, str] = {}
    for line in cgroup.split(b"\n"):
        fields = line.split(b":", 2)
        if len(fields) == 3:
            for controller in fields[1].split(b","):
                paths[controller.decode("ascii", "replace")] = fields[2].decode("utf-8", "surrogateescape")
    return paths


class _Hierarchy(Struct, frozen=True):
    """Place of a controller's files. A machine can have some controllers in version 1 and others in version 2.

    Attributes:
        levels: See `_levels`.
        path: The group.
    """

    version: int
    levels: tuple[str, ...]
    path: str


class ServerGroup:
    """The files of one process's control groups, and those of the CPUs it may run on.

    Args:
        membership: Result of `parse_membership` of its /proc/PID/cgroup.
        mounts: Mounts of the process.
        process: The process as a directory of /proc.

    Attributes:
        paths: Every file that `sample` may ask for.
    """

    def __init__(self, membership: Mapping[str, str], mounts: Sequence[Mount], process: str = "self") -> None:
        self._memory, self._cpu = (_hierarchy(name, membership, mounts) for name in ("memory", "cpu"))
        self.path = max(self._memory.path, self._cpu.path, key=len)
        self._leaf = self._memory.levels[0] if self._memory.version == 2 and self._memory.levels else None
        self._status = f"proc/{process}/status"
        self.paths: Final = tuple(
            dict.fromkeys(
                [f"{level}/{name}" for level in self._memory.levels for name in _MEMORY_FILES[self._memory.version]]
                + [f"{level}/{name}" for level in self._cpu.levels for name in _CPU_FILES[self._cpu.version]]
                + [f"{self._leaf}/{name}" for name in _PRESSURE_FILES if self._leaf]
                + [self._status, _ONLINE]
            )
        )

    def sample(self, at_s: float, read: Read) -> CgroupSample | Unavailable:
        """Return the limits and how often they were reached; Unavailable in the root group, which has none.

        Args:
            at_s: Time of the reading.
            read: See `Read`.

        Raises:
            ValueError: A file is not what the kernel writes.
        """
        files = _Files(read)
        old_memory, old_cpu = self._memory.version == 1, self._cpu.version == 1
        memory_levels = self._memory.levels
        memory_at, memory_max = _tightest(memory_levels, files.memory_max_v1 if old_memory else files.memory_max)
        cpu_at, quota = _tightest(self._cpu.levels, files.cpu_quota_v1 if old_cpu else files.cpu_quota)
        allowed = files.cpus_allowed(self._status)
        if memory_max is None and quota is None and allowed is None and self.path == "/":
            return Unavailable(Reason.NOT_SUPPORTED, NO_LIMITS)
        _, high = (
            (None, None) if old_memory else _tightest(memory_levels, lambda level: files.number(f"{level}/memory.high"))
        )
        events = files.words(f"{memory_at}/{'memory.oom_control' if old_memory else 'memory.events'}")
        cpu = files.words(f"{cpu_at}/cpu.stat")
        throttled = cpu.get("throttled_time" if old_cpu else "throttled_usec")
        usage = "memory.usage_in_bytes" if old_memory else "memory.current"
        io, memory = (files.stalls(f"{self._leaf}/{name}") if self._leaf else {} for name in _PRESSURE_FILES)
        return CgroupSample(
            at_s=at_s,
            path=self.path,
            version=max(self._memory.version, self._cpu.version),
            memory_max_bytes=memory_max,
            memory_high_bytes=high,
            memory_bytes=files.number(f"{memory_at}/{usage}"),
            memory_max_events=files.number(f"{memory_at}/memory.failcnt") if old_memory else events.get("max"),
            oom_kills=events.get("oom_kill"),
            cpu_quota_cores=quota,
            cpu_periods=cpu.get("nr_periods"),
            cpu_throttled_periods=cpu.get("nr_throttled"),
            cpu_throttled_us=throttled // 1000 if old_cpu and throttled is not None else throttled,
            cpu_used_us=cpu.get("usage_usec"),
            io_some_us=io.get("some"),
            io_full_us=io.get("full"),
            memory_some_us=memory.get("some"),
            memory_full_us=memory.get("full"),
            cpus_allowed=allowed,
        )


def _hierarchy(controller: str, membership: Mapping[str, str], mounts: Sequence[Mount]) -> _Hierarchy:
    """Return the hierarchy that has the controller: one of version 1 that names it, else the unified one."""
    old = next((mount.point for mount in mounts if mount.kind == "cgroup" and controller in mount.options), None)
    if old is not None and controller in membership:
        return _Hierarchy(version=1, levels=_levels(old, membership[controller]), path=membership[controller])
    unified, path = next((mount.point for mount in mounts if mount.kind == "cgroup2"), None), membership.get("", "/")
    return _Hierarchy(version=2, levels=_levels(unified, path), path=path)


def _levels(mount: str | None, path: str) -> tuple[str, ...]:
    """Return the directories from the group up to the mount, without the leading slash. Those that a container hides do
    not exist."""
    if mount is None:
        return ()
    names = [name for name in path.split("/") if name][: _LEVELS_MOST - 1]
    return tuple("/".join((mount, *names[:depth])).lstrip("/") for depth in range(len(names), -1, -1))


def _tightest(levels: Sequence[str], limit: Callable[[str], N | None]) -> tuple[str | None, N | None]:
    """Return the level with the lowest limit, and the limit; the lowest level and None when there is no limit."""
    limits = [(value, -depth, level) for depth, level in enumerate(levels) if (value := limit(level)) is not None]
    if not limits:
        return (levels[0] if levels else None), None
    value, _, level = min(limits)
    return level, value


class _Files:
    """Values of control files; None for what is not there, cannot be read or says "max"."""

    def __init__(self, read: Read) -> None:
        self._read = read

    def _content(self, path: str) -> bytes:
        try:
            return self._read(path)
        except OSError:
            return b""

    def number(self, path: str) -> int | None:
        word = self._content(path).strip()
        return unsigned(word) if word and word != b"max" else None

    def words(self, path: str) -> dict[str, int]:
        """Return a file of lines "name number" as a mapping."""
        return {
            pair[0].decode("ascii", "replace"): unsigned(pair[1])
            for line in self._content(path).split(b"\n")
            if len(pair := line.split()) == 2
        }

    def stalls(self, path: str) -> dict[str, int]:
        return {kind.decode(): unsigned(total) for kind, total in _TOTAL.findall(self._content(path))}

    def memory_max(self, level: str) -> int | None:
        return self.number(f"{level}/memory.max")

    def memory_max_v1(self, level: str) -> int | None:
        limit = self.number(f"{level}/memory.limit_in_bytes")
        return None if limit is None or limit >= _UNLIMITED_FROM else limit

    def cpus_allowed(self, status: str) -> int | None:
        """Return how many CPUs a process may run on; None where these are all that are on-line."""
        listed = _ALLOWED.search(self._content(status))
        online = len(parse_id_list(self._content(_ONLINE)))
        if listed is None or not online:
            return None
        # The list may name CPUs that are off-line; and lxcfs numbers those on-line anew, but not these.
        allowed = len(parse_id_list(listed[1]))
        return allowed if 0 < allowed < online else None

    def cpu_quota(self, level: str) -> float | None:
        quota_and_period = self._content(f"{level}/cpu.max").split()
        return (
            None
            if len(quota_and_period) != 2 or quota_and_period[0] == b"max"
            else unsigned(quota_and_period[0]) / max(unsigned(quota_and_period[1]), 1)
        )

    def cpu_quota_v1(self, level: str) -> float | None:
        quota = self._content(f"{level}/cpu.cfs_quota_us").strip()
        period = self.number(f"{level}/cpu.cfs_period_us")
        return None if not quota.isdigit() or not period else unsigned(quota) / period
