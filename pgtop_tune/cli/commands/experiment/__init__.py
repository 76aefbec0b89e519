"""`pgtop-tune experiment`: the noise floor, and plans from their check to their report."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Final

from msgspec import Struct
from typer import Argument, Option

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli import options
from pgtop_tune.cli.commands.bench import DEFAULT_HOUSEKEEPING
from pgtop_tune.cli.connections import ConnectionOptions, ConnectionWords
from pgtop_tune.cli.options import Format, LoadSessionWords, LoadWords, ProfilesDirectory, TableFormat

_measuring_option: Final = partial(Option, rich_help_panel="Measuring")
_overrides_option: Final = partial(Option, rich_help_panel="Replacing values of the plan")

PlanArgument = Annotated[
    str, Argument(metavar="PLAN", help="A TOML file, or one of the shipped plans P1, P4, P5 and outage.")
]
ExperimentArgument = Annotated[
    str,
    Argument(
        metavar="EXPERIMENT",
        help="Id of the experiment, or its plan (name or file) for the newest experiment of that plan.",
    ),
]
AllowUnsafe = Annotated[
    bool, Option("--allow-unsafe", help="Allow configurations that can lose data or lock you out, such as fsync = off.")
]


WorkersAddress = Annotated[
    str,
    Option(
        "--workers",
        metavar="ADDRESS",
        help="Dask scheduler (needs the extra `dask`) with one worker on each of several identical servers.",
    ),
]


def check_for_workers(connection: ConnectionOptions) -> None:
    """Raise UsageProblem where a server is named: each worker names its own."""
    if connection.host or connection.port or connection.user or connection.database:
        raise UsageProblem(
            "with --workers, each worker takes its server from its environment", "leave -d, -h, -p and -U out"
        )


class PlanOverrides(Struct, frozen=True):
    """Options that replace what a plan says."""

    scale: Annotated[
        list[str] | None, _overrides_option("-s", "--scale", metavar="N", help="Scale factor; repeatable.")
    ] = None
    time: Annotated[str, _overrides_option("-T", "--time", help="Length of a run: 10s.")] = ""
    clients: Annotated[
        list[str] | None, _overrides_option("-c", "--clients", metavar="N", help="Concurrent sessions; repeatable.")
    ] = None
    repeats: Annotated[int | None, _overrides_option("--repeats", min=1, max=100)] = None
    seed: Annotated[int | None, _overrides_option("--seed", min=0, help="Random seed for the order of the cells.")] = (
        None
    )
    endpoint: Annotated[
        list[str] | None,
        _overrides_option(
            "--endpoint", metavar="NAME=HOST:PORT/DB", help="Address of an endpoint of the plan; repeatable."
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
        Option(
            "--confirm",
            metavar="NAME",
            help="Allow the plan to set this parameter, which runs code (such as archive_command); repeatable.",
        ),
    ] = None


AllowOutage = Annotated[
    list[str] | None,
    Option(
        "--allow-outage",
        metavar="HOST:PORT",
        help="Allow the plan to restart, kill or promote this server or pooler of yours on this machine; repeatable.",
    ),
]


class PlanRequest(Struct, frozen=True):
    """A plan to be checked, run or continued."""

    plan_hash: Annotated[
        str,
        Option(
            "--plan-hash", metavar="HASH", help="Run only the plan that was reviewed: its hash from `experiment plan`."
        ),
    ] = ""
    allow_unsafe: AllowUnsafe = False
    allow_outage: AllowOutage = None
    abandon: Annotated[
        bool,
        Option("--abandon", help="Revert remaining changes, drop the experiment's database, and end the experiment."),
    ] = False
    dry_run: Annotated[
        bool,
        Option(
            "-n", "--dry-run", help="Check, and print the cells, or of `resume` what is left; run and revert nothing."
        ),
    ] = False
    yes: Annotated[
        bool, Option("-y", "--yes", help="Do not ask before outages, and before restarts that end other sessions.")
    ] = False
    detach: options.Detach = False
    workers: WorkersAddress = ""
    overrides: PlanOverrides = PlanOverrides()
    session: SessionOptions = SessionOptions()
    connection: ConnectionOptions = ConnectionOptions()


class PlanCheckRequest(PlanRequest, frozen=True, kw_only=True):
    """Check a plan against a server, and print its cells in order, their time and disk space, and the end time.

    A plan that does not fit is refused, with the calculation. A configuration that this machine does not allow stays
    in the plan; its cells report the reason. Nothing is changed.

    Examples: pgtop-tune experiment check P1 -d bench  ·  pgtop-tune experiment check mine.toml --scale 100 -d bench
    """

    LEFT_OUT: ClassVar = frozenset({"plan_hash", "abandon", "dry_run", "yes", "detach", "workers"})

    plan: PlanArgument


class PlanReviewRequest(PlanCheckRequest, frozen=True):
    """Check a plan and print the hash of everything that decides what will run.

    `run --plan-hash HASH` runs exactly that, or refuses and names what has changed.

    Example: pgtop-tune experiment plan P1 --scale 100 -d bench
    """


class PlanRunRequest(PlanRequest, frozen=True, kw_only=True):
    """Run a plan from the first cell to the last, and restore the original values.

    Changes are pending confirmation throughout: after a kill the revert watchdog reverts them, and `resume` continues
    with the cell that was lost. The plan runs in its own database, unless it sets another. The command restarts the
    server where a configuration needs it, and asks first if a restart ends other sessions.

    Examples: pgtop-tune experiment run P1 -d bench  ·
    pgtop-tune experiment run P1 --scale 5 --time 10s --allow-unsafe  ·
    pgtop-tune experiment run P5 --endpoint PgBouncer=:6432/bench -d bench  ·
    pgtop-tune experiment run outage  ·
    pgtop-tune experiment run P1 --workers tcp://scheduler:8786
    """

    LEFT_OUT: ClassVar = frozenset({"abandon"})

    plan: PlanArgument


class PlanResumeRequest(PlanRequest, frozen=True, kw_only=True):
    """Continue an experiment that was stopped or killed, in the same order.

    Examples: pgtop-tune experiment resume P1 -d bench  ·  pgtop-tune experiment resume P1 --abandon -d bench
    """

    LEFT_OUT: ClassVar = frozenset({"plan_hash", "yes", "overrides"})

    experiment: ExperimentArgument


class StatusRequest(Struct, frozen=True):
    """Show the progress of an experiment and the time left; without a name, list all experiments.

    Examples: pgtop-tune experiment status --json  ·  pgtop-tune experiment status P1
    """

    experiment: Annotated[
        str, Argument(metavar="[EXPERIMENT]", help="Id of the experiment, or its plan (name or file).")
    ] = ""
    format: Annotated[
        Format, Option("--format", help="text, or one JSON array; of one experiment, an object with its cells.")
    ] = Format.TEXT


class ExperimentReportRequest(Struct, frozen=True):
    """Write the report of an experiment, also while it runs: tables, verdicts against the baseline, charts.

    Examples: pgtop-tune experiment report P1  ·  pgtop-tune experiment report P1 -o p1.html
    """

    experiment: ExperimentArgument
    output: Annotated[
        Path | None,
        Option("-o", "--output", metavar="FILE", help="FILE.html or FILE.md; without this option, Markdown on stdout."),
    ] = None
    force: Annotated[bool, Option("--force", help="Replace an existing file.")] = False


class AttachRequest(Struct, frozen=True):
    """Follow a run that was started with --detach; Ctrl-C leaves it running.

    Examples: pgtop-tune experiment attach  ·  pgtop-tune ab random_page_cost=4,1.1 --detach -d bench
    """

    name: Annotated[
        str, Argument(metavar="[NAME]", help="Name of the run (default: the newest one that is running).")
    ] = ""


class StopRequest(AttachRequest, frozen=True):
    """Stop a run that was started with --detach, as Ctrl-C does: it restores the original values first.

    Example: pgtop-tune experiment stop
    """


class NoiseRequest(Struct, frozen=True):
    """Measure the noise of a load with nothing changed (A/A), and report how long it takes to detect a difference.

    One continuous load gives the noise between adjacent blocks, the autocorrelation, and the cost of checkpoints;
    separate runs give the deviation between runs. The result is saved with its date; later comparisons, repeats and
    experiments on this machine and load use it.

    Examples: pgtop-tune experiment noise -d bench  ·
    pgtop-tune experiment noise --profile select-only -c 16 --for 20m -d bench  ·
    pgtop-tune experiment noise --for 5m --runs 0 --format json -d bench
    """

    load: LoadWords = LoadWords()
    how_long: Annotated[
        str,
        _measuring_option(
            "--for",
            "-T",
            metavar="TIME",
            help="Total time of all loads: half for one continuous load, half for separate runs.",
        ),
    ] = "10m"
    runs: Annotated[
        int | None,
        _measuring_option(
            "--runs",
            metavar="N",
            min=0,
            max=20,
            show_default="from the time",
            help="Number of separate runs; 0 for none.",
        ),
    ] = None
    housekeeping: Annotated[
        str, _measuring_option("--housekeeping", metavar="LIST", help="Housekeeping steps before each load; or none.")
    ] = DEFAULT_HOUSEKEEPING
    format: Annotated[TableFormat, _measuring_option("--format", help="Format of the result on stdout.")] = (
        TableFormat.TEXT
    )
    quiet: Annotated[bool, _measuring_option("-q", "--quiet", help="Print no line per second on stderr.")] = False
    profiles: options.ProfilesDirectory = None
    record: options.Record = None
    session: LoadSessionWords = LoadSessionWords()
    interval: options.Interval = 1.0
    connection: ConnectionWords = ConnectionWords()
