"""`pgtop-tune ab`: two values of a parameter by turns in one run, with a verdict."""

from __future__ import annotations

import asyncio
import sys
from enum import StrEnum
from typing import Annotated, Final

import typer

from pgtop_tune.cli import options
from pgtop_tune.cli.commands.bench.run import Protocol, RunFormat
from pgtop_tune.cli.commands.bench.shared import ProfilesDirectory
from pgtop_tune.cli.commands.set import for_seconds
from pgtop_tune.cli.connecting import ConnectionOptions
from pgtop_tune.errors import UsageProblem
from pgtop_tune.host.source_names import HostSource

_LOAD: Final = "Load (as pgbench)"
_EXPERIMENT: Final = "Experiment"


class Keep(StrEnum):
    """What stays at the end."""

    NOTHING = "nothing"
    BETTER = "better"


def ab(
    *,
    assignments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=A,B...", show_default=False, help="Parameter and its two values; A may be current."
        ),
    ] = None,
    how_long: Annotated[
        str, typer.Option("--for", metavar="TIME", rich_help_panel=_EXPERIMENT, help="Longest time: 5m, 1h.")
    ] = "10m",
    against_load: Annotated[
        bool,
        typer.Option(
            "--against-load", rich_help_panel=_EXPERIMENT, help="Start no load: measure the load on the server."
        ),
    ] = False,
    keep: Annotated[
        Keep, typer.Option("--keep", rich_help_panel=_EXPERIMENT, help="better: B stays if it is better.")
    ] = Keep.NOTHING,
    coin: Annotated[
        int | None,
        typer.Option(
            "--coin", min=0, rich_help_panel=_EXPERIMENT, show_default=False, help="Seed of the order of the blocks."
        ),
    ] = None,
    format: Annotated[
        RunFormat, typer.Option("--format", rich_help_panel=_EXPERIMENT, help="Format of the result on stdout.")
    ] = RunFormat.TEXT,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", rich_help_panel=_EXPERIMENT, help="No lines on stderr while it runs.")
    ] = False,
    profile: Annotated[
        str, typer.Option("--profile", metavar="NAME", rich_help_panel=_LOAD, help="Load profile.")
    ] = "tpcb-like",
    clients: Annotated[
        int | None,
        typer.Option("-c", "--clients", min=1, rich_help_panel=_LOAD, show_default=False, help="As in the profile."),
    ] = None,
    threads: Annotated[
        int, typer.Option("-j", "--jobs", min=0, rich_help_panel=_LOAD, help="Threads; 0 is one per core.")
    ] = 0,
    rate: Annotated[
        float | None,
        typer.Option("-R", "--rate", rich_help_panel=_LOAD, show_default=False, help="Transactions per second."),
    ] = None,
    protocol: Annotated[
        Protocol | None,
        typer.Option("-M", "--protocol", rich_help_panel=_LOAD, show_default=False, help="As in the profile."),
    ] = None,
    profiles: ProfilesDirectory = None,
    allow_unsafe: options.AllowUnsafe = False,
    confirm: Annotated[
        list[str] | None,
        typer.Option(
            "--confirm",
            metavar="NAME",
            show_default=False,
            help="With --allow-unsafe and no terminal: the name to type.",
        ),
    ] = None,
    pgbench: options.Pgbench = None,
    load_from: options.LoadFrom = None,
    host_source: options.HostSourceChoice = HostSource.AUTO,
    detach: options.Detach = False,
    connection: ConnectionOptions,
) -> None:
    """Compare two values of a parameter under one continuous load, and put everything back.

    A and B are in force by turns; a coin decides which comes first in each pair of blocks. The command ends with a
    verdict on TPS: better, worse, equivalent within 2 %, or undecided at the end of the time. Each switch is a change
    set in the journal; after a kill the revert watchdog reverts it. The exit status is 0 with a verdict, 8 without.

    Examples: pgtop-tune ab random_page_cost=4,1.1 --profile select-only -c 16 -d bench  ·
    pgtop-tune ab wal_writer_delay=current,20ms work_mem=current,64MB --for 5m -d bench  ·
    pgtop-tune ab commit_delay=0,200 --against-load --for 30m -d bench
    """
    from pgtop_tune.bench.places import parse_address
    from pgtop_tune.cli.live_options import LiveOptions
    from pgtop_tune.cli.switching import SwitchRequest, switch
    from pgtop_tune.model.bench import LoadSpec

    if detach:
        from pgtop_tune.cli.detached import start_detached

        sys.exit(start_detached(["ab"]))
    for_s = for_seconds(how_long)
    if for_s is None:
        raise UsageProblem("--for needs a time", "pass 5m, 10m or 1h")
    wanted = SwitchRequest(
        connection=connection,
        words=tuple(assignments or ()),
        profile=profile,
        profiles_directory=profiles,
        spec=LoadSpec(threads=threads, rate_per_s=rate),
        clients=clients,
        protocol=None if protocol is None else str(protocol),
        against_load=against_load,
        for_s=for_s,
        seed=coin,
        keep_better=keep is Keep.BETTER,
        confirmed=frozenset(confirm or ()),
        format=str(format),
        quiet=quiet,
        live=LiveOptions(
            pgbench=pgbench,
            host_source=host_source,
            load_from=parse_address(load_from) if load_from else None,
            allow_unsafe=allow_unsafe,
        ),
    )
    sys.exit(asyncio.run(switch(wanted)))
