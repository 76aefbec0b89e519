"""Runs the command line as a user does: a process, its words and its exit status."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pgtop_tune.tui.actions import PAGES
from tests.support.accounts import home_variables
from tests.support.forked import run_forked

PROGRAM = (sys.executable, "-m", "pgtop_tune")
ROOT = Path(__file__).parents[2]
AT_LEISURE = ("PG", "XDG_", "TMPDIR", "PATH", "COMP_", "_PGTOP_TUNE_COMPLETE", "_TYPER_COMPLETE")
"""What the variables begin with that nothing reads while the interpreter starts and modules are imported."""

OF_KEYS = (
    "pgtop_tune.tui.dialogs.help",
    "pgtop_tune.tui.experiment.dialogs",
    "pgtop_tune.tui.load.dialog",
    "pgtop_tune.tui.pages.screen",
    "pgtop_tune.tui.parameters.dialog",
    *(f"pgtop_tune.tui.pages.{row.module}" for row in PAGES),
)
"""Modules that a key imports: every page, and the dialogs."""


@dataclass(frozen=True, slots=True)
class Ran:
    status: int
    out: str
    err: str


def environment(home: Path, **more: str) -> dict[str, str]:
    """A user without configuration, journal or PG* variables of the machine's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "XDG_"))}
    return {**kept, **home_variables(home), "COLUMNS": "100", **more}


def run(*words: str, home: Path, timeout_s: float = 90, variables: Mapping[str, str] | None = None) -> Ran:
    """Runs it to the end, without a terminal."""
    given = environment(home, **(variables or {}))
    if all(name.startswith(AT_LEISURE) for name in variables or ()):
        quick = run_forked(words, given, ROOT, timeout_s)
        return Ran(quick.returncode, _text(quick.stdout), _text(quick.stderr))
    done = subprocess.run(
        [*PROGRAM, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=given,
        cwd=ROOT,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def _text(said: bytes) -> str:
    return said.decode().replace("\r\n", "\n").replace("\r", "\n")
