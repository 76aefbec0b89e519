"""Changing parameters of real servers: what is asked, what is read back, and that everything can be taken back."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.base.errors import ChangedMeanwhile, ConnectionProblem, JournalProblem, ServerProblem
from pgtop_tune.changes.model.change import ChangeState
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from tests.postgres.conftest import place
from tests.support.servers import conninfo
from tests.support.undoing import undo, undo_all

ROOT = Path(__file__).resolve().parents[2]


def auto_conf(server: Throwaway) -> bytes:
    return (Path(str(server.data_dir)) / "postgresql.auto.conf").read_bytes()


def settings(server: Throwaway) -> dict[str, tuple[str, str]]:
    """Every parameter with its source, as a new session has it."""
    with psycopg.connect(conninfo(server)) as connection:
        rows = connection.execute("SELECT name, setting, source FROM pg_settings").fetchall()
    return {name: (setting, source) for name, setting, source in rows if source != "client"}


def control_of(server: Throwaway, directory: Path, user: str | None = None) -> PostgresControl:
    return PostgresControl(place(server, user=user), directory=directory)


@pytest.fixture
def control(server: Throwaway, tmp_path: Path) -> PostgresControl:
    """Of the shared PostgreSQL 18, with a journal of the test's own."""
    return control_of(server, tmp_path)


async def test_a_change_takes_effect_in_running_sessions_and_is_undone_to_the_byte(
    all_servers: Throwaway, tmp_path: Path
) -> None:
    before, file_before = settings(all_servers), auto_conf(all_servers)
    control = control_of(all_servers, tmp_path)
    with psycopg.connect(conninfo(all_servers), autocommit=True) as running:
        change = await control.apply("work_mem", "7MB")
        assert change.state is ChangeState.APPLIED
        assert (change.shown_before, change.shown_after, change.message) == ("4MB", "7MB", "")
        assert (change.auto_conf_before, change.source_before) == (None, "default")
        await _shows(running, "work_mem", "7MB")
        second = await control.apply("work_mem", "9MB")
        assert second.auto_conf_before == "7MB"
        assert await control.in_force() == (change, second)
        assert [parameter.shown for parameter in await control.list(("work_mem", "no_such"))] == ["9MB"]
        undone = await undo(control)
        assert undone is not None
        assert (undone.id, undone.state, undone.shown_after) == (second.id, ChangeState.REVERTED, "7MB")
        await control.apply("random_page_cost", "1.1")
        await control.apply("max_wal_size", "2GB")
        everything = await undo_all(control)
        assert [each.name for each in everything] == ["max_wal_size", "random_page_cost", "work_mem"]
        await _shows(running, "work_mem", "4MB")
    assert await control.in_force() == ()
    assert await undo(control) is None
    assert await undo_all(control) == ()
    await control.aclose()
    assert settings(all_servers) == before
    assert auto_conf(all_servers) == file_before


async def _shows(session: psycopg.Connection[tuple[object, ...]], name: str, value: str) -> None:
    deadline = time.monotonic() + 60
    while (seen := session.execute("SELECT current_setting(%s)", (name,)).fetchone()) != (value,):
        assert time.monotonic() < deadline, seen
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("name", "value", "words", "hint"),
    [
        ("max_wal_size", "1", "outside the valid range", "range 32 to 2147483647 in units of MB"),
        ("work_mem", "lots", 'invalid value for parameter "work_mem": "lots"', "in units of kB"),
        ("work_mem", "5 apples", "invalid value", "Valid units for this parameter"),
        ("synchronous_commit", "maybe", "invalid value", "remote_apply"),
        ("autovacuum", "perhaps", "requires a Boolean value", "on or off"),
        ("no_such_parameter", "1", "unrecognized configuration parameter", ""),
        ("server_version", "19", "cannot be changed", ""),
        ("search_path", "a\nb", "must not contain a newline", ""),
        ("work_mem", "1MB\nfsync = off", "", ""),
        ("work_mem'; DROP TABLE x; --", "1", "unrecognized configuration parameter", ""),
    ],
)
async def test_a_refusal_has_the_server_s_words_and_changes_nothing(
    server: Throwaway, control: PostgresControl, name: str, value: str, words: str, hint: str
) -> None:
    before, file_before = settings(server), auto_conf(server)
    with pytest.raises(ServerProblem) as caught:
        await control.apply(name, value)
    assert words in caught.value.message
    assert hint in caught.value.hint
    assert await control.in_force() == ()
    assert auto_conf(server) == file_before
    assert settings(server) == before
    await control.aclose()


