r"""Script files: what they hold, and that \shell does not slip through."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.bench.locate import Pgbench
from pgtop_tune.bench.ports import LoadEndpoint
from pgtop_tune.bench.profiles import (
    LONGEST_BYTES,
    check_script,
    meta_commands,
    parse_choice,
    read_script,
    statements_in,
)
from pgtop_tune.model.bench import ScriptChoice

SHELLS = [
    "\\shell touch {mark}",
    "\\setshell n touch {mark}",
    "SELECT 1;\n  \\SHELL touch {mark}",
    "\\set a 1\n\\\\\nshell touch {mark}",
    "\\ shell touch {mark}",
    "SELECT 1 \\shell touch {mark}",
]


def script(directory: Path, text: str) -> Path:
    path = directory / "my.sql"
    path.write_bytes(text.encode())
    return path


def test_a_script_has_its_text_and_the_hash_of_its_bytes(tmp_path: Path) -> None:
    path = script(tmp_path, "SELECT 'naïve';\n")
    read = read_script(path)
    assert read.text == "SELECT 'naïve';\n"
    assert read.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert read.shell_line is None
    check_script(read, allow_shell=False)


@pytest.mark.parametrize("text", SHELLS)
def test_programs_are_started_only_when_allowed(tmp_path: Path, text: str) -> None:
    read = read_script(script(tmp_path, text))
    with pytest.raises(LoadProblem, match=r"my\.sql, line \d+: .*run programs on this machine"):
        check_script(read, allow_shell=False)
    check_script(read, allow_shell=True)


def test_what_pgbench_takes_for_shell_we_take_for_it_too(
    tables: LoadEndpoint, pgbench: Pgbench, tmp_path: Path
) -> None:
    ran = 0
    for number, text in enumerate(SHELLS):
        mark = tmp_path / str(number)
        path = script(tmp_path, text.format(mark=mark) + "\n")
        words = ["-n", "-t", "1", "-f", str(path), "-h", tables.host, "-p", str(tables.port), "-U", tables.user]
        subprocess.run(
            [str(pgbench.path), *words, "postgres"],
            capture_output=True,
            timeout=60,
            check=False,
            env=os.environ | pgbench.environment(),
        )
        ran += mark.exists()
        assert read_script(path).shell_line is not None
    assert ran >= 2


def test_other_words_are_not_taken_for_shell(tmp_path: Path) -> None:
    text = "\\set shell 1\n\\set n random(1, :shell)\nSELECT 'shell', '\\n', :n; -- a shell\n"
    assert read_script(script(tmp_path, text)).shell_line is None


def test_a_script_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(LoadProblem, match=r"missing\.sql cannot be read: No such file"):
        read_script(tmp_path / "missing.sql")
    (tmp_path / "huge.sql").write_bytes(b"-" * (LONGEST_BYTES + 1))
    with pytest.raises(LoadProblem, match="it is larger than 1 MB"):
        read_script(tmp_path / "huge.sql")


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("my.sql", ScriptChoice("my.sql", 1)),
        ("my.sql@3", ScriptChoice("my.sql", 3)),
        ("a@b/my.sql@0", ScriptChoice("a@b/my.sql", 0)),
    ],
)
def test_a_choice_is_a_file_and_its_weight(text: str, choice: ScriptChoice) -> None:
    assert parse_choice(text) == choice


@pytest.mark.parametrize("text", ["", "@3", "my.sql@", "my.sql@x", "my.sql@-1", "my.sql@1.5"])
def test_a_choice_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(LoadProblem):
        parse_choice(text)


@given(st.text(max_size=50), st.integers(0, 2**31 - 1))
def test_a_weight_is_what_stands_behind_the_last_at(file: str, weight: int) -> None:
    if file:
        assert parse_choice(f"{file}@{weight}") == ScriptChoice(file, weight)


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("", 0),
        ("-- SELECT 1;\n/* SELECT 2; */\n", 0),
        ("SELECT 1", 1),
        ("\\set a random(1, 10)\nSELECT :a;\n", 1),
        ("BEGIN;\nSELECT ';', \";\", $$;$$, $x$ ; $$ ; $x$, E'\\';';\nEND;\n", 3),
        ("SELECT 1 \\; SELECT 2;", 2),
        ("SELECT date'2026-01-01' \\gset\nSELECT 2\n\\sleep 1 ms\n", 2),
        ("CREATE RULE r AS ON INSERT TO t DO (SELECT 1; SELECT 2);", 1),
        ("\\set a 1 \\\n + 2; 3\nSELECT 1;", 1),
        ("\\if :a\nSELECT 1;\n\\endif\n", None),
    ],
)
def test_statements_are_counted_as_pgbench_sends_them(text: str, statements: int | None) -> None:
    assert statements_in(text) == statements


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("\\SET a 1\nSELECT 1 \\sleep :a ms\n", {"set", "sleep"}),
        ("\\ \\\n sleep\\\n1 ms\n", {"sleep"}),
        ("-- SELECT 1;\r\\sleep 1 ms\n", {"sleep"}),
        ("SELECT a$b$c; \\sleep 1 ms\nSELECT a$b$;", {"sleep"}),
        ("SELECT $1$; \\sleep 1 ms\nSELECT $1$;", {"sleep"}),
        ("SELECT pg_sleep(1), '\\sleep 1', \"\\sleep 1\", $$\\sleep 1$$ /* \\sleep 1 */; -- \\sleep 1", set()),
    ],
)
def test_meta_commands_are_those_that_pgbench_takes(text: str, names: set[str]) -> None:
    assert meta_commands(text) == names


@given(st.text(alphabet="se1 ;'\"$()\\\n-/*", max_size=60))
def test_no_script_is_too_odd_to_be_counted(text: str) -> None:
    count = statements_in(text)
    assert count is not None
    assert 0 <= count <= len(text)
