"""The screen on a server or on a recording, and the last lines when it closes."""

from __future__ import annotations

import gc
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
from pgtop_tune.cli.commands.watch import ReplayRequest, ScreenWords, TopRequest
from pgtop_tune.cli.connections import begin_resolving, live_options
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.log import event_logs
from pgtop_tune.cli.memory import hold_back, one_heap
from pgtop_tune.cli.output import PROGRAM, not_stdout, say, say_as_it_is, speaks_utf8, tell, write_for_programs

if TYPE_CHECKING:
    from pgtop_tune.advice.knobs.knob import Knob
    from pgtop_tune.base.config import Config
    from pgtop_tune.cli.commands.watch.session import ScreenSession
    from pgtop_tune.cli.options import LiveOptions
    from pgtop_tune.compare.overlay.curves import OverlaySource
    from pgtop_tune.export.frame_lines import FrameLines
    from pgtop_tune.model.bench import LoadSpec
    from pgtop_tune.model.frame import Frame
    from pgtop_tune.model.setup import Measured
    from pgtop_tune.postgres.server.conninfo import ConnInfo
    from pgtop_tune.recording.history_buffer import HistoryBuffer
    from pgtop_tune.recording.reader import RecordingReader
    from pgtop_tune.recording.recorder import Recorder
    from pgtop_tune.recording.spool import Spool
    from pgtop_tune.runtime.engine import Engine
    from pgtop_tune.tui.controls import Controls, PastSource, ScreenOptions, ScreenOutcome, TerminalTally

_SWITCH_S: Final = 0.001
_PLAIN_INTERVAL_S: Final = 2.0
_DUMB: Final = "dumb"
_FRAMES_JUDGED: Final = 3600
"""Newest frames of a run: an hour at a frame a second, some 60 MB."""


class LiveWords(Struct, frozen=True):
    """The screen on a server.

    Attributes:
        session: Options of the session but its interval and its terminal's bytes.
        interval_s: None is as configured.
        record: File to record into from the start.
        record_always: Record even without a file name, in the usual place.
        start_load: A load to start at once.
    """

    session: LiveOptions
    interval_s: float | None = None
    record: Path | None = None
    record_always: bool = False
    start_load: LoadSpec | None = None


def show_server(request: TopRequest) -> int:
    """Watch a server, and return the exit status. Raises UsageProblem without a terminal."""
    if request.batch or request.iterations or os.environ.get("TERM") == _DUMB or not sys.stdout.isatty():
        from pgtop_tune.cli.commands.watch.lines import print_lines

        return print_lines(request)
    if not sys.stdin.isatty():
        raise UsageProblem(
            "the screen needs a terminal for its keys",
            "run pgtop-tune -b for lines; over ssh, run ssh -t HOST pgtop-tune",
        )
    hold_back()
    resolving = begin_resolving(request.connection)
    live = live_options(
        request.session,
        waits_for_password=not request.connection.no_password,
        allow_unsafe=request.allow_unsafe,
        ceilings=measured(request.ceilings),
        query_text=not request.no_query_text,
    )
    live_words = LiveWords(session=live, interval_s=request.interval, record=request.record)
    preload(lambda: resolving.ready)
    return show_live(resolving.answer(), live_words, request.screen)


def preload(is_resolved: Callable[[], bool]) -> None:
    """Import the parts that sample a server, and of those that draw as many as there is time for.

    Args:
        is_resolved: True once the server's address is known: sampling begins then, while the rest is imported.
    """
    # Imports leave no garbage; `open_screen` turns the search for garbage on again.
    gc.disable()
    import pgtop_tune.cli.commands.watch.session
    import pgtop_tune.recording.history_buffer
    import pgtop_tune.recording.recorder
    import pgtop_tune.runtime.engine
    import pgtop_tune.tui.controls  # noqa: F401
    from pgtop_tune.tui.preload import preload_drawing

    pace_paints()
    preload_drawing(is_resolved)


