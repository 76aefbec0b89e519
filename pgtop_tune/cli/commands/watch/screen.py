"""Opens the screen on a server or on a recording, and says the last words when it closes."""

from __future__ import annotations

import gc
import locale
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.config import Config, load_config
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli.commands.watch.request import ScreenWords
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.output import PROGRAM, not_stdout, say, tell

if TYPE_CHECKING:
    from pgtop_tune.advice.knobs.knob import Knob
    from pgtop_tune.base.config import Config
    from pgtop_tune.cli.commands.watch.session import ScreenSession
    from pgtop_tune.cli.live_options import LiveOptions
    from pgtop_tune.compare.overlay.curves import OverlaySource
    from pgtop_tune.model.bench import LoadSpec
    from pgtop_tune.model.frame import Frame
    from pgtop_tune.model.setup import Measured
    from pgtop_tune.postgres.server.conninfo import ConnInfo
    from pgtop_tune.recording.history_buffer import HistoryBuffer, SpillFiles
    from pgtop_tune.recording.reader import RecordingReader
    from pgtop_tune.recording.recorder import Recorder
    from pgtop_tune.recording.spool import Spool
    from pgtop_tune.runtime.engine import Engine
    from pgtop_tune.tui.controls import Controls, PastSource, ScreenOptions, ScreenOutcome, TerminalTally

# Opens the screen on a server, which is looked at while the screen is made ready.

_SWITCH_S: Final = 0.001
_PLAIN_INTERVAL_S: Final = 2.0
_FRAMES_JUDGED: Final = 3600
"""Of a run, the newest: an hour at a frame a second, some 60 MB."""


class LiveWords(Struct, frozen=True):
    """The options of a screen on a server as typed.

    Attributes:
        session: All but how often it looks and how many bytes it writes.
        interval_s: None when it was not typed.
        record: File to record into from the start; None for none.
        record_always: Record even without a file name, in the usual place.
        start_load: A load to start at once.
    """

    session: LiveOptions
    interval_s: float | None = None
    record: Path | None = None
    record_always: bool = False
    start_load: LoadSpec | None = None


def preload(known: Callable[[], bool]) -> None:
    """Imports what looks at a server, and then of what draws as much as there is time for.

    Args:
        known: Whether it is known by now where the server is: then it is looked at while the rest is imported.
    """
    # Imports leave no garbage; `open_screen` has it looked for again.
    gc.disable()
    import pgtop_tune.cli.commands.watch.session
    import pgtop_tune.cli.memory
    import pgtop_tune.recording.history_buffer
    import pgtop_tune.recording.recorder
    import pgtop_tune.runtime.engine
    import pgtop_tune.tui.controls  # noqa: F401
    from pgtop_tune.tui.preload import preload_drawing

    pace_paints()
    preload_drawing(known)


def show_live(conninfo: ConnInfo, words: LiveWords, screen: ScreenWords) -> int:
    """The screen on a server.

    Returns:
        The exit status.
    """
    from pgtop_tune.cli.commands.watch.session import ScreenSession
    from pgtop_tune.cli.memory import one_heap
    from pgtop_tune.runtime.engine import Engine
    from pgtop_tune.runtime.run_frames import FrameKeeper
    from pgtop_tune.tui.controls import TerminalTally

    one_heap()
    config = load_config()
    tally = TerminalTally()
    interval_s = words.interval_s or config.interval or (_PLAIN_INTERVAL_S if screen.plain else 1.0)
    options = replace(words.session, interval_s=interval_s, terminal_bytes=tally)
    keeper = FrameKeeper(most=_FRAMES_JUDGED)
    session = ScreenSession(conninfo, options, keeper)
    engine = Engine(session, (keeper,))
    # It connects and looks while Textual is imported, and would wait for five milliseconds of that after each answer.
    sys.setswitchinterval(_SWITCH_S)
    engine.prepare()
    discarded, recorder = False, None
    try:
        recorder = _recorder(conninfo.describe(), options, words, config)
        controls = _controls(engine, session, recorder, words, screen.overlay, tally)
        looks = replace(
            screen_options(screen, config),
            target=conninfo.describe(),
            start_load=words.start_load,
            throwaway=options.journal_directory is not None,
            allow_unsafe=options.allow_unsafe,
        )
        outcome = open_screen(controls, looks)
    finally:
        engine.stop()
        if recorder is not None:
            recorder.stop()
            discarded = recorder.discard_without_server()
    if discarded:
        tell(f"{recorder.last_path} was removed: it never reached a server")
    last_words(outcome, None if discarded else recorder.last_path)
    return outcome.exit_status


