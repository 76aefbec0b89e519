"""What is staged as one set, below the list: its SQL, for whom, what waits; and the figures it is made for. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pgtop_tune.metrics.latency import P50, P99
from pgtop_tune.metrics.load import CLIENT_TPS
from pgtop_tune.metrics.server import TPS, WAL_BYTES
from pgtop_tune.model.bench import estimate_mark
from pgtop_tune.runtime.newest_latency import newest_latency
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.parameters.staged import Conditions, OneSet
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import Line
from pgtop_tune.tui.widgets.phrase import lasting
from pgtop_tune.tui.widgets.wrapping import wrapped
from pgtop_tune.units import count, size, with_ms

_SQL_LINES: Final = 3


def set_lines(
    wanted: OneSet, sql: Sequence[str] | None, conditions: Conditions, cells: int, glyphs: Glyphs, *, roomy: bool
) -> list[Line]:
    """The exact SQL of the whole set, for whom it is, and what waits.

    Args:
        wanted: What is staged.
        sql: Its statements; None while they are being composed.
        conditions: The operator's.
        cells: Width.
        glyphs: Characters.
        roomy: Whether there is room for what becomes of sessions already connected.
    """
    lines: list[Line] = []
    if sql is not None and (wanted.live or wanted.machine):
        lines += wrapped(_applied(sql), cells, "strong")
        if not fits(sql, cells):
            lines = [*lines[: _SQL_LINES - 1], ((f"{glyphs.ellipsis} a shows all of it", "dim"),)]
        lines += wrapped(trial_words(conditions), cells, "dim")
    if any(row.setting is not None and not row.setting.writable for row in wanted.machine):
        lines += wrapped(
            "this process may not change the machine: a shows the commands to run as root", cells, "warning"
        )
    if wanted.next_load:
        options = " ".join(
            f"-c {name}={value}" if value is not None else f"without {name}" for name, value in wanted.next_load
        )
        words = f"apply: the next load begins with {options}; nothing changes on the server"
        lines += wrapped(words, cells, "" if wanted.live else "strong")
    if roomy:
        lines += [line for words in wanted.connected for line in wrapped(words, cells, "dim")]
    if wanted.restart:
        names = ", ".join(row.name for row in wanted.restart)
        lines += wrapped(f"waits for a restart (A): {names}", cells, "warning")
    return lines


def fits(sql: Sequence[str], cells: int) -> bool:
    """Whether all of the SQL is shown below the list."""
    return len(wrapped(_applied(sql), cells)) <= _SQL_LINES


def _applied(sql: Sequence[str]) -> str:
    *first, last = (each.rstrip().removesuffix(";") for each in sql)
    return f"apply: {''.join(f'{each}; ' for each in first)}{last}{';' if sql[-1].endswith(';') else ''}"


def trial_words(conditions: Conditions) -> str:
    """How long a set is on trial, and what ends it."""
    if conditions.keep_within_s is None:
        return "confirmed at once, without a deadline"
    wires = f", or at once at {conditions.wires}" if conditions.wires else ""
    return f"auto-revert after {conditions.keep_within_s:g} s{wires}"


def figures_line(session: Session) -> Line:
    """The numbers a change is made for, as they are now."""
    interval, newest = session.interval, session.once(newest_latency)
    if interval is None:
        return (("waiting for the first frame", "dim"),)
    client = CLIENT_TPS(interval)
    tps = TPS(interval) if client is None else client
    figures: list[tuple[str, str]] = [("now  ", "label"), ("tps ", "label"), (count(tps).ljust(7), "strong")]
    if newest.stalled_s is not None:
        figures.append((f"no transaction has ended for {lasting(newest.stalled_s)}   ", "critical"))
    elif newest.second is not None:
        for quantile in (P50, P99):
            value_ms = newest.second.at(quantile)
            mark = estimate_mark(value_ms, newest.second.span_counted_below_ms)
            figures += [(f"{quantile.title} ", "label"), ((mark + with_ms(value_ms)).ljust(10), "strong")]
    return (*figures, ("WAL ", "label"), (f"{size(WAL_BYTES(interval))}B/s", "strong"))
