"""What our own sessions did on the server, so that it can be left out of what the others did."""

from __future__ import annotations

from msgspec import Struct, field

from pgtop_tune.model.statements import OWN_MARK


class OwnSessions(Struct):
    """Shared by the reader and the control of one process.

    Attributes:
        pids: Backends of ours that are connected now.
        pooled: A pooler lends us other people's backends; they are known by our name while they bear it.
        statements: Statements sent since the start, failed ones included.
        calls: Those of them that pg_stat_statements counted.
        transactions: Transactions finished since the start.
        statement_ms: Wall time spent waiting for them.
    """

    pids: set[int] = field(default_factory=set)
    statements: int = 0
    calls: int = 0
    transactions: int = 0
    pooled: bool = False
    statement_ms: float = 0.0


def marked(text: str) -> str:
    """A statement that pg_stat_statements will show to be ours.

    The mark stands behind the first word: what stands before it pg_stat_statements drops, what stands last may be cut.
    Not for what others send as well (BEGIN, COMMIT, SET): from PostgreSQL 16 on such a statement has one query id.
    """
    verb, *rest = text.split(maxsplit=1)
    return " ".join((verb, OWN_MARK, *rest))