def test_the_statement_on_the_screen_is_the_one_that_runs(control: PostgresControl) -> None:
    assert control.statement("max_wal_size", "16GB") == (
        "ALTER SYSTEM SET \"max_wal_size\" = '16GB'; SELECT pg_reload_conf();"
    )
    assert control.statement("pg_stat_statements.track", None) == (
        'ALTER SYSTEM RESET "pg_stat_statements"."track"; SELECT pg_reload_conf();'
    )
    assert "'it''s'" in control.statement("cluster_name", "it's")


async def test_odd_values_come_back_as_they_were(fresh_server: Throwaway, tmp_path: Path) -> None:
    file_before = auto_conf(fresh_server)
    control = control_of(fresh_server, tmp_path)
    for name, value in (
        ("log_line_prefix", "%m 'q' \\ ☃ $ "),
        ("pg_stat_statements.track", "all"),
        ("TimeZone", "UTC"),
    ):
        change = await control.apply(name, value)
        assert change.shown_after == value
        assert change.message == ""
    assert len(await undo_all(control)) == 3
    assert auto_conf(fresh_server) == file_before
    await control.aclose()


async def test_what_needs_a_restart_is_said_and_undone_without_one(fresh_server: Throwaway, tmp_path: Path) -> None:
    file_before = auto_conf(fresh_server)
    control = control_of(fresh_server, tmp_path)
    change = await control.apply("shared_buffers", "64MB")
    assert change.state is ChangeState.APPLIED
    assert change.message == "takes effect when the server is restarted; until then 32MB"
    assert (await control.list(("shared_buffers",)))[0].pending_restart
    undone = await undo(control)
    assert undone is not None
    assert undone.message == ""
    assert auto_conf(fresh_server) == file_before
    await control.aclose()


async def test_a_restart_in_between_does_not_keep_a_change_from_being_undone(
    fresh_server: Throwaway, tmp_path: Path
) -> None:
    file_before = auto_conf(fresh_server)
    control = control_of(fresh_server, tmp_path)
    await control.apply("shared_buffers", "48MB")
    await asyncio.to_thread(fresh_server.restart)
    assert settings(fresh_server)["shared_buffers"] == (str(48 * 128), "configuration file")
    assert (await control.list(("shared_buffers",)))[0].shown == "48MB"
    assert len(await undo_all(control)) == 1
    assert auto_conf(fresh_server) == file_before
    await control.aclose()


async def test_a_value_that_something_else_overrides_is_not_called_effective(
    fresh_server: Throwaway, tmp_path: Path
) -> None:
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        connection.execute("ALTER ROLE postgres SET work_mem = '3MB'")
    control = control_of(fresh_server, tmp_path)
    change = await control.apply("work_mem", "8MB")
    assert change.shown_after == "3MB"
    assert change.message == "overridden (user): sessions like ours still have 3MB"
    late = await control.apply("log_connections", "on")
    assert late.message == "takes effect in sessions that start from now on"
    await undo_all(control)
    await control.aclose()


