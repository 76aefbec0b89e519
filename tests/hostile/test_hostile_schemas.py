"""The owner of a watched database gets no rights through us, whatever he makes under the names that we use."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.postgres.queries import inventory, sql
from pgtop_tune.postgres.server.connection import ReadConnection
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.postgres.server.read_only_connection import open_connection
from tests.cli.runs import run
from tests.hostile.bouncer import Bouncer, program
from tests.support.live_screen import live_screen
from tests.support.quick_server import quick_server
from tests.support.servers import MAJORS, NotAvailable, Servers, conninfo
from tests.support.traps import log_bytes, plant, sprung

DATABASE = "shop"
MONITOR = "watcher"
ABSENT = {"wait_profile"}
"""Of an extension that no server of these tests has."""
VALUES: dict[str, Any] = {
    "int4": 1,
    "int8": 1,
    "text": "x",
    "oid": 1,
    "name": "postgres",
    "text[]": ["1"],
    "oid[]": [1],
    "float8": 1.0,
    "bool": True,
}

WHOLE, QUICKLY = 18, 14
COMMANDS = (
    "record -q --seconds 2 -o {home}/seen.jsonl.gz",
    "check",
    "check -v --format json",
    "check --measure",
    "parameters",
    "advise",
    "set work_mem=8MB",
    "set work_mem=9MB --scope database=shop",
    "set search_path=public --scope role=watcher",
    "set search_path=public",
    "reset search_path",
    "diff {where} {where}",
    "revert",
    "revert --list",
    "bench init -s 1 --force",
    "bench init --dataset bus --size 2000 --force",
    "bench run --profile tpcb-like -c 2 -t 20 --housekeeping truncate-history,vacuum,checkpoint -r",
    "bench run --profile select-only -c 2 -t 20 --housekeeping none",
    "bench run --profile read90-insert9-update1 -c 2 -t 20 --housekeeping none",
    "bench run --profile write-heavy -c 2 -t 20 --housekeeping none",
    "bench run --profile hot-row -c 2 -t 20 --housekeeping none",
    "bench run --profile range-report -c 2 -t 20 --housekeeping none",
    "bench run --profile ticket-read -c 2 -t 20 --housekeeping none",
    "bench run --profile ticket-insert -c 2 -t 20 -M prepared --housekeeping none",
    "bench show tpcb-like",
    "bench list",
)
QUICK_ONES = ("record", "set work_mem=8MB", "bench init -s", "bench run --profile tpcb-like")
"""Also in a quick run on the oldest major; the newest has all of them."""
THROUGH_A_POOLER = (
    "record",
    "check",
    "parameters",
    "set",
    "revert",
    "bench init",
    "bench run --profile tpcb",
    "bench run --profile ticket-i",
)
LONG_ONES = (
    "check --measure",
    *(f"bench run --profile {each}" for each in ("select", "read90", "write", "hot", "ticket-r", "range")),
)
"""Those whose SQL others have, too, and what measures the machine for ten seconds."""
QUICK_WORDS = frozenset(each for each in COMMANDS if each.startswith(QUICK_ONES))


def each_major(number: int) -> Any:
    return pytest.param(number, marks=() if number in (WHOLE, QUICKLY) else pytest.mark.long)


def each_command(words: tuple[str, ...]) -> list[Any]:
    """Major and command; those that take minutes together are for long runs."""
    quick = {(WHOLE, each) for each in words if not each.startswith(LONG_ONES)} | {
        (QUICKLY, each) for each in words if each in QUICK_WORDS
    }
    return [
        pytest.param(number, each, marks=() if (number, each) in quick else pytest.mark.long)
        for number in MAJORS
        for each in words
    ]


@pytest.fixture(scope="module")
def hostile_servers(servers: Servers) -> Iterator[Callable[[int], Throwaway]]:
    """Makes a server of a major, once, with the hostile database and a role that may only watch."""
    made: dict[int, Throwaway] = {}

    def server_of(number: int) -> Throwaway:
        if number not in made:
            made[number] = quick_server(servers.binaries(number), shared_preload_libraries="pg_stat_statements")
            with psycopg.connect(conninfo(made[number]), autocommit=True) as root:
                root.execute(f"CREATE ROLE {MONITOR} LOGIN IN ROLE pg_monitor".encode())
            plant(made[number], DATABASE, MONITOR)
        return made[number]

    yield server_of
    for server in made.values():
        server.stop("immediate")


@pytest.fixture(params=[each_major(number) for number in MAJORS])
def trapped(request: pytest.FixtureRequest, hostile_servers: Callable[[int], Throwaway]) -> Throwaway:
    """The server of each major."""
    try:
        return hostile_servers(request.param)
    except NotAvailable as problem:
        pytest.skip(str(problem))


def place(server: Throwaway, role: str = "") -> str:
    return conninfo(server, DATABASE).replace(f"user={server.user}", f"user={role or server.user}")


def major(server: Throwaway) -> int:
    return server.binaries.major


async def arguments(connection: ReadConnection, text: str) -> list[Any]:
    """Something for each parameter of a statement."""
    statement = await connection._raw.prepare(text)
    return [VALUES[each.name] for each in statement.get_parameters()]


def test_the_traps_are_sprung_by_a_session_that_is_not_pinned(trapped: Throwaway) -> None:
    began = log_bytes(trapped)
    with psycopg.connect(place(trapped), autocommit=True) as plain:
        plain.execute("SELECT FROM pg_stat_database")
        plain.execute("SELECT length('x'::text)")
        plain.execute("SET search_path = public")
        plain.execute("SELECT 1.5::float8 * 2")
    found = "\n".join(sprung(trapped, began))
    for trap in ("view pg_stat_database", "evil.length", "domain text", "operator *(float8,int4)"):
        assert trap in found
    if major(trapped) >= 17:
        assert "as postgres by" in found


async def test_no_statement_of_ours_springs_one(trapped: Throwaway) -> None:
    began = log_bytes(trapped)
    for role in ("", MONITOR):
        connection = await open_connection(resolve(place(trapped, role)), OwnSessions(), 30.0)
        try:
            for name in inventory().keys() - ABSENT:
                try:
                    text = sql(name, major(trapped)).replace("{schema}", "public").replace("{identifier}", "''")
                except LookupError:
                    continue
                try:
                    await connection.fetch(text, *await arguments(connection, text))
                    await connection.fetch_without_own_settings(sql("parameters", major(trapped)))
                except asyncpg.InsufficientPrivilegeError:
                    assert role
        finally:
            await connection.aclose()
    assert sprung(trapped, began) == []


@pytest.mark.parametrize(("trapped", "words"), each_command(COMMANDS), indirect=["trapped"])
def test_no_command_springs_one(trapped: Throwaway, words: str, tmp_path: Path) -> None:
    began = log_bytes(trapped)
    where = place(trapped)
    if words.startswith("bench run") and not has_tables(trapped):
        # A quick run and a long one each leave the making of the tables to themselves.
        run(*filled("bench init -s 1", tmp_path, where), home=tmp_path)
    done = run(*filled(words, tmp_path, where), home=tmp_path)
    assert done.status in ((0, 1, 2, 3) if words.startswith("check") else (0, 1)), done.err
    assert "Traceback" not in done.err
    assert sprung(trapped, began) == []


def has_tables(server: Throwaway) -> bool:
    with psycopg.connect(f"{place(server)} options='-c search_path=pg_catalog'") as root:
        return root.execute("SELECT FROM pg_tables WHERE tablename = 'pgbench_accounts'").fetchone() is not None


def filled(words: str, home: Path, where: str) -> list[str]:
    found = [each.replace("{home}", str(home)).replace("{where}", where) for each in words.split()]
    offline = words.startswith(("diff", "bench show", "bench list"))
    return found if offline else [*found, "-w", "-d", where]


async def test_the_screen_springs_none(trapped: Throwaway, tmp_path: Path) -> None:
    began = log_bytes(trapped)
    with psycopg.connect(place(trapped), autocommit=True) as plain:
        plain.execute("SET search_path = public; SET statement_timeout = 0")
    began = log_bytes(trapped)
    async with live_screen(place(trapped), tmp_path) as screen:
        await screen.shows("TPS")
        for page in "234567890":
            await screen.press(page)
            await asyncio.sleep(0.5)
    assert sprung(trapped, began) == []


def test_what_is_recorded_is_what_the_server_has(trapped: Throwaway, tmp_path: Path) -> None:
    """A view of the owner's that says a thousand times as much is not what is read."""
    with psycopg.connect(conninfo(trapped, DATABASE), autocommit=True) as root:
        root.execute("SET search_path = pg_catalog")
        root.execute(
            "CREATE OR REPLACE VIEW evil.pg_stat_database AS SELECT d.* FROM pg_catalog.pg_stat_database d,"
            " generate_series(1, 1000)"
        )
    done = run("record", "--seconds", "3", "-o", f"{tmp_path}/a.jsonl.gz", "-w", "-d", place(trapped), home=tmp_path)
    assert done.status == 0, done.err
    assert max((float(n) for n in re.findall(r"([\d.]+) tps", done.out + done.err)), default=0.0) < 1000


