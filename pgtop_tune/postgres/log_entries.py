"""Entries of the server's log, of any of its three formats: stderr, csvlog, jsonlog. Pure.

The log is full of strangers' words, and of secrets in statements that failed. So nothing that quotes a statement
leaves here: of plain LOG entries only those that speak of the server itself, and never STATEMENT, QUERY or CONTEXT.
Of what is left, what looks like a secret is masked: an error quotes words of its statement, a reload a new value.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.secret import MASK, without_secrets

MESSAGE_CHARACTERS: Final = 500
_PREFIX_CHARACTERS: Final = 120

_ALARMS: Final = frozenset({"WARNING", "ERROR", "FATAL", "PANIC"})
_ADDENDA: Final = frozenset({"DETAIL", "HINT"})
_QUOTING: Final = frozenset({"STATEMENT", "QUERY", "CONTEXT", "LOCATION", "BACKTRACE"})
_STDERR: Final = re.compile(
    r"(?P<prefix>.{0,400}?)\b(?P<severity>DEBUG[1-5]?|LOG|INFO|NOTICE|WARNING|ERROR|FATAL|PANIC"
    r"|DETAIL|HINT|STATEMENT|QUERY|CONTEXT|LOCATION|BACKTRACE):  (?P<message>.*)"
)
_CSV_BEGIN: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_ABOUT_THE_SERVER: Final = re.compile(
    r"checkpoint|restartpoint|automatic |autovacuum|database system|starting|listening|received|shutting down|aborting"
    r"|redo |recovery|consistent|entering standby|started streaming|streaming|replication|logical |standby|selected"
    r"|archiv|restored|parameter |configuration|temporary file|process \d+ |server process|terminating|all server"
    r"|background worker|invalid|unexpected|out of|could not|oldest|multixact|transaction ID|skipping|invalidating"
)
"""How LOG entries begin that are about the server and not about one client's statement or connection."""
_QUOTED_WORD: Final = re.compile(r'at or near "(.{1,300}?)"(?= at character|\Z)')
_PARAMETERS: Final = re.compile(r"(?i)parameters:|.*\$1 = ")
"""DETAIL with the values bound to a statement."""


class LogEntry(Struct, frozen=True):
    """An entry worth showing.

    Attributes:
        offset: Bytes from the beginning of the content to where it begins.
        severity: LOG, WARNING, ERROR, FATAL or PANIC.
        prefix: log_line_prefix, or time, user and database; "" without.
        message: With DETAIL and HINT behind it.
    """

    offset: int
    severity: str
    prefix: str
    message: str


class LogEntries(Struct, frozen=True):
    """What was found in a piece of the log.

    Attributes:
        entries: Oldest first.
        left_out: Entries not shown.
        consumed: Bytes that need not be read again: up to the end of the last complete entry.
    """

    entries: tuple[LogEntry, ...]
    left_out: int
    consumed: int


def log_entries(file: str, content: bytes) -> LogEntries:
    """Reads a piece of a log file that begins at the beginning of a line.

    Args:
        file: Its name: "….csv" and "….json" tell the format, everything else is stderr's.
        content: Any bytes.
    """
    whole = content.rfind(b"\n") + 1
    suffix = file.rpartition(".")[2]
    raw = list(_FORMATS.get(suffix, _from_stderr)(content[:whole]))
    entries: list[LogEntry] = []
    left_out = 0
    is_open = False
    for each in raw:
        if each.severity in _ADDENDA:
            if is_open and not _PARAMETERS.match(each.message):
                entries[-1] = _longer(entries[-1], f"{each.severity}: {each.message}")
        elif each.severity == "STATEMENT" and is_open:
            entries[-1] = _without_word_of(entries[-1], each.message)
        elif each.severity not in _QUOTING:
            is_open = each.severity in _ALARMS or (
                each.severity == "LOG" and _ABOUT_THE_SERVER.match(each.message) is not None
            )
            if is_open:
                entries.append(replace(each, message=each.message[:MESSAGE_CHARACTERS]))
            else:
                left_out += 1
    return LogEntries(tuple(map(_masked, entries)), left_out, whole)


