"""Entries of the server's log, in any of its three formats: stderr, csvlog, jsonlog. Pure.

The log is full of foreign text, and of secrets in statements that failed. So this module drops everything that quotes a
statement: it returns only those plain LOG entries that are about the server itself, and never STATEMENT, QUERY or
CONTEXT. In the remaining entries, text that looks like a secret is masked: an error quotes words of its statement, a
reload quotes a new value.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.secret import MASK, without_secrets
from pgtop_tune.postgres.log_language import ENGLISH, LogLanguage

MESSAGE_CHARACTERS: Final = 500
_PREFIX_CHARACTERS: Final = 120

_ALARMS: Final = frozenset({"WARNING", "ERROR", "FATAL", "PANIC"})
_ADDENDA: Final = frozenset({"DETAIL", "HINT"})
_NOT_KNOWN: Final = ""
"""Severity of an addendum in an unknown language: it may quote a statement."""
_WITHOUT_CODE: Final = "?"
"""Severity of a line in an unknown language without a code: it may be an entry."""
_QUOTING: Final = frozenset({_NOT_KNOWN, _WITHOUT_CODE, "STATEMENT", "QUERY", "CONTEXT", "LOCATION", "BACKTRACE"})
_CSV_BEGIN: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_QUOTED_WORD: Final = re.compile(r'at or near "(.{1,300}?)"(?= at character|\Z)')
_PARAMETERS: Final = re.compile(r"(?i)parameters:|.*\$1 = ")
"""DETAIL with the values bound to a statement."""


class LogEntry(Struct, frozen=True):
    """An entry for display.

    Attributes:
        offset: Its position in the content, in bytes.
        severity: LOG, WARNING, ERROR, FATAL or PANIC.
        prefix: log_line_prefix, or time, user and database; "" without.
        message: The message, followed by DETAIL and HINT.
    """

    offset: int
    severity: str
    prefix: str
    message: str


class LogEntries(Struct, frozen=True):
    """Entries in a piece of the log.

    Attributes:
        entries: Entries, oldest first.
        left_out: Number of entries that are not for display.
        consumed: Bytes up to the end of the last complete line, which need not be read again.
        is_foreign: Whether lines that begin like entries have no known severity and no code.
    """

    entries: tuple[LogEntry, ...]
    left_out: int
    consumed: int
    is_foreign: bool = False


def log_entries(file: str, content: bytes, language: LogLanguage = ENGLISH) -> LogEntries:
    """Read a piece of a log file that begins at the beginning of a line.

    Args:
        file: Name of the file: "….csv" and "….json" have these formats, all others that of stderr.
        content: Any bytes.
        language: Language of the server's messages.
    """
    complete_bytes = content.rfind(b"\n") + 1
    suffix = file.rpartition(".")[2]
    raw = list(_FORMATS.get(suffix, _from_stderr)(content[:complete_bytes], language))
    entries: list[LogEntry] = []
    left_out = 0
    is_open = False
    for raw_entry in raw:
        entry = replace(raw_entry, message=language.in_english(raw_entry.message) or raw_entry.message)
        if entry.severity in _ADDENDA:
            if is_open and not _PARAMETERS.match(entry.message):
                entries[-1] = _longer(entries[-1], f"{entry.severity}: {entry.message}")
        elif entry.severity == "STATEMENT" and is_open:
            entries[-1] = _without_word_of(entries[-1], entry.message)
        elif entry.severity not in _QUOTING:
            is_open = entry.severity in _ALARMS or (
                entry.severity == "LOG" and language.is_about_the_server(entry.message)
            )
            if is_open:
                entries.append(replace(entry, message=entry.message[:MESSAGE_CHARACTERS]))
            else:
                left_out += 1
    severities = {entry.severity for entry in raw}
    is_foreign = _WITHOUT_CODE in severities or (severities <= {_NOT_KNOWN} and bool(content[:complete_bytes].strip()))
    return LogEntries(tuple(map(_masked, entries)), left_out, complete_bytes, is_foreign)


def _masked(entry: LogEntry) -> LogEntry:
    return replace(entry, prefix=without_secrets(entry.prefix), message=without_secrets(entry.message))


def _without_word_of(entry: LogEntry, statement: str) -> LogEntry:
    """Mask a word that a syntax error quotes, if it is masked in the statement: a password without quotes."""
    quoted_word = _QUOTED_WORD.search(entry.message)
    if quoted_word is None or quoted_word[1] not in statement or quoted_word[1] in without_secrets(statement):
        return entry
    return replace(entry, message=entry.message.replace(quoted_word[0], f'at or near "{MASK}"'))


def _longer(entry: LogEntry, addition: str) -> LogEntry:
    return replace(entry, message=f"{entry.message} {addition}"[:MESSAGE_CHARACTERS])


def _lines(content: bytes, language: LogLanguage) -> Iterator[tuple[int, str]]:
    offset = 0
    for line in content.split(b"\n"):
        if line:
            yield offset, language.text(line).rstrip("\r")
        offset += len(line) + 1


def _from_stderr(content: bytes, language: LogLanguage) -> Iterator[LogEntry]:
    """Yield entries of stderr; a line that begins with a tab continues the entry before it."""
    pending: LogEntry | None = None
    begin = _EntryStart("", "")
    for offset, line in _lines(content, language):
        if line.startswith("\t"):
            if pending is not None:
                pending = _longer(pending, line.strip())
            continue
        if pending is not None:
            yield pending
        pending = None
        prefixed = language.prefixed.match(line) if language.prefixed else None
        marked = language.marked.match(line)
        if prefixed and marked and marked.start("mark") >= prefixed.start("message"):
            # A statement in an unknown language quotes a known word.
            marked = None
        if marked:
            prefix = marked["prefix"].strip()[:_PREFIX_CHARACTERS]
            kind, message = language.kinds[marked["mark"]], marked["message"]
            pending = LogEntry(offset=offset, severity=kind, prefix=prefix, message=message)
        elif prefixed:
            english = language.in_english(prefixed["message"])
            severity = language.severity_of(prefixed["word"], english)
            pending = _by_code(offset, prefixed, begin)
            if severity and pending.severity != _NOT_KNOWN:
                pending = replace(pending, severity=severity, message=prefixed["message"])
        if prefixed and not (pending and pending.severity in _ADDENDA | _QUOTING):
            begin = _EntryStart(_without_number(prefixed), prefixed["word"])
    if pending is not None:
        yield pending


class _EntryStart(Struct, frozen=True):
    """The first line of an entry.

    Attributes:
        prefix: Its prefix without the number of the line, the only part that differs between lines.
        word: Its severity, as written.
    """

    prefix: str
    word: str


def _by_code(offset: int, prefixed: re.Match[str], begin: _EntryStart) -> LogEntry:
    """Return an entry in an unknown language; an addendum has the prefix of its entry, and another word."""
    code = prefixed.groupdict().get("code") or ""
    severity = severity_of(code)
    if "code" not in prefixed.re.groupindex:
        severity = _WITHOUT_CODE
    elif not code or (_without_number(prefixed) == begin.prefix and prefixed["word"] != begin.word):
        severity = _NOT_KNOWN
    # A message of class 00 may quote a statement.
    message = "" if severity in ("LOG", _NOT_KNOWN, _WITHOUT_CODE) else prefixed["message"]
    return LogEntry(
        offset=offset, severity=severity, prefix=prefixed["prefix"].strip()[:_PREFIX_CHARACTERS], message=message
    )


def _without_number(prefixed: re.Match[str]) -> str:
    if prefixed.groupdict().get("number") is None:
        return prefixed["prefix"]
    begin, end = prefixed.span("number")
    return f"{prefixed.string[:begin]}{prefixed.string[end : prefixed.end('prefix')]}"


def severity_of(code: str) -> str:
    """Return the usual severity of an error code: LOG for class 00, WARNING for 01, else ERROR."""
    return {"00": "LOG", "01": "WARNING"}.get(code[:2], "ERROR" if code else "LOG")


def _from_csv(content: bytes, language: LogLanguage) -> Iterator[LogEntry]:
    """Yield entries of csvlog; an entry may have several lines. Columns: manual, "Using CSV-Format Log Output"."""
    pending, began = "", 0
    for offset, line in _lines(content, language):
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
            session = "@".join(part for part in (row[1], row[2]) if part)
            prefix = " ".join(part for part in (row[0], f"[{row[3]}]", session) if part)
            severity = _severity(row[11], row[12], language)
            yield from _parts(began, severity, prefix, row[13], row[14], row[15], row[19] if len(row) > 19 else "")


def _severity(word: str, code: str, language: LogLanguage) -> str:
    return language.severities.get(word) or severity_of(code)


def _from_json(content: bytes, language: LogLanguage) -> Iterator[LogEntry]:
    """Yield entries of jsonlog, an object in each line. Keys: manual, "Using JSON-Format Log Output"."""
    for offset, line in _lines(content, language):
        try:
            document: Any = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(document, dict):
            fields = {name: str(value) for name, value in document.items() if isinstance(value, str | int)}
            yield from _of_object(offset, fields, language)


def _of_object(offset: int, fields: Mapping[str, str], language: LogLanguage) -> Iterator[LogEntry]:
    session = "@".join(fields[name] for name in ("user", "dbname") if name in fields)
    prefix = " ".join(part for part in (fields.get("timestamp", ""), f"[{fields.get('pid', '')}]", session) if part)
    texts = (fields.get(name, "") for name in ("message", "detail", "hint", "statement"))
    severity = _severity(fields.get("error_severity", ""), fields.get("state_code", ""), language)
    yield from _parts(offset, severity, prefix, *texts)


def _parts(
    offset: int, severity: str, prefix: str, message: str, detail: str, hint: str, query: str
) -> Iterator[LogEntry]:
    """Yield an entry and its addenda, in the order of stderr."""
    for kind, text in ((severity, message), ("DETAIL", detail), ("HINT", hint), ("STATEMENT", query)):
        if text or kind == severity:
            yield LogEntry(offset=offset, severity=kind, prefix=prefix[:_PREFIX_CHARACTERS], message=text)


_FORMATS: Final[Mapping[str, Callable[[bytes, LogLanguage], Iterator[LogEntry]]]] = {
    "csv": _from_csv,
    "json": _from_json,
}
