"""Secrets that this process inherits from its starter and hands on to processes of its own.

The environment and the argument list are no place for them: /proc shows both, and programs that live for hours inherit
the environment. PGPASSWORD is therefore removed from the environment at the start, and a process of our own gets its
secrets through a descriptor that it inherits: a file without a name. The variable `VARIABLE` holds the number of
the descriptor.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.secret import Secret

VARIABLE: Final = "PGTOP_TUNE_HANDED_ON"
PASSWORD: Final = "PGPASSWORD"
_CHUNK_BYTES: Final = 65_536
_PRIVATE: Final = 0o600


class _GivenSecrets:
    """The secrets that the process was given at its start.

    Attributes:
        command_line: The command line; None where the argument list is the command line.
        connection: The server, as `ConnInfo.as_json` returns it.
        password: Value of PGPASSWORD.
    """

    command_line: list[str] | None = None
    connection: Mapping[str, Any] | None = None
    password: Secret | None = None


_given: Final = _GivenSecrets()


def take_over() -> None:
    """Take the secrets that this process was started with; programs that it starts do not inherit them.

    Raises:
        UsageProblem: The variable names no descriptor of ours.
    """
    password, number = os.environ.pop(PASSWORD, ""), os.environ.pop(VARIABLE, "")
    handed: Mapping[str, Any] = _read(number) if number else {}
    password = handed.get("password") or password
    _given.password = Secret(password) if password else None
    _given.command_line = handed.get("command_line")
    _given.connection = handed.get("connection")


def command_line(arguments: Sequence[str]) -> list[str]:
    """Return the command line that this process was started with; without one, the arguments."""
    return list(arguments) if _given.command_line is None else _given.command_line


def connection() -> Mapping[str, Any] | None:
    """Return the server that this process was started for; None where its starter named none."""
    return _given.connection


def inherited_password() -> Secret | None:
    """Return the value that PGPASSWORD had when this process was started."""
    variable = os.environ.get(PASSWORD)
    return _given.password or (Secret(variable) if variable else None)


def environment() -> dict[str, str]:
    """Return our environment without secrets, for a program that outlives us."""
    return {name: value for name, value in os.environ.items() if name not in (PASSWORD, VARIABLE)}


@contextmanager
def descriptor(
    *,
    command_line: Sequence[str] | None = None,
    connection: Mapping[str, Any] | None = None,
    password: Secret | None = None,
) -> Iterator[int]:
    """Yield the descriptor of a file with these secrets, for `pass_fds` of a child; ours is closed after the block.

    Raises:
        OSError: The file cannot be made.
    """
    revealed = None if password is None else password.reveal()
    parts = {"command_line": command_line, "connection": connection, "password": revealed}
    content = json.dumps({name: value for name, value in parts.items() if value is not None}).encode()
    with tempfile.TemporaryFile(buffering=0) if not hasattr(os, "memfd_create") else _memory() as file:
        view = memoryview(content)
        while view:
            view = view[file.write(view) :]
        yield file.fileno()


def _memory() -> Any:
    number = os.memfd_create("pgtop-tune", os.MFD_CLOEXEC)
    os.fchmod(number, _PRIVATE)
    return open(number, "wb", buffering=0)


def _read(number: str) -> Mapping[str, Any]:
    try:
        inherited = int(number)
        status = os.fstat(inherited)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink or status.st_uid != os.geteuid():
            raise ValueError
        content = b""
        while piece := os.pread(inherited, _CHUNK_BYTES, len(content)):
            content += piece
        os.close(inherited)
        handed = json.loads(content)
        if not isinstance(handed, dict):
            raise ValueError
    except (OSError, ValueError):
        raise UsageProblem(f"{VARIABLE} names no descriptor of pgtop-tune", f"unset {VARIABLE}") from None
    return handed
