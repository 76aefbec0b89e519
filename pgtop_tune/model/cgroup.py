"""Limits that a control group sets on the server, and how often it ran into them."""

from __future__ import annotations

from msgspec import Struct


class CgroupSample(Struct, frozen=True):
    """The postmaster's control group. Limits are the tightest of the group and those above it.

    Attributes:
        path: The group: "/system.slice/postgresql.service".
        version: 1 or 2.
        memory_max_bytes: memory.max (v2), memory.limit_in_bytes (v1); None without a limit, as all limits here.
        memory_high_bytes: memory.high (v2): throttled reclaim begins there.
        memory_bytes: memory.current, memory.usage_in_bytes of the group that sets the limit; page cache included.
        memory_max_events: How often the limit was hit (`max` of memory.events; memory.failcnt).
        oom_kills: `oom_kill` of memory.events or memory.oom_control.
        cpu_quota_cores: cpu.max or cfs_quota_us ÷ cfs_period_us: how many CPUs' worth of time it may use.
        cpu_periods: `nr_periods` of cpu.stat of the group that sets the CPU limit.
        cpu_throttled_periods: `nr_throttled`.
        cpu_throttled_us: `throttled_usec` (v2), `throttled_time` (v1): summed over its CPUs.
        cpu_used_us: `usage_usec` (v2); None in v1.
        io_some_us, io_full_us: `total` of the group's io.pressure; None where there is none (v1, psi off).
        memory_some_us, memory_full_us: The same of memory.pressure.
    """

    at_s: float
    path: str
    version: int
    memory_max_bytes: int | None
    memory_high_bytes: int | None
    memory_bytes: int | None
    memory_max_events: int | None
    oom_kills: int | None
    cpu_quota_cores: float | None
    cpu_periods: int | None
    cpu_throttled_periods: int | None
    cpu_throttled_us: int | None
    cpu_used_us: int | None
    io_some_us: int | None
    io_full_us: int | None
    memory_some_us: int | None
    memory_full_us: int | None
