"""The bus company's tables: sized, the same for the same seed everywhere, made in parts, gone on with."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem, LoadProblem
from pgtop_tune.bench.argv import run_argv
from pgtop_tune.bench.datasets.bus import BLOCK_TICKETS, SEATS, TABLES, BusPlan, parse_size, table_sizes
from pgtop_tune.bench.datasets.bus_make import GENERATE, make_bus
from pgtop_tune.bench.datasets.pgbench_tables import Initialised, InitialiseProgress
from pgtop_tune.bench.datasets.recognise import found_variables, recognise_bus
from pgtop_tune.bench.locate import Pgbench, find_pgbench
from pgtop_tune.bench.messages import hint_for, last_words
from pgtop_tune.bench.ports import LoadEndpoint
from pgtop_tune.bench.profiles import PROTOCOLS, SHIPPED, Profile, load_profiles, with_variables
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.postgres.server.sql_session import PsycopgSession, open_sql_session
from tests.support.processes import eventually
from tests.support.servers import conninfo

SMALL = BusPlan(tickets=6000, seed=7, foreign_keys=True)
LEHMER = ((48271, 2147483647), (69621, 2147483629), (40692, 2147483399))
FIRST = (
    "Ada Ben Cleo Dan Eve Finn Gia Hugo Ines Jon Kira Leo Mina Nils Ola Pia "
    "Quin Rosa Sam Tess Uma Vera Will Xenia Yara Zeno Anna Boris Clara David Elsa Fabio"
)


def silent(progress: InitialiseProgress) -> None:
    pass


async def made(database: str, plan: BusPlan, *, anew: bool = False, jobs: int = 1) -> Initialised:
    return await make_bus(lambda: open_sql_session(resolve(database)), plan, anew=anew, jobs=jobs, tell=silent)


@pytest.fixture
async def sql_session(database: str) -> AsyncIterator[PsycopgSession]:
    opened = await open_sql_session(resolve(database))
    yield opened
    await opened.aclose()


async def digest(sql_session: PsycopgSession) -> dict[str, str]:
    await sql_session.execute("SET datestyle = iso; SET timezone = 'UTC'")
    found = {}
    for table in TABLES:
        [(value,)] = await sql_session.rows(
            f"SELECT md5(string_agg(t::text, ' ' ORDER BY t::text COLLATE \"C\")) FROM bus.{table} t"
        )
        found[table] = str(value)
    return found


@given(st.integers(1, 10**10))
def test_parts_cover_every_ticket_once(tickets: int) -> None:
    plan = BusPlan(tickets)
    assert plan.chunk(0)[0] == 1
    assert plan.chunk(plan.chunks - 1)[1] == tickets
    middle = plan.chunks // 2
    if middle:
        assert plan.chunk(middle - 1)[1] + 1 == plan.chunk(middle)[0]
    rows = table_sizes(tickets)
    assert tickets <= rows["rides"] * SEATS < tickets + BLOCK_TICKETS
    assert rows["schedules"] * (rows["days"] - 1) < rows["rides"] <= rows["schedules"] * rows["days"]
    assert rows["days"] <= 366


@pytest.mark.parametrize(
    ("text", "tickets"),
    [
        ("600000", 600_000),
        ("6M", 6_000_000),
        ("1.5k", 1500),
        ("0.6GB", round(0.6e9 / 138.2)),
        ("600mb", round(6e8 / 138.2)),
        (" 10 ", 10),
    ],
)
def test_a_size_is_tickets_or_room_on_disk(text: str, tickets: int) -> None:
    assert parse_size(text) == tickets


@pytest.mark.parametrize("text", ["", "0", "-5", "6X", "1e9", "100000000000", "GB", "nan"])
def test_a_size_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(LoadProblem, match="is not a size of the bus data set"):
        parse_size(text)


@pytest.mark.parametrize("wrong", [{"tickets": 0}, {"seed": -1}, {"seed": 2**31}])
def test_a_plan_out_of_range_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(LoadProblem):
        BusPlan(**wrong)


DIGEST = {
    "cities": "a0f195b2afcb677253507ffd7a7d955f",
    "stations": "5933e4e9b39d51de9d163f49b23c2fa2",
    "buses": "885feb989db7c3b856a45c15f23a4f5f",
    "seats": "9bd841060ade5eb4ce0501390095d379",
    "routes": "b3d23e39a6d947156acefcd823ef1335",
    "schedule": "216864a7a4bc2c9bc611e01eeff34767",
    "rides": "91d6f1d3692ddffcebfb62207cfff4ae",
    "tickets": "6ef475186f317ae0e9452749d38ea730",
}
"""Of `SMALL`; when it changes, so must `VERSION`."""


@pytest.mark.ends_of_majors
async def test_the_same_seed_makes_the_same_tables_on_every_server(all_servers: Throwaway) -> None:
    name = "bus_digest"
    with psycopg.connect(conninfo(all_servers), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        try:
            await made(conninfo(all_servers, name), SMALL)
            sql_session = await open_sql_session(resolve(conninfo(all_servers, name)))
            assert await digest(sql_session) == DIGEST
            await sql_session.aclose()
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def test_every_row_follows_from_its_number_and_the_seed(sql_session: PsycopgSession, database: str) -> None:
    done = await made(database, SMALL)
    assert [name for name, _ in done.steps_s] == [
        "create tables", GENERATE, "vacuum", "primary keys", "indexes", "foreign keys",
    ]  # fmt: skip
    rows = await sql_session.rows("SELECT ticket_id, ride_id, price_cents, seat, passenger FROM bus.tickets ORDER BY 1")
    assert len(rows) == SMALL.tickets
    for ticket, ride, price, seat, passenger in rows[::97]:
        value = int(str(ticket)) + SMALL.seed
        for factor, modulus in LEHMER:
            value = value * factor % modulus
        place = (int(str(ticket)) - 1) % BLOCK_TICKETS * 1013 % BLOCK_TICKETS
        block = (int(str(ticket)) - 1) // BLOCK_TICKETS
        assert (ride, price, seat) == (1 + block * 64 + place // SEATS, 500 + value % 9400, 1 + place % SEATS)
        assert str(passenger).startswith(FIRST.split()[value % 32] + " ")
    assert await sql_session.rows("SELECT count(DISTINCT (ride_id, seat)), max(ride_id) <= 192 FROM bus.tickets") == [
        (SMALL.tickets, True)
    ]
    wrong = (
        "SELECT count(*) FROM bus.rides r"
        " WHERE tickets_sold <> (SELECT count(*) FROM bus.tickets t WHERE t.ride_id = r.ride_id)"
    )
    assert await sql_session.rows(wrong) == [(0,)]
    counted = {table: (await sql_session.rows(f"SELECT count(*) FROM bus.{table}"))[0][0] for table in TABLES}
    expected = table_sizes(SMALL.tickets)
    assert counted == {
        "cities": 50, "stations": 150, "buses": 10, "seats": 400, "routes": expected["routes"],
        "schedule": expected["schedules"], "rides": expected["rides"], "tickets": 6000,
    }  # fmt: skip
    assert await sql_session.rows("SELECT count(DISTINCT ride_date) FROM bus.rides") == [(expected["days"],)]
    same_city = (
        "SELECT count(*) FROM bus.routes r JOIN bus.stations a ON a.station_id = from_station_id"
        " JOIN bus.stations b ON b.station_id = to_station_id WHERE a.city_id = b.city_id"
    )
    assert await sql_session.rows(same_city) == [(0,)]
    facts = await recognise_bus(sql_session)
    assert facts is not None
    assert facts.fulfils(SMALL)
    assert not facts.fulfils(replace(SMALL, seed=8))
    assert facts.fulfils(replace(SMALL, foreign_keys=False))
    assert facts.variables()["tickets"] == "6000"
    assert facts.describe().startswith("6000 tickets, seed 7, ")
    assert await sql_session.rows("INSERT INTO bus.tickets (ride_id, price_cents, seat, passenger, contact)"
                           " VALUES (1, 1, 1, 'x', '{}') RETURNING ticket_id") == [(6001,)]  # fmt: skip


async def test_another_seed_makes_other_tickets_and_replaces_only_when_told(
    sql_session: PsycopgSession, database: str
) -> None:
    await made(database, SMALL)
    before = await digest(sql_session)
    with pytest.raises(LoadProblem, match=r"another bus data set exists: 6000 tickets, seed 7"):
        await made(database, replace(SMALL, seed=8))
    assert await digest(sql_session) == before
    assert (await made(database, SMALL)).steps_s == ()
    done = await made(database, replace(SMALL, seed=8), anew=True)
    assert done.steps_s[0][0] == "drop tables"
    assert (await digest(sql_session))["tickets"] != before["tickets"]


async def test_unlogged_tables_are_said_to_be_not_representative(sql_session: PsycopgSession, database: str) -> None:
    await made(database, replace(SMALL, unlogged=True))
    logged = (
        "SELECT relname::text FROM pg_class"
        " WHERE relnamespace = 'bus'::regnamespace AND relkind = 'r' AND relpersistence = 'p'"
    )
    assert sorted(await sql_session.rows(logged)) == [("chunks",), ("dataset",)]
    facts = await recognise_bus(sql_session)
    assert facts is not None
    assert facts.describe().endswith("unlogged: no WAL, not representative")
    assert not facts.fulfils(SMALL)


async def test_tickets_that_were_lost_are_missed(sql_session: PsycopgSession, database: str) -> None:
    await made(database, SMALL)
    await sql_session.execute("TRUNCATE bus.tickets")
    facts = await recognise_bus(sql_session)
    assert facts is not None
    assert "the tickets are missing" in facts.describe()
    assert facts.empty
    with pytest.raises(LoadProblem, match="incomplete: the tickets are missing"):
        await found_variables(sql_session, "bus")
    await made(database, SMALL, anew=True)
    assert (await found_variables(sql_session, "bus"))["tickets"] == "6000"


async def test_foreign_keys_are_added_to_what_is_there(sql_session: PsycopgSession, database: str) -> None:
    await made(database, replace(SMALL, foreign_keys=False))
    done = await made(database, SMALL)
    assert [name for name, _ in done.steps_s] == ["foreign keys"]


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> int:
    """Tickets of a part, small enough for many of them."""
    for module in ("bus", "recognise"):
        monkeypatch.setattr(f"pgtop_tune.bench.datasets.{module}.CHUNK_TICKETS", 4 * BLOCK_TICKETS)
    return 4 * BLOCK_TICKETS


async def test_cut_off_it_leaves_nothing_running_and_is_gone_on_with(
    sql_session: PsycopgSession, database: str, part: int
) -> None:
    plan = BusPlan(tickets=10 * part + 10, seed=3)
    some = asyncio.Event()
    task = asyncio.create_task(
        make_bus(
            lambda: open_sql_session(resolve(database)),
            plan,
            anew=False,
            jobs=2,
            tell=lambda each: some.set() if each.done else None,
        )
    )
    async with asyncio.timeout(60):
        await some.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with psycopg.connect(database, autocommit=True) as connection:
        assert eventually(lambda: connection.execute(others).fetchone() == (1,)), "only the hand of this test"
    facts = await recognise_bus(sql_session)
    assert facts is not None
    assert 0 < facts.loaded < plan.tickets
    assert "server-side generate not done" in facts.incomplete
    with pytest.raises(LoadProblem, match="bus data set is incomplete"):
        await found_variables(sql_session, "bus")
    there = facts.loaded // part
    told: list[InitialiseProgress] = []
    await make_bus(lambda: open_sql_session(resolve(database)), plan, anew=False, jobs=2, tell=told.append)
    assert next(each.done for each in told if each.total) == there * part
    assert [each.done for each in told if each.total][-1] == plan.tickets
    gone_on = await digest(sql_session)
    await made(database, plan, anew=True)
    assert await digest(sql_session) == gone_on


async def test_two_makings_do_not_meet(sql_session: PsycopgSession, database: str) -> None:
    await sql_session.rows("SELECT pg_advisory_lock(hashtext('pgtop-tune bus'))")
    with pytest.raises(LoadProblem, match="another pgtop-tune is creating the bus data set"):
        await made(database, SMALL)


async def test_tables_of_somebody_else_are_left_alone(sql_session: PsycopgSession, database: str) -> None:
    await sql_session.execute("CREATE SCHEMA bus; CREATE TABLE bus.tickets (id int, price numeric)")
    with pytest.raises(
        LoadProblem, match=r"table bus\.tickets that is not the bus data set's \(its columns: id, price\)"
    ):
        await made(database, SMALL, anew=True)
    assert await sql_session.rows("SELECT count(*) FROM bus.tickets") == [(0,)]


async def test_what_hangs_on_the_tables_keeps_them(sql_session: PsycopgSession, database: str) -> None:
    await made(database, SMALL)
    await sql_session.execute("CREATE VIEW public.dear AS SELECT * FROM bus.tickets")
    with pytest.raises(LoadProblem, match="other objects depend on"):
        await made(database, SMALL, anew=True)
    assert await sql_session.rows("SELECT count(*) FROM public.dear") == [(6000,)]
    await sql_session.execute("DROP VIEW public.dear")
    await made(database, SMALL, anew=True)
    assert await sql_session.rows("SELECT count(*) FROM bus.tickets") == [(6000,)]


@pytest.fixture(scope="module")
def bus(server: Throwaway) -> Iterator[LoadEndpoint]:
    name = "bus_profiles"
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        asyncio.run(made(conninfo(server, name), SMALL))
        yield LoadEndpoint(str(server.socket_dir), server.port, server.user, name)
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


SCRIPTED = [each for each in load_profiles((SHIPPED,)).by_name.values() if each.scripts]


async def run_once(profile: Profile, protocol: str, bus: LoadEndpoint, server: Throwaway, pgbench: Pgbench) -> None:
    sql_session = await open_sql_session(resolve(conninfo(server, bus.dbname)))
    found = await found_variables(sql_session, "bus")
    await sql_session.aclose()
    spec = LoadSpec(profile=profile.name, clients=2, threads=1, transactions=20, protocol=protocol, seed=1)
    with tempfile.TemporaryDirectory() as log_dir:
        argv = run_argv(with_variables(spec, profile, found), profile, pgbench, bus, Path(log_dir))
        ran = subprocess.run(
            argv, capture_output=True, text=True, timeout=60, env=os.environ | pgbench.environment(), check=False
        )
    assert ran.returncode == 0, ran.stderr
    assert "actually processed: 40/40" in ran.stdout
    assert "ERROR" not in ran.stderr


@pytest.mark.parametrize("profile", SCRIPTED, ids=lambda each: each.name)
async def test_our_profiles_run(profile: Profile, bus: LoadEndpoint, server: Throwaway) -> None:
    await run_once(profile, profile.protocol, bus, server, find_pgbench())


@pytest.mark.long
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("profile", SCRIPTED, ids=lambda each: each.name)
async def test_our_profiles_run_with_every_pgbench_and_protocol(
    profile: Profile, protocol: str, bus: LoadEndpoint, server: Throwaway, pgbench: Pgbench
) -> None:
    await run_once(profile, protocol, bus, server, pgbench)


def test_without_its_data_set_a_profile_fails_with_what_to_do(
    bus: LoadEndpoint, pgbench: Pgbench, tmp_path: Path
) -> None:
    profiles = load_profiles((SHIPPED,))
    for name, said in (("ticket-read", 'undefined variable "tickets"'), ("hot-row", 'relation "bus.rides" does not')):
        profile = profiles.get(name)
        spec = LoadSpec(profile=name, clients=1, transactions=1, variables=profile.variables)
        argv = run_argv(spec, profile, pgbench, replace(bus, dbname="postgres"), tmp_path)
        ran = subprocess.run(
            argv, capture_output=True, text=True, timeout=60, env=os.environ | pgbench.environment(), check=False
        )
        assert said in ran.stderr
        assert "pgtop-tune bench init --dataset bus" in hint_for(last_words(ran.stderr))


async def test_a_server_that_goes_away_ends_the_making(make_server: Callable[..., Throwaway], part: int) -> None:
    server = make_server()
    some = asyncio.Event()
    making = asyncio.create_task(
        make_bus(
            lambda: open_sql_session(resolve(conninfo(server))),
            BusPlan(5_000_000),
            anew=False,
            jobs=2,
            tell=lambda each: some.set() if each.done else None,
        )
    )
    async with asyncio.timeout(60):
        await some.wait()
    await asyncio.to_thread(server.stop, "immediate")
    with pytest.raises(ConnectionProblem):
        async with asyncio.timeout(60):
            await making
