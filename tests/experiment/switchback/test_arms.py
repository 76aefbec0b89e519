"""The two arms on a real server: in force by turns, pending confirmation, and put back to the byte."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import ServerProblem, UnsafeChange, UsageProblem
from pgtop_tune.changes.change_sets import ChangeSets
from pgtop_tune.changes.journal import journals, read
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.changes.server.one_change import Rules
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.experiment.switchback.arms import Arm, Arms, Rival, as_shown, resolved
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.postgres.server.conninfo import resolve
from tests.support.frames import parameter
from tests.support.servers import conninfo

RIVALS = (Rival("work_mem", "current", "64MB"), Rival("wal_writer_delay", "100ms", "20ms"))


def shown(server: Throwaway, name: str) -> str:
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        return str(connection.execute(f"SHOW {name}").fetchone()[0])  # type: ignore[index]


def settings(server: Throwaway) -> bytes:
    return (Path(str(server.data_dir)) / "postgresql.auto.conf").read_bytes()


async def door(server: Throwaway, directory: Path) -> PostgresControl:
    return PostgresControl(resolve(conninfo(server)), directory=directory, rules=Rules(fenced=True))


async def arms_of(control: PostgresControl, rivals: Sequence[Rival] = RIVALS) -> Arms:
    found = await control.list(tuple(each.name for each in rivals))
    meant = resolved(rivals, {each.name: each for each in found})
    return Arms(ChangeSets(control, None), control, meant, frozenset())


async def test_arms_are_in_force_by_turns_and_everything_is_put_back_to_the_byte(
    fresh_server: Throwaway, tmp_path: Path
) -> None:
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET wal_writer_delay = '300ms'")
        connection.execute("ALTER SYSTEM SET commit_siblings = 7")
        connection.execute("SELECT pg_reload_conf()")
    before = settings(fresh_server)
    control = await door(fresh_server, tmp_path)
    try:
        arms = await arms_of(control)
        await arms.check(60)
        assert settings(fresh_server) == before
        seen = []
        for arm in (Arm.A, Arm.B, Arm.B, Arm.A):
            changed = await arms.to(arm, 60)
            seen.append((changed, shown(fresh_server, "work_mem"), shown(fresh_server, "wal_writer_delay")))
            assert await arms.foreign_change() == ""
        assert seen == [
            (True, "4MB", "100ms"), (True, "64MB", "20ms"), (False, "64MB", "20ms"), (True, "4MB", "100ms"),
        ]  # fmt: skip
        assert await arms.restore("over") == ""
        assert settings(fresh_server) == before
        assert shown(fresh_server, "wal_writer_delay") == "300ms"
    finally:
        await control.aclose()
    (path,) = journals(tmp_path)
    reasons = [change.reason for change in read(path).changes]
    assert "ab: B is work_mem=64MB, wal_writer_delay=20ms" in reasons
    assert not read(path).in_force


async def test_a_kept_arm_outlives_the_program_and_can_be_reverted(fresh_server: Throwaway, tmp_path: Path) -> None:
    control = await door(fresh_server, tmp_path)
    try:
        arms = await arms_of(control)
        await arms.to(Arm.A, 60)
        await arms.keep(Arm.B)
    finally:
        await control.aclose()
    assert shown(fresh_server, "work_mem") == "64MB"
    (path,) = journals(tmp_path)
    assert [(change.name, change.kept, change.until_ms) for change in read(path).in_force] == [
        ("work_mem", True, None), ("wal_writer_delay", True, None),
    ]  # fmt: skip


async def test_a_value_that_someone_else_sets_is_noticed_and_stays(fresh_server: Throwaway, tmp_path: Path) -> None:
    control = await door(fresh_server, tmp_path)
    try:
        arms = await arms_of(control, (Rival("work_mem", "current", "64MB"),))
        await arms.to(Arm.B, 60)
        with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET work_mem = '8MB'")
            connection.execute("SELECT pg_reload_conf()")
        async with asyncio.timeout(30):
            while not (noticed := await arms.foreign_change()):
                await asyncio.sleep(0.05)
        assert noticed == "work_mem was changed to 8MB by someone else"
        # A is the value that was current, and is put into force again.
        await arms.to(Arm.A, 60)
        assert shown(fresh_server, "work_mem") == "4MB"
        assert await arms.restore("over") == ""
        assert shown(fresh_server, "work_mem") == "8MB"
    finally:
        await control.aclose()


async def test_a_value_that_does_not_reach_sessions_is_said_before(fresh_server: Throwaway, tmp_path: Path) -> None:
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        connection.execute("ALTER DATABASE postgres SET work_mem = '16MB'")
    before = settings(fresh_server)
    control = await door(fresh_server, tmp_path)
    try:
        arms = await arms_of(control, (Rival("work_mem", "current", "64MB"),))
        with pytest.raises(ServerProblem, match=r"work_mem does not reach the load: .*16MB"):
            await arms.check(60)
        assert settings(fresh_server) == before
    finally:
        await control.aclose()


async def test_a_value_that_can_lose_data_is_locked_as_it_is_for_set(fresh_server: Throwaway, tmp_path: Path) -> None:
    before = settings(fresh_server)
    control = await door(fresh_server, tmp_path)
    try:
        arms = await arms_of(control, (Rival("full_page_writes", "on", "off"),))
        with pytest.raises(UnsafeChange):
            await arms.check(60)
        assert settings(fresh_server) == before
    finally:
        await control.aclose()


def test_what_a_switch_cannot_judge_is_refused() -> None:
    sighup = parameter("max_wal_size", "1024", "1GB", "MB")
    for context, words in (("postmaster", "takes a restart"), ("backend", "new sessions only"), ("internal", "cannot")):
        given = {"max_wal_size": _of_context(sighup, context)}
        with pytest.raises(UsageProblem, match=words):
            resolved((Rival("max_wal_size", "1GB", "2GB"),), given)
    given = {"max_wal_size": _of_context(sighup, "sighup")}
    with pytest.raises(UsageProblem, match="A and B are both 1024MB"):
        resolved((Rival("max_wal_size", "current", "1024MB"),), given)
    assert resolved((Rival("MAX_WAL_SIZE", "current", "2GB"),), given) == (Rival("max_wal_size", "1GB", "2GB"),)


def test_values_compare_as_the_server_shows_them() -> None:
    assert as_shown(parameter("work_mem", "4096", "4MB", "kB"), "4096") == "4MB"
    assert as_shown(parameter("jit", "on", "on", vartype="bool"), "TRUE") == "on"
    assert as_shown(parameter("random_page_cost", "4", "4", vartype="real"), "4.0") == "4"


def _of_context(found: Parameter, context: str) -> Parameter:

    return replace(found, context=context)
