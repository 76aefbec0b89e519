"""The past of a live session: every pane shows that moment as it looked then, and everything goes on meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import cache

import pytest

from pgtop_tune.model.bench import LatencySecond
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.model.frame import Frame
from pgtop_tune.recording.history_buffer import HistoryBuffer
from pgtop_tune.recording.replay import ReplaySource
from pgtop_tune.runtime.engine import Engine
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.app import PgtopApp
from pgtop_tune.tui.compare.windows_dialog import WindowsDialog
from pgtop_tune.tui.controls import PastSource, ScreenOptions
from pgtop_tune.tui.dashboard.screen import DashboardState, dashboard_layout, dashboard_lines
from pgtop_tune.tui.dialogs.entry import PromptDialog
from pgtop_tune.tui.load.dialog import LoadDialog
from pgtop_tune.tui.widgets.lines import UNICODE, plain_text
from pgtop_tune.tui.widgets.time_axis import CHARTED
from tests.support.frames import EPOCH_MS, frame
from tests.support.screens import Rig, ScriptedBackends, ScriptedLoad, ScriptedRecording, ScriptedSource, wire

COUNT = 300


def made_up(second: int) -> Frame:
    """A frame with a note each minute; the seconds of the load come late, as pgbench's do."""
    note = Event(EPOCH_MS + second * 1000 - 700, EventKind.NOTE, f"note {second}")
    return frame(second, backends=4, events=(note,) if second % 60 == 30 else ())


FRAMES = [made_up(second) for second in range(COUNT)]


def picture(session: Session) -> list[str]:
    """The dashboard without its first line, which has the clock."""
    panes = dashboard_lines(session, dashboard_layout(120, 40), 120, UNICODE, DashboardState())
    return [plain_text(line) for lines in panes.values() for line in lines][1:]


MOMENTS = (0, 1, 18, 89, 149, 150, 156, 157, 204, 269, 270, 299)


@cache
def watched() -> tuple[Session, dict[int, list[str]]]:
    """A session that has seen every frame, and what the screen drew when the newest was each of `MOMENTS`."""
    session, drawn = Session(CHARTED), {}
    for one in FRAMES:
        session.apply(Step((one,)))
        if one.sequence in MOMENTS:
            drawn[one.sequence] = picture(session)
    return session, drawn


def drawn_live(count: int) -> list[str]:
    """What the screen drew when the newest frame was the last of so many."""
    return watched()[1][count - 1]


@asynccontextmanager
async def watching(fed: int = COUNT, **controls: object) -> AsyncIterator[Rig]:
    """A screen on a scripted live source whose last hour is kept as the program keeps it."""
    source, hour = ScriptedSource(), HistoryBuffer()

    def past(shown: Sequence[Frame]) -> PastSource | None:
        kept = ReplaySource(hour, shown_frames=shown)
        return PastSource(Engine(kept), kept)

    wired = wire(Engine(source, (hour,)), past=past, **controls)
    app = PgtopApp(wired, ScreenOptions())
    try:
        async with app.run_test(size=(120, 40), notifications=True) as pilot:
            rig = Rig(app, pilot, source, wired)
            await rig.until(lambda: source._wake is not None)
            for begin in range(0, fed, 100):
                # More at once than a session keeps whole would lose frames on the way to the screen.
                source.feed(*FRAMES[begin : min(begin + 100, fed)])
                await rig.until(lambda: _newest(rig) == min(begin + 100, fed) - 1)  # noqa: B023
            # The screen may have a frame before the hour has it; a key steps back from the newest one there.
            await rig.until(lambda: hour.frame_count == fed)
            yield rig
    finally:
        app.time_travel.close()
        assert wired.engine.stop()


def _newest(rig: Rig) -> int:
    return -1 if rig.app.context.live.now is None else rig.app.context.live.now.sequence


def _shown(rig: Rig) -> int:
    return -1 if rig.app.time_travel.shown.now is None else rig.app.time_travel.shown.now.sequence


async def _stands_at(rig: Rig, sequence: int) -> None:
    """Waits until the moment is shown with all that leads up to it."""
    await rig.until(lambda: _shown(rig) == sequence and len(rig.app.time_travel.shown.frames) >= min(sequence + 1, 75))


async def _jump(rig: Rig, words: str) -> None:
    await rig.press("T")
    await rig.until(lambda: isinstance(rig.app.screen, PromptDialog))
    await rig.type(words)
    await rig.press("enter")


async def test_a_step_back_shows_the_frame_before_as_it_looked_then_and_z_the_present() -> None:
    async with watching(160) as rig:
        present = rig.text()
        await rig.press("comma", "comma", "comma")
        await _stands_at(rig, 156)
        await rig.sees("−3s")
        assert picture(rig.app.time_travel.shown) == drawn_live(157)
        await rig.press("full_stop")
        await _stands_at(rig, 157)
        assert picture(rig.app.time_travel.shown) == drawn_live(158)
        assert "replay" not in rig.text()
        await rig.press("z")
        await rig.until(lambda: rig.text() == present)


async def test_a_jump_to_what_the_session_has_forgotten_shows_that_moment_in_every_pane() -> None:
    async with watching() as rig:
        await _jump(rig, "210s ago")
        await _stands_at(rig, COUNT - 211)
        await rig.until(lambda: len(rig.app.time_travel.shown.frames) == COUNT - 210)
        await rig.sees("−3m 30s")
        assert picture(rig.app.time_travel.shown) == drawn_live(COUNT - 210)
        await _jump(rig, "+1m")
        await _stands_at(rig, COUNT - 151)
        await rig.until(lambda: len(rig.app.time_travel.shown.frames) == 150)
        assert picture(rig.app.time_travel.shown) == drawn_live(COUNT - 150)
        await _jump(rig, "now")
        await rig.until(lambda: rig.app.time_travel.past is None)


