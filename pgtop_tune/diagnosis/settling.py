"""Whether numbers of ten seconds still hold what was before a change."""

from __future__ import annotations

from typing import Final

from pgtop_tune.diagnosis.blockers import jam_over_s
from pgtop_tune.diagnosis.facts import WINDOW_S, Facts
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.load import work_window_s
from pgtop_tune.metrics.stall import stalls
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
        over_s = _stall_over_s(facts)
        if facts.stalled_s is None and over_s is not None:
            return f"a stall ended {over_s:.0f} s ago"
        worked_s = work_window_s(interval, WINDOW_S)
        if worked_s is None:
            return "the load begins"
        if worked_s < WINDOW_S - 1.0:
            return f"the load has worked for {worked_s:.0f} s"
    over_s = jam_over_s(facts.roots, now_s) if facts.roots else None
    if over_s is not None and over_s < WINDOW_S and facts.stalled_s is None:
        return f"a lock jam ended {over_s:.0f} s ago"
    return None


def _stall_over_s(facts: Facts) -> float | None:
    """How long ago the last stall of the load ended, where the means still hold seconds of it; None without one."""
    now_ms = facts.interval.newest.taken_at_ms
    ends_ms = [
        silence.until_ms
        for sample in facts.interval.recent(sections.bench, WINDOW_S)
        if facts.run is not None and sample.run.run == facts.run.run
        for silence in stalls(sample, now_ms)
        if silence.until_ms is not None
    ]
    over_s = max(now_ms - max(ends_ms), 0) / 1000.0 if ends_ms else None
    return over_s if over_s is not None and over_s < WINDOW_S else None
