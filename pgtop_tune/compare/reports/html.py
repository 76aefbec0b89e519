"""A report as one HTML file without network access or script; foreign text is never markup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pgtop_tune.compare.reports.charts import text
from pgtop_tune.compare.reports.report import Chapter, Picture
from pgtop_tune.compare.reports.sheets import Sheet
from pgtop_tune.compare.reports.tables import Table

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


def html(title: str, chapters: Sequence[Chapter]) -> str:
    """The file.

    Args:
        title: Foreign text, as everything in the chapters but the pictures.
    """
    body = "".join(_chapter(chapter) for chapter in chapters)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{text(title)}</title><style>{_STYLE}</style></head><body><h1>{text(title)}</h1>{body}</body></html>\n"
    )


def _chapter(chapter: Chapter) -> str:
    parts = "".join(_picture(part) if isinstance(part, Picture) else _sheet(part) for part in chapter.parts)
    if chapter.folded:
        return f"<details><summary>{text(chapter.heading)}</summary>{parts}</details>"
    return f"<h2>{text(chapter.heading)}</h2>{parts}"


def _sheet(sheet: Sheet) -> str:
    heading = f"<h3>{text(sheet.heading)}</h3>" if sheet.heading else ""
    lines = "".join(f"<p>{text(line)}</p>" for line in sheet.lines)
    table = "" if sheet.table is None else _table(sheet.table)
    return heading + lines + table + "".join(f'<p class="note">{text(note)}</p>' for note in sheet.notes)


def _table(table: Table) -> str:
    heads = "".join(f"<th{_number(table, index)}>{text(head)}</th>" for index, head in enumerate(table.heads))
    rows = "".join(
        f"<tr>{''.join(_cell(table, index, words) for index, words in enumerate(row))}</tr>" for row in table.rows
    )
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'


def _cell(table: Table, index: int, words: str) -> str:
    if words in _LOUD:
        return f'<td class="{_LOUD[words]}">{words}</td>'
    if words.startswith(_REASON):
        return f'<td class="why">{text(words)}</td>'
    indent = "&emsp;" if words.startswith("  ") else ""
    return f"<td{_number(table, index, words)}>{indent}{text(words.strip())}</td>"


def _number(table: Table, index: int, words: str = "") -> str:
    if index in table.right:
        return ' class="n"'
    return ' class="w"' if 0 < len(words) <= _ONE_LINE and " " not in words else ""


def _picture(picture: Picture) -> str:
    keys = "".join(
        f'<span class="key s{place % 4}"><i></i>{text(name)}</span>' for place, name in enumerate(picture.legend)
    )
    legend = f'<p class="note">{keys}</p>' if keys else ""
    return f"<h3>{text(picture.heading)}</h3>{legend}{picture.svg}"
