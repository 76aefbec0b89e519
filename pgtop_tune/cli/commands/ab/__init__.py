"""`pgtop-tune ab`: two values of a parameter by turns in one run, with a verdict."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import Annotated, Final

from msgspec import Struct
from typer import Argument, Option

from pgtop_tune.cli import completion, options
from pgtop_tune.cli.connections import ConnectionOptions
from pgtop_tune.cli.options import LoadSessionWords, LoadWords, TableFormat
from pgtop_tune.model.backend_action import PlannedBy

_experiment_option: Final = partial(Option, rich_help_panel="Experiment")
_separate_option: Final = partial(Option, rich_help_panel="Blocks that are runs of their own")


class Keep(StrEnum):
    """The value that stays at the end."""

    NOTHING = "nothing"
    BETTER = "better"


class AbRequest(Struct, frozen=True):
    """Compare two values of a parameter under one continuous load, and restore the original values.

    A and B alternate; their order in each pair of blocks is random. The command ends with a verdict on TPS: better,
    worse, equivalent within 2 %, or undecided when the time is up. Each switch is a change set in the journal; after a
    kill the revert watchdog reverts it. The exit status is 0 with a verdict, 8 without.

    Values that need a restart (--restart) or new sessions, settings of the machine, two endpoints and two profiles are
    compared in separate blocks: each has its own load, after a vacuum, a checkpoint and a warm-up.

    Examples: pgtop-tune ab random_page_cost=4,1.1 --profile select-only -c 16 -d bench  ·
    pgtop-tune ab wal_writer_delay=current,20ms work_mem=current,64MB --for 5m -d bench  ·
    pgtop-tune ab jit=on,off -f report.sql@1 -f lookup.sql@9 -R 200 --for 10m -d bench  ·
    pgtop-tune ab commit_delay=0,200 --against-load --for 30m -d bench  ·
    pgtop-tune ab shared_buffers=1GB,4GB --restart --for 20m -d bench  ·
    pgtop-tune ab vm.swappiness=60,1 -d bench  ·
    pgtop-tune ab --profile tpcb-like,simple-update -d bench  ·
    pgtop-tune ab --endpoint direct=:5432/bench --endpoint pool=:6432/bench -d bench
    """

    assignments: Annotated[
        list[str] | None,
        Argument(
            metavar="NAME=A,B...",
            help="Parameter and its two values; A may be current.",
            autocompletion=completion.parameters,
        ),
    ] = None
    how_long: Annotated[str, _experiment_option("--for", "-T", metavar="TIME", help="Time limit: 5m, 1h.")] = "10m"
    against_load: Annotated[
        bool, _experiment_option("--against-load", help="Start no load: measure the load on the server.")
    ] = False
    plans: Annotated[
        PlannedBy,
        _experiment_option(
            "--plans",
            help="With --against-load: EXPLAIN the most expensive statements under A and B at the end. Planning "
            "executes their functions. ordinary: as roles without special rights; any: as any role, superusers too.",
        ),
    ] = PlannedBy.NOBODY
    keep: Annotated[Keep, _experiment_option("--keep", help="better: B stays in force if it is better.")] = Keep.NOTHING
    coin: Annotated[
        int | None, _experiment_option("--coin", min=0, help="Random seed for the order of the blocks.")
    ] = None
    format: Annotated[TableFormat, _experiment_option("--format", help="Format of the result on stdout.")] = (
        TableFormat.TEXT
    )
    quiet: Annotated[bool, _experiment_option("-q", "--quiet", help="Print no progress on stderr.")] = False
    dry_run: Annotated[
        bool, _experiment_option("-n", "--dry-run", help="Print the plan; start no load and change nothing.")
    ] = False
    restart: Annotated[bool, _separate_option("--restart", help="Restart the server before each block.")] = False
    yes: Annotated[bool, _separate_option("-y", "--yes", help="With --restart: do not ask.")] = False
    endpoint: Annotated[
        list[str] | None,
        _separate_option(
            "--endpoint", metavar="NAME=HOST:PORT/DB", help="Target of the load; pass two to compare them as A and B."
        ),
    ] = None
    block: Annotated[
        str, _separate_option("--block", metavar="TIME", show_default="30s", help="Measured time of each block.")
    ] = ""
    warm_up: Annotated[
        str,
        _separate_option(
            "--warmup",
            metavar="TIME",
            show_default="10s, after a restart 20s",
            help="Time at the start of each block that is not measured.",
        ),
    ] = ""
    load: LoadWords = LoadWords()
    profiles: options.ProfilesDirectory = None
    allow_unsafe: options.AllowUnsafe = False
    confirm: Annotated[
        list[str] | None,
        Option(
            "--confirm", metavar="NAME", help="With --allow-unsafe and without a terminal: the parameter to unlock."
        ),
    ] = None
    session: LoadSessionWords = LoadSessionWords()
    detach: options.Detach = False
    connection: ConnectionOptions = ConnectionOptions()
