"""Opens the screen on a live session or a replay, and says the last words when it closes."""

from __future__ import annotations

import gc
import locale
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pgtop_tune.cli.output import PROGRAM, say
from pgtop_tune.config import Config, load_config

if TYPE_CHECKING:
    from pgtop_tune.bench.places.ssh_address import SshAddress
    from pgtop_tune.host.disk_caps import DiskCap
    from pgtop_tune.model.ceilings import Measured
    from pgtop_tune.model.frame import Frame
    from pgtop_tune.model.load import LoadSpec
    from pgtop_tune.pooler.address import PoolerAddress
    from pgtop_tune.postgres.conninfo import ConnInfo
    from pgtop_tune.recording.hour import KeptHour
    from pgtop_tune.recording.put_away import Drawer
    from pgtop_tune.recording.reader import RecordingReader
    from pgtop_tune.session.ghost import GhostShelf
    from pgtop_tune.tui.controls import Controls, ScreenOptions, ScreenOutcome
    from pgtop_tune.tui.looking_back import KeptPast

_PAINTS_PER_S: Final = "30"
"""Textual adds up to 33 ms to a key's echo. Ticks are painted once whatever stands here. Read when it is imported."""
_PLAIN_INTERVAL_S: Final = 2.0
_PLAIN_THEME: Final = "ansi-dark"
_FRAMES_JUDGED: Final = 3600
"""Of a run, the newest: an hour at a frame a second, some 60 MB."""


@dataclass(frozen=True, slots=True)
class ScreenWords:
    """The screen options as typed."""

    theme: str | None = None
    plain: bool = False
    ascii_only: bool = False
    mouse: bool | None = None
    ghost: Path | None = None


@dataclass(frozen=True, slots=True)
class LiveWords:
    """How to watch.

    Attributes:
        interval_s: As typed; None when it was not.
        record: File to record into from the start; None for none.
        record_always: Record even without a file name, in the usual place.
        may_ask: Whether a password may be asked for.
        start_load: A load to start at once.
        journal: Directory of the change journal of a server that is thrown away; None for the user's own.
        disk_caps: What the operator says of disks.
        poolers: Admin consoles to look at.
        load_from: The machine pgbench runs on; None is this one.
        allow_unsafe: Values that can lose data may be unlocked.
        own_restart: Ends and starts the server where it is a throwaway one of ours.
        query_text: Whether a recording has the texts of statements.
        ceilings: A report with what the server was measured to do at most.
    """

    interval_s: float | None = None
    record: Path | None = None
    record_always: bool = False
    pgbench: Path | None = None
    may_ask: bool = True
    start_load: LoadSpec | None = None
    journal: Path | None = None
    disk_caps: tuple[DiskCap, ...] = ()
    poolers: tuple[PoolerAddress, ...] = ()
    load_from: SshAddress | None = None
    allow_unsafe: bool = False
    own_restart: Callable[[], None] | None = None
    query_text: bool = True
    ceilings: Path | None = None


def import_screen() -> None:
    """Imports Textual and what is drawn with it, for whoever waits for something else."""
    os.environ.setdefault("TEXTUAL_FPS", _PAINTS_PER_S)
    import pgtop_tune.tui.run  # noqa: F401


def show_live(conninfo: ConnInfo, words: LiveWords, screen: ScreenWords) -> int:
    """The screen on a server.

    Returns:
        The exit status.
    """
    from pgtop_tune.cli.allocator import one_heap
    from pgtop_tune.cli.live_options import LiveOptions
    from pgtop_tune.cli.starting import StartingSession
    from pgtop_tune.experiment.frame_keeper import FrameKeeper
    from pgtop_tune.recording.hour import KeptHour
    from pgtop_tune.recording.recorder import Recorder
    from pgtop_tune.recording.rotation import parse_rotation
    from pgtop_tune.session.engine import Engine
    from pgtop_tune.tuning.knobs.catalogue import KNOBS

    one_heap()
    os.environ.setdefault("TEXTUAL_FPS", _PAINTS_PER_S)
    from pgtop_tune.tui.controls import Controls, TerminalTally

    config = load_config()
    tally = TerminalTally()
    interval_s = words.interval_s or config.interval or (_PLAIN_INTERVAL_S if screen.plain else 1.0)
    options = LiveOptions(
        interval_s,
        words.pgbench,
        words.may_ask,
        tally,
        words.journal,
        words.disk_caps,
        words.poolers,
        words.load_from,
        words.allow_unsafe,
        own_restart=words.own_restart,
        ceilings=None if words.ceilings is None else _ceilings(words.ceilings),
    )
    keeper, hour = FrameKeeper(most=_FRAMES_JUDGED), KeptHour(drawer=_drawer(words))
    session = StartingSession(conninfo, options, keeper)
    rotation = parse_rotation(config.rotate, config.keep)
    recorder = Recorder(conninfo.describe(), interval_s, query_text=words.query_text, rotation=rotation)
    if words.record is not None or words.record_always:
        recorder.start(str(words.record) if words.record else None)
    controls = Controls(
        engine=Engine(session, (recorder, keeper, hour)),
        load=session.load,
        parameters=session.parameters,
        backends=session.backends,
        machine=session.machine,
        restart=session.restart,
        checks=session.checks,
        recording=recorder,
        interval=session,
        knobs=KNOBS,
        on_password=session.authenticate if words.may_ask else None,
        password_needed=session.password_needed if words.may_ask else None,
        tally=tally,
        past=lambda shown: _kept_past(hour, shown),
        frames=lambda since_s: _kept_frames(hour, recorder.state().path, since_s),
        ghosts=_shelf(screen.ghost, lambda: recorder.last_path),
    )
    looks = replace(
        _screen_options(screen, config),
        target=conninfo.describe(),
        start_load=words.start_load,
        throwaway=words.journal is not None,
        allow_unsafe=words.allow_unsafe,
    )
    outcome = _show(controls, looks)
    _last_words(outcome, recorder.last_path)
    return outcome.exit_status


