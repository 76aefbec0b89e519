"""Sheets as text and as Markdown, and a comparison as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from pgtop_tune.base.safe_text import printable
from pgtop_tune.compare.comparison import Comparison, Phase
from pgtop_tune.compare.condition import Judged
from pgtop_tune.compare.figure_rows import FigureRow
from pgtop_tune.compare.reports.report import Chapter
from pgtop_tune.compare.reports.sheets import Sheet
from pgtop_tune.compare.reports.tables import as_markdown, as_text
from pgtop_tune.compare.sides.contracts import CONTRACTS
from pgtop_tune.compare.sides.figures import WaitRow
from pgtop_tune.compare.sides.material import ComparedRun, Material
from pgtop_tune.compare.statement_rows import StatementComparison
from pgtop_tune.compare.statistics.effect import Effect
from pgtop_tune.model.run_json import plain

FORMAT: Final = "pgtop-tune-comparison/1"
_ESCAPED: Final = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_[]|#"} | {"<": "&lt;", ">": "&gt;"})


def text(found: Sequence[Sheet]) -> str:
    """Plain text."""
    parts = []
    for sheet in found:
        lines = [sheet.heading, *(f"  {line}" for line in sheet.lines)]
        if sheet.table is not None:
            lines += [f"  {line}" for line in as_text(sheet.table).splitlines()]
        parts.append("\n".join([*lines, *(f"  {note}" for note in sheet.notes)]))
    return "\n\n".join(parts)


def markdown(found: Sequence[Sheet], level: int = 2) -> str:
    """Markdown; what is special in foreign words is escaped."""
    return "\n".join(line for sheet in found for line in _markdown(sheet, level)).rstrip()


def _markdown(sheet: Sheet, level: int) -> Iterator[str]:
    if sheet.heading:
        yield f"{'#' * level} {escaped(sheet.heading)}"
        yield ""
    if sheet.lines:
        yield from _list(sheet.lines)
    if sheet.table is not None:
        yield as_markdown(sheet.table)
        yield ""
    if sheet.notes:
        yield from _list(sheet.notes)


def report_markdown(title: str, chapters: Sequence[Chapter]) -> str:
    """A report without its pictures: what they show stands in the tables."""
    parts = [f"# {escaped(title)}"]
    for chapter in chapters:
        found = [part for part in chapter.parts if isinstance(part, Sheet)]
        if found:
            parts += ["", f"## {escaped(chapter.heading)}", "", markdown(found, level=3)]
    return "\n".join(parts) + "\n"


def _list(lines: Iterable[str]) -> Iterator[str]:
    yield from (f"- {escaped(line.strip())}" for line in lines)
    yield ""


def escaped(words: str) -> str:
    """Words in Markdown as they are."""
    return printable(words).translate(_ESCAPED)


def comparison_json(comparisons: Sequence[Comparison], judged: Sequence[Judged] = ()) -> dict[str, Any]:
    """One object."""
    return {
        "format": FORMAT,
        "comparisons": [_comparison(each) for each in comparisons],
        "conditions": [
            {"condition": each.condition.words, "outcome": str(each.outcome), "because": each.because}
            for each in judged
        ],
    }


def _comparison(found: Comparison) -> dict[str, Any]:
    prints = found.fingerprints
    return {
        "a": _side(found.a),
        "b": _side(found.b),
        "comparable": found.comparable,
        "reasons": list(found.reasons),
        "fingerprint": {
            "same": prints.same,
            "differences": [plain(each) for each in prints.differences],
            "told_by_one_side": list(prints.not_known),
        },
        "contract": None
        if prints.contract is None
        else {
            "as": str(prints.contract),
            "may_vary": CONTRACTS[prints.contract].words,
            "broken_by": [each.name for each in prints.differences if each.breaks],
            "groups_unknown": list(prints.groups_unknown),
        },
        "phases": [_phase(each) for each in found.phases],
        "only_a": [key.title for key in found.only_a],
        "only_b": [key.title for key in found.only_b],
    }


def _side(side: Material) -> dict[str, Any]:
    return {
        "name": side.name,
        "began_ms": side.began_ms,
        "seconds": round(side.seconds, 3),
        "runs": [_run(run) for run in side.runs],
        "facts": [plain(fact) for fact in side.facts],
        "events": [plain(event) for event in side.events],
        "problems": list(side.problems),
    }


def _run(run: ComparedRun) -> dict[str, Any]:
    return {
        "load": plain(run.key),
        "began_ms": run.began_ms,
        "seconds": run.seconds,
        "warm_up_s": run.warm_up_s,
        "steady": run.steady,
        "summary": plain(run.summary),
        "findings": [plain(each) for each in run.findings],
        "doubts": [plain(doubt) for doubt in run.doubts],
    }


def _phase(phase: Phase) -> dict[str, Any]:
    return {
        "load": plain(phase.key),
        "checkpoint_cycle_s": phase.period_s,
        "figures": [_row(row) for row in phase.rows],
        "waits": [_wait(row) for row in phase.waits],
        "notes": list(phase.notes),
        "no_verdict": phase.no_verdict or None,
        "to_settle": list(phase.to_settle),
        "statements": _statements(phase.statements),
    }


def _row(row: FigureRow) -> dict[str, Any]:
    change = row.change
    return {
        "figure": row.figure.id,
        "unit": row.figure.unit,
        "better": str(row.figure.better),
        "a": row.a,
        "b": row.b,
        "change": None if change is None else change[0],
        "low": None if change is None else change[1],
        "high": None if change is None else change[2],
        "in_points": row.figure.points is not None,
        "verdict": row.verdict,
        **_standing(row.effect),
    }


def _statements(found: StatementComparison | None) -> dict[str, Any] | None:
    if found is None:
        return None
    told: dict[str, Any] = plain(found)
    for row, each in zip(told["rows"], found.rows, strict=True):
        row["below_noise"] = each.below_noise
    return told


def _standing(effect: Effect | None) -> dict[str, Any]:
    if effect is None:
        return {"blocks_a": 0, "blocks_b": 0, "block_s": None, "smallest_seen": None}
    return {
        "blocks_a": effect.blocks_a,
        "blocks_b": effect.blocks_b,
        "block_s": effect.block_s,
        "smallest_seen": effect.smallest_seen,
    }


def _wait(row: WaitRow) -> dict[str, Any]:
    return {
        "wait": row.label,
        "class": row.wait_event_type,
        "whole_class": row.whole_class,
        "a_ms": row.a_ms,
        "b_ms": row.b_ms,
        "verdict": row.verdict or None,
    }
