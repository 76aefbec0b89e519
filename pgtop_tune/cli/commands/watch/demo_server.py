"""`demo`: a throwaway server, a load and the dashboard."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from pgtop_tune.advice.proposal import propose
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.units import about, counted
from pgtop_tune.bench.datasets.bus import BusPlan
from pgtop_tune.bench.datasets.bus_make import make_bus
from pgtop_tune.bench.datasets.pgbench_tables import (
    InitialiseProgress,
    PgbenchShape,
    Tell,
    estimated_bytes,
    initialise,
)
from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.bench.profiles import load_profiles
from pgtop_tune.changes.model.change import SYSTEM
from pgtop_tune.cli.assignments import instead, wanted_parameters
from pgtop_tune.cli.commands.watch import DemoRequest
from pgtop_tune.cli.commands.watch.screen import LiveWords, show_live
from pgtop_tune.cli.connections import ConnectionWords, live_options, resolve_words
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.headless import LinePrinter, run_engine
from pgtop_tune.cli.output import not_stdout, say, tell
from pgtop_tune.cli.parameter_rows import parameter_rows
from pgtop_tune.cli.snapshot import advice_basis
from pgtop_tune.cli.wiring import LiveSession, endpoint_of
from pgtop_tune.cluster import auto_conf
from pgtop_tune.cluster.binaries import Binaries, find_binaries, parameter_names, setting_refusal
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.sql_session import open_sql_session

# Settings of the server: given by the operator, or advised for this machine.

_FIXED: Final = frozenset(
    {
        "config_file", "data_directory", "external_pid_file", "hba_file", "ident_file", "listen_addresses", "port",
        "unix_socket_directories",
    }
)  # fmt: skip
"""Parameters of the server's place, which the demo chooses."""


class Advised(Struct, frozen=True):
    """Advice for a demo's server on this machine.

    Attributes:
        settings: Value by parameter, where it differs from the server's.
        left_out: Lines about advice that is not followed, with reasons.
    """

    settings: Mapping[str, str]
    left_out: tuple[str, ...]


def _given_settings(assignments: Sequence[str], binaries: Binaries) -> dict[str, str]:
    """Return the settings of --setting, checked by the server's programs; the last one of a name counts.

    Raises:
        UsageProblem: A word is not NAME=VALUE, the name is unknown, or the value is refused.
        ClusterProblem: The programs cannot check them.
    """
    settings: dict[str, str] = {}
    for parameter in wanted_parameters(assignments, SYSTEM):
        name, value = parameter.name.lower(), parameter.value or ""
        if name in _FIXED:
            raise UsageProblem(f"--setting {name}: the demo sets this parameter itself", "leave it out")
        refused = setting_refusal(binaries, name, value)
        if refused is not None and refused.unknown:
            raise UsageProblem(
                f"PostgreSQL {binaries.version} has no parameter {name}", instead(name, parameter_names(binaries))
            )
        if refused is not None:
            raise UsageProblem(f"--setting {name}={value}: {refused.says}", "nothing was started")
        settings[name] = value
    return settings


def _advised(server: ConnectionWords, kept: Mapping[str, str]) -> Advised:
    """Return the server's half of the proposal for a running server.

    Args:
        server: The demo's, just started.
        kept: Settings of the operator, which the proposal fits.
    """
    basis = advice_basis(server)
    proposal = propose(replace(basis.facts, started_with=basis.facts.started_with | kept.keys()))
    half, sample = proposal.server_half(), basis.interval.now(sections.parameters)
    rows = parameter_rows(() if sample is None else sample.parameters, half)
    settings = {row.parameter.name: row.advised for row in rows if row.differs and row.parameter.name not in kept}
    left_out = [
        f"{name} is left unchanged: {half[name].because}"
        for name, advice in proposal.parameters.items()
        if advice.value != half[name].value
    ]
    live = {} if basis.facts.machine is None else basis.facts.machine.live
    machine = [
        name
        for name, advice in proposal.settings.items()
        if advice.value is not None and advice.value != live.get(name)
    ]
    if machine:
        left_out.append(
            f"settings of the machine are left unchanged: {', '.join(machine)} (see `pgtop-tune advise --group os`)"
        )
    return Advised(settings, tuple(left_out))


