"""What sessions wait for, found by looking ten times a second: commits, pins of a page, sleep; and who just stays."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.crowd import Crowd
from tests.support.live_screen import NARROW, WIDE, in_order
from tests.support.servers import conninfo
from tests.tui.live.conftest import Watch

COMMITS = "DO $$ BEGIN LOOP INSERT INTO written VALUES (1); COMMIT; END LOOP; END $$"


@pytest.fixture
def crowd(database: str) -> Iterator[Crowd]:
    crowd = Crowd(database)
    yield crowd
    crowd.close()


async def test_commits_show_as_waits_for_the_disk_and_for_the_one_that_writes(
    make_server: Callable[..., Throwaway], watch: Watch
) -> None:
    where = conninfo(make_server(fsync="on"))
    crowd = Crowd(where)
    try:
        crowd.session("CREATE TABLE written (n int)", autocommit=True)
        pids = [crowd.waits(crowd.session(autocommit=True), COMMITS) for _ in range(4)]
        async with watch(where) as screen:
            for size in (NARROW, WIDE):
                await screen.resize(size)
                await screen.turn_to("waits")
                for wait in ("IO:WalSync", "LWLock:WALWrite"):
                    await screen.shows(r"^─ events", rf"^ {wait} +[\d.]+ ")
                await screen.shows(r"█ LWLock +[\d.]+", r"█ IO +[\d.]+")
                await screen.turn_to("sessions")
                await screen.shows(rf"^ +{pids[0]} +\d.* active +\S")
                await screen.press("1")
                await screen.shows(
                    r"^─ waits of [\d.]+ active sessions", r"LWLock:WALWrite|IO:WalSync", r"· active [45]"
                )
    finally:
        crowd.close()


@pytest.mark.parametrize("size", [NARROW, WIDE])
async def test_a_pinned_page_and_a_sleeper_are_whole_sessions_of_waiting(
    database: str, crowd: Crowd, watch: Watch, size: tuple[int, int]
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE pinned AS SELECT generate_series(1, 20) AS n")
    # A cursor that stands in the page keeps it pinned, and freezing has to wait until nobody has.
    crowd.session("DECLARE standing CURSOR FOR SELECT * FROM pinned", "FETCH 1 FROM standing")
    vacuum = crowd.waits(crowd.session(autocommit=True), "VACUUM (FREEZE) pinned")
    sleeper = crowd.waits(crowd.session(autocommit=True), "SELECT pg_sleep(600)")
    async with watch(database, size) as screen:
        await screen.turn_to("sessions")
        await screen.shows(
            rf"^ +{vacuum} .* active +BufferPin:BufferPin .*VACUUM",
            rf"^ +{sleeper} .* active +Timeout:PgSleep .*SELECT",
        )
        await screen.turn_to("waits")
        both = r"^ (?:BufferPin:BufferPin|Timeout:PgSleep) +(?:0\.9\d|1|1\.00) +50 "
        await screen.shows(r"^─ active sessions .* active (1\.[89]\d|2\.0\d) ", both, both)


@pytest.mark.parametrize("size", [NARROW, WIDE])
async def test_a_session_idle_in_a_transaction_shows_its_age_and_that_it_grows(
    database: str, crowd: Crowd, watch: Watch, size: tuple[int, int]
) -> None:
    crowd.session("CREATE TABLE kept (n int)", autocommit=True)
    pid = crowd.session("INSERT INTO kept VALUES (1)").info.backend_pid
    row = rf"^ +{pid} .* idle tx +Client:ClientRead +([\d.]+) (?: *([\d.]+) )?.*INSERT"
    async with watch(database, size) as screen:
        await screen.shows(r"^─ sessions .*idle in tx 1", rf"^ +{pid} .* idle tx +Client:ClientRead +[\d.]+ ")
        await screen.turn_to("sessions")
        (first,) = await screen.shows(row)

        def older(lines: list[str]) -> re.Match[str] | None:
            found = in_order(lines, (row,))
            return found[0] if found and float(found[0][1]) >= float(first[1]) + 1 else None

        grown = await screen.until(older)
        assert size == NARROW or float(grown[2]) == pytest.approx(float(grown[1]), abs=0.5)
