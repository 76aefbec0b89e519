"""postgresql.auto.conf without a server: its lines, edited as ALTER SYSTEM would, and written so that a crash leaves
the old file or the new one.

Source: guc.c (replace_auto_config_value, write_auto_conf_file), guc-file.l.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pgtop_tune.base.errors import ClusterProblem
from pgtop_tune.base.paths import replacing
from pgtop_tune.process.mount_namespace import directory_at

FILE_NAME: Final = "postgresql.auto.conf"
_MOST_BYTES: Final = 16 * 2**20
_LINE: Final = re.compile(
    r"\s*(?P<name>[A-Za-z_][\w$]*(?:\.[A-Za-z_][\w$]*)*)\s*(?:=\s*|\s)"
    r"(?:'(?P<quoted>(?:[^'\\]|''|\\.)*)'|(?P<plain>[^\s#']+))\s*(?:#.*)?"
)
_LINES: Final = re.compile(r"[^\n]*\n|[^\n]+")
"""Lines as the server divides them: not at the other characters that Python does."""
_ESCAPED: Final = re.compile(r"''|\\([0-7]{1,3}|.)", re.DOTALL)
_CONTROL: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def settings(text: str) -> dict[str, str]:
    """Return the value by name of the lines that set one; of each name the last line, in the order of the lines."""
    values: dict[str, str] = {}
    for line in _LINES.findall(text):
        name, value = _parsed(line)
        if name:
            values.pop(name, None)
            values[name] = value
    return values


def with_line(text: str, name: str, value: str | None) -> str:
    """Return the text after ALTER SYSTEM SET: the new line goes to the end; None removes the lines of the name."""
    kept = [line for line in _LINES.findall(text) if _parsed(line)[0].lower() != name.lower()]
    if value is None:
        return "".join(kept)
    if kept and not kept[-1].endswith("\n"):
        kept[-1] += "\n"
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return "".join((*kept, f"{name} = '{escaped}'\n"))


def at_the_end(text: str, names: Sequence[str]) -> str:
    """Return the text with the lines of some names moved behind all others, in the order given."""
    values = settings(text)
    for name in names:
        text = with_line(text, name, values[name])
    return text


def read(data_directory: str) -> str:
    """Return the text of the file of a data directory, bytes that are not UTF-8 as surrogates.

    No link is followed: it might lead to another account's secrets.

    Raises:
        ClusterProblem: It cannot be read.
    """
    try:
        with directory_at(data_directory) as data:
            return data.read(FILE_NAME, _MOST_BYTES).decode("utf-8", "surrogateescape")
    except OSError as error:
        raise ClusterProblem(f"{data_directory}/{FILE_NAME} cannot be read: {error.strerror}") from None


def is_writable(data_directory: str) -> bool:
    """Return whether the file of a data directory is its server's to write: no link, and not read-only.

    Raises:
        ClusterProblem: The directory cannot be opened.
    """
    try:
        with directory_at(data_directory) as data:
            mode = data.mode_of(FILE_NAME, 0)
            return bool(mode & 0o200) or not data.has(FILE_NAME)
    except OSError as error:
        raise ClusterProblem(f"{data_directory} cannot be opened: {error.strerror}") from None


def write(data_directory: str, text: str) -> None:
    """Replace the file of a data directory; it gets the directory's owner, and is on the disk on return.

    Raises:
        ClusterProblem: It cannot be written; the old file remains.
    """
    try:
        with directory_at(data_directory) as data:
            data.replace(FILE_NAME, text.encode("utf-8", "surrogateescape"), data.mode_of(FILE_NAME, 0o600))
    except OSError as error:
        raise ClusterProblem(f"{data_directory}/{FILE_NAME} cannot be written: {error.strerror}") from None


def write_copy(target: Path, text: str) -> None:
    """Write a text into a file of ours, whole and on the disk.

    Raises:
        OSError: It cannot be made; the old file remains.
    """
    with replacing(target) as file:
        file.write(text.encode("utf-8", "surrogateescape"))
        file.flush()
        os.fsync(file.fileno())
    directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _parsed(line: str) -> tuple[str, str]:
    match = _LINE.fullmatch(line.rstrip("\r\n"))
    if match is None:
        return "", ""
    quoted = match["quoted"]
    return match["name"], match["plain"] if quoted is None else _ESCAPED.sub(_unescaped, quoted)


def _unescaped(match: re.Match[str]) -> str:
    """Return the character of an escape sequence, as DeescapeQuotedString does."""
    escape = match[1]
    if escape is None:
        return "'"
    return chr(int(escape, 8) & 0xFF) if escape[0] in "01234567" else _CONTROL.get(escape, escape)
