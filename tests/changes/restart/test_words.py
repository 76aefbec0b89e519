"""Which lines of a log explain why a server did not start."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgtop_tune.changes.restart.offline import explaining
from pgtop_tune.changes.server.session_runner import operator_session
from pgtop_tune.changes.start.places import find_place, language_of
from pgtop_tune.cluster.service import LogPiece, StartLog
from pgtop_tune.postgres.log_language import LogLanguage
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from tests.postgres.conftest import place
from tests.postgres.test_log_languages import server_in
from tests.support.by_pg_ctl import by_pg_ctl, run_pg_ctl

ENDING = b"""2026-05-01 10:00:00 UTC [7] LOG:  received fast shutdown request
2026-05-01 10:00:00 UTC [9] FATAL:  terminating connection due to administrator command
2026-05-01 10:00:01 UTC [7] LOG:  database system is shut down
"""
FAILING = b"""2026-05-01 10:00:02 UTC [8] FATAL:  could not map anonymous shared memory: Cannot allocate memory
2026-05-01 10:00:02 UTC [8] HINT:  This error usually means that it is too much.
2026-05-01 10:00:02 UTC [8] LOG:  database system is shut down
"""


def test_what_the_old_server_said_of_its_end_explains_nothing() -> None:
    assert explaining([LogPiece("server.log", ENDING + FAILING)]) == (
        "FATAL:  could not map anonymous shared memory: Cannot allocate memory "
        "HINT: This error usually means that it is too much.",
    )


def test_without_a_log_the_program_that_started_it_has_the_word() -> None:
    assert explaining([], ["pg_ctl: could not start server"]) == ("pg_ctl: could not start server",)
    assert explaining([LogPiece("server.log", b"no log at all\n")], ["Job failed"]) == ("Job failed",)


def test_lines_without_a_grave_one_are_better_than_none() -> None:
    piece = LogPiece("server.log", b"2026-05-01 10:00:02 UTC [8] LOG:  starting PostgreSQL 18.6\n")
    assert explaining([piece], ["Job failed"]) == ("LOG:  starting PostgreSQL 18.6",)


def test_what_a_server_says_before_it_has_a_log_is_its_reason() -> None:
    # As 14 to 16 say it (postmaster.c).
    words = b"postgres: superuser_reserved_connections (100) must be less than max_connections (100)\n"
    piece = LogPiece("server.log", ENDING + words)
    assert explaining([piece], ["pg_ctl: could not start server"]) == (
        "FATAL:  superuser_reserved_connections (100) must be less than max_connections (100)",
    )


def test_a_summary_of_faults_comes_with_the_faults() -> None:
    log = (
        b"2026-05-01 10:00:02 UTC [8] LOG:  starting PostgreSQL 18.6\n"
        b'2026-05-01 10:00:02 UTC [8] LOG:  could not open configuration file "/etc/pg/gone.conf": No such file\n'
        b'2026-05-01 10:00:02 UTC [8] FATAL:  configuration file "/etc/pg/postgresql.conf" contains errors\n'
    )
    assert explaining([LogPiece("server.log", ENDING + log)]) == (
        'LOG:  could not open configuration file "/etc/pg/gone.conf": No such file',
        'FATAL:  configuration file "/etc/pg/postgresql.conf" contains errors',
    )


def test_the_reason_is_found_in_the_server_s_language() -> None:
    russian = LogLanguage(
        {
            "LOG": "СООБЩЕНИЕ",
            "FATAL": "ВАЖНО",
            "database system is shut down": "система БД выключена",
            "starting %s": "запускается %s",
            'could not open configuration file "%s": %m': 'открыть файл конфигурации "%s" не удалось: %m',
            'configuration file "%s" contains errors': 'ошибки в файле конфигурации "%s"',
        }
    )
    log = (
        "2026-05-01 10:00:00 UTC [9] ВАЖНО:  завершение подключения\n"
        "2026-05-01 10:00:01 UTC [7] СООБЩЕНИЕ:  система БД выключена\n"
        "2026-05-01 10:00:02 UTC [8] СООБЩЕНИЕ:  запускается PostgreSQL 18.6\n"
        '2026-05-01 10:00:02 UTC [8] СООБЩЕНИЕ:  открыть файл конфигурации "/etc/gone.conf" не удалось: No such file\n'
        '2026-05-01 10:00:02 UTC [8] ВАЖНО:  ошибки в файле конфигурации "/etc/postgresql.conf"\n'
    )
    assert explaining([LogPiece("server.log", log.encode())], ["Job failed"], russian) == (
        'LOG:  открыть файл конфигурации "/etc/gone.conf" не удалось: No such file',
        'FATAL:  ошибки в файле конфигурации "/etc/postgresql.conf"',
    )
    by_code = LogLanguage(line_prefix="%m [%p] %e ")
    line = "2026-05-01 10:00:02.123 UTC [8] 53200 ВАЖНО:  не удалось выделить память\n"
    assert explaining([LogPiece("server.log", line.encode())], ["Job failed"], by_code) == (
        "ERROR:  не удалось выделить память",
    )


@pytest.mark.long
@pytest.mark.parametrize("language", ["ru_RU.UTF-8", "de_DE.UTF-8", "ja_JP.UTF-8"])
def test_a_failed_start_in_another_language_has_its_reason(language: str) -> None:
    with server_in(language) as made, by_pg_ctl(made, logging_collector="off") as server:
        session = operator_session(place(server), OwnSessions())
        found = find_place(session)
        session.close()
        log = StartLog(found, 0.0)
        with (Path(str(server.data_dir)) / "postgresql.auto.conf").open("a") as file:
            file.write("shared_buffers = '900GB'\n")
        run_pg_ctl(server, "restart", "-m", "fast", "-l", found.log_file, check=False)
        (reason,) = explaining(log.pieces(), (), language_of(found))
        assert reason.startswith("FATAL:  ")
        assert any(word in reason for word in ("Cannot allocate memory", "ENOMEM", "HINT: "))
