"""The sampler's connection against real servers: what it may not see, what is refused, what it survives."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import psycopg
import pytest

from pgtop_tune.base.errors import ConnectionProblem
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.postgres import (
    Activity,
    CheckpointCounters,
    ParameterSample,
    StatementTotals,
)
from pgtop_tune.model.statements import OWN_MARK
from pgtop_tune.model.waits import WaitLook
from pgtop_tune.postgres.readers.section_readers import ReadContext
from pgtop_tune.postgres.server import connection as connection_module
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.postgres.survey import survey
from tests.postgres.conftest import Superuser, place
from tests.postgres.reading import DEADLINE_S, Clock, backends, eventually, reading
from tests.support.servers import Servers, conninfo
from tests.support.standby import standby_of


async def test_the_session_cannot_write_and_does_not_wait(server: Throwaway, superuser: Superuser) -> None:
    async with reading(place(server)) as reader:
        assert reader._connection is not None
        values = await reader._connection.fetch(
            "SELECT current_setting('transaction_read_only'), current_setting('lock_timeout'),"
            " current_setting('statement_timeout'), current_setting('jit'), current_setting('application_name')"
        )
        assert tuple(values[0]) == ("on", "50ms", "1s", "off", "pgtop-tune")


async def test_a_role_without_pg_monitor_is_told_what_it_misses(
    server: Throwaway, role: Callable[..., str], busy: Callable[..., int]
) -> None:
    name = role()
    pid = busy(conninfo(server), "SELECT pg_sleep(60)")
    async with reading(place(server, user=name)) as reader:
        facts = await reader.facts()
        assert not isinstance(facts, Unavailable)
        assert (facts.superuser, facts.monitor_role, facts.data_directory) == (False, False, "")
        hidden = (await backends(reader))[pid]
        assert hidden.query == "<insufficient privilege>"
        assert (hidden.backend_type, hidden.state) == ("client backend", None)
        for section in (sections.database, sections.wal, sections.checkpoints, sections.statements):
            assert not isinstance(await reader.read(section), Unavailable)
        assert not isinstance(await reader.waits(60_000), Unavailable)
        sample = await reader.read(sections.parameters)
        assert isinstance(sample, ParameterSample)
        assert {parameter.in_auto_conf for parameter in sample.parameters} == {None}
        capabilities = reader.capabilities
        assert not isinstance(capabilities, Unavailable)
        assert any(f"GRANT pg_monitor TO {name}" in sentence for sentence in capabilities.limits(facts))


async def test_a_server_that_keeps_its_control_file_to_itself_is_watched_all_the_same(
    server: Throwaway, role: Callable[..., str], superuser: Superuser
) -> None:
    """Rights on a function are looked at before a statement begins, also where a CASE would not come to call it."""
    superuser.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    try:
        async with reading(place(server, user=role())) as reader:
            facts = await reader.facts()
            assert not isinstance(facts, Unavailable)
            assert facts.system_identifier == ""
    finally:
        superuser.execute("GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC")
    async with reading(place(server)) as reader:
        facts = await reader.facts()
        assert not isinstance(facts, Unavailable)
        assert facts.system_identifier.isdecimal()


async def test_pg_monitor_is_enough(server: Throwaway, role: Callable[..., str], busy: Callable[..., int]) -> None:
    pid = busy(conninfo(server), "SELECT pg_sleep(60)")
    async with reading(place(server, user=role("pg_monitor"))) as reader:
        facts, capabilities = await reader.facts(), reader.capabilities
        assert not isinstance(facts, Unavailable)
        assert not isinstance(capabilities, Unavailable)
        assert facts.data_directory
        assert capabilities.limits(facts) == ()
        assert "pg_sleep" in ((await backends(reader))[pid].query or "")


async def test_without_the_extension_the_section_says_how_to_get_it(
    server: Throwaway, superuser: Superuser, database: str
) -> None:
    name = database.rsplit("dbname=", 1)[1]
    with psycopg.connect(database, autocommit=True) as inside:
        inside.execute("DROP EXTENSION IF EXISTS pg_stat_statements")
        async with reading(place(server, name)) as reader:
            missing = await reader.read(sections.statements)
            assert isinstance(missing, Unavailable)
            assert missing.reason is Reason.NO_EXTENSION
            assert "CREATE EXTENSION pg_stat_statements" in missing.detail
            inside.execute('CREATE SCHEMA "Odd ""schema"')
            inside.execute('CREATE EXTENSION pg_stat_statements SCHEMA "Odd ""schema"')
            await reader.read(sections.parameters)
            assert isinstance(await reader.read(sections.statements), StatementTotals)


async def test_all_that_a_session_of_ours_executes_is_marked_in_pg_stat_statements(
    server: Throwaway, superuser: Superuser, role: Callable[..., str]
) -> None:
    name = role("pg_monitor")
    superuser.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    async with reading(place(server, user=name)) as reader:
        await reader.read(sections.parameters)
        await reader.read(sections.activity)
        await reader.read(sections.database)
        assert isinstance(await reader.waits(60_000), WaitLook)
    texts = superuser.execute(
        "SELECT query FROM pg_stat_statements WHERE userid = (SELECT oid FROM pg_roles WHERE rolname = %s)", [name]
    ).fetchall()
    assert len(texts) > 4
    assert [text for (text,) in texts if OWN_MARK not in text] == []


async def test_without_the_library_the_section_says_so(make_server: Callable[..., Throwaway]) -> None:
    async with reading(place(make_server(shared_preload_libraries=""))) as reader:
        missing = await reader.read(sections.statements)
        assert isinstance(missing, Unavailable)
        assert "shared_preload_libraries" in missing.detail


async def test_a_refused_query_is_left_alone_for_a_while_and_then_tried_again(
    database: str, server: Throwaway, superuser: Superuser, role: Callable[..., str]
) -> None:
    clock, name = Clock(), role()
    with psycopg.connect(database, autocommit=True) as inside:
        inside.execute("REVOKE EXECUTE ON FUNCTION pg_control_checkpoint() FROM PUBLIC")
        async with reading(place(server, database.rsplit("dbname=", 1)[1], name), clock) as reader:
            refused = await reader.read(sections.checkpoints)
            assert isinstance(refused, Unavailable)
            assert refused.reason is Reason.NO_PERMISSION
            assert "permission denied for function pg_control_checkpoint" in refused.detail
            sent = reader.own.statements
            assert await reader.read(sections.checkpoints) == refused
            assert reader.own.statements == sent, "nothing is sent while it is switched off"
            inside.execute("GRANT EXECUTE ON FUNCTION pg_control_checkpoint() TO PUBLIC")
            clock.now_s += 3
            assert isinstance(await reader.read(sections.checkpoints), Unavailable)
            clock.now_s += 3
            assert isinstance(await reader.read(sections.checkpoints), CheckpointCounters)


async def test_the_pause_grows_while_the_server_keeps_refusing(
    database: str, server: Throwaway, role: Callable[..., str]
) -> None:
    clock, name = Clock(), role()
    with psycopg.connect(database, autocommit=True) as inside:
        inside.execute("REVOKE EXECUTE ON FUNCTION pg_control_checkpoint() FROM PUBLIC")
    async with reading(place(server, database.rsplit("dbname=", 1)[1], name), clock) as reader:
        asked = []
        for _ in range(600):
            before = reader.own.statements
            await reader.read(sections.checkpoints)
            if reader.own.statements != before:
                asked.append(clock.now_s - 1000)
            clock.now_s += 1
        assert asked == [0, 5, 15, 35, 75, 155, 315]


async def test_the_server_plans_each_query_once(server: Throwaway) -> None:
    async with reading(place(server)) as reader:
        for _ in range(7):
            assert not isinstance(await reader.waits(60_000), Unavailable)
            for section in (sections.activity, sections.wal, sections.database, sections.checkpoints):
                assert not isinstance(await reader.read(section), Unavailable)
        assert reader._connection is not None
        plans = await reader._connection.fetch(
            "SELECT statement, generic_plans + custom_plans FROM pg_prepared_statements"
        )
        read = re.compile(r"(?:FROM|,)\s+pg_stat_")
        used = [uses for text, uses in plans if read.search(text) and "pg_extension" not in text]
        assert used == [7] * 5


async def test_a_prepared_statement_survives_a_change_of_what_it_reads(server: Throwaway, superuser: Superuser) -> None:
    superuser.execute("CREATE TABLE shape (n int)")
    superuser.execute("INSERT INTO shape VALUES (1)")
    async with reading(place(server)) as reader:
        assert reader._connection is not None
        assert len((await reader._connection.fetch("SELECT * FROM public.shape"))[0]) == 1
        superuser.execute("ALTER TABLE shape ADD COLUMN m text DEFAULT 'x'")
        assert len((await reader._connection.fetch("SELECT * FROM public.shape"))[0]) == 2
        superuser.execute("DROP TABLE shape")


@pytest.mark.parametrize("waiting", [False, True], ids=["idle", "prepared"])
async def test_a_session_that_the_server_ends_is_a_problem_in_its_words_and_connecting_again_goes_on(
    server: Throwaway, superuser: Superuser, waiting: bool
) -> None:
    async with reading(place(server)) as reader:
        if waiting:
            await reader.waits(60_000)
        superuser.execute("SELECT pg_terminate_backend(%s, 5000)", (reader.own_backend()[0],))
        with pytest.raises(ConnectionProblem, match="terminating connection due to administrator command"):
            await reader.waits(60_000)
        assert not reader.connected
        with pytest.raises(ConnectionProblem, match="not connected"):
            await reader.read(sections.activity)
        await reader.connect()
        assert isinstance(await reader.read(sections.activity), Activity)


async def test_a_reconnect_to_a_database_of_another_encoding_is_no_change_of_a_parameter(
    server: Throwaway, superuser: Superuser
) -> None:
    superuser.execute("CREATE DATABASE bytes ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    try:
        seen = []
        for database in ("postgres", "bytes"):
            async with reading(place(server, database)) as reader:
                sample = await reader.read(sections.parameters)
                assert isinstance(sample, ParameterSample)
                seen.append({row.name: row.setting for row in sample.parameters})
        assert {name for name, value in seen[0].items() if seen[1][name] != value} == {"server_encoding"}
    finally:
        superuser.execute("DROP DATABASE bytes WITH (FORCE)")


@pytest.mark.long
async def test_a_recovery_conflict_is_told_in_the_servers_words(
    make_server: Callable[..., Throwaway], servers: Servers
) -> None:
    primary = make_server(wal_level="replica")
    with psycopg.connect(conninfo(primary), autocommit=True) as superuser:
        superuser.execute("CREATE DATABASE doomed")
        standby = standby_of(primary, make_server, "slot", servers.binaries(18))
        async with reading(place(standby, "doomed")) as reader:
            await reader.waits(60_000)
            superuser.execute("DROP DATABASE doomed")

            words = ""

            async def is_lost() -> bool:
                nonlocal words
                try:
                    await reader.read(sections.wal)
                except ConnectionProblem as problem:
                    words = problem.message
                return bool(words)

            await eventually(is_lost)
            assert "terminating connection due to conflict with recovery" in words


RIGHTS = {
    "SELECT ON pg_settings": "parameters",
    "EXECUTE ON FUNCTION pg_show_all_settings()": "parameters",
    "SELECT ON pg_roles": "database_limits",
    "SELECT ON pg_database": "activity",
    "SELECT ON pg_extension": "",
    "SELECT ON pg_namespace": "",
    "SELECT ON pg_stat_activity": "",
    "SELECT ON pg_stat_database": "databases",
    "EXECUTE ON FUNCTION pg_stat_get_activity(integer)": "activity",
}


@pytest.mark.parametrize("right", RIGHTS)
async def test_a_view_that_is_closed_takes_its_section_and_says_the_grant(fresh_server: Throwaway, right: str) -> None:
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as superuser:
        superuser.execute("CREATE ROLE watcher LOGIN IN ROLE pg_monitor")
        for word in ("FROM PUBLIC", "FROM pg_monitor"):
            superuser.execute(f"REVOKE {right} {word}".encode())
    async with reading(place(fresh_server, user="watcher")) as reader:
        answers = {section.name: await reader.read(section) for section in sections.READ}
        closed = {
            name: answer.detail
            for name, answer in answers.items()
            if isinstance(answer, Unavailable) and f"GRANT {right} TO watcher" in answer.detail
        }
        assert RIGHTS[right] in closed or not RIGHTS[right], answers
    watcher = place(fresh_server, user="watcher")
    answered = await survey(watcher, OwnSessions(), 18, ["check_roles"], ["check_database"], 9.0)
    refused = [one.refused for one in answered.everywhere if one.refused]
    assert len(refused) == (right == "SELECT ON pg_database")
    assert all(f"GRANT {right} TO watcher" in why for why in refused)


async def test_a_server_restart_is_survived(fresh_server: Throwaway) -> None:
    async with reading(place(fresh_server)) as reader:
        before = await reader.facts()
        await asyncio.to_thread(fresh_server.restart)
        with pytest.raises(ConnectionProblem):
            await reader.read(sections.database)
        after = await reader.connect()
        assert not isinstance(before, Unavailable)
        assert after.started_ms > before.started_ms


async def test_a_server_that_does_not_answer_is_given_up(
    fresh_server: Throwaway, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os
    import signal

    monkeypatch.setattr(connection_module, "ANSWER_TIMEOUT_S", 0.3)
    async with reading(place(fresh_server)) as reader:
        pid = reader.own_backend()[0]
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(ConnectionProblem, match="no answer in time"):
                await asyncio.wait_for(reader.waits(60_000), DEADLINE_S)
            assert not reader.connected
        finally:
            os.kill(pid, signal.SIGCONT)
        await reader.connect()
        assert isinstance(await reader.waits(60_000), WaitLook)


async def test_a_slow_query_is_cut_off_by_the_server_and_switched_off(server: Throwaway, superuser: Superuser) -> None:
    async with reading(place(server)) as reader:

        async def slow(context: ReadContext) -> object:
            return await context.connection.fetch("SELECT pg_sleep(30)")

        refused = await reader._guarded("slow", slow)
        assert isinstance(refused, Unavailable)
        assert refused.reason is Reason.TOO_SLOW
        assert reader.connected


async def test_calls_may_overlap(server: Throwaway) -> None:
    async with reading(place(server)) as reader:
        answers = await asyncio.gather(
            *(reader.waits(60_000) for _ in range(5)),
            *(reader.read(section) for section in (sections.activity, sections.wal) for _ in range(5)),
        )
        assert not any(isinstance(answer, Unavailable) for answer in answers)


async def test_track_activities_off_is_said(make_server: Callable[..., Throwaway]) -> None:
    async with reading(place(make_server(track_activities="off"))) as reader:
        missing = await reader.read(sections.activity)
        assert isinstance(missing, Unavailable)
        assert missing.reason is Reason.SWITCHED_OFF
