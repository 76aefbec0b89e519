"""`pgtop-tune compare`: differences between recordings or runs, with verdicts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pgtop_tune.cli.commands.bench.shared import TableFormat
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.compare.sides.contract_names import Contract

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pgtop_tune.compare.comparison import Comparison, Condition, Judged
    from pgtop_tune.compare.reports.sheets import Sheet
    from pgtop_tune.compare.sides.opening import Named

_FILE: Final = (
    "A recording, a window of one (run.jsonl@3m..5m), a record of `bench run` (JSON), or a directory of records."
)

UnderTest = Annotated[
    list[str] | None,
    typer.Option(
        "--under-test",
        metavar="NAME",
        show_default=False,
        help="A fact of the fingerprint, or a group of them (machine, system, server, parameters, data, load, all), "
        "that the comparison is about; repeatable. Settings always are.",
    ),
]
As = Annotated[
    Contract | None,
    typer.Option(
        "--as",
        show_default=False,
        help="The question: only this may vary (config: parameters and kernel settings; storage: disks, file systems, "
        "mounts; machine; major: version and its defaults; repeat: nothing). Anything else that differs refuses the "
        "verdict, with exit status 8. --under-test adds to it.",
    ),
]
FailIf = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if",
        metavar="CONDITION",
        show_default=False,
        help="Exit status 7 if the condition holds, 8 if it cannot be decided: 'tps < -5%', 'p99 > 10%'; repeatable.",
    ),
]


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", show_default=False, help=_FILE)],
    b: Annotated[list[Path], typer.Argument(metavar="B...", show_default=False, help="Sides to compare with A.")],
    fail_if: FailIf = None,
    under_test: UnderTest = None,
    contract: As = None,
    format: Annotated[
        TableFormat, typer.Option("--format", help="Format of the comparison on stdout.")
    ] = TableFormat.TEXT,
) -> None:
    """Compare recordings or runs: fingerprint, effects with 95 % intervals, verdicts, waits.

    Compares every B with A, load by load. A verdict of better or worse needs four steady runs on each side; with fewer,
    the output says only that the sides differ, and lists the commands that lead to a verdict. If a condition that is
    not under test differs, the output gives the reason instead of a verdict. A --fail-if condition holds only if the
    change certainly exceeds its limit.

    Examples: pgtop-tune compare before.jsonl.gz after.jsonl.gz  ·
    pgtop-tune compare runs/default runs/tuned runs/extreme --format markdown  ·
    pgtop-tune compare runs/main runs/branch --fail-if 'tps < -5%' --fail-if 'p99 > 10%'  ·
    pgtop-tune compare run.jsonl@3m..5m run.jsonl@12:40..+2m  ·
    pgtop-tune compare --as config runs/default runs/tuned  ·
    pgtop-tune compare --as repeat monday.jsonl.gz tuesday.jsonl.gz
    """
    from pgtop_tune.compare.baselines import earlier_runs
    from pgtop_tune.compare.comparison import compare as compared
    from pgtop_tune.compare.comparison import judge, parse_condition
    from pgtop_tune.compare.noise import known_spreads
    from pgtop_tune.compare.sides.fingerprint import check_names
    from pgtop_tune.compare.sides.opening import named, open_all

    conditions = [parse_condition(each) for each in fail_if or ()]
    names = [named(path) for path in (a, *b)]
    if any(name.windowed for name in names):
        sys.exit(_compare_windows(names, conditions, under_test or [], format, contract))
    first, *others = open_all([a, *b])
    wanted = under_test or []
    check_names(wanted, (first, *others))
    earlier, known = earlier_runs(first), known_spreads([first, *others])
    comparisons = [compared(first, other, wanted, earlier, known=known, contract=contract) for other in others]
    judged = [judge(condition, comparisons) for condition in conditions]
    print_comparisons(format, comparisons, judged)
    sys.exit(tell_outcome(judged, comparisons))


def _compare_windows(
    names: Sequence[Named],
    conditions: Sequence[Condition],
    under_test: Sequence[str],
    format: TableFormat,
    contract: Contract | None,
) -> int:
    """Windows: everything that differs, the largest effect first."""
    from pgtop_tune.compare.comparison import judge
    from pgtop_tune.compare.reports import written
    from pgtop_tune.compare.sides.fingerprint import check_names
    from pgtop_tune.compare.sides.opening import read_windows
    from pgtop_tune.compare.windows.differing import differences_json, window_comparison, window_sheets

    first, *others = read_windows(names)
    check_names(under_test, [side.material for side in (first, *others)])
    paths = [name.path.resolve() for name in names]
    found = [
        window_comparison(first, other, under_test, one_recording=path == paths[0], contract=contract)
        for other, path in zip(others, paths[1:], strict=True)
    ]
    judged = [judge(condition, [each.comparison for each in found]) for condition in conditions]
    if format is TableFormat.JSON:
        answer = written.comparison_json([each.comparison for each in found], judged)
        for told, each in zip(answer["comparisons"], found, strict=True):
            told |= differences_json(each)
        _print_json(answer)
    else:
        _print_sheets(format, [window_sheets(each) for each in found])
    return tell_outcome(judged, [each.comparison for each in found])


def tell_outcome(judged: Sequence[Judged], comparisons: Sequence[Comparison]) -> int:
    """Says on stderr which conditions hold or cannot be told and which contract is broken; gives the exit status."""
    from pgtop_tune.cli.output import tell
    from pgtop_tune.compare.comparison import ConditionOutcome

    for each in judged:
        if each.outcome is not ConditionOutcome.DOES_NOT:
            tell(f"--fail-if '{each.condition.words}' {each.outcome}: {each.because}")
    outcomes = {each.outcome for each in judged}
    if ConditionOutcome.HOLDS in outcomes:
        return ExitCode.CONDITION_HOLDS
    broken = [each for each in comparisons if each.fingerprints.contract and not each.comparable]
    for comparison in broken:
        for reason in comparison.reasons:
            tell(reason)
    return ExitCode.CANNOT_TELL if broken or ConditionOutcome.CANNOT_TELL in outcomes else ExitCode.OK


def print_comparisons(format: TableFormat, comparisons: Sequence[Comparison], judged: Sequence[Judged]) -> None:
    """On stdout, as asked for."""
    from pgtop_tune.compare.reports import written
    from pgtop_tune.compare.reports.sheets import sheets

    if format is TableFormat.JSON:
        _print_json(written.comparison_json(comparisons, judged))
    else:
        _print_sheets(format, [sheets(each) for each in comparisons])


def _print_json(answer: Mapping[str, object]) -> None:
    import json

    from pgtop_tune.cli.output import say_as_it_is

    # Not through `say`: a JSON text is printable by itself, and may be longer than what is read by people.
    say_as_it_is(json.dumps(answer, ensure_ascii=True))


def _print_sheets(format: TableFormat, found: Sequence[Sequence[Sheet]]) -> None:
    from pgtop_tune.cli.output import say
    from pgtop_tune.compare.reports import written

    writer = written.markdown if format is TableFormat.MARKDOWN else written.text
    say("\n\n".join(writer(each) for each in found))
