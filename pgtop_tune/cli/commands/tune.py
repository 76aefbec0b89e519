"""`pgtop-tune tune`: an unattended search for better values of parameters."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli import options
from pgtop_tune.cli.commands.bench.shared import ProfilesDirectory
from pgtop_tune.cli.commands.experiment.plans import WorkersAddress, check_for_workers
from pgtop_tune.cli.commands.set import for_seconds
from pgtop_tune.cli.connecting import ConnectionOptions
from pgtop_tune.cli.load_options import Clients, OneProfile, ProtocolChoice, Rate, Threads
from pgtop_tune.host.source_names import HostSource

_SEARCH: Final = "Search"
_KEPT: Final = "Searches that were made"
_SHORTEST_BLOCK_S: Final = 2.0


def tune(
    *,
    knobs: Annotated[
        str,
        typer.Option(
            "--knobs", metavar="NAME,NAME", rich_help_panel=_SEARCH, show_default=False, help="Only these parameters."
        ),
    ] = "",
    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            metavar="NAME",
            rich_help_panel=_SEARCH,
            show_default=False,
            help="Parameters of a group of `pgtop-tune parameters`: checkpoints, wal, planner, memory; or machine.",
        ),
    ] = None,
    budget: Annotated[
        str, typer.Option("--budget", metavar="TIME", rich_help_panel=_SEARCH, help="Longest time: 2h, 8h.")
    ] = "2h",
    objective: Annotated[
        str,
        typer.Option(
            "--objective",
            metavar="FIGURE",
            rich_help_panel=_SEARCH,
            help="tps, p99@RATE, latency@RATE, cost (CPU time per transaction), or arithmetic: 'tps / cpu', "
            "'min p99 + 0.1 * wal'.",
        ),
    ] = "tps",
    constraint: Annotated[
        list[str] | None,
        typer.Option(
            "--constraint",
            metavar="LIMIT",
            rich_help_panel=_SEARCH,
            show_default=False,
            help="'p99 < 20ms', 'tps >= 1000'; repeatable.",
        ),
    ] = None,
    worth: Annotated[
        float,
        typer.Option("--worth", min=0.5, max=50.0, rich_help_panel=_SEARCH, help="Smallest gain worth having, %."),
    ] = 2.0,
    engine: Annotated[
        str, typer.Option("--engine", rich_help_panel=_SEARCH, help="climb, or bayes (the extra of that name).")
    ] = "climb",
    recovery_within: Annotated[
        str,
        typer.Option("--recovery-within", metavar="TIME", rich_help_panel=_SEARCH, help="Bound of a crash recovery."),
    ] = "10m",
    block: Annotated[
        str,
        typer.Option(
            "--block",
            metavar="TIME",
            rich_help_panel=_SEARCH,
            help="Measured in each block, eight in an evaluation; three times as long between two CHECKPOINTs "
            "for knobs that work through checkpoints. Shorter ones are noisier.",
        ),
    ] = "10s",
    allow_restart: Annotated[
        bool,
        typer.Option("--allow-restart", rich_help_panel=_SEARCH, help="Also parameters that take a restart."),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", rich_help_panel=_SEARCH, help="Do not ask before restarts and --apply.")
    ] = False,
    apply: Annotated[
        bool,
        typer.Option("--apply", rich_help_panel=_SEARCH, help="Make a confirmed result permanent; also with --show."),
    ] = False,
    against_load: Annotated[
        bool,
        typer.Option(
            "--against-load", rich_help_panel=_SEARCH, help="Start no load: search under the one on the server."
        ),
    ] = False,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            rich_help_panel=_SEARCH,
            help="As --against-load; search again whenever the load has changed. Results stay proposals.",
        ),
    ] = False,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, rich_help_panel=_SEARCH, show_default=False, help="Of all chance.")
    ] = None,
    stop_file: Annotated[
        Path | None,
        typer.Option(
            "--stop-file",
            metavar="FILE",
            rich_help_panel=_SEARCH,
            show_default=False,
            help="Stop before the next evaluation once it is there.",
        ),
    ] = None,
    profile: OneProfile = "tpcb-like",
    clients: Clients = None,
    threads: Threads = 0,
    rate: Rate = None,
    protocol: ProtocolChoice = None,
    resume: Annotated[
        str,
        typer.Option(
            "--resume", metavar="ID", rich_help_panel=_KEPT, show_default=False, help="Continue it; last: the newest."
        ),
    ] = "",
    show: Annotated[
        str, typer.Option("--show", metavar="ID", rich_help_panel=_KEPT, show_default=False, help="Its result so far.")
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            rich_help_panel=_KEPT,
            show_default=False,
            help="With --show: the report as FILE.html or FILE.md, or the script as FILE.sql.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", rich_help_panel=_KEPT, help="Replace an existing file.")] = False,
    status: Annotated[bool, typer.Option("--status", rich_help_panel=_KEPT, help="List searches.")] = False,
    profiles: ProfilesDirectory = None,
    pgbench: options.Pgbench = None,
    load_from: options.LoadFrom = None,
    host_source: options.HostSourceChoice = HostSource.AUTO,
    detach: options.Detach = False,
    workers: WorkersAddress = "",
    connection: ConnectionOptions,
) -> None:
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
    from pgtop_tune.bench.places import parse_address
    from pgtop_tune.cli import tuning_results
    from pgtop_tune.cli.live_options import LiveOptions

    if status:
        tuning_results.list_tunings()
        return
    if show:
        found = tuning_results.directory_named(show)
        if apply:
            sys.exit(tuning_results.apply_result(connection, found, yes=yes))
        tuning_results.show_tuning(found, output, force=force)
        return
    if output is not None:
        raise UsageProblem("-o belongs to --show", "`pgtop-tune tune --show last -o tune.html`")
    if detach:
        from pgtop_tune.cli.detached import start_detached

        sys.exit(start_detached(["tune"]))
    from pgtop_tune.cli import tuning, tuning_workers
    from pgtop_tune.cli.experiment_workers import Asked, to_the_end
    from pgtop_tune.cli.tuning_beginning import SearchRequest
    from pgtop_tune.tuning.on_server.journal import TuningRequest

    live = LiveOptions(
        pgbench=pgbench, host_source=host_source, load_from=parse_address(load_from) if load_from else None
    )
    against_load = against_load or watch
    if workers and (against_load or apply or load_from or host_source is not HostSource.AUTO):
        raise UsageProblem(
            "with --workers each worker drives the load of its own server, and reads its own host",
            "leave --against-load, --watch, --apply, --load-from and --host-source out",
        )
    if workers:
        check_for_workers(connection)
    of_workers = Asked(profiles=profiles, pgbench=pgbench, allow_unsafe=False)
    if watch and (apply or allow_restart):
        raise UsageProblem("--watch makes proposals, without restarts", "leave --apply and --allow-restart out")
    if resume and workers:
        code, directory = to_the_end(
            tuning_workers.resume_on_workers(
                workers, tuning_results.directory_named(resume), of_workers, stop_file=stop_file
            )
        )
    elif resume:
        asked = tuning.ResumeRequest(
            connection=connection,
            directory=tuning_results.directory_named(resume),
            profiles_directory=profiles,
            stop_file=stop_file,
            yes=yes,
            live=live,
        )
        code, directory = asyncio.run(tuning.resume(asked))
    else:
        budget_s, recovery_s = for_seconds(budget, "--budget"), for_seconds(recovery_within, "--recovery-within")
        block_s = for_seconds(block, "--block")
        if budget_s is None or recovery_s is None or block_s is None or block_s < _SHORTEST_BLOCK_S:
            raise UsageProblem("--budget, --recovery-within or --block is no usable time", "pass 2h, 10m, 10s")
        request = TuningRequest(
            profile="" if against_load else profile,
            clients=clients or 0,
            threads=threads,
            protocol="" if protocol is None else str(protocol),
            rate_per_s=rate,
            objective="" if against_load else objective,
            constraints=tuple(constraint or ()),
            allow_restart=allow_restart,
            recovery_s=recovery_s,
            block_s=block_s,
        )
        search = SearchRequest(
            knobs=tuple(name.strip() for name in knobs.split(",") if name.strip()),
            groups=tuple(group or ()),
            budget_s=budget_s,
            request=request,
            engine=engine,
            worth=worth / 100.0,
            seed=seed,
        )
        wanted = tuning.TuneRequest(
            connection=connection,
            search=search,
            profiles_directory=profiles,
            stop_file=stop_file,
            yes=yes,
            watch=watch,
            live=live,
        )
        if workers:
            code, directory = to_the_end(
                tuning_workers.tune_on_workers(workers, search, of_workers, stop_file=stop_file, yes=yes)
            )
        else:
            code, directory = asyncio.run(tuning.tune(wanted))
    if apply and directory is not None and code == 0:
        code = tuning_results.apply_result(connection, directory, yes=yes)
    sys.exit(code)
