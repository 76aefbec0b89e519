"""Settings of the operating system worth turning for a database server.

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
_NO_PAIR: Final = (("0", "the other half of the pair counts"),)

POOL: Final = "hugepages/nr_hugepages"
"""Stands for the pools of other than the default size: "hugepages-1048576kB/nr_hugepages"."""

KNOBS: Final[tuple[Knob, ...]] = (
    Knob(
        name="vm.nr_hugepages",
        group=_HUGE,
        why="Pages of 2 MB for shared_buffers: each backend's page tables shrink 512-fold, the TLB reaches further.",
        trades="Memory that nothing else can use, also while no server is running.",
        panes=("host", "latency"),
        special=(("0", "huge_pages=try goes without and says nothing, huge_pages=on does not start"),),
        moves_with=("huge_pages", "shared_buffers", "vm.overcommit_ratio"),
        warning="The kernel gives what it finds in one piece, also less; on a machine that is long up ask before the "
        "cache has grown, or reserve at boot.",
    ),
    Knob(
        name=POOL,
        group=_HUGE,
        why="Pages of another size, as 1 GB, for huge_page_size: worth it for shared_buffers of many gigabytes.",
        trades="Memory that nothing else can use; a server takes a whole page for its last rest.",
        panes=("host", "latency"),
        special=(("0", "none of this size"),),
        moves_with=("huge_pages", "huge_page_size", "shared_buffers"),
        warning="Hardly ever to be had but at boot.",
    ),
    Knob(
        name="transparent_hugepage/enabled",
        group=_HUGE,
        why="With always, the kernel makes huge pages by itself, and stops processes to clear room for them.",
        trades="Without it, large sorts and hashes have more page tables.",
        panes=("latency", "host"),
        steps=_WORDS,
        moves_with=("transparent_hugepage/defrag", "vm.min_free_kbytes"),
    ),
    Knob(
        name="transparent_hugepage/defrag",
        group=_HUGE,
        why="Who waits while room for a huge page is cleared: with always, whoever touches memory first.",
        trades="Fewer transparent huge pages.",
        panes=("latency", "host"),
        steps=("always", "defer", "defer+madvise", "madvise", "never"),
        moves_with=("transparent_hugepage/enabled",),
    ),
    Knob(
        name="transparent_hugepage/khugepaged/defrag",
        group=_HUGE,
        why="Whether khugepaged moves pages about in the background to make huge ones.",
        trades="Fewer transparent huge pages.",
        panes=("host",),
        steps=("0", "1"),
        moves_with=("transparent_hugepage/enabled",),
    ),
    Knob(
        name="vm.dirty_background_bytes",
        group=_DIRTY,
        why="From how much on the kernel begins to write out; less means that a checkpoint's fsync finds less to do.",
        trades="Pages written more often that would have been changed again.",
        panes=("host", "latency", "wal"),
        steps=("33554432", "67108864", "134217728", "268435456", "536870912", "1073741824"),
        from_zero="67108864",
        special=_NO_PAIR,
        moves_with=("vm.dirty_background_ratio", "vm.dirty_bytes", "checkpoint_flush_after"),
    ),
    Knob(
        name="vm.dirty_background_ratio",
        group=_DIRTY,
        why="The same in percent of the memory that is available; on a large machine 1 % is too much already.",
        trades="As vm.dirty_background_bytes.",
        panes=("host", "latency", "wal"),
        steps=("1", "2", "3", "5", "10"),
        special=_NO_PAIR,
        moves_with=("vm.dirty_background_bytes",),
    ),
    Knob(
        name="vm.dirty_bytes",
        group=_DIRTY,
        why="From how much on whoever writes has to wait until the disk has caught up: the cliff in the latency.",
        trades="Too little makes every writer wait; too much makes the wait long.",
        panes=("host", "latency", "wal"),
        steps=("134217728", "268435456", "536870912", "1073741824", "2147483648", "4294967296"),
        from_zero="536870912",
        special=_NO_PAIR,
        moves_with=("vm.dirty_ratio", "vm.dirty_background_bytes"),
    ),
    Knob(
        name="vm.dirty_ratio",
        group=_DIRTY,
        why="The same in percent of the memory that is available.",
        trades="As vm.dirty_bytes.",
        panes=("host", "latency", "wal"),
        steps=("3", "5", "10", "15", "20", "30", "40"),
        special=_NO_PAIR,
        moves_with=("vm.dirty_bytes",),
    ),
    Knob(
        name="vm.dirty_expire_centisecs",
        group=_DIRTY,
        why="How old a dirty page gets before the kernel writes it out in any case, in hundredths of a second.",
        trades="Pages written more often that would have been changed again.",
        panes=("host", "latency"),
        steps=("100", "500", "1000", "3000", "6000"),
        moves_with=("vm.dirty_writeback_centisecs",),
    ),
    Knob(
        name="vm.dirty_writeback_centisecs",
        group=_DIRTY,
        why="How often the kernel looks for pages to write out, in hundredths of a second.",
        trades="Wake-ups.",
        panes=("host",),
        steps=("100", "200", "500", "1000"),
        special=(("0", "never by itself"),),
        moves_with=("vm.dirty_expire_centisecs",),
    ),
    Knob(
        name="vm.swappiness",
        group=_MEMORY,
        why="How gladly the kernel swaps out memory of processes to cache more files; a database wants it seldom.",
        trades="Less cache for files when memory is short.",
        panes=("host", "latency"),
        steps=("0", "1", "5", "10", "30", "60", "100"),
        special=(("0", "only to avoid running out of memory, when the OOM killer is near already"),),
    ),
    Knob(
        name="vm.overcommit_memory",
        group=_MEMORY,
        why="With 2 an allocation fails where memory ends: one query has an error, instead of the server being killed.",
        trades="Programs that reserve much and use little are refused; vm.overcommit_ratio must fit.",
        panes=("host",),
        steps=("0", "1", "2"),
        special=(("0", "the kernel guesses"), ("1", "everything is granted"), ("2", "up to CommitLimit")),
        moves_with=("vm.overcommit_ratio", "vm.nr_hugepages"),
        warning="Before 2, see that Committed_AS is well below the CommitLimit that there will be; else nothing new "
        "starts, not even a shell.",
    ),
    Knob(
        name="vm.overcommit_ratio",
        group=_MEMORY,
        why="CommitLimit with vm.overcommit_memory=2: this share of the memory without huge pages, and all swap.",
        trades="Too low and memory lies idle; too high and the OOM killer is back.",
        panes=("host",),
        steps=("50", "60", "70", "80", "90", "95", "100"),
        special=_NO_PAIR,
        moves_with=("vm.overcommit_memory", "vm.overcommit_kbytes", "vm.nr_hugepages"),
    ),
    Knob(
        name="vm.overcommit_kbytes",
        group=_MEMORY,
        why="The same as an amount.",
        trades="As vm.overcommit_ratio.",
        panes=("host",),
        special=_NO_PAIR,
        moves_with=("vm.overcommit_memory", "vm.overcommit_ratio"),
    ),
    Knob(
        name="vm.min_free_kbytes",
        group=_MEMORY,
        why="What the kernel keeps free for itself; with too little, bursts of network and disk traffic wait.",
        trades="Memory that caches nothing.",
        panes=("host", "latency"),
        warning="Too much, several percent of the memory, and the kernel runs out of it at once.",
    ),
    Knob(
        name="vm.zone_reclaim_mode",
        group=_MEMORY,
        why="On, a NUMA node throws its file cache away rather than use memory of another node.",
        trades="Nothing, for a database: any value but 0 costs cache.",
        panes=("host", "latency"),
        steps=("0", "1"),
        special=(("0", "memory of other nodes is used"),),
    ),
    Knob(
        name="kernel.numa_balancing",
        group=_SCHEDULING,
        why="Moves memory to the node that uses it; shared_buffers are used by all, so pages move about for nothing.",
        trades="Memory of single backends may lie on the wrong node.",
        panes=("host", "latency"),
        steps=("0", "1"),
    ),
    Knob(
        name="kernel.sched_autogroup_enabled",
        group=_SCHEDULING,
        why="Shares CPU between sessions of the system, not processes: all backends together count as one.",
        trades="A shell has a harder time beside a busy server.",
        panes=("host", "latency"),
        steps=("0", "1"),
    ),
    Knob(
        name="scheduler",
        group=_DISKS,
        why="In which order requests go to the disk; one that orders them itself, or a hypervisor's, needs none.",
        trades="With none, a stream of writes can keep reads waiting on a slow disk.",
        panes=("host", "latency"),
        steps=("none", "mq-deadline", "kyber", "bfq"),
        moves_with=("nr_requests",),
    ),
    Knob(
        name="read_ahead_kb",
        group=_DISKS,
        why="How far the kernel reads ahead of a sequential scan.",
        trades="Reads nobody asked for, where access is at random.",
        panes=("host", "throughput"),
        steps=("0", "128", "256", "512", "1024", "2048", "4096", "8192", "16384"),
        moves_with=("effective_io_concurrency", "io_combine_limit"),
    ),
    Knob(
        name="nr_requests",
        group=_DISKS,
        why="How many requests wait in the queue: more can be put in a better order, each waits longer.",
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
    """The row of a setting as SystemSetting names it; None for one that is not in the catalogue."""
    return BY_NAME.get(row_of(name))


def row_of(name: str) -> str:
    """ "vda/scheduler" → "scheduler", a pool of another size → POOL; others are their own."""
    if name in BY_NAME:
        return name
    return POOL if name.startswith("hugepages-") else name.rpartition("/")[2]
