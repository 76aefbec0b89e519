"""Completion of words besides commands and options: databases, services, parameters and values, profiles, themes.

A shell asks the whole program for each word, so every function imports what it needs, and says nothing where it fails.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from threading import Timer
from typing import Any, Final

from pgtop_tune.base.paths import config_dir, shipped_directory

_LONGEST_S: Final = 1.0
"""Longest time for which a shell waits for the server."""
_DATABASES: Final = "SELECT datname FROM pg_catalog.pg_database WHERE datallowconn ORDER BY 1"
_VALUES: Final = """
SELECT unnest(CASE vartype WHEN 'bool' THEN ARRAY['on', 'off'] ELSE enumvals END)
  FROM pg_catalog.pg_settings WHERE name = lower(%s)
"""
_SERVICE: Final = "service="
_WORDS: Final = "COMP_WORDS"
_CURSOR: Final = "COMP_CWORD"
_LINE: Final = "_TYPER_COMPLETE_ARGS"
_FIRST: Final = re.compile(r"(\S+\s+)(.*)", re.DOTALL)
_begun: list[str] = []
"""Part of the word that bash keeps as it is: it ends words at "="."""


def prepare(is_command: Callable[[str], bool], default_command: str) -> None:
    """Have a command line without a command complete as that of the default one, and join the words that bash has cut.

    Args:
        is_command: Whether a word is a command, or the beginning of one.
    """
    if _WORDS in os.environ:
        arguments, cursor = os.environ[_WORDS].split(), int(os.environ.get(_CURSOR) or 0)
        arguments = arguments[: cursor + 1] + [""] * (cursor + 1 - len(arguments))
        if "=" in arguments[-2:] and len(arguments) > 2:
            at = len(arguments) - 1 if arguments[-1] == "=" else len(arguments) - 2
            begun, value = "".join(arguments[at - 1 : at + 1]), "".join(arguments[at + 1 :])
            arguments = [*arguments[: at - 1], begun + value]
            _begun[:] = [begun]
        if _is_of_default(arguments[1:], is_command):
            arguments.insert(1, default_command)
        os.environ[_WORDS], os.environ[_CURSOR] = " ".join(arguments), str(len(arguments) - 1)
    elif _LINE in os.environ and (parts := _FIRST.fullmatch(os.environ[_LINE])):
        arguments = parts[2].split(" ")
        if _is_of_default(arguments, is_command):
            os.environ[_LINE] = f"{parts[1]}{default_command} {parts[2]}"


@contextmanager
def without_begun_word() -> Iterator[None]:
    """Take from what is offered the part of the word that bash keeps."""
    if not _begun:
        yield
        return
    offered = io.StringIO()
    try:
        with redirect_stdout(offered):
            yield
    finally:
        sys.stdout.write("".join(line.removeprefix(_begun[0]) for line in offered.getvalue().splitlines(keepends=True)))


def _is_of_default(arguments: list[str], is_command: Callable[[str], bool]) -> bool:
    first = arguments[0] if arguments else ""
    return "=" in first or (len(arguments) > 1 and not is_command(first) and not first.startswith("--"))


def databases(ctx: Any, incomplete: str) -> list[str]:
    """Return databases of the server, and the services of the service file."""
    if incomplete.startswith(_SERVICE):
        return _fitting((f"{_SERVICE}{name}" for name in _services()), incomplete)
    return _fitting((*_asked(ctx, _DATABASES), *([_SERVICE] * bool(incomplete))), incomplete)


def parameters(ctx: Any, incomplete: str) -> list[str]:
    """Return names of parameters; behind NAME=, the values of an enum or a boolean of this server."""
    name, equals, _ = incomplete.partition("=")
    if equals:
        return _fitting((f"{name}={value}" for value in _asked(ctx, _VALUES, name)), incomplete)
    from pgtop_tune.cli.parameter_rows import known_names

    return _fitting(known_names(), incomplete.lower())


def shown(ctx: Any, incomplete: str) -> list[str]:
    """Return databases, and for `show parameters` names of parameters."""
    names = parameters(ctx, incomplete) if ctx.params.get("subject") == "parameters" else []
    return [*names, *databases(ctx, incomplete)]


def profiles(incomplete: str) -> list[str]:
    """Return the load profiles."""
    from pgtop_tune.bench.profiles import load_profiles, profile_directories

    return _fitting(load_profiles(profile_directories(None)).by_name, incomplete)


def themes(incomplete: str) -> list[str]:
    """Return the themes."""
    directories = (shipped_directory("themes", "themes"), config_dir() / "themes")
    return _fitting((path.stem for directory in directories for path in directory.glob("*.toml")), incomplete)


def checks(incomplete: str) -> list[str]:
    """Return ids and groups of checks; the last of a list is completed."""
    from pgtop_tune.health.registry import CHECKS

    begun, comma, last = incomplete.rpartition(",")
    names = {name for check in CHECKS for name in (check.id, check.group)}
    return _fitting((f"{begun}{comma}{name}" for name in names), f"{begun}{comma}{last}")


def _fitting(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted({name for name in names if name.startswith(incomplete)})


def _services() -> list[str]:
    files = [Path(os.environ.get("PGSERVICEFILE") or Path.home() / ".pg_service.conf")]
    if directory := os.environ.get("PGSYSCONFDIR"):
        files.append(Path(directory) / "pg_service.conf")
    names: list[str] = []
    for file in files:
        with suppress(OSError, ValueError):
            names += re.findall(r"^\s*\[([^\]\n]+)\]", file.read_text(encoding="utf-8"), re.MULTILINE)
    return names


def _asked(ctx: Any, statement: str, *values: str) -> list[str]:
    """Return the first column of an answer of the server that the options name; empty without one in time."""
    # A look-up of a name cannot be interrupted; the shell has read what is printed by then.
    timer = Timer(_LONGEST_S, os._exit, (0,))
    timer.daemon = True
    timer.start()
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    try:
        from msgspec.structs import replace

        from pgtop_tune.cli.connections import ConnectionWords, resolve_words
        from pgtop_tune.postgres.server.libpq import connect

        typed: dict[str, Any] = {
            name: ctx.params.get(name) or "" for name in ("host", "port", "user", "database", "target")
        }
        conninfo = resolve_words(ConnectionWords(**typed))
        if not (typed["database"] or typed["target"]):
            conninfo = replace(conninfo, dbname=os.environ.get("PGDATABASE") or "postgres")
        with connect(conninfo, "pgtop-tune completion") as connection:
            return [str(row[0]) for row in connection.execute(statement, values or None)]
    except Exception:
        return []
    finally:
        timer.cancel()
