"""The commands with a screen: `top` on a server, `demo` on one of our own, `replay` on a recording."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli import options
from pgtop_tune.cli.commands.watch.request import DemoWords, ScreenWords
from pgtop_tune.cli.connecting import ConnectionWords, begin_resolving
from pgtop_tune.cli.live_options import SessionWords


def top(
    *,
    connection: ConnectionWords,
    interval: options.MaybeInterval = None,
    record: options.Record = None,
    no_query_text: options.NoQueryText = False,
    session: SessionWords,
    ceilings: options.Ceilings = None,
    allow_unsafe: options.AllowUnsafe = False,
    screen: ScreenWords,
) -> None:
    """Watch a server. Connection settings work as in psql: options, URI, service=, PG* variables, .pgpass.

    Examples: pgtop-tune  ·  pgtop-tune -h /run/postgresql -d bench  ·  pgtop-tune postgresql://bench@db1/bench

    A disk with a limit: pgtop-tune --disk-cap vda=6000iops,90MB/s bench

    A pooler beside it: pgtop-tune --pooler bouncer=postgresql://stats@127.0.0.1:6432/pgbouncer bench
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageProblem(
            "the screen needs a terminal",
            "without one: pgtop-tune record --seconds 60 -o FILE; over ssh: ssh -t HOST pgtop-tune",
        )
    from pgtop_tune.cli.memory import hold_back

    hold_back()
    resolving = begin_resolving(connection)
    from pgtop_tune.cli.commands.watch.screen import LiveWords, measured, preload, show_live

    live = session.live(
        waits_for_password=not connection.no_password,
        allow_unsafe=allow_unsafe,
        ceilings=measured(ceilings),
        query_text=not no_query_text,
    )
    words = LiveWords(session=live, interval_s=interval, record=record)
    preload(lambda: resolving.ready)
    sys.exit(show_live(resolving.answer(), words, screen))


def demo(words: DemoWords) -> None:
    """Try everything without touching your own servers.

    Starts a private PostgreSQL in a temporary directory (Unix socket only, no root needed), fills pgbench's tables,
    starts a load, opens the dashboard, and records. At the end it removes everything but the recording.

    Examples: pgtop-tune demo  ·  pgtop-tune demo --headless --seconds 20 --record out.jsonl

    A disk with a limit: pgtop-tune demo --disk-cap vda=6000iops,90MB/s

    A server that is set well: pgtop-tune demo --advised

    A bad start to practise on: pgtop-tune demo --setting shared_buffers=16MB --setting max_wal_size=64MB
    """
    from pgtop_tune.cli.commands.watch.demo_server import run_demo

    sys.exit(run_demo(words))


def replay(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A recording, plain or compressed; - is standard input."),
    ],
    speed: Annotated[float, typer.Option("--speed", min=0.25, max=60.0, help="Multiple of the recorded pace.")] = 1.0,
    start: Annotated[float, typer.Option("--start", min=0.0, help="Start this many seconds into the recording.")] = 0.0,
    lines: Annotated[bool, typer.Option("--lines", help="Print a line per frame instead of the screen.")] = False,
    *,
    screen: ScreenWords,
) -> None:
    """Replay a recording: play, pause (space), step (, .), jump (T, n, v, W), speed ({ }).

    Follows a file that is still being written; z jumps to its end.

    Example: pgtop-tune replay run.jsonl.gz --speed 10

    Example: ssh db1 cat run.jsonl.gz | pgtop-tune replay -
    """
    from pgtop_tune.cli.commands.watch.screen import replay_recording

    replay_recording(file, speed, start, screen, as_lines=lines)
