"""A banner over the screen while a value is in force that can lose data: read off the frames, so a replay has it."""

from __future__ import annotations

from pgtop_tune.metrics.durability import at_risk
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import Line, clip


def danger_line(session: Session, cells: int, glyphs: Glyphs) -> Line | None:
    """One line of exactly so many cells; None when nothing is at risk.

    Args:
        session: What is shown.
        cells: Width.
        glyphs: Characters.
    """
    found = () if session.interval is None else session.interval.once(at_risk)
    if not found:
        return None
    words = f" {glyphs.separator} ".join(f"{risk.name}={risk.value} can lose {risk.loss}" for risk in found)
    return ((clip(f" {glyphs.warning} {words}".replace("×", glyphs.times), cells), "danger"),)