def _overridden(server: Throwaway, settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the settings that ALTER SYSTEM of an earlier session overrides in a kept cluster."""
    stored = auto_conf.settings(auto_conf.read(str(server.data_dir)))
    return tuple(name for name in stored if name.lower() in settings)


WITHOUT_TERMINAL_S: Final = 20.0


def run_demo(request: DemoRequest) -> int:
    """Make a server, start a load, show it until the operator leaves, and return the exit status.

    Raises:
        PgtopError: The server cannot be made, or the load does not start.
    """
    if request.dry_run:
        _say_plan(request)
        return ExitCode.OK
    with_screen = not request.headless and sys.stdin.isatty() and sys.stdout.isatty()
    if with_screen and request.seconds is not None:
        raise UsageProblem("--seconds needs --headless", "add --headless, or leave the screen with `q`")
    load = LoadSpec(profile=request.profile, clients=request.clients)
    dataset = load_profiles().get(request.profile).dataset
    # The journal of a throwaway server lies beside it, that of a kept one in the usual place.
    is_kept = request.keep is not None
    live = live_options(request.session)
    with ExitStack() as stack:
        server, conninfo = _prepared(stack, request)
        if dataset == "bus":
            _make_bus(conninfo, request.scale)
        live = replace(live, journal_directory=None if is_kept else server.work_dir / "journal")
        if with_screen:
            live = replace(live, allow_unsafe=not is_kept, own_restart=server.restart)
            screen = LiveWords(
                session=live, interval_s=request.interval, record=request.record, record_always=True, start_load=load
            )
            return show_live(conninfo, screen, request.screen)
        live = replace(live, interval_s=request.interval or 1.0)
        seconds = request.seconds or WITHOUT_TERMINAL_S
        return asyncio.run(_headless(LiveSession(conninfo, live), load, seconds, request.record))


def _say_plan(request: DemoRequest) -> None:
    """Print what the demo would make. Raises as `run_demo`."""
    binaries, profile = find_binaries(request.pg_bin), load_profiles().get(request.profile)
    settings = _given_settings(request.setting or (), binaries)
    directory = f"{request.keep}, kept" if request.keep else "a temporary directory, removed at the end"
    say(f"PostgreSQL {binaries.version} ({binaries.origin}) in {directory}")
    advised = ["the values of `advise`"] if request.advised else []
    if values := [*advised, *(f"{name} {value}" for name, value in settings.items())]:
        say(f"started with {', '.join(values)}")
    size = about(estimated_bytes(request.scale, PgbenchShape()))
    say(f"scale {request.scale}, about {size}; {profile.name} with {counted(request.clients, 'client')}")


def _prepared(stack: ExitStack, request: DemoRequest) -> tuple[Throwaway, ConnInfo]:
    """Start a server with pgbench's tables in it."""
    binaries = find_binaries(request.pg_bin)
    tell(f"PostgreSQL {binaries.version} ({binaries.origin})")
    pgbench = find_pgbench(request.session.pgbench)
    settings = _given_settings(request.setting or (), binaries)
    begin = settings if settings or request.advised else None
    with _progress() as show:
        server = stack.enter_context(
            Throwaway.create(
                binaries, keep=request.keep, settings=begin, on_step=lambda step: show(InitialiseProgress(step))
            )
        )
        connection = ConnectionWords(
            target="postgres", host=str(server.socket_dir), port=str(server.port), user=server.user
        )
        conninfo = resolve_words(connection)
        advised = None
        if request.advised:
            show(InitialiseProgress("reading this machine"))
            advised = _advised(connection, settings)
            settings = {**advised.settings, **settings}
            show(InitialiseProgress("restarting with the advised values"))
            server.configure(settings)
        if not _has_tables(server, request):
            asyncio.run(initialise(endpoint_of(conninfo), request.scale, pgbench, show))
    if advised is not None:
        tell(f"advised: {', '.join(f'{name} {value}' for name, value in advised.settings.items())}")
        for line in advised.left_out:
            tell(line)
    if overridden := ", ".join(_overridden(server, settings)):
        tell(f"an earlier demo set {overridden} with ALTER SYSTEM: `pgtop-tune reset` makes the value above apply")
    if request.keep is not None:
        tell(f"cluster in {request.keep}, socket directory {server.socket_dir} during this demo")
    return server, conninfo


def _make_bus(conninfo: ConnInfo, scale: int) -> None:
    """Create the bus company's tables, about as large as pgbench's; those of a kept cluster stay."""
    with _progress() as show:
        plan = BusPlan(scale * 100_000)
        asyncio.run(make_bus(lambda: open_sql_session(conninfo), plan, anew=False, jobs=2, tell=show))


_SCALE: Final = "pgbench-scale"
"""Note beside a kept cluster: the scale of its tables."""


def _has_tables(server: Throwaway, request: DemoRequest) -> bool:
    """Return True where an earlier demo has filled a kept cluster at this scale; note the scale otherwise."""
    if server.remembered(_SCALE).strip() == str(request.scale):
        return True
    server.remember(_SCALE, f"{request.scale}\n")
    return False


@contextmanager
def _progress() -> Iterator[Tell]:
    """Yield a function that shows progress: a bar on a terminal's stderr, a line for each step elsewhere."""
    step = ""

    def print_step(progress: InitialiseProgress) -> None:
        nonlocal step
        if progress.step != step:
            step = progress.step
            tell(step)

    if not sys.stderr.isatty():
        yield print_step
        return

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def show(progress: InitialiseProgress) -> None:
            bar.update(task, description=progress.step, completed=progress.done, total=progress.total or None)

        yield show


async def _headless(session: LiveSession, spec: LoadSpec, seconds: float, record: Path | None) -> int:
    not_stdout(record)
    session.recorder.start(str(record) if record else None)
    printer = LinePrinter(say)
    session.engine.attach(printer)
    signalled = await run_engine(session.engine, seconds, lambda: session.load.start(spec), session.load.stop)
    if summary := printer.summary():
        say(summary)
    say(f"recording: {session.recorder.last_path}")
    return ExitCode.SIGNALLED + signalled if signalled else ExitCode.OK
