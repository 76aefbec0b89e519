"""Settings of the operating system worth tuning for a database server.

Sources: Documentation/admin-guide/sysctl/{vm,kernel}.rst, mm/{hugetlbpage,transhuge}.rst, mm/overcommit-accounting,
Documentation/block; PostgreSQL documentation, "Managing Kernel Resources".
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pgtop_tune.advice.knobs.knob import Knob

_HUGE: Final = "huge pages"
_DIRTY: Final = "dirty pages"
_MEMORY: Final = "memory"
_SCHEDULING: Final = "scheduling"
_DISKS: Final = "disks"
_WORDS: Final = ("always", "madvise", "never")
_NO_PAIR: Final = (("0", "the other parameter of the pair applies"),)

POOL: Final = "hugepages/nr_hugepages"
"""Stands for the pools of other than the default size: "hugepages-1048576kB/nr_hugepages"."""

KNOBS: Final[tuple[Knob, ...]] = (
    Knob(
        "vm.nr_hugepages",
        _HUGE,
        why="Pages of 2 MB for shared_buffers: each backend's page tables shrink 512-fold, and the TLB covers more.",
        trades="Memory that no other program can use, even while no server runs.",
        panes=("host", "latency"),
        special=(("0", "huge_pages=try silently continues without, huge_pages=on does not start"),),
        moves_with=("huge_pages", "shared_buffers", "vm.overcommit_ratio"),
        warning="The kernel grants as many contiguous pages as it finds; after a long uptime reserve them before the "
        "cache has grown, or at boot.",
    ),
    Knob(
        POOL,
        _HUGE,
        why="Pages of another size, such as 1 GB, for huge_page_size: useful for shared_buffers of many gigabytes.",
        trades="Memory that no other program can use; a server takes a whole page for its last remainder.",
        panes=("host", "latency"),
        special=(("0", "none of this size"),),
        moves_with=("huge_pages", "huge_page_size", "shared_buffers"),
        warning="Hardly ever available except at boot.",
    ),
    Knob(
        "transparent_hugepage/enabled",
        _HUGE,
        why="With always, the kernel creates huge pages itself, and stops processes to compact memory for them.",
        trades="Without it, large sorts and hashes have more page tables.",
        panes=("latency", "host"),
        steps=_WORDS,
        moves_with=("transparent_hugepage/defrag", "vm.min_free_kbytes"),
    ),
    Knob(
        "transparent_hugepage/defrag",
        _HUGE,
        why="Which processes wait for memory compaction: with always, each process that touches memory first.",
        trades="Fewer transparent huge pages.",
        panes=("latency", "host"),
        steps=("always", "defer", "defer+madvise", "madvise", "never"),
        moves_with=("transparent_hugepage/enabled",),
    ),
    Knob(
        "transparent_hugepage/khugepaged/defrag",
        _HUGE,
        why="Whether khugepaged moves pages in the background to create huge ones.",
        trades="Fewer transparent huge pages.",
        panes=("host",),
        steps=("0", "1"),
        moves_with=("transparent_hugepage/enabled",),
    ),
    Knob(
        "vm.dirty_background_bytes",
        _DIRTY,
        why="Amount of dirty pages that starts writeback; less leaves less work for a checkpoint's fsync.",
        trades="More writes of pages that change again soon.",
        panes=("host", "latency", "wal"),
        steps=("33554432", "67108864", "134217728", "268435456", "536870912", "1073741824"),
        from_zero="67108864",
        special=_NO_PAIR,
        moves_with=("vm.dirty_background_ratio", "vm.dirty_bytes", "checkpoint_flush_after"),
    ),
    Knob(
        "vm.dirty_background_ratio",
        _DIRTY,
        why="vm.dirty_background_bytes as a percentage of available memory; on a large machine even 1 % is too much.",
        trades="As vm.dirty_background_bytes.",
        panes=("host", "latency", "wal"),
        steps=("1", "2", "3", "5", "10"),
        special=_NO_PAIR,
        moves_with=("vm.dirty_background_bytes",),
    ),
    Knob(
        "vm.dirty_bytes",
        _DIRTY,
        why="Amount of dirty pages at which writers must wait for the disk: the cliff in the latency.",
        trades="Too little makes every writer wait; too much makes the wait long.",
        panes=("host", "latency", "wal"),
        steps=("134217728", "268435456", "536870912", "1073741824", "2147483648", "4294967296"),
        from_zero="536870912",
        special=_NO_PAIR,
        moves_with=("vm.dirty_ratio", "vm.dirty_background_bytes"),
    ),
    Knob(
        "vm.dirty_ratio",
        _DIRTY,
        why="vm.dirty_bytes as a percentage of available memory.",
        trades="As vm.dirty_bytes.",
        panes=("host", "latency", "wal"),
        steps=("3", "5", "10", "15", "20", "30", "40"),
        special=_NO_PAIR,
        moves_with=("vm.dirty_bytes",),
    ),
    Knob(
        "vm.dirty_expire_centisecs",
        _DIRTY,
        why="Age at which the kernel writes back a dirty page, in hundredths of a second.",
        trades="More writes of pages that change again soon.",
        panes=("host", "latency"),
        steps=("100", "500", "1000", "3000", "6000"),
        moves_with=("vm.dirty_writeback_centisecs",),
    ),
    Knob(
        "vm.dirty_writeback_centisecs",
        _DIRTY,
        why="Time between two writeback rounds of the kernel, in hundredths of a second.",
        trades="Wake-ups.",
        panes=("host",),
        steps=("100", "200", "500", "1000"),
        special=(("0", "never automatically"),),
        moves_with=("vm.dirty_expire_centisecs",),
    ),
    Knob(
        "vm.swappiness",
        _MEMORY,
        why="How readily the kernel swaps out process memory to cache more files; a database rarely benefits.",
        trades="Less cache for files when memory is short.",
        panes=("host", "latency"),
        steps=("0", "1", "5", "10", "30", "60", "100"),
        special=(("0", "only to avoid running out of memory, close to the OOM killer"),),
    ),
    Knob(
        "vm.overcommit_memory",
        _MEMORY,
        why="With 2 an allocation beyond the limit fails: one query gets an error instead of a killed server.",
        trades="Fails programs that reserve much and use little; vm.overcommit_ratio must fit.",
        panes=("host",),
        steps=("0", "1", "2"),
        special=(("0", "heuristic"), ("1", "grant everything"), ("2", "up to CommitLimit")),
        moves_with=("vm.overcommit_ratio", "vm.nr_hugepages"),
        warning="Before setting 2, check that Committed_AS is well below the future CommitLimit; otherwise no new "
        "process starts, not even a shell.",
    ),
    Knob(
        "vm.overcommit_ratio",
        _MEMORY,
        why="CommitLimit with vm.overcommit_memory=2: this share of memory outside huge pages, plus all swap.",
        trades="Too low leaves memory unused; too high brings back the OOM killer.",
        panes=("host",),
        steps=("50", "60", "70", "80", "90", "95", "100"),
        special=_NO_PAIR,
        moves_with=("vm.overcommit_memory", "vm.overcommit_kbytes", "vm.nr_hugepages"),
    ),
    Knob(
        "vm.overcommit_kbytes",
        _MEMORY,
        why="vm.overcommit_ratio as an amount in kilobytes.",
        trades="As vm.overcommit_ratio.",
        panes=("host",),
        special=_NO_PAIR,
        moves_with=("vm.overcommit_memory", "vm.overcommit_ratio"),
    ),
    Knob(
        "vm.min_free_kbytes",
        _MEMORY,
        why="Memory the kernel keeps free for itself; with too little, bursts of network and disk traffic wait.",
        trades="Memory lost to the cache.",
        panes=("host", "latency"),
        warning="Several percent of memory is too much: the kernel runs out of memory at once.",
    ),
    Knob(
        "vm.zone_reclaim_mode",
        _MEMORY,
        why="On, a NUMA node drops its file cache rather than use memory of another node.",
        trades="No benefit for a database: any value except 0 costs cache.",
        panes=("host", "latency"),
        steps=("0", "1"),
        special=(("0", "use memory of other nodes"),),
    ),
    Knob(
        "kernel.numa_balancing",
        _SCHEDULING,
        why="Moves memory to the node that uses it; all nodes use shared_buffers, so pages move for nothing.",
        trades="Memory of single backends may lie on the wrong node.",
        panes=("host", "latency"),
        steps=("0", "1"),
    ),
    Knob(
        "kernel.sched_autogroup_enabled",
        _SCHEDULING,
        why="Shares CPU between sessions of the system, not processes: all backends together count as one.",
        trades="A shell responds more slowly beside a busy server.",
        panes=("host", "latency"),
        steps=("0", "1"),
    ),
    Knob(
        "scheduler",
        _DISKS,
        why="Order of requests to the disk; a disk that orders them itself, or a virtual one, needs none.",
        trades="With none, a stream of writes can keep reads waiting on a slow disk.",
        panes=("host", "latency"),
        steps=("none", "mq-deadline", "kyber", "bfq"),
        moves_with=("nr_requests",),
    ),
    Knob(
        "read_ahead_kb",
        _DISKS,
        why="Read-ahead of the kernel for sequential scans.",
        trades="Unneeded reads with random access.",
        panes=("host", "throughput"),
        steps=("0", "128", "256", "512", "1024", "2048", "4096", "8192", "16384"),
        moves_with=("effective_io_concurrency", "io_combine_limit"),
    ),
    Knob(
        "nr_requests",
        _DISKS,
        why="Number of queued requests: more allow a better order, but each waits longer.",
        trades="Latency of reads behind many writes.",
        panes=("host", "latency"),
        steps=("32", "64", "128", "256", "512", "1024"),
        moves_with=("scheduler",),
    ),
)
"""One row per setting; those of disks stand for every disk ("vda/scheduler")."""

BY_NAME: Final[Mapping[str, Knob]] = MappingProxyType({knob.name: knob for knob in KNOBS})
GROUPS: Final[tuple[str, ...]] = tuple(dict.fromkeys(knob.group for knob in KNOBS))


def knob_of(name: str) -> Knob | None:
    """Return the row of a setting as SystemSetting names it; None for one that is not in the catalogue."""
    return BY_NAME.get(row_of(name))


def row_of(name: str) -> str:
    """Return "scheduler" for "vda/scheduler", POOL for a pool of another size; other names as they are."""
    if name in BY_NAME:
        return name
    return POOL if name.startswith("hugepages-") else name.rpartition("/")[2]
