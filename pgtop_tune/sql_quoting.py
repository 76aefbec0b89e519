"""Foreign names and values as SQL that is shown, copied and written into files, and that means the same when it is run.

A name may hold a line break, an escape sequence or characters that turn the writing direction: between plain quotes one
statement would look like two, or like another. Such characters stand as Unicode escapes.

Source: PostgreSQL documentation, "Identifiers and Key Words" and "String Constants with C-Style Escapes", which do not
depend on standard_conforming_strings (U&'' does); libpq, PQescapeIdentifier.
"""

from __future__ import annotations

import re
from typing import Final

from pgtop_tune.safe_text import is_plain

_QUOTED: Final = re.compile(r"""(?P<name>"(?:[^"]|"")*")|'(?:[^']|'')*'""")
_NAMED: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", "'": "''"}


def quoted(name: str) -> str:
    """A name as SQL has it between double quotes, whatever is in it.

    Raises:
        ValueError: It has a NUL, which no name can have.
    """
    if "\0" in name:
        raise ValueError("a name with a NUL")
    if is_plain(name):
        return '"' + name.replace('"', '""') + '"'
    return 'U&"' + "".join(_of_a_name(character) for character in name) + '"'


def literal(value: str) -> str:
    """A text as SQL has it between single quotes, whatever is in it.

    Raises:
        ValueError: It has a NUL, which no text can have.
    """
    if "\0" in value:
        raise ValueError("a text with a NUL")
    if is_plain(value) and "\\" not in value:
        return "'" + value.replace("'", "''") + "'"
    return "E'" + "".join(_of_a_text(character) for character in value) + "'"


def unmistakable(statement: str) -> str:
    """A statement as the server writes it (pg_get_indexdef), with its names and texts quoted as we do.

    Args:
        statement: Names between double quotes, texts between single ones without escapes: what the server makes of a
            stored definition with standard_conforming_strings on.
    """
    if is_plain(statement):
        return statement
    return _QUOTED.sub(_anew, statement)


def _anew(found: re.Match[str]) -> str:
    text = found[0]
    if is_plain(text):
        return text
    return quoted(text[1:-1].replace('""', '"')) if found["name"] else literal(text[1:-1].replace("''", "'"))


def _of_a_name(character: str) -> str:
    if character in '"\\':
        return character * 2
    if is_plain(character):
        return character
    code = ord(character)
    return f"\\{code:04X}" if code < 0x10000 else f"\\+{code:06X}"


def _of_a_text(character: str) -> str:
    if character in _NAMED:
        return _NAMED[character]
    if is_plain(character):
        return character
    code = ord(character)
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"