def show_replay(reader: RecordingReader, speed: float, start_s: float, screen: ScreenWords) -> int:
    """The screen on a recording.

    Returns:
        The exit status.
    """
    from pgtop_tune.recording.replay import ReplaySource
    from pgtop_tune.session.engine import Engine

    os.environ.setdefault("TEXTUAL_FPS", _PAINTS_PER_S)
    from pgtop_tune.tui.controls import Controls

    source = ReplaySource(reader, speed)
    if start_s:
        source.jump(start_s)
    controls = Controls(
        engine=Engine(source),
        transport=source,
        frames=lambda since_s: _frames_of(reader.path, since_s),
        ghosts=_shelf(screen.ghost, lambda: reader.path),
    )
    outcome = _show(controls, replace(_screen_options(screen, load_config()), target=reader.header.target))
    for problem in reader.problems:
        say(f"{reader.name}: {problem}")
    return outcome.exit_status


def _drawer(words: LiveWords) -> Drawer | None:
    """Where the past is put away: nowhere on a disk when texts of statements may not be recorded."""
    from pgtop_tune import paths
    from pgtop_tune.recording.put_away import Drawer

    return Drawer(paths.state_dir) if words.query_text else None


def _shelf(wanted: Path | None, shown: Callable[[], Path | None]) -> GhostShelf:
    """Earlier runs; one that was asked for is looked at before the screen opens.

    Raises:
        RecordingProblem: It cannot be read.
    """
    from pgtop_tune import paths
    from pgtop_tune.analysis.ghosts import Shelf

    shelf = Shelf(paths.recordings_dir(), shown)
    if wanted is not None:
        shelf.check(wanted)
    return shelf


def _kept_frames(hour: KeptHour, recording: str | None, since_s: float) -> Iterator[Frame]:
    """What is kept in memory, and what was before that out of the recording under way."""
    kept_s = hour.elapsed_s(hour.first) if hour.frame_count else 0.0
    if recording is not None and since_s < kept_s:
        for frame in _frames_of(Path(recording), since_s):
            if frame.elapsed_s >= kept_s:
                break
            yield frame
    yield from (frame for _, frame in hour.frames(hour.index_at(since_s)))


def _frames_of(path: Path, since_s: float) -> Iterator[Frame]:
    """Read beside the replay, which goes on with a reader of its own."""
    from pgtop_tune.recording.reader import RecordingReader

    reader = RecordingReader(path)
    try:
        yield from (frame for _, frame in reader.frames(reader.index_at(since_s)))
    finally:
        reader.close()


def _kept_past(hour: KeptHour, shown: Sequence[Frame]) -> KeptPast | None:
    if not hour.frame_count:
        return None
    from pgtop_tune.recording.replay import ReplaySource
    from pgtop_tune.session.engine import Engine
    from pgtop_tune.tui.looking_back import KeptPast

    source = ReplaySource(hour, shown=shown)
    return KeptPast(Engine(source), source)


def _ceilings(path: Path) -> Measured:
    from pgtop_tune.health.against import measured_in

    return measured_in(path)


def _show(controls: Controls, options: ScreenOptions) -> ScreenOutcome:
    from pgtop_tune.tui.run import run_screen

    # What was imported stays: nobody has to look through it for garbage again.
    gc.freeze()
    return run_screen(controls, options)


def _screen_options(words: ScreenWords, config: Config) -> ScreenOptions:
    from pgtop_tune.tui.controls import ScreenOptions

    over_ssh = bool(os.environ.get("SSH_CONNECTION"))
    mouse = words.mouse if words.mouse is not None else config.mouse
    return ScreenOptions(
        theme=words.theme or (_PLAIN_THEME if words.plain else config.theme),
        ascii=words.ascii_only or words.plain or config.ascii or not _speaks_utf8(),
        mouse=mouse if mouse is not None else not (over_ssh or words.plain),
        keymap=config.keys,
        ghost=words.ghost,
    )


def _speaks_utf8() -> bool:
    """Whether the locale draws more than ASCII; as the terminal's user set it, not as Python coerces it."""
    words = os.environ.get("LC_ALL") or os.environ.get("LC_CTYPE") or os.environ.get("LANG") or ""
    named = words.lower().replace("-", "")
    return "utf8" in named or (not words and locale.getpreferredencoding(False).lower().replace("-", "") == "utf8")


def _last_words(outcome: ScreenOutcome, recording: Path | None) -> None:
    if recording is not None:
        say(f"recording: {recording}")
        say(f"  {PROGRAM} replay {recording}")
    if outcome.in_force:
        say("still in force on the server:")
        for change in outcome.in_force:
            say(f"  {change.name} = {change.shown_after or change.value} (was {change.shown_before})")
        say(f"  `{PROGRAM} revert` with the same connection options takes them back")
    if outcome.on_machine:
        say("still in force on this machine:")
        for setting in outcome.on_machine:
            say(f"  {setting.name} = {setting.shown_after} (was {setting.value_before})")
        say(f"  `{PROGRAM} revert --machine` takes them back")
