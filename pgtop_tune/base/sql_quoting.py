"""Foreign names and values as SQL that is shown, copied and written into files, and that means the same when it is run.

A name may hold a line break, an escape sequence or characters that turn the writing direction: between plain quotes one
statement would look like two, or like another. Such characters stand as Unicode escapes.

Source: PostgreSQL documentation, "Identifiers and Key Words" and "String Constants with C-Style Escapes", which do not
depend on standard_conforming_strings (U&'' does); libpq, PQescapeIdentifier.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NewType

from pgtop_tune.base.safe_text import is_plain

_QUOTED: Final = re.compile(r"""(?P<name>"(?:[^"]|"")*")|'(?:[^']|'')*'""")
_NAMED: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", "'": "''"}


Sql = NewType("Sql", str)
"""A part of a statement: quoted by this module, or written by us."""


def composed(template: str, **parts: Sql) -> Sql:
    """Return the template as a statement, with a part in place of each {name}.

    Args:
        template: Written by us, never foreign text.
        parts: Parts by name.
    """
    return Sql(template.format(**parts))


def joined(separator: str, parts: Iterable[Sql]) -> Sql:
    """Return parts with a separator of ours between them."""
    return Sql(separator.join(parts))


def identifier(*names: str) -> Sql:
    """Return a name, or names joined by dots. Raises as `quoted`."""
    return joined(".", (quoted(name) for name in names))


def quoted(name: str) -> Sql:
    """Return a name as SQL has it between double quotes, whatever is in it.

    Raises:
        ValueError: The name has a NUL, which no name in PostgreSQL can have.
    """
    if "\0" in name:
        raise ValueError("a name with a NUL")
    if is_plain(name):
        return Sql('"' + name.replace('"', '""') + '"')
    return Sql('U&"' + "".join(_of_a_name(character) for character in name) + '"')


def literal(value: str | int | float) -> Sql:
    """Return a text as SQL has it between single quotes, whatever is in it; a number as it is.

    Raises:
        ValueError: The text has a NUL, which no text in PostgreSQL can have.
    """
    if not isinstance(value, str):
        return Sql(repr(value))
    if "\0" in value:
        raise ValueError("a text with a NUL")
    if is_plain(value) and "\\" not in value:
        return Sql("'" + value.replace("'", "''") + "'")
    return Sql("E'" + "".join(_of_a_text(character) for character in value) + "'")


def conninfo_value(text: str) -> str:
    """Return a value of a libpq keyword, quoted."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def unmistakable(statement: str) -> str:
    """Return a statement as the server writes it (pg_get_indexdef), with its names and texts quoted as we do.

    Args:
        statement: Names between double quotes, texts between single ones without escapes: what the server makes of a
            stored definition with standard_conforming_strings on.
    """
    if is_plain(statement):
        return statement
    return _QUOTED.sub(_anew, statement)


def _anew(match: re.Match[str]) -> str:
    text = match[0]
    if is_plain(text):
        return text
    return quoted(text[1:-1].replace('""', '"')) if match["name"] else literal(text[1:-1].replace("''", "'"))


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


# Conditions for the owners whose objects a superuser may touch: for data sets, loads and extensions.
#
# Reading a table evaluates expressions of its owner, writing to it runs that role's triggers, and the owner of a schema
# or a database can put other objects in their place at any moment: all of it with the rights of the role that asks. So
# a superuser trusts only owners who could become that superuser anyway. Any other role risks only its own rights.

ME: Final = (
    "(SELECT r.oid, r.rolsuper, d.datdba FROM pg_roles r, pg_database d"
    " WHERE r.rolname = session_user AND d.datname = current_database()) me"
)
"""Subquery to join: this session's role, and the owner of its database."""


def real_owner(owner: str) -> str:
    """Return the SQL expression of the role behind an owner's oid, for use next to `ME`.

    pg_database_owner (the owner of public since 15) stands for the owner of the database.
    """
    return f"(CASE WHEN {owner} = 'pg_database_owner'::regrole THEN me.datdba ELSE {owner} END)"


def trusted(owner: str) -> str:
    """Return the SQL condition that this session may safely run an owner's code, for use next to `ME`."""
    return f"(NOT me.rolsuper OR pg_has_role({real_owner(owner)}, me.oid, 'MEMBER'))"
