"""`pgtop-tune bench`: data sets, load profiles, and measured loads."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Final

from msgspec import Struct
from typer import Argument, Option

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.units import TIMES, quantity
from pgtop_tune.cli import completion, options
from pgtop_tune.cli.connections import ConnectionOptions, ConnectionWords
from pgtop_tune.cli.options import (
    Format,
    ListFormat,
    ListFormatChoice,
    LoadWords,
    SessionWords,
    TableFormat,
    load_option,
)
from pgtop_tune.model.bench import LoadSpec

_measuring_option: Final = partial(Option, rich_help_panel="Measuring")
_pgbench_option: Final = partial(Option, rich_help_panel="pgbench's tables")
_bus_option: Final = partial(Option, rich_help_panel="The bus company's tables")
DEFAULT_HOUSEKEEPING: Final = "truncate-history,vacuum,checkpoint,quiet"


_INIT: Final = ("-i", "--initialize")


def with_command(arguments: Sequence[str], commands: Sequence[str]) -> list[str]:
    """Return the words behind `bench` as a command: words as for pgbench are those of `init` or `run`.

    -i is pgbench's -i unless a time follows: `bench -i -s 10` creates tables. Words behind -- become options.

    Args:
        commands: The commands of `bench`.
    """
    before, after = list(arguments), list[str]()
    if "--" in before:
        at = before.index("--")
        before, after = before[:at], before[at + 1 :]
    if before and before[0] not in (*commands, "--help", "-?"):
        following = [*before[1:], ""]
        created = [
            word in _INIT and quantity(next_word, {**TIMES, "": 1.0}) is None
            for word, next_word in zip(before, following, strict=True)
        ]
        # As in -is 10.
        joined = [word[:2] == "-i" and word[2:3].isalpha() for word in before]
        if any(created) or any(joined):
            for_init = [f"-{word[2:]}" if is_joined else word for word, is_joined in zip(before, joined, strict=True)]
            before = ["init", *(word for word, is_init in zip(for_init, created, strict=True) if not is_init)]
        else:
            before = ["run", *before]
    return before + [f"--pgbench-option={word}" for word in after]


class RunLoadWords(LoadWords, frozen=True):
    """The load of a run that counts by itself: its length, and options that other commands set themselves."""

    random_seed: Annotated[
        int | None, load_option("--seed", "--random-seed", min=0, help="Seed of pgbench's random numbers.")
    ] = None
    seconds: Annotated[
        int | None,
        load_option(
            "-T",
            "--time",
            metavar="TIME",
            parser=options.times(1.0, integer=True),
            help="Duration: 300, 5m (60s).",
        ),
    ] = None
    transactions: Annotated[
        int | None, load_option("-t", "--transactions", min=1, help="Transactions per client, instead of -T.")
    ] = None
    phases: Annotated[
        str,
        load_option(
            "--phases",
            metavar="LIST",
            help="Change the load while it runs, in place of -T: 'ramp 8..64 over 5m, hold 10m, burst x3 for 30s every "
            "2m, pause 1m'. 500/s stands for a rate. Results by phase.",
        ),
    ] = ""
    through_outage: Annotated[
        bool,
        load_option(
            "--through-outage",
            help="Replace clients that are lost, until the time is over, and report the outage as they saw it: first "
            "error, first commit, p99, missing commits.",
        ),
    ] = False
    per_statement: Annotated[
        bool, load_option("-r", "--report-per-command", help="Report the latency of each statement.")
    ] = False
    no_vacuum: Annotated[
        bool,
        load_option("-n", "--no-vacuum", help="Always so: --housekeeping vacuums before each run; none leaves it out."),
    ] = False


class RunRequest(Struct, frozen=True):
    """Run loads and report the results, with every reason to doubt them.

    pgbench runs with -n, after housekeeping before each run. Meanwhile pgtop-tune watches the server and names each
    reason to doubt the result. Progress goes to stderr, results to stdout. The exit status is 0 when all runs are
    valid.

    Examples: pgtop-tune bench run --profile select-only -c 8 -T 10 --json  ·
    pgtop-tune bench run --steps clients=1,2,4,8,16,32,64 -T 60 -d bench  ·
    pgtop-tune bench run --profile tpcb-like --profile select-only --until '±2 %' -T 60 -d bench  ·
    pgtop-tune bench run --endpoint direct=:5432 --endpoint pooler=:6432 --steps clients=500,1000 -T 60 -d bench  ·
    pgtop-tune bench run --configuration now: --configuration 'big: work_mem=64MB jit=off' --repeat 4 -T 60 -d bench  ·
    pgtop-tune bench run --slo 'p99 < 20ms' --profile select-only -c 32 -d bench  ·
    pgtop-tune bench run -R 500 --abort-if 'p99 > 50ms for 10s' -T 5m -d bench  ·
    pgtop-tune bench run --load-from ssh://load@generator -h db1 -c 64 -T 60 bench  ·
    pgtop-tune bench run --phases 'ramp 8..64 over 5m, hold 10m, burst x3 for 30s every 2m' -d bench  ·
    pgtop-tune bench run --through-outage -T 5m 'host=a,b target_session_attrs=read-write dbname=bench'  ·
    pgtop-tune bench -S -c 8 -T 60 bench  ·
    pgtop-tune bench run -b tpcb-like@1 -b select-only@9 -P 5 -T 5m bench -- --exit-on-abort
    """

    LEFT_OUT: ClassVar = frozenset({"again"})

    load: RunLoadWords = RunLoadWords()
    steps: Annotated[
        str | None,
        _measuring_option(
            "--steps",
            metavar="AXIS=LIST",
            help="One run per step: clients=1,2,4,8 or rate=500,1k,2k; reports the knee.",
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
    find_knee: Annotated[
        bool,
        _measuring_option(
            "--find-knee",
            help="One run per number of clients (1, 2, 3, 4, 6, 8 …, or --steps), and the universal scalability law "
            "fitted to them beside the measured knee.",
        ),
    ] = False
    slo: Annotated[
        str | None,
        _measuring_option(
            "--slo",
            metavar="OBJECTIVE",
            help="Search for the highest rate that keeps an objective: 'p99 < 20ms', 'p95 of SCRIPT < 1s', "
            "'mean < 5ms and failed < 0.1%'. -R is the first rate, -T the length of a run that confirms.",
        ),
    ] = None
    budget: Annotated[
        str | None, _measuring_option("--budget", metavar="TIME", help="With --slo: time limit: 20m, 1h.")
    ] = None
    resume: Annotated[
        str, _measuring_option("--resume", metavar="ID", help="With --slo: continue this search; last: the newest one.")
    ] = ""
    abort_if: Annotated[
        list[str] | None,
        _measuring_option(
            "--abort-if",
            metavar="'CONDITION for TIME'",
            help="End the run and all further ones, with exit status 10, when a condition has held for so long: 'p99 > "
            "50ms for 10s', 'failed > 1% for 5s', 'tps < 100 for 30s'; repeatable.",
        ),
    ] = None
    no_stop: Annotated[
        bool,
        _measuring_option(
            "--no-stop", help="Go on with a rate that overloads the server; else such a run ends as OVERLOADED."
        ),
    ] = False
    housekeeping: Annotated[
        str,
        _measuring_option(
            "--housekeeping", metavar="LIST", help="Housekeeping steps before each run, in this order; or none."
        ),
    ] = DEFAULT_HOUSEKEEPING
    warm_up: Annotated[
        int,
        _measuring_option(
            "--warmup",
            metavar="TIME",
            parser=options.times(integer=True),
            help="Load before each run that is not measured: 30, 2m.",
        ),
    ] = 0
    format: Annotated[TableFormat, _measuring_option("--format", help="Format of the results on stdout.")] = (
        TableFormat.TEXT
    )
    output: Annotated[
        Path | None,
        _measuring_option("--out", metavar="DIR", help="Directory for each run's record, stdout and stderr."),
    ] = None
    dry_run: Annotated[
        bool,
        _measuring_option("--dry-run", help="Print the runs and pgbench's command lines; run nothing."),
    ] = False
    quiet: Annotated[bool, _measuring_option("-q", "--quiet", help="Print no line per second on stderr.")] = False
    progress: Annotated[
        int,
        _measuring_option(
            "-P",
            "--progress",
            metavar="TIME",
            parser=options.times(1.0, integer=True),
            help="Print a line of progress for each 1s, 5s or 1m, with the means of this time.",
        ),
    ] = 1
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
    unlogged: Annotated[
        bool, Option("--unlogged", "--unlogged-tables", help="Tables without WAL: faster, but not representative.")
    ] = False
    force: Annotated[bool, Option("--force", help="Replace an existing data set without asking.")] = False
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show the command, the existing data set and the space; create nothing.")
    ] = False
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

    Examples: pgtop-tune bench list  ·  pgtop-tune bench list --profiles ./loads --json
    """

    profiles: options.ProfilesDirectory = None
    format: ListFormatChoice = ListFormat.TEXT


class ProfileRequest(Struct, frozen=True):
    """Show a profile: scripts with weight, text and hash, and the exact pgbench line.

    With a database (-d), fills in the numbers that scripts take from its data set; runs nothing.

    Examples: pgtop-tune bench show tpcb-like  ·  pgtop-tune bench show ticket-read -d bench --json
    """

    name: Annotated[
        str,
        Argument(metavar="PROFILE", help="Name of the profile, from `bench list`.", autocompletion=completion.profiles),
    ]
    profiles: options.ProfilesDirectory = None
    format: Annotated[Format, Option("--format", help="text, or one JSON object.")] = Format.TEXT
    pgbench: options.Pgbench = None
    connection: ConnectionOptions = ConnectionOptions()
