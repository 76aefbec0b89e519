"""As whom a session's statement is planned: functions in it run while the server plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from pgtop_tune.base.secret import Secret
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.model.backend_action import PlanRisk, PlanShape, QueryPlan, StatementToPlan
from pgtop_tune.postgres.server.conninfo import ConnInfo, resolve
from pgtop_tune.postgres.statements.backend_control import PostgresBackends
from tests.postgres.conftest import place
from tests.postgres.statements.test_backend_control import key_of
from tests.support.processes import eventually
from tests.support.quick_server import quick_server
from tests.support.servers import Servers, conninfo

TRAP = """
CREATE FUNCTION act() RETURNS void LANGUAGE plpgsql AS $act$
BEGIN
    PERFORM set_config('role', 'none', false);
    EXECUTE $$COPY (SELECT session_user) TO PROGRAM 'cat >> {marker}'$$;
EXCEPTION WHEN insufficient_privilege THEN
    NULL;
END $act$;
CREATE FUNCTION trap() RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM act(); RETURN 1; END $$;
CREATE TABLE t (a int)
"""
QUERY = "SELECT * FROM t WHERE a = trap()"


class Village:
    """A server with a database that mallory owns, a trap in it, and a session of mallory's that ran it."""

    def __init__(self, server: Throwaway, session: psycopg.Connection[tuple[object, ...]], marker: Path) -> None:
        self.server = server
        self.session = session
        self.marker = marker

    def executed_as(self) -> str:
        """Superusers that ran what a superuser alone may run."""
        return self.marker.read_text() if self.marker.exists() else ""

    def shut_out(self, *lines: str) -> None:
        """Nobody connects as mallory any more, but by these lines of pg_hba.conf."""
        hba = Path(str(self.server.data_dir)) / "pg_hba.conf"
        hba.write_text("\n".join([*lines, "local all mallory reject", "local all all trust", ""]))
        with psycopg.connect(conninfo(self.server), autocommit=True) as superuser:
            superuser.execute("SELECT pg_reload_conf()")
        assert eventually(self._refused)

    def _refused(self) -> bool:
        try:
            psycopg.connect(f"{as_mallory(self.server)} password=wrong").close()
        except psycopg.OperationalError:
            return True
        return False

    async def explain(
        self, *, user: str | None = None, agreed: PlanRisk | None = None, where: ConnInfo | None = None
    ) -> QueryPlan | PlanRisk:
        """What `e` on mallory's session does."""
        control = PostgresBackends(where or place(self.server, user=user))
        return await control.explain(key_of(self.server, self.session), QUERY, agreed)


def as_mallory(server: Throwaway) -> str:
    return conninfo(server, "hers").replace(f"user={server.user}", "user=mallory")


def _cleared(server: Throwaway, marker: Path) -> None:
    (Path(str(server.data_dir)) / "pg_hba.conf").write_text("local all all trust\n")
    marker.unlink(missing_ok=True)
    with psycopg.connect(conninfo(server), autocommit=True) as superuser:
        superuser.execute("SELECT pg_reload_conf()")
        superuser.execute("DROP DATABASE hers WITH (FORCE)")
        for name in ("mallory", "watcher", "ops"):
            superuser.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(name)))

    def open_again() -> bool:
        try:
            psycopg.connect(conninfo(server).replace("user=postgres", "user=mallory")).close()
        except psycopg.OperationalError as refused:
            return "does not exist" in str(refused)
        return False

    assert eventually(open_again)


@contextmanager
def village(server: Throwaway) -> Iterator[Village]:
    marker = Path(str(server.data_dir)) / "executed"
    with psycopg.connect(conninfo(server), autocommit=True) as superuser:
        for text in ("CREATE ROLE mallory LOGIN PASSWORD 'hers'", "CREATE DATABASE hers OWNER mallory"):
            superuser.execute(text)
    with psycopg.connect(as_mallory(server), autocommit=True) as session:
        session.execute("CREATE SCHEMA hers; ALTER ROLE mallory SET search_path = hers; SET search_path = hers")
        session.execute(TRAP.replace("{marker}", str(marker)).encode())
        session.execute(QUERY)
        try:
            yield Village(server, session, marker)
        finally:
            _cleared(server, marker)


