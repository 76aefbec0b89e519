"""Knobs of memory, connections and locks, parallel queries, I/O and the planner.

Source: PostgreSQL documentation, "Resource Consumption: Memory", "Linux Huge Pages", "Query Planning" and "Just-in-Time
Compilation".
"""

from __future__ import annotations

from typing import Final

from pgtop_tune.advice.knobs.knob import Knob

MEMORY: Final[tuple[Knob, ...]] = (
    Knob(
        "shared_buffers",
        "memory",
        why="Data in it are read without a system call, and written once per checkpoint regardless of the number of "
        "changes.",
        trades="Memory taken from the kernel's cache; without huge pages also page tables in every backend.",
        panes=("host", "wal", "throughput"),
        steps=("128MB", "256MB", "512MB", "1GB", "2GB", "4GB", "8GB", "16GB", "32GB", "64GB"),
        moves_with=("huge_pages", "max_wal_size", "effective_cache_size"),
    ),
    Knob(
        "huge_pages",
        "memory",
        why="Huge pages for shared memory save page tables and TLB misses, more so with more backends.",
        trades="The pages are reserved for this use; 'on' does not start without them, 'try' silently continues "
        "without.",
        panes=("host", "throughput"),
        steps=("off", "try", "on"),
        moves_with=("shared_buffers", "huge_page_size", "vm.nr_hugepages"),
    ),
    Knob(
        "huge_page_size",
        "memory",
        why="Pages of 1 GB if kernel and processor support them: even fewer TLB misses.",
        trades="Only a reservation at boot is certain.",
        panes=("host", "throughput"),
        steps=("0", "2MB", "1GB"),
        special=(("0", "the kernel's default size"),),
        moves_with=("huge_pages",),
    ),
    Knob(
        "work_mem",
        "memory",
        why="Sorts and hashes that exceed it spill to temporary files.",
        trades="Memory, for every such step of every session at the same time.",
        panes=("host", "sessions"),
        moves_with=("hash_mem_multiplier", "max_connections"),
    ),
    Knob(
        "hash_mem_multiplier",
        "memory",
        why="Hash joins and hash aggregates may use this many times work_mem: they gain more from memory than sorts.",
        trades="Memory, like work_mem.",
        panes=("host", "sessions"),
        steps=("1", "1.5", "2", "3", "4", "8"),
        moves_with=("work_mem",),
    ),
    Knob(
        "maintenance_work_mem",
        "memory",
        why="Index builds sort in it, VACUUM keeps dead row identifiers in it: too little means more passes.",
        trades="Memory for each concurrent maintenance operation, autovacuum workers included while "
        "autovacuum_work_mem is -1.",
        panes=("host",),
        moves_with=("autovacuum_work_mem", "autovacuum_max_workers"),
    ),
    Knob(
        "autovacuum_work_mem",
        "memory",
        why="maintenance_work_mem for autovacuum workers alone, so that index builds can have more.",
        trades="Memory times autovacuum_max_workers.",
        panes=("host",),
        from_zero="64MB",
        special=(("-1", "as maintenance_work_mem"),),
        moves_with=("maintenance_work_mem", "autovacuum_max_workers"),
    ),
    Knob(
        "temp_buffers",
        "memory",
        why="Buffers of each session for temporary tables.",
        trades="Memory of each session that uses them; a session cannot resize them after use.",
        panes=("host",),
    ),
    Knob(
        "logical_decoding_work_mem",
        "memory",
        why="Memory of a logical decoding before it spills changes to disk.",
        trades="Memory of each walsender of a logical replication.",
        panes=("host",),
    ),
    Knob(
        "vacuum_buffer_usage_limit",
        "memory",
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
        "max_connections",
        "connections",
        why="Maximum number of sessions. Beyond a few per core throughput falls; a pooler keeps their number low.",
        trades="Memory of each session, longer snapshots; a standby needs at least as many.",
        panes=("sessions", "host", "throughput"),
        steps=("50", "100", "200", "300", "400", "500", "800", "1000"),
        moves_with=("work_mem", "superuser_reserved_connections", "max_locks_per_transaction"),
    ),
    Knob(
        "superuser_reserved_connections",
        "connections",
        why="Slots reserved for superusers, so that an operator can connect when all others are in use.",
        trades="Fewer sessions for all other roles.",
        panes=("sessions",),
        steps=("1", "3", "5", "10"),
        moves_with=("max_connections", "reserved_connections"),
    ),
    Knob(
        "reserved_connections",
        "connections",
        why="Slots reserved for roles with pg_use_reserved_connections, such as monitoring.",
        trades="Fewer sessions for all other roles.",
        panes=("sessions",),
        steps=("0", "2", "5", "10"),
        moves_with=("max_connections",),
    ),
    Knob(
        "idle_in_transaction_session_timeout",
        "connections",
        why="Ends sessions that hold locks and snapshots while they do nothing.",
        trades="Applications must handle a terminated session.",
        panes=("sessions",),
        steps=("0", "10s", "30s", "1min", "5min", "10min"),
        special=(("0", "never"),),
    ),
    Knob(
        "client_connection_check_interval",
        "connections",
        why="Ends a running query when its client has disconnected.",
        trades="A system call now and then in long queries.",
        panes=("sessions",),
        steps=("0", "1s", "5s", "10s", "30s"),
        special=(("0", "noticed only at the end of the query"),),
    ),
    Knob(
        "deadlock_timeout",
        "connections",
        why="Length of a lock wait before the server checks for a deadlock and log_lock_waits reports it.",
        trades="Checking too early costs CPU under heavy contention.",
        panes=("budget", "sessions"),
        steps=("100ms", "200ms", "500ms", "1s", "2s", "5s"),
        moves_with=("log_lock_waits",),
    ),
    Knob(
        "max_locks_per_transaction",
        "connections",
        why="Sizes the lock table; many partitions or a large pg_dump need more.",
        trades="Shared memory; a standby needs at least as many.",
        panes=("budget",),
        steps=("64", "128", "256", "512", "1024"),
        moves_with=("max_connections",),
    ),
    Knob(
        "max_files_per_process",
        "connections",
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
        "max_worker_processes",
        "parallel",
        why="The pool of all background workers: parallel queries, logical replication, extensions.",
        trades="A little shared memory for each.",
        panes=("host",),
        steps=_WORKERS,
        moves_with=("max_parallel_workers",),
    ),
    Knob(
        "max_parallel_workers",
        "parallel",
        why="Background workers that parallel queries may use at the same time.",
        trades="CPU of other sessions.",
        panes=("host", "latency"),
        steps=_WORKERS,
        moves_with=("max_worker_processes", "max_parallel_workers_per_gather"),
    ),
    Knob(
        "max_parallel_workers_per_gather",
        "parallel",
        why="Workers for one part of a query; 0 keeps small transactions from starting any.",
        trades="CPU of other sessions, and work_mem for every worker.",
        panes=("host", "latency"),
        steps=("0", "1", "2", "3", "4", "8", "16"),
        special=(("0", "no parallel queries"),),
        moves_with=("max_parallel_workers", "work_mem"),
    ),
    Knob(
        "max_parallel_maintenance_workers",
        "parallel",
        why="Workers of one CREATE INDEX or VACUUM.",
        trades="CPU and disk of the load.",
        panes=("host",),
        steps=("0", "1", "2", "4", "8"),
        moves_with=("max_parallel_workers", "maintenance_work_mem"),
    ),
    Knob(
        "min_parallel_table_scan_size",
        "parallel",
        why="Tables below it are scanned by one process.",
        trades="Starting workers costs some milliseconds, more than a small scan.",
        panes=("latency", "host"),
        from_zero="1MB",
    ),
    Knob(
        "parallel_setup_cost",
        "parallel",
        why="Planner's cost of starting workers; higher keeps short queries in one process.",
        trades="Long queries may stay in one process too.",
        panes=("latency", "host"),
        steps=("0", "100", "1000", "5000", "10000"),
    ),
    Knob(
        "parallel_tuple_cost",
        "parallel",
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
        "effective_io_concurrency",
        "I/O",
        why="Reads requested ahead of a scan; matters on storage that serves many at once.",
        trades="Queue length on the disk; no effect on data in cache.",
        panes=("host", "latency"),
        steps=_DEPTHS,
        special=(("0", "no read-ahead"),),
        moves_with=("io_combine_limit",),
    ),
    Knob(
        "maintenance_io_concurrency",
        "I/O",
        why="effective_io_concurrency for VACUUM, ANALYZE, CREATE INDEX and recovery.",
        trades="Queue length on the disk.",
        panes=("host", "latency"),
        steps=_DEPTHS,
        special=(("0", "no read-ahead"),),
    ),
    Knob(
        "io_combine_limit",
        "I/O",
        why="Maximum size of a combined read: fewer, larger requests if the disk limits their number.",
        trades="No known cost up to 256kB.",
        panes=("host",),
        steps=("8kB", "16kB", "32kB", "64kB", "128kB", "256kB", "512kB", "1MB"),
        moves_with=("io_max_combine_limit",),
    ),
    Knob(
        "io_max_combine_limit",
        "I/O",
        why="Upper bound of io_combine_limit; changing it needs a restart.",
        trades="Shared memory.",
        panes=("host",),
        steps=("128kB", "256kB", "512kB", "1MB"),
        moves_with=("io_combine_limit",),
    ),
    Knob(
        "io_method",
        "I/O",
        why="Method of asynchronous reads: I/O workers, the kernel's io_uring, or synchronous in each backend as "
        "before 18.",
        trades="io_uring needs a kernel that permits it and file descriptors for each backend.",
        panes=("host", "latency"),
        steps=("sync", "worker", "io_uring"),
        moves_with=("io_workers", "io_max_workers", "io_max_concurrency"),
    ),
    Knob(
        "io_workers",
        "I/O",
        why="Processes that read for all backends with io_method=worker; with too few, reads queue. 18 only.",
        trades="CPU of these processes.",
        panes=("host", "sessions"),
        steps=_IO_WORKERS,
        moves_with=("io_method",),
    ),
    Knob(
        "io_max_workers",
        "I/O",
        why="Most I/O workers of io_method=worker; the server starts them while reads queue.",
        trades="CPU of these processes.",
        panes=("host", "sessions"),
        steps=_IO_WORKERS,
        moves_with=("io_min_workers", "io_method"),
    ),
    Knob(
        "io_min_workers",
        "I/O",
        why="Fewest I/O workers: those that wait for reads while the server is idle.",
        trades="Idle processes; with few, the first reads of a burst wait for workers to start.",
        panes=("host", "sessions"),
        steps=_IO_WORKERS,
        moves_with=("io_max_workers", "io_worker_idle_timeout"),
    ),
    Knob(
        "io_worker_idle_timeout",
        "I/O",
        why="An I/O worker above io_min_workers ends after this time without work.",
        trades="Short starts workers anew for each burst; long keeps idle processes.",
        panes=("host", "sessions"),
        steps=("10s", "30s", "1min", "5min", "30min"),
        special=(("0", "workers never end"),),
        moves_with=("io_min_workers",),
    ),
    Knob(
        "io_worker_launch_interval",
        "I/O",
        why="Least time between the starts of two I/O workers: how fast their number follows a burst of reads.",
        trades="Short may start more workers than the burst needs.",
        panes=("host", "sessions"),
        steps=("10ms", "50ms", "100ms", "500ms", "1s"),
        moves_with=("io_max_workers",),
    ),
    Knob(
        "io_max_concurrency",
        "I/O",
        why="Maximum of concurrent I/Os of one process.",
        trades="Shared memory.",
        panes=("host",),
        steps=("-1", "16", "32", "64", "128", "256"),
        special=(("-1", "from shared_buffers and the number of processes, at most 64"),),
    ),
)


