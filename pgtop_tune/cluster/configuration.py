"""The settings of a throwaway server as lines of a configuration file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pgtop_tune.base.errors import ClusterProblem
from pgtop_tune.base.foreign_directory import ForeignDirectory
from pgtop_tune.base.safe_text import printable
from pgtop_tune.cluster.binaries import Binaries

FILE_NAME: Final = "pgtop-tune.conf"
STATEMENTS: Final = "pg_stat_statements"

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.$]*\Z")
_LIBRARY_DIRS: Final = ("lib", "lib/postgresql", "lib64", "lib64/pgsql")


def defaults(binaries: Binaries) -> dict[str, str]:
    """What a throwaway server is set to where nobody asks for something else."""
    settings = {"cluster_name": "pgtop-tune", "track_io_timing": "on"}
    if has_statements(binaries):
        settings["shared_preload_libraries"] = STATEMENTS
    return settings


def has_statements(binaries: Binaries) -> bool:
    """Whether this installation comes with pg_stat_statements."""
    root = binaries.bin_dir.parent
    return any((root / each / f"{STATEMENTS}.so").exists() for each in _LIBRARY_DIRS)


def lines(settings: Mapping[str, str]) -> str:
    """The text of a configuration file.

    Raises:
        ClusterProblem: A name or a value that such a file cannot hold.
    """
    return "".join(f"{_name(name)} = {_quoted(name, value)}\n" for name, value in settings.items())


def write(settings: Mapping[str, str], data: ForeignDirectory) -> None:
    """Puts the settings into FILE_NAME of a data directory, in place of what it held.

    Raises:
        ClusterProblem: A name or a value that such a file cannot hold.
        OSError: It cannot be written.
    """
    put(lines(settings), data)


def put(text: str, data: ForeignDirectory) -> None:
    """Makes this the text of FILE_NAME.

    Raises:
        OSError: It cannot be written.
    """
    data.replace(FILE_NAME, text.encode())


def read(data: ForeignDirectory) -> str:
    """The text of FILE_NAME; "" where it is missing."""
    try:
        return data.read(FILE_NAME).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def include(data: ForeignDirectory) -> None:
    """Makes a new cluster's postgresql.conf read FILE_NAME.

    Raises:
        OSError: It cannot be read or written.
    """
    data.replace("postgresql.conf", data.read("postgresql.conf") + f"\ninclude '{FILE_NAME}'\n".encode())


def _name(name: str) -> str:
    if not _NAME.match(name):
        raise ClusterProblem(f"{printable(name)} is not the name of a setting")
    return name


def _quoted(name: str, value: str) -> str:
    if any(character in value for character in "\n\r\0"):
        raise ClusterProblem(f"the value of {name} holds a line break", "give it on one line")
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"
