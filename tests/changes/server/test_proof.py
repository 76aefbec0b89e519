"""Proof of changes on real servers, and changes for roles and databases."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.base.errors import ServerProblem
from pgtop_tune.changes.model.change import Scope, ScopeKind, Terms, WantedParameter
from pgtop_tune.cluster.throwaway import Throwaway
from tests.changes.server.test_control import auto_conf, control_of, settings
from tests.cli.runs import run
from tests.postgres.conftest import place
from tests.postgres.test_on_trial import shown
from tests.support.servers import conninfo
from tests.support.undoing import undo, undo_all

STORED = "SELECT setdatabase, setrole, setconfig FROM pg_db_role_setting ORDER BY 1, 2"


async def test_a_change_is_proven_by_an_older_and_a_newer_session(server: Throwaway, tmp_path: Path) -> None:
    control = control_of(server, tmp_path)
    made = await control.apply_set([WantedParameter("work_mem", "8MB"), WantedParameter("jit", "off")], Terms())
    memory, jit = await control.prove(made)
    assert (memory.running, memory.fresh, memory.source) == ("8MB", "8MB", "configuration file")
    assert "postgresql.auto.conf:" in memory.place
    assert (jit.fresh, jit.overrides, jit.pending_restart) == ("off", (), False)
    await undo_all(control)
    await control.aclose()


async def test_what_wins_over_a_change_is_named(fresh_server: Throwaway, tmp_path: Path) -> None:
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        connection.execute("ALTER ROLE postgres SET work_mem = '3MB'")
        connection.execute("ALTER DATABASE postgres SET work_mem = '2MB'")
        connection.execute("ALTER ROLE postgres IN DATABASE postgres SET work_mem = '1MB'")
    control = control_of(fresh_server, tmp_path)
    (proof,) = await control.prove((await control.apply("work_mem", "8MB"),))
    assert (proof.fresh, proof.source) == ("1MB", "database user")
    assert proof.overrides == (
        "sessions of role postgres in database postgres have 1MB",
        "sessions of role postgres have 3MB",
        "sessions in database postgres have 2MB",
    )
    assert "ALTER ROLE … IN DATABASE" in proof.advice[0]
    (restart,) = await control.prove((await control.apply("shared_buffers", "64MB"),))
    assert restart.pending_restart
    assert restart.overrides == ()
    await undo_all(control)
    await control.aclose()


async def test_the_command_line_wins_and_is_named(fresh_server: Throwaway, tmp_path: Path) -> None:
    """The throwaway servers are started with their port on the command line."""
    control = control_of(fresh_server, tmp_path)
    change = await control.apply("port", "6000")
    assert change.message.startswith("overridden (command line)")
    (proof,) = await control.prove((change,))
    assert proof.overrides == ("the command line has 5432",)
    assert "where the server is started" in proof.advice[0]
    await undo_all(control)
    await control.aclose()


async def test_a_file_that_is_read_later_and_a_fault_in_one_are_named(
    fresh_server: Throwaway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgtop_tune.changes.server.operator_session._RELOAD_DEADLINE_S", 0.5)
    control = control_of(fresh_server, tmp_path)
    change = await control.apply("work_mem", "8MB")
    main = Path(str(fresh_server.data_dir)) / "postgresql.conf"
    sound = main.read_text()
    lines = len(sound.splitlines())
    main.write_text(f"{sound}\nwork_mem = = 3\n")
    (proof,) = await control.prove((change,))
    assert proof.overrides == (f"{main}:{lines + 2}: syntax error",)
    main.write_text(sound)
    await undo_all(control)
    await control.aclose()


async def test_sessions_in_an_old_statement_are_counted(server: Throwaway, tmp_path: Path) -> None:
    control = control_of(server, tmp_path)
    with psycopg.connect(conninfo(server), autocommit=True) as busy, psycopg.connect(conninfo(server)) as other:

        def sleeps() -> None:
            with contextlib.suppress(psycopg.errors.QueryCanceled):
                busy.execute("SELECT pg_sleep(60)")

        thread = threading.Thread(target=sleeps, daemon=True)
        thread.start()
        deadline = time.monotonic() + 60
        while not other.execute("SELECT 1 FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)'").fetchone():
            assert time.monotonic() < deadline
            other.rollback()
        (proof,) = await control.prove((await control.apply("work_mem", "8MB"),))
        assert proof.behind >= 1
        busy.cancel()
        thread.join(60)
    await undo_all(control)
    await control.aclose()


@pytest.mark.parametrize("kind", [ScopeKind.ROLE, ScopeKind.DATABASE, ScopeKind.ROLE_IN_DATABASE])
async def test_a_change_for_some_sessions_is_taken_back_exactly(
    fresh_server: Throwaway, tmp_path: Path, kind: ScopeKind
) -> None:
    scope = Scope(
        kind,
        role="" if kind is ScopeKind.DATABASE else "postgres",
        database="" if kind is ScopeKind.ROLE else "postgres",
    )
    control = control_of(fresh_server, tmp_path)
    await control.apply_set(
        [WantedParameter("work_mem", "5MB", scope), WantedParameter("search_path", '"A b", c', scope)], Terms()
    )
    before, file_before = settings(fresh_server), auto_conf(fresh_server)
    assert (before["work_mem"][0], before["search_path"][0]) == ("5120", '"A b", c')
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        stored = connection.execute(STORED).fetchall()
        change, *_ = await control.apply_set(
            [
                WantedParameter("work_mem", "8MB", scope),
                WantedParameter("search_path", None, scope),
                WantedParameter("jit", "off", scope),
            ],
            Terms(),
        )
        assert change.shown_after == "8MB"
        assert change.message.endswith("that start from now on")
        assert connection.execute("SHOW work_mem").fetchone() == ("5MB",)
        assert shown(fresh_server, "work_mem") == "8MB"
        (proof, *_) = await control.prove((change,))
        assert (proof.fresh, proof.overrides) == ("8MB", ())
        await undo(control)
        assert {str(row) for row in _sorted(connection.execute(STORED).fetchall())} == {
            str(row) for row in _sorted(stored)
        }
    assert (settings(fresh_server), auto_conf(fresh_server)) == (before, file_before)
    await undo_all(control)
    with psycopg.connect(conninfo(fresh_server)) as connection:
        assert connection.execute(STORED).fetchall() == []
    await control.aclose()


def _sorted(rows: list[tuple[object, ...]]) -> list[tuple[object, object, list[str]]]:
    """Within one row a setting that was reset and set again stands at the end."""
    return [(database, role, sorted(config)) for database, role, config in rows]  # type: ignore[call-overload]


async def test_alter_system_that_is_switched_off_in_mid_change_is_told_once_with_its_remedy(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    server = make_server()
    control = control_of(server, tmp_path)
    wanted = [WantedParameter("work_mem", "8MB"), WantedParameter("maintenance_work_mem", "96MB")]
    await control.apply_set(wanted, Terms())
    await control.aclose()
    switch(server, "off")
    words = ["revert", "-w", "-d", conninfo(server), "--journal", str(tmp_path)]
    ended = run(*words, home=tmp_path)
    assert ended.status == 6
    assert ended.err.count("ALTER SYSTEM is switched off on this server (allow_alter_system)") == 1
    assert "maintenance_work_mem, work_mem: " in ended.err
    assert ended.err.count("set it to on, reload, then `pgtop-tune revert`") == 1
    switch(server, "on")
    assert run(*words, home=tmp_path).status == 0
    assert shown(server, "work_mem") == "4MB"


def switch(server: Throwaway, word: str) -> None:
    """As the operator of a managed server does: in its own file, with a reload."""
    with (Path(str(server.data_dir)) / "postgresql.conf").open("a") as file:
        file.write(f"allow_alter_system = {word}\n")
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("SELECT pg_reload_conf()")
        deadline = time.monotonic() + 60
        while connection.execute("SHOW allow_alter_system").fetchone() != (word,):
            assert time.monotonic() < deadline
            time.sleep(0.02)


async def test_where_alter_system_is_switched_off_the_way_out_is_named(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    server = make_server(allow_alter_system="off")
    control = control_of(server, tmp_path)
    with pytest.raises(ServerProblem, match="allow_alter_system") as caught:
        await control.apply("work_mem", "8MB")
    assert "a role or a database" in caught.value.hint
    role = Scope(ScopeKind.ROLE, role="postgres")
    (change,) = await control.apply_set([WantedParameter("work_mem", "8MB", role)], Terms())
    assert shown(server, "work_mem") == "8MB"
    assert (await control.prove((change,)))[0].fresh == "8MB"
    await undo_all(control)
    await control.aclose()
    assert place(server).user == "postgres"
