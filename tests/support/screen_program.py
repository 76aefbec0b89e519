"""Run as a program under a pty: the screen on a source that makes a frame every few milliseconds, for ever.

    python screen_program.py REPORT SECONDS_PER_FRAME

Writes to REPORT, as one JSON object replaced at every frame: frames made, frames the screen has taken, whether the
source was closed, and at the end the exit status of the screen, with which it exits.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import sys
import termios
from collections.abc import AsyncIterator
from pathlib import Path

from pgtop_tune.model.events import Event
from pgtop_tune.runtime.engine import Engine
from pgtop_tune.runtime.ports import Step
from pgtop_tune.tui.app import PgtopApp
from pgtop_tune.tui.controls import Controls, ScreenOptions
from pgtop_tune.tui.terminal.run import run_screen
from tests.support.frames import frame

_MADE_UP_S = 100
_report: dict[str, object] = {"frames": 0, "taken": 0, "closed": False, "status": None}


def _say(**news: object) -> None:
    _report.update(news)
    target = Path(sys.argv[1])
    beside = target.with_suffix(".new")
    beside.write_text(json.dumps(_report))
    beside.replace(target)


class EndlessSource:
    """Frames as fast as told; every second frame looks quite different."""

    async def steps(self) -> AsyncIterator[Step]:
        for sequence in range(1_000_000):
            _say(frames=sequence)
            yield Step((frame(sequence % _MADE_UP_S),), restart=sequence % _MADE_UP_S == 0)
            await asyncio.sleep(float(sys.argv[2]))

    def note(self, event: Event) -> None:
        """Not of interest."""

    async def aclose(self) -> None:
        _say(closed=True)


class CountingApp(PgtopApp):
    """Says how often frames were taken."""

    def on_frames_waiting(self) -> None:
        """See the base class."""
        _report["taken"] = _report["frames"]
        super().on_frames_waiting()


def main() -> None:
    """Takes the terminal as its own, so that closing it hangs up."""
    with contextlib.suppress(OSError):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    import pgtop_tune.tui.terminal.run as run

    run.PgtopApp = CountingApp  # type: ignore[misc]
    outcome = run_screen(Controls(Engine(EndlessSource())), ScreenOptions(target=f"pid {os.getpid()}"))
    _say(status=outcome.exit_status)
    sys.exit(outcome.exit_status)


if __name__ == "__main__":
    main()
