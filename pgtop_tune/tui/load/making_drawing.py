"""A data set in the making, and what making one would mean. Pure."""

from __future__ import annotations

from typing import Final

from pgtop_tune.runtime.load_control import DataSetMade, MakingPreview, MakingProgress
from pgtop_tune.safe_text import one_line
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line
from pgtop_tune.tui.widgets.wrapping import wrapped
from pgtop_tune.units import age, count, size

_BAR: Final = 40
_FOUND: Final = 200


def making_lines(progress: MakingProgress | None, cells: int, glyphs: Glyphs) -> list[Line]:
    """The step under way, a bar where rows are counted, rate and remaining time."""
    if progress is None:
        return [((f"starting {glyphs.ellipsis}", "dim"),)]
    lines: list[Line] = [((progress.step, "strong"),)]
    if progress.total:
        share = min(max(progress.done / progress.total, 0.0), 1.0)
        bar = min(_BAR, max(cells - 6, 1))
        full = round(share * bar)
        done, rest = glyphs.full * full, glyphs.speck * (bar - full)
        lines.append(((done, "series-1"), (rest, "dim"), (f" {share:4.0%}", PLAIN)))
        lines += wrapped(_words(progress), cells)
    return lines


def short_words(progress: MakingProgress | None) -> str:
    """How far, in a few cells: "45 %, 20 s left"; "" where nobody says."""
    if progress is None or not progress.total:
        return "" if progress is None else progress.step
    left = "" if progress.remaining_s is None else f", {_seconds(progress.remaining_s)} left"
    return f"{min(progress.done / progress.total, 1.0):.0%}{left}"


def preview_lines(preview: MakingPreview, cells: int) -> list[Line]:
    """Room on disk, what would go, and what else is to be known."""
    if preview.available_bytes is None:
        free = f"free space is unknown: {preview.why}"
    else:
        free = f"{size(preview.available_bytes)} are free"
    lines: list[Line] = []
    if preview.needed_bytes:
        lines += wrapped(f"the tables need about {size(preview.needed_bytes)} of disk, {free}", cells)
    lines += wrapped(one_line(preview.note, _FOUND), cells) if preview.note else []
    if preview.dropped:
        database, there = one_line(preview.database, 60), one_line(preview.dropped, _FOUND)
        lines += wrapped(f"the database {database} holds {there}. It will be dropped.", cells, "warning")
    return lines


def made_lines(made: DataSetMade, cells: int) -> list[Line]:
    """Seconds of each step."""
    if not made.steps_s:
        return wrapped(f"{made.title}: it existed already", cells, "good")
    rows = [*made.steps_s, ("total", made.total_s)]
    return [
        ((f"made: {made.title}", "good"),),
        *(((f"  {name:<24}", "label"), (f"{seconds:8.2f} s", PLAIN)) for name, seconds in rows),
    ]


def _words(progress: MakingProgress) -> str:
    about = "about " if progress.estimated else ""
    parts = [f"{about}{count(progress.done)} of {count(progress.total)} {progress.unit}"]
    parts += [f"{count(progress.per_s)} {progress.unit}/s"] if progress.per_s is not None else []
    parts += [f"{_seconds(progress.remaining_s)} left"] if progress.remaining_s is not None else []
    return ", ".join(parts)


def _seconds(value: float) -> str:
    text = age(value)
    return text if text[-1].isalpha() else f"{text} s"
