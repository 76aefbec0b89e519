"""Opens the screen on a server, which is looked at while the screen is made ready."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.config import load_config
from pgtop_tune.cli.output import not_stdout, tell
from pgtop_tune.cli.screen import (
    ScreenWords,
    frames_of,
    last_words,
    open_screen,
    overlay_directory,
    pace_paints,
    screen_options,
)

if TYPE_CHECKING:
    from pgtop_tune.advice.knobs.knob import Knob
    from pgtop_tune.base.config import Config
    from pgtop_tune.cli.live_options import LiveOptions
    from pgtop_tune.cli.screen_session import ScreenSession
    from pgtop_tune.model.bench import LoadSpec
    from pgtop_tune.model.frame import Frame
    from pgtop_tune.postgres.server.conninfo import ConnInfo
    from pgtop_tune.recording.history_buffer import HistoryBuffer, SpillFiles
    from pgtop_tune.recording.recorder import Recorder
    from pgtop_tune.runtime.engine import Engine
    from pgtop_tune.tui.controls import Controls, PastSource, TerminalTally

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
    import pgtop_tune.cli.allocator
    import pgtop_tune.cli.screen_session
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
    from pgtop_tune.cli.allocator import one_heap
    from pgtop_tune.cli.screen_session import ScreenSession
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

    source = ReplaySource(history, shown=shown)
    return PastSource(Engine(source), source)
