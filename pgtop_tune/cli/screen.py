"""Opens the screen, on a recording here and on a server in `cli.live_screen`; says the last words when it closes."""

from __future__ import annotations

import gc
import locale
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.config import Config, load_config
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.output import PROGRAM, say

if TYPE_CHECKING:
    from pgtop_tune.compare.overlay.curves import OverlaySource
    from pgtop_tune.model.frame import Frame
    from pgtop_tune.recording.reader import RecordingReader
    from pgtop_tune.tui.controls import Controls, ScreenOptions, ScreenOutcome

_PAINTS_PER_S: Final = "200"
"""Textual waits up to 5 ms before it paints, twice where a dialog opens. Nothing is painted that has not changed, and
ticks go past it: more costs nothing."""
_PLAIN_THEME: Final = "ansi-dark"


class ScreenWords(Struct, frozen=True):
    """The screen options as typed."""

    theme: str | None = None
    plain: bool = False
    ascii_only: bool = False
    mouse: bool | None = None
    overlay: Path | None = None


def show_replay(reader: RecordingReader, speed: float, start_s: float, screen: ScreenWords) -> int:
    """The screen on a recording.

    Returns:
        The exit status.
    """
    from pgtop_tune.recording.replay import ReplaySource
    from pgtop_tune.runtime.engine import Engine
    from pgtop_tune.tui.controls import Controls

    source = ReplaySource(reader, speed)
    if start_s:
        source.jump(start_s)
    controls = Controls(
        engine=Engine(source),
        transport=source,
        frames=lambda since_s: frames_of(reader.path, since_s),
        overlays=overlay_directory(screen.overlay, lambda: reader.path),
    )
    outcome = open_screen(controls, replace(screen_options(screen, load_config()), target=reader.header.target))
    for problem in reader.problems:
        say(f"{reader.name}: {problem}")
    return outcome.exit_status


def overlay_directory(wanted: Path | None, shown: Callable[[], Path | None]) -> OverlaySource:
    """Earlier runs; one that was asked for is looked at before the screen opens.

    Raises:
        RecordingProblem: It cannot be read.
    """
    from pgtop_tune.base import paths
    from pgtop_tune.compare.overlay.curves import OverlayDirectory

    overlay_source = OverlayDirectory(paths.recordings_dir(), shown)
    if wanted is not None:
        overlay_source.check(wanted)
    return overlay_source


def frames_of(path: Path, since_s: float) -> Iterator[Frame]:
    """Read beside the replay, which goes on with a reader of its own."""
    from pgtop_tune.recording.reader import RecordingReader

    reader = RecordingReader(path)
    try:
        yield from (frame for _, frame in reader.frames(reader.index_at(since_s)))
    finally:
        reader.close()


def pace_paints() -> None:
    """Sets how often Textual paints: it reads that when it is imported. The user's own wish counts."""
    os.environ.setdefault("TEXTUAL_FPS", _PAINTS_PER_S)


def open_screen(controls: Controls, options: ScreenOptions) -> ScreenOutcome:
    """Imports Textual, and shows the session until the operator leaves (see `tui.run.run_screen`)."""
    pace_paints()
    # Imports leave no garbage, and what they make stays: nobody has to look through it, now or later.
    gc.disable()
    from pgtop_tune.tui.terminal.run import run_screen

    gc.freeze()
    gc.enable()
    outcome = run_screen(controls, options)
    # Textual's own status of an application that has crashed.
    return replace(outcome, exit_status=ExitCode.CRASHED) if outcome.exit_status == 1 else outcome


def screen_options(words: ScreenWords, config: Config) -> ScreenOptions:
    """How the screen looks: what was typed, else what the configuration says, else what the terminal allows."""
    from pgtop_tune.tui.controls import ScreenOptions

    mouse = words.mouse if words.mouse is not None else config.mouse
    return ScreenOptions(
        theme=words.theme or (_PLAIN_THEME if words.plain else config.theme),
        ascii=words.ascii_only or words.plain or config.ascii or not _speaks_utf8(),
        mouse=mouse if mouse is not None else not words.plain,
        keymap=config.keys,
        overlay=words.overlay,
    )


def _speaks_utf8() -> bool:
    """Whether the locale draws more than ASCII; as the terminal's user set it, not as Python coerces it."""
    words = os.environ.get("LC_ALL") or os.environ.get("LC_CTYPE") or os.environ.get("LANG") or ""
    named = words.lower().replace("-", "")
    return "utf8" in named or (not words and locale.getpreferredencoding(False).lower().replace("-", "") == "utf8")


def last_words(outcome: ScreenOutcome, recording: Path | None) -> None:
    """Says what stays when the screen is closed: the recording, and what was changed."""
    if recording is not None:
        say(f"recording: {recording}")
        say(f"  {PROGRAM} replay {recording}")
    if outcome.in_force:
        say("still in force on the server:")
        for change in outcome.in_force:
            say(f"  {change.name} = {change.shown_after or change.value} (was {change.shown_before})")
        say(f"  `{PROGRAM} revert` with the same connection options reverts them")
    if outcome.on_machine:
        say("still in force on this machine:")
        for setting in outcome.on_machine:
            say(f"  {setting.name} = {setting.shown_after} (was {setting.value_before})")
        say(f"  `{PROGRAM} revert --machine` reverts them")
