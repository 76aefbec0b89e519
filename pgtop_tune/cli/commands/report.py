"""`pgtop-tune report`: one file about a recording or runs, or about several against the first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli.commands.compare import UnderTest

_SUFFIXES = (".html", ".md")


def report(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="A [B...]",
            show_default=False,
            help="Recordings, records of `bench run`, or directories of records; the others are compared with A.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            show_default=False,
            help="FILE.html or FILE.md; a new file. - is HTML on stdout.",
        ),
    ] = None,
    title: Annotated[
        str, typer.Option("--title", metavar="TEXT", show_default=False, help="Heading of the report.")
    ] = "",
    under_test: UnderTest = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write a report: verdicts, tables, charts, events and the environment, in one file.

    An HTML report is self-contained: charts are SVG, the mouse shows the figures of a moment, and nothing is loaded
    from elsewhere. A Markdown report has the tables.

    Examples: pgtop-tune report run.jsonl.gz -o run.html  ·
    pgtop-tune report before.jsonl.gz after.jsonl.gz -o change.html --title "16 GB of max_wal_size"  ·
    pgtop-tune report runs/default runs/tuned runs/extreme -o tuning.md
    """
    from pgtop_tune.cli.commands.export import text_to
    from pgtop_tune.cli.report_files import write_text
    from pgtop_tune.compare.baselines import earlier_runs
    from pgtop_tune.compare.noise import known_spreads
    from pgtop_tune.compare.reports.report import report as chapters
    from pgtop_tune.compare.reports.written import html, report_markdown
    from pgtop_tune.compare.sides.fingerprint import check_names
    from pgtop_tune.compare.sides.opening import open_all
    from pgtop_tune.recording.outlet import is_stdout

    to_stdout = output is not None and is_stdout(output)
    if output is None or not (to_stdout or output.suffix.lower() in _SUFFIXES):
        raise UsageProblem("no file to write the report to", "-o report.html, or -o report.md")
    sides = open_all(files)
    check_names(under_test or [], sides)
    heading = title or " · ".join(side.name for side in sides)
    writer = report_markdown if output.suffix.lower() == ".md" else html
    text = writer(heading, chapters(sides, under_test or [], earlier_runs(sides[0]), known_spreads(sides)))
    if to_stdout:
        with text_to(None, force) as file:
            file.write(text)
        return
    write_text(output, text, force=force)
