"""`pgtop-tune tune`: an unattended search for better values of parameters."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Final

from msgspec import Struct
from typer import Option

from pgtop_tune.cli import options
from pgtop_tune.cli.commands.experiment import WorkersAddress
from pgtop_tune.cli.connections import ConnectionOptions
from pgtop_tune.cli.options import LoadSessionWords

_search_option: Final = partial(Option, rich_help_panel="Search")
_kept_option: Final = partial(Option, rich_help_panel="Searches that were made")


class TuneRequest(Struct, frozen=True):
    """Search for better values of parameters, unattended, and put everything back.

    Each evaluation sets two settings by turns under one load, as `ab` does. A screen of twelve evaluations finds the
    knobs that matter, a climb turns them, knobs that earned nothing go back, and the winner is measured against the
    start in at least eight fresh evaluations: that figure alone is the result. Every switch is pending confirmation;
    after a kill the revert watchdog reverts it, and --resume continues. Values that can lose data are never tried.

    Exit status: 0 with a result, also where the start stays; 8 without.

    Examples: pgtop-tune tune --profile tpcb-like -c 16 --budget 2h -d bench  ·
    pgtop-tune tune --knobs random_page_cost,work_mem --profile select-only -d bench  ·
    pgtop-tune tune --group wal --objective p99@500 --constraint 'tps >= 490' --budget 8h --detach -d bench  ·
    pgtop-tune tune --watch --budget 1h -d shop  ·
    pgtop-tune tune --resume last -d bench  ·
    pgtop-tune tune --group planner --workers tcp://scheduler:8786  ·
    pgtop-tune tune --show last -o tune.html
    """

    knobs: Annotated[str, _search_option("--knobs", metavar="NAME,NAME", help="Only these parameters.")] = ""
    group: Annotated[
        list[str] | None,
        _search_option(
            "--group",
            metavar="NAME",
            help="Parameters of a group of `pgtop-tune parameters`: checkpoints, wal, planner, memory; or machine.",
        ),
    ] = None
    budget: Annotated[str, _search_option("--budget", metavar="TIME", help="Longest time: 2h, 8h.")] = "2h"
    objective: Annotated[
        str,
        _search_option(
            "--objective",
            metavar="FIGURE",
            help="tps, p99@RATE, latency@RATE, cost (CPU time per transaction), or arithmetic: 'tps / cpu', "
            "'min p99 + 0.1 * wal'.",
        ),
    ] = "tps"
    constraint: Annotated[
        list[str] | None,
        _search_option("--constraint", metavar="LIMIT", help="'p99 < 20ms', 'tps >= 1000'; repeatable."),
    ] = None
    worth: Annotated[float, _search_option("--worth", min=0.5, max=50.0, help="Smallest gain worth having, %.")] = 2.0
    engine: Annotated[str, _search_option("--engine", help="climb, or bayes (the extra of that name).")] = "climb"
    recovery_within: Annotated[
        str, _search_option("--recovery-within", metavar="TIME", help="Bound of a crash recovery.")
    ] = "10m"
    block: Annotated[
        str,
        _search_option(
            "--block",
            metavar="TIME",
            help="Measured in each block, eight in an evaluation; three times as long between two CHECKPOINTs "
            "for knobs that work through checkpoints. Shorter ones are noisier.",
        ),
    ] = "10s"
    allow_restart: Annotated[bool, _search_option("--allow-restart", help="Also parameters that take a restart.")] = (
        False
    )
    yes: Annotated[bool, _search_option("--yes", help="Do not ask before restarts and --apply.")] = False
    apply: Annotated[bool, _search_option("--apply", help="Make a confirmed result permanent; also with --show.")] = (
        False
    )
    against_load: Annotated[
        bool, _search_option("--against-load", help="Start no load: search under the one on the server.")
    ] = False
    watch: Annotated[
        bool,
        _search_option(
            "--watch", help="As --against-load; search again whenever the load has changed. Results stay proposals."
        ),
    ] = False
    seed: Annotated[int | None, _search_option("--seed", min=0, help="Of all chance.")] = None
    stop_file: Annotated[
        Path | None,
        _search_option("--stop-file", metavar="FILE", help="Stop before the next evaluation once it is there."),
    ] = None
    profile: options.OneProfile = "tpcb-like"
    load: options.LoadWords = options.LoadWords()
    resume: Annotated[str, _kept_option("--resume", metavar="ID", help="Continue it; last: the newest.")] = ""
    show: Annotated[str, _kept_option("--show", metavar="ID", help="Its result so far.")] = ""
    output: Annotated[
        Path | None,
        _kept_option(
            "-o",
            "--output",
            metavar="FILE",
            help="With --show: the report as FILE.html or FILE.md, or the script as FILE.sql.",
        ),
    ] = None
    force: Annotated[bool, _kept_option("--force", help="Replace an existing file.")] = False
    status: Annotated[bool, _kept_option("--status", help="List searches.")] = False
    profiles: options.ProfilesDirectory = None
    session: LoadSessionWords = LoadSessionWords()
    detach: options.Detach = False
    workers: WorkersAddress = ""
    connection: ConnectionOptions = ConnectionOptions()
