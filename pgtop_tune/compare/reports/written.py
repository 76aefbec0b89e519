"""Sheets as text, Markdown and HTML, and a comparison as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from pgtop_tune.base.tables import Table, aligned_text, as_markdown, escaped
from pgtop_tune.compare.comparison import ComparedPhase, Comparison, JudgedCondition
from pgtop_tune.compare.figure_rows import FigureRow
from pgtop_tune.compare.reports.charts import markup
from pgtop_tune.compare.reports.report import Chapter, Picture
from pgtop_tune.compare.reports.sheets import Sheet
from pgtop_tune.compare.sides.figures import WaitRow
from pgtop_tune.compare.sides.fingerprint import CONTRACTS
from pgtop_tune.compare.sides.material import ComparedRun, Material
from pgtop_tune.compare.statement_rows import StatementComparison
from pgtop_tune.compare.statistics.effect import Effect
from pgtop_tune.model.run_result import plain

FORMAT: Final = "pgtop-tune-comparison/1"


def sheets_text(sheets: Sequence[Sheet]) -> str:
    """Return sheets as plain text."""
    parts = []
    for sheet in sheets:
        lines = [sheet.heading, *(f"  {line}" for line in sheet.lines)]
        if sheet.table is not None:
            lines += [f"  {line}" for line in aligned_text(sheet.table).splitlines()]
        parts.append("\n".join([*lines, *(f"  {note}" for note in sheet.notes)]))
    return "\n\n".join(parts)


def sheets_markdown(sheets: Sequence[Sheet], level: int = 2) -> str:
    """Return sheets as Markdown; foreign text is escaped."""
    return "\n".join(line for sheet in sheets for line in _markdown(sheet, level)).rstrip()


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
    """Return a report as Markdown without its pictures: the tables have their figures."""
    parts = [f"# {escaped(title)}"]
    for chapter in chapters:
        sheets = [part for part in chapter.parts if isinstance(part, Sheet)]
        if sheets:
            parts += ["", f"## {escaped(chapter.heading)}", "", sheets_markdown(sheets, level=3)]
    return "\n".join(parts) + "\n"


def _list(lines: Iterable[str]) -> Iterator[str]:
    yield from (f"- {escaped(line.strip())}" for line in lines)
    yield ""


def comparison_json(comparisons: Sequence[Comparison], judged: Sequence[JudgedCondition] = ()) -> dict[str, Any]:
    """Return comparisons and conditions as one JSON object."""
    return {
        "format": FORMAT,
        "comparisons": [_comparison(comparison) for comparison in comparisons],
        "conditions": [
            {"condition": outcome.condition.text, "outcome": str(outcome.outcome), "because": outcome.because}
            for outcome in judged
        ],
    }


def _comparison(comparison: Comparison) -> dict[str, Any]:
    prints = comparison.fingerprints
    return {
        "a": _side(comparison.a),
        "b": _side(comparison.b),
        "comparable": comparison.comparable,
        "reasons": list(comparison.reasons),
        "fingerprint": {
            "same": prints.same,
            "differences": [plain(difference) for difference in prints.differences],
            "told_by_one_side": list(prints.not_known),
        },
        "contract": None
        if prints.contract is None
        else {
            "as": str(prints.contract),
            "may_vary": CONTRACTS[prints.contract].description,
            "broken_by": [difference.name for difference in prints.differences if difference.breaks],
            "groups_unknown": list(prints.groups_unknown),
        },
        "phases": [_phase(phase) for phase in comparison.phases],
        "only_a": [key.title for key in comparison.only_a],
        "only_b": [key.title for key in comparison.only_b],
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
        "findings": [plain(finding) for finding in run.findings],
        "doubts": [plain(doubt) for doubt in run.doubts],
    }


def _phase(phase: ComparedPhase) -> dict[str, Any]:
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


def _statements(comparison: StatementComparison | None) -> dict[str, Any] | None:
    if comparison is None:
        return None
    encoded: dict[str, Any] = plain(comparison)
    for row, statement in zip(encoded["rows"], comparison.rows, strict=True):
        row["below_noise"] = statement.below_noise
    return encoded


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


# A report as one HTML file without network access or script; foreign text is never markup.

_LOUD: Final = {
    "better": "good", "worse": "bad", "undecided": "open", "differ": "open", "not comparable": "open",
    "too little to say": "open",
}  # fmt: skip
"""Words of verdicts that get a colour; the word itself says the same."""
_ONE_LINE: Final = 12
"""Characters of a word that is not broken at a hyphen: ids and days."""
_REASON: Final = "failed: "
"""Begin of a sentence in a column of numbers."""
_STYLE: Final = """
:root{--ground:#fff;--ink:#1b1f24;--dim:#59636e;--rule:#d1d9e0;--shade:#f6f8fa;--good:#1a7f37;--bad:#b3261e;
--s0:#0060a8;--s1:#c04a00;--s2:#00785a;--s3:#9a4f88}
@media(prefers-color-scheme:dark){:root{--ground:#0d1117;--ink:#e6edf3;--dim:#9198a1;--rule:#30363d;--shade:#161b22;
--good:#4ac26b;--bad:#ff8a80;--s0:#58a6ff;--s1:#ffa657;--s2:#56d4a4;--s3:#e39ad0}}
*{box-sizing:border-box}
body{background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,sans-serif;margin:0 auto;max-width:60rem;
padding:1.5rem}
h1{font-size:1.5rem;margin:0 0 .5rem}h2{font-size:1.2rem;margin:2rem 0 .5rem;border-bottom:1px solid var(--rule);
overflow-wrap:anywhere}h3{font-size:1rem;margin:1.2rem 0 .3rem;overflow-wrap:anywhere}
p{margin:.2rem 0;overflow-wrap:anywhere}p.note{color:var(--dim);font-size:.9rem}
div.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:.15rem .6rem;border-bottom:1px solid var(--rule);text-align:left;vertical-align:top}
th{background:var(--shade);font-weight:600}td.n,th.n{text-align:right}td.n,td.w{white-space:nowrap}
td.why{text-align:left;min-width:11rem}
.good{color:var(--good);font-weight:600}.bad{color:var(--bad);font-weight:600}.open{color:var(--dim)}
svg{width:100%;height:auto;display:block}.grid{stroke:var(--rule)}.axis{fill:var(--dim);font-size:11px}
.line{fill:none;stroke-width:1.6}.band{opacity:.18;stroke:none}.hover{fill:transparent}
.hover:hover{fill:var(--dim);fill-opacity:.15}.mark line{stroke-width:2}
.line.s0,.mark.s0 line{stroke:var(--s0)}.line.s1,.mark.s1 line{stroke:var(--s1)}.line.s2,.mark.s2 line{stroke:var(--s2)}
.line.s3,.mark.s3 line{stroke:var(--s3)}.band.s0,.dot.s0{fill:var(--s0)}.band.s1,.dot.s1{fill:var(--s1)}
.band.s2,.dot.s2{fill:var(--s2)}.band.s3,.dot.s3{fill:var(--s3)}
.w0{fill:#0072b2}.w1{fill:#e69f00}.w2{fill:#009e73}.w3{fill:#cc79a7}.w4{fill:#56b4e9}.w5{fill:#d55e00}.w6{fill:#b8a900}
.w7{fill:#888}.key{display:inline-block;margin-right:1rem}.key i{display:inline-block;width:1.6rem;height:0;
border-top:3px solid;vertical-align:middle;margin-right:.3rem}.key.s0 i{border-color:var(--s0)}
.key.s1 i{border-color:var(--s1);border-top-style:dashed}.key.s2 i{border-color:var(--s2);border-top-style:dotted}
.key.s3 i{border-color:var(--s3);border-top-style:dashed}
details>summary{cursor:pointer;font-weight:600;margin-top:1rem;overflow-wrap:anywhere}
@media print{details>*{display:block}body{max-width:none}}
"""


def report_html(title: str, chapters: Sequence[Chapter]) -> str:
    """Return a report as an HTML file.

    Args:
        title: Foreign text, as everything in the chapters but the pictures.
    """
    body = "".join(_chapter(chapter) for chapter in chapters)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{markup(title)}</title><style>{_STYLE}</style></head><body><h1>{markup(title)}</h1>{body}</body></html>\n"
    )


def _chapter(chapter: Chapter) -> str:
    parts = "".join(_picture(part) if isinstance(part, Picture) else _sheet(part) for part in chapter.parts)
    if chapter.folded:
        return f"<details><summary>{markup(chapter.heading)}</summary>{parts}</details>"
    return f"<h2>{markup(chapter.heading)}</h2>{parts}"


def _sheet(sheet: Sheet) -> str:
    heading = f"<h3>{markup(sheet.heading)}</h3>" if sheet.heading else ""
    lines = "".join(f"<p>{markup(line)}</p>" for line in sheet.lines)
    table = "" if sheet.table is None else _table(sheet.table)
    return heading + lines + table + "".join(f'<p class="note">{markup(note)}</p>' for note in sheet.notes)


def _table(table: Table) -> str:
    heads = "".join(f"<th{_number(table, index)}>{markup(head)}</th>" for index, head in enumerate(table.heads))
    rows = "".join(
        f"<tr>{''.join(_cell(table, index, text) for index, text in enumerate(row))}</tr>" for row in table.rows
    )
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'


def _cell(table: Table, index: int, text: str) -> str:
    if text in _LOUD:
        return f'<td class="{_LOUD[text]}">{text}</td>'
    if text.startswith(_REASON):
        return f'<td class="why">{markup(text)}</td>'
    indent = "&emsp;" if text.startswith("  ") else ""
    return f"<td{_number(table, index, text)}>{indent}{markup(text.strip())}</td>"


def _number(table: Table, index: int, text: str = "") -> str:
    if index in table.right:
        return ' class="n"'
    return ' class="w"' if 0 < len(text) <= _ONE_LINE and " " not in text else ""


def _picture(picture: Picture) -> str:
    keys = "".join(
        f'<span class="key s{index % 4}"><i></i>{markup(name)}</span>' for index, name in enumerate(picture.legend)
    )
    legend = f'<p class="note">{keys}</p>' if keys else ""
    return f"<h3>{markup(picture.heading)}</h3>{legend}{picture.svg}"