async def test_live_frames_load_and_recording_go_on_while_the_past_is_shown() -> None:
    load, recording = ScriptedLoad(), ScriptedRecording()
    async with watching(200, load=load, recording=recording) as rig:
        await rig.press("comma")
        await rig.sees("−1s")
        rig.source.feed(*FRAMES[200:205])
        await rig.sees("−6s")
        assert _shown(rig) == 198
        await rig.press("r")
        await rig.until(lambda: recording.state().path is not None)
        await rig.press("b")
        await rig.until(lambda: isinstance(rig.app.screen, LoadDialog))
        await rig.press("escape", "z")
        await rig.until(lambda: _shown(rig) == 204)
        assert picture(rig.app.time_travel.shown) == drawn_live(205)


async def test_the_past_plays_on_until_it_is_the_present() -> None:
    async with watching(120) as rig:
        await _jump(rig, "30s ago")
        await _stands_at(rig, 89)
        for _ in range(6):
            await rig.press("right_curly_bracket")
        await rig.press("space")
        await rig.until(lambda: rig.app.time_travel.past is None)
        assert _shown(rig) == 119


async def test_space_alone_freezes_and_goes_back_to_the_present_as_before() -> None:
    async with watching(50) as rig:
        await rig.press("space")
        rig.source.feed(FRAMES[50])
        await rig.sees("−1s")
        await rig.press("space")
        await rig.until(lambda: rig.app.time_travel.past is None and _shown(rig) == 50)


async def test_events_before_the_moment_are_found_and_those_after_the_newest_are_not() -> None:
    async with watching(200) as rig:
        await rig.press("n")
        await rig.until(lambda: any("no event after" in each.message for each in rig.app._notifications))
        assert rig.app.time_travel.past is None
        await rig.press("N")
        await _stands_at(rig, 150)
        await rig.press("N")
        await _stands_at(rig, 90)
        await rig.press("n")
        await _stands_at(rig, 150)


async def test_nobody_is_cancelled_for_what_he_did_in_the_past_but_a_frozen_screen_may_be_acted_on() -> None:
    backends = ScriptedBackends()
    async with watching(60, backends=backends) as rig:
        await rig.press("comma", "home", "K")
        await rig.until(lambda: any("z returns to live" in each.message for each in rig.app._notifications))
        await rig.press("z", "space", "home", "K")
        await rig.sees("pg_terminate_backend")
        assert not backends.signalled


async def test_a_past_that_cannot_be_read_says_so_and_leaves_the_present(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(hour: HistoryBuffer, first: int = 0) -> Iterator[tuple[int, Frame]]:
        raise ValueError("no such block")

    async with watching(60) as rig:
        monkeypatch.setattr(HistoryBuffer, "frames", broken)
        await _jump(rig, "40s ago")
        await rig.until(lambda: any("cannot be read: no such block" in each.message for each in rig.app._notifications))
        assert (rig.app.time_travel.past, _shown(rig)) == (None, 59)


def test_what_came_late_is_not_known_before_it_came() -> None:
    late = LatencySecond(EPOCH_MS // 1000 + 3, 10, 10_000, 2_000, ((5, 10),))
    session = Session(CHARTED)
    for one in FRAMES[:20]:
        session.apply(Step((one,)))
    session.latency.add((late,), EPOCH_MS / 1000.0, 19.0)
    past = session.copy()
    past.apply(Step(tuple(FRAMES[10:19]), back_to_s=18.0))
    assert picture(past) == drawn_live(19)


@pytest.mark.parametrize("back_to", [299, 270, 269, 150, 1, 0])
def test_any_moment_looks_as_it_did(back_to: int) -> None:
    """Without a screen: what a restart and a step back make of a session is what it was."""
    session, _ = watched()
    hour = HistoryBuffer()
    hour.accept(Step(tuple(FRAMES)))
    past = session.copy()
    past.apply(Step(tuple(one for _, one in hour.frames(max(back_to - 149, 0)))[: min(back_to, 149) + 1], restart=True))
    assert picture(past) == drawn_live(back_to + 1)


async def test_the_arrows_go_through_time_and_with_shift_they_mark_two_windows_to_compare() -> None:
    async with watching(160, frames=lambda since_s: iter(FRAMES)) as rig:
        await rig.press("left")
        await _stands_at(rig, 158)
        await rig.sees("←→ step")
        for begin in (158, 148):
            for step in range(1, 6):
                await rig.press("shift+left")
                await _stands_at(rig, begin - step)
            await rig.press(*["left"] * 5)
            await _stands_at(rig, begin - 10)
        windows = [(window.since_s, window.until_s) for window in rig.app.windows.marks.windows]
        began_s = FRAMES[0].elapsed_s
        assert windows == [(began_s + 153, began_s + 158), (began_s + 143, began_s + 148)]
        await rig.press("right")
        await _stands_at(rig, 139)
        await rig.press("3", "left")
        await _stands_at(rig, 138)
        await rig.press("1", "right")
        await _stands_at(rig, 139)
        await rig.press("D")
        await rig.until(lambda: isinstance(rig.app.screen, WindowsDialog))
