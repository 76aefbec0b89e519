"""Readings of the server's input and output: databases, pg_stat_io."""

from __future__ import annotations

from pgtop_tune.model.absence import grant
from pgtop_tune.model.io import DatabaseRow, DatabaseSample, IoCounters, IoSample
from pgtop_tune.postgres.readers.section_readers import ReadContext


async def read_databases(context: ReadContext) -> DatabaseSample:
    """pg_stat_database, one row per database."""
    rows = [dict(row) for row in await context.fetch("databases")]
    left_out = max((row.pop("left_out") for row in rows), default=0)
    return DatabaseSample(context.at_s, tuple(DatabaseRow(**row) for row in rows), max(left_out, 0))


async def read_io(context: ReadContext) -> IoSample:
    """pg_stat_io."""
    rows = [dict(row) for row in await context.fetch("io")]
    resets = [moment for row in rows if (moment := row.pop("stats_reset_ms")) is not None]
    return IoSample(context.at_s, max(resets, default=None), tuple(IoCounters(**row) for row in rows))


def wal_files_closed(_: str, user: str) -> str:
    """The GRANT that opens pg_ls_waldir()."""
    return f"the WAL directory is closed to us: {grant('pg_monitor', user)} opens it"
