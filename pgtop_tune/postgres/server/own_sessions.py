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
    """Shared by the reader and the control of one process.

    Attributes:
        pids: Backends of ours that are connected now.
        pooled: A pooler lends us other people's backends; they are known by our name while they bear it.
        statements: Statements sent since the start, failed ones included.
        calls: Those of them that pg_stat_statements counted.
        transactions: Transactions finished since the start.
        watchers: Sessions with which other instances of this program watch the server, at the last look.
        statement_ms: Wall time spent waiting for them.
        stuck: Backends that did not answer, by the place whose files they look at (`file_looks.place_of`).
        looks: One of our sessions looks at a place at a time: of two, both would be held up.
    """

    pids: set[int] = field(default_factory=set)
    statements: int = 0
    calls: int = 0
    transactions: int = 0
    pooled: bool = False
    watchers: int = 0
    statement_ms: float = 0.0
    stuck: dict[str, int] = field(default_factory=dict)
    looks: dict[str, asyncio.Lock] = field(default_factory=dict)


def marked(text: str) -> str:
    """A statement that pg_stat_statements will show to be ours.

    The mark stands behind the first word: what stands before it pg_stat_statements drops, what stands last may be cut.
    Not for what others send as well (BEGIN, COMMIT, SET): from PostgreSQL 16 on such a statement has one query id.
    """
    verb, *tail = text.split(maxsplit=1)
    return " ".join((verb, OWN_MARK, *tail))


# Parameters that end a statement or a session after a while: our own sessions have none, so that one that is set
# too
# low can still be looked at and taken back.
#
# Our session overrides them, so pg_settings shows what it has and not what is set. What is set is read off the
# files and
# pg_settings.reset_val, and never lived under. Source: documentation of "Statement Behavior"; guc.c
# (ShowGUCOption).

LIMITS: Final = {
    "statement_timeout": 14,
    "lock_timeout": 14,
    "idle_in_transaction_session_timeout": 14,
    "idle_session_timeout": 14,
    "transaction_timeout": 17,
}
"""Parameter and the major that brought it."""
ALL_SINCE: Final = max(LIMITS.values())
_BITES: Final = frozenset({"57014", "25P03", "25P04", "57P05"})
"""sqlstates of a statement or a session that a limit has ended."""
_CUT: Final = re.compile(
    "transaction timeout|idle-session timeout|terminated abnormally|closed the connection"
    "|closed in the middle of operation|another operation .* is in progress"
)
"""What is said of a session that a limit has ended while it began; libpq tells no sqlstate then, nor asyncpg where the
server's last words came between two statements."""
_LIMIT: Final = re.compile("(statement|transaction|idle-session) timeout")
IN_FILES: Final = """
SELECT DISTINCT ON (lower(name)) lower(name) AS name, setting, sourcefile || ':' || sourceline AS place
  FROM pg_file_settings WHERE lower(name) = ANY(%s) AND error IS NULL ORDER BY lower(name), seqno DESC
"""
"""The line that counts of each name; superusers only unless granted."""

_UNITS_MS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1))
_VALUE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*")


def of_major(major: int) -> tuple[str, ...]:
    """The limits that a server has."""
    return tuple(name for name, since in LIMITS.items() if major >= since)


def bites(message: str, sqlstate: str) -> bool:
    """Whether a limit may have ended a session, by the words and the sqlstate of its failure."""
    return sqlstate in _BITES or (not sqlstate and _CUT.search(message) is not None)


def ended_by_limit(message: str, sqlstate: str) -> bool:
    """Return whether a limit has surely ended a session; for `bites` the session may as well have crashed."""
    return sqlstate in _BITES or (not sqlstate and _LIMIT.search(message) is not None)


def lifting(names: Sequence[str]) -> str:
    """A statement that lifts them for a session."""
    return "SELECT " + ", ".join(f"pg_catalog.set_config('{name}', '0', false)" for name in names)


def options(names: Sequence[str]) -> str:
    """The same in the start-up packet: before a limit can bite."""
    return " ".join(f"-c {name}=0" for name in names)


def is_lifted(row: Parameter) -> bool:
    """Whether a row of pg_settings shows a limit that our own session has lifted, while it ran or from its start."""
    return row.name in LIMITS and row.setting == "0" and row.source in ("session", "client")


def as_set(row: Parameter, line: tuple[str, str] | None, *, from_start: bool) -> Parameter:
    """A limit as other sessions have it, not ours.

    Args:
        row: What pg_settings shows in our session.
        line: Its value and place in the files; None where there is none or we may not look.
        from_start: Lifted in the start-up packet: then reset_val is our own 0 as well.
    """
    number = _ms(line[0]) if from_start and line is not None else int(row.reset_val or 0)
    source = "configuration file" if line is not None else "default" if str(number) == row.boot_val else "user"
    return replace(
        row, setting=str(number), shown=_shown(number), source=source, sourcefile=line[1] if line is not None else ""
    )


def _ms(text: str) -> int:
    match = _VALUE.fullmatch(text)
    size = dict(_UNITS_MS).get(match[2] or "ms") if match is not None else None
    return round(float(match[1]) * size) if match is not None and size is not None else 0


def _shown(number: int) -> str:
    """As SHOW prints it: in the largest unit of which it is a whole number."""
    return next((f"{number // size}{unit}" for unit, size in _UNITS_MS if number and number % size == 0), "0")
