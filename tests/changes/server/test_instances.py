"""Which journal is whose: by what a server says of itself, whatever way and role one came by."""

from __future__ import annotations

import json
import socket
import zlib
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import ServerProblem
from pgtop_tune.changes.journal import journals, read
from pgtop_tune.changes.model.change import Scope, ScopeKind, Terms, WantedParameter
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.changes.server.reverts import try_to_revert
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.model.instance import Instance, Kin, joined, kin
from pgtop_tune.postgres.server.conninfo import resolve
from tests.postgres.conftest import Superuser, place
from tests.support.by_pg_ctl import by_pg_ctl
from tests.support.servers import Servers, conninfo
from tests.support.standby import standby_of
from tests.support.undoing import revert_parameters, undo, undo_all

KNOWN = Instance(
    system_identifier="77",
    started_us=1_000,
    in_recovery=False,
    timeline="00000001",
    data_directory="/data",
    written_s=10,
    put_there_s=11,
    altered_s=20,
    machine="db1 0badcafe",
)
AGAIN = replace(KNOWN, started_us=2_000)
LITTLE = Instance("77", 2_000, timeline="00000001", data_directory="/data")


@pytest.mark.parametrize(
    ("now", "found"),
    [
        (replace(KNOWN, data_directory="", machine="", written_s=None), Kin.SAME),
        (replace(KNOWN, system_identifier="78"), Kin.OTHER),
        (replace(KNOWN, started_us=999, machine=""), Kin.OTHER),
        # The clock was set back.
        (replace(KNOWN, started_us=999), Kin.SAME),
        (AGAIN, Kin.SAME),
        (replace(AGAIN, altered_s=30), Kin.SAME),
        (replace(AGAIN, altered_s=19), Kin.OTHER),
        (replace(AGAIN, data_directory="/moved"), Kin.OTHER),
        (replace(AGAIN, written_s=12, put_there_s=12, altered_s=21), Kin.OTHER),
        (replace(AGAIN, machine="db2 0badcafe"), Kin.PERHAPS),
        (replace(AGAIN, put_there_s=15), Kin.PERHAPS),
        (replace(AGAIN, machine="db2 0badcafe", put_there_s=15), Kin.OTHER),
        (replace(AGAIN, in_recovery=True, timeline=""), Kin.SAME),
        (LITTLE, Kin.PERHAPS),
        (replace(LITTLE, in_recovery=True, timeline=""), Kin.OTHER),
        (replace(LITTLE, timeline="00000002"), Kin.OTHER),
        (replace(LITTLE, system_identifier="", data_directory=""), Kin.PERHAPS),
    ],
)
def test_a_server_that_was_started_anew_is_told_from_its_copies(now: Instance, found: Kin) -> None:
    assert kin(KNOWN, now) is found


@pytest.mark.parametrize(
    ("now", "found"),
    [
        (replace(LITTLE, in_recovery=True), Kin.PERHAPS),
        (replace(LITTLE, in_recovery=True, timeline="00000002"), Kin.PERHAPS),
        (LITTLE, Kin.OTHER),
        (replace(LITTLE, timeline="00000002"), Kin.PERHAPS),
        (replace(AGAIN, timeline="00000002"), Kin.SAME),
    ],
    ids=["itself", "its primary was promoted", "its primary", "promoted", "promoted, by its files"],
)
def test_a_standby_that_was_started_anew_is_told_from_its_primary(now: Instance, found: Kin) -> None:
    assert kin(replace(KNOWN, in_recovery=True), now) is found


def test_a_role_that_sees_less_takes_nothing_from_what_is_known() -> None:
    assert joined(KNOWN, LITTLE) == AGAIN
    assert joined(None, LITTLE) == LITTLE


def journal_of(directory: Path) -> Path:
    (path,) = journals(directory)
    return path


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.mark.long
async def test_the_way_back_does_not_depend_on_the_spelling_of_the_endpoint(
    fresh_server: Throwaway, tmp_path: Path
) -> None:
    port = str(free_port())
    with by_pg_ctl(fresh_server, listen_addresses="127.0.0.1", port=port) as server:
        places = [
            resolve("postgres", host=host, port=port, user=server.user)
            for host in (str(server.socket_dir), "localhost", "127.0.0.1")
        ]
        for number, where in enumerate(places):
            control = PostgresControl(where, directory=tmp_path)
            await control.apply("commit_delay", str(number + 1))
            await control.aclose()
        assert len(read(journal_of(tmp_path)).in_force) == 3
        assert len(revert_parameters(places[1], directory=tmp_path)) == 3
        assert read(journal_of(tmp_path)).in_force == ()


