"""Lists of names, libraries and directories as real servers write and read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from psycopg import sql

from pgtop_tune.base.errors import ServerProblem
from pgtop_tune.changes.journal import journals, read
from pgtop_tune.changes.model.change import ChangeState, Scope, ScopeKind, Terms, WantedParameter
from pgtop_tune.changes.statements import (
    QUOTED_LISTS,
    as_written,
    elements,
    is_same_value,
    is_unwritable_empty,
    statement,
)
from pgtop_tune.cluster.auto_conf import settings as lines_of
from pgtop_tune.cluster.throwaway import Throwaway
from tests.changes.server.test_control import auto_conf, control_of
from tests.support.servers import conninfo
from tests.support.undoing import undo

SCHEMAS: Final = ("a", "A", "a b", "a,b", 'a"b', "é")
LISTS: Final = st.text(st.sampled_from('aAbB é"",,  \t'), max_size=9)
MANY: Final = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module", params=[14, 16, 18], ids=lambda major: f"pg{major}")
def major_server(request: pytest.FixtureRequest, server_for_major: Callable[[int], Throwaway]) -> Throwaway:
    return server_for_major(request.param)


@pytest.fixture(scope="module")
def with_schemas(major_server: Throwaway) -> Iterator[psycopg.Connection[Any]]:
    """A session in a database with schemas of all those names."""
    with psycopg.connect(conninfo(major_server), autocommit=True) as outer:
        outer.execute("DROP DATABASE IF EXISTS lists")
        outer.execute("CREATE DATABASE lists")
        with psycopg.connect(conninfo(major_server, "lists"), autocommit=True) as connection:
            for name in SCHEMAS:
                connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
            yield connection
        outer.execute("DROP DATABASE lists WITH (FORCE)")


@pytest.fixture(scope="module")
def altering(major_server: Throwaway) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(conninfo(major_server), autocommit=True) as connection:
        yield connection


def searched(connection: psycopg.Connection[Any], value: str) -> list[str] | None:
    """The schemas the server finds by a search_path, in its order; None where it takes it for no list."""
    try:
        connection.execute("SELECT set_config('search_path', %s, false)", (value,))
    except psycopg.errors.InvalidParameterValue:
        return None
    row = connection.execute("SELECT current_schemas(false)").fetchone()
    assert row is not None
    return list(row[0])


@MANY
@example("")
@example('""')
@example('"", a')
@example('A, "A"')
@example('a"b')
@example("a,")
@example(" , a")
@given(LISTS)
def test_a_search_path_is_split_as_the_server_splits_it(with_schemas: psycopg.Connection[Any], value: str) -> None:
    pieces = elements("search_path", value)
    found = searched(with_schemas, value)
    expected = None if pieces is None else [name for name in dict.fromkeys(pieces) if name in SCHEMAS]
    assert found == expected


@MANY
@given(LISTS, LISTS)
def test_what_is_the_same_finds_the_same_schemas(with_schemas: psycopg.Connection[Any], one: str, other: str) -> None:
    if is_same_value("search_path", one, other):
        assert searched(with_schemas, one) == searched(with_schemas, other)


@MANY
@example("search_path", "")
@example("shared_preload_libraries", '"a b", c"d , ""')
@given(st.sampled_from(sorted(QUOTED_LISTS - {"oauth_validator_libraries"})), LISTS)
def test_what_is_written_stands_in_the_file_as_foretold_and_is_the_same(
    major_server: Throwaway, altering: psycopg.Connection[Any], name: str, value: str
) -> None:
    if elements(name, value) is None:
        return
    before = auto_conf(major_server)
    try:
        altering.execute(statement(name, value))
        written = lines_of((Path(str(major_server.data_dir)) / "postgresql.auto.conf").read_text()).get(name)
    finally:
        altering.execute(statement(name, None))
    if is_unwritable_empty(name, value):
        assert written is None
        assert as_written(name, value) is None
    else:
        assert is_same_value(name, written, value), (written, value)
        assert is_same_value(name, as_written(name, value), written)
        assert written is not None
        assert elements(name, written) == (elements(name, value) or ("",))
    assert auto_conf(major_server) == before


async def test_an_empty_search_path_on_trial_is_gone_for_everybody_afterwards(
    major_server: Throwaway, tmp_path: Path
) -> None:
    before = auto_conf(major_server)
    control = control_of(major_server, tmp_path)
    made = await control.apply_set([WantedParameter("search_path", "")], Terms(keep_within_s=60))
    assert made[0].shown_after == '""'
    (undone,) = await control.revert_set(made[0].set_id)
    assert (undone.message, undone.shown_after) == ("", '"$user", public')
    assert auto_conf(major_server) == before
    await control.aclose()


async def test_what_the_server_wrote_is_ours_however_it_writes_it(major_server: Throwaway, tmp_path: Path) -> None:
    control = control_of(major_server, tmp_path)
    for value in ('A, "B c"', '"", a', "pg_catalog,public"):
        made = await control.apply("search_path", value)
        (journal,) = journals(tmp_path)
        assert read(journal).changes[-1].stored_after == made.stored_after != ""
        undone = await undo(control)
        assert undone is not None
        assert undone.message == ""
    await control.aclose()


@pytest.mark.parametrize("name", ["session_preload_libraries", "local_preload_libraries"])
async def test_an_empty_list_of_libraries_comes_by_a_reset(major_server: Throwaway, tmp_path: Path, name: str) -> None:
    """`""` would be a library without a name, and nobody could log in any more."""
    before = auto_conf(major_server)
    control = control_of(major_server, tmp_path)
    made = await control.apply(name, "")
    assert (made.value, made.shown_after) == (None, "")
    assert auto_conf(major_server) == before
    with pytest.raises(ServerProblem, match="no name"):
        await control.apply(name, '""')
    with pytest.raises(ServerProblem, match="not a list"):
        await control.apply(name, "a,")
    with pytest.raises(ServerProblem, match="role"):
        await control.apply_set([WantedParameter(name, "", Scope(ScopeKind.ROLE, role="postgres"))], Terms())
    assert auto_conf(major_server) == before
    with psycopg.connect(conninfo(major_server)):
        pass
    await control.aclose()


async def test_an_empty_list_is_refused_where_a_reset_would_be_something_else(
    major_server: Throwaway, tmp_path: Path
) -> None:
    before = auto_conf(major_server)
    control = control_of(major_server, tmp_path)
    with pytest.raises(ServerProblem, match=r"pgtop-tune\.conf:\d+") as told:
        await control.apply("shared_preload_libraries", "")
    assert "nothing was changed" in told.value.hint
    with pytest.raises(ServerProblem, match="its default is /tmp"):
        await control.apply("unix_socket_directories", " ")
    assert auto_conf(major_server) == before
    (journal,) = journals(tmp_path)
    assert {change.state for change in read(journal).changes} <= {ChangeState.FAILED}
    await control.aclose()


async def test_a_line_that_nobody_could_put_back_is_not_replaced(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    server = make_server()
    with (Path(str(server.data_dir)) / "postgresql.auto.conf").open("a") as file:
        file.write("unix_socket_directories = ''\n")
    before = auto_conf(server)
    control = control_of(server, tmp_path)
    with pytest.raises(ServerProblem, match="could not be restored"):
        await control.apply("unix_socket_directories", "/tmp")
    assert auto_conf(server) == before
    await control.aclose()
