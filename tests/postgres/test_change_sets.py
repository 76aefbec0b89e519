"""Several changes as one on real servers: all or nothing, the right order, undone and made again, fenced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem, JournalProblem, ServerProblem, UnsafeChange, UsageProblem
from pgtop_tune.changes.journal import Journal, journals, read
from pgtop_tune.changes.model.change import (
    ChangeState,
    HostChange,
    ParameterChange,
    Scope,
    ScopeKind,
    Terms,
    WantedParameter,
)
from pgtop_tune.changes.model.pending_set import now_ms
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.changes.server.one_change import Rules
from pgtop_tune.changes.server.operator_session import OperatorSession
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.postgres.server.own_sessions import LIMITS
from tests.changes.server.test_control import auto_conf, control_of, settings
from tests.postgres.conftest import place
from tests.postgres.test_on_trial import shown
from tests.support.servers import conninfo
from tests.support.undoing import undo, undo_all

WAL = (
    WantedParameter("min_wal_size", "2GB"),
    WantedParameter("max_wal_size", "4GB"),
    WantedParameter("work_mem", "8MB"),
)
FENCED = Rules(fenced=True)
UNLOCKABLE = replace(FENCED, allow_unsafe=True)


def fenced(server: Throwaway, directory: Path, rules: Rules = FENCED) -> PostgresControl:
    return PostgresControl(place(server), directory=directory, rules=rules)


def states(directory: Path) -> list[tuple[str, ChangeState]]:
    (journal,) = journals(directory)
    return [(change.name, change.state) for change in read(journal).changes]


async def test_a_set_is_made_in_the_right_order_undone_together_and_made_again(
    server: Throwaway, tmp_path: Path
) -> None:
    before, file_before = settings(server), auto_conf(server)
    control = fenced(server, tmp_path)
    made = await control.apply_set(WAL, Terms(reason="a larger WAL"))
    assert [change.name for change in made] == ["max_wal_size", "min_wal_size", "work_mem"]
    assert {change.set_id for change in made} == {made[0].set_id} != {""}
    assert [(change.shown_after, change.message, change.reason) for change in made] == [
        ("4GB", "", "a larger WAL"), ("2GB", "", "a larger WAL"), ("8MB", "", "a larger WAL")
    ]  # fmt: skip
    undone = await undo(control)
    assert undone is not None
    assert undone.name == "work_mem"
    assert await control.in_force() == ()
    assert (settings(server), auto_conf(server)) == (before, file_before)
    again = await control.redo()
    assert [change.shown_after for change in again] == ["4GB", "2GB", "8MB"]
    assert await control.redo() == ()
    assert len(await control.revert_set(again[0].set_id)) == 3
    assert await control.revert_set(again[0].set_id) == ()
    assert (settings(server), auto_conf(server)) == (before, file_before)
    await control.aclose()


async def test_one_refusal_takes_back_what_was_made_before_it(server: Throwaway, tmp_path: Path) -> None:
    before, file_before = settings(server), auto_conf(server)
    control = control_of(server, tmp_path)
    with pytest.raises(ServerProblem, match="outside the valid range"):
        await control.apply_set(
            [
                WantedParameter("work_mem", "8MB"),
                WantedParameter("random_page_cost", "-3"),
                WantedParameter("jit", "off"),
            ],
            Terms(),
        )
    assert states(tmp_path) == [
        ("work_mem", ChangeState.REVERTED), ("random_page_cost", ChangeState.FAILED), ("jit", ChangeState.FAILED)
    ]  # fmt: skip
    with pytest.raises(ServerProblem, match="unrecognized"):
        await control.apply_set([WantedParameter("work_mem", "8MB"), WantedParameter("no_such", "1")], Terms())
    with pytest.raises(UsageProblem, match="twice"):
        await control.apply_set([WantedParameter("work_mem", "8MB"), WantedParameter("WORK_MEM", "9MB")], Terms())
    assert await control.in_force() == ()
    assert (settings(server), auto_conf(server)) == (before, file_before)
    await control.aclose()


async def test_lines_of_the_file_stand_in_their_order_again(fresh_server: Throwaway, tmp_path: Path) -> None:
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        for name, value in (("work_mem", "5MB"), ("jit", "off"), ("search_path", "x"), ("cluster_name", "it's")):
            connection.execute(f"ALTER SYSTEM SET {name} = {psycopg.sql.quote(value)}".encode())
        connection.execute("ALTER SYSTEM SET search_path = 'A b', \"$user\", public, 'say \"no\"'")
        connection.execute("ALTER SYSTEM SET seq_page_cost = 1.25")
    file_before = auto_conf(fresh_server)
    control = control_of(fresh_server, tmp_path)
    await control.apply("jit", "on")
    await control.apply_set(
        [WantedParameter("work_mem", "8MB"), WantedParameter("cluster_name", None), WantedParameter("geqo", "off")],
        Terms(),
    )
    await control.apply("search_path", '"$user", public')
    assert auto_conf(fresh_server) != file_before
    undone = await undo_all(control)
    assert not [change.message for change in undone if "order" in change.message]
    assert auto_conf(fresh_server) == file_before
    await control.aclose()


async def test_what_can_lose_data_is_refused_until_it_is_unlocked_and_ends_with_us(
    server: Throwaway, tmp_path: Path
) -> None:
    before, file_before = settings(server), auto_conf(server)
    control = fenced(server, tmp_path)
    for value in ("off", "0", "False", "n"):
        with pytest.raises(UnsafeChange, match="can lose") as caught:
            await control.apply("fsync", value)
        assert "--allow-unsafe" in caught.value.hint
    assert journals(tmp_path) == ()
    unlockable = fenced(server, tmp_path, UNLOCKABLE)
    with pytest.raises(UnsafeChange) as caught:
        await unlockable.apply_set([WantedParameter("fsync", "off")], Terms(confirmed=frozenset({"full_page_writes"})))
    assert "type fsync" in caught.value.hint
    (change,) = await unlockable.apply_set([WantedParameter("fsync", "off")], Terms(confirmed=frozenset({"fsync"})))
    assert change.loss
    assert settings(server)["fsync"][0] == "off"
    await unlockable.aclose()
    assert (settings(server), auto_conf(server)) == (before, file_before)
    assert await control.in_force() == ()
    await control.aclose()


async def test_what_can_lose_data_stays_when_it_is_kept_in_time_and_still_ends_with_us(
    server: Throwaway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgtop_tune.changes.watchdogs.LATER_S", 0.0)
    before, file_before = settings(server), auto_conf(server)
    control = fenced(server, tmp_path, UNLOCKABLE)
    terms = Terms(keep_within_s=1.0, confirmed=frozenset({"fsync"}))
    (change,) = await control.apply_set([WantedParameter("fsync", "off")], terms)
    (kept,) = await control.keep(change.set_id)
    assert (kept.kept, kept.until_ms) == (True, None)
    assert change.until_ms is not None
    while now_ms() < change.until_ms + 2000:
        assert [each.name for each in await control.in_force()] == ["fsync"]
        await asyncio.sleep(0.1)
    await control.aclose()
    assert (settings(server), auto_conf(server)) == (before, file_before)


async def test_what_is_reset_for_a_role_was_what_the_role_had_and_not_our_own_value(
    server: Throwaway, tmp_path: Path, role: Callable[..., str]
) -> None:
    control = fenced(server, tmp_path)
    theirs = Scope(ScopeKind.ROLE, role=role())
    (first,) = await control.apply_set([WantedParameter("work_mem", "64MB", theirs)], Terms())
    assert first.shown_before == "4MB"
    (back,) = await control.apply_set([WantedParameter("work_mem", None, theirs)], Terms())
    assert back.shown_before == "64MB"
    await undo_all(control)
    await control.aclose()


@pytest.mark.parametrize("written", [0, 1])
async def test_a_full_disk_under_the_journal_leaves_everything_as_it_was(
    server: Throwaway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    before, file_before = settings(server), auto_conf(server)
    control = control_of(server, tmp_path)
    write, left = Journal.write, [written]

    def full(journal: Journal, *changes: ParameterChange | HostChange) -> None:
        if not left[0]:
            raise JournalProblem("the change journal cannot be written: the disk is full", "nothing was changed")
        left[0] -= 1
        write(journal, *changes)

    monkeypatch.setattr(Journal, "write", full)
    with pytest.raises(JournalProblem, match="full"):
        await control.apply_set(
            [WantedParameter("work_mem", "8MB"), WantedParameter("max_wal_size", "4GB"), WantedParameter("jit", "off")],
            Terms(),
        )
    monkeypatch.undo()
    assert (settings(server), auto_conf(server)) == (before, file_before)
    await undo_all(control)
    assert (settings(server), auto_conf(server)) == (before, file_before)
    await control.aclose()


@pytest.mark.parametrize(
    ("made", "state"), [(0, ChangeState.FAILED), (1, ChangeState.REVERTED), (2, ChangeState.APPLIED)]
)
async def test_what_a_lost_connection_left_open_is_found_out_on_reconnecting(
    server: Throwaway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: int, state: ChangeState
) -> None:
    file_before = auto_conf(server)
    control = control_of(server, tmp_path)
    alter, reload, left = OperatorSession.alter, OperatorSession.reload, [made]

    def cut(session: OperatorSession, *arguments: object) -> object:
        """The server ends our session after so many statements."""
        if not left[0]:
            with psycopg.connect(conninfo(server), autocommit=True) as other:
                other.execute(
                    "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity"
                    " WHERE application_name = 'pgtop-tune control'"
                )
            left[0] = -1
        left[0] -= 1
        return alter(session, *arguments) if len(arguments) > 1 else reload(session, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(OperatorSession, "alter", cut)
    monkeypatch.setattr(OperatorSession, "reload", cut)
    with pytest.raises(ConnectionProblem) as caught:
        await control.apply_set([WantedParameter("work_mem", "8MB"), WantedParameter("jit", "off")], Terms())
    assert "unknown" in caught.value.hint
    monkeypatch.undo()
    in_force = await control.in_force()
    assert [change.shown_after for change in in_force] == (["8MB", "off"] if made == 2 else [])
    assert {each for _, each in states(tmp_path)} == {state}
    await undo_all(control)
    assert auto_conf(server) == file_before
    await control.aclose()


@pytest.mark.parametrize(
    ("name", "major"),
    [*((name, 18) for name in sorted(LIMITS)), pytest.param("transaction_timeout", 17, marks=pytest.mark.long)],
)
async def test_a_time_limit_set_too_low_can_still_be_taken_back(
    server_for_major: Callable[[int], Throwaway], tmp_path: Path, name: str, major: int
) -> None:
    """One millisecond, also for whoever connects while it is in force."""
    server = server_for_major(major)
    file_before = auto_conf(server)
    control = control_of(server, tmp_path)
    (change,) = await control.apply_set([WantedParameter(name, "1ms")], Terms(confirmed=frozenset({name})))
    assert (change.shown_after, change.message) == ("1ms", "")
    await control.aclose()
    another = control_of(server, tmp_path)
    (seen,) = await another.list((name,))
    assert (seen.shown, seen.source) == ("1ms", "configuration file")
    assert [change.shown_after for change in await undo_all(another)] == ["0"]
    assert auto_conf(server) == file_before
    assert shown(server, name) == "0"
    await another.aclose()


async def test_a_session_that_a_limit_has_ended_begins_without_it(
    server: Throwaway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is so low that it bites before it is lifted."""
    file_before = auto_conf(server)
    control = control_of(server, tmp_path)
    await control.apply_set(
        [WantedParameter("statement_timeout", "20ms")], Terms(confirmed=frozenset({"statement_timeout"}))
    )
    await control.aclose()
    monkeypatch.setattr("pgtop_tune.postgres.server.own_sessions.lifting", lambda names: "SELECT pg_sleep(0.5)")
    another = control_of(server, tmp_path)
    (seen,) = await another.list(("statement_timeout",))
    assert (seen.shown, seen.source) == ("20ms", "configuration file")
    await undo_all(another)
    assert auto_conf(server) == file_before
    await another.aclose()


async def test_a_password_never_comes_into_the_journal(server: Throwaway, tmp_path: Path) -> None:
    before = auto_conf(server)
    control = control_of(server, tmp_path)
    with pytest.raises(UsageProblem, match="primary_conninfo holds a password") as refused:
        await control.apply_set(
            [WantedParameter("primary_conninfo", "host=db1 password=sesame user=repl")],
            Terms(confirmed=frozenset({"primary_conninfo"})),
        )
    assert "sesame" not in str(refused.value)
    await control.aclose()
    assert not any(b"sesame" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert auto_conf(server) == before