@pytest.fixture(scope="module")
def shared(servers: Servers) -> Iterator[Throwaway]:
    """A server whose pg_hba.conf is these tests'."""
    server = quick_server(servers.binaries(18))
    yield server
    server.stop("immediate")


@pytest.fixture(params=[14, 16, 18], ids=lambda major: f"pg{major}")
def own_server(request: pytest.FixtureRequest, make_server: Callable[..., Throwaway]) -> Throwaway:
    return make_server(request.param)


async def test_a_superuser_plans_as_the_sessions_own_role(own_server: Throwaway) -> None:
    with village(own_server) as there:
        plan = await there.explain()
        assert isinstance(plan, QueryPlan)
        assert (plan.user, plan.database) == ("mallory", "hers")
        assert "Seq Scan on" in plan.lines[0]
        assert there.executed_as() == ""


async def test_where_that_role_lets_nobody_in_a_superuser_is_asked_before(own_server: Throwaway) -> None:
    with village(own_server) as there:
        there.shut_out()
        risk = await there.explain()
        assert isinstance(risk, PlanRisk)
        assert (risk.role, risk.database, risk.query) == (own_server.user, "hers", QUERY)
        assert risk.powers == ("a superuser",)
        assert "mallory" in risk.not_as_session
        assert "pg_hba.conf" in risk.not_as_session
        assert there.executed_as() == ""
        with psycopg.connect(conninfo(own_server, "hers"), autocommit=True) as superuser:
            superuser.execute("ALTER DATABASE hers SET search_path = hers")
        plan = await there.explain(agreed=risk)
        assert isinstance(plan, QueryPlan)
        assert plan.user == own_server.user
        assert there.executed_as().split() == [own_server.user] * there.executed_as().count("\n")


async def test_agreement_is_to_one_statement_as_one_role(shared: Throwaway) -> None:
    with village(shared) as there:
        there.shut_out()
        risk = await there.explain()
        assert isinstance(risk, PlanRisk)
        there.session.execute("SELECT 2")
        control = PostgresBackends(place(shared))
        other = await control.explain(key_of(shared, there.session), "SELECT 2", risk)
        assert isinstance(other, PlanRisk)
        assert other.query == "SELECT 2"
        assert there.executed_as() == ""


async def test_a_statement_of_the_statistics_is_planned_behind_the_same_guard(shared: Throwaway) -> None:
    with village(shared) as there:
        control, statement = PostgresBackends(place(shared)), StatementToPlan(QUERY, "hers", "mallory")
        shape = await control.plan_shape(statement)
        assert isinstance(shape, PlanShape)
        assert (shape.role, shape.nodes) == ("mallory", ("Seq Scan on t",))
        there.shut_out()
        risk = await control.plan_shape(statement)
        assert isinstance(risk, PlanRisk)
        assert (risk.role, risk.powers) == (shared.user, ("a superuser",))
        dropped = await control.plan_shape(StatementToPlan(QUERY, "hers", ""))
        assert isinstance(dropped, PlanRisk)
        assert there.executed_as() == ""


async def test_an_ordinary_role_plans_without_a_question(shared: Throwaway) -> None:
    with village(shared) as there, psycopg.connect(conninfo(shared), autocommit=True) as superuser:
        superuser.execute("CREATE ROLE watcher LOGIN; GRANT pg_monitor TO watcher")
        superuser.execute("ALTER ROLE watcher SET search_path = hers")
        there.session.execute("GRANT USAGE ON SCHEMA hers TO watcher; GRANT SELECT ON t TO watcher")
        there.session.execute(QUERY)
        there.shut_out()
        plan = await there.explain(user="watcher")
        assert isinstance(plan, QueryPlan)
        assert plan.user == "watcher"


