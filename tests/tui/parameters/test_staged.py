"""What is staged becomes one set: for whom each part is, in which order, and what is left for a restart."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pgtop_tune.advice.knobs.catalogue import BY_NAME
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.changes.model.change import SYSTEM, Reach, Scope, ScopeKind
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.tui.parameters.rows import (
    ChangeConditions,
    Circumstances,
    SettingRow,
    SettingTable,
    Staged,
    StagedChanges,
    check_reach,
    circumstances,
    set_lines,
    staged_changes,
)
from pgtop_tune.tui.widgets.lines import ASCII
from tests.support.frames import frame
from tests.support.screens import parameter

AROUND = Circumstances(connected=False, can_load=True, role="bench", database="app")
WORK_MEM = parameter("work_mem", "4096", "4MB", unit="kB", context="user", min_val="64", max_val="2147483647")
MAX_WAL = parameter("max_wal_size", "1024", "1GB", unit="MB", min_val="2", max_val="2147483647")
MIN_WAL = parameter("min_wal_size", "80", "80MB", unit="MB", min_val="2", max_val="2147483647")
BUFFERS = parameter("shared_buffers", "16384", "128MB", unit="8kB", context="postmaster")


def row(known: Parameter, value: str | None) -> SettingRow:
    return SettingRow(known, BY_NAME[known.name], staged=Staged(value))


@pytest.mark.parametrize(
    ("reach", "around", "scope"),
    [
        (Reach.SYSTEM, AROUND, SYSTEM),
        (Reach.ROLE, AROUND, Scope(ScopeKind.ROLE, role="bench")),
        (Reach.DATABASE, AROUND, Scope(ScopeKind.DATABASE, database="app")),
        (None, replace(AROUND, connected=True), SYSTEM),
        (None, replace(AROUND, can_load=False), SYSTEM),
        (None, AROUND, None),
        (Reach.LOAD, replace(AROUND, connected=True), None),
    ],
)
def test_a_parameter_of_sessions_is_changed_for_whom_one_wants(
    reach: Reach | None, around: Circumstances, scope: Scope | None
) -> None:
    found = staged_changes([row(WORK_MEM, "8MB")], ChangeConditions(reach), around)
    assert [each.scope for each in found.live] == ([] if scope is None else [scope])
    assert found.next_load == ((("work_mem", "8MB"),) if scope is None else ())
    assert len(found.connected) == 1


def test_a_role_or_a_database_of_others_is_taken_by_its_name() -> None:
    for reach, scope in (
        (Reach.ROLE, Scope(ScopeKind.ROLE, role="shop")),
        (Reach.DATABASE, Scope(ScopeKind.DATABASE, database="shop")),
    ):
        found = staged_changes([row(WORK_MEM, "8MB")], ChangeConditions(reach, "shop"), AROUND)
        assert [each.scope for each in found.live] == [scope]
        check_reach(ChangeConditions(reach, "shop"), Circumstances())


def test_roles_and_databases_of_connected_sessions_are_known_those_of_most_first() -> None:
    busy = frame(1)
    activity = sections.activity(busy)
    assert not isinstance(activity, Unavailable)
    client = next(each for each in activity.backends if each.backend_type == "client backend")
    names = [("app", "shop"), ("app", "shop"), ("report", "shop"), (None, None)]
    backends = tuple(replace(client, usename=usename, datname=datname) for usename, datname in names)
    around = circumstances(
        replace(busy, postgres=replace(busy.postgres, activity=replace(activity, backends=backends))), can_load=False
    )
    assert (around.roles, around.databases) == (("app", "report"), ("shop",))


def test_what_is_one_value_for_the_whole_server_stays_that_whatever_is_chosen() -> None:
    found = staged_changes([row(MAX_WAL, "4GB"), row(WORK_MEM, "8MB")], ChangeConditions(Reach.ROLE), AROUND)
    assert {each.name: each.scope.kind for each in found.live} == {
        "max_wal_size": ScopeKind.SYSTEM, "work_mem": ScopeKind.ROLE,
    }  # fmt: skip


def test_room_is_made_before_it_is_used_and_a_restart_waits() -> None:
    found = staged_changes([row(MIN_WAL, "2GB"), row(BUFFERS, "1GB"), row(MAX_WAL, "8GB")], ChangeConditions(), AROUND)
    assert [each.name for each in found.live] == ["max_wal_size", "min_wal_size"]
    assert [each.name for each in found.restart] == ["shared_buffers"]


def test_a_reach_without_a_name_is_refused() -> None:
    with pytest.raises(UsageProblem, match="role: choose one"):
        check_reach(ChangeConditions(Reach.ROLE), Circumstances())


def test_wires_are_separated_by_blanks_or_commas() -> None:
    wires = ChangeConditions(wires="p99>50ms, tps<10  errors>0").trip_wires()
    assert [wire.text for wire in wires] == ["p99>50ms", "tps<10", "errors>0"]


def table(*rows: SettingRow) -> SettingTable:
    found = SettingTable()
    found.load(rows)
    return found


def test_the_list_is_narrowed_by_words_and_what_is_staged_stays_staged() -> None:
    found = table(SettingRow(MAX_WAL, BY_NAME["max_wal_size"]), SettingRow(BUFFERS, BY_NAME["shared_buffers"]))
    found.move(1)
    found.step(1)
    for words, names in (
        ("restart", ["shared_buffers"]), ("STAGED", ["shared_buffers"]), ("wal 1GB", ["max_wal_size"]), ("zz", []),
    ):  # fmt: skip
        found.narrow(words)
        assert [each.name for each in found.view] == names
    assert [each.name for each in found.staged] == ["shared_buffers"]
    assert found.selected is None
    found.stage(Staged("1GB"))
    found.step(1)
    found.move(1)


def test_fresh_values_keep_what_is_staged_unless_the_server_has_it_by_now() -> None:
    found = table(row(MAX_WAL, None))
    found.stage(Staged("2048MB"))
    found.load([SettingRow(replace(MAX_WAL, setting="1536", shown="1536MB"), BY_NAME["max_wal_size"])])
    assert [str(each.staged) for each in found.rows] == ["2048MB"]
    found.load([SettingRow(replace(MAX_WAL, setting="2048", shown="2GB"), BY_NAME["max_wal_size"])])
    assert [each.staged for each in found.rows] == [None]


def test_the_value_it_has_in_other_words_is_no_change() -> None:
    found = table(SettingRow(MAX_WAL, BY_NAME["max_wal_size"]))
    found.stage(Staged("1024MB"))
    assert found.staged == ()


@pytest.mark.parametrize(
    ("next_load", "begins"),
    [
        ((("jit", "off"),), "with -c jit=off"),
        ((("jit", None),), "without jit"),
        ((("jit", None), ("work_mem", "8MB"), ("geqo", None)), "with -c work_mem=8MB, without jit and geqo"),
    ],
)
def test_what_the_next_load_begins_with_is_one_sentence(
    next_load: tuple[tuple[str, str | None], ...], begins: str
) -> None:
    lines = set_lines(StagedChanges(next_load=next_load), None, ChangeConditions(), 200, ASCII, roomy=False)
    assert "".join(text for text, _ in lines[0]) == f"apply: the next load begins {begins}; the server is not changed"
