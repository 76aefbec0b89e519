"""Knobs of memory, connections and locks, parallel queries and I/O.

Source of memory: PostgreSQL documentation, "Resource Consumption: Memory" and "Linux Huge Pages".
"""

from __future__ import annotations

from typing import Final

from pgtop_tune.advice.knobs.knob import Knob

MEMORY: Final[tuple[Knob, ...]] = (
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
        trades="Memory for each concurrent maintenance operation, autovacuum workers included while "
        "autovacuum_work_mem is -1.",
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


# Knobs of connections and locks.
#
# Source: PostgreSQL documentation, "Connections and Authentication", "Client Connection Defaults", "Lock
# Management".

CONNECTIONS: Final[tuple[Knob, ...]] = (
    Knob(
        name="max_connections",
        group="connections",
        why="Maximum number of sessions. Beyond a few per core throughput falls; a pooler keeps their number low.",
        trades="Memory of each session, longer snapshots; a standby needs at least as many.",
        panes=("sessions", "host", "throughput"),
        steps=("50", "100", "200", "300", "400", "500", "800", "1000"),
        moves_with=("work_mem", "superuser_reserved_connections", "max_locks_per_transaction"),
    ),
    Knob(
        name="superuser_reserved_connections",
        group="connections",
        why="Slots reserved for superusers, so that an operator can connect when all others are in use.",
        trades="Fewer sessions for all other roles.",
        panes=("sessions",),
        steps=("1", "3", "5", "10"),
        moves_with=("max_connections", "reserved_connections"),
    ),
    Knob(
        name="reserved_connections",
        group="connections",
        why="Slots reserved for roles with pg_use_reserved_connections, such as monitoring.",
        trades="Fewer sessions for all other roles.",
        panes=("sessions",),
        steps=("0", "2", "5", "10"),
        moves_with=("max_connections",),
    ),
    Knob(
        name="idle_in_transaction_session_timeout",
        group="connections",
        why="Ends sessions that hold locks and snapshots while they do nothing.",
        trades="Applications must handle a terminated session.",
        panes=("sessions",),
        steps=("0", "10s", "30s", "1min", "5min", "10min"),
        special=(("0", "never"),),
    ),
    Knob(
        name="client_connection_check_interval",
        group="connections",
        why="Ends a running query when its client has disconnected.",
        trades="A system call now and then in long queries.",
        panes=("sessions",),
        steps=("0", "1s", "5s", "10s", "30s"),
        special=(("0", "noticed only at the end of the query"),),
    ),
    Knob(
        name="deadlock_timeout",
        group="connections",
        why="Length of a lock wait before the server checks for a deadlock and log_lock_waits reports it.",
        trades="Checking too early costs CPU under heavy contention.",
        panes=("budget", "sessions"),
        steps=("100ms", "200ms", "500ms", "1s", "2s", "5s"),
        moves_with=("log_lock_waits",),
    ),
    Knob(
        name="max_locks_per_transaction",
        group="connections",
        why="Sizes the lock table; many partitions or a large pg_dump need more.",
        trades="Shared memory; a standby needs at least as many.",
        panes=("budget",),
        steps=("64", "128", "256", "512", "1024"),
        moves_with=("max_connections",),
    ),
    Knob(
        name="max_files_per_process",
        group="connections",
        why="Files that a backend keeps open; with many relations and a low value it reopens files all the time.",
        trades="File descriptors of the machine, times the sessions.",
        panes=("host",),
        steps=("1000", "2000", "4000", "8000"),
    ),
)


# Knobs of parallel queries. Source: PostgreSQL documentation, "Parallel Query" and "Worker Processes".

_WORKERS: Final = ("0", "1", "2", "4", "8", "16", "32")

PARALLEL: Final[tuple[Knob, ...]] = (
    Knob(
        name="max_worker_processes",
        group="parallel",
        why="The pool of all background workers: parallel queries, logical replication, extensions.",
        trades="A little shared memory for each.",
        panes=("host",),
        steps=_WORKERS,
        moves_with=("max_parallel_workers",),
    ),
    Knob(
        name="max_parallel_workers",
        group="parallel",
        why="Background workers that parallel queries may use at the same time.",
        trades="CPU of other sessions.",
        panes=("host", "latency"),
        steps=_WORKERS,
        moves_with=("max_worker_processes", "max_parallel_workers_per_gather"),
    ),
    Knob(
        name="max_parallel_workers_per_gather",
        group="parallel",
        why="Workers for one part of a query; 0 keeps small transactions from starting any.",
        trades="CPU of other sessions, and work_mem for every worker.",
        panes=("host", "latency"),
        steps=("0", "1", "2", "3", "4", "8", "16"),
        special=(("0", "no parallel queries"),),
        moves_with=("max_parallel_workers", "work_mem"),
    ),
    Knob(
        name="max_parallel_maintenance_workers",
        group="parallel",
        why="Workers of one CREATE INDEX or VACUUM.",
        trades="CPU and disk of the load.",
        panes=("host",),
        steps=("0", "1", "2", "4", "8"),
        moves_with=("max_parallel_workers", "maintenance_work_mem"),
    ),
    Knob(
        name="min_parallel_table_scan_size",
        group="parallel",
        why="Tables below it are scanned by one process.",
        trades="Starting workers costs some milliseconds, more than a small scan.",
        panes=("latency", "host"),
        from_zero="1MB",
    ),
    Knob(
        name="parallel_setup_cost",
        group="parallel",
        why="Planner's cost of starting workers; higher keeps short queries in one process.",
        trades="Long queries may stay in one process too.",
        panes=("latency", "host"),
        steps=("0", "100", "1000", "5000", "10000"),
    ),
    Knob(
        name="parallel_tuple_cost",
        group="parallel",
        why="Planner's cost of passing a row from a worker.",
        trades="Long queries may stay in one process.",
        panes=("latency", "host"),
        steps=("0", "0.01", "0.05", "0.1", "0.2", "0.5"),
    ),
)


# Knobs of reading ahead and asynchronous I/O. Source: PostgreSQL documentation, "Resource Consumption: I/O".

_IO_WORKERS: Final = ("1", "2", "3", "4", "6", "8", "12", "16", "24", "32")
_DEPTHS: Final = ("0", "1", "2", "4", "8", "16", "32", "64", "128", "200", "256", "512", "1000")

IO: Final[tuple[Knob, ...]] = (
    Knob(
        name="effective_io_concurrency",
        group="I/O",
        why="Reads requested ahead of a scan; matters on storage that serves many at once.",
        trades="Queue length on the disk; no effect on data in cache.",
        panes=("host", "latency"),
        steps=_DEPTHS,
        special=(("0", "no read-ahead"),),
        moves_with=("io_combine_limit",),
    ),
    Knob(
        name="maintenance_io_concurrency",
        group="I/O",
        why="The same for VACUUM, ANALYZE, CREATE INDEX and recovery.",
        trades="Queue length on the disk.",
        panes=("host", "latency"),
        steps=_DEPTHS,
        special=(("0", "no read-ahead"),),
    ),
    Knob(
        name="io_combine_limit",
        group="I/O",
        why="Maximum size of a combined read: fewer, larger requests if the disk limits their number.",
        trades="No known cost up to 256kB.",
        panes=("host",),
        steps=("8kB", "16kB", "32kB", "64kB", "128kB", "256kB", "512kB", "1MB"),
        moves_with=("io_max_combine_limit",),
    ),
    Knob(
        name="io_max_combine_limit",
        group="I/O",
        why="Upper bound of io_combine_limit; changing it needs a restart.",
        trades="Shared memory.",
        panes=("host",),
        steps=("128kB", "256kB", "512kB", "1MB"),
        moves_with=("io_combine_limit",),
    ),
    Knob(
        name="io_method",
        group="I/O",
        why="Method of asynchronous reads: I/O workers, the kernel's io_uring, or synchronous in each backend as "
        "before 18.",
        trades="io_uring needs a kernel that permits it and file descriptors for each backend.",
        panes=("host", "latency"),
        steps=("sync", "worker", "io_uring"),
        moves_with=("io_workers", "io_max_workers", "io_max_concurrency"),
    ),
    Knob(
        name="io_workers",
        group="I/O",
        why="Processes that read for all backends with io_method=worker; with too few, reads queue. 18 only.",
        trades="CPU of these processes.",
        panes=("host", "sessions"),
        steps=_IO_WORKERS,
        moves_with=("io_method",),
    ),
    Knob(
        name="io_max_workers",
        group="I/O",
        why="Most I/O workers of io_method=worker; the server starts them while reads queue.",
        trades="CPU of these processes.",
        panes=("host", "sessions"),
        steps=_IO_WORKERS,
        moves_with=("io_min_workers", "io_method"),
    ),
    Knob(
        name="io_min_workers",
        group="I/O",
        why="Fewest I/O workers: those that wait for reads while the server is idle.",
        trades="Idle processes; with few, the first reads of a burst wait for workers to start.",
        panes=("host", "sessions"),
        steps=_IO_WORKERS,
        moves_with=("io_max_workers", "io_worker_idle_timeout"),
    ),
    Knob(
        name="io_worker_idle_timeout",
        group="I/O",
        why="An I/O worker above io_min_workers ends after this time without work.",
        trades="Short starts workers anew for each burst; long keeps idle processes.",
        panes=("host", "sessions"),
        steps=("10s", "30s", "1min", "5min", "30min"),
        special=(("0", "workers never end"),),
        moves_with=("io_min_workers",),
    ),
    Knob(
        name="io_worker_launch_interval",
        group="I/O",
        why="Least time between the starts of two I/O workers: how fast their number follows a burst of reads.",
        trades="Short may start more workers than the burst needs.",
        panes=("host", "sessions"),
        steps=("10ms", "50ms", "100ms", "500ms", "1s"),
        moves_with=("io_max_workers",),
    ),
    Knob(
        name="io_max_concurrency",
        group="I/O",
        why="Maximum of concurrent I/Os of one process.",
        trades="Shared memory.",
        panes=("host",),
        steps=("-1", "16", "32", "64", "128", "256"),
        special=(("-1", "from shared_buffers and the number of processes, at most 64"),),
    ),
)
