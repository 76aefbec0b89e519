"""Who gets how many rows of the dashboard: figures their few, sessions what they need, charts the rest."""

from __future__ import annotations

from typing import Final

from pgtop_tune.tui.dashboard.latency import CLOCK_ROWS

ORDER: Final = ("header", "host", "throughput", "latency", "tape", "budget", "wal", "sessions", "footer")
"""Panes from top to bottom."""

_STEPS: Final[tuple[tuple[tuple[str, int], ...], ...]] = (
    (("sessions", 4),),
    (("throughput", 1),),
    (("host", 3),),
    (("latency", 1),),
    (("budget", 2),),
    (("wal", 1),),
    (("tape", 1),),
)
"""On a screen too low for charts: rows added together or not at all; the first step that does not fit ends it."""
_CHARTS_FROM: Final = 20
"""Rows from which on throughput and latency are charts."""
_SHARE: Final = 3
"""They have at least every third row,"""
_LEAST: Final = 8
"""and so many."""
_FEWEST_SESSIONS: Final = 4
_WIDE: Final = 150
"""From here on one line of the WAL pane holds everything."""
_ROOMY: Final = 32
_LARGE: Final = 48
_HUGE: Final = 64
MANY: Final = 1_000
"""Sessions that want every row there is."""


def dashboard_layout(
    width: int, height: int, sessions: int = MANY, *, measured: bool = True
) -> tuple[tuple[str, int], ...]:
    """Panes from top to bottom with their rows; the rows add up to the height.

    Args:
        width: Cells of the screen.
        height: Rows of the screen.
        sessions: Rows that the pane of sessions can fill; charts take what it does not need.
        measured: Whether there are latencies; without any one line says so, and throughput has both charts' rows.
    """
    rows = {"header": 1, "footer": 1}
    left = height - sum(rows.values())
    if height < _CHARTS_FROM:
        rows["sessions"] = 0
        for step in _STEPS:
            wanted = sum(count for _, count in step)
            if wanted > left:
                break
            for pane, count in step:
                rows[pane] = rows.get(pane, 0) + count
            left -= wanted
        rows["sessions"] += left
    else:
        rows |= _figures(width, height)
        left = height - sum(rows.values())
        charts = min(max(left - sessions, height // _SHARE, _LEAST), left - _FEWEST_SESSIONS)
        rows["throughput"], rows["latency"] = _charts(charts) if measured else (charts - 1, 1)
        rows["sessions"] = left - rows["throughput"] - rows["latency"]
    return tuple((pane, rows[pane]) for pane in ORDER if rows.get(pane))


def _figures(width: int, height: int) -> dict[str, int]:
    taller = (height >= _ROOMY) + (height >= (_HUGE if width >= _WIDE else _LARGE))
    return {
        "host": 3 + (height >= _ROOMY) + (height >= _HUGE),
        "tape": 1,
        "budget": 2 + taller,
        "wal": 2 if height >= _ROOMY and width < _WIDE else 1,
    }


def _charts(rows: int) -> tuple[int, int]:
    """Rows of both panes, with equally high pictures: the latency pane has one more where it has times of day."""
    each = (rows - 1) // 2
    return (each, each + 1) if each + 1 >= CLOCK_ROWS else (rows // 2, rows // 2)


_ROUNDED: Final = 4
_SLACK: Final = 7


def sessions_wanted(count: int, before: int) -> int:
    """Rows that so many rows of sessions ask for, rounded up: the layout stands still while they come and go.

    Args:
        count: Rows there are.
        before: What was asked for until now.
    """
    return before if before - _SLACK <= count <= before else -(-count // _ROUNDED) * _ROUNDED
