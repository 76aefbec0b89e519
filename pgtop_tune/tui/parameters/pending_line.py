"""The line of a pending change set: time until auto-revert, the keys, and its changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgtop_tune.tui.parameters.change_words import told
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line, fit
from pgtop_tune.tui.widgets.phrase import Phrase, fitting

if TYPE_CHECKING:
    from pgtop_tune.changes.confirm.pending_sets import Pending


def pending_line(pending: Pending, now_ms: int, cells: int, glyphs: Glyphs, keep: str = "Y", undo: str = "u") -> Line:
    """One line of at most so many cells.

    Args:
        pending: The set that awaits confirmation.
        now_ms: Milliseconds since the epoch.
        cells: Width.
        glyphs: Characters.
        keep, undo: The keys.
    """
    what = "; ".join(told(change) for change in pending.changes).replace("→", glyphs.arrow)
    if pending.reverting:
        failed = f" ({pending.problem}; retrying)" if pending.problem else ""
        return fit(((f" reverting: {pending.reverting}{failed}: {what}", "critical"),), cells)
    left_s = pending.remaining_s(now_ms)
    wires = "" if not pending.wires else f"or at {' '.join(wire.text for wire in pending.wires)}"
    adopted = f"adopted from {pending.adopted_from}" if pending.adopted_from else ""
    parts = (
        Phrase(((f"auto-revert in {left_s:.0f} s", "critical" if left_s < 10 else "warning"),)),
        Phrase(((keep, "key"), (" confirm", PLAIN))),
        Phrase(((undo, "key"), (" undo", PLAIN))),
        Phrase(((pending.problem, "critical"),) if pending.problem else (), 1),
        Phrase(((what, "strong"),), 1),
        Phrase(((f"{glyphs.separator} {adopted}", "warning"),) if adopted else (), 2),
        Phrase(((f"{glyphs.separator} {wires}", "dim"),) if wires else (), 3),
    )
    return ((" ", PLAIN), *fitting(parts, cells - 1, ("  ", PLAIN)))
