"""`sql_quoting` for psycopg: parts of composed statements. Its own Identifier and Literal leave characters unseen."""

from __future__ import annotations

from psycopg import sql

from pgtop_tune import sql_quoting


def identifier(*names: str) -> sql.SQL:
    """A name, or names joined by dots."""
    return _verbatim(".".join(sql_quoting.quoted(name) for name in names))


def literal(value: str | int | float) -> sql.Composable:
    """A value."""
    return _verbatim(sql_quoting.literal(value)) if isinstance(value, str) else sql.Literal(value)  # noqa: TID251


def _verbatim(text: str) -> sql.SQL:
    # Quoted, it is as good as a text of ours.
    return sql.SQL(text)
