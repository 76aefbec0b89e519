"""The options of `bench run` and `bench init`, as typed."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar, Final

import typer
from msgspec import Struct

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli import options
from pgtop_tune.cli.connecting import ConnectionWords
from pgtop_tune.cli.live_options import SessionWords
from pgtop_tune.cli.options import LOAD, TableFormat
from pgtop_tune.model.bench import LoadSpec

_MEASURING: Final = "Measuring"
_PGBENCH: Final = "pgbench's tables"
_BUS: Final = "The bus company's tables"
DEFAULT_HOUSEKEEPING: Final = "truncate-history,vacuum,checkpoint,quiet"


class RunRequest(Struct, frozen=True):
    """Loads to be measured; None where an option was not given.

    Attributes:
        again: Runs that were made before, to be made again in place of all that profiles and steps say. Without
            results on stdout.
    """

    LEFT_OUT: ClassVar = frozenset({"again"})

    profile: Annotated[
        list[str] | None,
        typer.Option(
            "--profile",
            metavar="NAME",
            rich_help_panel=LOAD,
            help="Load profile (tpcb-like); several run one after the other.",
        ),
    ] = None
    scripts: Annotated[
        list[str] | None,
        typer.Option(
            "-f",
            "--file",
            metavar="FILE[@WEIGHT]",
            rich_help_panel=LOAD,
            help="Script in place of a profile's; - is standard input. Repeatable.",
        ),
    ] = None
    clients: options.Clients = None
    threads: options.Threads = 0
    seconds: Annotated[
        int | None,
        typer.Option("-T", "--time", min=1, rich_help_panel=LOAD, help="Seconds (60)."),
    ] = None
    transactions: Annotated[
        int | None,
        typer.Option(
            "-t",
            "--transactions",
            min=1,
            rich_help_panel=LOAD,
            help="Per client, without -T.",
        ),
    ] = None
    rate: options.Rate = None
    latency_limit: Annotated[
        float | None,
        typer.Option("-L", "--latency-limit", rich_help_panel=LOAD, help="Milliseconds."),
    ] = None
    protocol: options.ProtocolChoice = None
    max_tries: Annotated[
        int | None,
        typer.Option("--max-tries", min=0, rich_help_panel=LOAD, help="0 is no limit (pgbench 15+)."),
    ] = None
    continue_on_error: Annotated[
        bool,
        typer.Option(
            "--continue-on-error",
            rich_help_panel=LOAD,
            help="Count a transaction that any error ends as failed, and go on (pgbench 19+).",
        ),
    ] = False
    connect: Annotated[
        bool, typer.Option("-C", "--connect", rich_help_panel=LOAD, help="Open a connection per transaction.")
    ] = False
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, rich_help_panel=LOAD, help="Seed of random numbers."),
    ] = None
    per_statement: Annotated[
        bool,
        typer.Option("-r", "--report-per-command", rich_help_panel=LOAD, help="Report the latency of each statement."),
    ] = False
    variables: Annotated[
        list[str] | None,
        typer.Option(
            "-D",
            "--define",
            metavar="NAME=VALUE",
            rich_help_panel=LOAD,
            help="Variable for the scripts; repeatable.",
        ),
    ] = None
    allow_shell: Annotated[
        bool,
        typer.Option("--allow-shell", rich_help_panel=LOAD, help="Allow scripts to start programs (\\shell)."),
    ] = False
    steps: Annotated[
        str | None,
        typer.Option(
            "--steps",
            metavar="AXIS=LIST",
            rich_help_panel=_MEASURING,
            help="One run per step: clients=1,2,4,8 or rate=100,200; names the knee.",
        ),
    ] = None
    repeat: Annotated[
        int | None,
        typer.Option(
            "--repeat",
            metavar="N",
            rich_help_panel=_MEASURING,
            help="Run each cell N times, there and back (A B B A); tells how runs differ.",
        ),
    ] = None
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="'±2 %'",
            rich_help_panel=_MEASURING,
            help="Repeat until the 98 % interval of each cell's mean is so narrow.",
        ),
    ] = None
    at_most: Annotated[
        int | None,
        typer.Option(
            "--at-most", metavar="N", rich_help_panel=_MEASURING, show_default="12", help="Limit of --until, per cell."
        ),
    ] = None
    endpoint: Annotated[
        list[str] | None,
        typer.Option(
            "--endpoint",
            metavar="NAME=HOST:PORT/DB",
            rich_help_panel=_MEASURING,
            help="Target of the load instead of the watched server; repeatable.",
        ),
    ] = None
    configuration: Annotated[
        list[str] | None,
        typer.Option(
            "--configuration",
            metavar="'NAME: PARAMETER=VALUE …'",
            rich_help_panel=_MEASURING,
            help="Run each cell under these values, too, and put back what was; repeatable. 'now:' is none.",
        ),
    ] = None
    housekeeping: Annotated[
        str,
        typer.Option(
            "--housekeeping",
            metavar="LIST",
            rich_help_panel=_MEASURING,
            help="Steps before each run, in this order; or none.",
        ),
    ] = DEFAULT_HOUSEKEEPING
    warm_up: Annotated[
        int,
        typer.Option(
            "--warmup", min=0, rich_help_panel=_MEASURING, help="Seconds of the load before the run, discarded."
        ),
    ] = 0
    format: Annotated[
        TableFormat,
        typer.Option("--format", rich_help_panel=_MEASURING, help="Format of the results on stdout."),
    ] = TableFormat.TEXT
    output: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            rich_help_panel=_MEASURING,
            help="Directory for each run's record, stdout and stderr.",
        ),
    ] = None
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", rich_help_panel=_MEASURING, help="No line per second on stderr.")
    ] = False
    profiles: options.ProfilesDirectory = None
    record: options.Record = None
    no_query_text: options.NoQueryText = False
    session: SessionWords = SessionWords()
    interval: options.Interval = 1.0
    connection: ConnectionWords = ConnectionWords()
    again: tuple[LoadSpec, ...] = ()


class Dataset(StrEnum):
    """What can be made."""

    PGBENCH = "pgbench"
    BUS = "bus"


class InitRequest(Struct, frozen=True):
    """A data set to be made; None and "" where an option was not given."""

    dataset: Annotated[Dataset, typer.Option("--dataset", help="Data set to create.")] = Dataset.PGBENCH
    foreign_keys: Annotated[bool, typer.Option("--foreign-keys", help="Create foreign keys, too.")] = False
    unlogged: Annotated[
        bool, typer.Option("--unlogged", help="Tables without WAL: faster, but not representative.")
    ] = False
    force: Annotated[bool, typer.Option("--force", help="Replace an existing data set without asking.")] = False
    skip_space_check: Annotated[
        bool, typer.Option("--skip-space-check", help="Start even if the disk looks too small.")
    ] = False
    format: Annotated[TableFormat, typer.Option("--format", help="Format of the table of seconds per step.")] = (
        TableFormat.TEXT
    )
    scale: Annotated[
        int | None,
        typer.Option(
            "-s", "--scale", rich_help_panel=_PGBENCH, show_default="1", help="100,000 accounts and 16 MB each."
        ),
    ] = None
    steps: Annotated[
        str,
        typer.Option(
            "-I",
            "--init-steps",
            metavar="STEPS",
            rich_help_panel=_PGBENCH,
            show_default="dtgvp",
            help="d drop, t create, g rows sent by pgbench, G rows made by the server, v vacuum, p primary keys, f "
            "foreign keys.",
        ),
    ] = ""
    fillfactor: Annotated[
        int | None,
        typer.Option("-F", "--fillfactor", rich_help_panel=_PGBENCH, help="10 to 100."),
    ] = None
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", rich_help_panel=_PGBENCH, help="Of pgbench_accounts."),
    ] = None
    partition_method: Annotated[
        str,
        typer.Option("--partition-method", rich_help_panel=_PGBENCH, help="range (as usual) or hash."),
    ] = ""
    tablespace: Annotated[str, typer.Option("--tablespace", rich_help_panel=_PGBENCH, help="Of the tables.")] = ""
    index_tablespace: Annotated[
        str, typer.Option("--index-tablespace", rich_help_panel=_PGBENCH, help="Of the indexes.")
    ] = ""
    pgbench: options.Pgbench = None
    size: Annotated[
        str,
        typer.Option(
            "--size",
            metavar="TICKETS|BYTES",
            rich_help_panel=_BUS,
            show_default="6M",
            help="Tickets, as 600000 or 6M, or disk space, as 0.6GB.",
        ),
    ] = ""
    seed: Annotated[
        int | None,
        typer.Option("--seed", rich_help_panel=_BUS, show_default="1", help="The same seed makes the same tables."),
    ] = None
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            rich_help_panel=_BUS,
            show_default="cores, at most 4",
            help="Parallel sessions that create tickets.",
        ),
    ] = None
    connection: ConnectionWords = ConnectionWords()

    def check(self) -> None:
        """Refuses an option of the other data set, which would count for nothing.

        Raises:
            UsageProblem: Names it.
        """
        for dataset, rows in _ONLY_FOR.items():
            for name, option in rows.items():
                if dataset is not self.dataset and getattr(self, name) not in (None, ""):
                    raise UsageProblem(f"{option} is for --dataset {dataset}", "leave one of the two out")


_ONLY_FOR: Final = {
    Dataset.PGBENCH: {
        "scale": "-s",
        "steps": "-I",
        "fillfactor": "--fillfactor",
        "partitions": "--partitions",
        "partition_method": "--partition-method",
        "tablespace": "--tablespace",
        "index_tablespace": "--index-tablespace",
        "pgbench": "--pgbench",
    },
    Dataset.BUS: {"size": "--size", "seed": "--seed", "jobs": "--jobs"},
}
"""Options of one data set only."""
