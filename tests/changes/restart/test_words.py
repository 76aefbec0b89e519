"""Which lines of a log explain why a server did not start."""

from __future__ import annotations

from pgtop_tune.changes.restart.words import explaining
from pgtop_tune.cluster.service import LogPiece

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
