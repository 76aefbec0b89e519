"""The profile of pg_wait_sampling, played by a view of the same shape: the extension is not to be had here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics.waits import wait_profile
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import PostgresSample
from pgtop_tune.model.waits import PROFILE_SOURCE, WaitLook, WaitSample
from tests.postgres.conftest import Superuser, place
from tests.postgres.reading import Clock, reading
from tests.sampling.test_live_source import watching

SCHEMA = 'Odd "ws"'


@pytest.fixture
def pretended(database: str) -> Iterator[Superuser]:
    """A database where the extension seems to be, and a session in it that writes its figures."""
    with psycopg.connect(f"{database} application_name=pgbench", autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(SCHEMA)))
        connection.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(SCHEMA)))
        connection.execute("CREATE TABLE p (pid int, event_type text, event text, queryid bigint, count bigint)")
        connection.execute("CREATE VIEW pg_wait_sampling_profile AS SELECT * FROM p")
        connection.execute("SET allow_system_table_mods = on")
        connection.execute(
            "INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion) "
            "SELECT 99999, 'pg_wait_sampling', 10, oid, false, '1.1' FROM pg_namespace WHERE nspname = %s",
            (SCHEMA,),
        )
        name = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("ALTER DATABASE {} SET pg_wait_sampling.profile_period = 10").format(name))
        yield connection


def write(connection: Superuser, *rows: tuple[str | None, str | None, int, int]) -> None:
    with connection.transaction():
        connection.execute("DELETE FROM p")
        for row in rows:
            connection.execute("INSERT INTO p VALUES (%s, %s, %s, %s, %s)", (connection.info.backend_pid, *row))


def seen(look: WaitLook | Unavailable) -> Counter[tuple[str, str, int | None]]:
    assert isinstance(look, WaitLook)
    found: Counter[tuple[str, str, int | None]] = Counter()
    for count in look.counts:
        found[count.wait_event_type, count.wait_event, count.query_id] += count.observations
        assert (count.of_load, count.usename, count.backend_type) == (True, "postgres", "client backend")
    return found


async def test_growth_of_the_profile_is_what_was_waited(server: Throwaway, pretended: Superuser) -> None:
    clock = Clock()
    async with reading(place(server, pretended.info.dbname), clock) as reader:
        write(pretended, ("IO", "WalSync", 7, 1000), (None, None, 0, 50), ("Activity", "LogicalLauncherMain", 0, 10**9))
        first = await reader.exact_waits()
        assert isinstance(first, WaitLook)
        assert (first.counts, first.samples) == ((), 0), "counted since the server started: nobody's second"
        clock.now_s += 2.0
        write(
            pretended, ("IO", "WalSync", 7, 1080), (None, None, 0, 60), ("Client", "ClientRead", 7, 30),
            ("Lock", "tuple", 8, 5),
        )  # fmt: skip
        second = await reader.exact_waits()
        assert seen(second) == {
            ("IO", "WalSync", 7): 80, ("CPU", "", None): 10, ("Client", "turn", None): 30, ("Lock", "tuple", 8): 5,
        }  # fmt: skip
        assert isinstance(second, WaitLook)
        assert second.samples == 200


async def test_a_reset_profile_gives_nothing_and_no_spike(server: Throwaway, pretended: Superuser) -> None:
    clock = Clock()
    async with reading(place(server, pretended.info.dbname), clock) as reader:
        for count, expected in ((1000, None), (1100, 100), (40, None), (70, 30)):
            write(pretended, ("IO", "WalSync", 7, count))
            clock.now_s += 1.0
            look = await reader.exact_waits()
            assert seen(look) == ({} if expected is None else {("IO", "WalSync", 7): expected})
            assert isinstance(look, WaitLook)
            assert look.samples == (0 if expected is None else 100)


async def test_without_the_extension_nothing_is_asked(server: Throwaway) -> None:
    async with reading(place(server)) as reader:
        sent = reader.own.statements
        why = await reader.exact_waits()
        assert isinstance(why, Unavailable)
        assert why.reason is Reason.NO_EXTENSION
        assert reader.own.statements == sent


def profile_of(frame: Frame) -> WaitSample | None:
    waits = frame.postgres.waits if isinstance(frame.postgres, PostgresSample) else None
    return waits if isinstance(waits, WaitSample) and waits.source == PROFILE_SOURCE else None


def flushes(frame: Frame) -> int:
    profile = profile_of(frame)
    return sum(count.observations for count in profile.counts if count.wait_event == "WalSync") if profile else 0


async def test_the_profile_is_chosen_by_itself_and_named(pretended: Superuser) -> None:
    write(pretended, ("IO", "WalSync", 7, 1000))
    target = f"host={pretended.info.host} port={pretended.info.port} user=postgres dbname={pretended.info.dbname}"
    async with watching(target) as watcher:
        # The first look has nothing to compare with; what it saw is what the next ones count from.
        await watcher.until(lambda frame: (profile := profile_of(frame)) is not None and profile.samples > 0)
        write(pretended, ("IO", "WalSync", 7, 1050))
        await watcher.until(lambda frame: flushes(frame) > 0)
        interval = await watcher.more(2)
        assert sum(map(flushes, watcher.frames)) == 50
        # The kernel may have seen the process of this session on a CPU, or ready for one.
        waits = [wait.label for wait in wait_profile(interval, 60.0) if not wait.label.startswith("CPU")]
        assert waits == ["IO:WalSync"]
