"""Runs the command line as a user does: a process, its words and its exit status."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PROGRAM = (sys.executable, "-m", "pgtop_tune")
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Ran:
    status: int
    out: str
    err: str


def environment(home: Path, **more: str) -> dict[str, str]:
    """A user without configuration, journal or PG* variables of the machine's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "XDG_"))}
    return {**kept, "HOME": str(home), "COLUMNS": "100", **more}


def run(*words: str, home: Path, timeout_s: float = 90, variables: Mapping[str, str] | None = None) -> Ran:
    """Runs it to the end, without a terminal."""
    done = subprocess.run(
        [*PROGRAM, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=environment(home, **(variables or {})),
        cwd=ROOT,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)
