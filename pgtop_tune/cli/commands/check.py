"""`pgtop-tune check`: what will hurt in production, with evidence, a fix and its undoing."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from pgtop_tune.cli import options
from pgtop_tune.cli.connecting import ConnectionWords

if TYPE_CHECKING:
    from pgtop_tune.health.report import Report

_FOUND = 1
_COULD_NOT_RUN = 2


class FailOn(StrEnum):
    """From which severity on the exit status is 1."""

    INFO = "info"
    WARNING = "warning"
    HIGH = "high"
    CRITICAL = "critical"
    NEVER = "never"


class ReportFormat(StrEnum):
    """How the report is written to stdout."""

    TEXT = "text"


_CHOICE = "Which checks"


def check(
    target: options.Target = "",
    select: Annotated[
        list[str] | None,
        typer.Option(
            "--select", metavar="CHECK", rich_help_panel=_CHOICE, show_default=False,
            help="Only these: an id (MEM-01), how ids begin (MEM) or a group (memory). May be given for several.",
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            "--ignore", metavar="CHECK", rich_help_panel=_CHOICE, show_default=False, help="Not these; as --select."
        ),
    ] = None,
    threshold: Annotated[
        list[str] | None,
        typer.Option(
            "--threshold", metavar="ID=VALUE", rich_help_panel=_CHOICE, show_default=False,
            help="Another limit: MEM-01=95, or by name MEM-01.high=120. May be given for several.",
        ),
    ] = None,
    fail_on: Annotated[FailOn, typer.Option("--fail-on", help="Exit with 1 from this severity on.")] = FailOn.WARNING,
    format: Annotated[ReportFormat, typer.Option("--format", help="How the report is written.")] = ReportFormat.TEXT,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Why, evidence, fix, undo; what is unknown and what passed.")
    ] = False,
    host: options.Host = "",
    port: options.Port = "",
    user: options.User = "",
    database: options.Database = "",
    no_password: options.NoPassword = False,
    ask_password: options.AskPassword = False,
) -> None:  # fmt: skip
    """Check a server and its machine before production: what will hurt, how to mend it, how to undo that.

    Changes nothing. What cannot be seen is unknown and counted, never passed. Exit status: 0 clean, 1 findings at or
    above --fail-on, 2 could not run.

    Examples: pgtop-tune check -d bench  ·  pgtop-tune check -v --select MEM -d bench
    """
    from pgtop_tune.cli.output import complain
    from pgtop_tune.errors import PgtopError
    from pgtop_tune.health.check import Severity

    words = ConnectionWords(target, host, port, user, database, no_password, ask_password)
    try:
        report = _checked(words, select or (), ignore or (), threshold or ())
    except PgtopError as problem:
        complain(problem)
        raise typer.Exit(_COULD_NOT_RUN) from None
    _write(report, format, verbose)
    if fail_on is not FailOn.NEVER and report.at_least(Severity(fail_on.value)):
        raise typer.Exit(_FOUND)


def _checked(words: ConnectionWords, select: list[str] | tuple[()], ignore: list[str] | tuple[()],
             threshold: list[str] | tuple[()]) -> Report:  # fmt: skip
    import asyncio

    from pgtop_tune.cli.looking import let_in
    from pgtop_tune.health.gather import gather
    from pgtop_tune.health.judge import judge
    from pgtop_tune.health.registry import chosen, thresholds

    checks, limits = chosen(select, ignore), thresholds(threshold)
    facts = let_in(words, lambda conninfo: asyncio.run(gather(conninfo, checks)))
    return judge(checks, facts, limits)


def _write(report: Report, format: ReportFormat, verbose: bool) -> None:
    from pgtop_tune.cli.output import say
    from pgtop_tune.health.formats import text

    for line in text.lines(report, verbose):
        say(line)
