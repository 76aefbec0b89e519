"""This program as a child of its own: the words that start it, once it is sure that they do.

A child looks for the package in the directories of its interpreter, not in the working directory nor in a zip archive
that this process was started from. A revert watchdog that cannot import the package would revert nothing.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

_PACKAGE: Final = "pgtop_tune"
_PROBE: Final = f"import {_PACKAGE}.cli.commands.revert, sys; sys.stdout.write({_PACKAGE}.__file__)"
_PATIENCE_S: Final = 60.0


def own_argv(module: str = _PACKAGE) -> list[str]:
    """Return the interpreter and the words that run a module of this package in a child. Blocking the first time.

    Raises:
        OSError: A child cannot import the package, or imports another one.
    """
    if reason := _why_not(os.environ.get("PYTHONPATH", "")):
        raise OSError(errno.ENOEXEC, f"{reason}; install pgtop-tune into a virtual environment")
    return [sys.executable, "-P", "-m", module]


@cache
def _why_not(python_path: str) -> str:
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-c", _PROBE], stdin=subprocess.DEVNULL, capture_output=True, cwd="/", check=False,
            timeout=_PATIENCE_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "a child of this program does not start within a minute"
    import pgtop_tune

    if child.returncode:
        return f"a child of this program cannot import {_PACKAGE}"
    own_file, child_file = Path(str(pgtop_tune.__file__)), Path(os.fsdecode(child.stdout))
    return (
        ""
        if own_file.resolve() == child_file.resolve()
        else f"a child of this program imports another {_PACKAGE}, {child_file}"
    )
