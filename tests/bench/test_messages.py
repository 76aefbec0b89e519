"""pgbench's own words when it fails, and our hint."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgtop_tune.bench.messages import hint_for, last_words

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
        ("refused", "Is the server running locally and accepting", "not running there"),
        ("refused_tcp", "Connection refused", "not running there"),
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


@pytest.mark.parametrize("major", [14, 15, 16, 17, 18])
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


def test_one_line_per_client_is_not_repeated_without_end() -> None:
    said = last_words("\n".join(f"pgbench: error: client {n} aborted" for n in range(500)))
    assert said.splitlines()[0] == "pgbench: error: client 0 aborted"
    assert len(said.splitlines()) <= 6


def test_silence_stays_silence() -> None:
    assert last_words("") == ""
    assert hint_for("something new") == ""
