"""/usr/bin/pgtop-tune of the packages: the newest Python that the package has libraries for, or one sentence."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.packaging_step import PACKAGING


def _start(directory: Path) -> subprocess.CompletedProcess[str]:
    """Runs the launcher with another /usr/bin."""
    launcher = directory / "pgtop-tune"
    text = (PACKAGING / "pgtop-tune").read_text(encoding="utf-8")
    launcher.write_text(text.replace("/usr/bin/", f"{directory}/"), encoding="utf-8")
    launcher.chmod(0o755)
    return subprocess.run([launcher, "set", "a b=1"], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("there", "started"),
    [
        (("python3", "python3.9", "python3.11", "python3.12"), "3.12"),
        (("python3", "python3.13", "python3.15"), "3.13"),
        (("python3", "python3.14", "python3.11"), "3.14"),
    ],
)
def test_the_newest_python_that_has_libraries_gets_the_words(
    there: tuple[str, ...], started: str, tmp_path: Path
) -> None:
    for name in there:
        (tmp_path / name).write_text('#!/bin/sh\necho "$0"; for each; do echo "$each"; done\n', encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    done = _start(tmp_path)
    words = [f"{tmp_path}/python{started}", "-I", "-S", "/usr/lib/pgtop-tune/start.py", "set", "a b=1"]
    assert (done.returncode, done.stdout.splitlines()) == (0, words)


def test_without_a_python_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "python3.9").touch(0o755)
    done = _start(tmp_path)
    assert done.returncode == 1
    assert "no Python 3.11 to 3.14 is in" in done.stderr
    assert done.stderr.count("\n") == 1