async def test_a_fault_elsewhere_in_the_files_is_told(
    fresh_server: Throwaway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgtop_tune.changes.server.operator_session._RELOAD_DEADLINE_S", 0.5)
    file_before = auto_conf(fresh_server)
    main = Path(str(fresh_server.data_dir)) / "postgresql.conf"
    sound = main.read_text()
    control = control_of(fresh_server, tmp_path)
    main.write_text(f"{sound}\nwork_mem = = 3\n")
    with pytest.raises(ServerProblem, match=r"postgresql\.conf:\d+: syntax error"):
        await control.apply("work_mem", "8MB")
    assert auto_conf(fresh_server) == file_before, "what it held could not be known"
    main.write_text(f"{sound}\nno_such_thing = 3\n")
    change = await control.apply("work_mem", "8MB")
    assert change.shown_after == "4MB"
    assert change.message.startswith("written, but not in force: ")
    assert "postgresql.conf" in change.message
    assert "unrecognized configuration parameter" in change.message
    main.write_text(sound)
    await undo_all(control)
    assert auto_conf(fresh_server) == file_before
    await control.aclose()


async def test_a_value_set_before_us_is_put_back(fresh_server: Throwaway, tmp_path: Path) -> None:
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET work_mem = '5MB'")
        connection.execute("SELECT pg_reload_conf()")
    before, file_before = settings(fresh_server), auto_conf(fresh_server)
    control = control_of(fresh_server, tmp_path)
    change = await control.apply("work_mem", None)
    assert (change.value, change.auto_conf_before, change.shown_after) == (None, "5MB", "4MB")
    await control.apply("work_mem", "6MB")
    await undo_all(control)
    assert settings(fresh_server) == before
    assert auto_conf(fresh_server) == file_before
    await control.aclose()


async def test_what_somebody_else_has_set_since_is_left_alone(fresh_server: Throwaway, tmp_path: Path) -> None:
    control = control_of(fresh_server, tmp_path)
    await control.apply("work_mem", "6MB")
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET work_mem = '32MB'")
        connection.execute("SELECT pg_reload_conf()")
    undone = await undo(control)
    assert undone is not None
    assert undone.message == "left alone: another user has set it to 32MB since"
    assert undone.shown_after == "32MB"
    assert await control.in_force() == ()
    await control.aclose()


async def test_without_a_journal_nothing_is_changed(server: Throwaway, tmp_path: Path) -> None:
    file_before = auto_conf(server)
    (tmp_path / "file").write_text("")
    control = control_of(server, tmp_path / "file" / "journal")
    with pytest.raises(JournalProblem):
        await control.apply("work_mem", "6MB")
    assert auto_conf(server) == file_before
    await control.aclose()


async def test_two_operators_see_each_other_and_overwrite_nothing_unseen(server: Throwaway, tmp_path: Path) -> None:
    first, second = control_of(server, tmp_path), control_of(server, tmp_path)
    await second.list(("work_mem",))
    change = await first.apply("work_mem", "6MB")
    assert await second.in_force() == (change,)
    with pytest.raises(ChangedMeanwhile, match="work_mem is now 6MB; it was 4MB when you looked"):
        await second.apply("work_mem", "8MB")
    assert await second.in_force() == (change,)
    await second.list(("work_mem",))
    stacked = await second.apply("work_mem", "8MB")
    below = await first.revert_set(change.id)
    assert [each.message for each in below] == ["changed again since, to 8MB: undoing that change restores 4MB"]
    undone = await undo(second)
    assert undone is not None
    assert (undone.id, undone.shown_after) == (stacked.id, "4MB")
    assert await first.in_force() == ()
    await first.aclose()
    await second.aclose()


async def test_a_plain_role_is_told_what_it_needs_and_with_it_can_work(
    server: Throwaway, superuser: psycopg.Connection[tuple[object, ...]], role: Callable[..., str], tmp_path: Path
) -> None:
    name, file_before = role(), auto_conf(server)
    control = control_of(server, tmp_path, name)
    with pytest.raises(ServerProblem) as caught:
        await control.apply("work_mem", "6MB")
    assert "GRANT" in caught.value.hint
    assert caught.value.sqlstate == "42501"
    for grant in (
        "SELECT ON pg_file_settings",
        "EXECUTE ON FUNCTION pg_show_all_file_settings(), pg_reload_conf()",
        "pg_read_all_settings",
    ):
        superuser.execute(f"GRANT {grant} TO {name}".encode())
    with pytest.raises(ServerProblem, match='permission denied to set parameter "work_mem"'):
        await control.apply("work_mem", "6MB")
    superuser.execute(f"GRANT ALTER SYSTEM ON PARAMETER work_mem TO {name}".encode())
    assert (await control.apply("work_mem", "6MB")).shown_after == "6MB"
    await undo_all(control)
    assert auto_conf(server) == file_before
    await control.aclose()
    superuser.execute(f"REVOKE ALTER SYSTEM ON PARAMETER work_mem FROM {name}".encode())


async def test_our_sessions_are_known_and_named(server: Throwaway, tmp_path: Path) -> None:
    own = OwnSessions()
    control = PostgresControl(place(server), own_sessions=own, directory=tmp_path)
    await control.list(("work_mem",))
    with psycopg.connect(conninfo(server)) as connection:
        rows = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'pgtop-tune control'"
        ).fetchall()
    assert {pid for (pid,) in rows} >= own.pids
    assert len(own.pids) == 1
    await control.aclose()
    assert own.pids == set()


async def test_a_server_that_hangs_does_not_hang_us(
    fresh_server: Throwaway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = OwnSessions()
    control = PostgresControl(place(fresh_server), own_sessions=own, directory=tmp_path)
    await control.list(("work_mem",))
    (pid,) = own.pids
    os.kill(pid, signal.SIGSTOP)
    try:
        with monkeypatch.context() as impatient:
            impatient.setattr("pgtop_tune.changes.server.session_runner.ANSWER_DEADLINE_S", 0.5)
            with pytest.raises(ConnectionProblem):
                await asyncio.wait_for(control.apply("work_mem", "6MB"), 60)
    finally:
        os.kill(pid, signal.SIGCONT)
    change = await control.apply("work_mem", "6MB")
    assert change.shown_after == "6MB"
    await control.aclose()
