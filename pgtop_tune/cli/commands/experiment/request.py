"""The options of `experiment`, as typed."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

import typer
from msgspec import Struct

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli import options
from pgtop_tune.cli.commands.bench.request import DEFAULT_HOUSEKEEPING
from pgtop_tune.cli.connecting import ConnectionOptions, ConnectionWords
from pgtop_tune.cli.live_options import LoadSessionWords
from pgtop_tune.cli.options import ProfilesDirectory, TableFormat

_MEASURING: Final = "Measuring"
_OVERRIDES: Final = "In place of what the plan says"

PlanArgument = Annotated[str, typer.Argument(metavar="PLAN", help="A TOML file, or P1, P4 or P5, which are shipped.")]
Experiment = Annotated[
    str,
    typer.Argument(
        metavar="EXPERIMENT",
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
        typer.Option("-s", "--scale", metavar="N", rich_help_panel=_OVERRIDES, help="Scale; repeatable."),
    ] = None
    time: Annotated[str, typer.Option("-T", "--time", rich_help_panel=_OVERRIDES, help="Length of a run: 10s.")] = ""
    clients: Annotated[
        list[str] | None,
        typer.Option("-c", "--clients", metavar="N", rich_help_panel=_OVERRIDES, help="Repeatable."),
    ] = None
    repeats: Annotated[int | None, typer.Option("--repeats", min=1, max=100, rich_help_panel=_OVERRIDES)] = None
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, rich_help_panel=_OVERRIDES, help="Seed of the order."),
    ] = None
    endpoint: Annotated[
        list[str] | None,
        typer.Option(
            "--endpoint",
            metavar="NAME=HOST:PORT/DB",
            rich_help_panel=_OVERRIDES,
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
            help="Allow the plan's values of this parameter to run code, as archive_command; repeatable.",
        ),
    ] = None


class PlanRequest(Struct, frozen=True):
    """A plan to be checked, run or continued."""

    plan_hash: Annotated[str, typer.Option("--plan-hash", metavar="HASH", help="Run only what was reviewed.")] = ""
    allow_unsafe: AllowUnsafe = False
    abandon: Annotated[
        bool, typer.Option("--abandon", help="Revert what is left of it, drop its database, and end it.")
    ] = False
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before restarts that end sessions of others.")] = False
    detach: options.Detach = False
    workers: WorkersAddress = ""
    overrides: PlanOverrides = PlanOverrides()
    session: SessionOptions = SessionOptions()
    connection: ConnectionOptions = ConnectionOptions()


class PlanCheckRequest(PlanRequest, frozen=True):
    """The options of `check` and `plan`."""

    LEFT_OUT: ClassVar = frozenset({"plan_hash", "abandon", "yes", "detach", "workers"})


class PlanRunRequest(PlanRequest, frozen=True):
    """The options of `run`."""

    LEFT_OUT: ClassVar = frozenset({"abandon"})


class PlanResumeRequest(PlanRequest, frozen=True):
    """The options of `resume`."""

    LEFT_OUT: ClassVar = frozenset({"plan_hash", "yes", "overrides"})


DetachedName = Annotated[str, typer.Argument(metavar="[NAME]", help="Its name; without, the newest that runs.")]


class NoiseRequest(Struct, frozen=True):
    """A noise floor to be measured.

    Attributes:
        runs: None takes what fits.
    """

    profile: options.OneProfile = "tpcb-like"
    load: options.LoadWords = options.LoadWords()
    how_long: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="TIME",
            rich_help_panel=_MEASURING,
            help="Time of all loads together: half for one continuous load, half for separate runs.",
        ),
    ] = "10m"
    runs: Annotated[
        int | None,
        typer.Option(
            "--runs",
            metavar="N",
            min=0,
            max=20,
            rich_help_panel=_MEASURING,
            show_default="by the time",
            help="Separate runs; 0 for none.",
        ),
    ] = None
    housekeeping: Annotated[
        str,
        typer.Option(
            "--housekeeping", metavar="LIST", rich_help_panel=_MEASURING, help="Steps before each load; or none."
        ),
    ] = DEFAULT_HOUSEKEEPING
    format: Annotated[
        TableFormat, typer.Option("--format", rich_help_panel=_MEASURING, help="Format of the result on stdout.")
    ] = TableFormat.TEXT
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", rich_help_panel=_MEASURING, help="No line per second on stderr.")
    ] = False
    profiles: options.ProfilesDirectory = None
    record: options.Record = None
    session: LoadSessionWords = LoadSessionWords()
    interval: options.Interval = 1.0
    connection: ConnectionWords = ConnectionWords()
