"""The options of `ab`: what an experiment on the command line is asked for."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import typer
from msgspec import Struct

from pgtop_tune.cli import options
from pgtop_tune.cli.connecting import ConnectionOptions
from pgtop_tune.cli.live_options import LoadSessionWords
from pgtop_tune.cli.options import LOAD, TableFormat
from pgtop_tune.model.backend_action import PlannedBy

_EXPERIMENT: Final = "Experiment"
_SEPARATE: Final = "Blocks that are runs of their own"


class Keep(StrEnum):
    """What stays at the end."""

    NOTHING = "nothing"
    BETTER = "better"


class SwitchRequest(Struct, frozen=True):
    """An experiment as typed; two profiles, or two endpoints, are the arms."""

    assignments: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=A,B...", help="Parameter and its two values; A may be current."),
    ] = None
    how_long: Annotated[
        str, typer.Option("--for", metavar="TIME", rich_help_panel=_EXPERIMENT, help="Longest time: 5m, 1h.")
    ] = "10m"
    against_load: Annotated[
        bool,
        typer.Option(
            "--against-load", rich_help_panel=_EXPERIMENT, help="Start no load: measure the load on the server."
        ),
    ] = False
    plans: Annotated[
        PlannedBy,
        typer.Option(
            "--plans",
            rich_help_panel=_EXPERIMENT,
            help="With --against-load: EXPLAIN of the statements with most time, under A and B at the end. Planning "
            "executes their functions. ordinary: as roles without special rights; any: as any role, a superuser too.",
        ),
    ] = PlannedBy.NOBODY
    keep: Annotated[
        Keep, typer.Option("--keep", rich_help_panel=_EXPERIMENT, help="better: B stays if it is better.")
    ] = Keep.NOTHING
    coin: Annotated[
        int | None,
        typer.Option("--coin", min=0, rich_help_panel=_EXPERIMENT, help="Seed of the order of the blocks."),
    ] = None
    format: Annotated[
        TableFormat,
        typer.Option("--format", rich_help_panel=_EXPERIMENT, help="Format of the result on stdout."),
    ] = TableFormat.TEXT
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", rich_help_panel=_EXPERIMENT, help="No lines on stderr while it runs.")
    ] = False
    restart: Annotated[
        bool,
        typer.Option("--restart", rich_help_panel=_SEPARATE, help="Restart the server before each block."),
    ] = False
    yes: Annotated[bool, typer.Option("--yes", rich_help_panel=_SEPARATE, help="With --restart: do not ask.")] = False
    endpoint: Annotated[
        list[str] | None,
        typer.Option(
            "--endpoint",
            metavar="NAME=HOST:PORT/DB",
            rich_help_panel=_SEPARATE,
            help="Target of the load; two of them are A and B.",
        ),
    ] = None
    block: Annotated[
        str,
        typer.Option(
            "--block", metavar="TIME", rich_help_panel=_SEPARATE, show_default="30s", help="Measured in each block."
        ),
    ] = ""
    warm_up: Annotated[
        str,
        typer.Option(
            "--warmup",
            metavar="TIME",
            rich_help_panel=_SEPARATE,
            show_default="10s, after a restart 20s",
            help="Of each block, left out.",
        ),
    ] = ""
    profile: Annotated[
        list[str] | None,
        typer.Option(
            "--profile",
            metavar="NAME",
            rich_help_panel=LOAD,
            show_default="tpcb-like",
            help="Load profile; two of them are A and B.",
        ),
    ] = None
    load: options.LoadWords = options.LoadWords()
    profiles: options.ProfilesDirectory = None
    allow_unsafe: options.AllowUnsafe = False
    confirm: Annotated[
        list[str] | None,
        typer.Option(
            "--confirm",
            metavar="NAME",
            help="With --allow-unsafe and no terminal: the name to type.",
        ),
    ] = None
    session: LoadSessionWords = LoadSessionWords()
    detach: options.Detach = False
    connection: ConnectionOptions = ConnectionOptions()
