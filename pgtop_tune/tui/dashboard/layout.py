"""Who gets how many rows: the dashboard grows by steps in order of importance, what is left goes to the sessions."""

from __future__ import annotations

from typing import Final

ORDER: Final = ("header", "host", "throughput", "latency", "tape", "budget", "wal", "sessions", "footer")
"""Panes from top to bottom."""

_STEPS: Final[tuple[tuple[tuple[str, int], ...], ...]] = (
    (("header", 1), ("footer", 1), ("sessions", 4)),
    (("throughput", 1),),
    (("host", 3),),
    (("latency", 1),),
    (("budget", 2),),
    (("wal", 1),),
    (("tape", 1),),
    (("sessions", 9),),
    (("throughput", 4), ("latency", 4)),
    (("wal", 1), ("budget", 1)),
    (("sessions", 7),),
    (("host", 1),),
    (("throughput", 1), ("latency", 1)),
    (("sessions", 4),),
    (("throughput", 2), ("latency", 2)),
    (("sessions", 6),),
    (("throughput", 2), ("latency", 2), ("budget", 1)),
    (("sessions", 8),),
    (("throughput", 2), ("latency", 2), ("host", 1)),
)
"""Rows added together or not at all; the first step that does not fit ends the growth. 24 rows take all up to the
first nine of the sessions; from 32 on both charts have room for a picture."""

_WIDE: Final = 150
"""From here on one line of the WAL pane holds everything."""


def dashboard_layout(width: int, height: int) -> tuple[tuple[str, int], ...]:
    """Panes from top to bottom with their rows; the rows add up to the height.

    Args:
        width: Cells of the screen.
        height: Rows of the screen. What is left after the steps goes to the sessions.
    """
    rows: dict[str, int] = {"sessions": 0}
    left = height
    for step in _STEPS:
        wanted = sum(count for _, count in step)
        if wanted > left:
            break
        for pane, count in step:
            rows[pane] = rows.get(pane, 0) + count
        left -= wanted
    if width >= _WIDE and rows.get("wal", 0) > 1:
        left += rows["wal"] - 1
        rows["wal"] = 1
    rows["sessions"] += left
    return tuple((pane, rows[pane]) for pane in ORDER if rows.get(pane))