def _masked(entry: LogEntry) -> LogEntry:
    return replace(entry, prefix=without_secrets(entry.prefix), message=without_secrets(entry.message))


def _without_word_of(entry: LogEntry, statement: str) -> LogEntry:
    """A password without quotes is a syntax error, whose message quotes it: masked where its statement's is."""
    found = _QUOTED_WORD.search(entry.message)
    if found is None or found[1] not in statement or found[1] in without_secrets(statement):
        return entry
    return replace(entry, message=entry.message.replace(found[0], f'at or near "{MASK}"'))


def _longer(entry: LogEntry, words: str) -> LogEntry:
    return replace(entry, message=f"{entry.message} {words}"[:MESSAGE_CHARACTERS])


def _lines(content: bytes) -> Iterator[tuple[int, str]]:
    offset = 0
    for line in content.split(b"\n"):
        if line:
            yield offset, line.decode("utf-8", "replace").rstrip("\r")
        offset += len(line) + 1


def _from_stderr(content: bytes) -> Iterator[LogEntry]:
    """A line that begins with a tab goes on with the entry before."""
    pending: LogEntry | None = None
    for offset, line in _lines(content):
        if line.startswith("\t"):
            if pending is not None:
                pending = _longer(pending, line.strip())
            continue
        if pending is not None:
            yield pending
        match = _STDERR.match(line)
        pending = None
        if match:
            prefix = match["prefix"].strip()[:_PREFIX_CHARACTERS]
            pending = LogEntry(offset=offset, severity=match["severity"], prefix=prefix, message=match["message"])
    if pending is not None:
        yield pending


def _from_csv(content: bytes) -> Iterator[LogEntry]:
    """Columns as in the manual, "Using CSV-Format Log Output"; an entry may have several lines."""
    pending, began = "", 0
    for offset, line in _lines(content):
        if not pending:
            if not _CSV_BEGIN.match(line):
                continue
            began = offset
        pending = f"{pending}\n{line}" if pending else line
        if pending.count('"') % 2:
            continue
        row = next(csv.reader([pending.replace("\n", " ")]), [])
        pending = ""
        if len(row) > 15:
            who = "@".join(part for part in (row[1], row[2]) if part)
            prefix = " ".join(part for part in (row[0], f"[{row[3]}]", who) if part)
            yield from _parts(began, row[11], prefix, row[13], row[14], row[15], row[19] if len(row) > 19 else "")


def _from_json(content: bytes) -> Iterator[LogEntry]:
    """One object a line; keys as in the manual, "Using JSON-Format Log Output"."""
    for offset, line in _lines(content):
        try:
            found: Any = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            words = {name: str(value) for name, value in found.items() if isinstance(value, str | int)}
            yield from _of_object(offset, words)


def _of_object(offset: int, words: Mapping[str, str]) -> Iterator[LogEntry]:
    who = "@".join(words[name] for name in ("user", "dbname") if name in words)
    prefix = " ".join(part for part in (words.get("timestamp", ""), f"[{words.get('pid', '')}]", who) if part)
    texts = (words.get(name, "") for name in ("message", "detail", "hint", "statement"))
    yield from _parts(offset, words.get("error_severity", ""), prefix, *texts)


def _parts(
    offset: int, severity: str, prefix: str, message: str, detail: str, hint: str, query: str
) -> Iterator[LogEntry]:
    """An entry and its addenda, as stderr has them one after the other."""
    for kind, text in ((severity, message), ("DETAIL", detail), ("HINT", hint), ("STATEMENT", query)):
        if text or kind == severity:
            yield LogEntry(offset=offset, severity=kind, prefix=prefix[:_PREFIX_CHARACTERS], message=text)


_FORMATS: Final[Mapping[str, Callable[[bytes], Iterator[LogEntry]]]] = {"csv": _from_csv, "json": _from_json}