async def test_what_a_plain_role_has_changed_is_reached_by_everybody(
    server: Throwaway, superuser: Superuser, role: Callable[..., str], tmp_path: Path
) -> None:
    name = role()
    control = PostgresControl(place(server, user=name), directory=tmp_path)
    await control.apply_set([WantedParameter("work_mem", "9MB", Scope(ScopeKind.ROLE, name))], Terms())
    await control.aclose()
    assert read(journal_of(tmp_path)).instance is not None
    control = PostgresControl(place(server), directory=tmp_path)
    assert [change.value for change in await control.in_force()] == ["9MB"]
    await control.aclose()
    (change,) = revert_parameters(place(server), directory=tmp_path)
    assert (change.value, change.shown_after) == ("9MB", "default")
    assert superuser.execute("SELECT count(*) FROM pg_db_role_setting").fetchone() == (0,)


async def test_a_plain_role_finds_its_changes_after_a_restart_by_their_values(
    fresh_server: Throwaway, tmp_path: Path
) -> None:
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        connection.execute("CREATE ROLE plain LOGIN")
    where = place(fresh_server, user="plain")
    for value in ("9MB", "10MB"):
        control = PostgresControl(where, directory=tmp_path)
        await control.apply_set([WantedParameter("work_mem", value, Scope(ScopeKind.ROLE, "plain"))], Terms())
        await control.aclose()
    fresh_server.restart()
    control = PostgresControl(where, directory=tmp_path)
    await control.apply_set([WantedParameter("work_mem", "11MB", Scope(ScopeKind.ROLE, "plain"))], Terms())
    await control.aclose()
    assert [change.value for change in revert_parameters(where, directory=tmp_path)] == ["11MB", "10MB", "9MB"]
    with psycopg.connect(conninfo(fresh_server)) as connection:
        assert connection.execute("SELECT count(*) FROM pg_db_role_setting").fetchone() == (0,)
    assert all(read(path).in_force == () for path in journals(tmp_path))


@pytest.mark.parametrize("there", [True, False], ids=["it is there", "it is another server's"])
async def test_a_journal_of_an_older_version_is_followed_where_the_server_has_its_values(
    server: Throwaway, superuser: Superuser, tmp_path: Path, there: bool
) -> None:
    identifier = superuser.execute("SELECT system_identifier::text FROM pg_control_system()").fetchone()
    directory = superuser.execute("SHOW data_directory").fetchone()
    assert identifier is not None
    assert directory is not None
    key = f"{identifier[0]}-{zlib.crc32(str(directory[0]).encode()):08x}"
    body = {
        "id": "a", "at_ms": 1, "name": "commit_delay", "value": "77", "shown_before": "0", "auto_conf_before": None,
        "source_before": "default", "state": "applied", "shown_after": "77", "message": "",
    }  # fmt: skip
    lines = []
    for entry in ({"server": {"key": key, "description": "postgres@/run:5432/postgres"}}, {"change": body}):
        text = json.dumps(entry, sort_keys=True, separators=(",", ":"))
        lines.append(f'{{"crc32":"{zlib.crc32(text.encode()):08x}","body":{text}}}\n')
    (tmp_path / f"{key}.jsonl").write_text("".join(lines))
    if there:
        superuser.execute("ALTER SYSTEM SET commit_delay = '77'")
        superuser.execute("SELECT pg_reload_conf()")
    outcome = try_to_revert(place(server), directory=tmp_path)
    assert [change.name for change in outcome.reverted] == ["commit_delay"] * there
    assert [change.name for change in outcome.elsewhere] == ["commit_delay"] * (not there)
    assert len(read(journal_of(tmp_path)).in_force) == (not there)


