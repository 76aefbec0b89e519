"""The check over the live screen of a real server: what it finds there, and mending it in a pending set."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.advice.knobs.catalogue import KNOBS
from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.live_screen import WIDE, LiveScreen, live_screen
from tests.support.servers import conninfo

_SELDOM_S = 300.0


def _work_mem(server: Throwaway, *statements: str) -> str:
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)  # type: ignore[call-overload]
    with psycopg.connect(conninfo(server)) as connection:
        row = connection.execute("SELECT current_setting('work_mem')").fetchone()
    assert row is not None
    return str(row[0])


async def _tag(screen: LiveScreen, id_: str) -> None:
    """Moves to a finding and tags it."""
    await screen.press("home")
    for _ in range(100):
        at = await screen.shows(r"▸ +(?:● )? *(\w+) +([A-Z]+-\d+)")
        if at[0][2] == id_:
            break
        await screen.press("down")
        before = at[0].string
        await screen.until(lambda lines, before=before: before not in lines)  # type: ignore[misc]
    await screen.press("space")
    await screen.shows(rf"● +\w+ +{id_}")


@pytest.mark.long
async def test_a_finding_of_a_real_server_is_mended_on_trial_and_taken_back(
    fresh_server: Throwaway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reload = "SELECT pg_reload_conf()"
    assert await asyncio.to_thread(_work_mem, fresh_server, "ALTER SYSTEM SET work_mem = '64kB'", reload) == "64kB"
    async with live_screen(conninfo(fresh_server), tmp_path, WIDE, _SELDOM_S, knobs=KNOBS) as screen:
        await screen.press("C")
        await screen.shows(r"work_mem is 64 kB for every session", r"found: .*unknown: \d+ . passed: \d+")
        await _tag(screen, "MEM-04")
        # What is advised for this machine.
        shown = await screen.shows(r"apply: ALTER SYSTEM SET .work_mem. = '(\d+MB)'; SELECT pg_reload_conf\(\);")
        value = shown[0][1]
        await screen.press("a")
        await screen.shows(r"y  apply it")
        await screen.press("y")
        await screen.shows(rf"Y confirm +u undo +work_mem 64kB→{value}", rf"work_mem is now {value}, read back")
        assert await asyncio.to_thread(_work_mem, fresh_server) == value
        await screen.press("u")
        await screen.shows(r"y  undo")
        await screen.press("y")
        await screen.shows(r"work_mem is 64kB again")
        assert await asyncio.to_thread(_work_mem, fresh_server) == "64kB"
