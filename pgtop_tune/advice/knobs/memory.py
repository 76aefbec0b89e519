"""Knobs of memory. Source: PostgreSQL documentation, "Resource Consumption: Memory" and "Linux Huge Pages"."""

from __future__ import annotations

from typing import Final

from pgtop_tune.advice.knobs.knob import Knob

KNOBS: Final[tuple[Knob, ...]] = (
    Knob(
        name="shared_buffers",
        group="memory",
        why="Data in it are read without a system call, and written once per checkpoint regardless of the number of "
        "changes.",
        trades="Memory taken from the kernel's cache; without huge pages also page tables in every backend.",
        panes=("host", "wal", "throughput"),
        steps=("128MB", "256MB", "512MB", "1GB", "2GB", "4GB", "8GB", "16GB", "32GB", "64GB"),
        moves_with=("huge_pages", "max_wal_size", "effective_cache_size"),
    ),
    Knob(
        name="huge_pages",
        group="memory",
        why="Huge pages for shared memory save page tables and TLB misses, more so with more backends.",
        trades="The pages are reserved for this use; 'on' does not start without them, 'try' silently continues "
        "without.",
        panes=("host", "throughput"),
        steps=("off", "try", "on"),
        moves_with=("shared_buffers", "huge_page_size", "vm.nr_hugepages"),
    ),
    Knob(
        name="huge_page_size",
        group="memory",
        why="Pages of 1 GB if kernel and processor support them: even fewer TLB misses.",
        trades="Only a reservation at boot is certain.",
        panes=("host", "throughput"),
        steps=("0", "2MB", "1GB"),
        special=(("0", "the kernel's default size"),),
        moves_with=("huge_pages",),
    ),
    Knob(
        name="work_mem",
        group="memory",
        why="Sorts and hashes that exceed it spill to temporary files.",
        trades="Memory, for every such step of every session at the same time.",
        panes=("host", "sessions"),
        moves_with=("hash_mem_multiplier", "max_connections"),
    ),
    Knob(
        name="hash_mem_multiplier",
        group="memory",
        why="Hash joins and hash aggregates may use this many times work_mem: they gain more from memory than sorts.",
        trades="Memory, like work_mem.",
        panes=("host", "sessions"),
        steps=("1", "1.5", "2", "3", "4", "8"),
        moves_with=("work_mem",),
    ),
    Knob(
        name="maintenance_work_mem",
        group="memory",
        why="Index builds sort in it, VACUUM keeps dead row identifiers in it: too little means more passes.",
        trades="Memory for each maintenance at once, autovacuum workers included while autovacuum_work_mem is -1.",
        panes=("host",),
        moves_with=("autovacuum_work_mem", "autovacuum_max_workers"),
    ),
    Knob(
        name="autovacuum_work_mem",
        group="memory",
        why="maintenance_work_mem for autovacuum workers alone, so that index builds can have more.",
        trades="Memory times autovacuum_max_workers.",
        panes=("host",),
        from_zero="64MB",
        special=(("-1", "as maintenance_work_mem"),),
        moves_with=("maintenance_work_mem", "autovacuum_max_workers"),
    ),
    Knob(
        name="temp_buffers",
        group="memory",
        why="Buffers of each session for temporary tables.",
        trades="Memory of each session that uses them; a session cannot resize them after use.",
        panes=("host",),
    ),
    Knob(
        name="logical_decoding_work_mem",
        group="memory",
        why="Memory of a logical decoding before it spills changes to disk.",
        trades="Memory of each walsender of a logical replication.",
        panes=("host",),
    ),
    Knob(
        name="vacuum_buffer_usage_limit",
        group="memory",
        why="How much of shared_buffers VACUUM and ANALYZE use for themselves; more makes them faster.",
        trades="Evicts other pages from shared_buffers.",
        panes=("host", "wal"),
        from_zero="256kB",
        special=(("0", "no limit"),),
    ),
)
