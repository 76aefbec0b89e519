"""Disk space before the start; rate and remaining time on the way."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.bench.datasets.pgbench_tables import InitialiseProgress, PaceMeter, Room, StepPace, look_for_room
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.postgres.server.sql_session import open_sql_session
from tests.support.servers import conninfo

GB = 2**30


async def looked(server: Throwaway, free: int | str, estimated: int = GB, freed: int = 0) -> tuple[Room, Sequence[str]]:
    asked: list[str] = []

    def free_bytes(directory: str) -> int | str:
        asked.append(directory)
        return free

    sql_session = await open_sql_session(resolve(conninfo(server)))
    room = await look_for_room(sql_session, estimated, freed, free_bytes)
    await sql_session.aclose()
    return room, asked


async def test_too_small_a_disk_is_said_with_both_figures(all_servers: Throwaway) -> None:
    room, asked = await looked(all_servers, GB)
    assert asked == [str(all_servers.data_dir)]
    assert room.needed_bytes == int(2 * GB * 1.1)
    with pytest.raises(LoadProblem, match=r"needs about 2\.20 GB of disk space, but only 1\.00 GB is free"):
        room.check()


async def test_what_is_dropped_first_makes_room(server: Throwaway) -> None:
    room, _ = await looked(server, GB, freed=int(1.5 * GB))
    assert room.check() == ""


async def test_a_disk_that_cannot_be_seen_is_said_and_does_not_stop(server: Throwaway) -> None:
    room, _ = await looked(server, "the server runs on another machine")
    assert room.check() == (
        "needs about 2.20 GB of disk space; free space is unknown: the server runs on another machine"
    )
    nothing, _ = await looked(server, 0, estimated=0)
    assert nothing.check() == ""


def test_pace_is_of_the_step_under_way() -> None:
    meter = PaceMeter()
    assert meter.after(InitialiseProgress("create"), 0.0) == StepPace()
    assert meter.after(InitialiseProgress("rows", 100, 1000), 10.0) == StepPace()
    assert meter.after(InitialiseProgress("rows", 300, 1000), 12.0) == StepPace(100.0, 7.0)
    assert meter.after(InitialiseProgress("rows", 1000, 1000), 19.0) == StepPace(100.0, 0.0)
    assert meter.after(InitialiseProgress("vacuum"), 20.0) == StepPace()


@given(st.lists(st.tuples(st.integers(0, 10**9), st.floats(0, 1e6)), max_size=20))
def test_no_progress_upsets_the_pace(looks: list[tuple[int, float]]) -> None:
    meter = PaceMeter()
    for done, now_s in looks:
        pace = meter.after(InitialiseProgress("rows", done, 10**9), now_s)
        assert pace.per_s is None or pace.per_s > 0
        assert pace.remaining_s is None or pace.remaining_s >= 0


async def test_a_role_that_may_not_see_the_directory_is_told_so(server: Throwaway) -> None:
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("CREATE ROLE plain LOGIN")
        try:
            sql_session = await open_sql_session(resolve(f"{conninfo(server)} user=plain"))
            room = await look_for_room(sql_session, GB, 0, lambda directory: 0)
            await sql_session.aclose()
        finally:
            connection.execute("DROP ROLE plain")
    assert room.check().endswith("is unknown: this role may not see the server's data directory")
