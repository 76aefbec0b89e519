"""Beside the sessions on a wide screen: the most expensive statements, and the lock tree."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import age, count, ms, percent
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.blockers import LockNode, lock_tree
from pgtop_tune.metrics.statements import StatementRate, query_texts, statement_rates, unknown_text
from pgtop_tune.model.absence import NOT_YET, Unavailable
from pgtop_tune.model.statements import StatementSample
from pgtop_tune.model.waits import PREPARED_TRANSACTION
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.session_details import locked_object
from pgtop_tune.tui.widgets.lines import PLAIN, Cell, Column, Glyphs, Line, table_lines, wrap
from pgtop_tune.tui.widgets.phrase import Phrase, absence, head, labelled, padded

_TEXT: Final = 300
_STATEMENT_COLUMNS: Final = (
    Column("ms/s", 7, "right"),
    Column("time%", 5, "right"),
    Column("calls/s", 7, "right"),
    Column("mean ms", 7, "right"),
    Column("query", 20, elastic=True),
)
_LOCK_COLUMNS: Final = (
    Column("PID", 11),
    Column("waits", 6, "right"),
    Column("object", 30),
    Column("query", 20, elastic=True),
)
_HEAD_ROWS: Final = 2
_DEEPEST: Final = 2
"""Levels that are indented; the page of locks has the others."""


class TopStatements:
    """The statements of the newest sample by time; computed once for a sample, which several frames share."""

    def __init__(self) -> None:
        self._sample: StatementSample | None = None
        self._rates: list[StatementRate] = []

    def of(self, session: Session, most: int) -> list[StatementRate] | Unavailable:
        """Return so many statements, or why there are none."""
        sample = NOT_YET if session.now is None else sections.statement_counters(session.now)
        if isinstance(sample, Unavailable) or session.interval is None:
            return sample if isinstance(sample, Unavailable) else NOT_YET
        if sample is not self._sample:
            rates = [rate for rate in statement_rates(session.interval) if rate.ms_per_s]
            self._sample, self._rates = sample, sorted(rates, key=lambda rate: -(rate.ms_per_s or 0.0))
        return self._rates[:most]

    @staticmethod
    def texts(session: Session, rates: list[StatementRate]) -> dict[Hashable, str]:
        """Return their texts by query id, as pg_stat_statements or a session has them."""
        return {} if session.interval is None else query_texts(session.interval, (r.counters.queryid for r in rates))


def beside_sessions(session: Session, statements: TopStatements, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Return statements above, locks below; `height` lines of `width` cells."""
    tree, above = _divided(session, height)
    locks = [] if tree is None else _locks(tree, height - above - _HEAD_ROWS, width, glyphs)
    return [*_statements(session, statements, width, above, glyphs), *locks][:height]


def beside_row(session: Session, statements: TopStatements, height: int, y: int) -> StatementRate | LockNode | None:
    """Return the row that stands in a line of `beside_sessions`; None for heads and blank lines."""
    tree, above = _divided(session, height)
    rates = statements.of(session, above)
    rows = (tree or []) if y >= above else [] if isinstance(rates, Unavailable) else rates
    at = y - _HEAD_ROWS - (above if y >= above else 0)
    return rows[at] if 0 <= at < len(rows) else None


def _divided(session: Session, height: int) -> tuple[list[LockNode] | None, int]:
    """Return the lock tree, None where it is not known, and the rows of the statements above it."""
    activity = NOT_YET if session.now is None else sections.activity(session.now)
    if session.now is None or isinstance(activity, Unavailable):
        return None, height
    locks = sections.locks(session.now)
    tree = lock_tree(activity, None if isinstance(locks, Unavailable) else locks)
    return tree, max(height - max(min(len(tree) + _HEAD_ROWS, height // 2), _HEAD_ROWS), 0)


def _statements(session: Session, statements: TopStatements, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    rates = statements.of(session, height)
    lines = [head((("statements", "title"),), width, glyphs, [Phrase((("by time  5", "label"),))])]
    if isinstance(rates, Unavailable):
        (text, style), *_ = absence(rates)
        lines += [padded(((" ", PLAIN), (line, style)), width) for line in wrap(text, width - 2)]
        return [*lines, *[padded((), width)] * height][:height]
    if not rates:
        lines.append(padded(((" no statement ended since the sample before", "dim"),), width))
        return [*lines, *[padded((), width)] * height][:height]
    texts = statements.texts(session, rates)
    rows: list[tuple[Cell, ...]] = [
        (
            (ms(rate.ms_per_s), PLAIN), (percent(rate.share), PLAIN), (count(rate.calls_per_s), PLAIN),
            (ms(rate.mean_ms), PLAIN),
            (one_line(texts.get(rate.counters.queryid) or unknown_text(rate.counters.queryid), _TEXT), PLAIN),
        )
        for rate in rates
    ]  # fmt: skip
    return [*lines, *table_lines(_STATEMENT_COLUMNS, rows, width=width, height=height - 1, glyphs=glyphs)][:height]


def _locks(tree: list[LockNode], most: int, width: int, glyphs: Glyphs) -> list[Line]:
    """Return the head and the tree; one line says that there is none."""
    waiting = sum(node.waited_ms is not None for node in tree)
    title: Line = (("locks ", "title"), *labelled("waiting", str(waiting), "wait-lock" if waiting else PLAIN))
    lines = [head(title, width, glyphs, [Phrase((("4", "label"),))])]
    if not tree:
        return [*lines, padded(((" no session waits for a lock", "dim"),), width)]
    rows: list[tuple[Cell, ...]] = []
    for node in tree[: max(most, 0)]:
        name = "prepared" if node.pid == PREPARED_TRANSACTION else str(node.pid)
        pid_text = "  " * min(node.depth - 1, _DEEPEST) + "> " + name if node.depth else name
        query = one_line(node.prepared or (node.backend.query if node.backend else "") or "", _TEXT)
        rows.append(
            (
                (pid_text, "wait-lock" if node.depth else "critical"),
                ("" if node.waited_ms is None else age(node.waited_ms / 1000.0), PLAIN),
                ("" if node.wait is None else locked_object(node.wait), PLAIN),
                (query, PLAIN),
            )
        )
    return [*lines, *table_lines(_LOCK_COLUMNS, rows, width=width, height=len(rows) + 1, glyphs=glyphs)]
