"""What PostgreSQL 19 changed for the check: levels of the log by process, warnings at login, certificates by host."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.judge import judge
from pgtop_tune.health.registry import chosen
from pgtop_tune.health.report import Report
from tests.support.by_pg_ctl import by_pg_ctl
from tests.support.health_facts import spoilt
from tests.support.real_check import DEADLINE_S, checked
from tests.support.servers import conninfo


@pytest.mark.parametrize("levels", ["debug2", "warning, checkpointer:debug1", "warning, backend:DEBUG1"])
def test_a_debug_level_of_any_process_is_found(levels: str) -> None:
    report = judge(chosen(["LOG-03"], ()), spoilt({"log_min_messages": levels}, major=19))
    assert [finding.subject for _, finding in report.findings] == ["log_min_messages"]


@pytest.mark.parametrize("levels", ["warning, backend:error", "FATAL, checkpointer:warning", "Panic"])
def test_a_level_that_leaves_warnings_out_is_found_of_any_process(levels: str) -> None:
    report = judge(chosen(["LOG-06"], ()), spoilt({"log_min_messages": levels}, major=19))
    assert [finding.subject for _, finding in report.findings] == ["log_min_messages"]


def said(report: Report) -> dict[str, str]:
    return {finding.subject: finding.says for _, finding in report.findings}


RESTS = {"soon": "2 days 1 hour", "later": "20 days", "past": "-25 hours"}


@pytest.fixture
def roles_that_expire(all_servers: Throwaway) -> Iterator[Throwaway]:
    moments = {name: f"(now() + interval '{rest}')::text" for name, rest in RESTS.items()}
    ends = {**moments, "since_ever": "'-infinity'", "never": "'infinity'"}
    with psycopg.connect(conninfo(all_servers), autocommit=True) as root:
        for name, moment in ends.items():
            until = root.execute(f"SELECT {moment}".encode()).fetchone()
            root.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'x' VALID UNTIL '{until[0]}'".encode())  # type: ignore[index]
        root.execute("CREATE ROLE without_login VALID UNTIL '2020-01-01'")
        try:
            yield all_servers
        finally:
            root.execute(f"DROP ROLE without_login, {', '.join(ends)}".encode())


def test_passwords_that_expire_are_found_by_any_role(roles_that_expire: Throwaway) -> None:
    report = checked(roles_that_expire, "postgres", select=("SEC-07",), user="later")
    assert list(report.unknowns) == []
    says = said(report)
    assert says == {
        "soon": says["soon"],
        "past": says["past"],
        "since_ever": "the password of role since_ever has expired",
    }
    assert says["soon"].startswith("the password of role soon expires in 2d0")
    assert says["past"].startswith("the password of role past expired 1d01h")
    assert "later" in said(checked(roles_that_expire, "postgres", "SEC-07=21d", select=("SEC-07",)))


def test_a_server_that_warns_earlier_is_followed(make_server: Callable[..., Throwaway]) -> None:
    server = make_server(19, password_expiration_warning_threshold="30d")
    with psycopg.connect(conninfo(server), autocommit=True) as root:
        until = root.execute("SELECT (now() + '20 days')::text").fetchone()
        root.execute(f"CREATE ROLE app LOGIN PASSWORD 'x' VALID UNTIL '{until[0]}'".encode())  # type: ignore[index]
    assert list(said(checked(server, "postgres", select=("SEC-07",)))) == ["app"]


AT_LOGIN = "each login with it causes a warning"


@pytest.mark.parametrize(
    ("major", "warnings", "end"),
    [
        (17, None, ""),
        (18, "on", ", which a later major will remove"),
        (19, "on", f", which a later major will remove; {AT_LOGIN}"),
        (19, "off", ", which a later major will remove"),
    ],
)
def test_a_warning_at_login_is_said_where_the_server_gives_it(
    major: int, warnings: str | None, end: str, make_server: Callable[..., Throwaway]
) -> None:
    settings = {} if warnings is None else {"md5_password_warnings": warnings}
    server = make_server(major, password_encryption="md5", **settings)
    with psycopg.connect(conninfo(server), autocommit=True) as root:
        root.execute("CREATE ROLE app LOGIN PASSWORD 'x'")
    assert (
        said(checked(server, "postgres", select=("SEC-02",)))["app"]
        == f"the password of role app is stored as MD5{end}"
    )
    psql = server.binaries.bin_dir / "psql"
    if not psql.exists():
        return
    rules = Path(str(server.data_dir)) / "pg_hba.conf"
    rules.write_text(f"local all app md5\n{rules.read_text()}")
    with psycopg.connect(conninfo(server)) as root:
        (before,) = root.execute("SELECT now(), pg_reload_conf()").fetchone()[:1]  # type: ignore[index]
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        with psycopg.connect(conninfo(server)) as root:
            if root.execute("SELECT 1 WHERE pg_conf_load_time() > %s", (before,)).fetchone():
                break
    environment = {**os.environ, **server.binaries.environment()}
    words = [str(psql), "-X", f"{conninfo(server)} user=app password=x", "-c", "SELECT 1"]
    login = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert ("MD5-encrypted password" in login.stderr) is end.endswith(AT_LOGIN)


@pytest.mark.parametrize(
    ("sni", "named", "not_named"), [("off", "server.crt", "hosts_file"), ("on", "hosts_file", "server.crt")]
)
def test_the_fix_names_the_file_that_certificates_are_taken_from(
    sni: str, named: str, not_named: str, make_server: Callable[..., Throwaway]
) -> None:
    server = make_server(19)
    rules = Path(str(server.data_dir)) / "pg_hba.conf"
    # It listens, and lets nobody in who comes over a network.
    rules.write_text("".join(line for line in rules.open() if not line.startswith("host")))
    with by_pg_ctl(server, listen_addresses="*", ssl="off", ssl_sni=sni):
        ((_, finding),) = checked(server, "postgres", select=("SEC-04",)).findings
    assert named in finding.fix.do
    assert not_named not in finding.fix.do


def test_checksums_are_switched_on_offline_because_19_has_no_other_way(
    server_for_major: Callable[[int], Throwaway],
) -> None:
    """The notes of its betas had one; it was reverted before the release."""
    with psycopg.connect(conninfo(server_for_major(19))) as root:
        online = root.execute(
            "SELECT proname FROM pg_proc WHERE proname ~ '^pg_(en|dis)able_data_checksums$'"
        ).fetchall()
    assert online == []
    report = judge(chosen(["DUR-05"], ()), spoilt({"data_checksums": "off"}, major=19))
    ((_, finding),) = report.findings
    assert finding.fix.do.startswith("pg_checksums --enable ")
