"""Readings of single statements: entries of pg_stat_statements, raw, and their texts.

Times are whole microseconds since the entry was made (the view has fractions of milliseconds): integers that only
grow are recorded as small differences.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from msgspec import Struct

from pgtop_tune.model.recorded_as import WIDE, KeyedBy

OWN_MARK: Final = "/* pgtop-tune */"
"""Comment in the texts of this program's own statements, on the server and in its statistics."""

PLAIN_QUERIES: Final = ("SELECT", "INSERT", "UPDATE", "DELETE", "MERGE", "VALUES", "WITH", "TABLE")
"""First words of statements that EXPLAIN plans. Source: EXPLAIN's manual page, "statement"."""
_FIRST_WORD: Final = re.compile(r"(?>[\s(]+|--[^\n]*|/\*.*?\*/)*+([A-Za-z]+)", re.DOTALL)


def first_word(text: str) -> str:
    """Return the first keyword of a statement, in capitals, behind comments and parentheses; "" for none."""
    match = _FIRST_WORD.match(text)
    return match[1].upper() if match else ""


class StatementCounters(Struct, frozen=True, gc=False):
    """One entry of pg_stat_statements. Counters that an older version of the extension lacks are None."""

    id: str
    """"queryid/userid/dbid/toplevel": identity of the entry."""
    queryid: Annotated[int, WIDE]
    usename: str | None
    datname: str | None
    """None when the role or the database is gone."""
    toplevel: bool
    """False for a statement run inside a function."""
    plans: int
    """Always 0 while pg_stat_statements.track_planning is off."""
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
    """Time for shared blocks, from 1.11 (PostgreSQL 17) on also for local ones; 0 while track_io_timing is off."""
    blk_write_us: int
    temp_blk_us: int | None
    """Time for temporary files; from 1.10 (PostgreSQL 15) on."""
    wal_records: int
    wal_fpi: int
    wal_bytes: int
    wal_buffers_full: int | None
    """From 1.12 (PostgreSQL 18) on."""
    jit_functions: int | None
    jit_us: int | None
    """Time of generation, inlining, optimization and emission; from 1.10 (PostgreSQL 15) on."""
    stats_since_ms: int | None
    """Time when the entry was made; from 1.11 (PostgreSQL 17) on."""
    generic_plan_calls: int | None = None
    """Executions of prepared statements with a generic plan; from 1.13 (PostgreSQL 19) on."""
    custom_plan_calls: int | None = None
    """Executions with a plan for their parameters; a statement that is not prepared counts in neither."""


class StatementSample(Struct, frozen=True, gc=False):
    """The most important entries: those that changed most since the reading before, and those with the most total time.

    A rate needs two readings of an entry. If an entry of this sample is missing in the previous one, `before` has its
    older reading. If `before` lacks the entry, too, the entry is new on the server, and all of its counts are new.
    """

    at_s: float
    before_s: float | None
    """Time of the reading before; None in the first."""
    statements: Annotated[tuple[StatementCounters, ...], KeyedBy("id")]
    before: Annotated[tuple[StatementCounters, ...], KeyedBy("id")] = ()
    unknown_before: tuple[str, ...] = ()
    """Ids of entries that were on the server before, without an older reading."""
    changed: int = 0
    """Number of all entries that were planned or executed since the reading before."""
    left_out: int = 0
    """Number of changed entries that are not in `statements`."""
    hidden: int = 0
    """Number of entries of other users that this role may not see (pg_read_all_stats)."""
    own: int = 0
    """Number of entries of this program's own statements, which are left out."""


class StatementText(Struct, frozen=True, gc=False):
    """The text of a query id in pg_stat_statements: the first statement with this id, with constants replaced."""

    queryid: Annotated[int, WIDE]
    query: str
    """The first 4,000 characters; "" if the server has lost the text. Foreign text."""
    characters: int
    """Length of the full text."""


class StatementTexts(Struct, frozen=True, gc=False):
    """Texts of the entries in the StatementSample, each fetched once; some may come later than their entry."""

    at_s: float
    """Time when the last of them was fetched."""
    texts: Annotated[tuple[StatementText, ...], KeyedBy("queryid")]
