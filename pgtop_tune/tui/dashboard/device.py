"""What the WAL device does beside what it was measured to do at most, as facts on a line."""

from __future__ import annotations

from typing import Final

from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.ceilings import CEILING_AGE, FLUSHES_USED, MOST_FLUSHES
from pgtop_tune.metrics.io import COMMITS_PER_FLUSH, WAL_FLUSHES
from pgtop_tune.tui.widgets.lines import PLAIN, Line
from pgtop_tune.tui.widgets.phrase import Phrase, alarm, labelled, lasting
from pgtop_tune.units import count, percent

_NEAR: Final = 80.0
_DAY_S: Final = 86_400.0


def device_phrases(interval: Interval) -> list[Phrase]:
    """Flushes of the ceiling with their share, and commits for each; nothing where nobody has measured."""
    most = MOST_FLUSHES(interval)
    if not most:
        return []
    used, each = FLUSHES_USED(interval), COMMITS_PER_FLUSH(interval)
    style = "warning" if used is not None and used >= _NEAR else PLAIN
    share = "" if used is None else f" ({percent(used)} %)"
    now = labelled("flushes", count(WAL_FLUSHES(interval)), alarm(used, FLUSHES_USED.critical, style), "/s of ")
    full: Line = (*now, (count(most), PLAIN), (share, alarm(used, FLUSHES_USED.critical, style)))
    found = [Phrase((*full, *_aged(interval)), 1 if style != PLAIN else 3, full)]
    if each is not None:
        found.append(Phrase(labelled("commits per flush", count(each)), 6))
    return found


def _aged(interval: Interval) -> Line:
    """A ceiling of another day may be that of another disk."""
    age_s = CEILING_AGE(interval)
    return () if age_s is None or age_s < _DAY_S else ((f" measured {lasting(age_s)} ago", "dim"),)
