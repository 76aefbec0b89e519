"""`pgtop-tune bench`: data sets, load profiles, and measured loads."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Final

from msgspec import Struct
from typer import Argument, Option

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli import options
from pgtop_tune.cli.connections import ConnectionOptions, ConnectionWords
from pgtop_tune.cli.options import Format, SessionWords, TableFormat, load_option
from pgtop_tune.model.bench import LoadSpec

_measuring_option: Final = partial(Option, rich_help_panel="Measuring")
_pgbench_option: Final = partial(Option, rich_help_panel="pgbench's tables")
_bus_option: Final = partial(Option, rich_help_panel="The bus company's tables")
DEFAULT_HOUSEKEEPING: Final = "truncate-history,vacuum,checkpoint,quiet"


class RunRequest(Struct, frozen=True):
    """Run loads and report the results, with every reason to doubt them.

    pgbench runs with -n, after housekeeping before each run. Meanwhile pgtop-tune watches the server and names each
    reason to doubt the result. Progress goes to stderr, results to stdout. The exit status is 0 when all runs are
    valid.

    Examples: pgtop-tune bench run --profile select-only -c 8 -T 10 --format json  ·
    pgtop-tune bench run --steps clients=1,2,4,8,16,32,64 -T 60 -d bench  ·
    pgtop-tune bench run --profile tpcb-like --profile select-only --until '±2 %' -T 60 -d bench  ·
    pgtop-tune bench run --endpoint direct=:5432 --endpoint pooler=:6432 --steps clients=500,1000 -T 60 -d bench  ·
    pgtop-tune bench run --configuration now: --configuration 'big: work_mem=64MB jit=off' --repeat 4 -T 60 -d bench  ·
    pgtop-tune bench run --load-from ssh://load@generator -h db1 -c 64 -T 60 bench
    """

    LEFT_OUT: ClassVar = frozenset({"again"})

    profile: Annotated[
        list[str] | None,
        load_option("--profile", metavar="NAME", help="Load profile (tpcb-like); several run one after the other."),
    ] = None
    scripts: Annotated[
        list[str] | None,
        load_option(
            "-f",
            "--file",
            metavar="FILE[@WEIGHT]",
            help="Script in place of a profile's; - is standard input. Repeatable.",
        ),
    ] = None
    clients: options.Clients = None
    threads: options.Threads = 0
    seconds: Annotated[int | None, load_option("-T", "--time", min=1, help="Duration in seconds (60).")] = None
    transactions: Annotated[
        int | None, load_option("-t", "--transactions", min=1, help="Transactions per client, instead of -T.")
    ] = None
    rate: options.Rate = None
    latency_limit: Annotated[
        float | None, load_option("-L", "--latency-limit", help="Latency limit in milliseconds.")
    ] = None
    protocol: options.ProtocolChoice = None
    max_tries: Annotated[
        int | None, load_option("--max-tries", min=0, help="Tries per transaction; 0 is no limit (pgbench 15+).")
    ] = None
    continue_on_error: Annotated[
        bool,
        load_option(
            "--continue-on-error", help="After any error, count the transaction as failed and continue (pgbench 19+)."
        ),
    ] = False
    connect: Annotated[bool, load_option("-C", "--connect", help="Open a connection per transaction.")] = False
    seed: Annotated[int | None, load_option("--seed", min=0, help="Seed of pgbench's random numbers.")] = None
    per_statement: Annotated[
        bool, load_option("-r", "--report-per-command", help="Report the latency of each statement.")
    ] = False
    variables: Annotated[
        list[str] | None,
        load_option("-D", "--define", metavar="NAME=VALUE", help="Variable for the scripts; repeatable."),
    ] = None
    allow_shell: Annotated[bool, load_option("--allow-shell", help="Allow scripts to start programs (\\shell).")] = (
        False
    )
    steps: Annotated[
        str | None,
        _measuring_option(
            "--steps", metavar="AXIS=LIST", help="One run per step: clients=1,2,4,8 or rate=100,200; reports the knee."
        ),
    ] = None
    repeat: Annotated[
        int | None,
        _measuring_option(
            "--repeat",
            metavar="N",
            help="Run each cell N times, in mirrored order (A B B A); reports the spread between runs.",
        ),
    ] = None
    until: Annotated[
        str | None,
        _measuring_option(
            "--until", metavar="'±2 %'", help="Repeat until the 98 % interval of each cell's mean is this narrow."
        ),
    ] = None
    at_most: Annotated[
        int | None,
        _measuring_option("--at-most", metavar="N", show_default="12", help="With --until: limit of runs per cell."),
    ] = None
    endpoint: Annotated[
        list[str] | None,
        _measuring_option(
            "--endpoint",
            metavar="NAME=HOST:PORT/DB",
            help="Target of the load instead of the watched server; repeatable.",
        ),
    ] = None
    configuration: Annotated[
        list[str] | None,
        _measuring_option(
            "--configuration",
            metavar="'NAME: PARAMETER=VALUE …'",
            help="Run each cell also with these values, then restore the old ones; repeatable. 'now:' changes none.",
        ),
    ] = None
    housekeeping: Annotated[
        str,
        _measuring_option(
            "--housekeeping", metavar="LIST", help="Housekeeping steps before each run, in this order; or none."
        ),
    ] = DEFAULT_HOUSEKEEPING
    warm_up: Annotated[
        int, _measuring_option("--warmup", min=0, help="Seconds of load before each run, not measured.")
    ] = 0
    format: Annotated[TableFormat, _measuring_option("--format", help="Format of the results on stdout.")] = (
        TableFormat.TEXT
    )
    output: Annotated[
        Path | None,
        _measuring_option("--out", metavar="DIR", help="Directory for each run's record, stdout and stderr."),
    ] = None
    quiet: Annotated[bool, _measuring_option("-q", "--quiet", help="Print no line per second on stderr.")] = False
    profiles: options.ProfilesDirectory = None
    record: options.Record = None
    no_query_text: options.NoQueryText = False
    session: SessionWords = SessionWords()
    interval: options.Interval = 1.0
    connection: ConnectionWords = ConnectionWords()
    again: tuple[LoadSpec, ...] = ()
    """Runs of an earlier measurement, repeated in place of profiles and steps; without results on stdout."""


class Dataset(StrEnum):
    """Data sets that `bench init` creates."""

    PGBENCH = "pgbench"
    BUS = "bus"


class InitRequest(Struct, frozen=True):
    """Create the tables for a load, and report the seconds of each step.

    Recognises an existing data set, and replaces it only on request: type the database's name on a terminal, or pass
    --force. Checks disk space first. Ctrl-C stops the creation, on the server too; to resume a bus data set after an
    interruption, run the same command again.

    Examples: pgtop-tune bench init -s 100 -d bench  ·  pgtop-tune bench init -s 5 -I dtGvpf -d bench  ·
    pgtop-tune bench init --dataset bus --size 0.6GB -d bench
    """

    dataset: Annotated[Dataset, Option("--dataset", help="Data set to create.")] = Dataset.PGBENCH
    foreign_keys: Annotated[bool, Option("--foreign-keys", help="Create foreign keys, too.")] = False
    unlogged: Annotated[bool, Option("--unlogged", help="Tables without WAL: faster, but not representative.")] = False
    force: Annotated[bool, Option("--force", help="Replace an existing data set without asking.")] = False
    skip_space_check: Annotated[bool, Option("--skip-space-check", help="Start even if the disk looks too small.")] = (
        False
    )
    format: Annotated[TableFormat, Option("--format", help="Format of the table of seconds per step.")] = (
        TableFormat.TEXT
    )
    scale: Annotated[
        int | None,
        _pgbench_option("-s", "--scale", show_default="1", help="Scale factor; 100,000 accounts and 15 MB each."),
    ] = None
    steps: Annotated[
        str,
        _pgbench_option(
            "-I",
            "--init-steps",
            metavar="STEPS",
            show_default="dtgvp",
            help="d drop, t create, g rows sent by pgbench, G rows generated by the server, v vacuum, p primary "
            "keys, f foreign keys.",
        ),
    ] = ""
    fillfactor: Annotated[
        int | None, _pgbench_option("-F", "--fillfactor", help="Fill factor of the tables, 10 to 100.")
    ] = None
    partitions: Annotated[int | None, _pgbench_option("--partitions", help="Partitions of pgbench_accounts.")] = None
    partition_method: Annotated[str, _pgbench_option("--partition-method", help="range (default) or hash.")] = ""
    tablespace: Annotated[str, _pgbench_option("--tablespace", help="Tablespace of the tables.")] = ""
    index_tablespace: Annotated[str, _pgbench_option("--index-tablespace", help="Tablespace of the indexes.")] = ""
    pgbench: options.Pgbench = None
    size: Annotated[
        str,
        _bus_option(
            "--size",
            metavar="TICKETS|BYTES",
            show_default="6M",
            help="Number of tickets (600000, 6M) or disk space (0.6GB).",
        ),
    ] = ""
    seed: Annotated[
        int | None, _bus_option("--seed", show_default="1", help="Random seed; the same seed creates the same tables.")
    ] = None
    jobs: Annotated[
        int | None,
        _bus_option("--jobs", show_default="cores, at most 4", help="Parallel sessions that create tickets."),
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
                    raise UsageProblem(f"{option} is for --dataset {dataset}", "leave one of them out")


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


class ProfilesRequest(Struct, frozen=True):
    """Show the load profiles: the built-in ones, yours in ~/.config/pgtop-tune/profiles, and those of --profiles.

    Examples: pgtop-tune bench list  ·  pgtop-tune bench list --profiles ./loads --format json
    """

    profiles: options.ProfilesDirectory = None
    format: Annotated[Format, Option("--format", help="text, or one JSON array.")] = Format.TEXT


class ProfileRequest(Struct, frozen=True):
    """Show a profile: scripts with weight, text and hash, and the exact pgbench line.

    With a database (-d), fills in the numbers that scripts take from its data set; runs nothing.

    Examples: pgtop-tune bench show tpcb-like  ·  pgtop-tune bench show ticket-read -d bench --format json
    """

    name: Annotated[str, Argument(metavar="PROFILE", help="Name of the profile, from `bench list`.")]
    profiles: options.ProfilesDirectory = None
    format: Annotated[Format, Option("--format", help="text, or one JSON object.")] = Format.TEXT
    pgbench: options.Pgbench = None
    connection: ConnectionOptions = ConnectionOptions()
