"""`pgtop-tune twin`: settings that take a restart, judged on two copies of the server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from pgtop_tune.cli import options
from pgtop_tune.cli.commands.bench.run import RunFormat
from pgtop_tune.cli.commands.bench.shared import ProfilesDirectory
from pgtop_tune.cli.commands.set import for_seconds
from pgtop_tune.cli.connecting import ConnectionOptions
from pgtop_tune.cli.load_options import LOAD, OneProfile, ProtocolChoice
from pgtop_tune.errors import UsageProblem

_EXPERIMENT: Final = "Experiment"


def twin(
    *,
    assignments: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE...", show_default=False, help="Settings of B; A has the server's own."),
    ] = None,
    how_long: Annotated[
        str, typer.Option("--for", metavar="TIME", rich_help_panel=_EXPERIMENT, help="Longest time: 5m, 1h.")
    ] = "10m",
    copy: Annotated[
        Path | None,
        typer.Option(
            "--copy",
            metavar="DIR",
            rich_help_panel=_EXPERIMENT,
            show_default=False,
            help="Copy this directory, of a stopped server or a finished base backup, not the running server.",
        ),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--directory",
            metavar="DIR",
            rich_help_panel=_EXPERIMENT,
            show_default=False,
            help="Where the copies go; beside the data directory without it.",
        ),
    ] = None,
    coin: Annotated[
        int | None,
        typer.Option("--coin", min=0, rich_help_panel=_EXPERIMENT, show_default=False, help="Seed of order and load."),
    ] = None,
    format: Annotated[
        RunFormat, typer.Option("--format", rich_help_panel=_EXPERIMENT, help="Format of the result on stdout.")
    ] = RunFormat.TEXT,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", rich_help_panel=_EXPERIMENT, help="No lines on stderr while it runs.")
    ] = False,
    profile: OneProfile = "tpcb-like",
    clients: Annotated[
        int | None,
        typer.Option(
            "-c", "--clients", min=1, rich_help_panel=LOAD, show_default=False, help="On each copy; as in the profile."
        ),
    ] = None,
    threads: Annotated[
        int, typer.Option("-j", "--jobs", min=1, rich_help_panel=LOAD, help="Threads of each load.")
    ] = 1,
    rate: Annotated[
        float | None,
        typer.Option(
            "-R", "--rate", rich_help_panel=LOAD, show_default=False, help="Transactions per second, on each copy."
        ),
    ] = None,
    protocol: ProtocolChoice = None,
    profiles: ProfilesDirectory = None,
    pgbench: options.Pgbench = None,
    connection: ConnectionOptions,
) -> None:
    """Judge settings that take a restart without restarting the server: on two copies of it, under the same load.

    pg_basebackup copies the running server; with --copy its files come from a directory. Copy A keeps the server's
    settings, copy B gets yours; both run on this machine with a load each, in the same seconds, on one half of the CPUs
    each. Halves and settings are exchanged, so that only the settings can make a difference. The server gets no load
    and keeps its settings. The copies are removed in the end, also after a kill. The exit status is 0 with a verdict, 8
    without.

    Examples: pgtop-tune twin shared_buffers=8GB --profile tpcb-like -c 8 -d bench  ·
    pgtop-tune twin wal_buffers=64MB --for 20m --copy /backup/main -d bench  ·
    pgtop-tune twin io_method=io_uring --profile select-only --directory /mnt/scratch -d bench
    """
    from pgtop_tune.cli.signals import run_until_signalled
    from pgtop_tune.cli.twinning import TwinRequest, run_twin
    from pgtop_tune.model.bench import LoadSpec

    for_s = for_seconds(how_long)
    if for_s is None:
        raise UsageProblem("--for needs a time", "pass 10m, 20m or 1h")
    wanted = TwinRequest(
        connection=connection,
        words=tuple(assignments or ()),
        profile=profile,
        profiles_directory=profiles,
        spec=LoadSpec(threads=threads, rate_per_s=rate),
        clients=clients,
        protocol=None if protocol is None else str(protocol),
        for_s=for_s,
        copy=copy,
        directory=directory,
        seed=coin,
        format=str(format),
        quiet=quiet,
        pgbench=pgbench,
    )
    sys.exit(run_until_signalled(run_twin(wanted)))
