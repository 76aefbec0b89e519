"""`pgtop-tune demo`: a throwaway server, a load and the dashboard, with one word."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from pgtop_tune.advice.proposal import propose
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.bench.datasets.bus import BusPlan
from pgtop_tune.bench.datasets.bus_make import make_bus
from pgtop_tune.bench.datasets.pgbench_tables import InitialiseProgress, initialise
from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.bench.profiles import load_profiles
from pgtop_tune.changes.model.change import SYSTEM
from pgtop_tune.cli.assignments import instead, wanted_parameters
from pgtop_tune.cli.commands.watch.request import DemoWords
from pgtop_tune.cli.commands.watch.screen import LiveWords, show_live
from pgtop_tune.cli.connecting import ConnectionWords, resolve_words
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.headless import LinePrinter, run_engine
from pgtop_tune.cli.looking import look_closely
from pgtop_tune.cli.output import not_stdout, say, tell
from pgtop_tune.cli.parameter_rows import rows_of
from pgtop_tune.cli.wiring import LiveSession, endpoint_of
from pgtop_tune.cluster import auto_conf
from pgtop_tune.cluster.binaries import Binaries, find_binaries, parameter_names, setting_refusal
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.sql_session import open_sql_session

# The settings that a demo's server starts with: given by the operator, or advised for this machine.

_OF_THE_DEMO: Final = frozenset(
    {
        "config_file", "data_directory", "external_pid_file", "hba_file", "ident_file", "listen_addresses", "port",
        "unix_socket_directories",
    }
)  # fmt: skip
"""Where the server is: private and chosen by the demo."""


class Advised(Struct, frozen=True):
    """What is advised for a demo's server on this machine.

    Attributes:
        settings: Value by parameter, where it differs from what the server has.
        left_out: Lines on what is not set, with the reason.
    """

    settings: Mapping[str, str]
    left_out: tuple[str, ...]


def _given(words: Sequence[str], binaries: Binaries) -> dict[str, str]:
    """The settings of --setting, of which the last of a name counts, asked of the programs before there is a server.

    Raises:
        UsageProblem: A word is not NAME=VALUE, the name is unknown, or the value is refused.
        ClusterProblem: The programs cannot be asked.
    """
    settings: dict[str, str] = {}
    for each in wanted_parameters(words, SYSTEM):
        name, value = each.name.lower(), each.value or ""
        if name in _OF_THE_DEMO:
            raise UsageProblem(f"--setting {name}: the demo chooses it", "the demo's server is private: leave it out")
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
    """What `advise` proposes for a running server, without the machine's half.

    Args:
        server: The demo's, just started.
        kept: Settings of the operator, which the proposal is to fit.
    """
    looked = look_closely(server, 0.0, None, None)
    proposal = propose(replace(looked.facts, started_with=looked.facts.started_with | kept.keys()))
    half, sample = proposal.server_half(), looked.interval.now(sections.parameters)
    rows = rows_of(() if sample is None else sample.parameters, half)
    settings = {row.parameter.name: row.advised for row in rows if row.differs and row.parameter.name not in kept}
    left = [
        f"left out, {name}: {half[name].because}"
        for name, advice in proposal.parameters.items()
        if advice.value != half[name].value
    ]
    live = {} if looked.facts.machine is None else looked.facts.machine.live
    machine = [
        name
        for name, advice in proposal.settings.items()
        if advice.value is not None and advice.value != live.get(name)
    ]
    if machine:
        left.append(f"left out, settings of the machine: {', '.join(machine)} (`pgtop-tune advise --group os`)")
    return Advised(settings, tuple(left))


def _overridden(server: Throwaway, settings: Mapping[str, str]) -> tuple[str, ...]:
    """Those of the settings that ALTER SYSTEM of an earlier session holds in a kept cluster."""
    stored = auto_conf.settings(auto_conf.read(str(server.data_dir)))
    return tuple(name for name in stored if name.lower() in settings)


Show = Callable[[str, int, int], None]
"""Takes the step under way, and how much of how much is done (0 of 0 where unknown)."""
WITHOUT_TERMINAL_S: Final = 20.0


def run_demo(words: DemoWords) -> int:
    """Make the server, start the load, and show it until the operator leaves; return the exit status.

    Raises:
        PgtopError: The server cannot be made, or the load does not start.
    """
    with_screen = not words.headless and sys.stdin.isatty() and sys.stdout.isatty()
    if with_screen and words.seconds is not None:
        raise UsageProblem("--seconds ends a headless demo", "add --headless; on the screen `q` leaves")
    load = LoadSpec(profile=words.profile, clients=words.clients)
    dataset = load_profiles().get(words.profile).dataset
    # Changes of a server that is thrown away are written down beside it; of one that is kept, in the usual place.
    is_kept = words.keep is not None
    live = words.session.live()
    with ExitStack() as stack:
        server, conninfo = _prepared(stack, words)
        if dataset == "bus":
            _make_bus(conninfo, words.scale)
        live = replace(live, journal_directory=None if is_kept else server.work_dir / "journal")
        if with_screen:
            live = replace(live, allow_unsafe=not is_kept, own_restart=server.restart)
            shown = LiveWords(
                session=live, interval_s=words.interval, record=words.record, record_always=True, start_load=load
            )
            return show_live(conninfo, shown, words.screen)
        live = replace(live, interval_s=words.interval or 1.0)
        seconds = words.seconds or WITHOUT_TERMINAL_S
        return asyncio.run(_headless(LiveSession(conninfo, live), load, seconds, words.record))


def _prepared(stack: ExitStack, words: DemoWords) -> tuple[Throwaway, ConnInfo]:
    """A running server with pgbench's tables in it."""
    binaries = find_binaries(words.pg_bin)
    tell(f"PostgreSQL {binaries.version} ({binaries.origin})")
    pgbench = find_pgbench(words.session.pgbench)
    settings = _given(words.setting or (), binaries)
    begin = settings if settings or words.advised else None
    with _progress() as show:
        server = stack.enter_context(
            Throwaway.create(binaries, keep=words.keep, settings=begin, on_step=lambda step: show(step, 0, 0))
        )
        there = ConnectionWords(target="postgres", host=str(server.socket_dir), port=str(server.port), user=server.user)
        conninfo = resolve_words(there)
        advised = None
        if words.advised:
            show("looking at this machine", 0, 0)
            advised = _advised(there, settings)
            settings = {**advised.settings, **settings}
            show("restarting with the advised values", 0, 0)
            server.configure(settings)

        def loading(progress: InitialiseProgress) -> None:
            show(progress.step, progress.done, progress.total)

        if not _has_tables(server, words):
            asyncio.run(initialise(endpoint_of(conninfo), words.scale, pgbench, loading))
    if advised is not None:
        tell(f"advised: {', '.join(f'{name} {value}' for name, value in advised.settings.items())}")
        for line in advised.left_out:
            tell(line)
    if held := _overridden(server, settings):
        tell(f"ALTER SYSTEM of an earlier demo holds {', '.join(held)}: `pgtop-tune reset` gives the value above")
    if words.keep is not None:
        tell(f"cluster in {words.keep}, socket directory {server.socket_dir} while this runs")
    return server, conninfo


