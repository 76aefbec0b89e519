"""A child of this program runs the files of this program, or is not started at all."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pgtop_tune.process import own_program
from pgtop_tune.process.own_program import file_argv, held_descriptors, own_argv, started_by
from tests.cli.runs import ROOT

FROM_AN_ARCHIVE = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pgtop_tune.process import guarded_program, own_program, path_looks, revert_watchdog
for start in (
    lambda: revert_watchdog.RevertWatchdog(["/bin/true"], os.environ),
    lambda: guarded_program.start_guarded(["/bin/true"]),
    lambda: path_looks.PathLooks().stat("/", "/"),
    own_program.own_argv,
):
    try:
        start()
    except OSError as problem:
        print(problem.strerror)
"""


def test_from_an_archive_no_child_is_started_and_the_reason_is_said(tmp_path: Path) -> None:
    archive = tmp_path / "program.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in (ROOT / "pgtop_tune").rglob("*.py"):
            if path.parent.name in ("pgtop_tune", "process"):
                packed.write(path, path.relative_to(ROOT))
    words = [sys.executable, "-P", "-c", FROM_AN_ARCHIVE, str(archive)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=90, check=False, cwd="/")
    assert ended.returncode == 0, ended.stderr
    *files, program = ended.stdout.splitlines()
    assert [line.partition("; ")[2] for line in (*files, program)] == [
        "install pgtop-tune into a virtual environment"
    ] * 4
    for line in files:
        assert f"{archive}/pgtop_tune/process/" in line
        assert "is inside an archive, from which child processes cannot run it" in line
    assert "a child process" in program


def test_an_interpreter_that_nobody_can_name_starts_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    own_program._why_not.cache_clear()
    for words in (own_argv, lambda: file_argv(__file__)):
        with pytest.raises(OSError, match="does not know the path of its interpreter"):
            words()


def test_what_start_py_has_started_starts_its_children_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = tmp_path / "start.py"
    start.write_text(f"import sys; sys.path[:0] = {sys.path!r}; from pgtop_tune.cli.child_probe import main; main()\n")
    monkeypatch.setattr(own_program, "_start", own_program._Start())
    own_program._why_not.cache_clear()
    started_by(str(start), 7)
    assert own_argv() == [sys.executable, "-I", "-S", str(start)]
    assert own_argv("pgtop_tune.cli.unit") == [*own_argv(), "--module=pgtop_tune.cli.unit"]
    assert held_descriptors() == (7,)
    own_program._why_not.cache_clear()
    start.write_text("raise SystemExit(1)\n")
    with pytest.raises(OSError, match="a child process cannot import pgtop_tune"):
        own_argv()
    own_program._why_not.cache_clear()
