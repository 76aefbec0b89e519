"""Two operators on one server: what another has changed meanwhile is told in words, and nothing is overwritten."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg

from pgtop_tune.advice.knobs.catalogue import KNOBS
from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.live_screen import WIDE, live_screen
from tests.support.servers import conninfo

_SELDOM_S = 300.0
"""No frame after the first: the screen does not learn of it by itself."""


def _run(server: Throwaway, *statements: str) -> str:
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)  # type: ignore[call-overload]
    with psycopg.connect(conninfo(server)) as connection:
        row = connection.execute("SELECT current_setting('max_wal_size')").fetchone()
    assert row is not None
    return str(row[0])


async def test_a_value_that_somebody_else_has_changed_is_not_overwritten_unseen(
    fresh_server: Throwaway, tmp_path: Path
) -> None:
    reload = "SELECT pg_reload_conf()"
    async with live_screen(conninfo(fresh_server), tmp_path, WIDE, _SELDOM_S, knobs=KNOBS) as screen:
        await screen.press("p")
        await screen.shows(r"▸ max_wal_size +1GB")
        await screen.press("plus")
        await screen.shows(r"apply: ALTER SYSTEM SET .max_wal_size. = '2GB'")
        theirs = ("ALTER SYSTEM SET max_wal_size = '5GB'", reload)
        assert await asyncio.to_thread(_run, fresh_server, *theirs) == "5GB"
        await screen.press("a")
        await screen.shows(r"▸ max_wal_size +5GB", r"max_wal_size is now 5GB; it was 1GB when you looked")
        assert await asyncio.to_thread(_run, fresh_server) == "5GB"
        await screen.press("a")
        await screen.shows(r"Y confirm +u undo +max_wal_size 5GB→2GB", r"max_wal_size is now 2GB, read back")
        assert await asyncio.to_thread(_run, fresh_server) == "2GB"
        await screen.press("u")
        await screen.shows(r"y  undo")
        await screen.press("y")
        await screen.shows(r"max_wal_size is 5GB again")
        assert await asyncio.to_thread(_run, fresh_server) == "5GB"
        await screen.until(lambda lines: True if not any("Y confirm" in line for line in lines) else None)
