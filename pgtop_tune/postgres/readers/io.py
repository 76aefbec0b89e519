"""Readings of the server's input and output: databases, pg_stat_io, SLRU caches, archiver, WAL directory."""

from __future__ import annotations

from typing import Final

from pgtop_tune.model.absence import Reason, Unavailable, grant
from pgtop_tune.model.io import (
    ArchiverStatus,
    DatabaseRow,
    DatabaseSample,
    IoCounters,
    IoSample,
    SlruCounters,
    SlruSample,
    WalFiles,
)
from pgtop_tune.model.postgres import ServerFacts
from pgtop_tune.postgres.queries import sql
from pgtop_tune.postgres.server.connection import ReadConnection

IO_SINCE: Final = 16
NO_IO: Final = Unavailable(Reason.NOT_SUPPORTED, f"pg_stat_io came with PostgreSQL {IO_SINCE}")


async def read_databases(connection: ReadConnection, major: int, at_s: float) -> DatabaseSample:
    """pg_stat_database, one row per database."""
    rows = [dict(row) for row in await connection.fetch(sql("databases", major))]
    left_out = max((row.pop("left_out") for row in rows), default=0)
    return DatabaseSample(at_s, tuple(DatabaseRow(**row) for row in rows), max(left_out, 0))


async def read_io(connection: ReadConnection, major: int, at_s: float) -> IoSample:
    """pg_stat_io; for majors from `IO_SINCE` on."""
    rows = [dict(row) for row in await connection.fetch(sql("io", major))]
    resets = [moment for row in rows if (moment := row.pop("stats_reset_ms")) is not None]
    return IoSample(at_s, max(resets, default=None), tuple(IoCounters(**row) for row in rows))


async def read_slru(connection: ReadConnection, major: int, at_s: float) -> SlruSample:
    """pg_stat_slru."""
    return SlruSample(at_s, tuple(SlruCounters(**row) for row in await connection.fetch(sql("slru", major))))


async def read_archiver(connection: ReadConnection, major: int, at_s: float) -> ArchiverStatus:
    """pg_stat_archiver."""
    return ArchiverStatus(at_s, **(await connection.fetch(sql("archiver", major)))[0])


async def read_wal_files(connection: ReadConnection, major: int, at_s: float) -> WalFiles:
    """pg_ls_waldir(), counted."""
    return WalFiles(at_s, **(await connection.fetch(sql("wal_files", major)))[0])


def wal_files_refused(why: Unavailable, facts: ServerFacts | None) -> Unavailable:
    """The server's no to pg_ls_waldir(), with what would open it."""
    if why.reason is not Reason.NO_PERMISSION or facts is None:
        return why
    return Unavailable(why.reason, f"the WAL directory is closed to us: {grant('pg_monitor', facts.user)} opens it")
