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
from pgtop_tune.cli.options import LoadSessionWords, LoadWords

_search_option: Final = partial(Option, rich_help_panel="Search")
_kept_option: Final = partial(Option, rich_help_panel="Earlier searches")


class TuneRequest(Struct, frozen=True):
    """Search for better values of parameters, unattended, and restore the original values.

    Each evaluation alternates between two settings under one load, as `ab` does. Twelve screening evaluations find the
    knobs that matter, a climb adjusts them, knobs without a gain are restored, and the winner is measured against the
    start in at least eight fresh evaluations: only that figure is the result. Every switch is pending confirmation;
    after a kill the revert watchdog reverts it, and --resume continues. Values that can lose data are never tried.

    Exit status: 0 with a result, even if the start remains the best; 8 without.

    Examples: pgtop-tune tune --profile tpcb-like -c 16 --budget 4h -d bench  ·
    pgtop-tune tune --knobs random_page_cost,work_mem --profile select-only -d bench  ·
    pgtop-tune tune --group wal --objective p99@500 --constraint 'tps >= 490' --budget 8h --detach -d bench  ·
    pgtop-tune tune --watch --budget 1h -d shop  ·
    pgtop-tune tune --resume last -d bench  ·
    pgtop-tune tune --group planner --workers tcp://scheduler:8786  ·
    pgtop-tune tune --show last -o tune.html
    """

    knobs: Annotated[str, _search_option("--knobs", metavar="NAME,NAME", help="Search only these parameters.")] = ""
    group: Annotated[
        list[str] | None,
        _search_option(
            "--group",
            metavar="NAME",
            help="Search a group of `pgtop-tune parameters` (checkpoints, wal, planner, memory), or machine.",
        ),
    ] = None
    budget: Annotated[str, _search_option("--budget", "-T", metavar="TIME", help="Time limit: 4h, 8h.")] = "4h"
    objective: Annotated[
        str,
        _search_option(
            "--objective",
            metavar="FIGURE",
            help="Figure to optimize: tps, p99@RATE, latency@RATE, cost (CPU time per transaction), or arithmetic: "
            "'tps / cpu', 'min p99 + 0.1 * wal'.",
        ),
    ] = "tps"
    constraint: Annotated[
        list[str] | None,
        _search_option(
            "--constraint",
            metavar="LIMIT",
            help="Limit that a result must keep: 'p99 < 20ms', 'tps >= 1000'; repeatable.",
        ),
    ] = None
    worth: Annotated[
        float, _search_option("--worth", min=0.5, max=50.0, help="Smallest gain that counts, in per cent.")
    ] = 2.0
    engine: Annotated[
        str, _search_option("--engine", help="Search method: climb, or bayes (needs the extra `bayes`).")
    ] = "climb"
    recovery_within: Annotated[
        str, _search_option("--recovery-within", metavar="TIME", help="Longest crash recovery that a value may cause.")
    ] = "10m"
    block: Annotated[
        str,
        _search_option(
            "--block",
            metavar="TIME",
            help="Measured time of each block, eight per evaluation; three times as long, between two CHECKPOINTs, for "
            "knobs that take effect through checkpoints. Shorter blocks are noisier.",
        ),
    ] = "10s"
    allow_restart: Annotated[
        bool, _search_option("--allow-restart", help="Also search parameters that need a restart.")
    ] = False
    dry_run: Annotated[
        bool, _search_option("-n", "--dry-run", help="Print the knobs of the search; start no load, change nothing.")
    ] = False
    yes: Annotated[bool, _search_option("-y", "--yes", help="Do not ask before restarts and before --apply.")] = False
    apply: Annotated[bool, _search_option("--apply", help="Make a confirmed result permanent; also with --show.")] = (
        False
    )
    against_load: Annotated[
        bool, _search_option("--against-load", help="Start no load: search under the load already on the server.")
    ] = False
    watch: Annotated[
        bool,
        _search_option(
            "--watch", help="Like --against-load; search again whenever the load changes. Results are only proposals."
        ),
    ] = False
    seed: Annotated[int | None, _search_option("--seed", min=0, help="Seed of all random choices.")] = None
    stop_file: Annotated[
        Path | None,
        _search_option("--stop-file", metavar="FILE", help="Stop before the next evaluation if this file exists."),
    ] = None
    load: LoadWords = LoadWords()
    resume: Annotated[
        str, _kept_option("--resume", metavar="ID", help="Continue this search; last: the newest one.")
    ] = ""
    show: Annotated[
        str, _kept_option("--show", metavar="ID", help="Show the result of this search so far; last: the newest one.")
    ] = ""
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
