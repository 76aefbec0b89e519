"""`pgtop-tune replay`: a recording on the same screen."""

from __future__ import annotations

import os
import sys
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli import options

if TYPE_CHECKING:
    from pgtop_tune.recording.spool import Spool


def replay(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", show_default=False, help="A recording, plain or compressed; - is standard input."
        ),
    ],
    speed: Annotated[float, typer.Option("--speed", min=0.25, max=60.0, help="Multiple of the recorded pace.")] = 1.0,
    start: Annotated[float, typer.Option("--start", min=0.0, help="Start this many seconds into the recording.")] = 0.0,
    lines: Annotated[bool, typer.Option("--lines", help="Print a line per frame instead of the screen.")] = False,
    theme: options.Theme = None,
    plain: options.Plain = False,
    ascii_only: options.Ascii = False,
    mouse: options.Mouse = None,
    baseline: options.OverlayCurves = None,
) -> None:
    """Replay a recording: play, pause (space), step (, .), jump (T, n, v, W), speed ({ }).

    Follows a file that is still being written; z jumps to its end.

    Example: pgtop-tune replay run.jsonl.gz --speed 10

    Example: ssh db1 cat run.jsonl.gz | pgtop-tune replay -
    """
    from pgtop_tune.cli.output import say, tell
    from pgtop_tune.recording.reader import RecordingReader, without_frames

    piped = _standard_input() if str(file) == "-" else None
    reader = RecordingReader(file) if piped is None else piped.reader()
    if not (reader.frame_count or reader.growing):
        if piped is not None and piped.problem:
            tell(piped.problem)
        raise without_frames(reader.name)
    if not lines and sys.stdout.isatty() and (_keys_from_terminal() if piped else sys.stdin.isatty()):
        from pgtop_tune.cli.screen import ScreenWords, show_replay

        screen = ScreenWords(theme=theme, plain=plain, ascii_only=ascii_only, mouse=mouse, overlay=baseline)
        sys.exit(show_replay(reader, speed, start, screen))
    from pgtop_tune.cli.headless import LEAD_UP_FRAMES, LinePrinter
    from pgtop_tune.runtime.ports import Step

    printer = LinePrinter(say)
    following = shown = reader.index_at(start)
    before = reader.frames(max(shown - LEAD_UP_FRAMES, reader.first))
    printer.lead_up(frame for _, frame in takewhile(lambda each: each[0] < shown, before))
    while True:
        # What comes through a pipe is printed as it comes.
        over = piped is None or not piped.growing
        for index, frame in reader.frames(following):
            following = index + 1
            printer.accept(Step((frame,)))
        if piped is None or (not reader.extend() and over):
            break
        piped.wait()
    if summary := printer.summary():
        say(summary)
    for problem in reader.problems:
        tell(f"{reader.name}: {problem}")
    if piped is not None and piped.problem:
        tell(piped.problem)
    reader.close()
    if following == shown:
        raise without_frames(reader.name)


def _standard_input() -> Spool:
    """What is piped into us.

    Raises:
        UsageProblem: Nothing is.
    """
    from pgtop_tune.recording.spool import Spool

    if sys.stdin.isatty():
        raise UsageProblem(
            "standard input is a terminal", "pipe a recording into it: cat run.jsonl | pgtop-tune replay -"
        )
    return Spool(os.dup(sys.stdin.fileno()))


def _keys_from_terminal() -> bool:
    """Puts the terminal in the place of a piped standard input; False where there is none."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        return False
    os.dup2(terminal, sys.stdin.fileno())
    os.close(terminal)
    return True