@pytest.mark.skipif(program() is None, reason="no PgBouncer here")
@pytest.mark.parametrize(
    ("trapped", "words"),
    each_command(tuple(each for each in COMMANDS if each.startswith(THROUGH_A_POOLER))),
    indirect=["trapped"],
)
def test_no_command_springs_one_through_a_pooler(trapped: Throwaway, words: str, tmp_path: Path) -> None:
    with Bouncer(trapped, size=8) as bouncer:
        settle(trapped)
        began = log_bytes(trapped)
        done = run(*filled(words, tmp_path, bouncer.conninfo(DATABASE)), home=tmp_path)
        if "init -s" in words or "bench run" in words:
            # pgbench itself cannot be pinned there: it does not begin.
            assert done.status, done.out
            assert "functions of mallory, the owner of the database, would replace" in done.err
        else:
            assert done.status in (0, 1, 2, 3), done.err
        assert "Traceback" not in done.err
        assert [trap for trap in sprung(trapped, began) if "by pgtop-tune" in trap] == []


def settle(server: Throwaway) -> None:
    """What the start of the pooler itself did is in the log."""
    deadline = time.monotonic() + 30
    size = -1
    while size != (size := log_bytes(server)):
        assert time.monotonic() < deadline
        time.sleep(0.2)
