"""Memory per NUMA node, and CPU frequency per policy: what a big machine has many of."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from pgtop_tune.model.recorded_as import Keyed


class NumaNode(Struct, frozen=True):
    """/sys/devices/system/node/nodeN: meminfo in bytes, numastat in pages since boot.

    Attributes:
        hit_pages: Allocated here as wanted.
        miss_pages: Allocated here although another node was wanted.
        foreign_pages: Wanted here and allocated on another node.
        huge_pages, huge_pages_free: Pool of the default size on this node.
    """

    node: int
    total_bytes: int
    free_bytes: int
    file_bytes: int
    anon_bytes: int
    shmem_bytes: int
    dirty_bytes: int
    huge_pages: int
    huge_pages_free: int
    hit_pages: int
    miss_pages: int
    foreign_pages: int


class NumaSample(Struct, frozen=True):
    """Every node with memory."""

    at_s: float
    nodes: Annotated[tuple[NumaNode, ...], Keyed("node")]


class CpuFrequency(Struct, frozen=True):
    """One frequency policy: /sys/devices/system/cpu/cpufreq/policyN, usually one core.

    Attributes:
        policy: "policy0".
        mhz: scaling_cur_freq.
        highest_mhz: cpuinfo_max_freq, turbo included.
        governor: scaling_governor: performance, powersave, schedutil, …
    """

    policy: str
    mhz: int
    highest_mhz: int
    governor: str


class FrequencySample(Struct, frozen=True):
    """Frequencies, every few seconds."""

    at_s: float
    policies: Annotated[tuple[CpuFrequency, ...], Keyed("policy")]
