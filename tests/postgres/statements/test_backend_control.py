"""Cancel, terminate and EXPLAIN on real servers: the right session, nobody else's, and why not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from msgspec.structs import replace
from psycopg import sql

from pgtop_tune.base.errors import ConnectionProblem, PgtopError, ServerProblem, UsageProblem
from pgtop_tune.base.secret import without_secrets
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.model.backend_action import (
    BackendAct,
    BackendKey,
    BackendOutcome,
    PlanRisk,
    PlanShape,
    QueryPlan,
    StatementToPlan,
)
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.postgres.statements.backend_control import PostgresBackends
from tests.postgres.conftest import Superuser, place
from tests.support.servers import conninfo

_KEY = "SELECT pid, (date_part('epoch', backend_start) * 1000)::bigint FROM pg_stat_activity WHERE pid = %s"
DEADLINE_S = 60.0


def key_of(server: Throwaway, session: psycopg.Connection[tuple[object, ...]]) -> BackendKey:
    with psycopg.connect(conninfo(server)) as watcher:
        row = watcher.execute(_KEY, (session.info.backend_pid,)).fetchone()
    assert row is not None
    return row[0], row[1]


@contextmanager
def at_work(server: Throwaway, query: str = "SELECT pg_sleep(60)", **other: str) -> Iterator[BackendKey]:
    """A session that runs a query, seen running; its connection does not wait for the answer."""
    session = psycopg.connect(conninfo(server), autocommit=True, **other)  # type: ignore[arg-type]
    try:
        key = key_of(server, session)
        session.pgconn.send_query(query.encode())
        _until(server, key[0], "state = 'active' AND wait_event = 'PgSleep'")
        yield key
    finally:
        session.close()


def _until(server: Throwaway, pid: int, condition: str) -> None:
    question = sql.SQL("SELECT {} FROM pg_stat_activity WHERE pid = {}").format(sql.SQL(condition), sql.Literal(pid))
    deadline = time.monotonic() + DEADLINE_S
    with psycopg.connect(conninfo(server), autocommit=True) as watcher:
        while True:
            row = watcher.execute(question).fetchone()
            if row is not None and row[0]:
                return
            assert time.monotonic() < deadline, f"{condition} never came true of {pid}: {row}"
            time.sleep(0.01)


def _gone(server: Throwaway, pid: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    with psycopg.connect(conninfo(server), autocommit=True) as watcher:
        while watcher.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone() is not None:
            assert time.monotonic() < deadline, f"{pid} is still there"
            time.sleep(0.01)


async def test_cancel_ends_the_statement_and_terminate_the_session(all_servers: Throwaway) -> None:
    own = OwnSessions()
    control = PostgresBackends(place(all_servers), own)
    with at_work(all_servers) as key:
        assert [each.outcome for each in await control.signal(BackendAct.CANCEL, [key])] == [BackendOutcome.DONE]
        _until(all_servers, key[0], "state = 'idle'")
        assert [each.outcome for each in await control.signal(BackendAct.TERMINATE, [key])] == [BackendOutcome.DONE]
        _gone(all_servers, key[0])
        (result,) = await control.signal(BackendAct.TERMINATE, [key])
        assert result.outcome is BackendOutcome.GONE
    assert not own.pids, "no session of ours stays behind"


async def test_a_pid_that_is_somebody_else_by_now_is_left_alone(server: Throwaway) -> None:
    control = PostgresBackends(place(server))
    with at_work(server) as (pid, started_ms):
        assert started_ms is not None
        for other in (started_ms - 1, started_ms + 1):
            results = await control.signal(BackendAct.TERMINATE, [(pid, other)])
            assert [each.outcome for each in results] == [BackendOutcome.GONE]
        _until(server, pid, "state = 'active'")


async def test_several_at_once_each_with_its_own_result(server: Throwaway) -> None:
    own = OwnSessions()
    control = PostgresBackends(place(server), own)
    with at_work(server) as first, at_work(server) as second, psycopg.connect(conninfo(server)) as ours:
        own.pids.add(ours.info.backend_pid)
        wanted = [first, (1, 5), second, key_of(server, ours), (first[0], None)]
        results = await control.signal(BackendAct.CANCEL, wanted)
        assert [each.backend for each in results] == wanted
        assert [each.outcome for each in results] == [
            BackendOutcome.DONE,
            BackendOutcome.GONE,
            BackendOutcome.DONE,
            BackendOutcome.REFUSED,
            BackendOutcome.NOT_PERMITTED,
        ]  # fmt: skip
        _until(server, second[0], "state = 'idle'")


async def test_without_the_right_nothing_happens_and_the_grant_is_named(
    server: Throwaway, role: Callable[..., str]
) -> None:
    with at_work(server) as key:
        for user in (role("pg_monitor"), role("pg_monitor", "pg_signal_backend")):
            (result,) = await PostgresBackends(place(server, user=user)).signal(BackendAct.TERMINATE, [key])
            assert result.outcome is BackendOutcome.NOT_PERMITTED
            assert f'GRANT pg_signal_backend, pg_monitor TO "{user}"' in result.detail
        _until(server, key[0], "state = 'active'")


async def test_with_pg_signal_backend_ordinary_sessions_can_be_ended(
    server: Throwaway, role: Callable[..., str]
) -> None:
    user, victim = role("pg_monitor", "pg_signal_backend"), role()
    with at_work(server, user=victim) as key:
        (result,) = await PostgresBackends(place(server, user=user)).signal(BackendAct.TERMINATE, [key])
        assert result.outcome is BackendOutcome.DONE
        _gone(server, key[0])


async def test_an_auxiliary_process_cannot_be_signalled(server: Throwaway, superuser: Superuser) -> None:
    row = superuser.execute(
        "SELECT pid, (date_part('epoch', backend_start) * 1000)::bigint FROM pg_stat_activity"
        " WHERE backend_type = 'checkpointer'"
    ).fetchone()
    assert row is not None
    (result,) = await PostgresBackends(place(server)).signal(BackendAct.TERMINATE, [(row[0], row[1])])  # type: ignore[list-item]
    assert result.outcome is BackendOutcome.REFUSED


def test_the_statement_shown_is_bound_to_pid_and_start(server: Throwaway) -> None:
    shown = PostgresBackends(place(server)).statement(BackendAct.CANCEL, (4711, 1700000000123))
    assert "pg_cancel_backend(pid)" in shown
    assert "pid = 4711" in shown
    assert "= 1700000000123" in shown


async def test_a_server_that_is_away_is_said(tmp_path: object) -> None:
    from pgtop_tune.postgres.server.conninfo import resolve

    control = PostgresBackends(resolve("postgres", host=str(tmp_path), port="5432", user="nobody"))
    with pytest.raises(ConnectionProblem, match="nobody@"):
        await control.signal(BackendAct.CANCEL, [(1, 1)])


async def agreed_plan(control: PostgresBackends, key: BackendKey, seen: str) -> QueryPlan:
    """The plan, made by a superuser who has agreed to it."""
    risk = await control.explain(key, seen)
    assert isinstance(risk, PlanRisk)
    plan = await control.explain(key, seen, risk)
    assert isinstance(plan, QueryPlan)
    return plan


async def _plan(server: Throwaway, query: str, *, seen: str | None = None, database: str = "postgres") -> list[str]:
    with psycopg.connect(conninfo(server, database), autocommit=True) as session:
        key = key_of(server, session)
        try:
            session.execute(query.encode(), prepare=False)
        except psycopg.Error:
            pass
        plan = await agreed_plan(PostgresBackends(place(server)), key, query[:500] if seen is None else seen)
        assert plan.database == database
    return list(plan.lines)


async def test_the_plan_of_a_sessions_statement_in_its_own_database(all_servers: Throwaway) -> None:
    assert "Result" in (await _plan(all_servers, "SELECT 1;"))[0]
    assert "Values Scan" in (await _plan(all_servers, "VALUES (1), (2)", database="template1"))[0]


async def test_nothing_is_executed(server: Throwaway, superuser: Superuser, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as session:
        name = session.info.dbname
        session.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
        key = key_of(server, session)
        control = PostgresBackends(place(server, name))
        inside = "WITH d AS (DELETE FROM t RETURNING a) SELECT * FROM d"
        for query in ("DELETE FROM t", inside, "INSERT INTO t SELECT 2"):
            lines = (await agreed_plan(control, key, query)).lines
            assert any(word in "\n".join(lines) for word in ("Delete on t", "Insert on t"))
        assert session.execute("SELECT array_agg(a) FROM t").fetchall() == [([1],)]


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        ("SELECT 1; DROP TABLE t", "more than one"),
        ("EXPLAIN ANALYZE DELETE FROM t", "begins with EXPLAIN"),
        ("CHECKPOINT", "begins with CHECKPOINT"),
        ("<insufficient privilege>", "may not see"),
        ("", "may not see"),
        ("SELECT 'x" + "y" * 493, "another statement now"),
    ],
)
async def test_what_is_not_a_plain_query_is_refused(server: Throwaway, seen: str, why: str) -> None:
    with pytest.raises(UsageProblem, match=why):
        await _plan(server, "SELECT 1", seen=seen)


async def test_the_servers_own_parser_has_the_last_word(
    server: Throwaway, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    """Should our tokens ever be fooled, the server still refuses a second statement."""
    from pgtop_tune.postgres.statements import explain
    from pgtop_tune.postgres.statements.explain import PlainQuery

    monkeypatch.setattr(explain, "plain_query", lambda text: PlainQuery(text, "$1" in text))
    with psycopg.connect(database, autocommit=True) as session:
        session.execute("CREATE TABLE t (a int)")
        control = PostgresBackends(place(server, session.info.dbname))
        for query in ("SELECT 1; DROP TABLE t", "SELECT $1; COMMIT; DROP TABLE t"):
            with pytest.raises(ServerProblem, match="multiple commands"):
                await agreed_plan(control, key_of(server, session), query)
        session.execute("SELECT * FROM t")


async def test_a_statement_the_server_has_cut_is_refused(server: Throwaway) -> None:
    long = "SELECT " + ", ".join(str(number) for number in range(600))
    with pytest.raises(UsageProblem, match="keeps only the first 1023 bytes"):
        await _plan(server, long)
    middling = "SELECT " + ", ".join(["1234567"] * 70)
    assert len(middling) > 500
    assert "Result" in (await _plan(server, middling))[0]


async def test_a_statement_with_a_masked_secret_is_explained_while_it_runs(server: Throwaway) -> None:
    query = "SELECT usename FROM pg_shadow WHERE passwd = 'hunter2'"
    masked = without_secrets(query)
    assert masked != query
    assert "pg_authid" in "\n".join(await _plan(server, query, seen=masked))
    with pytest.raises(UsageProblem, match="a secret was removed from this one"):
        await _plan(server, "SELECT 1", seen=masked)


async def test_placeholders_get_the_generic_plan_where_the_server_has_it(all_servers: Throwaway) -> None:
    query = "SELECT relname FROM pg_class WHERE oid = $1"
    if all_servers.binaries.major < 16:
        with pytest.raises(ServerProblem, match="GENERIC_PLAN"):
            await _plan(all_servers, "SELECT 1", seen=query)
    else:
        assert "$1" in "\n".join(await _plan(all_servers, "SELECT 1", seen=query))


async def agreed_shape(server: Throwaway, query: str) -> PlanShape:
    """The shape of a plan, made by a superuser who has agreed to it."""
    control, statement = PostgresBackends(place(server)), StatementToPlan(query, "postgres", server.user)
    risk = await control.plan_shape(statement)
    assert isinstance(risk, PlanRisk)
    shape = await control.plan_shape(statement, risk)
    assert isinstance(shape, PlanShape)
    return shape


async def test_a_statement_as_the_statistics_have_it_has_a_shape_without_costs(all_servers: Throwaway) -> None:
    query = "SELECT relname FROM pg_class WHERE oid = "
    plain = await agreed_shape(all_servers, f"{query} 1259")
    assert plain == PlanShape(("Index Scan using pg_class_oid_index on pg_class",), all_servers.user, generic=False)
    if all_servers.binaries.major < 16:
        with pytest.raises(ServerProblem, match="GENERIC_PLAN"):
            await agreed_shape(all_servers, f"{query} $1")
    else:
        assert await agreed_shape(all_servers, f"{query} $1") == replace(plain, generic=True)


@pytest.mark.parametrize(
    ("query", "why"), [("COMMIT", "begins with COMMIT"), ("SELECT '********'", "a secret was removed")]
)
async def test_a_statement_that_is_no_whole_query_has_no_shape(server: Throwaway, query: str, why: str) -> None:
    with pytest.raises(UsageProblem, match=why):
        await agreed_shape(server, query)


async def test_a_table_that_is_locked_is_not_waited_for(server: Throwaway, database: str) -> None:
    with psycopg.connect(database) as holder, psycopg.connect(database, autocommit=True) as session:
        session.execute("CREATE TABLE t (a int)")
        holder.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        control = PostgresBackends(place(server, session.info.dbname))
        with pytest.raises(PgtopError, match="lock timeout"):
            await agreed_plan(control, key_of(server, session), "SELECT * FROM t")


async def test_a_session_that_has_ended_has_no_plan(server: Throwaway) -> None:
    with pytest.raises(UsageProblem, match="has ended"):
        await PostgresBackends(place(server)).explain((1, 1), "SELECT 1")


async def test_a_statement_as_the_statistics_have_it_has_a_plan_with_costs(all_servers: Throwaway) -> None:
    control = PostgresBackends(place(all_servers))
    generic = all_servers.binaries.major >= 16
    text = f"SELECT relname FROM pg_class WHERE oid = {'$1' if generic else '1259'}"
    statement = StatementToPlan(text, "postgres", all_servers.user)
    risk = await control.plan_statement(statement)
    assert isinstance(risk, PlanRisk)
    plan = await control.plan_statement(statement, risk)
    assert isinstance(plan, QueryPlan)
    assert plan.lines[0].startswith("Index Scan using pg_class_oid_index on pg_class  (cost=")
    assert plan.generic is generic


async def test_a_normalized_text_that_is_no_sql_is_planned_with_the_text_of_a_session(server: Throwaway) -> None:
    """A plan of `interval $3` was "syntax error at or near $3", and no word about what to do."""
    control = PostgresBackends(place(server))
    statement = StatementToPlan("SELECT now() + $1 * interval $2", "postgres", server.user)
    with pytest.raises(ServerProblem, match="keeps placeholders for constants"):
        await agreed_to(control, statement)
    sampled = "SELECT now() + $1 * interval '1 second'"
    plan = await agreed_to(control, replace(statement, sampled=sampled))
    assert plan.statement.endswith(sampled)


async def agreed_to(control: PostgresBackends, statement: StatementToPlan) -> QueryPlan:
    """The plan, after each question about a powerful role."""
    answer = await control.plan_statement(statement)
    for _ in range(2):
        if isinstance(answer, PlanRisk):
            answer = await control.plan_statement(statement, answer)
    assert isinstance(answer, QueryPlan)
    return answer
