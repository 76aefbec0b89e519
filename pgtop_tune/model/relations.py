"""Readings of tables, indexes and databases: raw counters, catalog facts, origins of ages, commands in progress.

Transaction ids have 32 bits, as in the catalogs; the sample's `next_xid` and `next_multixact` turn them into ages, so
that the row of an unused table does not change.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Struct

from pgtop_tune.model.recorded_as import KeyedBy

FIRST_USER_OID: Final = 16_384
"""FirstNormalObjectId: relations of initdb are below it."""


class TableCounters(Struct, frozen=True, gc=False):
    """One row of pg_stat_all_tables, pg_statio_all_tables and pg_class.

    Attributes:
        oid: pg_class.oid.
        name: "schema.table"; for a TOAST table, the name of the table it belongs to.
        kind: "table", "matview" or "toast".
        idx_scan: Scans of all its indexes.
        blks_read: Heap blocks not found in shared buffers.
        blks_hit: Heap blocks found in shared buffers.
        newpage_upd: n_tup_newpage_upd; None before 16.
        vacuum_ms: total_vacuum_time + total_autovacuum_time; None before 18, as `analyze_ms`.
        tuples: pg_class.reltuples, an estimate from the last (auto)vacuum or (auto)analyze; -1 before the first one.
        pages: pg_class.relpages, from the same vacuum or analyze.
        frozen_pages: pg_class.relallfrozen; None before 18.
        frozen_xid: relfrozenxid.
        min_multixact: relminmxid.
        options: reloptions ("autovacuum_enabled=off"); a TOAST table without options has the options of its main table.
        autovacuum_score: pg_stat_autovacuum_scores.score: autovacuum processes tables with a score of 1 or more, the
            highest first, except with autovacuum_enabled=off; None before 19.
    """

    oid: int
    name: str
    kind: str
    seq_scan: int
    seq_tup_read: int
    idx_scan: int
    idx_tup_fetch: int
    n_tup_ins: int
    n_tup_upd: int
    n_tup_del: int
    n_tup_hot_upd: int
    newpage_upd: int | None
    n_live_tup: int
    n_dead_tup: int
    n_mod_since_analyze: int
    n_ins_since_vacuum: int
    last_vacuum_ms: int | None
    last_autovacuum_ms: int | None
    last_analyze_ms: int | None
    last_autoanalyze_ms: int | None
    vacuum_count: int
    autovacuum_count: int
    analyze_count: int
    autoanalyze_count: int
    vacuum_ms: float | None
    analyze_ms: float | None
    blks_read: int
    blks_hit: int
    tuples: int
    pages: int
    frozen_pages: int | None
    frozen_xid: int
    min_multixact: int
    options: tuple[str, ...] = ()
    autovacuum_score: float | None = None


class IndexCounters(Struct, frozen=True, gc=False):
    """One row of pg_stat_all_indexes, pg_statio_all_indexes and pg_index.

    Attributes:
        oid: pg_class.oid.
        table_oid: pg_class.oid of its table.
        name: "schema.index".
        table: "schema.table".
        is_constraint: Whether the index belongs to a primary key, unique or exclusion constraint, which is enforced
            without index scans.
        is_valid: pg_index.indisvalid; false after a failed CREATE INDEX CONCURRENTLY.
        last_scan_ms: last_idx_scan; None before 16, and if never scanned.
        pages: pg_class.relpages.
    """

    oid: int
    table_oid: int
    name: str
    table: str
    is_constraint: bool
    is_valid: bool
    idx_scan: int
    idx_tup_read: int
    idx_tup_fetch: int
    blks_read: int
    blks_hit: int
    last_scan_ms: int | None
    pages: int


class RelationSample(Struct, frozen=True, gc=False):
    """Tables and indexes of the connected database, read on a slow cadence.

    With many tables, only recently used tables and the tables with the most dead tuples, pages, or age; `n_tables`
    counts all.

    Attributes:
        now_ms: clock_timestamp() of the server.
        next_xid, next_multixact: Next ids, from which ages are computed.
        n_tables: Number of tables, materialized views and TOAST tables of the database, without system tables.
        n_indexes: Indexes of the tables in `tables`.
    """

    at_s: float
    now_ms: int
    next_xid: int
    next_multixact: int
    n_tables: int
    n_indexes: int
    tables: Annotated[tuple[TableCounters, ...], KeyedBy("oid")]
    indexes: Annotated[tuple[IndexCounters, ...], KeyedBy("oid")]


class DatabaseFacts(Struct, frozen=True, gc=False):
    """One row of pg_database.

    Attributes:
        frozen_xid: datfrozenxid.
        min_multixact: datminmxid.
        connection_limit: CONNECTION LIMIT; -1 without a limit.
        allows_connections: datallowconn.
    """

    oid: int
    name: str
    frozen_xid: int
    min_multixact: int
    connection_limit: int
    allows_connections: bool


class RoleLimit(Struct, frozen=True, gc=False):
    """A role with a CONNECTION LIMIT; roles without one are not listed."""

    oid: int
    name: str
    connection_limit: int


class DatabaseLimits(Struct, frozen=True, gc=False):
    """All databases of the server, and the roles with a limit, read on a slow cadence."""

    at_s: float
    next_xid: int
    next_multixact: int
    databases: Annotated[tuple[DatabaseFacts, ...], KeyedBy("oid")]
    role_limits: Annotated[tuple[RoleLimit, ...], KeyedBy("oid")] = ()


class TempFiles(Struct, frozen=True, gc=False):
    """Present temporary files of one process."""

    pid: int
    files: int
    bytes: int


class TempFileSample(Struct, frozen=True, gc=False):
    """pg_ls_tmpdir() of all tablespaces. Shared files of parallel workers are in directories and are not listed."""

    at_s: float
    processes: Annotated[tuple[TempFiles, ...], KeyedBy("pid")]


# Progress of commands.


class ProgressRow(Struct, frozen=True, gc=False):
    """One row of a pg_stat_progress_* view.

    Attributes:
        pid: Pid of the backend, which has at most one such command.
        command: "VACUUM", "ANALYZE", "CREATE INDEX CONCURRENTLY", "CLUSTER", "REPACK", "COPY FROM", "BASE BACKUP", …
        relation: Table, with its index if the command has one; the oid as text for a table of another database, ""
            without a table.
        phase: The server's name of the phase; "" where the view has none.
        done, total: Counts of the phase; None if the phase counts nothing, or the total is unknown.
        unit: Unit of `done` and `total`: "blocks", "tuples", "bytes", "indexes", "lockers", "statistics"; "" without.
        steps_done, steps_total: Outer counts: partitions, child tables, tablespaces; None if the view has none.
        steps_unit: Unit of the outer counts.
        tuples: Rows processed so far (COPY, CREATE INDEX, CLUSTER), dead rows found (VACUUM); None if the view has no
            such count.
        memory_bytes: Memory of the dead tuples that VACUUM has collected.
        memory_limit_bytes: Limit of that memory, at which VACUUM needs another pass over the indexes.
        passes: Completed index vacuum cycles.
        delay_ms: Time slept because of the cost limit (18+, with track_cost_delay_timing); None otherwise.
        mode: "normal", "aggressive" or "failsafe" for VACUUM, "full" or "incremental" for a base backup (19+); ""
            without.
        started_by: "manual", "autovacuum", "autovacuum_wraparound" for VACUUM and ANALYZE (19+); "" without.
    """

    pid: int
    command: str
    datname: str | None
    relation: str
    phase: str
    done: int | None
    total: int | None
    unit: str
    steps_done: int | None
    steps_total: int | None
    steps_unit: str
    tuples: int | None
    memory_bytes: int | None
    memory_limit_bytes: int | None
    passes: int | None
    delay_ms: float | None
    mode: str = ""
    started_by: str = ""


class ProgressSample(Struct, frozen=True, gc=False):
    """All pg_stat_progress_* views at one time."""

    at_s: float
    commands: Annotated[tuple[ProgressRow, ...], KeyedBy("pid")]
