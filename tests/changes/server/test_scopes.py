"""A role or a database that is renamed, dropped or made again while a value of its own is pending."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace

from pgtop_tune.base.sql_quoting import composed, identifier
from pgtop_tune.changes.journal import Journal, journals, read
from pgtop_tune.changes.model.change import ChangeState, ParameterChange, Scope, ScopeKind, Terms, WantedParameter
from pgtop_tune.changes.selection import of_set
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.changes.server.reverts import try_to_revert
from pgtop_tune.cluster.throwaway import Throwaway
from tests.postgres.conftest import place
from tests.support.servers import conninfo

WIDE = "役" * 21
"""63 bytes in UTF-8: as long as a name gets."""
ROLES = ("report; er", "Report; er", '"', WIDE, "renamed")


@pytest.fixture
def operator(server: Throwaway) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        yield connection
        for name in ("first", "second"):
            connection.execute(f"DROP DATABASE IF EXISTS {name}")
        for name in ROLES:
            connection.execute(composed("DROP ROLE IF EXISTS {name}", name=identifier(name)).encode())


def act(operator: psycopg.Connection[tuple[object, ...]], text: str, **names: str) -> None:
    parts = {key: identifier(name) for key, name in names.items()}
    operator.execute(composed(text, **parts).encode())


def own_values(operator: psycopg.Connection[tuple[object, ...]]) -> set[tuple[object, ...]]:
    """Database, role and setting, of those of these tests."""
    rows = operator.execute(
        "SELECT coalesce(datname, ''), coalesce(rolname, ''), unnest(setconfig) FROM pg_db_role_setting"
        " LEFT JOIN pg_database d ON d.oid = setdatabase LEFT JOIN pg_roles r ON r.oid = setrole"
    ).fetchall()
    return {row for row in rows if row[0] in ("", "first", "second") and row[1] in ("", *ROLES)}


async def pending(server: Throwaway, directory: Path, scope: Scope) -> tuple[PostgresControl, ParameterChange]:
    control = PostgresControl(place(server), directory=directory)
    (made,) = await control.apply_set((WantedParameter("work_mem", "8MB", scope),), Terms(keep_within_s=600.0))
    return control, made


@pytest.mark.parametrize(("before", "after"), [("report; er", "Report; er"), (WIDE, '"')])
async def test_a_renamed_role_gets_its_old_value_back(
    server: Throwaway,
    operator: psycopg.Connection[tuple[object, ...]],
    tmp_path: Path,
    before: str,
    after: str,
) -> None:
    act(operator, "CREATE ROLE {name}", name=before)
    act(operator, "ALTER ROLE {name} SET work_mem = '5MB'", name=before)
    control, made = await pending(server, tmp_path, Scope(ScopeKind.ROLE, role=before))
    act(operator, "ALTER ROLE {name} RENAME TO {after}", name=before, after=after)
    # Another role has the name by now, and the same value.
    act(operator, "CREATE ROLE {name}", name=before)
    act(operator, "ALTER ROLE {name} SET work_mem = '8MB'", name=before)
    assert [each.scope.role for each in await control.in_force()] == [after]
    (back,) = await control.revert_set(made.set_id)
    assert (back.state, back.scope.role, back.shown_after) == (ChangeState.REVERTED, after, "5MB")
    assert f"role {before} is {after} now" in back.message
    assert own_values(operator) == {("", after, "work_mem=5MB"), ("", before, "work_mem=8MB")}
    await control.aclose()


async def test_a_renamed_database_and_role_are_found_by_a_program_that_has_only_the_journal(
    server: Throwaway, operator: psycopg.Connection[tuple[object, ...]], tmp_path: Path
) -> None:
    act(operator, "CREATE DATABASE first")
    act(operator, "CREATE ROLE {name}", name=WIDE)
    scope = Scope(ScopeKind.ROLE_IN_DATABASE, role=WIDE, database="first")
    control, made = await pending(server, tmp_path, scope)
    act(operator, "ALTER DATABASE first RENAME TO second")
    act(operator, "ALTER ROLE {name} RENAME TO renamed", name=WIDE)
    outcome = try_to_revert(place(server), of_set(made.set_id), directory=tmp_path)
    assert [each.scope for each in outcome.reverted] == [Scope(ScopeKind.ROLE_IN_DATABASE, "renamed", "second")]
    assert own_values(operator) == set()
    assert read(journals(tmp_path)[0]).in_force == ()
    await control.aclose()


@pytest.mark.parametrize("again", [False, True])
async def test_what_was_set_for_a_dropped_role_went_with_it_and_another_of_its_name_is_left_alone(
    server: Throwaway, operator: psycopg.Connection[tuple[object, ...]], tmp_path: Path, again: bool
) -> None:
    act(operator, "CREATE ROLE renamed")
    control, made = await pending(server, tmp_path, Scope(ScopeKind.ROLE, role="renamed"))
    act(operator, "DROP ROLE renamed")
    if again:
        act(operator, "CREATE ROLE renamed")
        act(operator, "ALTER ROLE renamed SET work_mem = '8MB'")
    (back,) = await control.revert_set(made.set_id)
    words = "role renamed was dropped, and its setting with it"
    assert back.message == (f"{words}; the one that has its name now is a different one" if again else words)
    assert back.state is ChangeState.REVERTED
    assert own_values(operator) == ({("", "renamed", "work_mem=8MB")} if again else set())
    assert await control.in_force() == ()
    await control.aclose()


async def test_a_journal_without_oids_knows_names_and_takes_nothing_of_all_roles_for_a_role_that_is_gone(
    server: Throwaway, operator: psycopg.Connection[tuple[object, ...]], tmp_path: Path
) -> None:
    act(operator, "CREATE ROLE renamed")
    control, made = await pending(server, tmp_path, Scope(ScopeKind.ROLE, role="renamed"))
    (path,) = journals(tmp_path)
    text = read(path)
    assert text.server is not None
    with Journal(text.server, tmp_path) as journal:
        journal.write(replace(text.in_force[0], role_oid=0))
    act(operator, "ALTER ROLE ALL SET work_mem = '8MB'")
    try:
        act(operator, "DROP ROLE renamed")
        (back,) = await control.revert_set(made.set_id)
        assert (back.state, own_values(operator)) == (ChangeState.SUPERSEDED, {("", "", "work_mem=8MB")})
        assert "left alone: role renamed no longer exists" in back.message
    finally:
        act(operator, "ALTER ROLE ALL RESET work_mem")
        await control.aclose()
