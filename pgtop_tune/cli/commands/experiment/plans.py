"""`pgtop-tune experiment check`, `plan`, `run`, `resume`, `status` and `report`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer
from msgspec import Struct

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli import options
from pgtop_tune.cli.commands.bench.shared import ProfilesDirectory
from pgtop_tune.cli.connecting import ConnectionOptions

_OVERRIDES: Final = "In place of what the plan says"

PlanArgument = Annotated[
    str, typer.Argument(metavar="PLAN", show_default=False, help="A TOML file, or P1, P4 or P5, which are shipped.")
]
Experiment = Annotated[
    str,
    typer.Argument(
        metavar="EXPERIMENT",
        show_default=False,
        help="Its id, or its plan (the name, or the file): the last one of that name.",
    ),
]
AllowUnsafe = Annotated[
    bool, typer.Option("--allow-unsafe", help="Allow configurations that can lose data or lock out, as fsync = off.")
]


WorkersAddress = Annotated[
    str,
    typer.Option(
        "--workers",
        metavar="ADDRESS",
        show_default=False,
        help="Scheduler of Dask distributed (the extra dask) with one worker beside each of several servers alike.",
    ),
]


def check_for_workers(connection: ConnectionOptions) -> None:
    """Raises UsageProblem where a server is named: with workers each names its own."""
    if connection.host or connection.port or connection.user or connection.database:
        raise UsageProblem("with --workers the environment of each worker names its server", "leave -d, -h, -p, -U out")


class PlanOverrides(Struct, frozen=True):
    """Options that replace what a plan says."""

    scale: Annotated[
        list[str] | None,
        typer.Option(
            "-s", "--scale", metavar="N", rich_help_panel=_OVERRIDES, show_default=False, help="Scale; repeatable."
        ),
    ] = None
    time: Annotated[
        str, typer.Option("-T", "--time", rich_help_panel=_OVERRIDES, show_default=False, help="Length of a run: 10s.")
    ] = ""
    clients: Annotated[
        list[str] | None,
        typer.Option(
            "-c", "--clients", metavar="N", rich_help_panel=_OVERRIDES, show_default=False, help="Repeatable."
        ),
    ] = None
    repeats: Annotated[
        int | None, typer.Option("--repeats", min=1, max=100, rich_help_panel=_OVERRIDES, show_default=False)
    ] = None
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, rich_help_panel=_OVERRIDES, show_default=False, help="Seed of the order."),
    ] = None
    endpoint: Annotated[
        list[str] | None,
        typer.Option(
            "--endpoint",
            metavar="NAME=HOST:PORT/DB",
            rich_help_panel=_OVERRIDES,
            show_default=False,
            help="Address of an endpoint of the plan; repeatable.",
        ),
    ] = None


class SessionOptions(Struct, frozen=True):
    """Options of the session that makes the runs."""

    profiles: ProfilesDirectory = None
    pgbench: options.Pgbench = None
    disk_cap: options.DiskCaps = None
    pooler: options.Poolers = None
    confirm: Annotated[
        list[str] | None,
        typer.Option(
            "--confirm",
            metavar="NAME",
            show_default=False,
            help="Allow the plan's values of this parameter to run code, as archive_command; repeatable.",
        ),
    ] = None


def check(
    *,
    plan: PlanArgument,
    allow_unsafe: AllowUnsafe = False,
    overrides: PlanOverrides,
    session: SessionOptions,
    connection: ConnectionOptions,
) -> None:
    """Check a plan against a server, and print its cells in order, the time and the disk they take, and the end.

    A plan that does not fit is refused with the arithmetic. A configuration that this machine cannot have stays in the
    plan: its cells are results with the reason. Nothing is changed.

    Examples: pgtop-tune experiment check P1 -d bench  ·  pgtop-tune experiment check mine.toml --scale 100 -d bench
    """
    from pgtop_tune.cli.experiment_plans import check_plan

    check_plan(connection, plan, overrides, session, allow_unsafe=allow_unsafe)


def plan(
    *,
    plan: PlanArgument,
    allow_unsafe: AllowUnsafe = False,
    overrides: PlanOverrides,
    session: SessionOptions,
    connection: ConnectionOptions,
) -> None:
    """Check a plan and print the hash of everything that decides what will run.

    `run --plan-hash HASH` runs exactly that, or refuses and names what has changed.

    Example: pgtop-tune experiment plan P1 --scale 100 -d bench
    """
    from pgtop_tune.cli.experiment_plans import review_plan

    review_plan(connection, plan, overrides, session, allow_unsafe=allow_unsafe)


def run(
    *,
    plan: PlanArgument,
    plan_hash: Annotated[
        str, typer.Option("--plan-hash", metavar="HASH", show_default=False, help="Run only what was reviewed.")
    ] = "",
    allow_unsafe: AllowUnsafe = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before restarts that end sessions of others.")] = False,
    detach: options.Detach = False,
    workers: WorkersAddress = "",
    overrides: PlanOverrides,
    session: SessionOptions,
    connection: ConnectionOptions,
) -> None:
    """Run a plan from the first cell to the last, and put everything back.

    Changes are pending confirmation throughout: after a kill the revert watchdog reverts them, and `resume` continues
    with the cell that was lost. The plan runs in a database of its own, unless it says otherwise. The command restarts
    the server where a configuration needs it, and asks first if that ends sessions of others.

    Examples: pgtop-tune experiment run P1 -d bench  ·
    pgtop-tune experiment run P1 --scale 5 --time 10s --allow-unsafe  ·
    pgtop-tune experiment run P5 --endpoint PgBouncer=:6432/bench -d bench  ·
    pgtop-tune experiment run P1 --workers tcp://scheduler:8786
    """
    if detach:
        from pgtop_tune.cli.detached import start_detached

        sys.exit(start_detached(["experiment", "run"]))
    if workers:
        from pgtop_tune.cli.experiment_workers import run_on_workers

        check_for_workers(connection)
        if plan_hash:
            raise UsageProblem("--plan-hash is of one server", "leave it out with --workers")
        sys.exit(run_on_workers(workers, plan, overrides, session, allow_unsafe=allow_unsafe, yes=yes))
    from pgtop_tune.cli.experimenting import run_plan

    sys.exit(run_plan(connection, plan, overrides, session, plan_hash, allow_unsafe=allow_unsafe, yes=yes))


def resume(
    *,
    experiment: Experiment,
    allow_unsafe: AllowUnsafe = False,
    abandon: Annotated[
        bool, typer.Option("--abandon", help="Revert what is left of it, drop its database, and end it.")
    ] = False,
    detach: options.Detach = False,
    workers: WorkersAddress = "",
    session: SessionOptions,
    connection: ConnectionOptions,
) -> None:
    """Continue an experiment that was stopped or killed, in the same order.

    Examples: pgtop-tune experiment resume P1 -d bench  ·  pgtop-tune experiment resume P1 --abandon -d bench
    """
    if detach:
        from pgtop_tune.cli.detached import start_detached

        sys.exit(start_detached(["experiment", "resume"]))
    if workers:
        from pgtop_tune.cli.experiment_workers import resume_on_workers

        check_for_workers(connection)
        sys.exit(resume_on_workers(workers, experiment, session, allow_unsafe=allow_unsafe, abandon=abandon))
    from pgtop_tune.cli.experimenting import resume_experiment

    sys.exit(resume_experiment(connection, experiment, session, allow_unsafe=allow_unsafe, abandon=abandon))


def status(
    experiment: Annotated[
        str,
        typer.Argument(metavar="[EXPERIMENT]", show_default=False, help="Its id, or its plan (the name, or the file)."),
    ] = "",
) -> None:
    """Show what an experiment has done, what runs, and the time left; without a name, list all experiments.

    Examples: pgtop-tune experiment status  ·  pgtop-tune experiment status P1
    """
    from pgtop_tune.cli.experiment_results import show_status

    show_status(experiment)


def report(
    experiment: Experiment,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", show_default=False, help="FILE.html or FILE.md; without, Markdown."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write the report of an experiment, also while it runs: tables, verdicts against the baseline, charts.

    Examples: pgtop-tune experiment report P1  ·  pgtop-tune experiment report P1 -o p1.html
    """
    from pgtop_tune.cli.experiment_results import write_report

    write_report(experiment, output, force=force)


DetachedName = Annotated[
    str, typer.Argument(metavar="[NAME]", show_default=False, help="Its name; without, the newest that runs.")
]


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
