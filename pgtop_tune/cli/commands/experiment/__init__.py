"""`pgtop-tune experiment`: the noise floor, and plans from their check to their report."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from pgtop_tune.cli.commands.experiment.request import (
    DetachedName,
    Experiment,
    NoiseRequest,
    PlanArgument,
    PlanCheckRequest,
    PlanResumeRequest,
    PlanRunRequest,
)
from pgtop_tune.cli.options import register


def noise(request: NoiseRequest) -> None:
    """Measure the noise of a load with nothing changed (A/A), and tell which difference can be seen in which time.

    One continuous load gives the noise of neighbouring blocks, autocorrelation, and the cost of checkpoints; separate
    runs give the deviation between runs. Kept with its date, and used by later comparisons, repeats and experiments
    on this machine and load.

    Examples: pgtop-tune experiment noise -d bench  ·
    pgtop-tune experiment noise --profile select-only -c 16 --for 20m -d bench  ·
    pgtop-tune experiment noise --for 5m --runs 0 --format json -d bench
    """
    from pgtop_tune.cli.commands.experiment.noise_floor import measure_noise

    sys.exit(asyncio.run(measure_noise(request)))


def check(plan: PlanArgument, *, request: PlanCheckRequest) -> None:
    """Check a plan against a server, and print its cells in order, the time and the disk they take, and the end.

    A plan that does not fit is refused with the arithmetic. A configuration that this machine cannot have stays in the
    plan: its cells are results with the reason. Nothing is changed.

    Examples: pgtop-tune experiment check P1 -d bench  ·  pgtop-tune experiment check mine.toml --scale 100 -d bench
    """
    from pgtop_tune.cli.commands.experiment.plans import check_plan

    check_plan(plan, request)


def plan(plan: PlanArgument, *, request: PlanCheckRequest) -> None:
    """Check a plan and print the hash of everything that decides what will run.

    `run --plan-hash HASH` runs exactly that, or refuses and names what has changed.

    Example: pgtop-tune experiment plan P1 --scale 100 -d bench
    """
    from pgtop_tune.cli.commands.experiment.plans import review_plan

    review_plan(plan, request)


def run(plan: PlanArgument, *, request: PlanRunRequest) -> None:
    """Run a plan from the first cell to the last, and put everything back.

    Changes are pending confirmation throughout: after a kill the revert watchdog reverts them, and `resume` continues
    with the cell that was lost. The plan runs in a database of its own, unless it says otherwise. The command restarts
    the server where a configuration needs it, and asks first if that ends sessions of others.

    Examples: pgtop-tune experiment run P1 -d bench  ·
    pgtop-tune experiment run P1 --scale 5 --time 10s --allow-unsafe  ·
    pgtop-tune experiment run P5 --endpoint PgBouncer=:6432/bench -d bench  ·
    pgtop-tune experiment run P1 --workers tcp://scheduler:8786
    """
    if request.detach:
        from pgtop_tune.cli.detached import start_detached

        sys.exit(start_detached(["experiment", "run"]))
    if request.workers:
        from pgtop_tune.cli.commands.experiment.workers import run_on_workers

        sys.exit(run_on_workers(plan, request))
    from pgtop_tune.cli.commands.experiment.running import run_plan

    sys.exit(run_plan(plan, request))


def resume(experiment: Experiment, *, request: PlanResumeRequest) -> None:
    """Continue an experiment that was stopped or killed, in the same order.

    Examples: pgtop-tune experiment resume P1 -d bench  ·  pgtop-tune experiment resume P1 --abandon -d bench
    """
    if request.detach:
        from pgtop_tune.cli.detached import start_detached

        sys.exit(start_detached(["experiment", "resume"]))
    if request.workers:
        from pgtop_tune.cli.commands.experiment.workers import resume_on_workers

        sys.exit(resume_on_workers(experiment, request))
    from pgtop_tune.cli.commands.experiment.running import resume_experiment

    sys.exit(resume_experiment(experiment, request))


def status(
    experiment: Annotated[
        str,
        typer.Argument(metavar="[EXPERIMENT]", help="Its id, or its plan (the name, or the file)."),
    ] = "",
) -> None:
    """Show what an experiment has done, what runs, and the time left; without a name, list all experiments.

    Examples: pgtop-tune experiment status  ·  pgtop-tune experiment status P1
    """
    from pgtop_tune.cli.commands.experiment.results import show_status

    show_status(experiment)


def report(
    experiment: Experiment,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="FILE.html or FILE.md; without, Markdown."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write the report of an experiment, also while it runs: tables, verdicts against the baseline, charts.

    Examples: pgtop-tune experiment report P1  ·  pgtop-tune experiment report P1 -o p1.html
    """
    from pgtop_tune.cli.commands.experiment.results import write_report

    write_report(experiment, output, force=force)


def attach(name: DetachedName = "") -> None:
    """Follow a run that was started with --detach; Ctrl-C leaves it running.

    Examples: pgtop-tune experiment attach  ·  pgtop-tune ab random_page_cost=4,1.1 --detach -d bench
    """
    from pgtop_tune.cli.detached import attach as follow

    sys.exit(follow(name))


def stop(name: DetachedName = "") -> None:
    """Stop a run that was started with --detach, as Ctrl-C does: it puts everything back first.

    Example: pgtop-tune experiment stop
    """
    from pgtop_tune.cli.detached import stop as interrupt

    sys.exit(interrupt(name))


experiment: Final = typer.Typer(
    help="Run experiments: the noise of this machine, and plans of configurations, loads, sizes and endpoints.",
    epilog=(
        "Examples:  pgtop-tune experiment noise --profile tpcb-like -c 16 --for 10m -d bench  ·  "
        "pgtop-tune experiment check P1 -d bench  ·  pgtop-tune experiment run P1 --scale 5 --time 10s  ·  "
        "pgtop-tune experiment status  ·  pgtop-tune experiment resume P1  ·  "
        "pgtop-tune experiment report P1 -o p1.html"
    ),
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help"]},
)

COMMANDS: Final = (
    ("noise", noise),
    ("check", check),
    ("plan", plan),
    ("run", run),
    ("resume", resume),
    ("status", status),
    ("report", report),
    ("attach", attach),
    ("stop", stop),
)
for _name, _command in COMMANDS:
    register(experiment, _name, _command)
