"""`pgtop-tune ab`: two values of a parameter by turns in one run, with a verdict."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final

import typer

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli import options
from pgtop_tune.cli.commands.bench.run import RunFormat
from pgtop_tune.cli.commands.bench.shared import ProfilesDirectory
from pgtop_tune.cli.commands.set import for_seconds
from pgtop_tune.cli.connecting import ConnectionOptions
from pgtop_tune.cli.load_options import LOAD, Clients, ProtocolChoice, Rate, Threads
from pgtop_tune.host.source_names import HostSource
from pgtop_tune.model.statement_plan import PlannedBy

_EXPERIMENT: Final = "Experiment"
_SEPARATE: Final = "Blocks that are runs of their own"


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
    plans: Annotated[
        PlannedBy,
        typer.Option(
            "--plans",
            rich_help_panel=_EXPERIMENT,
            help="With --against-load: EXPLAIN of the statements with most time, under A and B at the end. Planning "
            "executes their functions. ordinary: as roles without special rights; any: as any role, a superuser too.",
        ),
    ] = PlannedBy.NOBODY,
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
    restart: Annotated[
        bool,
        typer.Option("--restart", rich_help_panel=_SEPARATE, help="Restart the server before each block."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", rich_help_panel=_SEPARATE, help="With --restart: do not ask.")] = False,
    endpoint: Annotated[
        list[str] | None,
        typer.Option(
            "--endpoint",
            metavar="NAME=HOST:PORT/DB",
            rich_help_panel=_SEPARATE,
            show_default=False,
            help="Target of the load; two of them are A and B.",
        ),
    ] = None,
    block: Annotated[
        str,
        typer.Option(
            "--block", metavar="TIME", rich_help_panel=_SEPARATE, show_default="30s", help="Measured in each block."
        ),
    ] = "",
    warm_up: Annotated[
        str,
        typer.Option(
            "--warmup",
            metavar="TIME",
            rich_help_panel=_SEPARATE,
            show_default="10s, after a restart 20s",
            help="Of each block, left out.",
        ),
    ] = "",
    profile: Annotated[
        list[str] | None,
        typer.Option(
            "--profile",
            metavar="NAME",
            rich_help_panel=LOAD,
            show_default="tpcb-like",
            help="Load profile; two of them are A and B.",
        ),
    ] = None,
    clients: Clients = None,
    threads: Threads = 0,
    rate: Rate = None,
    protocol: ProtocolChoice = None,
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

    Values that take a restart (--restart) or new sessions, settings of the machine, two endpoints and two profiles are
    compared in blocks with a load of their own, each after a vacuum, a checkpoint and a warm-up.

    Examples: pgtop-tune ab random_page_cost=4,1.1 --profile select-only -c 16 -d bench  ·
    pgtop-tune ab wal_writer_delay=current,20ms work_mem=current,64MB --for 5m -d bench  ·
    pgtop-tune ab commit_delay=0,200 --against-load --for 30m -d bench  ·
    pgtop-tune ab shared_buffers=1GB,4GB --restart --for 20m -d bench  ·
    pgtop-tune ab vm.swappiness=60,1 -d bench  ·
    pgtop-tune ab --profile tpcb-like,simple-update -d bench  ·
    pgtop-tune ab --endpoint direct=:5432/bench --endpoint pool=:6432/bench -d bench
    """
    from pgtop_tune.bench.places import parse_address
    from pgtop_tune.cli.live_options import LiveOptions
    from pgtop_tune.cli.switching import SwitchRequest, both, both_endpoints, switch
    from pgtop_tune.model.bench import LoadSpec

    if detach:
        from pgtop_tune.cli.detached import start_detached

        sys.exit(start_detached(["ab"]))
    for_s = for_seconds(how_long)
    if plans is not PlannedBy.NOBODY and not against_load:
        raise UsageProblem("--plans needs --against-load", "the statements of a load of ours are known")
    if for_s is None:
        raise UsageProblem("--for needs a time", "pass 5m, 10m or 1h")
    wanted = SwitchRequest(
        connection=connection,
        words=tuple(assignments or ()),
        profiles=both(profile or ()) or ("tpcb-like",),
        endpoints=both_endpoints(endpoint or ()),
        profiles_directory=profiles,
        spec=LoadSpec(threads=threads, rate_per_s=rate),
        clients=clients,
        protocol=None if protocol is None else str(protocol),
        against_load=against_load,
        restart=restart,
        yes=yes,
        block_s=for_seconds(block, "--block"),
        warm_up_s=for_seconds(warm_up, "--warmup"),
        for_s=for_s,
        seed=coin,
        keep_better=keep is Keep.BETTER,
        confirmed=frozenset(confirm or ()),
        format=str(format),
        quiet=quiet,
        plans=plans,
        live=LiveOptions(
            pgbench=pgbench,
            host_source=host_source,
            load_from=parse_address(load_from) if load_from else None,
            allow_unsafe=allow_unsafe,
        ),
    )
    if against_load and not quiet:
        _say_unused({"--profile": profile, "--clients": clients, "--rate": rate, "--protocol": protocol})
    sys.exit(asyncio.run(switch(wanted)))


def _say_unused(options: Mapping[str, object]) -> None:
    """Options of a load that is not started: they do not describe the load that is there."""
    from pgtop_tune.cli.output import tell

    if given := [name for name, value in options.items() if value]:
        tell(f"--against-load starts no load: {', '.join(given)} {'has' if len(given) == 1 else 'have'} no effect")
