"""Manual pages and completion: of every command, well formed, and read by real programs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.command_table import commands, context
from tests.support.packaging_step import packaging_step

manual_pages = packaging_step("manual_pages")
completion_files = packaging_step("completion_files")

PAGES = manual_pages.pages()


def _read_back(page: str) -> str:
    """The words of a page without what formats them."""
    return re.sub(r"\\f[BIR]|\\&", "", page).replace("\\-", "-").replace("\\(ti", "~").replace("\\e", "\\")


def test_every_command_has_a_page_with_all_its_options() -> None:
    table = dict(commands())
    assert {"-".join(call) + ".1" for call in table} == set(PAGES)
    for call, command in table.items():
        text = _read_back(PAGES["-".join(call) + ".1"])
        for parameter in command.get_params(context(call, command)):
            is_shown = parameter.param_type_name == "option" and not parameter.hidden
            for name in parameter.opts if is_shown else ():
                assert re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text), f"{call}: {name}"


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff")
def test_groff_formats_the_pages_without_a_warning(tmp_path: Path) -> None:
    for name, text in PAGES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    formatted = subprocess.run(
        ["groff", "-man", "-ww", "-k", "-Tutf8", "-P-c", *sorted(PAGES)], cwd=tmp_path, capture_output=True, text=True,
        encoding="utf-8", check=True,
    )  # fmt: skip
    assert formatted.stderr == ""
    assert "Examples:" in formatted.stdout


@pytest.mark.parametrize(
    ("text", "escaped"),
    [(".gz is packed", "\\&.gz is packed"), ("'a'", "\\&'a'"), ("a\\fBb -x", "a\\efBb \\-x"), ("`set`", "\\fBset\\fR")],
)
def test_words_of_a_help_text_are_no_requests_of_the_formatter(text: str, escaped: str) -> None:
    assert manual_pages._line(text) == escaped


def test_bash_completes_options_and_commands(tmp_path: Path) -> None:
    program = tmp_path / "pgtop-tune"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -P -m pgtop_tune \"$@\"\n", encoding="utf-8")  # fmt: skip
    program.chmod(0o755)
    file = tmp_path / "completion"
    file.write_text(completion_files.texts()["pgtop-tune"], encoding="utf-8")
    script = (
        f'. {file}; COMP_WORDS=({program} record --rot); COMP_CWORD=2; _pgtop_tune_completion {program}; '
        'echo "${COMPREPLY[*]}"; complete -p pgtop-tune'
    )  # fmt: skip
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env={**os.environ, "PATH": os.defpath}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[0] == "--rotate"
    assert "_pgtop_tune_completion pgtop-tune" in done.stdout


def test_the_file_of_zsh_completes_when_zsh_first_loads_it() -> None:
    text = completion_files.texts()["_pgtop-tune"]
    assert text.startswith("#compdef pgtop-tune\n")
    assert '_pgtop_tune_completion "$@"' in text
