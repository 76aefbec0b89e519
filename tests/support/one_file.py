"""The one file, made of the packages of this environment, and how a test starts it."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.packaging_step import packaging_step

PYTHON = os.path.realpath(sys.executable)
"""Not that of the environment: the one file has its own packages."""


def made_once(factory: pytest.TempPathFactory) -> Path:
    """Return the one file for the Python that runs the tests; the first worker that asks makes it, in three seconds."""
    with _shared(factory, "one-file") as directory:
        made = sorted(directory.glob("*.pyz"))
        return made[0] if made else packaging_step("one_file").build_here(directory)


def tree_made_once(factory: pytest.TempPathFactory) -> Path:
    """Return the directory that a package of a distribution installs, for the Python that runs the tests."""
    with _shared(factory, "tree") as directory:
        if not (directory / "MANIFEST").exists():
            step = packaging_step("tree")
            step.make(step.HERE, directory)
        return directory


@contextmanager
def _shared(factory: pytest.TempPathFactory, name: str) -> Iterator[Path]:
    """A directory of all workers, which one of them at a time has."""
    shared = factory.getbasetemp().parent if "PYTEST_XDIST_WORKER" in os.environ else factory.getbasetemp()
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield shared / name


def words_of_package(tree: Path) -> tuple[str, ...]:
    """Return the words with which the launcher of a package starts the program."""
    return (PYTHON, "-I", "-S", str(tree / "start.py"))


def words(file: Path, cache: Path) -> tuple[str, ...]:
    """Return the words that start a one file, whose files are in a directory below `cache`."""
    return ("env", f"XDG_CACHE_HOME={cache}", PYTHON, "-IS", str(file))
