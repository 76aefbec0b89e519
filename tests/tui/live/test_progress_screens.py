"""Commands that take their time, all at once, as the page of tables shows them: how far, how long, where they stand."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.crowd import Connection, Crowd
from tests.support.live_screen import WIDE
from tests.support.servers import conninfo
from tests.tui.live.conftest import Watch

VARIANTS = (14, 17, 18)
"""Majors whose progress views differ."""
DATABASE = "slow_commands"
TABLES = ("swept", "sampled", "indexed", "ordered", "loaded", "guarded")
NOTHING = r"^  no VACUUM, ANALYZE, CREATE INDEX, CLUSTER, REPACK, COPY or base backup in"
SLOW_COST = "SET vacuum_cost_delay = '20ms'; SET vacuum_cost_limit = 5"
PREPARATION = (
    *(f"CREATE TABLE {name} (id int, words text) WITH (autovacuum_enabled = off)" for name in TABLES),
    *(f"INSERT INTO {name} SELECT i, repeat('x', 200) FROM generate_series(1, 30000) i" for name in TABLES[:4]),
    "CREATE INDEX ON swept (id)",
    "DELETE FROM swept WHERE id % 3 = 0",
    "CREATE FUNCTION slow(id int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN "
    "IF id % 100 = 0 AND current_setting('made.slow', true) = 'on' THEN PERFORM pg_sleep(0.3); END IF; "
    "RETURN id; END $$",
    "CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM slow(new.id); RETURN new; END $$",
    "CREATE TRIGGER slowly BEFORE INSERT ON loaded FOR EACH ROW EXECUTE FUNCTION slowly()",
    "CREATE INDEX by_id ON ordered (id)",
    "CREATE INDEX takes_long ON ordered (slow(id))",
)
SLOWLY = ("SET made.slow = 'on'", "SET max_parallel_maintenance_workers = 0")


@dataclass(frozen=True)
class Commands:
    """Pids of commands in progress in one database, and of a base backup."""

    where: str
    vacuum: int
    analyze: int
    create_index: int
    concurrently: int
    cluster: int
    copy: int


@pytest.fixture(params=VARIANTS, ids=lambda major: f"pg{major}")
def commands(
    request: pytest.FixtureRequest,
    server_for_major: Callable[[int], Throwaway],
    server: Throwaway,
    tmp_path: Path,
) -> Iterator[Commands]:
    """Six commands and a base backup, each as slow as it has to be to be looked at."""
    tools, server = server.binaries, server_for_major(request.param)
    where = conninfo(server, DATABASE)
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {DATABASE}".encode())
    crowd = Crowd(where)
    backup = None
    try:
        with psycopg.connect(where, autocommit=True) as connection:
            for statement in PREPARATION:
                connection.execute(statement.encode())
            rows = Path(str(server.data_dir)) / "rows.copied"
            connection.execute(f"COPY indexed TO '{rows}'".encode())
        backup = subprocess.Popen(
            [
                str(tools.program("pg_basebackup")), "--max-rate=500k", "--checkpoint=fast", "--no-sync",
                "--wal-method=none", f"--pgdata={tmp_path / 'backup'}", f"--host={server.socket_dir}",
                f"--username={server.user}",
            ],
            env={**os.environ, **tools.environment()}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        crowd.session("INSERT INTO guarded VALUES (1)")

        def slow() -> Connection:
            return crowd.session(*SLOWLY, SLOW_COST, autocommit=True)

        yield Commands(
            where=where,
            vacuum=crowd.waits(slow(), "VACUUM (FREEZE) swept"),
            analyze=crowd.waits(slow(), "ANALYZE sampled"),
            create_index=crowd.waits(slow(), "CREATE INDEX late ON indexed (slow(id))"),
            concurrently=crowd.queues(slow(), "CREATE INDEX CONCURRENTLY later ON guarded (id)"),
            cluster=crowd.waits(slow(), "CLUSTER ordered USING by_id"),
            copy=crowd.waits(slow(), f"COPY loaded FROM '{rows}'"),
        )
    finally:
        crowd.close()
        if backup is not None:
            backup.terminate()
            backup.wait(60)
        with psycopg.connect(conninfo(server), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)".encode())


async def test_commands_under_way_tell_how_far_they_are(commands: Commands, watch: Watch) -> None:
    percent, left, bar = r" +[\d.]+", r" +[\dms.]+", r" [█▏▎▍▌▋▊▉·]{8} "
    async with watch(commands.where) as screen:
        await screen.turn_to("tables", "progress")
        await screen.shows(
            r"commands in progress 7",
            r"^ +PID command +% +left +relation",
            rf"^ +{commands.vacuum} VACUUM{percent}{left}{bar}swept ",
            rf"^ +{commands.analyze} ANALYZE{percent}{left}{bar}sampled ",
            rf"^ +{commands.create_index} CREATE INDEX{percent}{left}{bar}indexed ",
            rf"^ +{commands.concurrently} CREATE INDEX… +0 +- ·{{8}} guarded \(later\)",
            rf"^ +{commands.cluster} CLUSTER +- +- - +ordered ",
            rf"^ +{commands.copy} COPY FROM{percent}{left}{bar}loaded ",
            rf"^ +\d+ BASE BACKUP{percent}{left}{bar}- ",
        )
        await screen.press("right", "right", "right", "right")
        await screen.shows(rf"^ +{commands.vacuum} .*swept +scanning heap ", rf"^ +{commands.copy} .*loaded +file ")
        await screen.press("left", "left", "left", "left")
        await screen.resize(WIDE)
        rows = await screen.shows(
            r"^ +PID command .* relation +phase +done +per s around it",
            rf"^ +{commands.vacuum} VACUUM +(\S+) .* swept +scanning heap +(\d+)/(\d+) blocks +[\d.]+ \2/\3 heap b",
            rf"^ +{commands.analyze} ANALYZE +(\S+) .* sampled +acquiring sampl.* (\d+)/(\d+) blocks +[\d.]+ - ",
            rf"^ +{commands.create_index} CREATE INDEX +(\S+) .* indexed .*building index: .* (\d+)/(\d+) blocks +\d",
            rf"^ +{commands.concurrently} CREATE INDEX ?(?:CO?)?… +(\S+) .* waiting for .* (0)/(1) lockers",
            rf"^ +{commands.cluster} CLUSTER .* ordered .* rebuilding index +- +- 1 indexes",
            rf"^ +{commands.copy} COPY FROM +(\S+) .* loaded +file +([\d.]+) [kM]B/([\d.]+) MB +[\d.]+ kB -",
            r"^ +\d+ BASE BACKUP +(\S+) .* streaming databa.* ([\d.]+) MB/([\d.]+) MB +\d+ kB 0/1 tablespaces",
        )
        for row in (*rows[1:5], rows[7]):
            # 0.06: rounding to a tenth, and of what is done as well as of the whole to three digits.
            shown, done, total = map(float, row.groups())
            assert shown == pytest.approx(100 * done / total, rel=0.05, abs=0.06), row.string
        await screen.open_details("home")
        await screen.shows(r"VACUUM", r"phase +scanning heap", r"more +[\d.]+k? dead")


async def test_a_command_that_ends_leaves_the_page(database: str, watch: Watch) -> None:
    with psycopg.connect(database) as writer:
        writer.execute("CREATE TABLE filled (id int)")
        writer.commit()
        async with watch(database) as screen:
            await screen.turn_to("tables", "progress")
            await screen.shows(NOTHING)
            with writer.cursor() as cursor, cursor.copy("COPY filled FROM STDIN") as copy:
                for number in range(20_000):
                    copy.write_row((number,))
                await screen.shows(rf"^ +{writer.info.backend_pid} COPY FROM +- +- - +filled ")
            await screen.shows(NOTHING)
