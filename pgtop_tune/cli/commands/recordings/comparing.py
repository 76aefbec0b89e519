"""Comparisons of recordings and runs, reports of them, and baselines: runs saved under a name."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pgtop_tune.base.errors import LoadProblem, RecordingProblem, UsageProblem
from pgtop_tune.cli.commands.bench.request import RunRequest
from pgtop_tune.cli.commands.recordings.exporting import text_to
from pgtop_tune.cli.commands.recordings.request import BaselineRequest, CompareRequest, ReportRequest
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.live_options import LoadSessionWords
from pgtop_tune.cli.options import Format, TableFormat
from pgtop_tune.cli.output import say, say_as_it_is, tell, write_text
from pgtop_tune.compare import baselines
from pgtop_tune.compare.baselines import LevelChange, change_words, changes, earlier_runs
from pgtop_tune.compare.comparison import (
    Comparison,
    Condition,
    ConditionOutcome,
    Judged,
    compare,
    judge,
    parse_condition,
)
from pgtop_tune.compare.noise import known_spreads
from pgtop_tune.compare.reports import written
from pgtop_tune.compare.reports.report import report
from pgtop_tune.compare.reports.sheets import Sheet, sheets
from pgtop_tune.compare.reports.written import html, report_markdown
from pgtop_tune.compare.sides.fingerprint import check_names
from pgtop_tune.compare.sides.opening import Named, named, open_all, open_material, read_windows
from pgtop_tune.compare.window_comparison import differences_json, window_comparison, window_sheets
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.recording.outlet import is_stdout

_SUFFIXES: Final = (".html", ".md")


def save_baseline(name: str, file: Path, note: str) -> None:
    """Save a run under a name, and say where. Raises RecordingProblem where it cannot be read or written."""
    run, _ = baselines.save(name, file, note)
    if run.doubts:
        tell(f"the run has doubts, which its later comparisons repeat: {', '.join(run.doubts)}")
    say(f"saved in {run.path}")


def say_baselines(name: str, format: Format) -> None:
    """Print the baselines, or the runs of one."""
    wanted = [name] if name else list(baselines.names())
    rows = []
    for each in wanted:
        runs, problems = baselines.kept_runs(each)
        rows += [(each, run) for run in runs]
        for problem in problems:
            tell(problem)
    if format is Format.JSON:
        say(json.dumps(baselines.as_json(rows), ensure_ascii=True, indent=2))
        return
    say(baselines.table(rows) if rows else "no baseline; pgtop-tune baseline save NAME FILE creates one")
    if name:
        _tell_changes(changes([run for _, run in rows]))


def check_baseline(name: str, file: Path | None, request: BaselineRequest) -> int:
    """Compare a newer run with one of a baseline, and print the comparison.

    Args:
        file: The newer run; None repeats the load.

    Returns:
        The exit status.

    Raises:
        UsageProblem: There is no such run.
        LoadProblem: The load could not be repeated.
        RecordingProblem: The newer run was compared, and cannot be saved.
    """
    if request.against not in ("first", "last"):
        raise UsageProblem(f"{request.against!r} is not a run of a baseline", "--against first, or --against last")
    conditions = [parse_condition(each) for each in request.comparison.fail_if or ()]
    under_test = request.comparison.under_test or []
    runs, problems = baselines.kept_runs(name)
    for problem in problems:
        tell(problem)
    if not runs:
        raise UsageProblem(f"the baseline {name!r} has no run", f"pgtop-tune baseline save {name} FILE adds one")
    reference = runs[0] if request.against == "first" else runs[-1]
    before = open_material(reference.path, f"{name}, {request.against} of {len(runs)}")
    with tempfile.TemporaryDirectory(prefix="pgtop-tune-") as directory:
        if file is None:
            specs = tuple(run.spec for run in before.runs if run.spec is not None)
            file = Path(directory) / "again.jsonl.gz"
            _measure_again(specs, file, request)
        now = open_material(file, "now")
        check_names(under_test, (before, now))
        comparison = compare(
            before, now, under_test, baselines.earlier_runs(before),
            spreads=known_spreads([before, now]), contract=request.comparison.contract,
        )  # fmt: skip
        unkept: RecordingProblem | None = None
        if request.keep:
            try:
                kept, _ = baselines.save(name, file, request.note)
            except RecordingProblem as problem:
                unkept = problem
            else:
                tell(f"saved in {kept.path}")
                runs = (*runs, kept)
    judged = [judge(condition, [comparison]) for condition in conditions]
    _print_comparisons(request.comparison.format, [comparison], judged)
    _tell_changes(changes(sorted(runs, key=lambda run: run.began_ms)))
    if unkept is not None:
        raise unkept
    return _tell_outcome(judged, [comparison])


def _tell_changes(found: Sequence[LevelChange]) -> None:
    """On stderr: they are beside the result that was asked for."""
    for change in found:
        tell(change_words(change))


def _measure_again(specs: tuple[LoadSpec, ...], file: Path, request: BaselineRequest) -> None:
    # It brings the drivers.
    from pgtop_tune.cli.commands.bench.measuring import measure

    if not specs:
        raise UsageProblem("the baseline's run does not name its profile", "pass a newer recording or record")
    again = RunRequest(
        profiles=request.profiles,
        record=file,
        session=LoadSessionWords(pgbench=request.pgbench),
        connection=request.words,
        again=specs,
    )
    status = asyncio.run(measure(again))
    if status == ExitCode.LOAD:
        raise LoadProblem("the load could not be repeated", "see the messages above")
    if status != ExitCode.OK:
        sys.exit(status)


def write_report(files: Sequence[Path], request: ReportRequest) -> None:
    """Write a report of the first file, with the others compared with it. Raises UsageProblem where it cannot go."""
    to_stdout = request.output is not None and is_stdout(request.output)
    if request.output is None or not (to_stdout or request.output.suffix.lower() in _SUFFIXES):
        raise UsageProblem("no file to write the report to", "-o report.html, or -o report.md")
    sides = open_all(files)
    check_names(request.under_test or [], sides)
    heading = request.title or " · ".join(side.name for side in sides)
    writer = report_markdown if request.output.suffix.lower() == ".md" else html
    text = writer(heading, report(sides, request.under_test or [], earlier_runs(sides[0]), known_spreads(sides)))
    if to_stdout:
        with text_to(None, request.force) as file:
            file.write(text)
        return
    write_text(request.output, text, force=request.force)


def compare_files(files: Sequence[Path], request: CompareRequest) -> int:
    """Compare files with the first of them, print that, and return the exit status."""
    conditions = [parse_condition(each) for each in request.fail_if or ()]
    under_test = request.under_test or []
    names = [named(path) for path in files]
    if any(name.windowed for name in names):
        return _compare_windows(names, conditions, under_test, request)
    first, *others = open_all(files)
    check_names(under_test, (first, *others))
    earlier, known = earlier_runs(first), known_spreads([first, *others])
    comparisons = [
        compare(first, other, under_test, earlier, spreads=known, contract=request.contract) for other in others
    ]
    judged = [judge(condition, comparisons) for condition in conditions]
    _print_comparisons(request.format, comparisons, judged)
    return _tell_outcome(judged, comparisons)


def _compare_windows(
    names: Sequence[Named],
    conditions: Sequence[Condition],
    under_test: Sequence[str],
    request: CompareRequest,
) -> int:
    """Windows: everything that differs, the largest effect first."""
    first, *others = read_windows(names)
    check_names(under_test, [side.material for side in (first, *others)])
    paths = [name.path.resolve() for name in names]
    found = [
        window_comparison(first, other, under_test, one_recording=path == paths[0], contract=request.contract)
        for other, path in zip(others, paths[1:], strict=True)
    ]
    judged = [judge(condition, [each.comparison for each in found]) for condition in conditions]
    if request.format is TableFormat.JSON:
        answer = written.comparison_json([each.comparison for each in found], judged)
        for told, each in zip(answer["comparisons"], found, strict=True):
            told |= differences_json(each)
        _print_json(answer)
    else:
        _print_sheets(request.format, [window_sheets(each) for each in found])
    return _tell_outcome(judged, [each.comparison for each in found])


def _tell_outcome(judged: Sequence[Judged], comparisons: Sequence[Comparison]) -> int:
    """Says on stderr which conditions hold or cannot be told and which contract is broken; gives the exit status."""
    for each in judged:
        if each.outcome is not ConditionOutcome.DOES_NOT:
            tell(f"--fail-if '{each.condition.text}' {each.outcome}: {each.because}")
    outcomes = {each.outcome for each in judged}
    if ConditionOutcome.HOLDS in outcomes:
        return ExitCode.CONDITION_HOLDS
    broken = [each for each in comparisons if each.fingerprints.contract and not each.comparable]
    for comparison in broken:
        for reason in comparison.reasons:
            tell(reason)
    return ExitCode.CANNOT_TELL if broken or ConditionOutcome.CANNOT_TELL in outcomes else ExitCode.OK


def _print_comparisons(format: TableFormat, comparisons: Sequence[Comparison], judged: Sequence[Judged]) -> None:
    """On stdout, as asked for."""
    if format is TableFormat.JSON:
        _print_json(written.comparison_json(comparisons, judged))
    else:
        _print_sheets(format, [sheets(each) for each in comparisons])


def _print_json(answer: Mapping[str, object]) -> None:

    # Not through `say`: a JSON text is printable by itself, and may be longer than what is read by people.
    say_as_it_is(json.dumps(answer, ensure_ascii=True))


def _print_sheets(format: TableFormat, found: Sequence[Sequence[Sheet]]) -> None:
    writer = written.markdown if format is TableFormat.MARKDOWN else written.text
    say("\n\n".join(writer(each) for each in found))