@pytest.mark.parametrize(
    ("grants", "power"),
    [
        ("ALTER ROLE watcher CREATEROLE", "CREATEROLE"),
        ("ALTER ROLE watcher REPLICATION", "REPLICATION"),
        ("ALTER ROLE watcher BYPASSRLS", "BYPASSRLS"),
        ("GRANT pg_execute_server_program TO watcher", "a member of pg_execute_server_program"),
        ("CREATE ROLE ops; GRANT ops TO watcher; GRANT pg_read_all_data TO ops", "a member of pg_read_all_data"),
        ("ALTER ROLE watcher NOINHERIT; GRANT postgres TO watcher", "a member of postgres, a superuser"),
        ("ALTER ROLE watcher SUPERUSER", "a superuser"),
    ],
)
async def test_every_power_asks(shared: Throwaway, grants: str, power: str) -> None:
    with village(shared) as there, psycopg.connect(conninfo(shared), autocommit=True) as superuser:
        superuser.execute("CREATE ROLE watcher LOGIN; GRANT pg_monitor TO watcher")
        superuser.execute(grants.encode())
        there.shut_out()
        risk = await there.explain(user="watcher")
        assert isinstance(risk, PlanRisk)
        assert (risk.role, risk.powers) == ("watcher", (power,))


async def test_a_powerful_sessions_own_role_is_no_way_around_the_question(shared: Throwaway) -> None:
    with village(shared) as there, psycopg.connect(conninfo(shared), autocommit=True) as superuser:
        superuser.execute("ALTER ROLE mallory SUPERUSER")
        risk = await there.explain()
        assert isinstance(risk, PlanRisk)
        assert risk.role == "mallory"
        superuser.execute("CREATE ROLE watcher LOGIN; GRANT pg_monitor TO watcher")
        superuser.execute("ALTER ROLE watcher SET search_path = hers; ALTER ROLE mallory NOSUPERUSER CREATEROLE")
        there.session.execute("GRANT USAGE ON SCHEMA hers TO watcher; GRANT SELECT ON t TO watcher")
        there.session.execute(QUERY)
        plan = await there.explain(user="watcher")
        assert isinstance(plan, QueryPlan)
        assert plan.user == "watcher"


@pytest.fixture
def no_password_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator's password happens to be the other role's: it must not be tried."""
    monkeypatch.setenv("PGPASSWORD", "hers")


@pytest.mark.usefixtures("no_password_of_ours")
async def test_the_operators_password_is_not_sent_for_another_role(shared: Throwaway) -> None:
    with village(shared) as there:
        there.shut_out("local all mallory scram-sha-256")
        typed = place(shared).with_password(Secret("hers"))
        uri = resolve(f"{conninfo(shared)} password=hers")
        for where in (None, typed, uri):
            risk = await there.explain(where=where)
            assert isinstance(risk, PlanRisk)
            assert "password" in risk.not_as_session
        assert there.executed_as() == ""


@pytest.mark.usefixtures("no_password_of_ours")
async def test_a_password_file_that_has_the_role_opens_the_way(
    shared: Throwaway, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    passfile = tmp_path / "pgpass"
    passfile.write_text("*:*:*:mallory:hers\n")
    passfile.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(passfile))
    with village(shared) as there:
        there.shut_out("local all mallory scram-sha-256")
        plan = await there.explain()
        assert isinstance(plan, QueryPlan)
        assert plan.user == "mallory"


async def test_what_a_database_puts_first_in_the_path_is_not_what_our_own_statements_call(
    shared: Throwaway,
) -> None:
    """The planning session has the role's own search_path: nothing of ours in it may be found along it."""
    with village(shared) as there, psycopg.connect(conninfo(shared), autocommit=True) as superuser:
        for text in (
            "set_config(text, text, boolean) RETURNS text LANGUAGE sql AS 'SELECT NULL::text FROM act()'",
            "pg_backend_pid() RETURNS int LANGUAGE sql AS 'SELECT NULL::int FROM act()'",
        ):
            there.session.execute(f"CREATE FUNCTION hers.{text}".encode())
        there.session.execute(
            "CREATE FUNCTION hers.same(oid, oid) RETURNS bool LANGUAGE sql AS 'SELECT true FROM act()'"
        )
        there.session.execute("CREATE OPERATOR hers.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = hers.same)")
        there.session.execute("CREATE VIEW hers.pg_roles AS SELECT 'x'::name AS rolname FROM act()")
        superuser.execute("ALTER DATABASE hers SET search_path = hers, pg_catalog")
        superuser.execute("ALTER ROLE mallory RESET search_path")
        there.session.execute(QUERY)
        there.shut_out()
        assert isinstance(await there.explain(), PlanRisk)
        assert there.executed_as() == ""
