"""`pgtop-tune bench run`: loads measured, with a record of each."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli import options
from pgtop_tune.cli.commands.bench.shared import ProfilesDirectory
from pgtop_tune.cli.connecting import ConnectionWords
from pgtop_tune.cli.load_options import LOAD, Clients, ProtocolChoice, Rate, Threads
from pgtop_tune.host.source_names import HostSource

if TYPE_CHECKING:
    from pgtop_tune.model.bench import ScriptChoice

_STDIN: Final = frozenset({"-", "/dev/stdin", "/dev/fd/0"})
_MEASURING: Final = "Measuring"
_DEFAULT_S: Final = 60
DEFAULT_HOUSEKEEPING: Final = "truncate-history,vacuum,checkpoint,quiet"


class RunFormat(StrEnum):
    """How results are written to stdout."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


def run(
    *,
    profile: Annotated[
        list[str] | None,
        typer.Option(
            "--profile",
            metavar="NAME",
            rich_help_panel=LOAD,
            show_default=False,
            help="Load profile (tpcb-like); several run one after the other.",
        ),
    ] = None,
    scripts: Annotated[
        list[str] | None,
        typer.Option(
            "-f",
            "--file",
            metavar="FILE[@WEIGHT]",
            rich_help_panel=LOAD,
            show_default=False,
            help="Script in place of a profile's; - is standard input. Repeatable.",
        ),
    ] = None,
    clients: Clients = None,
    threads: Threads = 0,
    seconds: Annotated[
        int | None,
        typer.Option("-T", "--time", min=1, rich_help_panel=LOAD, show_default=False, help="Seconds (60)."),
    ] = None,
    transactions: Annotated[
        int | None,
        typer.Option(
            "-t", "--transactions", min=1, rich_help_panel=LOAD, show_default=False, help="Per client, without -T."
        ),
    ] = None,
    rate: Rate = None,
    latency_limit: Annotated[
        float | None,
        typer.Option("-L", "--latency-limit", rich_help_panel=LOAD, show_default=False, help="Milliseconds."),
    ] = None,
    protocol: ProtocolChoice = None,
    max_tries: Annotated[
        int | None,
        typer.Option(
            "--max-tries", min=0, rich_help_panel=LOAD, show_default=False, help="0 is no limit (pgbench 15+)."
        ),
    ] = None,
    continue_on_error: Annotated[
        bool,
        typer.Option(
            "--continue-on-error",
            rich_help_panel=LOAD,
            help="Count a transaction that any error ends as failed, and go on (pgbench 19+).",
        ),
    ] = False,
    connect: Annotated[
        bool, typer.Option("-C", "--connect", rich_help_panel=LOAD, help="Open a connection per transaction.")
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, rich_help_panel=LOAD, show_default=False, help="Seed of random numbers."),
    ] = None,
    per_statement: Annotated[
        bool,
        typer.Option("-r", "--report-per-command", rich_help_panel=LOAD, help="Report the latency of each statement."),
    ] = False,
    variables: Annotated[
        list[str] | None,
        typer.Option(
            "-D",
            "--define",
            metavar="NAME=VALUE",
            rich_help_panel=LOAD,
            show_default=False,
            help="Variable for the scripts; repeatable.",
        ),
    ] = None,
    allow_shell: Annotated[
        bool, typer.Option("--allow-shell", rich_help_panel=LOAD, help="Allow scripts to start programs (\\shell).")
    ] = False,
    steps: Annotated[
        str | None,
        typer.Option(
            "--steps",
            metavar="AXIS=LIST",
            rich_help_panel=_MEASURING,
            show_default=False,
            help="One run per step: clients=1,2,4,8 or rate=100,200; names the knee.",
        ),
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option(
            "--repeat",
            metavar="N",
            rich_help_panel=_MEASURING,
            show_default=False,
            help="Run each cell N times, there and back (A B B A); tells how runs differ.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="'±2 %'",
            rich_help_panel=_MEASURING,
            show_default=False,
            help="Repeat until the 98 % interval of each cell's mean is so narrow.",
        ),
    ] = None,
    at_most: Annotated[
        int | None,
        typer.Option(
            "--at-most", metavar="N", rich_help_panel=_MEASURING, show_default="12", help="Limit of --until, per cell."
        ),
    ] = None,
    endpoint: Annotated[
        list[str] | None,
        typer.Option(
            "--endpoint",
            metavar="NAME=HOST:PORT/DB",
            rich_help_panel=_MEASURING,
            show_default=False,
            help="Target of the load instead of the watched server; repeatable.",
        ),
    ] = None,
    configuration: Annotated[
        list[str] | None,
        typer.Option(
            "--configuration",
            metavar="'NAME: PARAMETER=VALUE …'",
            rich_help_panel=_MEASURING,
            show_default=False,
            help="Run each cell under these values, too, and put back what was; repeatable. 'now:' is none.",
        ),
    ] = None,
    housekeeping: Annotated[
        str,
        typer.Option(
            "--housekeeping",
            metavar="LIST",
            rich_help_panel=_MEASURING,
            help="Steps before each run, in this order; or none.",
        ),
    ] = DEFAULT_HOUSEKEEPING,
    warm_up: Annotated[
        int,
        typer.Option(
            "--warmup", min=0, rich_help_panel=_MEASURING, help="Seconds of the load before the run, discarded."
        ),
    ] = 0,
    format: Annotated[
        RunFormat, typer.Option("--format", rich_help_panel=_MEASURING, help="Format of the results on stdout.")
    ] = RunFormat.TEXT,
    output: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            rich_help_panel=_MEASURING,
            show_default=False,
            help="Directory for each run's record, stdout and stderr.",
        ),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", rich_help_panel=_MEASURING, help="No line per second on stderr.")
    ] = False,
    profiles: ProfilesDirectory = None,
    record: options.Record = None,
    no_query_text: options.NoQueryText = False,
    pgbench: options.Pgbench = None,
    load_from: options.LoadFrom = None,
    disk_cap: options.DiskCaps = None,
    host_source: options.HostSourceChoice = HostSource.AUTO,
    pooler: options.Poolers = None,
    interval: options.Interval = 1.0,
    connection: ConnectionWords,
) -> None:
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
    from pgtop_tune.bench.places import parse_address
    from pgtop_tune.cli.live_options import LiveOptions, disk_caps, pooler_addresses
    from pgtop_tune.cli.measuring import BenchRequest, measure
    from pgtop_tune.experiment.configurations import parse_configurations
    from pgtop_tune.experiment.repeats import repetition
    from pgtop_tune.model.bench import LoadSpec

    if seconds is not None and transactions is not None:
        raise UsageProblem("-T and -t contradict each other", "pass one of them")
    if profile and scripts:
        raise UsageProblem("--profile and -f contradict each other", "pass one of them")
    with _scripts(scripts or ()) as chosen:
        spec = LoadSpec(
            threads=threads,
            duration_s=seconds or (_DEFAULT_S if transactions is None else None),
            rate_per_s=rate,
            transactions=transactions,
            latency_limit_ms=latency_limit,
            max_tries=max_tries,
            continue_on_error=continue_on_error,
            connect_per_transaction=connect,
            seed=seed,
            per_statement=per_statement,
            scripts=chosen,
            variables=tuple(_variable(each) for each in variables or ()),
        )
        wanted = BenchRequest(
            connection=connection,
            profiles=tuple(profile or ("tpcb-like",)),
            profiles_directory=profiles,
            spec=spec,
            clients=clients,
            protocol=None if protocol is None else str(protocol),
            allow_shell=allow_shell,
            steps=steps,
            endpoints=tuple(endpoint or ()),
            housekeeping=housekeeping,
            warm_up_s=warm_up,
            format=str(format),
            output=output,
            record=record,
            quiet=quiet,
            live=LiveOptions(
                query_text=not no_query_text,
                interval_s=interval,
                pgbench=pgbench,
                disk_caps=disk_caps(disk_cap),
                host_source=host_source,
                poolers=pooler_addresses(pooler),
                load_from=parse_address(load_from) if load_from else None,
            ),
            repetition=repetition(repeat, until, at_most),
            configurations=parse_configurations(configuration or ()),
        )
        sys.exit(asyncio.run(measure(wanted)))


@contextmanager
def _scripts(words: Sequence[str]) -> Iterator[tuple[ScriptChoice, ...]]:
    """The scripts of -f. Standard input is a file for as long as the block runs: it is looked at, hashed and run.

    Raises:
        LoadProblem: No file, or no weight.
        UsageProblem: Standard input is a terminal.
    """
    from msgspec.structs import replace

    from pgtop_tune.bench.scripts import LONGEST_BYTES, parse_choice

    choices = tuple(parse_choice(each) for each in words)
    if not any(each.file in _STDIN for each in choices):
        yield choices
        return
    if sys.stdin.isatty():
        raise UsageProblem("standard input is a terminal", "pipe a script into it, or name a file: -f load.sql")
    with TemporaryDirectory(prefix="pgtop-tune-") as directory:
        file = Path(directory) / "stdin.sql"
        file.write_bytes(sys.stdin.buffer.read(LONGEST_BYTES + 1))
        yield tuple(replace(each, file=str(file)) if each.file in _STDIN else each for each in choices)


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageProblem(f"{text!r} is not a variable", "write -D NAME=VALUE")
    return name, value