def _recorder(target: str, options: LiveOptions, words: LiveWords, config: Config) -> Recorder:
    from pgtop_tune.recording.recorder import Recorder

    not_stdout(words.record)
    rotation = None
    if config.rotate or config.keep:
        from pgtop_tune.recording.files import parse_rotation

        rotation = parse_rotation(config.rotate, config.keep)
    recorder = Recorder(target, options.interval_s, query_text=options.query_text, rotation=rotation)
    if words.record is not None or words.record_always:
        recorder.start(str(words.record) if words.record else None)
    return recorder


def _controls(
    engine: Engine,
    session: ScreenSession,
    recorder: Recorder,
    words: LiveWords,
    overlay: Path | None,
    tally: TerminalTally,
) -> Controls:
    """What the operator can reach; what is kept of the frames is attached to the engine."""
    from pgtop_tune.recording.history_buffer import HistoryBuffer
    from pgtop_tune.tui.controls import Controls

    history = HistoryBuffer(spill_files=_spill_files(words.session))
    engine.attach(recorder)
    engine.attach(history)
    return Controls(
        engine=engine,
        services=session.services,
        recording=recorder,
        interval=session,
        knobs=_knobs,
        on_password=session.authenticate if words.session.waits_for_password else None,
        password_needed=session.password_needed if words.session.waits_for_password else None,
        tally=tally,
        past=lambda shown: _past_source(history, shown),
        frames=lambda since_s: _kept_frames(history, recorder.state().path, since_s),
        overlays=overlay_directory(overlay, lambda: _under_way(recorder)),
    )


def _knobs() -> Sequence[Knob]:
    from pgtop_tune.advice.knobs.catalogue import KNOBS

    return KNOBS


def _spill_files(options: LiveOptions) -> SpillFiles | None:
    """Where the past is spilled to: nowhere on a disk when texts of statements may not be recorded."""
    from pgtop_tune.base import paths
    from pgtop_tune.recording.history_buffer import SpillFiles

    return SpillFiles(paths.state_dir) if options.query_text else None


def _under_way(recorder: Recorder) -> Path | None:
    """The file that is being written; one that has ended is an earlier run like any other."""
    path = recorder.state().path
    return None if path is None else Path(path)


def _kept_frames(history: HistoryBuffer, recording: str | None, since_s: float) -> Iterator[Frame]:
    """What is kept in memory, and what was before that out of the recording under way."""
    kept_s = history.elapsed_s(history.first) if history.frame_count else 0.0
    if recording is not None and since_s < kept_s:
        for frame in frames_of(Path(recording), since_s):
            if frame.elapsed_s >= kept_s:
                break
            yield frame
    yield from (frame for _, frame in history.frames(history.index_at(since_s)))


def _past_source(history: HistoryBuffer, shown: Sequence[Frame]) -> PastSource | None:
    if not history.frame_count:
        return None
    from pgtop_tune.recording.replay import ReplaySource
    from pgtop_tune.runtime.engine import Engine
    from pgtop_tune.tui.controls import PastSource

    source = ReplaySource(history, shown_frames=shown)
    return PastSource(Engine(source), source)


_PAINTS_PER_S: Final = "200"
"""Textual waits up to 5 ms before it paints, twice where a dialog opens. Nothing is painted that has not changed, and
ticks go past it: more costs nothing."""
_PLAIN_THEME: Final = "ansi-dark"


def replay_recording(file: Path, speed: float, start: float, screen: ScreenWords, *, as_lines: bool) -> None:
    """Show a recording on the screen, or as lines, and leave with the exit status.

    Args:
        file: "-" is standard input.
        start: Seconds into the recording.

    Raises:
        UsageProblem: Nothing is piped into standard input.
        RecordingProblem: It cannot be read, or has no frames.
    """
    from pgtop_tune.recording.reader import RecordingReader, without_frames

    piped = _standard_input() if str(file) == "-" else None
    reader = RecordingReader(file) if piped is None else piped.reader()
    if not (reader.frame_count or reader.growing):
        if piped is not None and piped.problem:
            tell(piped.problem)
        raise without_frames(reader.name)
    if not as_lines and sys.stdout.isatty() and (_keys_from_terminal() if piped else sys.stdin.isatty()):
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
    """Return what is piped into us.

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
    from pgtop_tune.compare.overlay.curves import OverlaySource

    overlay_source = OverlaySource(paths.recordings_dir(), shown)
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


def measured(report: Path | None) -> Measured | None:
    """Return what a report of `check --measure` says that the server can do at most; None without one."""
    if report is None:
        return None
    from pgtop_tune.health.against import measured_in

    return measured_in(report)
