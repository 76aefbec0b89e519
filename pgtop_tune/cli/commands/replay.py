"""`pgtop-tune replay`: a recording on the same screen."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pgtop_tune.cli import options


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False, help="A recording, plain or gzipped.")],
    speed: Annotated[float, typer.Option("--speed", min=0.25, max=60.0, help="Multiple of the recorded pace.")] = 1.0,
    start: Annotated[float, typer.Option("--start", min=0.0, help="Begin so many seconds into the recording.")] = 0.0,
    lines: Annotated[bool, typer.Option("--lines", help="Print a line per frame instead of the screen.")] = False,
    theme: options.Theme = None,
    plain: options.Plain = False,
    ascii_only: options.Ascii = False,
    mouse: options.Mouse = None,
) -> None:
    """Show a recording again: play, pause (space), step (, .), jump (T), speed ({ }).

    Example: pgtop-tune replay run.jsonl.gz --speed 10
    """
    from pgtop_tune.cli.output import say, tell
    from pgtop_tune.recording.reader import RecordingReader

    reader = RecordingReader(file)
    if not lines and sys.stdout.isatty() and sys.stdin.isatty():
        from pgtop_tune.cli.screen import ScreenWords, show_replay

        sys.exit(show_replay(reader, speed, start, ScreenWords(theme, plain, ascii_only, mouse)))
    from pgtop_tune.cli.lines import LinePrinter
    from pgtop_tune.session.ports import Step

    printer = LinePrinter(say)
    for _, frame in reader.frames(reader.index_at(start)):
        printer.accept(Step((frame,)))
    if summary := printer.summary():
        say(summary)
    for problem in reader.problems:
        tell(f"{file}: {problem}")
    reader.close()
