"""Comparisons of recordings and runs, reports of them, and baselines: runs saved under a name."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.base.errors import LoadProblem, RecordingProblem, UsageProblem
from pgtop_tune.base.tables import Table
from pgtop_tune.bench.profiles import read_script
from pgtop_tune.cli.commands.bench import RunRequest
from pgtop_tune.cli.commands.recordings import (
    BaselineRequest,
    BaselinesRequest,
    CompareRequest,
    ReportRequest,
    SaveRequest,
)
from pgtop_tune.cli.commands.recordings.export import text_to
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.options import ListFormat, LoadSessionWords, TableFormat
from pgtop_tune.cli.output import say, say_as_it_is, say_list, tell, write_text
from pgtop_tune.cli.typed_load import TypedLoad
from pgtop_tune.compare import baselines
from pgtop_tune.compare.baselines import KeptRun, LevelChange, change_words, earlier_runs, level_changes
from pgtop_tune.compare.comparison import (
    Comparison,
    ConditionOutcome,
    JudgedCondition,
    compare,
    judge_condition,
    parse_condition,
)
from pgtop_tune.compare.noise import known_spreads
from pgtop_tune.compare.reports import written
from pgtop_tune.compare.reports.report import report_chapters
from pgtop_tune.compare.reports.sheets import Sheet, sheets
from pgtop_tune.compare.reports.written import report_html, report_markdown
from pgtop_tune.compare.sides.fingerprint import check_names
from pgtop_tune.compare.sides.material import Material
from pgtop_tune.compare.sides.named_sides import open_all, open_material, read_windows, window_name
from pgtop_tune.compare.window_comparison import (
    WindowComparison,
    differences_json,
    window_comparison,
    window_sheets,
)
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.recording.outlet import is_stdout

_SUFFIXES: Final = (".html", ".md")


def save_baseline(request: SaveRequest) -> None:
    """Save a run under a name, and say where. Raises RecordingProblem where it cannot be read or written."""
    run, _ = baselines.save(request.name, request.file, request.note, dry_run=request.dry_run)
    if run.doubts:
        tell(f"the run has doubts, which later comparisons will repeat: {', '.join(run.doubts)}")
    say(f"would be saved in {run.path}" if request.dry_run else f"saved in {run.path}")


def say_baselines(request: BaselinesRequest) -> None:
    """Print the baselines, or the runs of one."""
    rows = []
    for name in [request.name] if request.name else baselines.baseline_names():
        runs, problems = baselines.kept_runs(name)
        rows += [(name, run) for run in runs]
        for problem in problems:
            tell(problem)
    if request.format is not ListFormat.TEXT:
        say_list(request.format, baselines.baselines_json(rows), Table((), ()))
        return
    say(baselines.baselines_table(rows) if rows else "no baselines; `pgtop-tune baseline save NAME FILE` creates one")
    if request.name:
        _tell_changes(level_changes([run for _, run in rows]))


def check_baseline(request: BaselineRequest) -> int:
    """Compare a newer run with one of a baseline, print the comparison, and return the exit status.

    Raises:
        UsageProblem: There is no such run.
        LoadProblem: The load could not be repeated.
        RecordingProblem: The newer run was compared, and cannot be saved.
    """
    name, file = request.name, request.file
    if request.against not in ("first", "last"):
        raise UsageProblem(f"{request.against!r} is not a run of a baseline", "pass --against first or --against last")
    options, under_test = request.comparison, request.comparison.under_test or []
    conditions = [parse_condition(condition) for condition in options.fail_if or ()]
    runs, problems = baselines.kept_runs(name)
    for problem in problems:
        tell(problem)
    if not runs:
        raise UsageProblem(f"the baseline {name!r} has no run", f"add one with `pgtop-tune baseline save {name} FILE`")
    reference = runs[0] if request.against == "first" else runs[-1]
    before = open_material(reference.path, f"{name}, {request.against} of {len(runs)}")
    with tempfile.TemporaryDirectory(prefix="pgtop-tune-") as directory:
        if file is None:
            specs = _specs(before, runs)
            file = Path(directory) / "again.jsonl.gz"
            _measure_again(specs, file, request)
        now = open_material(file, "now")
        check_names(under_test, (before, now))
        comparison = compare(
            before, now, under_test, earlier_runs(before),
            spreads=known_spreads([before, now]), contract=options.contract,
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
    judged = [judge_condition(condition, [comparison]) for condition in conditions]
    _print_comparisons(options.format, [comparison], judged)
    _tell_changes(level_changes(sorted(runs, key=lambda run: run.began_ms)))
    if unkept is not None:
        raise unkept
    return _tell_outcome(judged, [comparison])


def _tell_changes(level_changes: Sequence[LevelChange]) -> None:
    for change in level_changes:
        tell(change_words(change))


def _specs(before: Material, kept_runs: Sequence[KeptRun]) -> tuple[LoadSpec, ...]:
    """Return the loads to run again; the files of scripts that a recording does not have are those of another run.

    Raises:
        UsageProblem: They are not known, or a script has changed.
        LoadProblem: A script cannot be read.
    """
    specs = [run.spec for run in before.runs if run.spec is not None]
    hashes = {run.scripts for run in before.runs}
    if not specs:
        sides = (open_material(kept.path, "") for kept in kept_runs)
        specs = [run.spec for side in sides for run in side.runs if run.spec is not None and run.scripts in hashes][:1]
    if not specs:
        raise UsageProblem(
            "the baseline does not name the profile or the scripts of its load",
            "save a record of `bench run --out` in it, or pass a newer recording or record",
        )
    for spec in specs:
        files = tuple(read_script(Path(script.file)).sha256 for script in spec.scripts)
        if files and files not in hashes:
            names = ", ".join(script.file for script in spec.scripts)
            raise UsageProblem(f"{names}: not as in the baseline", "restore the scripts, or save a new baseline")
    return tuple(specs)


def _measure_again(specs: tuple[LoadSpec, ...], file: Path, request: BaselineRequest) -> None:
    # Imports the drivers.
    from pgtop_tune.cli.commands.bench.runs import measure

    again = RunRequest(
        profiles=request.profiles,
        record=file,
        session=LoadSessionWords(pgbench=request.pgbench),
        connection=request.connection,
        again=specs,
    )
    status = asyncio.run(measure(again, TypedLoad()))
    if status == ExitCode.LOAD:
        raise LoadProblem("the load could not be repeated", "see the messages above")
    if status != ExitCode.OK:
        sys.exit(status)


def write_report(request: ReportRequest) -> None:
    """Write a report of the first file, with the others compared with it. Raises UsageProblem without an output."""
    to_stdout = request.output is not None and is_stdout(request.output)
    if request.output is None or not (to_stdout or request.output.suffix.lower() in _SUFFIXES):
        raise UsageProblem("no file to write the report to", "pass -o report.html or -o report.md")
    under_test, sides = request.under_test or [], open_all(request.files)
    check_names(under_test, sides)
    heading = request.title or " · ".join(side.name for side in sides)
    writer = report_markdown if request.output.suffix.lower() == ".md" else report_html
    text = writer(heading, report_chapters(sides, under_test, earlier_runs(sides[0]), known_spreads(sides)))
    if to_stdout:
        with text_to(None, request.force) as file:
            file.write(text)
        return
    write_text(request.output, text, force=request.force)


class Compared(Struct, frozen=True):
    """Files compared with the first of them.

    Attributes:
        windows: What else differs between windows; empty where none of the files is a window.
    """

    comparisons: Sequence[Comparison]
    judged: Sequence[JudgedCondition]
    windows: Sequence[WindowComparison] = ()

    @property
    def document(self) -> dict[str, Any]:
        """Return the JSON object."""
        answer = written.comparison_json(self.comparisons, self.judged)
        for row, window in zip(answer["comparisons"], self.windows, strict=False):
            row |= differences_json(window)
        return answer


def compare_files(request: CompareRequest) -> int:
    """Compare files with the first of them, print that, and return the exit status."""
    outcome = compared(request)
    if request.format is TableFormat.JSON:
        _print_json(outcome.document)
    elif outcome.windows:
        _print_sheets(request.format, [window_sheets(window) for window in outcome.windows])
    else:
        _print_sheets(request.format, [sheets(comparison) for comparison in outcome.comparisons])
    return _tell_outcome(outcome.judged, outcome.comparisons)


def compared(request: CompareRequest) -> Compared:
    """Compare files with the first of them; of windows everything that differs, the largest effect first.

    Raises:
        UsageProblem: A condition, a name under test or a window is wrong.
        RecordingProblem: A file cannot be read.
    """
    conditions = [parse_condition(condition) for condition in request.fail_if or ()]
    under_test, files = request.under_test or [], (request.a, *request.b)
    names = [window_name(path) for path in files]
    windows: list[WindowComparison] = []
    if any(name.windowed for name in names):
        first_window, *later_windows = read_windows(names)
        check_names(under_test, [side.material for side in (first_window, *later_windows)])
        paths = [name.path.resolve() for name in names]
        windows = [
            window_comparison(
                first_window, later, under_test, one_recording=path == paths[0], contract=request.contract
            )
            for later, path in zip(later_windows, paths[1:], strict=True)
        ]
        comparisons = [window.comparison for window in windows]
    else:
        first, *later_sides = open_all(files)
        check_names(under_test, (first, *later_sides))
        earlier, spreads = earlier_runs(first), known_spreads([first, *later_sides])
        comparisons = [
            compare(first, later, under_test, earlier, spreads=spreads, contract=request.contract)
            for later in later_sides
        ]
    return Compared(comparisons, [judge_condition(condition, comparisons) for condition in conditions], windows)


def _tell_outcome(judged: Sequence[JudgedCondition], comparisons: Sequence[Comparison]) -> int:
    """Tell which conditions hold or cannot be decided, and which contracts are broken; return the exit status."""
    for condition in judged:
        if condition.outcome is not ConditionOutcome.DOES_NOT:
            tell(f"--fail-if '{condition.condition.text}' {condition.outcome}: {condition.because}")
    outcomes = {condition.outcome for condition in judged}
    if ConditionOutcome.HOLDS in outcomes:
        return ExitCode.CONDITION_HOLDS
    broken = [
        comparison for comparison in comparisons if comparison.fingerprints.contract and not comparison.comparable
    ]
    for comparison in broken:
        for reason in comparison.reasons:
            tell(reason)
    return ExitCode.CANNOT_TELL if broken or ConditionOutcome.CANNOT_TELL in outcomes else ExitCode.OK


def _print_comparisons(
    format: TableFormat, comparisons: Sequence[Comparison], judged: Sequence[JudgedCondition]
) -> None:
    if format is TableFormat.JSON:
        _print_json(written.comparison_json(comparisons, judged))
    else:
        _print_sheets(format, [sheets(comparison) for comparison in comparisons])


def _print_json(answer: Mapping[str, object]) -> None:
    # Printable by itself, and longer than `say` allows.
    say_as_it_is(json.dumps(answer, ensure_ascii=True))


def _print_sheets(format: TableFormat, comparisons: Sequence[Sequence[Sheet]]) -> None:
    writer = written.sheets_markdown if format is TableFormat.MARKDOWN else written.sheets_text
    say("\n\n".join(map(writer, comparisons)))