def show_live(conninfo: ConnInfo, live_words: LiveWords, screen: ScreenWords) -> int:
    """Show the screen on a server, and return the exit status."""
    from pgtop_tune.cli.commands.watch.session import ScreenSession
    from pgtop_tune.runtime.engine import Engine
    from pgtop_tune.runtime.run_frames import FrameKeeper
    from pgtop_tune.tui.controls import TerminalTally

    one_heap()
    config = load_config()
    tally = TerminalTally()
    interval_s = live_words.interval_s or config.interval or (_PLAIN_INTERVAL_S if screen.plain else 1.0)
    options = replace(live_words.session, interval_s=interval_s, terminal_bytes=tally)
    keeper = FrameKeeper(most=_FRAMES_JUDGED)
    session = ScreenSession(conninfo, options, keeper)
    engine = Engine(session, (keeper,))
    # It connects and samples while Textual is imported; each answer would wait for 5 ms of imports.
    sys.setswitchinterval(_SWITCH_S)
    for sink in event_logs():
        engine.attach(sink)
    engine.prepare()
    discarded, recorder = False, None
    try:
        recorder = _recorder(conninfo.describe(), options, live_words, config)
        controls = _controls(engine, session, recorder, live_words, screen.overlay, tally)
        looks = replace(
            screen_options(screen, config),
            target=conninfo.describe(),
            start_load=live_words.start_load,
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
        tell(f"{recorder.last_path} was removed: no server ever answered")
    last_words(outcome, None if discarded else recorder.last_path)
    return outcome.exit_status


def _recorder(target: str, options: LiveOptions, live_words: LiveWords, config: Config) -> Recorder:
    from pgtop_tune.recording.recorder import Recorder

    not_stdout(live_words.record)
    rotation = None
    if config.rotate or config.keep:
        from pgtop_tune.recording.files import parse_rotation

        rotation = parse_rotation(config.rotate, config.keep)
    recorder = Recorder(target, options.interval_s, query_text=options.query_text, rotation=rotation)
    if live_words.record is not None or live_words.record_always:
        recorder.start(str(live_words.record) if live_words.record else None)
    return recorder


def _controls(
    engine: Engine,
    session: ScreenSession,
    recorder: Recorder,
    live_words: LiveWords,
    overlay: Path | None,
    tally: TerminalTally,
) -> Controls:
    """Return the controls of the screen; recorder and history buffer are attached to the engine."""
    from pgtop_tune.base import paths
    from pgtop_tune.recording.history_buffer import HistoryBuffer, SpillFiles
    from pgtop_tune.tui.controls import Controls

    def knobs() -> Sequence[Knob]:
        from pgtop_tune.advice.knobs.catalogue import KNOBS

        return KNOBS

    def recording_under_way() -> Path | None:
        path = recorder.state().path
        return None if path is None else Path(path)

    # Texts of statements that may not be recorded stay off the disk.
    history = HistoryBuffer(spill_files=SpillFiles(paths.state_dir) if live_words.session.query_text else None)
    engine.attach(recorder)
    engine.attach(history)
    return Controls(
        engine=engine,
        services=session.services,
        recording=recorder,
        interval=session,
        knobs=knobs,
        on_password=session.authenticate if live_words.session.waits_for_password else None,
        password_needed=session.password_needed if live_words.session.waits_for_password else None,
        tally=tally,
        past=lambda displayed: _past_source(history, displayed),
        frames=lambda since_s: _kept_frames(history, recorder.state().path, since_s),
        overlays=overlay_directory(overlay, recording_under_way),
    )


def _kept_frames(history: HistoryBuffer, recording: str | None, since_s: float) -> Iterator[Frame]:
    """Yield the frames of the history buffer, and those before them from the recording under way."""
    first_s = history.elapsed_s(history.first) if history.frame_count else 0.0
    if recording is not None and since_s < first_s:
        yield from takewhile(lambda frame: frame.elapsed_s < first_s, frames_of(Path(recording), since_s))
    yield from (frame for _, frame in history.frames(history.index_at(since_s)))


def _past_source(history: HistoryBuffer, displayed: Sequence[Frame]) -> PastSource | None:
    if not history.frame_count:
        return None
    from pgtop_tune.recording.replay import ReplaySource
    from pgtop_tune.runtime.engine import Engine
    from pgtop_tune.tui.controls import PastSource

    source = ReplaySource(history, shown_frames=displayed)
    return PastSource(Engine(source), source)


_PAINTS_PER_S: Final = "200"
"""Textual waits for up to 5 ms before it paints, twice for a dialog. A higher rate costs nothing: Textual paints only
changes."""
_PLAIN_THEME: Final = "ansi-dark"


def replay_recording(request: ReplayRequest) -> int:
    """Show a recording on the screen, or as lines, and return the exit status.

    Raises:
        UsageProblem: Nothing is piped into standard input.
        RecordingProblem: The recording cannot be read, or has no frames.
    """
    from pgtop_tune.recording.reader import RecordingReader, without_frames

    if request.lines and request.jsonl:
        raise UsageProblem("--lines and --jsonl contradict each other", "pass one of them")
    piped = _standard_input() if str(request.file) == "-" else None
    reader = RecordingReader(request.file) if piped is None else piped.reader()
    if not (reader.frame_count or reader.growing):
        if piped is not None and piped.problem:
            tell(piped.problem)
        raise without_frames(reader.name)
    request, until_s = _placed(request, reader)
    as_lines = request.lines or request.jsonl
    if not as_lines and sys.stdout.isatty() and (_keys_from_terminal() if piped else sys.stdin.isatty()):
        return show_replay(reader, request, until_s)
    from pgtop_tune.cli.headless import LEAD_UP_FRAMES, LinePrinter
    from pgtop_tune.runtime.ports import Step

    printer: FrameLines | LinePrinter
    if request.jsonl:
        from pgtop_tune.export.frame_lines import FrameLines

        write_for_programs()
        printer = FrameLines(say_as_it_is, reader.header.target)
    else:
        printer = LinePrinter(say)
    following = start = reader.index_at(request.start)
    before = reader.frames(max(start - LEAD_UP_FRAMES, reader.first))
    printer.lead_up(frame for _, frame in takewhile(lambda numbered: numbered[0] < start, before))
    while True:
        # Frames of a pipe are printed as they come.
        has_ended = piped is None or not piped.growing
        past_until = False
        for index, frame in reader.frames(following):
            if past_until := until_s is not None and frame.elapsed_s > until_s:
                break
            following = index + 1
            printer.accept(Step((frame,)))
        if past_until or piped is None or (not reader.extend() and has_ended):
            break
        piped.wait()
    if summary := printer.summary():
        say(summary)
    for problem in reader.problems:
        tell(f"{reader.name}: {problem}")
    if piped is not None and piped.problem:
        tell(piped.problem)
    reader.close()
    if following == start:
        raise without_frames(reader.name)
    return ExitCode.OK


def _standard_input() -> Spool:
    """Return the recording that is piped in. Raises UsageProblem where standard input is a terminal."""
    from pgtop_tune.recording.spool import Spool

    if sys.stdin.isatty():
        raise UsageProblem(
            "standard input is a terminal", "pipe a recording into it: cat run.jsonl | pgtop-tune replay -"
        )
    return Spool(os.dup(sys.stdin.fileno()))


def _keys_from_terminal() -> bool:
    """Put the terminal in the place of a piped standard input; return False without a terminal."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        return False
    os.dup2(terminal, sys.stdin.fileno())
    os.close(terminal)
    return True


def _placed(request: ReplayRequest, reader: RecordingReader) -> tuple[ReplayRequest, float | None]:
    """Return the request with --since as its start, and the end of --until; None without one.

    Raises:
        UsageProblem: A moment is none, or is not in the recording.
    """
    if not request.since and request.until == "end":
        return request, None
    if request.since and request.start:
        raise UsageProblem("--start and --since contradict each other", "pass one of them")
    from pgtop_tune.runtime.window import Timeline, parse_span

    first = next((frame for _, frame in reader.frames()), None)
    began_ms = 0.0 if first is None else first.taken_at_ms - first.elapsed_s * 1000.0
    line = Timeline(reader.length_s, reader.length_s, began_ms)
    from_s, until_s = parse_span(request.since or f"{request.start:g}s", request.until, line)
    return replace(request, start=from_s), until_s if request.until != "end" else None


def show_replay(reader: RecordingReader, request: ReplayRequest, until_s: float | None = None) -> int:
    """Show the screen on a recording, and return the exit status."""
    from pgtop_tune.recording.replay import ReplaySource
    from pgtop_tune.runtime.engine import Engine
    from pgtop_tune.tui.controls import Controls

    source = ReplaySource(reader, request.speed, until_s=until_s)
    if request.start:
        source.jump(request.start)
    controls = Controls(
        engine=Engine(source),
        transport=source,
        frames=lambda since_s: frames_of(reader.path, since_s),
        overlays=overlay_directory(request.screen.overlay, lambda: reader.path),
    )
    looks = replace(screen_options(request.screen, load_config()), target=reader.header.target)
    outcome = open_screen(controls, looks)
    for problem in reader.problems:
        say(f"{reader.name}: {problem}")
    return outcome.exit_status


def overlay_directory(overlay: Path | None, displayed: Callable[[], Path | None]) -> OverlaySource:
    """Return the earlier runs for the baseline overlay.

    Args:
        overlay: The run of --ghost, checked before the screen opens.
        displayed: Returns the recording on the screen, which is no earlier run.

    Raises:
        RecordingProblem: The run of --ghost cannot be read.
    """
    from pgtop_tune.base import paths
    from pgtop_tune.compare.overlay.curves import OverlaySource

    overlay_source = OverlaySource(paths.recordings_dir(), displayed)
    if overlay is not None:
        overlay_source.check(overlay)
    return overlay_source


def frames_of(path: Path, since_s: float) -> Iterator[Frame]:
    """Yield frames of a recording through a reader of its own, beside that of a replay."""
    from pgtop_tune.recording.reader import RecordingReader

    reader = RecordingReader(path)
    try:
        yield from (frame for _, frame in reader.frames(reader.index_at(since_s)))
    finally:
        reader.close()


def pace_paints() -> None:
    """Set how often Textual paints, before it is imported; a TEXTUAL_FPS of the user's stays."""
    os.environ.setdefault("TEXTUAL_FPS", _PAINTS_PER_S)


def open_screen(controls: Controls, options: ScreenOptions) -> ScreenOutcome:
    """Import Textual, and show the session until the operator leaves."""
    pace_paints()
    # Imports leave no garbage, and their objects stay: the collector need not look through them, now or later.
    gc.disable()
    from pgtop_tune.tui.terminal.run import run_screen

    gc.freeze()
    gc.enable()
    outcome = run_screen(controls, options)
    # Textual's own status of an application that has crashed.
    return replace(outcome, exit_status=ExitCode.CRASHED) if outcome.exit_status == 1 else outcome


def screen_options(screen: ScreenWords, config: Config) -> ScreenOptions:
    """Return the looks of the screen: as typed, else as configured, else as the terminal allows."""
    from pgtop_tune.tui.controls import ScreenOptions

    mouse = screen.mouse if screen.mouse is not None else config.mouse
    return ScreenOptions(
        theme=screen.theme or (_PLAIN_THEME if screen.plain else config.theme),
        ascii=screen.ascii_only or screen.plain or config.ascii or not speaks_utf8(),
        mouse=mouse if mouse is not None else not screen.plain,
        keymap=config.keys,
        overlay=screen.overlay,
    )


def last_words(outcome: ScreenOutcome, recording: Path | None) -> None:
    """Print the recording and the changes in force, which remain when the screen is closed."""
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
    """Return the measured limits of a report of `check --measure`; None without a report."""
    if report is None:
        return None
    from pgtop_tune.health.against import read_measured_limits

    return read_measured_limits(report)
