"""Sessions get in after every change of ours, and ours gets in where a value keeps the others out."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.base.errors import LockedOut, ServerProblem, UnsafeChange
from pgtop_tune.changes.model.change import SYSTEM, ChangeState, Scope, ScopeKind, Terms, WantedParameter
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.changes.server.one_change import Rules
from pgtop_tune.changes.server.session_runner import operator_session
from pgtop_tune.changes.statements import statement
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.postgres.server.conninfo import ConnInfo, resolve
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from tests.cli.runs import run
from tests.postgres.conftest import place
from tests.support.by_pg_ctl import auto_conf_of
from tests.support.poolers import PgBouncer
from tests.support.processes import eventually
from tests.support.servers import conninfo
from tests.support.undoing import revert_parameters

LIBRARIES = "session_preload_libraries"
SCOPES = (
    SYSTEM,
    Scope(ScopeKind.ROLE, "postgres"),
    Scope(ScopeKind.DATABASE, database="postgres"),
    Scope(ScopeKind.ROLE_IN_DATABASE, "postgres", "postgres"),
)
GRANTS = (
    "GRANT SELECT ON pg_file_settings TO tuner",
    "GRANT EXECUTE ON FUNCTION pg_show_all_file_settings(), pg_reload_conf() TO tuner",
    "GRANT pg_read_all_settings TO tuner",
    f"GRANT ALTER SYSTEM ON PARAMETER {LIBRARIES} TO tuner",
)


def control_to(there: ConnInfo, directory: Path) -> PostgresControl:
    return PostgresControl(there, directory=directory)


def execute(server: Throwaway, *statements: str) -> None:
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def stored(server: Throwaway) -> list[tuple[object, ...]]:
    with psycopg.connect(conninfo(server)) as connection:
        return connection.execute("SELECT setdatabase, setrole, setconfig FROM pg_db_role_setting").fetchall()


def library_of(server: Throwaway, name: str = "ours") -> Path:
    """A library that the server can load, and that may be removed."""
    bin_dir = Path(str(server.bin_dir))
    source = next((bin_dir.parent / "lib").rglob("plpgsql.so"), None) or next(bin_dir.parent.rglob("plpgsql.so"))
    path = Path(str(server.data_dir)) / f"{name}.so"
    shutil.copy(source, path)
    path.chmod(0o755)
    return path


def compiled(server: Throwaway, body: str) -> Path:
    """A library for PostgreSQL 18 whose _PG_init has this body."""
    headers = next(Path(str(server.bin_dir)).parent.rglob("server/postgres.h"), None)
    compiler = shutil.which("cc")
    if headers is None or compiler is None:
        pytest.skip("no compiler, or no headers of the server")
    source, path = Path(str(server.data_dir)) / "ours.c", Path(str(server.data_dir)) / "ours.so"
    source.write_text(
        '#include "postgres.h"\n#include "fmgr.h"\n#include "miscadmin.h"\n#include <signal.h>\n#include <unistd.h>\n'
        f"PG_MODULE_MAGIC;\nvoid _PG_init(void);\nvoid _PG_init(void) {{ {body} }}\n"
    )
    subprocess.run([compiler, "-shared", "-fPIC", f"-I{headers.parent}", "-o", path, source], check=True)
    path.chmod(0o755)
    return path


def is_locked_out(server: Throwaway) -> bool:
    try:
        psycopg.connect(conninfo(server)).close()
    except psycopg.OperationalError:
        return True
    return False


def taking_every_place(server: Throwaway) -> list[psycopg.Connection]:
    taken: list[psycopg.Connection] = []
    while True:
        try:
            taken.append(psycopg.connect(conninfo(server)))
        except psycopg.OperationalError:
            return taken


@pytest.mark.ends_of_majors
async def test_a_library_that_is_not_there_never_reaches_any_scope(
    all_servers: Throwaway, make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    server = make_server(all_servers.binaries.major)
    control = control_to(place(server), tmp_path)
    before = auto_conf_of(server)
    for scope in SCOPES:
        for name in (LIBRARIES, "local_preload_libraries"):
            with pytest.raises(ServerProblem, match=r"no new session can log in with .* nope_lib"):
                await control.apply_set([WantedParameter(name, "nope_lib", scope)], Terms())
    assert (auto_conf_of(server), stored(server)) == (before, [])
    await control.apply_set([WantedParameter(LIBRARIES, "plpgsql")], Terms())
    with pytest.raises(ServerProblem, match="no new session can log in"):
        await control.apply_set([WantedParameter("dynamic_library_path", "/nowhere")], Terms())
    await control.aclose()


async def test_behind_a_pooler_a_library_is_loaded_before_it_is_written(
    fresh_server: Throwaway, tmp_path: Path
) -> None:
    with PgBouncer(fresh_server) as bouncer:
        control = control_to(resolve(bouncer.conninfo(), user="postgres"), tmp_path)
        before = auto_conf_of(fresh_server)
        for scope in SCOPES:
            with pytest.raises(ServerProblem, match=r"no new session can log in with .* nope_lib"):
                await control.apply_set([WantedParameter(LIBRARIES, "nope_lib", scope)], Terms())
        assert (auto_conf_of(fresh_server), stored(fresh_server)) == (before, [])
        await control.apply_set([WantedParameter(LIBRARIES, "plpgsql")], Terms())
        for name, value in (("post_auth_delay", "30"), ("event_triggers", "on")):
            with pytest.raises(ServerProblem, match="no login can be tried through a pooler"):
                await control.apply_set([WantedParameter(name, value)], Terms())
        await control.aclose()


async def test_a_role_that_may_not_try_a_value_has_it_taken_back(fresh_server: Throwaway, tmp_path: Path) -> None:
    execute(fresh_server, "CREATE ROLE tuner LOGIN", *GRANTS)
    control = control_to(place(fresh_server, user="tuner"), tmp_path)
    before = auto_conf_of(fresh_server)
    with pytest.raises(ServerProblem, match=r"no new session can log in with the change.*nope_lib"):
        await control.apply_set([WantedParameter(LIBRARIES, "nope_lib")], Terms(600.0))
    # Killed before its proof it would stay for good.
    with pytest.raises(ServerProblem, match="this role cannot try it") as refused:
        await control.apply_set([WantedParameter(LIBRARIES, "nope_lib")], Terms())
    assert "--for" in refused.value.hint
    await control.aclose()
    assert auto_conf_of(fresh_server) == before
    assert not is_locked_out(fresh_server)


async def test_an_old_value_that_a_role_may_not_try_is_not_left_in_force_where_it_locks_out(
    fresh_server: Throwaway, tmp_path: Path
) -> None:
    execute(fresh_server, "CREATE ROLE tuner LOGIN", *GRANTS)
    there = place(fresh_server, user="tuner")
    control = control_to(there, tmp_path)
    await control.in_force()
    execute(fresh_server, f"ALTER SYSTEM SET {LIBRARIES} = nope_lib", "SELECT pg_reload_conf()")
    assert eventually(lambda: is_locked_out(fresh_server))
    (made,) = await control.apply_set([WantedParameter(LIBRARIES, "plpgsql")], Terms(600.0))
    with pytest.raises(ServerProblem, match=r"its old value: no new session can log in with the change.*nope_lib"):
        await control.revert_set(made.set_id)
    assert not is_locked_out(fresh_server)
    assert [change.value for change in await control.in_force()] == ["plpgsql"]
    execute(fresh_server, f"ALTER SYSTEM RESET {LIBRARIES}")
    await control.revert_set(made.set_id)
    await control.aclose()


async def test_a_login_that_fails_for_another_reason_keeps_no_value_in_force(
    fresh_server: Throwaway, tmp_path: Path
) -> None:
    execute(fresh_server, f"ALTER SYSTEM SET {LIBRARIES} = ''", "SELECT pg_reload_conf()")
    control = control_to(place(fresh_server), tmp_path)
    before = auto_conf_of(fresh_server)
    (made,) = await control.apply_set([WantedParameter(LIBRARIES, "plpgsql")], Terms(600.0))
    access = Path(str(fresh_server.data_dir)) / "pg_hba.conf"
    sound = access.read_text()
    access.write_text("local all all reject\n")
    await control.revert_set(made.set_id)
    access.write_text(sound)
    assert auto_conf_of(fresh_server) == before
    await control.aclose()


async def test_a_delay_that_no_login_waits_for_is_refused(fresh_server: Throwaway, tmp_path: Path) -> None:
    control = control_to(resolve(f"{conninfo(fresh_server)} connect_timeout=2"), tmp_path)
    for name in ("post_auth_delay", "pre_auth_delay"):
        with pytest.raises(ServerProblem, match="no new session can log in"):
            await control.apply_set([WantedParameter(name, "30")], Terms())
    await control.aclose()
    assert not is_locked_out(fresh_server)
    execute(fresh_server, "ALTER SYSTEM SET post_auth_delay = 30", "SELECT pg_reload_conf()")
    session = operator_session(resolve(f"{conninfo(fresh_server)} connect_timeout=2"), OwnSessions())
    assert session.parameter("post_auth_delay").shown == "30"
    session.close()


@pytest.mark.ends_of_majors
async def test_a_library_that_is_gone_does_not_keep_revert_out(
    all_servers: Throwaway, make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    server = make_server(all_servers.binaries.major)
    library, before = library_of(server), auto_conf_of(server)
    for scope in SCOPES:
        control = control_to(place(server), tmp_path)
        await control.apply_set([WantedParameter(LIBRARIES, str(library), scope)], Terms())
        await control.aclose()
        library.unlink()
        assert is_locked_out(server)
        [back] = revert_parameters(place(server), directory=tmp_path)
        assert back.shown_after in ("", "default")
        assert not is_locked_out(server)
        library_of(server)
    assert (auto_conf_of(server), stored(server)) == (before, [])


async def test_an_old_value_that_keeps_everybody_out_is_not_restored(fresh_server: Throwaway, tmp_path: Path) -> None:
    first, second = library_of(fresh_server, "first"), library_of(fresh_server, "second")
    execute(fresh_server, f"ALTER SYSTEM SET {LIBRARIES} = '{first}'", "SELECT pg_reload_conf()")
    control = control_to(place(fresh_server), tmp_path)
    await control.apply_set([WantedParameter(LIBRARIES, str(second))], Terms())
    await control.aclose()
    first.unlink()
    with pytest.raises(ServerProblem, match=r"no new session can log in with .*first"):
        revert_parameters(place(fresh_server), directory=tmp_path)
    assert not is_locked_out(fresh_server)


def test_where_the_role_may_not_switch_it_off_the_file_is_restored(fresh_server: Throwaway, tmp_path: Path) -> None:
    execute(fresh_server, "CREATE ROLE tuner LOGIN", *GRANTS, f"GRANT SET ON PARAMETER {LIBRARIES} TO tuner")
    library, before = library_of(fresh_server), auto_conf_of(fresh_server)
    words = ("-h", str(fresh_server.socket_dir), "-p", str(fresh_server.port), "-U", "tuner", "-d", "postgres")
    value = f"{LIBRARIES}={library}"
    ran = run("set", value, "--confirm", LIBRARIES, *words, home=tmp_path)
    assert ran.status == 0, ran.err
    execute(fresh_server, f"REVOKE SET ON PARAMETER {LIBRARIES} FROM tuner")
    library.unlink()
    assert is_locked_out(fresh_server)
    ran = run("revert", *words, home=tmp_path)
    assert ran.status == 0, ran.err
    assert "old values are restored" in ran.err
    assert auto_conf_of(fresh_server) == before
    assert not is_locked_out(fresh_server)


def test_where_nothing_is_left_the_statements_are_named(fresh_server: Throwaway, tmp_path: Path) -> None:
    execute(fresh_server, "CREATE ROLE tuner LOGIN", f"GRANT SET ON PARAMETER {LIBRARIES} TO tuner", GRANTS[2])
    library = library_of(fresh_server)
    words = ("-h", str(fresh_server.socket_dir), "-p", str(fresh_server.port), "-U", "tuner", "-d", "postgres")
    value = f"{LIBRARIES}={library}"
    ran = run("set", value, "--scope", "role=tuner", "--confirm", LIBRARIES, *words, home=tmp_path)
    assert ran.status == 0, ran.err
    library.unlink()
    execute(fresh_server, f"REVOKE SET ON PARAMETER {LIBRARIES} FROM tuner")
    ran = run("revert", *words, home=tmp_path)
    assert ran.status == 3
    assert f'ALTER ROLE "tuner" RESET "{LIBRARIES}"' in " ".join(ran.err.split())
    assert f"PGOPTIONS='-c {LIBRARIES}=" in " ".join(ran.err.split())


def test_a_login_trigger_that_fails_does_not_keep_our_session_out(fresh_server: Throwaway) -> None:
    execute(
        fresh_server,
        "CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'nobody'; END$$",
        "CREATE EVENT TRIGGER refuse ON login EXECUTE FUNCTION refuse()",
        "ALTER EVENT TRIGGER refuse ENABLE ALWAYS",
        "CREATE ROLE plain LOGIN",
    )
    assert is_locked_out(fresh_server)
    session = operator_session(place(fresh_server), OwnSessions())
    [parameter] = session.parameters(["event_triggers"])
    assert (parameter.shown, parameter.source) == ("on", "default")
    session.close()
    with pytest.raises(LockedOut, match="nobody"):
        operator_session(place(fresh_server, user="plain"), OwnSessions())


async def test_a_full_server_is_no_reason_to_take_a_change_back(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    server = make_server(max_connections="5", superuser_reserved_connections="0", max_wal_senders="0")
    control = control_to(place(server), tmp_path)
    await control.list(("work_mem",))
    others = taking_every_place(server)
    [change] = await control.apply_set([WantedParameter("post_auth_delay", "1")], Terms())
    assert change.state is ChangeState.APPLIED
    for other in others:
        other.close()
    await control.aclose()


def test_an_encoding_that_one_database_cannot_convert_is_asked_for(fresh_server: Throwaway) -> None:
    execute(
        fresh_server,
        "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0",
        "ALTER SYSTEM SET client_encoding = 'LATIN5'",
        "SELECT pg_reload_conf()",
    )
    with pytest.raises(psycopg.OperationalError, match="conversion between"):
        psycopg.connect(conninfo(fresh_server, "latin"))
    operator_session(place(fresh_server, "latin"), OwnSessions()).close()


async def test_a_reset_that_brings_a_lock_out_is_refused(fresh_server: Throwaway, tmp_path: Path) -> None:
    file = Path(str(fresh_server.data_dir)) / "postgresql.conf"
    file.write_text(f"{file.read_text()}\n{LIBRARIES} = 'nope_lib'\n")
    execute(fresh_server, f"ALTER SYSTEM SET {LIBRARIES} = 'plpgsql'", "SELECT pg_reload_conf()")
    before = auto_conf_of(fresh_server)
    control = control_to(place(fresh_server), tmp_path)
    with pytest.raises(ServerProblem, match=r"no new session can log in with session_preload_libraries = nope_lib"):
        await control.apply_set([WantedParameter(LIBRARIES, None)], Terms())
    await control.aclose()
    assert auto_conf_of(fresh_server) == before
    assert not is_locked_out(fresh_server)


async def test_a_safe_change_stays_where_logins_fail_for_another_reason(
    fresh_server: Throwaway, tmp_path: Path
) -> None:
    messages: list[str] = []
    control = PostgresControl(place(fresh_server), directory=tmp_path, rules=Rules(tell=messages.append))
    await control.list(("work_mem",))
    execute(fresh_server, "ALTER ROLE postgres SET session_preload_libraries = 'nope_lib'")
    [change] = await control.apply_set([WantedParameter("work_mem", "9MB")], Terms())
    await control.aclose()
    assert change.shown_after == "9MB"
    assert "nope_lib" in messages[-1]


async def test_a_reset_is_judged_by_the_value_that_it_brings(fresh_server: Throwaway, tmp_path: Path) -> None:
    file = Path(str(fresh_server.data_dir)) / "postgresql.conf"
    file.write_text(f"{file.read_text()}\nfull_page_writes = off\nsession_replication_role = replica\n")
    set_back = ("ALTER SYSTEM SET full_page_writes = on", "ALTER SYSTEM SET session_replication_role = origin")
    execute(fresh_server, *set_back, "SELECT pg_reload_conf()")
    before = auto_conf_of(fresh_server)
    control = PostgresControl(place(fresh_server), directory=tmp_path, rules=Rules(fenced=True))
    for name in ("full_page_writes", "session_replication_role"):
        with pytest.raises(UnsafeChange, match=name):
            await control.apply_set([WantedParameter(name, None)], Terms())
    await control.aclose()
    assert auto_conf_of(fresh_server) == before


@pytest.mark.parametrize(
    ("lower", "scope", "brought"),
    [
        ("ALTER DATABASE postgres SET synchronous_commit = off", SCOPES[3], "off"),
        ("ALTER DATABASE postgres SET synchronous_commit = off", SCOPES[1], "off"),
        ("ALTER ROLE ALL SET synchronous_commit = off", SCOPES[2], "off"),
        ("ALTER SYSTEM SET synchronous_commit = off", SCOPES[1], "off"),
        ("ALTER ROLE postgres SET synchronous_commit = on", SCOPES[2], ""),
        ("ALTER ROLE postgres SET synchronous_commit = on", SCOPES[3], ""),
    ],
)
async def test_a_reset_of_a_role_or_a_database_is_judged_by_what_then_holds(
    server: Throwaway, tmp_path: Path, lower: str, scope: Scope, brought: str
) -> None:
    own = str(statement("synchronous_commit", "on", scope))
    undo = [str(statement("synchronous_commit", None, each)) for each in SCOPES]
    execute(server, lower, own, "SELECT pg_reload_conf()")
    control = PostgresControl(place(server), directory=tmp_path, rules=Rules(fenced=True))
    asked = control.apply_set([WantedParameter("synchronous_commit", None, scope)], Terms())
    try:
        if brought:
            with pytest.raises(UnsafeChange, match="synchronous_commit = off"):
                await asked
        else:
            [change] = await asked
            assert change.state is ChangeState.APPLIED
    finally:
        await control.aclose()
        execute(server, *undo, "ALTER ROLE ALL RESET synchronous_commit", "SELECT pg_reload_conf()")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("for (;;) pg_usleep(100000);", "the login did not end in time; its process "),
        ("for (;;) { CHECK_FOR_INTERRUPTS(); pg_usleep(100000); }", "the login did not end in time"),
        ("raise(SIGSEGV);", "the value crashed the trial session, and the server ended all other sessions"),
        ("_exit(0);", "the value crashed the trial session, and the server ended all other sessions"),
    ],
)
async def test_a_library_that_hangs_or_crashes_is_not_written(
    fresh_server: Throwaway, tmp_path: Path, body: str, words: str
) -> None:
    library, before = compiled(fresh_server, body), auto_conf_of(fresh_server)
    control = control_to(resolve(f"{conninfo(fresh_server)} connect_timeout=2"), tmp_path)
    with pytest.raises(ServerProblem) as refused:
        await control.apply_set([WantedParameter(LIBRARIES, str(library))], Terms(600.0))
    await control.aclose()
    assert words in refused.value.message
    assert "nothing was changed" in refused.value.hint
    assert (auto_conf_of(fresh_server), stored_when_up(fresh_server)) == (before, [])
    if "CHECK_FOR" in body:
        assert eventually(lambda: not trials(fresh_server))


async def test_behind_a_pooler_a_library_that_hangs_has_a_time_limit(fresh_server: Throwaway, tmp_path: Path) -> None:
    library, before = compiled(fresh_server, "for (;;) pg_usleep(100000);"), auto_conf_of(fresh_server)
    with PgBouncer(fresh_server) as bouncer:
        control = control_to(resolve(bouncer.conninfo(), user="postgres"), tmp_path)
        with pytest.raises(ServerProblem, match="did not load within 5 s"):
            await control.apply_set([WantedParameter(LIBRARIES, str(library))], Terms())
        await control.aclose()
    assert auto_conf_of(fresh_server) == before


def stored_when_up(server: Throwaway) -> list[tuple[object, ...]]:
    assert eventually(lambda: not is_locked_out(server))
    return stored(server)


def trials(server: Throwaway) -> list[tuple[object, ...]]:
    with psycopg.connect(conninfo(server)) as connection:
        text = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'pgtop-tune trial%'"
        return connection.execute(text.encode()).fetchall()


@pytest.mark.ends_of_majors
async def test_a_reload_brings_no_unsafe_line_that_nobody_has_loaded(
    all_servers: Throwaway, make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    server = make_server(all_servers.binaries.major)
    data, told = Path(str(server.data_dir)), list[str]()
    control = PostgresControl(place(server), directory=tmp_path, rules=Rules(fenced=True, tell=told.append))
    (made,) = await control.apply_set([WantedParameter("work_mem", "8MB")], Terms(600.0))
    main, before = data / "postgresql.conf", auto_conf_of(server)
    sound = main.read_text()
    for line in ("zero_damaged_pages = 1", f"{LIBRARIES} = 'nope_lib'", "archive_command = '/bin/true'"):
        main.write_text(f"{sound}\n{line}\nwork_mem = 7168kB\n")
        with pytest.raises(UnsafeChange, match=rf"the reload would put {line.split()[0]} = .*postgresql.conf:\d+ into"):
            await control.apply_set([WantedParameter("maintenance_work_mem", "70MB")], Terms())
        assert auto_conf_of(server) == before
    main.write_text(f"{sound}\nzero_damaged_pages = 1\n")
    (back,) = await control.revert_set(made.set_id)
    assert "the reload has put zero_damaged_pages = 1 of " in back.message
    main.write_text(sound)
    access = data / "pg_hba.conf"
    await control.apply_set([WantedParameter("maintenance_work_mem", "70MB")], Terms())
    assert told == []
    os.utime(access, (time.time() + 5, time.time() + 5))
    await control.apply_set([WantedParameter("maintenance_work_mem", "71MB")], Terms())
    assert told == [f"{access} was changed since the server loaded it: this reload puts it into force"]
    await control.aclose()
