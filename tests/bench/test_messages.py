"""pgbench's own words when it fails, and our hint."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgtop_tune.bench.messages import hint_for, is_of_script, last_words, lost_clients, with_script

SAMPLES = Path(__file__).parent / "samples"


@pytest.mark.parametrize("major", [15, 18])
@pytest.mark.parametrize(
    ("name", "words", "hint"),
    [
        ("no_tables", 'relation "pgbench_branches" does not exist', "pgbench -i"),
        ("no_database", 'database "nowhere" does not exist', "createdb"),
        ("no_role", 'role "nobodyhere" does not exist', "another role"),
        ("no_permission", "permission denied for table pgbench_branches", "GRANT"),
        ("too_many", "sorry, too many clients already", "max_connections"),
        ("refused", "Is the server running locally and accepting", "not running"),
        ("refused_tcp", "Connection refused", "not running"),
        ("no_host", "could not translate host name", "host name"),
        ("terminated", "terminating connection due to administrator command", "ended the sessions"),
    ],
)
def test_common_failures_keep_their_words_and_get_a_hint(name: str, words: str, hint: str, major: int) -> None:
    said = last_words((SAMPLES / f"{name}_{major}.stderr").read_text())
    assert words in said
    assert hint in hint_for(said)
    assert "progress:" not in said
    assert "could not create connection" not in said


@pytest.mark.parametrize("major", [14, 15, 16, 17, 18, 19])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("aborted_at_once", "LINE 1: SELEC 2;"),
        ("aborted", "ERROR:  division by zero"),
        ("bad_script", 'meta.sql:1: syntax error in command "set"'),
        ("nothing_finished", "terminating connection due to administrator command"),
        ("server_gone", "terminating connection due to immediate shutdown command"),
    ],
)
def test_the_reason_of_an_aborted_run_is_in_what_is_kept(name: str, words: str, major: int) -> None:
    said = last_words((SAMPLES / str(major) / f"{name}.stderr").read_text())
    assert words in said
    assert "Run was aborted" not in said


def test_a_consequence_is_told_when_it_is_all_there_is() -> None:
    alone = "pgbench: error: could not create connection for setup"
    assert last_words(f"progress: 1.0 s, …\n{alone}\n") == alone


def test_the_script_that_failed_is_named_where_there_are_several() -> None:
    said = (
        "pgbench: setting random seed to 1\n"
        "pgbench: error: client 0 script 1 aborted in command 0 query 0: ERROR:  no\n"
    )
    words = last_words(said)
    assert with_script(words, said, ("a.sql", "b.sql")) == (
        "pgbench: error: b.sql: client 0 script 1 aborted in command 0 query 0: ERROR:  no"
    )
    assert with_script(words, said, ("a.sql",)) == words
    refused = "pgbench: error: ERROR:  no\n"
    assert with_script(last_words(refused + said), refused + said, ("a.sql", "b.sql")).splitlines()[0] == (
        "pgbench: error: b.sql: ERROR:  no"
    )


def test_one_line_per_client_is_not_repeated_without_end() -> None:
    said = last_words("\n".join(f"pgbench: error: client {n} aborted" for n in range(500)))
    assert said.splitlines()[0] == "pgbench: error: client 0 aborted"
    assert len(said.splitlines()) <= 6


def test_silence_stays_silence() -> None:
    assert last_words("") == ""
    assert hint_for("something new") == ""


CONNECTION = (
    'connection to server on socket "/tmp/pg/.s.PGSQL.5432" failed: FATAL:  remaining connection slots are reserved for'
    " roles with the SUPERUSER attribute"
)
REFUSED = f"pgbench: error: {CONNECTION}"
ABORTED = "script 0 aborted in command 0 query 0: ERROR:  division by zero"


@pytest.mark.parametrize(
    ("stderr", "words"),
    [
        # What pgbench 15 and 18 printed with several threads: prefix and message are written piece by piece.
        (f"pgbench:pgbench:pgbench: error: {CONNECTION}\npgbench: error: could not create connection for client 50",
         [REFUSED]),
        (f"pgbench:pgbench:pgbench: error: {CONNECTION}\npgbench: error:   error: error: {CONNECTION}\n"
         "could not create connection for client 18", [REFUSED]),
        (f"pgbench: error: {CONNECTION}\npgbench: error: pgbench: error: {CONNECTION}\n"
         "pgbench: error: could not create connection for client 34", [REFUSED]),
        (f"pgbench: error: {CONNECTION}\npgbench:pgbench: error: could not create connection for client 2", [REFUSED]),
        (f"pgbench: error: {CONNECTION}\npgbench: error: could not create connection for client 26\npgbench:",
         [REFUSED]),
        (f"pgbench: pgbench: error: pgbench:error: client 7 {ABORTED}\nclient 8 {ABORTED}\n error: client 10 {ABORTED}",
         [f"pgbench: error: client 7 {ABORTED}", f"client 8 {ABORTED}", f"pgbench: error: client 10 {ABORTED}"]),
        # Messages longer than what is written at once, and progress lines, may be torn as well.
        (f"pgbench: error: client 1 {ABORTED}pgbench: error: client 2 {ABORTED}",
         [f"pgbench: error: client 1 {ABORTED}", f"pgbench: error: client 2 {ABORTED}"]),
        ("pgbench: error: client 1 abortpgbench:ed in command 1\n error: client 2 aborted in command 3",
         ["pgbench: error: client 1 aborted in command 1", "pgbench: error: client 2 aborted in command 3"]),
        (f"progress: 1.0 s, 275.9 tps, lat 7.085 ms stddev 5.189pgbench: error: client 1 {ABORTED}\n, 0 failed",
         [f"pgbench: error: client 1 {ABORTED}"]),
        (f"pgbench:progress: 1.0 s, 275.9 tps, lat 7.085 ms stddev 5.189, 0 failed\n error: client 1 {ABORTED}",
         [f"pgbench: error: client 1 {ABORTED}"]),
        (f"pgbench:WARNING:  terminating connection due to immediate shutdown command\n error: client 1 {ABORTED}",
         ["WARNING:  terminating connection due to immediate shutdown command", f"pgbench: error: client 1 {ABORTED}"]),
    ],
)  # fmt: skip
def test_words_that_threads_wrote_into_each_other_are_taken_apart(stderr: str, words: list[str]) -> None:
    assert last_words(stderr).splitlines() == words


@pytest.mark.parametrize(
    "line",
    [
        "/usr/lib/postgresql/15/bin/pgbench: unrecognized option '--nothing'",
        'pgbench: hint: Perhaps you need to do initialization ("pgbench -i") in database "postgres".',
        "          ^",
        "\tIs the server running locally and accepting connections on that socket?",
        'pgbench: error: unrecognized weight specification (hint: error: ): "x"',
    ],
)
def test_words_of_one_thread_stay_as_they_are(line: str) -> None:
    assert last_words(line) == line


def test_a_statement_that_was_refused_is_the_reason_and_not_that_it_was_then_not_prepared() -> None:
    refused = (
        'pgbench: error: ERROR:  syntax error at or near "SELEC"\nLINE 1: SELEC 2;\n        ^\n'
        "pgbench: error: client 0 script 0 aborted in command 1 query 0: "
        'ERROR:  prepared statement "P_0_1" does not exist'
    )
    assert hint_for(last_words(refused)) == "fix the statement in its script"
    assert "-M simple" in hint_for(last_words(refused.splitlines()[-1]))
    assert hint_for(refused.replace("syntax error at or near", "invalid byte sequence")) == ""


OF_THE_SCRIPT = "pgbench: error: client 0 script 0 aborted in command 1 query 0: ERROR:  "


@pytest.mark.parametrize(
    "words",
    [
        'could not open file "/x.csv" for reading: No such file or directory',
        'role "nobody" does not exist',
        'database "elsewhere" does not exist',
        "could not establish connection\nDETAIL:  connection to server failed: Connection refused",
        'could not connect to server "far"\nDETAIL:  FATAL:  password authentication failed for user "a"',
        'could not establish connection\nDETAIL:  FATAL:  no pg_hba.conf entry for host "1.2.3.4"',
        'could not establish connection\nDETAIL:  FATAL:  too many connections for role "a"',
        "permission denied for function pg_read_file",
        "no fitting row: terminating connection, read-only transaction, syntax error",
        'could not translate host name "far" to address',
    ],
)
def test_words_of_the_script_s_own_errors_are_no_hints(words: str) -> None:
    assert hint_for(last_words(OF_THE_SCRIPT + words)) == ""
    assert hint_for(last_words(f"pgbench: error: ERROR:  {words}")) == ""


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ('connection to server on socket "/s" failed: FATAL:  too many connections for role "a"', "ALTER ROLE"),
        ('connection to server on socket "/s" failed: FATAL:  too many connections for database "d"', "ALTER DATABASE"),
        ('connection to server on socket "/s" failed: FATAL:  permission denied for database "d"', "GRANT CONNECT"),
        ('ERROR:  prepared statement "P_0_1" already exists', "-M simple"),
        ('ERROR:  prepared statement "P_0_1" does not exist', "-M simple"),
        ("ERROR:  cannot insert multiple commands into a prepared statement", "-M simple"),
        (f"{OF_THE_SCRIPT[16:]}cannot execute UPDATE in a read-only transaction", "select-only"),
    ],
)
def test_limits_and_prepared_statements_have_hints(words: str, hint: str) -> None:
    assert hint in hint_for(last_words(f"pgbench: error: {words}"))


@pytest.mark.parametrize(
    ("line", "clients"),
    [
        ("pgbench: error: client 3 script 0 aborted in command 5 query 0: FATAL:  terminating connection", (3,)),
        ("pgbench: error: client 12 aborted in command 5 (SQL) of script 0; perhaps the backend died", (12,)),
        ("pgbench: error: client 0 aborted while establishing connection", (0,)),
        ("pgbench:pgbench: error: client 1 aborted in state 8; perhaps client 2 script 1 aborted in command 0", (1, 2)),
        ("pgbench: error: could not create connection for client 7", ()),
        ("pgbench: client 7 could not send sql; the run was aborted", ()),
    ],
)
def test_lost_clients_are_named_by_every_version(line: str, clients: tuple[int, ...]) -> None:
    assert lost_clients(line) == clients


_ABORTED = "pgbench: error: client 0 script 0 aborted in command 1 query 0: "
_CUT_OFF = "pgbench: error: client 1 aborted in command 0 (SQL) of script 0; perhaps the backend died while processing"


@pytest.mark.parametrize(
    ("stderr", "is_broken"),
    [
        (f"{_ABORTED}ERROR:  division by zero", True),
        (f"{_ABORTED}FEHLER:  Division durch Null", True),
        ("pgbench: error: client 0 script 0 command 0 query 0: expected one row, got 0", True),
        ("pgbench: error: client 1 aborted in command 1 (set) of script 0; evaluation of meta-command failed", True),
        (f"{_ABORTED}ERROR:  cannot execute INSERT in a read-only transaction", False),
        (f"{_ABORTED}FATAL:  terminating connection due to administrator command", False),
        (f"{_ABORTED}ВАЖНО:  закрытие подключения", False),
        (f"{_ABORTED}ERROR:  server conn crashed?\nserver closed the connection unexpectedly", False),
        (f"{_ABORTED}ERROR:  division by zero\n{_CUT_OFF}", False),
    ],
)
def test_clients_that_their_script_ends_are_told_apart_from_clients_that_are_cut_off(
    stderr: str, *, is_broken: bool
) -> None:
    assert is_of_script(stderr) is is_broken
