"""The commands as typer makes them, and the exit statuses: rows for the reference and for the manual pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import typer.main

from docs.field_docs import field_words
from pgtop_tune.cli.app import program
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.output import PROGRAM

COLUMNS: Final = 100
"""Width that texts of typer are wrapped at."""


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the words that call a command, and the command: the program first, each group before its own commands."""
    yield from _below((PROGRAM,), typer.main.get_command(program()))


def _below(call: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    # Plain text: of the command itself, and of those that its help lists.
    inner = getattr(command, "commands", {})
    for each in (command, *inner.values()):
        each.rich_markup_mode = None
    yield call, command
    for name, below in inner.items():
        yield from _below((*call, name), below)


def context(call: tuple[str, ...], command: Any) -> Any:
    """Return typer's context of a command, which wraps texts at `COLUMNS`."""
    return command.context_class(command, info_name=" ".join(call), terminal_width=COLUMNS, max_content_width=COLUMNS)


def exit_statuses() -> list[tuple[int, str, str]]:
    """Return number, name and meaning of every exit status."""
    meanings = field_words(ExitCode)
    return [(code.value, code.name.lower(), meanings.get(code.name, "")) for code in ExitCode]