_PLANS: Final = "Plans may change; pgbench's own queries do not depend on it."

PLANNER: Final[tuple[Knob, ...]] = (
    Knob(
        "effective_cache_size",
        "planner",
        why="Tells the planner the probable size of the cache; more makes index scans look cheaper.",
        trades=_PLANS + " It reserves nothing.",
        panes=("throughput", "latency"),
        moves_with=("shared_buffers",),
    ),
    Knob(
        "random_page_cost",
        "planner",
        why="On storage with fast random reads, a lower cost favours index scans.",
        trades=_PLANS,
        panes=("throughput", "latency"),
        steps=("1", "1.1", "1.25", "1.5", "2", "3", "4"),
        moves_with=("seq_page_cost", "effective_cache_size"),
    ),
    Knob(
        "seq_page_cost",
        "planner",
        why="The cost of a sequential page read: the unit of all other costs.",
        trades=_PLANS,
        panes=("throughput", "latency"),
        steps=("0.1", "0.25", "0.5", "1", "2"),
        moves_with=("random_page_cost",),
    ),
    Knob(
        "cpu_tuple_cost",
        "planner",
        why="The cost of handling a row; higher favours plans that touch fewer rows.",
        trades=_PLANS,
        panes=("throughput", "latency"),
        steps=("0.005", "0.01", "0.02", "0.03", "0.05"),
    ),
    Knob(
        "default_statistics_target",
        "planner",
        why="A larger sample improves row estimates of skewed columns, after the next ANALYZE.",
        trades="ANALYZE and planning take longer.",
        panes=("latency",),
        steps=("10", "50", "100", "200", "500", "1000"),
    ),
    Knob(
        "jit",
        "planner",
        why="Compiles expressions of expensive queries; off spares short queries with too high an estimate.",
        trades="Long analytical queries may run slower without it.",
        panes=("latency", "host"),
        moves_with=("jit_above_cost",),
    ),
    Knob(
        "jit_above_cost",
        "planner",
        why="Estimated cost from which queries are compiled; raise it if compiling takes longer than it saves.",
        trades="Long analytical queries may run slower.",
        panes=("latency", "host"),
        steps=("-1", "100000", "500000", "1000000", "5000000"),
        special=(("-1", "never"),),
        moves_with=("jit",),
    ),
    Knob(
        "plan_cache_mode",
        "planner",
        why="Prepared statements may switch to a generic plan after five calls; this forces one kind of plan.",
        trades="Custom plans cost planning at every call; a generic one may fit some values badly.",
        panes=("throughput", "latency"),
        steps=("auto", "force_generic_plan", "force_custom_plan"),
    ),
    Knob(
        "join_collapse_limit",
        "planner",
        why="Number of explicit joins up to which the planner tries every order.",
        trades="Planning time grows steeply with it.",
        panes=("latency",),
        steps=("1", "4", "8", "10", "12", "16"),
        special=(("1", "joins stay in the order written"),),
        moves_with=("from_collapse_limit",),
    ),
    Knob(
        "from_collapse_limit",
        "planner",
        why="Number of FROM items up to which subqueries are merged into the outer query.",
        trades="Planning time grows steeply with it.",
        panes=("latency",),
        steps=("1", "4", "8", "10", "12", "16"),
        moves_with=("join_collapse_limit",),
    ),
)
