"""The one file, made of the packages of this environment, and how a test starts it."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

import pytest

from tests.support.packaging_step import packaging_step

PYTHON = os.path.realpath(sys.executable)
"""Not that of the environment: the one file has its own packages."""


def made_once(factory: pytest.TempPathFactory) -> Path:
    """Return the one file for the Python that runs the tests; the first worker that asks makes it, in three seconds."""
    shared = factory.getbasetemp().parent if "PYTEST_XDIST_WORKER" in os.environ else factory.getbasetemp()
    directory = shared / "one-file"
    with (shared / "one-file.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = sorted(directory.glob("*.pyz"))
        return made[0] if made else packaging_step("one_file").build_here(directory)


def words(file: Path, cache: Path) -> tuple[str, ...]:
    """Return the words that start a one file, whose files are in a directory below `cache`."""
    return ("env", f"XDG_CACHE_HOME={cache}", PYTHON, "-IS", str(file))
