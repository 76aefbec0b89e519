"""Whether numbers of ten seconds still hold what was before a change."""

from __future__ import annotations

from typing import Final

from pgtop_tune.diagnosis.facts import WINDOW_S, Facts
from pgtop_tune.metrics.load import work_window_s
from pgtop_tune.model.events import Event, EventKind

_WORDS: Final = {
    EventKind.PARAMETER: "a parameter was changed",
    EventKind.SWITCH: "an experiment switched",
    EventKind.RESTART: "the server was started",
    EventKind.ROLE: "the server's role changed",
    EventKind.LOAD: "the load changed",
}


def settling_words(facts: Facts) -> str | None:
    """The change of the last ten seconds that the numbers mix with what was before; None without one."""
    interval = facts.interval
    now_s, now_ms = interval.newest.elapsed_s, interval.newest.taken_at_ms
    newest: Event | None = None
    for frame in reversed(interval.frames):
        if frame.elapsed_s <= now_s - WINDOW_S:
            break
        for event in reversed(frame.events):
            if event.kind in _WORDS and (newest is None or event.at_ms > newest.at_ms):
                newest = event
    if newest is not None:
        return f"{_WORDS[newest.kind]} {max(now_ms - newest.at_ms, 0) / 1000:.0f} s ago"
    if facts.run is not None:
        worked_s = work_window_s(interval, WINDOW_S)
        if worked_s is None:
            return "the load begins"
        if worked_s < WINDOW_S - 1.0:
            return f"the load has worked for {worked_s:.0f} s"
    return None
