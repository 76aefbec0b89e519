"""A server that speaks German: the check and `set` judge by sqlstates, not by words."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from pgtop_tune.base.errors import NotLetIn, PgtopError
from pgtop_tune.cli.app import program
from pgtop_tune.cli.exit_codes import exit_code
from pgtop_tune.cluster.binaries import WHEEL, Binaries, available
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.gather import gather
from pgtop_tune.health.judge import judge
from pgtop_tune.health.registry import chosen
from pgtop_tune.health.report import CheckOutcome
from pgtop_tune.model.backend_action import BackendAct
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.postgres.statements.backend_control import PostgresBackends
from tests.postgres.conftest import place
from tests.support.quick_server import quick_server
from tests.support.servers import conninfo

pytestmark = pytest.mark.long

LOCALE = "de_DE.UTF-8"
GROUPS = (
    "DUR",
    "ARC",
    "WAL",
    "SLOT",
    "CON",
    "TXN",
    "VAC",
    "TAB",
    "PLAN",
    "IDX",
    "KEY",
    "REP",
    "LOG",
    "OBS",
    "SEC",
    "CFG",
)
STRANGER = "fremd"


@pytest.fixture(scope="module")
def german() -> Iterator[Throwaway]:
    """The installed server, with a locale that was made for it."""
    binaries = next((each for each in available() if each.origin != WHEEL), None)
    if binaries is None:
        pytest.skip("no installed server: others come without translations")
    usual = Binaries.environment
    with tempfile.TemporaryDirectory(prefix="locales-") as place_, pytest.MonkeyPatch.context() as patched:
        Path(place_).chmod(0o755)
        try:
            made = subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", f"{place_}/{LOCALE}"], check=False)
        except FileNotFoundError:
            pytest.skip("no localedef")
        if made.returncode != 0:
            pytest.skip("localedef has no sources of locales")
        patched.setattr(Binaries, "environment", lambda self: {**usual(self), "LOCPATH": place_})
        with quick_server(binaries, lc_messages=LOCALE) as server:
            with psycopg.connect(conninfo(server), autocommit=True) as admin:
                with pytest.raises(psycopg.errors.DivisionByZero) as said:
                    admin.execute("SELECT 1/0")
                if "division" in str(said.value):
                    pytest.skip("this server has no translations")
                admin.execute(f"CREATE ROLE {STRANGER} LOGIN")
            yield server


def outcomes(server: Throwaway, user: str) -> dict[str, CheckOutcome]:
    checks = chosen(GROUPS, ())
    report = judge(checks, asyncio.run(gather(place(server, user=user), checks)))
    return {result.check.id: result.outcome for result in report.results}


@pytest.mark.parametrize("user", ["postgres", STRANGER])
def test_the_check_finds_and_misses_the_same_in_another_language(german: Throwaway, user: str) -> None:
    with psycopg.connect(conninfo(german), autocommit=True) as admin:
        in_german = outcomes(german, user)
        try:
            admin.execute("ALTER SYSTEM SET lc_messages = 'C'")
            admin.execute("SELECT pg_reload_conf()")
            while admin.execute("SHOW lc_messages").fetchone() != ("C",):
                pass
            in_english = outcomes(german, user)
        finally:
            admin.execute("ALTER SYSTEM RESET lc_messages")
            admin.execute("SELECT pg_reload_conf()")
            while admin.execute("SHOW lc_messages").fetchone() == ("C",):
                pass
    assert in_german == in_english


def test_what_the_role_may_not_see_is_said_with_what_opens_it(german: Throwaway) -> None:
    checks = chosen(("SEC-01", "SEC-02"), ())
    report = judge(checks, asyncio.run(gather(place(german, user=STRANGER), checks)))
    reasons = {check.id: unknown.reason for check, unknown in report.unknowns}
    assert "keine Berechtigung" in reasons["SEC-01"]
    assert "GRANT SELECT ON pg_hba_file_rules" in reasons["SEC-01"]
    assert reasons["SEC-02"].endswith("superusers only")


@pytest.mark.parametrize(
    ("words", "user", "database", "status", "says"),
    [
        (("work_mem=8MB",), "postgres", "postgres", 0, "work_mem: 4MB → 8MB"),
        (("work_mem=8MB",), STRANGER, "postgres", 6, "hint: connect as a superuser"),
        (("work_mem=8MB",), "postgres", "nix", 3, "hint: pass a database with -d"),
        (("work_mem=8MB",), "niemand", "postgres", 3, "hint: check pg_hba.conf of the server"),
        (("lc_monetary=nix",), "postgres", "postgres", 6, "nix"),
    ],
)
def test_a_parameter_is_set_or_refused_as_in_english(
    german: Throwaway,
    words: tuple[str, ...],
    user: str,
    database: str,
    status: int,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    server = conninfo(german, database).replace("user=postgres", f"user={user}")
    result = CliRunner().invoke(program(), ["set", *words, "-d", server])
    problem = result.exception
    refused = isinstance(problem, PgtopError)
    assert says in (f"{problem.message} hint: {problem.hint}" if refused else result.output)
    assert (exit_code(problem) if refused else result.exit_code) == status
    if status == 0:
        back = CliRunner().invoke(program(), ["revert", "--last", "-d", server])
        assert "1 change reverted" in back.output


async def test_a_database_that_is_not_there_is_a_no_that_stays(german: Throwaway) -> None:
    control = PostgresBackends(place(german, "nix"), OwnSessions())
    with pytest.raises(NotLetIn):
        await control.signal(BackendAct.CANCEL, [(1, 1)])
