"""`pgtop-tune check` on real servers: exit statuses, formats, what a former report leaves."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner, Result

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli.app import program
from pgtop_tune.cli.commands.check.report import until_next_look_s
from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli import runs
from tests.support.report_formats import report_mistakes
from tests.support.servers import conninfo


def run(*arguments: str) -> Result:
    return CliRunner().invoke(program(), ["check", *arguments])


def test_a_real_server_is_checked_and_compared_with_itself(
    server: Throwaway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = run(conninfo(server), "--format", "json", "--select", "MEM", "--threshold", "MEM-02.low=99")
    assert found.exit_code == 1, found.output
    report = json.loads(found.stdout)
    assert report_mistakes(report) == []
    assert "MEM-02" in [each["check"] for each in report["findings"]]
    former = tmp_path / "former.json"
    former.write_text(found.stdout)
    again = run(conninfo(server), "--select", "MEM-02", "--threshold", "MEM-02.low=99", "--against", str(former))
    assert again.exit_code == 0, again.output
    assert "found new: nothing" in again.stdout


def test_a_project_file_ignores_and_the_command_line_wins(
    server: Throwaway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pgtop-tune.toml").write_text('[check]\nselect = ["MEM-04"]\n[check.thresholds]\nMEM-04 = 1024\n')
    strict = run(conninfo(server))
    assert strict.exit_code == 1, strict.output
    assert "MEM-04" in strict.stdout
    assert run(conninfo(server), "--threshold", "MEM-04=1e12").exit_code == 0
    assert run(conninfo(server), "--fail-on", "never").exit_code == 0


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("-h", "{tmp}"), 3),
        (("-h", "127.0.0.1", "-p", "1"), 3),
        (("--select", "NOTHING"), 2),
        (("--threshold", "MEM-01"), 2),
        (("--against", "{tmp}/none.json"), 2),
        (("--config", "{tmp}/none.toml"), 2),
    ],
)
def test_a_check_that_cannot_run_ends_as_every_command_does(
    words: tuple[str, ...], status: int, tmp_path: Path
) -> None:
    ran = runs.run("check", *(word.format(tmp=tmp_path) for word in words), home=tmp_path)
    assert ran.status == status, ran.err
    assert ran.err.startswith("pgtop-tune: ")
    assert "Traceback" not in ran.err


def test_a_role_without_rights_and_a_closed_database_are_unknown_not_passed(server: Throwaway) -> None:
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("CREATE ROLE check_nobody LOGIN")
        connection.execute("CREATE DATABASE check_closed ALLOW_CONNECTIONS false")
        try:
            found = run(f"{conninfo(server)} user=check_nobody", "--format", "json", "--fail-on", "never")
        finally:
            connection.execute("DROP DATABASE check_closed")
            connection.execute("DROP ROLE check_nobody")
    assert found.exit_code == 0, found.output
    report = json.loads(found.stdout)
    assert report_mistakes(report) == []
    assert report["summary"]["unknown"] > 0
    assert not {each["check"] for each in report["unknown"]} & set(report["passed"])


def test_a_busy_server_is_not_measured_without_being_asked_for(server: Throwaway) -> None:
    with psycopg.connect(conninfo(server), autocommit=True) as busy:
        working = threading.Thread(target=_work, args=(busy,))
        working.start()
        try:
            _wait_until_active(server, busy.info.backend_pid)
            found = run(conninfo(server), "--select", "MEM-04", "--measure")
        finally:
            busy.cancel_safe()
            working.join()
    assert isinstance(found.exception, UsageProblem)
    assert "busy" in found.exception.message
    assert "--yes" in found.exception.hint


def _wait_until_active(server: Throwaway, pid: int) -> None:
    until = time.monotonic() + 30
    with psycopg.connect(conninfo(server), autocommit=True) as admin:
        while time.monotonic() < until:
            if admin.execute("SELECT state FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone() == ("active",):
                return
            time.sleep(0.02)
    raise AssertionError("the session never began to work")


def _work(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    with pytest.raises(psycopg.errors.QueryCanceled):
        connection.execute("SELECT pg_sleep(600)")


def test_names_of_databases_are_shown_and_never_obeyed(server: Throwaway) -> None:
    name = "check \x1b[31m'\"\n]b=c"
    quoted = psycopg.sql.Identifier(name)
    with psycopg.connect(conninfo(server), autocommit=True) as admin:
        admin.execute(psycopg.sql.SQL("CREATE DATABASE {} ALLOW_CONNECTIONS false").format(quoted))
        try:
            found = {
                format_: run(conninfo(server), "--select", "IDX-01", "--format", format_, "-v")
                for format_ in ("text", "json")
            }
        finally:
            admin.execute(psycopg.sql.SQL("DROP DATABASE {}").format(quoted))
    for format_, said in found.items():
        assert said.exit_code in (0, 1), said.output
        assert "\x1b" not in said.stdout, format_
    assert "1 database was not seen" in found["text"].stdout
    assert any(name in each["reason"] for each in json.loads(found["json"].stdout)["unknown"])


@pytest.mark.parametrize(
    ("began_s", "end_s", "now_s", "pause_s"),
    [
        (0.0, 60.0, 0.75, 29.25),
        (30.0, 60.0, 30.75, 29.25),
        (30.0078125, 60.0, 30.75, 29.25),
        (60.0, 60.0, 60.75, None),
        (0.0, 10.0, 0.75, 9.25),
        (0.0, 90.0, 40.0, 0.0),
    ],
)
def test_the_last_look_of_a_watch_is_at_its_end(
    began_s: float, end_s: float, now_s: float, pause_s: float | None
) -> None:
    assert until_next_look_s(began_s, end_s, now_s) == pause_s
