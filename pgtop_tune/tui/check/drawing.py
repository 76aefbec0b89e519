"""How the check is drawn: a line for each finding, words on the selected one, and all that is known of one. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pgtop_tune.health.check import Confidence, Finding
from pgtop_tune.health.formats.text import about, summary
from pgtop_tune.health.report import Report, documentation
from pgtop_tune.safe_text import one_line
from pgtop_tune.tui.check.table import CheckRow, CheckTable
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line, clip, shortened
from pgtop_tune.tui.widgets.wrapping import labelled, wrapped

_STYLES: Final = {"critical": "critical", "high": "critical", "warning": "warning", "info": PLAIN, "unknown": "dim"}
_KIND_CELLS: Final = 9
_ID_CELLS: Final = 9
_MARK_CELLS: Final = 4
_WORDS_LINES: Final = 3
_FIX_LINES: Final = 2
_LABEL_CELLS: Final = 10


def check_lines(table: CheckTable, cells: int, rows: int, glyphs: Glyphs) -> list[Line]:
    """At most so many rows, around the cursor.

    Args:
        table: What the check said.
        cells: Width.
        rows: Lines at most.
        glyphs: Characters.
    """
    top = min(max(table.cursor - rows // 2, 0), max(len(table.rows) - rows, 0))
    tagged = {row.key for row in table.tagged}
    return [
        _row_line(row, row is table.selected, row.key in tagged, cells, glyphs) for row in table.rows[top : top + rows]
    ]


def _row_line(row: CheckRow, at_cursor: bool, tagged: bool, cells: int, glyphs: Glyphs) -> Line:
    words = max(cells - _MARK_CELLS - _KIND_CELLS - _ID_CELLS, 1)
    style = _STYLES[row.kind]
    return (
        (f"{glyphs.pointer} " if at_cursor else "  ", "key"),
        (f"{glyphs.bullet} " if tagged else "  ", "event-parameter"),
        (clip(row.kind, _KIND_CELLS), style),
        (clip(row.check.id, _ID_CELLS), "label"),
        (
            shortened(_says(row), words, glyphs.ellipsis),
            "cursor" if at_cursor else "dim" if row.kind == "unknown" else PLAIN,
        ),
    )


def _says(row: CheckRow) -> str:
    if isinstance(row.said, Finding):
        return about(row.said)
    return one_line(f"{row.check.title}: {row.said.reason}")


def selected_lines(row: CheckRow, cells: int) -> list[Line]:
    """The selected row in full, and what mends it, as far as few lines hold it."""
    lines = wrapped(_says(row), cells, "strong")[:_WORDS_LINES]
    if row.fix is not None:
        lines += labelled("fix", row.fix.do, cells, PLAIN, _LABEL_CELLS)[:_FIX_LINES]
    return lines


def summary_line(report: Report, glyphs: Glyphs) -> str:
    """How many of each, unknowns among them, and of which server."""
    counted = summary(report, everything=True).replace("·", glyphs.separator)
    return f"{counted} {glyphs.separator} {one_line(report.server)}" if report.server else counted


def measured_words(report: Report) -> str:
    """What a measurement has found, and what it could not; one sentence each."""
    found = [one_line(each.says) for each in report.ceilings]
    return "; ".join([*found, *(f"{one_line(what)}: {one_line(why)}" for what, why in report.not_measured)])


def details_lines(row: CheckRow, report: Report, cells: int) -> list[Line]:
    """All that is known of a row.

    Args:
        row: Of the report.
        report: For the major whose documentation is named.
        cells: Width.
    """
    lines = wrapped(_says(row), cells, _STYLES[row.kind] or "strong")
    for label, text, style in _parts(row, report):
        lines += labelled(label, text, cells, style, _LABEL_CELLS)
    return lines


def _parts(row: CheckRow, report: Report) -> Iterator[tuple[str, str, str]]:
    """Label, text, style."""
    yield "kind", f"{row.kind}, {row.check.title} ({row.check.group})", PLAIN
    yield "why", row.check.why, PLAIN
    said = row.said
    for number, evidence in enumerate(said.evidence if isinstance(said, Finding) else ()):
        yield "" if number else "evidence", f"{one_line(evidence.says)}  [{evidence.source}]", PLAIN
    if row.fix is not None:
        yield "fix", row.fix.do, "strong"
        yield "undo", row.fix.undo, PLAIN
        if row.fix.remark:
            yield "remark", row.fix.remark, "warning"
    if isinstance(said, Finding) and said.confidence is not Confidence.HIGH:
        yield "sure", said.confidence, PLAIN
    yield "read", documentation(row.check, report.major), "label"
