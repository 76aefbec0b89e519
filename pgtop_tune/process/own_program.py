"""Command lines that start this program as a child of its own, however it was started: from a checkout, an environment,
or a directory from which start.py runs it. A probe proves first that such a child imports this package.

A child looks for its modules in the directories of the interpreter, or in the tree of start.py: not in the working
directory, and not in an archive. A revert watchdog that cannot import the package would revert nothing.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

_PACKAGE: Final = "pgtop_tune"
_PROBED: Final = f"{_PACKAGE}.cli.child_probe"
_PATIENCE_S: Final = 60.0
_ALONE: Final = ("-I", "-S")
"""Options of Python that ignore variables and directories of the account, and installed packages."""


class _Start:
    """The way this process was started.

    Attributes:
        file: Path of start.py; "" where start.py has not started us.
        archive: Archive that has unpacked the tree of start.py; "" where none has.
        lock: A descriptor that keeps the tree of start.py from being removed.
    """

    file: str = ""
    archive: str = ""
    lock: int | None = None


_start: Final = _Start()


def started_by(file: str, lock: int | None, archive: str = "") -> None:
    """Record that start.py has started us.

    Args:
        file: Path of start.py.
        lock: A descriptor that keeps its tree from being removed; None where nothing does.
        archive: Archive that has unpacked its tree; "" where none has.
    """
    _start.file, _start.lock, _start.archive = file, lock, archive


def one_file() -> str:
    """Return the archive that can unpack our files again after their removal; "" where there is none."""
    return _start.archive


def own_argv(module: str = _PACKAGE) -> list[str]:
    """Return the interpreter and the words that run a module of this package in a child. Blocking the first time.

    Raises:
        OSError: A child does not start, cannot import the package, or imports another one.
    """
    if reason := _why_not(_start.file, os.environ.get("PYTHONPATH", "")):
        raise OSError(errno.ENOEXEC, f"{reason}; install pgtop-tune into a virtual environment")
    return _words(module)


def file_argv(file: str) -> list[str]:
    """Return the interpreter and the words that run a file of this package that needs nothing but Python's own library.

    Raises:
        OSError: The path leads into an archive; or the path of the interpreter is unknown.
    """
    if not os.path.isfile(file):
        reason = f"{file} is inside an archive, from which child processes cannot run it"
        raise OSError(errno.ENOEXEC, f"{reason}; install pgtop-tune into a virtual environment")
    return [_interpreter(), *_ALONE, file]


def held_descriptors() -> Sequence[int]:
    """Return the descriptors that a child has to inherit if it is to find its files after our end."""
    return () if _start.lock is None else (_start.lock,)


def _words(module: str) -> list[str]:
    if not _start.file:
        return [_interpreter(), "-P", "-m", module]
    module_words = [] if module == _PACKAGE else [f"--module={module}"]
    return [
        *file_argv(_start.file),
        *([f"--archive={_start.archive}"] if _start.archive and module_words else []),
        *module_words,
    ]


def _interpreter() -> str:
    if not sys.executable:
        raise OSError(
            errno.ENOENT, "Python does not know the path of its interpreter; start pgtop-tune with its full path"
        )
    return sys.executable


@cache
def _why_not(start_file: str, python_path: str) -> str:
    """Return the reason why a child would not run this package; "" where it would."""
    try:
        child = subprocess.run(
            _words(_PROBED), stdin=subprocess.DEVNULL, capture_output=True, cwd="/", check=False, timeout=_PATIENCE_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "a child process does not start within a minute"
    import pgtop_tune

    if child.returncode:
        return f"a child process cannot import {_PACKAGE}"
    own_file, child_file = Path(str(pgtop_tune.__file__)), Path(os.fsdecode(child.stdout))
    return (
        ""
        if own_file.resolve() == child_file.resolve()
        else f"a child process imports another {_PACKAGE}, {child_file}"
    )
