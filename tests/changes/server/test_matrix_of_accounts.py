"""Two accounts on one server: what is pending for one is nobody else's old value, and nobody else's to revert."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from pgtop_tune.base.errors import PendingElsewhere
from pgtop_tune.changes.change_sets import ChangeSets
from pgtop_tune.changes.journal import journals, read
from pgtop_tune.changes.model.change import SYSTEM, Scope, ScopeKind, Terms, WantedParameter
from pgtop_tune.changes.model.change_set import RevertOutcome
from pgtop_tune.changes.server import claims
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.changes.server.markers import Marker, encoded, is_hidden, marker_name, server_clock
from pgtop_tune.changes.server.one_change import Rules
from pgtop_tune.changes.server.reverts import try_to_revert
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.experiment.configurations import StandingValues
from pgtop_tune.experiment.switchback.arms import Arm, Arms, Rival
from tests.changes.server.test_control import auto_conf
from tests.postgres.conftest import Superuser, place
from tests.postgres.test_killed_changes import run
from tests.support.makers import leave_pending
from tests.support.servers import conninfo

ROLE, DATABASE = "reports", "postgres"
SCOPES = {
    "system": SYSTEM,
    "role": Scope(ScopeKind.ROLE, ROLE),
    "database": Scope(ScopeKind.DATABASE, database=DATABASE),
}


class Account:
    """The state of one operator, with a program."""

    def __init__(self, server: Throwaway, directory: Path, user: str | None = None) -> None:
        self.server, self.directory, self.told = server, directory, list[str]()
        self.conninfo = place(server, user=user)
        self.control = PostgresControl(self.conninfo, directory=directory, rules=Rules(tell=self.told.append))

    async def set(self, value: str, scope: Scope, for_s: float | None = None) -> str:
        (made,) = await self.control.apply_set([WantedParameter("work_mem", value, scope)], Terms(for_s))
        return made.set_id

    async def revert(self) -> RevertOutcome:
        return await asyncio.to_thread(try_to_revert, self.conninfo, directory=self.directory)

    async def revert_adopting(self) -> RevertOutcome:
        return await asyncio.to_thread(
            lambda: try_to_revert(self.conninfo, directory=self.directory, adopt=True, tell_of_others=self.told.append)
        )

    @property
    def pending(self) -> int:
        return sum(len(read(path).in_force) for path in journals(self.directory))


@pytest.fixture
def accounts(server: Throwaway, tmp_path: Path) -> tuple[Account, Account]:
    return Account(server, tmp_path / "ana"), Account(server, tmp_path / "ben")


@pytest.fixture(autouse=True)
def as_it_was(server: Throwaway) -> object:
    """Files to the byte, and no entry of a role or a database."""
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {ROLE}")
        before = auto_conf(server)
        yield
        assert connection.execute("SELECT setdatabase, setrole, setconfig FROM pg_db_role_setting").fetchall() == []
        assert auto_conf(server) == before
        connection.execute(f"DROP ROLE {ROLE}")


def value(server: Throwaway, scope: Scope, name: str = "work_mem") -> str | None:
    """What a scope has of its own."""
    in_file = "SELECT setting FROM pg_file_settings WHERE name = %s ORDER BY seqno DESC LIMIT 1"
    entry = "SELECT substr(e, strpos(e, '=') + 1) FROM pg_db_role_setting, unnest(setconfig) e WHERE e LIKE %s || '=%%'"
    with psycopg.connect(conninfo(server)) as connection:
        row = connection.execute(in_file if scope == SYSTEM else entry, (name,)).fetchone()
    return None if row is None else row[0]


@asynccontextmanager
async def pending(account: Account, scope: Scope) -> AsyncIterator[None]:
    set_id = await account.set("8MB", scope, 600.0)
    yield
    await account.control.revert_set(set_id)


@asynccontextmanager
async def between_arms(account: Account, scope: Scope) -> AsyncIterator[None]:
    """An `ab` whose current arm is what is in force: nothing is pending."""
    arms = Arms(ChangeSets(account.control, None), account.control, [Rival("work_mem", "4MB", "8MB")], frozenset())
    await arms.check(60.0)
    await arms.to(Arm.A, 60.0)
    yield
    assert await arms.restore("over") == ""


@asynccontextmanager
async def second_arm(account: Account, scope: Scope) -> AsyncIterator[None]:
    arms = Arms(ChangeSets(account.control, None), account.control, [Rival("work_mem", "4MB", "8MB")], frozenset())
    await arms.to(Arm.B, 60.0)
    yield
    assert await arms.restore("over") == ""


@asynccontextmanager
async def tune(account: Account, scope: Scope) -> AsyncIterator[None]:
    standing = StandingValues(account.control, lambda set_id: None, "tune")
    await standing.to({"work_mem": "8MB"}, 60.0)
    yield
    await standing.revert("over")


async def set_it(account: Account, scope: Scope) -> None:
    await account.set("16MB", scope)


async def set_for(account: Account, scope: Scope) -> None:
    await account.set("16MB", scope, 60.0)


async def begin_ab(account: Account, scope: Scope) -> None:
    arms = Arms(ChangeSets(account.control, None), account.control, [Rival("work_mem", "4MB", "16MB")], frozenset())
    await arms.check(60.0)


_Holds = Callable[[Account, Scope], object]
EXPERIMENTS = [between_arms, second_arm, tune]
CELLS = [
    *((pending, other, scope) for other in (set_it, set_for) for scope in SCOPES),
    (pending, begin_ab, "system"),
    *((holds, other, "system") for holds in EXPERIMENTS for other in (set_it, set_for, begin_ab)),
]


@pytest.mark.parametrize(("holds", "other", "scope"), CELLS, ids=lambda each: getattr(each, "__name__", each))
async def test_what_one_account_holds_is_refused_to_the_other_until_it_is_over(
    accounts: tuple[Account, Account],
    holds: Callable[[Account, Scope], AsyncIterator[None]],
    other: Callable[[Account, Scope], Awaitable[None]],
    scope: str,
) -> None:
    ana, ben = accounts
    where = SCOPES[scope]
    before = value(ana.server, where)
    async with holds(ana, where):  # type: ignore[attr-defined]
        during = value(ana.server, where)
        with pytest.raises(PendingElsewhere) as refused:
            await other(ben, where)
        assert (value(ana.server, where), ben.pending) == (during, 0)
        assert "pid" in refused.value.message or "postgres" in refused.value.message
    await ana.control.release_experiment()
    assert value(ana.server, where) == before
    await other(ben, where)
    await ben.revert()
    await ben.control.aclose()
    await ana.control.aclose()
    assert value(ana.server, where) == before


@pytest.mark.parametrize(
    ("holds", "scope"),
    [*((pending, scope) for scope in SCOPES), *((holds, "system") for holds in EXPERIMENTS)],
    ids=lambda each: getattr(each, "__name__", each),
)
async def test_an_earlier_change_is_not_reverted_below_what_another_account_holds(
    accounts: tuple[Account, Account], holds: Callable[[Account, Scope], AsyncIterator[None]], scope: str
) -> None:
    ana, ben = accounts
    where = SCOPES[scope]
    await ben.set("16MB", where)
    async with holds(ana, where):  # type: ignore[attr-defined]
        during = value(ana.server, where)
        (refusal,) = (await ben.revert()).refused
        assert isinstance(refusal.problem, PendingElsewhere)
        assert (value(ana.server, where), ben.pending) == (during, 1)
    await ana.control.aclose()
    assert value(ana.server, where) == "16MB"
    await ben.revert()
    assert (value(ana.server, where), ben.pending) == (None, 0)
    await ben.control.aclose()


@pytest.mark.parametrize("scope", SCOPES)
async def test_a_kept_value_is_the_old_value_of_the_next_account(accounts: tuple[Account, Account], scope: str) -> None:
    ana, ben = accounts
    where = SCOPES[scope]
    await ana.set("8MB", where)
    set_id = await ben.set("16MB", where, 60.0)
    refused = await ana.revert()
    assert [refusal.change.value for refusal in refused.refused] == ["8MB"]
    assert "is pending confirmation" in refused.refused[0].problem.message
    assert ana.pending == 1
    await ben.control.revert_set(set_id)
    assert value(ana.server, where) == "8MB"
    await ben.set("16MB", where)
    await ben.revert()
    assert (await ana.revert()).refused == ()
    assert (value(ana.server, where), ana.pending, ben.pending) == (None, 0, 0)
    await ben.control.aclose()
    await ana.control.aclose()


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("second", ["16MB", None])
async def test_two_kept_values_go_in_the_order_in_which_they_came(
    accounts: tuple[Account, Account], scope: str, second: str | None
) -> None:
    """What one account left alone, because another had set a value since, is in force again once that one is undone."""
    ana, ben = accounts
    where = SCOPES[scope]
    await ana.set("8MB", where)
    await ben.control.apply_set([WantedParameter("work_mem", second, where)], Terms())
    (left,) = (await ana.revert()).settled
    assert (left.value, left.displaced, value(ana.server, where)) == ("8MB", True, second)
    assert await ana.control.in_force() == ()
    await ben.revert()
    assert [change.value for change in await ana.control.in_force()] == ["8MB"]
    assert [change.value for change in (await ana.revert()).settled] == ["8MB"]
    assert (value(ana.server, where), await ana.control.in_force()) == (None, ())
    await ben.control.aclose()
    await ana.control.aclose()


async def test_a_displaced_value_is_not_reverted_below_a_later_one_of_the_same_account(
    accounts: tuple[Account, Account],
) -> None:
    ana, ben = accounts
    first = await ana.set("8MB", SYSTEM)
    await ben.set("16MB", SYSTEM)
    await ana.revert()
    await ben.revert()
    await ana.set("32MB", SYSTEM)
    assert [change.value for change in await ana.control.in_force()] == ["8MB", "32MB"]
    await ana.control.revert_set(first or (await ana.control.in_force())[0].id)
    assert value(ana.server, SYSTEM) == "32MB"
    await ana.revert()
    assert (value(ana.server, SYSTEM), await ana.control.in_force()) == (None, ())
    await ben.control.aclose()
    await ana.control.aclose()


async def test_the_refusal_names_owner_deadline_and_the_way_out(accounts: tuple[Account, Account]) -> None:
    ana, ben = accounts
    async with pending(ana, SYSTEM):
        with pytest.raises(PendingElsewhere) as refused:
            await ben.set("16MB", SYSTEM)
        message = refused.value.message
        assert message.startswith("work_mem = 8MB is pending confirmation by ")
        assert "): it reverts to 4MB at " in message
        assert "try again then, or ask " in refused.value.hint
    await ana.control.aclose()
    await ben.control.aclose()


KILLED = """
    import asyncio, os, signal, sys
    from pathlib import Path
    from pgtop_tune.changes.journal import Journal
    from pgtop_tune.changes.model.change import Terms, WantedParameter
    from pgtop_tune.postgres.server.conninfo import resolve
    from pgtop_tune.changes.server.control import PostgresControl
    from pgtop_tune.changes.server.operator_session import OperatorSession
    from tests.support.processes import revert_watchdogs

    host, port, directory, end, point = sys.argv[1:]
    left = int(point)

    def die():
        for watchdog in revert_watchdogs(os.getpid()):
            os.kill(watchdog, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def here():
        global left
        if left == 0:
            die()
        left -= 1

    def mined(method):
        def call(*arguments):
            here()
            result = method(*arguments)
            here()
            return result
        return call

    Journal.write = mined(Journal.write)
    OperatorSession.alter = mined(OperatorSession.alter)
    OperatorSession.reload = mined(OperatorSession.reload)

    async def main():
        control = PostgresControl(resolve("postgres", host=host, port=port, user="postgres"), directory=Path(directory))
        (made,) = await control.apply_set([WantedParameter("work_mem", "8MB")], Terms(600.0))
        await (control.keep if end == "keep" else control.revert_set)(made.set_id)
        die()

    asyncio.run(main())
"""
STEPS = 26
QUICK = {("revert", 8), ("revert", 10), ("keep", 18)}


@pytest.mark.parametrize(
    ("end", "point"),
    [
        pytest.param(end, point, marks=() if (end, point) in QUICK else pytest.mark.long)
        for end in ("revert", "keep")
        for point in range(STEPS)
    ],
)
async def test_killed_after_any_step_the_other_account_has_the_right_old_value(
    accounts: tuple[Account, Account], monkeypatch: pytest.MonkeyPatch, end: str, point: int
) -> None:
    ana, ben = accounts
    where = (str(ana.server.socket_dir), str(ana.server.port), str(ana.directory), end, str(point))
    killed = await asyncio.to_thread(run, KILLED, *where)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    kept = any(change.kept for path in journals(ana.directory) for change in read(path).changes)
    with suppress(PendingElsewhere):
        await _tries_and_reverts(ben, {None, "8MB"} if end == "keep" else {None})
    monkeypatch.setattr(claims, "GRACE_S", -700.0)
    await _tries_and_reverts(ben, {"8MB"} if kept else {None, "8MB"} if end == "keep" else {None})
    await ana.revert()
    assert (value(ana.server, SYSTEM), ana.pending) == (None, 0)
    await ben.control.aclose()


async def _tries_and_reverts(account: Account, expected: set[str | None]) -> None:
    (made,) = await account.control.apply_set([WantedParameter("work_mem", "16MB")], Terms(600.0))
    assert made.auto_conf_before in expected
    await account.control.revert_set(made.set_id)
    assert value(account.server, SYSTEM) == made.auto_conf_before


async def test_what_a_killed_program_left_is_reverted_after_its_deadline_by_the_next_account(
    accounts: tuple[Account, Account], monkeypatch: pytest.MonkeyPatch
) -> None:
    ana, ben = accounts
    await asyncio.to_thread(leave_pending, ana.server, ana.directory, "Terms(keep_within_s=600.0)")
    for _ in range(2):
        with pytest.raises(PendingElsewhere, match="work_mem = 8MB is pending confirmation by "):
            await ben.set("16MB", SYSTEM)
    monkeypatch.setattr(claims, "GRACE_S", -700.0)
    set_id = await ben.set("16MB", SYSTEM, 600.0)
    assert [words for words in ben.told if words.startswith("work_mem = 8MB was left by ")]
    assert ben.told[-1].endswith(": reverting to 4MB first")
    await ben.control.revert_set(set_id)
    assert value(ana.server, SYSTEM) is None
    # Of the other parameter of the set nobody has asked: its owner's journal reverts it.
    assert value(ana.server, SYSTEM, "max_wal_size") == "4GB"
    await ana.revert()
    await ben.control.aclose()


async def test_what_somebody_has_set_over_a_left_value_is_the_old_value(
    accounts: tuple[Account, Account],
    monkeypatch: pytest.MonkeyPatch,
    superuser: Superuser,
) -> None:
    ana, ben = accounts
    await asyncio.to_thread(leave_pending, ana.server, ana.directory, "Terms(keep_within_s=600.0)")
    superuser.execute("ALTER SYSTEM SET work_mem = '7MB'")
    monkeypatch.setattr(claims, "GRACE_S", -700.0)
    set_id = await ben.set("16MB", SYSTEM, 600.0)
    assert ben.told == []
    await ben.control.revert_set(set_id)
    assert value(ana.server, SYSTEM) == "7MB"
    superuser.execute("ALTER SYSTEM RESET work_mem")
    await ana.revert()
    await ben.control.aclose()


def forge(superuser: Superuser, scope: Scope = SYSTEM, **fields: object) -> None:
    """A marker as a program of another account has written it."""
    name = str(fields.get("name", "work_mem"))
    marker = Marker(**{"set_id": "1", "by": "ana@db1, 4711", "role": "ana", "name": name, **fields})  # type: ignore[arg-type]
    written = sql.Identifier("pgtop_tune", marker_name(name).partition(".")[2])
    superuser.execute(sql.SQL("SET {} = ''").format(written))
    superuser.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(written, sql.Literal(encoded(marker))))


def remove(superuser: Superuser, name: str = "work_mem") -> None:
    written = sql.Identifier("pgtop_tune", marker_name(name).partition(".")[2])
    superuser.execute(sql.SQL("ALTER SYSTEM RESET {}").format(written))


@pytest.mark.parametrize(
    ("name", "fields", "message", "hint"),
    [
        ("fsync", {"now": ("on",), "was": "off"}, "ana@db1 (pid 4711), and its old value off can",
         'ALTER SYSTEM SET "fsync" = \'off\'; ALTER SYSTEM RESET pgtop_tune.pending_fsync'),
        ("archive_command", {"now": ("true",), "was": "rm *"}, "its old value rm * runs code", "in psql: ALTER"),
        ("log_directory", {"hidden": True}, "do not hold its old value", "pgtop_tune.pending_log_directory` in psql"),
        ("work_mem", {"now": ("8MB",), "until_ms": 0}, "it reverts to its default when its program ends", "cancels"),
        ("work_mem", {"now": ("8MB",), "instance_digest": "elsewhere"}, "that this one is a copy of", "--adopt"),
    ],
    ids=lambda each: each if isinstance(each, str) and " " not in each else "",
)  # fmt: skip
async def test_an_old_value_is_written_only_where_its_operator_could_have_typed_it(
    accounts: tuple[Account, Account],
    superuser: Superuser,
    name: str,
    fields: dict[str, object],
    message: str,
    hint: str,
) -> None:
    _, ben = accounts
    if "now" in fields:
        (now,) = fields["now"]  # type: ignore[misc]
        superuser.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(now)))
    forge(superuser, name=name, **{"until_ms": 1000, **fields})
    try:
        with pytest.raises(PendingElsewhere) as refused:
            await ben.control.apply_set([WantedParameter(name, None)], Terms())
        assert message in refused.value.message
        assert hint in refused.value.hint
    finally:
        superuser.execute(sql.SQL("ALTER SYSTEM RESET {}").format(sql.Identifier(name)))
        remove(superuser, name)
        await ben.control.aclose()


async def test_clocks_that_were_set_do_not_move_a_deadline(
    accounts: tuple[Account, Account], superuser: Superuser
) -> None:
    """The operator's does not count, and the server's counts from its boot."""
    _, ben = accounts
    clock = await ben.control.ask(server_clock)
    assert clock.boot_id
    superuser.execute("ALTER SYSTEM SET work_mem = '8MB'")
    later_ms = clock.now_ms + 3_600_000
    forge(superuser, now=("8MB",), until_ms=1000, boot_id=clock.boot_id, until_boot_s=clock.since_boot_s + 3600)
    with pytest.raises(PendingElsewhere):
        await ben.set("16MB", SYSTEM)
    forge(superuser, now=("8MB",), until_ms=later_ms, boot_id="another", until_boot_s=0.0)
    with pytest.raises(PendingElsewhere):
        await ben.set("16MB", SYSTEM)
    forge(superuser, now=("8MB",), until_ms=later_ms, boot_id=clock.boot_id, until_boot_s=clock.since_boot_s - 60)
    await ben.set("16MB", SYSTEM)
    await ben.revert()
    await ben.control.aclose()


async def test_a_lock_and_a_setting_of_a_role_that_may_not_change_it_are_nothing(
    accounts: tuple[Account, Account],
    superuser: Superuser,
    role: Callable[..., str],
) -> None:
    ana, ben = accounts
    name, member = role(), role()
    superuser.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(ana.server.user), sql.Identifier(member)))
    first_key = claims._first_key(("work_mem", SYSTEM))
    marker = encoded(Marker(set_id="1", by="eve", role="eve", name="work_mem", until_ms=2**52))
    with psycopg.connect(f"{conninfo(ana.server)} user={name}", autocommit=True) as other:
        other.execute("SELECT set_config('application_name', 'pgtop-tune control', false)")
        other.execute("SELECT set_config('pgtop_tune.pending_work_mem', %s, false)", (marker,))
        other.execute("SELECT pg_advisory_lock(%s, 7)", (first_key,))
        await ben.set("16MB", SYSTEM)
        await ben.revert()
    with psycopg.connect(f"{conninfo(ana.server)} user={member}", autocommit=True) as other:
        # By SET ROLE it may.
        other.execute("SELECT pg_advisory_lock(%s, 7)", (first_key,))
        with pytest.raises(PendingElsewhere, match=f"is being changed by role {member}"):
            await ben.set("16MB", SYSTEM)
    await ben.control.aclose()


async def test_a_role_without_the_right_to_markers_is_seen_by_its_lock_and_told_the_grant(
    accounts: tuple[Account, Account],
    superuser: Superuser,
    role: Callable[..., str],
) -> None:
    _, ben = accounts
    name = role("pg_read_all_settings")
    grants = (
        "GRANT SELECT ON pg_file_settings TO {}",
        "GRANT EXECUTE ON FUNCTION pg_show_all_file_settings(), pg_reload_conf() TO {}",
        "GRANT ALTER SYSTEM ON PARAMETER work_mem TO {}",
    )
    for grant in grants:
        superuser.execute(sql.SQL(grant).format(sql.Identifier(name)))
    ana = Account(ben.server, ben.directory.with_name("ana"), name)
    set_id = await ana.set("8MB", SYSTEM, 600.0)
    (words,) = ana.told
    assert "not its deadline" in words
    with pytest.raises(PendingElsewhere, match=f"work_mem is being changed by role {name}"):
        await ben.set("16MB", SYSTEM)
    await ana.control.revert_set(set_id)
    superuser.execute(words.partition("15+: ")[2].encode())
    set_id = await ana.set("8MB", SYSTEM, 600.0)
    with pytest.raises(PendingElsewhere, match="work_mem = 8MB is pending"):
        await ben.set("16MB", SYSTEM)
    await ana.control.revert_set(set_id)
    await ana.control.aclose()
    await ben.control.aclose()


async def test_a_value_pending_for_a_role_is_told_to_who_changes_the_server(
    accounts: tuple[Account, Account],
) -> None:
    ana, ben = accounts
    async with pending(ana, SCOPES["role"]):
        await ben.set("16MB", SYSTEM)
        assert "work_mem = 8MB is pending for sessions of role reports by " in ben.told[0]
        await ben.revert()
    assert value(ana.server, SYSTEM) is None
    await ana.control.aclose()
    await ben.control.aclose()


async def test_of_many_that_begin_at_once_one_at_most_changes_it(server: Throwaway, tmp_path: Path) -> None:
    many = [Account(server, tmp_path / str(number)) for number in range(8)]
    ends = await asyncio.gather(
        *(each.set(f"{8 + at}MB", SYSTEM, 600.0) for at, each in enumerate(many)), return_exceptions=True
    )
    made = [(each, end) for each, end in zip(many, ends, strict=True) if isinstance(end, str)]
    assert {type(end) for end in ends} <= {str, PendingElsewhere, claims._Starting}
    assert len(made) <= 1
    for account, set_id in made:
        await account.control.revert_set(set_id)
    assert value(server, SYSTEM) is None
    for each in many:
        await each.control.aclose()


@pytest.mark.ends_of_majors
async def test_markers_have_one_dot_and_hide_what_an_ordinary_role_may_not_see(
    all_servers: Throwaway, tmp_path: Path
) -> None:
    account = Account(all_servers, tmp_path)
    with psycopg.connect(conninfo(all_servers), autocommit=True) as connection:
        names = {row[0] for row in connection.execute("SELECT name FROM pg_settings")}
        connection.execute("CREATE ROLE ordinary")
        connection.execute("SET ROLE ordinary")
        seen = {row[0] for row in connection.execute("SELECT name FROM pg_settings")}
        connection.execute("RESET ROLE")
        connection.execute("DROP ROLE ordinary")
    session_hides = await account.control.ask(lambda session: {name for name in names if is_hidden(session, name)})
    assert names - seen <= session_hides
    names |= {"ä.ö", "a.b__c", "a__b.c", "x" * 63, f"{'ü' * 31}.{'ß' * 31}", "a$b.c", "a_.b", "a._b"}
    markers_ = {marker_name(name) for name in names}
    assert len(markers_) == len({name.lower() for name in names})
    assert all(marker.count(".") == 1 and marker.isascii() and len(marker) <= 63 for marker in markers_)
    await account.control.aclose()


async def test_revert_takes_what_others_left_after_its_deadline_and_with_adopt_what_came_with_a_copy(
    accounts: tuple[Account, Account], superuser: Superuser
) -> None:
    _, ben = accounts
    told: list[str] = []

    def revert(*, adopt: bool = False) -> list[tuple[str, str]]:
        settled = try_to_revert(ben.conninfo, directory=ben.directory, adopt=adopt, tell_of_others=told.append).settled
        return [(change.name, change.shown_after) for change in settled]

    superuser.execute("SET pgtop_tune.pending_work_mem = ''")
    superuser.execute("ALTER SYSTEM SET pgtop_tune.pending_work_mem = '{'")
    assert await asyncio.to_thread(revert) == []
    assert "`ALTER SYSTEM RESET pgtop_tune.pending_work_mem` in psql removes it" in told.pop()
    superuser.execute("ALTER SYSTEM SET work_mem = '8MB'")
    forge(superuser, now=("8MB",), until_ms=2**52)
    assert (await asyncio.to_thread(revert), value(ben.server, SYSTEM)) == ([], "8MB")
    forge(superuser, now=("8MB",), until_ms=1000, instance_digest="elsewhere")
    assert (await asyncio.to_thread(revert), value(ben.server, SYSTEM)) == ([], "8MB")
    assert "copy of" in told[-1]
    assert await asyncio.to_thread(lambda: revert(adopt=True)) == [("work_mem", "4MB")]
    superuser.execute("ALTER SYSTEM SET work_mem = '8MB'")
    forge(superuser, now=("8MB",), was="5MB", until_ms=1000)
    assert await asyncio.to_thread(revert) == [("work_mem", "5MB")]
    superuser.execute("ALTER SYSTEM RESET work_mem")
    superuser.execute("SELECT pg_reload_conf()")


@pytest.mark.parametrize("was", ["4MB", "not a size"])
async def test_what_cannot_be_reverted_of_others_keeps_nobody_from_reverting_what_is_ours(
    accounts: tuple[Account, Account], superuser: Superuser, role: Callable[..., str], was: str
) -> None:
    name = role("pg_read_all_settings")
    for grant in (
        "GRANT SELECT ON pg_file_settings TO {}",
        "GRANT EXECUTE ON FUNCTION pg_show_all_file_settings(), pg_reload_conf() TO {}",
        "GRANT ALTER SYSTEM ON PARAMETER random_page_cost TO {}",
    ):
        superuser.execute(sql.SQL(grant).format(sql.Identifier(name)))
    # Without the right to write work_mem, or with an old value that nobody could write.
    ben = Account(accounts[1].server, accounts[1].directory, name if was == "4MB" else None)
    await ben.control.apply_set([WantedParameter("random_page_cost", "2")], Terms())
    superuser.execute("ALTER SYSTEM SET work_mem = '8MB'")
    forge(superuser, now=("8MB",), was=was, until_ms=1000)
    told: list[str] = []
    try:
        outcome = await asyncio.to_thread(
            lambda: try_to_revert(ben.conninfo, directory=ben.directory, tell_of_others=told.append)
        )
    finally:
        superuser.execute("ALTER SYSTEM RESET work_mem")
        remove(superuser)
        superuser.execute("SELECT pg_reload_conf()")
    assert [change.name for change in outcome.settled] == ["random_page_cost"]
    assert len(told) == 1
    assert "work_mem = 8MB was left by" in told[0]
    assert "ALTER SYSTEM RESET pgtop_tune.pending_work_mem" in told[0]
    await ben.control.aclose()
