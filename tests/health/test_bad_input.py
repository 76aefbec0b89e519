"""What the check was not made for: roles without rights, newer servers, databases that refuse, other languages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import asyncpg
import psycopg
import pytest
from msgspec.structs import replace

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health import gather as gathering
from pgtop_tune.health.gather import gather
from pgtop_tune.health.judge import judge
from pgtop_tune.health.questions import QUESTIONS
from pgtop_tune.health.registry import CHECKS, chosen
from pgtop_tune.health.report import CheckOutcome, documentation
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.host import HostSample
from pgtop_tune.postgres.server.failures import absence
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.postgres.survey import survey
from tests.postgres.conftest import place
from tests.support.health_facts import spoilt
from tests.support.servers import conninfo

CLOSED_TO_STRANGERS = {"SEC-01", "SEC-02", "CFG-02", "CFG-03", "CON-01", "TXN-02", "SEC-03", "BEN-03"}


@pytest.fixture
def stranger(server: Throwaway) -> Iterator[str]:
    """A role without rights, and a session of another role that it may not look into."""
    with psycopg.connect(conninfo(server), autocommit=True) as admin:
        admin.execute("CREATE ROLE stranger_to_check LOGIN")
        yield "stranger_to_check"
        admin.execute("DROP ROLE stranger_to_check")


def test_a_role_without_rights_gets_an_answer_from_every_check(server: Throwaway, stranger: str) -> None:
    report = judge(CHECKS, asyncio.run(gather(place(server, user=stranger), CHECKS)))
    outcomes = {result.check.id: result.outcome for result in report.results}
    assert set(outcomes) == {check.id for check in CHECKS}
    assert {id_ for id_ in CLOSED_TO_STRANGERS if outcomes[id_] is CheckOutcome.PASSED} == set()
    reasons = {check.id: unknown.reason for check, unknown in report.unknowns}
    assert "pg_hba_file_rules" in reasons["SEC-01"]
    assert "superusers only" in reasons["SEC-02"]


async def test_a_major_that_nobody_knows_is_asked_what_the_newest_known_is(server: Throwaway) -> None:
    names = [question.name for question in QUESTIONS]
    here = [question.name for question in QUESTIONS if not question.everywhere]
    said = await survey(place(server), OwnSessions(), 99, here, [name for name in names if name not in here], 30.0)
    answers = {**said.here.answers, **{name: rows for one in said.everywhere for name, rows in one.answers.items()}}
    assert set(answers) == set(names)
    assert {name: rows for name, rows in answers.items() if isinstance(rows, Unavailable)} == {}


def test_a_newer_server_is_judged_by_what_is_known_and_says_so() -> None:
    report = judge(CHECKS, spoilt(major=99))
    unknown = {check.id for check, _ in report.unknowns}
    assert {"CFG-04", "CFG-05"} <= unknown
    assert documentation(CHECKS[0], report.major).startswith("https://www.postgresql.org/docs/devel/")


async def test_of_many_databases_those_that_refuse_are_told_and_the_others_seen(
    server: Throwaway, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"one_of_many_{number}" for number in range(4)]
    with psycopg.connect(conninfo(server), autocommit=True) as admin:
        for name in names:
            admin.execute(f"CREATE DATABASE {name}")
        admin.execute(f"ALTER DATABASE {names[0]} ALLOW_CONNECTIONS false")
        admin.execute(f"REVOKE CONNECT ON DATABASE {names[1]} FROM PUBLIC")
        admin.execute("CREATE ROLE of_many LOGIN")
        try:
            checks, where = chosen(("IDX-02",), ()), place(server, "postgres", "of_many")
            (answer,) = (await gather(where, checks)).answers.values()
            assert not isinstance(answer, Unavailable)
            assert {"postgres", *names[2:]} <= set(answer.databases)
            refused = {each.database: each.reason for each in answer.refused}
            assert {*names[:2]} <= set(refused)
            assert "datallowconn" in refused[names[0]]
            assert refused[names[1]].startswith("permission denied for database")
            monkeypatch.setattr(gathering, "DATABASES_S", 0.0)
            (late,) = (await gather(where, checks)).answers.values()
            assert not isinstance(late, Unavailable)
            assert late.databases == ("postgres",)
            assert {each.reason for each in late.refused if each.database in names[2:]} == {"not queried within 0 s"}
            (result,) = judge(checks, replace(spoilt(), answers={"check_indexes": late})).results
            assert result.outcome is CheckOutcome.UNKNOWN
        finally:
            for name in names:
                admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
            admin.execute("DROP ROLE of_many")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (asyncpg.InsufficientPrivilegeError, Reason.NO_PERMISSION),
        (asyncpg.UndefinedTableError, Reason.NOT_SUPPORTED),
        (asyncpg.QueryCanceledError, Reason.TOO_SLOW),
        (asyncpg.LockNotAvailableError, Reason.TOO_SLOW),
    ],
)
def test_what_a_server_refuses_is_understood_in_any_language(error: type[Exception], reason: Reason) -> None:
    refused = absence(error("нет прав доступа к таблице pg_authid"))
    assert refused.reason is reason
    assert "pg_authid" in refused.detail


def test_a_machine_that_shows_little_leaves_only_its_own_checks_unknown() -> None:
    """A container without /proc/pressure, cgroup and vmstat."""
    gone = Unavailable(Reason.NOT_SUPPORTED, "no such file")
    host = spoilt().frames[-1].host
    assert isinstance(host, HostSample)
    nothing = dict.fromkeys(("pressure", "cgroup", "memory", "numa", "frequency", "disks", "file_systems"), gone)
    report = judge(CHECKS, spoilt(host=nothing))
    unknown = {check.id for check, _ in report.unknowns}
    assert {"OS-11", "CPU-02", "OS-05", "DISK-01", "HUGE-04"} <= unknown
    assert "MEM-01" not in unknown
