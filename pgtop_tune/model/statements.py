"""Readings of single statements: entries of pg_stat_statements, raw, and their texts.

Times are whole microseconds since the entry was made (the view has fractions of milliseconds): integers that only
grow are recorded as small differences.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Struct

from pgtop_tune.model.recorded_as import WIDE, KeyedBy

OWN_MARK: Final = "/* pgtop-tune */"
"""Stands in the texts of this program's own statements, on the server as in its statistics."""


class StatementCounters(Struct, frozen=True, gc=False):
    """One entry of pg_stat_statements. What an older version of the extension does not count is None."""

    id: str
    """"queryid/userid/dbid/toplevel": what an entry is about."""
    queryid: Annotated[int, WIDE]
    usename: str | None
    datname: str | None
    """None when the role or the database is gone."""
    toplevel: bool
    """False for a statement run inside a function."""
    plans: int
    """0 throughout while pg_stat_statements.track_planning is off."""
    plan_us: int
    calls: int
    exec_us: int
    min_exec_us: int
    max_exec_us: int
    rows: int
    shared_blks_hit: int
    shared_blks_read: int
    shared_blks_dirtied: int
    shared_blks_written: int
    local_blks_read: int
    local_blks_written: int
    temp_blks_read: int
    temp_blks_written: int
    blk_read_us: int
    """Of shared blocks, from 1.11 (PostgreSQL 17) on of local ones too; 0 while track_io_timing is off."""
    blk_write_us: int
    temp_blk_us: int | None
    """Reading and writing temporary files; from 1.10 (PostgreSQL 15) on."""
    wal_records: int
    wal_fpi: int
    wal_bytes: int
    wal_buffers_full: int | None
    """From 1.12 (PostgreSQL 18) on."""
    jit_functions: int | None
    jit_us: int | None
    """Generation, inlining, optimization, emission; from 1.10 (PostgreSQL 15) on."""
    stats_since_ms: int | None
    """When the entry was made; from 1.11 (PostgreSQL 17) on."""
    generic_plan_calls: int | None = None
    """Executions of prepared statements with a generic plan; from 1.13 (PostgreSQL 19) on."""
    custom_plan_calls: int | None = None
    """With a plan made for their parameters; a statement that is not prepared counts in neither."""


class StatementSample(Struct, frozen=True, gc=False):
    """The entries that matter: those that changed most since the look before, and those with most time of all.

    A rate needs two readings of an entry. An entry that stands in this sample and not in the one before has its older
    reading in `before`; one that is in neither was not on the server then, and all it counts happened since.
    """

    at_s: float
    before_s: float | None
    """Moment of the look before; None in the first."""
    statements: Annotated[tuple[StatementCounters, ...], KeyedBy("id")]
    before: Annotated[tuple[StatementCounters, ...], KeyedBy("id")] = ()
    unknown_before: tuple[str, ...] = ()
    """Ids of entries that were on the server and whose older reading we do not have."""
    changed: int = 0
    """Entries, kept or not, that were planned or executed since the look before."""
    left_out: int = 0
    """Of them, entries that are not in `statements`."""
    hidden: int = 0
    """Entries of other users this role may not see (pg_read_all_stats)."""
    own: int = 0
    """Entries of this program's own statements, left out."""


class StatementText(Struct, frozen=True, gc=False):
    """The text of a query id as pg_stat_statements keeps it: of the first such statement, constants replaced."""

    queryid: Annotated[int, WIDE]
    query: str
    """The first 4,000 characters; "" where the server has lost it. Foreign text."""
    characters: int
    """Length of the whole text."""


class StatementTexts(Struct, frozen=True, gc=False):
    """Texts of the entries in the StatementSample, each fetched once; some may come later than their entry."""

    at_s: float
    """When the last of them was fetched."""
    texts: Annotated[tuple[StatementText, ...], KeyedBy("queryid")]