@pytest.mark.parametrize("major", [14, 16, 18])
async def test_a_parameter_whose_library_is_gone_does_not_keep_the_others(
    make_server: Callable[..., Throwaway], tmp_path: Path, major: int
) -> None:
    server = make_server(major, shared_preload_libraries="auto_explain")
    control = PostgresControl(place(server), directory=tmp_path)
    for name, value in (("work_mem", "9MB"), ("auto_explain.log_min_duration", "5s"), ("commit_delay", "7")):
        await control.apply(name, value)
    await control.aclose()
    settings = Path(str(server.data_dir)) / "pgtop-tune.conf"
    settings.write_text(settings.read_text().replace("auto_explain", "pg_prewarm"))
    server.restart()
    outcome = try_to_revert(place(server), directory=tmp_path)
    assert [change.name for change in outcome.reverted] == ["commit_delay", "auto_explain.log_min_duration", "work_mem"]
    assert outcome.reverted[1].message == "its library is not loaded"
    assert (Path(str(server.data_dir)) / "postgresql.auto.conf").read_text().count("=") == 0


@pytest.mark.parametrize("major", [14, 18])
async def test_what_the_server_refuses_stays_in_force_and_does_not_stop_the_others(
    make_server: Callable[..., Throwaway], tmp_path: Path, major: int
) -> None:
    server = make_server(major, shared_preload_libraries="auto_explain")
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("CREATE ROLE gone")
    control = PostgresControl(place(server), directory=tmp_path)
    await control.apply("work_mem", "9MB")
    await control.apply_set([WantedParameter("work_mem", "10MB", Scope(ScopeKind.ROLE, "gone"))], Terms())
    await control.apply_set([WantedParameter("work_mem", "11MB", Scope(ScopeKind.ROLE, "gone"))], Terms())
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        # Refused like a value that this server does not take: by a role that may not.
        connection.execute("CREATE ROLE poor LOGIN IN ROLE pg_monitor, pg_read_all_settings")
        connection.execute("GRANT SELECT ON pg_file_settings TO poor")
        connection.execute("GRANT EXECUTE ON FUNCTION pg_show_all_file_settings(), pg_reload_conf() TO poor")
        connection.execute("ALTER ROLE poor SET work_mem = '5MB'")
    await control.apply_set([WantedParameter("work_mem", "6MB", Scope(ScopeKind.ROLE, "poor"))], Terms())
    await control.aclose()
    poor = try_to_revert(place(server, user="poor"), directory=tmp_path)
    assert [refusal.change.value for refusal in poor.refused] == ["11MB", "9MB"]
    assert [change.value for change in poor.reverted] == ["6MB"]
    assert [change.message for change in poor.left_alone] == [
        "changed again since, to 11MB: undoing that change restores 9MB"
    ]
    assert [change.value for change in read(journal_of(tmp_path)).in_force] == ["9MB", "11MB"]
    assert [change.value for change in revert_parameters(place(server), directory=tmp_path)] == ["11MB", "9MB"]
    with psycopg.connect(conninfo(server)) as connection:
        rows = connection.execute("SELECT setrole::regrole::text, setconfig FROM pg_db_role_setting").fetchall()
    assert rows == [("poor", ["work_mem=5MB"])]


async def test_a_value_that_waited_for_a_restart_is_not_called_overridden(server: Throwaway, tmp_path: Path) -> None:
    control = PostgresControl(place(server), directory=tmp_path)
    await control.apply("max_worker_processes", "8")
    await control.apply("max_worker_processes", "9")
    undone = await undo(control)
    assert undone is not None
    assert (undone.shown_after, undone.message) == ("8", "")
    await undo(control)
    await control.aclose()


async def test_a_trial_of_the_primary_is_not_over_where_the_connection_leads_to_its_standby(
    make_server: Callable[..., Throwaway], servers: Servers, tmp_path: Path
) -> None:
    primary = make_server()
    standby = standby_of(primary, make_server, "there", servers.binaries(18))
    pending = PostgresControl(place(primary), directory=tmp_path)
    elsewhere = PostgresControl(place(standby), directory=tmp_path)
    made = await pending.apply_set([WantedParameter("commit_delay", "7")], Terms(keep_within_s=600))
    with pytest.raises(ServerProblem, match="commit_delay was changed on another server of this cluster"):
        await elsewhere.revert_set(made[0].set_id)
    assert await elsewhere.in_force() == ()
    assert await elsewhere.revert_overdue([made[0].set_id]) == ()
    assert await undo_all(elsewhere) == ()
    assert await pending.in_force() == made
    await elsewhere.aclose()
    (back,) = await pending.revert_set(made[0].set_id)
    assert back.shown_after == "0"
    await pending.aclose()
