"""Our own sessions on the server: their statistics, which are subtracted, and their time limits."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from pgtop_tune.model.postgres import Parameter
from pgtop_tune.model.statements import OWN_MARK


class OwnSessions(Struct):
    """Statistics of our sessions, shared by the reader and the control of one process.

    Attributes:
        pids: Backends of our connected sessions.
        pooled: Whether a pooler lends us backends of others, which are known by application_name while we use them.
        statements: Statements sent since the start, including failed ones.
        calls: Statements that pg_stat_statements counted.
        transactions: Transactions finished since the start.
        watchers: Watching sessions of other instances of this program at the last reading.
        statement_ms: Wall time spent waiting for answers.
        stuck: Backends that did not answer, by the location of the files they read (`file_looks.place_of`).
        looks: A lock for each location: only one of our sessions may read its files at a time.
    """

    pids: set[int] = field(default_factory=set)
    statements: int = 0
    calls: int = 0
    transactions: int = 0
    pooled: bool = False
    watchers: int = 0
    statement_ms: float = 0.0
    stuck: dict[str, int] = {}
    looks: dict[str, asyncio.Lock] = {}


def marked(text: str) -> str:
    """Mark a statement as ours for pg_stat_statements.

    The mark is behind the first word, because pg_stat_statements drops a comment before it, and may cut the end. Do
    not mark statements that others send as well (BEGIN, COMMIT, SET): from PostgreSQL 16 on they share one query id.
    """
    verb, *tail = text.split(maxsplit=1)
    return " ".join((verb, OWN_MARK, *tail))


READ_ONLY_BEGIN: Final = marked("BEGIN READ ONLY, NOT DEFERRABLE")
"""Begin of a transaction, written as nobody else writes it, so that its query id is ours alone."""

# Limits that end a statement or a session after some time. Our own sessions lift them, so that one that is too low can
# still be seen and reverted.
#
# Our session overrides them, so pg_settings shows our values. The values of other sessions come from the files and from
# pg_settings.reset_val. Source: documentation of "Statement Behavior"; guc.c (ShowGUCOption).

LIMITS: Final = {
    "statement_timeout": 14,
    "lock_timeout": 14,
    "idle_in_transaction_session_timeout": 14,
    "idle_session_timeout": 14,
    "transaction_timeout": 17,
}
"""Limits, each with its first major."""
ALL_SINCE: Final = max(LIMITS.values())
_BITES: Final = frozenset({"57014", "25P03", "25P04", "57P05"})
"""sqlstates of a statement or a session that a limit has ended."""
_CUT: Final = re.compile(
    "transaction timeout|idle-session timeout|terminated abnormally|closed the connection"
    "|closed in the middle of operation|another operation .* is in progress"
)
"""Messages about a session that a limit has ended at its start; libpq reports no sqlstate then, nor does asyncpg
where the server's last message came between two statements."""
_LIMIT: Final = re.compile("(statement|transaction|idle-session) timeout")
IN_FILES: Final = """
SELECT DISTINCT ON (lower(name)) lower(name) AS name, setting, sourcefile || ':' || sourceline AS place
  FROM pg_file_settings WHERE lower(name) = ANY(%s) AND error IS NULL ORDER BY lower(name), seqno DESC
"""
"""Query for the effective line of each name; for superusers only, unless granted."""

_UNITS_MS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1))
_VALUE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*")


def of_major(major: int) -> tuple[str, ...]:
    """Return the limits that a server of this major has."""
    return tuple(name for name, since in LIMITS.items() if major >= since)


def bites(message: str, sqlstate: str) -> bool:
    """Return whether a limit may have ended a session, by the message and the sqlstate of its failure."""
    return sqlstate in _BITES or (not sqlstate and _CUT.search(message) is not None)


def ended_by_limit(message: str, sqlstate: str) -> bool:
    """Return whether a limit has certainly ended a session; where only `bites` holds, it may have crashed."""
    return sqlstate in _BITES or (not sqlstate and _LIMIT.search(message) is not None)


def lifting(names: Sequence[str]) -> str:
    """Return a statement that lifts some limits for a session."""
    return "SELECT " + ", ".join(f"pg_catalog.set_config('{name}', '0', false)" for name in names)


def options(names: Sequence[str]) -> str:
    """Return options of the start-up packet that lift some limits, before one can end the session."""
    return " ".join(f"-c {name}=0" for name in names)


def is_lifted(row: Parameter) -> bool:
    """Return whether a row of pg_settings shows a limit that our own session has lifted."""
    return row.name in LIMITS and row.setting == "0" and row.source in ("session", "client")


def as_set(row: Parameter, line: tuple[str, str] | None, *, from_start: bool) -> Parameter:
    """Return a limit with the value of other sessions.

    Args:
        row: Row of pg_settings in our session.
        line: The limit's value and line in the files; None without a line, or without the right to read the files.
        from_start: Whether the limit was lifted in the start-up packet, so that reset_val is our own 0 as well.
    """
    milliseconds = _ms(line[0]) if from_start and line is not None else int(row.reset_val or 0)
    source = "configuration file" if line is not None else "default" if str(milliseconds) == row.boot_val else "user"
    return replace(
        row,
        setting=str(milliseconds),
        shown=_shown(milliseconds),
        source=source,
        sourcefile=line[1] if line is not None else "",
    )


def _ms(text: str) -> int:
    match = _VALUE.fullmatch(text)
    size = dict(_UNITS_MS).get(match[2] or "ms") if match is not None else None
    return round(float(match[1]) * size) if match is not None and size is not None else 0


def _shown(milliseconds: int) -> str:
    """Format milliseconds as SHOW does: in the largest unit that gives a whole number."""
    return next(
        (f"{milliseconds // size}{unit}" for unit, size in _UNITS_MS if milliseconds and milliseconds % size == 0), "0"
    )
