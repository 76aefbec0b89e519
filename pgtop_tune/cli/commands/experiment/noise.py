"""`pgtop-tune experiment noise`: the noise floor of this machine and load, and what can be seen over it."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Final

import typer

from pgtop_tune.cli import options
from pgtop_tune.cli.commands.bench.run import DEFAULT_HOUSEKEEPING
from pgtop_tune.cli.commands.bench.shared import ProfilesDirectory, TableFormat
from pgtop_tune.cli.connecting import ConnectionWords
from pgtop_tune.cli.load_options import Clients, OneProfile, ProtocolChoice, Rate, Threads
from pgtop_tune.host.source_names import HostSource

_MEASURING: Final = "Measuring"


def noise(
    *,
    profile: OneProfile = "tpcb-like",
    clients: Clients = None,
    threads: Threads = 0,
    rate: Rate = None,
    protocol: ProtocolChoice = None,
    how_long: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="TIME",
            rich_help_panel=_MEASURING,
            help="Time of all loads together: half for one continuous load, half for separate runs.",
        ),
    ] = "10m",
    runs: Annotated[
        int | None,
        typer.Option(
            "--runs",
            metavar="N",
            min=0,
            max=20,
            rich_help_panel=_MEASURING,
            show_default="by the time",
            help="Separate runs; 0 for none.",
        ),
    ] = None,
    housekeeping: Annotated[
        str,
        typer.Option(
            "--housekeeping", metavar="LIST", rich_help_panel=_MEASURING, help="Steps before each load; or none."
        ),
    ] = DEFAULT_HOUSEKEEPING,
    format: Annotated[
        TableFormat, typer.Option("--format", rich_help_panel=_MEASURING, help="Format of the result on stdout.")
    ] = TableFormat.TEXT,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", rich_help_panel=_MEASURING, help="No line per second on stderr.")
    ] = False,
    profiles: ProfilesDirectory = None,
    record: options.Record = None,
    pgbench: options.Pgbench = None,
    load_from: options.LoadFrom = None,
    host_source: options.HostSourceChoice = HostSource.AUTO,
    interval: options.Interval = 1.0,
    connection: ConnectionWords,
) -> None:
    """Measure the noise of a load with nothing changed (A/A), and tell which difference can be seen in which time.

    One continuous load gives the noise of neighbouring blocks, autocorrelation, and the cost of checkpoints; separate
    runs give the deviation between runs. Kept with its date, and used by later comparisons, repeats and experiments
    on this machine and load.

    Examples: pgtop-tune experiment noise -d bench  ·
    pgtop-tune experiment noise --profile select-only -c 16 --for 20m -d bench  ·
    pgtop-tune experiment noise --for 5m --runs 0 --format json -d bench
    """
    from pgtop_tune.bench.places import parse_address
    from pgtop_tune.cli.live_options import LiveOptions
    from pgtop_tune.cli.noise_measuring import NoiseRequest, measure_noise
    from pgtop_tune.model.bench import LoadSpec

    wanted = NoiseRequest(
        connection=connection,
        profiles_directory=profiles,
        spec=LoadSpec(profile=profile, clients=clients or 0, threads=threads, rate_per_s=rate),
        protocol=None if protocol is None else str(protocol),
        how_long=how_long,
        runs=runs,
        housekeeping=housekeeping,
        format=str(format),
        record=record,
        quiet=quiet,
        live=LiveOptions(
            interval_s=interval,
            pgbench=pgbench,
            host_source=host_source,
            load_from=parse_address(load_from) if load_from else None,
        ),
    )
    sys.exit(asyncio.run(measure_noise(wanted)))
