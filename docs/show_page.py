"""The page of what `show` prints, from the tables of the pages."""

from __future__ import annotations

from docs.markdown import plain, table
from pgtop_tune.cli.commands.show import What
from pgtop_tune.cli.commands.show.formats import SCHEMA
from pgtop_tune.cli.commands.show.tables import columns_for_programs, tables_of

_HEADS = ("column", "heading", "unit", "meaning", "source")
_DOCUMENT = f"""\
## Schema

`--format json` writes one document for each moment, with one row a line:

| member | value |
|---|---|
| `schema` | `"{SCHEMA}"`; the number rises when a member or a column goes or changes its meaning, not for new ones |
| `what`, `table` | word of the command line, and name of the table |
| `time` | moment of the sample, UTC, by the clock of the machine that sampled |
| `server` | `target`, `host`, `version`, `version_num`, `system_identifier`, `cluster_name`, `database`, `user`, \
`in_recovery`; null for what is not known |
| `count` | rows before `--limit` |
| `columns` | `id`, `title` (heading on the screen), `unit`, `source` of each column |
| `rows` | objects by column `id`; null is unknown, hidden, or nothing |
| `unavailable` | by column, or `rows` for all: `reason` (a word of the [recording format](recording-format.md), or \
`no value`) and `detail` |

`--format jsonl` writes an object a row, with `schema`, `what`, `table`, `time` and `row`; a moment without rows to have
is an object with `unavailable` in place of `row`. `--format csv` has a heading of column ids behind `time`; lists are
JSON, control characters are replaced, and a text that a spreadsheet takes for a formula has an apostrophe before it.
JSON escapes characters that a terminal obeys or does not show.

Values are numbers in the unit of their column; `1/s` counts per second. A column without a unit is a count or text.
"""


def show_page() -> str:
    """Columns of every table, word by word."""
    parts = [
        "# Rows of `show`\n",
        "What [`show`](../guide/show.md) prints: the tables of each word, the first one without `--table`.\n"
        "Columns are those of the pages on the screen.\n",
        _DOCUMENT,
    ]
    for what in What:
        parts.append(f"## {what}\n")
        for number, shown in enumerate(tables_of(what)):
            page_table = shown.load()
            parts.append(f"### {what}: {page_table.title}\n" if not number else f"### {what} --table {shown.id}\n")
            if page_table.about:
                parts.append(f"{plain(page_table.about)}\n")
            rows = [
                (f"`{each.id}`", plain(each.title), plain(each.unit), plain(each.definition), plain(each.source))
                for each in columns_for_programs(page_table)
            ]
            parts.append(table(_HEADS, rows))
    return "\n".join(parts)
