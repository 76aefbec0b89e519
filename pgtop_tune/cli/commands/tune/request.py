"""The options of `tune`, as typed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer
from msgspec import Struct

from pgtop_tune.cli import options
from pgtop_tune.cli.commands.experiment.request import WorkersAddress
from pgtop_tune.cli.connecting import ConnectionOptions
from pgtop_tune.cli.live_options import LoadSessionWords

_SEARCH: Final = "Search"
_KEPT: Final = "Searches that were made"


class TuneRequest(Struct, frozen=True):
    """A search, or what is asked of one that was made."""

    knobs: Annotated[
        str,
        typer.Option("--knobs", metavar="NAME,NAME", rich_help_panel=_SEARCH, help="Only these parameters."),
    ] = ""
    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            metavar="NAME",
            rich_help_panel=_SEARCH,
            help="Parameters of a group of `pgtop-tune parameters`: checkpoints, wal, planner, memory; or machine.",
        ),
    ] = None
    budget: Annotated[
        str, typer.Option("--budget", metavar="TIME", rich_help_panel=_SEARCH, help="Longest time: 2h, 8h.")
    ] = "2h"
    objective: Annotated[
        str,
        typer.Option(
            "--objective",
            metavar="FIGURE",
            rich_help_panel=_SEARCH,
            help="tps, p99@RATE, latency@RATE, cost (CPU time per transaction), or arithmetic: 'tps / cpu', "
            "'min p99 + 0.1 * wal'.",
        ),
    ] = "tps"
    constraint: Annotated[
        list[str] | None,
        typer.Option(
            "--constraint",
            metavar="LIMIT",
            rich_help_panel=_SEARCH,
            help="'p99 < 20ms', 'tps >= 1000'; repeatable.",
        ),
    ] = None
    worth: Annotated[
        float,
        typer.Option("--worth", min=0.5, max=50.0, rich_help_panel=_SEARCH, help="Smallest gain worth having, %."),
    ] = 2.0
    engine: Annotated[
        str, typer.Option("--engine", rich_help_panel=_SEARCH, help="climb, or bayes (the extra of that name).")
    ] = "climb"
    recovery_within: Annotated[
        str,
        typer.Option("--recovery-within", metavar="TIME", rich_help_panel=_SEARCH, help="Bound of a crash recovery."),
    ] = "10m"
    block: Annotated[
        str,
        typer.Option(
            "--block",
            metavar="TIME",
            rich_help_panel=_SEARCH,
            help="Measured in each block, eight in an evaluation; three times as long between two CHECKPOINTs "
            "for knobs that work through checkpoints. Shorter ones are noisier.",
        ),
    ] = "10s"
    allow_restart: Annotated[
        bool,
        typer.Option("--allow-restart", rich_help_panel=_SEARCH, help="Also parameters that take a restart."),
    ] = False
    yes: Annotated[
        bool, typer.Option("--yes", rich_help_panel=_SEARCH, help="Do not ask before restarts and --apply.")
    ] = False
    apply: Annotated[
        bool,
        typer.Option("--apply", rich_help_panel=_SEARCH, help="Make a confirmed result permanent; also with --show."),
    ] = False
    against_load: Annotated[
        bool,
        typer.Option(
            "--against-load", rich_help_panel=_SEARCH, help="Start no load: search under the one on the server."
        ),
    ] = False
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            rich_help_panel=_SEARCH,
            help="As --against-load; search again whenever the load has changed. Results stay proposals.",
        ),
    ] = False
    seed: Annotated[int | None, typer.Option("--seed", min=0, rich_help_panel=_SEARCH, help="Of all chance.")] = None
    stop_file: Annotated[
        Path | None,
        typer.Option(
            "--stop-file",
            metavar="FILE",
            rich_help_panel=_SEARCH,
            help="Stop before the next evaluation once it is there.",
        ),
    ] = None
    profile: options.OneProfile = "tpcb-like"
    load: options.LoadWords = options.LoadWords()
    resume: Annotated[
        str,
        typer.Option("--resume", metavar="ID", rich_help_panel=_KEPT, help="Continue it; last: the newest."),
    ] = ""
    show: Annotated[str, typer.Option("--show", metavar="ID", rich_help_panel=_KEPT, help="Its result so far.")] = ""
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            rich_help_panel=_KEPT,
            help="With --show: the report as FILE.html or FILE.md, or the script as FILE.sql.",
        ),
    ] = None
    force: Annotated[bool, typer.Option("--force", rich_help_panel=_KEPT, help="Replace an existing file.")] = False
    status: Annotated[bool, typer.Option("--status", rich_help_panel=_KEPT, help="List searches.")] = False
    profiles: options.ProfilesDirectory = None
    session: LoadSessionWords = LoadSessionWords()
    detach: options.Detach = False
    workers: WorkersAddress = ""
    connection: ConnectionOptions = ConnectionOptions()
