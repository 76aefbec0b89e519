"""`pgtop-tune baseline`: runs saved under a name, and changes since then."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pgtop_tune.base.errors import LoadProblem, RecordingProblem, UsageProblem
from pgtop_tune.cli import options
from pgtop_tune.cli.commands.bench.shared import Format, ProfilesDirectory, TableFormat
from pgtop_tune.cli.commands.compare import As, FailIf, UnderTest, print_comparisons, tell_outcome
from pgtop_tune.cli.connecting import ConnectionOptions, ConnectionWords
from pgtop_tune.cli.options import register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgtop_tune.compare.baselines import LevelChange
    from pgtop_tune.model.bench import LoadSpec

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="Name of the baseline.")]


def save(
    name: Name,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", show_default=False, help="A recording with a run, a record of `bench run`, or a directory."
        ),
    ],
    note: Annotated[
        str, typer.Option("--note", metavar="TEXT", show_default=False, help="Note to save with the run.")
    ] = "",
) -> None:
    """Save a run with its environment under a name; more runs may follow.

    Example: pgtop-tune baseline save go-live run.jsonl.gz --note "new storage"
    """
    from pgtop_tune.cli.output import say, tell
    from pgtop_tune.compare.baselines import save as kept

    run, _ = kept(name, file, note)
    if run.doubts:
        tell(f"the run has doubts, which its later comparisons repeat: {', '.join(run.doubts)}")
    say(f"saved in {run.path}")


def list_baselines(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", show_default=False, help="Only this baseline, run by run.")
    ] = "",
    format: Annotated[Format, typer.Option("--format", help="text, or one JSON array.")] = Format.TEXT,
) -> None:
    """List the baselines; with a name, list its runs and the changes of their level.

    Examples: pgtop-tune baseline list  ·  pgtop-tune baseline list go-live
    """
    from pgtop_tune.cli.output import say, tell
    from pgtop_tune.compare import baselines
    from pgtop_tune.compare.baselines import changes

    wanted = [name] if name else list(baselines.names())
    rows = []
    for each in wanted:
        runs, problems = baselines.kept_runs(each)
        rows += [(each, run) for run in runs]
        for problem in problems:
            tell(problem)
    if format is Format.JSON:
        import json

        say(json.dumps(baselines.as_json(rows), ensure_ascii=True, indent=2))
        return
    say(baselines.table(rows) if rows else "no baseline; pgtop-tune baseline save NAME FILE creates one")
    if name:
        _tell_changes(changes([run for _, run in rows]))


def check(
    *,
    name: Name,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", show_default=False, help="A newer run (default: repeat the load; needs -d)."),
    ] = None,
    against: Annotated[
        str, typer.Option("--against", metavar="first|last", help="Run of the baseline to compare with.")
    ] = "first",
    keep: Annotated[bool, typer.Option("--save", help="Add the new run to the baseline.")] = False,
    note: Annotated[
        str, typer.Option("--note", metavar="TEXT", show_default=False, help="Note to save with the run.")
    ] = "",
    fail_if: FailIf = None,
    under_test: UnderTest = None,
    contract: As = None,
    format: Annotated[
        TableFormat, typer.Option("--format", help="Format of the comparison on stdout.")
    ] = TableFormat.TEXT,
    profiles: ProfilesDirectory = None,
    pgbench: options.Pgbench = None,
    words: ConnectionOptions,
) -> None:
    """Repeat the measurement of a baseline, and report the changes.

    Repeats the loads of the baseline's run, with the housekeeping of `bench run`, or takes a newer recording or
    record. With many saved runs, it names the times at which a figure's level changed.

    Examples: pgtop-tune baseline check go-live -d bench --save  ·
    pgtop-tune baseline check go-live today.jsonl.gz --fail-if 'tps < -5%'
    """
    import tempfile

    from pgtop_tune.cli.output import tell
    from pgtop_tune.compare import baselines
    from pgtop_tune.compare.baselines import changes
    from pgtop_tune.compare.comparison import compare, judge, parse_condition
    from pgtop_tune.compare.noise import known_spreads
    from pgtop_tune.compare.sides.fingerprint import check_names
    from pgtop_tune.compare.sides.opening import open_material

    if against not in ("first", "last"):
        raise UsageProblem(f"{against!r} is not a run of a baseline", "--against first, or --against last")
    conditions = [parse_condition(each) for each in fail_if or ()]
    runs, problems = baselines.kept_runs(name)
    for problem in problems:
        tell(problem)
    if not runs:
        raise UsageProblem(f"the baseline {name!r} has no run", f"pgtop-tune baseline save {name} FILE adds one")
    reference = runs[0] if against == "first" else runs[-1]
    before = open_material(reference.path, f"{name}, {against} of {len(runs)}")
    with tempfile.TemporaryDirectory(prefix="pgtop-tune-") as directory:
        if file is None:
            specs = tuple(run.spec for run in before.runs if run.spec is not None)
            file = Path(directory) / "again.jsonl.gz"
            _measure_again(specs, words, file, profiles, pgbench)
        now = open_material(file, "now")
        check_names(under_test or [], (before, now))
        comparison = compare(
            before, now, under_test or [], baselines.earlier_runs(before),
            known=known_spreads([before, now]), contract=contract,
        )  # fmt: skip
        unkept: RecordingProblem | None = None
        if keep:
            try:
                kept, _ = baselines.save(name, file, note)
            except RecordingProblem as problem:
                unkept = problem
            else:
                tell(f"saved in {kept.path}")
                runs = (*runs, kept)
    judged = [judge(condition, [comparison]) for condition in conditions]
    print_comparisons(format, [comparison], judged)
    _tell_changes(changes(sorted(runs, key=lambda run: run.began_ms)))
    if unkept is not None:
        raise unkept
    sys.exit(tell_outcome(judged, [comparison]))


def _tell_changes(found: Sequence[LevelChange]) -> None:
    """On stderr: they are beside the result that was asked for."""
    from pgtop_tune.cli.output import tell
    from pgtop_tune.compare.baselines import change_words

    for change in found:
        tell(change_words(change))


def _measure_again(
    specs: tuple[LoadSpec, ...], words: ConnectionWords, file: Path, profiles: Path | None, pgbench: Path | None
) -> None:
    from pgtop_tune.cli.commands.bench.run import DEFAULT_HOUSEKEEPING
    from pgtop_tune.cli.exit_codes import ExitCode
    from pgtop_tune.cli.live_options import LiveOptions
    from pgtop_tune.cli.measuring import BenchRequest, measure
    from pgtop_tune.model.bench import LoadSpec

    if not specs:
        raise UsageProblem("the baseline's run does not name its profile", "pass a newer recording or record")
    status = asyncio.run(
        measure(
            BenchRequest(
                connection=words,
                profiles=(),
                profiles_directory=profiles,
                spec=LoadSpec(),
                clients=None,
                protocol=None,
                allow_shell=False,
                steps=None,
                endpoints=(),
                housekeeping=DEFAULT_HOUSEKEEPING,
                warm_up_s=0,
                format="",
                output=None,
                record=file,
                quiet=False,
                live=LiveOptions(pgbench=pgbench),
                again=specs,
            )
        )
    )
    if status == ExitCode.LOAD:
        raise LoadProblem("the load could not be repeated", "see the messages above")
    if status != ExitCode.OK:
        sys.exit(status)


baseline: Final = typer.Typer(
    help="Save runs under a name, and compare with them later.",
    epilog=(
        "Examples:  pgtop-tune baseline save go-live run.jsonl.gz  ·  pgtop-tune baseline check go-live -d bench  ·  "
        "pgtop-tune baseline list"
    ),
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help"]},
)
COMMANDS: Final = (("save", save), ("list", list_baselines), ("check", check))
for _name, _command in COMMANDS:
    register(baseline, _name, _command)