def _make_bus(conninfo: ConnInfo, scale: int) -> None:
    """The bus company's tables, about as large as pgbench's; of a kept cluster what is there."""
    with _progress() as show:

        def loading(progress: InitialiseProgress) -> None:
            show(progress.step, progress.done, progress.total)

        plan = BusPlan(scale * 100_000)
        asyncio.run(make_bus(lambda: open_sql_session(conninfo), plan, anew=False, jobs=2, tell=loading))


_SCALE: Final = "pgbench-scale"
"""Note beside a kept cluster: the scale of its tables."""


def _has_tables(server: Throwaway, words: DemoWords) -> bool:
    """Whether a kept cluster was filled by an earlier demo at this scale."""
    if server.remembered(_SCALE).strip() == str(words.scale):
        return True
    server.remember(_SCALE, f"{words.scale}\n")
    return False


@contextmanager
def _progress() -> Iterator[Show]:
    """A progress bar on a terminal's stderr, plain lines elsewhere."""
    if not sys.stderr.isatty():
        yield _Lines()
        return

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def show(step: str, done: int, total: int) -> None:
            bar.update(task, description=step, completed=done, total=total or None)

        yield show


class _Lines:
    """Each new step as a line."""

    def __init__(self) -> None:
        self._step = ""

    def __call__(self, step: str, done: int, total: int) -> None:
        if step != self._step:
            tell(step)
            self._step = step


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
