"""Reports as files: HTML and Markdown, never over a file that is there already."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.paths import new_file, replacing
from pgtop_tune.cli.output import say
from pgtop_tune.compare.reports.report import Chapter
from pgtop_tune.compare.reports.written import html, report_markdown

_SUFFIXES: Final = (".html", ".md")


def write_chapters(output: Path, title: str, found: Sequence[Chapter], *, force: bool) -> None:
    """A report as the file's name says.

    Raises:
        UsageProblem: A file that is there already, or of another kind.
    """
    if output.suffix.lower() not in _SUFFIXES:
        raise UsageProblem(f"{output}: a report is HTML or Markdown", "-o report.html, or -o report.md")
    write_text(
        output, report_markdown(title, found) if output.suffix.lower() == ".md" else html(title, found), force=force
    )


def write_text(output: Path, text: str, *, force: bool) -> None:
    """Raises a UsageProblem where the file is there already, or cannot be written."""
    try:
        with replacing(output) if force else new_file(output) as file:
            file.write(text.encode("utf-8", "replace"))
    except FileExistsError:
        raise UsageProblem(f"{output} exists already", "--force replaces it") from None
    except OSError as problem:
        raise UsageProblem(f"{output} cannot be written: {problem.strerror}", "choose another place") from None
    say(f"report: {output}")
