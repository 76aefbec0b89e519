"""Writes the manual pages, one for the program and one for each command, from the table of commands.

    python packaging/manual_pages.py DIRECTORY

Their date is that of the version, so that the same sources make the same pages.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from itertools import groupby
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from docs.command_table import commands, context, exit_statuses
from pgtop_tune import __version__
from pgtop_tune.cli.commands import DEFAULT_COMMAND

CHANGELOG: Final = Path(__file__).resolve().parents[1] / "CHANGELOG.md"
SECTION: Final = 1
_LINES_AS_THEY_ARE: Final = "\b\n"
"""Begins a paragraph whose lines typer leaves alone."""
_BETWEEN_EXAMPLES: Final = re.compile(r"\s+·\s+")
_QUOTED: Final = re.compile(r"`([^`]+)`")
_METAVAR: Final = re.compile(r"(?<=[ =])(<[^>]+>|[A-Z][A-Z|:.\[\]]*)")
_DATE: Final = re.compile(r"^## \[[^\]]+\] - (\d{4}-\d\d-\d\d)$", re.MULTILINE)
_FILES: Final = (
    ("~/.config/pgtop-tune/config.toml", "Theme, interval, keys and defaults; themes/ and profiles/ lie beside it."),
    ("~/.local/state/pgtop-tune/", "Journals of changes, records of runs and baselines. `revert` needs the journals."),
    ("/etc/pgtop-tune/NAME.conf", "Settings of the service pgtop-tune-record@NAME, a recorder without a screen."),
)
_ENVIRONMENT: Final = (
    ("PGHOST, PGPORT, PGDATABASE, PGUSER, PGPASSFILE, PGSERVICE, …", "Connection settings, as for psql(1)."),
    ("XDG_CONFIG_HOME, XDG_STATE_HOME, XDG_DATA_HOME", "Other directories than those in the home directory."),
)


def pages() -> Mapping[str, str]:
    """Return the file name and the text of every page."""
    table = [(call, command) for call, command in commands()]
    calls = [call for call, _ in table]
    return {f"{'-'.join(call)}.{SECTION}": _page(call, command, calls) for call, command in table}


def _page(call: tuple[str, ...], command: Any, calls: list[tuple[str, ...]]) -> str:
    ctx = context(call, command)
    summary, description = _summary(command.help)
    name = "-".join(call)
    lines = [
        '.\\" -*- coding: utf-8 -*-',
        '.\\" Made by packaging/manual_pages.py. Do not edit.',
        f'.TH {_escaped(name.upper())} {SECTION} "{released()}" "pgtop\\-tune {__version__}" "pgtop\\-tune"',
        ".nh",
        ".ad l",
        ".SH NAME",
        f"{_escaped(name)} \\- {_escaped(summary.rstrip('.'))}",
        ".SH SYNOPSIS",
        " ".join([f"\\fB{_escaped(' '.join(call))}\\fR", *map(_argument, command.collect_usage_pieces(ctx))]),
        ".SH DESCRIPTION",
        *_paragraphs([summary, *description]),
    ]
    if len(call) == 1:
        lines += _paragraphs([f"Without a command it is `{call[0]} {DEFAULT_COMMAND}`."])
    for title, parameters in groupby(sorted(command.get_params(ctx), key=_panel), key=_panel):
        lines.append(f".SH {_escaped(title[1].upper())}")
        lines += _rows((_option(record[0]), record[1]) for each in parameters if (record := each.get_help_record(ctx)))
    inner = [each for each in calls if each[:-1] == call]
    if inner:
        lines.append(".SH COMMANDS")
        summaries = {below: command.commands[below[-1]].help for below in inner}
        lines += _rows((_reference(below), _summary(summaries[below])[0]) for below in inner)
    if command.epilog:
        examples = _BETWEEN_EXAMPLES.split(command.epilog.removeprefix("Examples:").strip())
        lines += [".SH EXAMPLES", ".nf", *map(_line, examples), ".fi"]
    if len(call) == 1:
        lines += [".SH EXIT STATUS", *_rows((str(status), words or "Success.") for status, _, words in exit_statuses())]
        lines += [".SH ENVIRONMENT", *_rows((_escaped(variables), words) for variables, words in _ENVIRONMENT)]
        lines += [".SH FILES", *_rows((f"\\fI{_escaped(file)}\\fR", words) for file, words in _FILES)]
    else:
        lines += [".SH EXIT STATUS", f"See {_reference(call[:1])}."]
    above = [call[:length] for length in range(1, len(call))]
    siblings = [each for each in calls if len(call) > 2 and each[:-1] == call[:-1] and each != call]
    lines += [".SH SEE ALSO", ",\n".join([*map(_reference, (*above, *siblings)), "\\fBpsql\\fR(1)"])]
    return "\n".join(lines) + "\n"


def released() -> str:
    """Return the day of the newest version that has one, or today."""
    found = _DATE.search(CHANGELOG.read_text(encoding="utf-8"))
    return found[1] if found else str(date.today())


def _summary(text: str) -> tuple[str, list[str]]:
    """Return the first sentence of a help text, and its paragraphs without this sentence."""
    first, *paragraphs = text.split("\n\n")
    sentence, _, rest = first.partition(". ")
    return sentence.rstrip(".") + ".", [each for each in (rest, *paragraphs) if each]


def _paragraphs(paragraphs: Iterable[str]) -> Iterator[str]:
    for text in paragraphs:
        yield ".PP"
        if text.startswith(_LINES_AS_THEY_ARE):
            head, *lines = text.removeprefix(_LINES_AS_THEY_ARE).splitlines()
            yield from (_line(head), ".PP", ".nf", *(_line(each) for each in lines), ".fi")
        else:
            yield _line(" ".join(text.split()))


def _rows(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield tagged paragraphs; the tags are escaped already."""
    for tag, words in rows:
        yield from (".TP", tag, _line(words) if words else "\\&")


def _panel(parameter: Any) -> tuple[int, str]:
    """Return the heading of a parameter, with its place: arguments, options of the command, then groups by name."""
    if parameter.param_type_name == "argument":
        return 0, "Arguments"
    group = getattr(parameter, "rich_help_panel", None)
    return (2, group) if group else (1, "Options")


def _option(names: str) -> str:
    """Return the names of an option bold and its value in italics."""
    names = _escaped(names)
    return f"\\fB{_METAVAR.sub(lambda value: f'{chr(92)}fI{value[1]}{chr(92)}fB', names)}\\fR"


def _argument(piece: str) -> str:
    return f"\\fI{_escaped(piece)}\\fR"


def _reference(call: tuple[str, ...]) -> str:
    return f"\\fB{_escaped('-'.join(call))}\\fR({SECTION})"


def _line(text: str) -> str:
    """Return running text that no macro is seen in, words in backquotes bold."""
    escaped = _QUOTED.sub(r"\\fB\1\\fR", _escaped(text))
    return f"\\&{escaped}" if escaped.startswith((".", "'", " ")) else escaped


def _escaped(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-").replace("~", "\\(ti").replace("^", "\\(ha")


def main() -> None:
    """Writes the pages into the directory named."""
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (directory / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
