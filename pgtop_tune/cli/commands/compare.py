"""`pgtop-tune compare`: what differs between two recordings or runs, and what may be said of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pgtop_tune.cli.commands.bench.formats import TableFormat
from pgtop_tune.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgtop_tune.analysis.comparison import Comparison
    from pgtop_tune.analysis.condition import Judged

_FILE: Final = "A recording, a record of `bench run` (JSON), or a directory of records."

UnderTest = Annotated[
    list[str] | None,
    typer.Option(
        "--under-test",
        metavar="NAME",
        show_default=False,
        help="A fact of the fingerprint, or a group of them (machine, system, server, parameters, data, load, all), "
        "that is meant to differ; repeatable. Settings are by themselves.",
    ),
]
FailIf = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if",
        metavar="CONDITION",
        show_default=False,
        help="Exit status 7 when it holds, 8 when it cannot be told: 'tps < -5%', 'p99 > 10%'; repeatable.",
    ),
]


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", show_default=False, help=_FILE)],
    b: Annotated[list[Path], typer.Argument(metavar="B...", show_default=False, help="What is compared with it.")],
    fail_if: FailIf = None,
    under_test: UnderTest = None,
    format: Annotated[TableFormat, typer.Option("--format", help="Of the comparison on stdout.")] = TableFormat.TEXT,
) -> None:
    """Compare recordings or runs: fingerprint, effects with 95 % intervals, verdicts, waits.

    Every B is compared with A, load by load. Seconds that resemble their neighbours are taken together in blocks, and
    a difference that may be noise is called undecided. Where more differs than what is under test, there is no verdict
    but the reason. What a condition of --fail-if names must have changed by more than that, and certainly.

    Examples: pgtop-tune compare before.jsonl.gz after.jsonl.gz  ·
    pgtop-tune compare runs/default runs/tuned runs/extreme --format markdown  ·
    pgtop-tune compare main.jsonl.gz branch.jsonl.gz --fail-if 'tps < -5%' --fail-if 'p99 > 10%'
    """
    from pgtop_tune.analysis.comparison import compare as compared
    from pgtop_tune.analysis.condition import judge, parse_condition
    from pgtop_tune.analysis.fingerprint import check_names
    from pgtop_tune.analysis.opening import open_material

    conditions = [parse_condition(each) for each in fail_if or ()]
    first, *others = [open_material(path, str(path)) for path in (a, *b)]
    wanted = under_test or []
    check_names(wanted, (first, *others))
    comparisons = [compared(first, other, wanted) for other in others]
    judged = [judge(condition, comparisons) for condition in conditions]
    print_comparisons(format, comparisons, judged)
    sys.exit(tell_outcome(judged))


def tell_outcome(judged: Sequence[Judged]) -> int:
    """Says on stderr which conditions hold or cannot be told, and gives the exit status."""
    from pgtop_tune.analysis.condition import Outcome
    from pgtop_tune.cli.output import tell

    for each in judged:
        if each.outcome is not Outcome.DOES_NOT:
            tell(f"--fail-if '{each.condition.words}' {each.outcome}: {each.because}")
    outcomes = {each.outcome for each in judged}
    if Outcome.HOLDS in outcomes:
        return ExitCode.CONDITION_HOLDS
    return ExitCode.CANNOT_TELL if Outcome.CANNOT_TELL in outcomes else ExitCode.OK


def print_comparisons(format: TableFormat, comparisons: Sequence[Comparison], judged: Sequence[Judged]) -> None:
    """On stdout, as asked for."""
    import json

    from pgtop_tune.analysis import written
    from pgtop_tune.analysis.sheets import sheets
    from pgtop_tune.cli.output import say

    if format is TableFormat.JSON:
        # Not through `say`: a JSON text is printable by itself, and may be longer than what is read by people.
        sys.stdout.write(json.dumps(written.comparison_json(comparisons, judged), ensure_ascii=True) + "\n")
        sys.stdout.flush()
        return
    writer = written.markdown if format is TableFormat.MARKDOWN else written.text
    say("\n\n".join(writer(sheets(each)) for each in comparisons))
