"""The screen's life: sizes, stalls, failures, secrets, and what foreign text may not do."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from msgspec.structs import replace
from textual.geometry import Size

from pgtop_tune.base.errors import ConnectionProblem, UsageProblem
from pgtop_tune.base.secret import Secret
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import PostgresSample
from pgtop_tune.runtime.engine import Engine
from pgtop_tune.runtime.ports import Step
from pgtop_tune.tui.app import PgtopApp
from pgtop_tune.tui.controls import Controls, ScreenOptions
from pgtop_tune.tui.dashboard.screen import Dashboard
from pgtop_tune.tui.dialogs.dialog import Dialog, TooSmall
from pgtop_tune.tui.dialogs.entry import PasswordDialog
from pgtop_tune.tui.time_travel import KEEP_STEPS
from tests.support.frames import frame, postgres_sample
from tests.support.reports import ScriptedCheck, typical
from tests.support.screens import DEADLINE_S, ScriptedLoad, ScriptedSource, frames, running_screen

HOSTILE = "\x1b]52;c;aGk=\x07 [/bold] [b \x9b31m \u202e txet 漢字 '"

CONTROLS = {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0x202E)} - {"\n"}


async def test_a_layout_stands_before_the_first_frame() -> None:
    source = ScriptedSource()
    async with running_screen(source, waits_for_frames=False, options=ScreenOptions(target="bench@db1:5432")) as rig:
        await rig.sees("bench@db1:5432")
        await rig.sees("q quit")
        rig.source.feed(frame(0), frame(1))
        await rig.sees("PostgreSQL 18.6")


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50), (250, 70), (60, 15)])
async def test_every_size_has_a_picture_without_overflow(size: tuple[int, int]) -> None:
    async with running_screen(size=size) as rig:
        await rig.sees("sessions")
        lines = rig.text().splitlines()
        assert len(lines) == size[1]
        assert "db1" in lines[0]
        assert "quit" in lines[-1]


async def test_too_small_says_so_and_the_picture_comes_back() -> None:
    async with running_screen() as rig:
        await rig.press("down")
        await rig.pilot.resize_terminal(50, 12)
        await rig.sees("screen needs 60 and 15")
        assert isinstance(rig.app.screen, TooSmall)
        rig.source.feed(frame(5))
        await rig.press("b", "p", "down")
        await rig.pilot.resize_terminal(100, 30)
        await rig.until(lambda: isinstance(rig.app.screen, Dashboard))
        await rig.sees("sessions 33")
        await rig.until(lambda: len(rig.text().splitlines()) == 30)


async def test_too_small_with_an_open_dialog_comes_back_to_the_dialog() -> None:
    async with running_screen(load=ScriptedLoad()) as rig:
        await rig.press("b")
        await rig.sees("stop")
        dialog = rig.app.screen
        await rig.pilot.resize_terminal(20, 5)
        await rig.until(lambda: isinstance(rig.app.screen, TooSmall))
        await rig.pilot.resize_terminal(120, 40)
        await rig.until(lambda: rig.app.screen is dialog)


async def test_a_terminal_that_grows_under_two_dialogs_widens_both(monkeypatch: pytest.MonkeyPatch) -> None:
    # Else Textual does not make the bytes, and what it would die of is not seen.
    monkeypatch.setattr(PgtopApp, "is_headless", False)
    async with running_screen(size=(80, 24), checks=ScriptedCheck(typical())) as rig:
        await rig.press("C")
        await rig.sees("found: ")
        await rig.press("down", "enter")
        await rig.sees("Why MEM-02 matters.")
        await rig.pilot.resize_terminal(120, 40)
        # Below the details the lower edge of the check's own box is in sight.
        await rig.until(lambda: _is_edge(rig.text().splitlines()[-1], 120))


def _is_edge(line: str, columns: int) -> bool:
    """Whether it is the lower edge of a box across the whole terminal."""
    return len(line) == columns and line[0] == "╰" and line[-1] == "╯"


async def test_a_dialog_is_drawn_while_the_terminal_grows_and_shrinks_again() -> None:
    async with running_screen() as rig:
        await rig.press("?")
        dialog = rig.app.screen
        assert isinstance(dialog, Dialog)
        # Textual lays out the size of one event while the next one's is already that of the application.
        for width, height in (200, 60), (90, 20), (120, 60), (200, 40):
            dialog._refresh_layout(Size(width, height))
            rows = dialog._compositor.render_strips()
            assert [row.cell_length for row in rows] == [width] * height


async def test_a_question_over_too_small_does_not_strand_the_screen() -> None:
    async with running_screen(load=ScriptedLoad()) as rig:
        await rig.pilot.resize_terminal(30, 8)
        await rig.until(lambda: isinstance(rig.app.screen, TooSmall))
        await rig.press("q")
        await rig.sees("leave")
        await rig.pilot.resize_terminal(120, 40)
        await rig.press("escape")
        await rig.until(lambda: isinstance(rig.app.screen, Dashboard))


async def test_a_stalled_screen_does_not_stop_the_engine() -> None:
    async with running_screen() as rig:
        rig.app._sink.take()
        stalled = KEEP_STEPS * 4
        before = rig.source.handed_over
        for second in range(5, 5 + stalled):
            rig.source.feed(Frame(second, second * 1000, float(second)))
        # The screen's loop is held here, as by a terminal that does not read; only the engine's thread runs.
        deadline = time.monotonic() + DEADLINE_S
        while rig.source.handed_over < before + stalled - 1:
            assert time.monotonic() < deadline
            threading.Event().wait(0.005)
        assert len(rig.app._sink._waiting) <= KEEP_STEPS
        await rig.until(
            lambda: rig.app.context.live.now is not None and rig.app.context.live.now.sequence == stalled + 4
        )


async def test_a_failing_source_closes_the_screen_and_leaves_its_sentence_to_the_command_line() -> None:
    problem = ConnectionProblem("role [nobody] does not exist", "say -U")
    engine = Engine(ScriptedSource([Step((frame(0),))], fails=problem))
    app = PgtopApp(Controls(engine), ScreenOptions())
    async with app.run_test() as pilot:
        deadline = time.monotonic() + DEADLINE_S
        while app.return_value is None and time.monotonic() < deadline:
            await pilot.pause(0.01)
    assert app.return_value == 1
    assert engine.failure is problem


async def _run_until_it_fails(app: PgtopApp, action: str = "") -> None:
    async with app.run_test() as pilot:
        await pilot.pause()
        if action:
            app.call_later(app.run_action, action)
        deadline = time.monotonic() + DEADLINE_S
        while app._exception is None and time.monotonic() < deadline:
            await pilot.pause(0.01)


async def test_a_source_that_ends_leaves_the_last_picture() -> None:
    source = ScriptedSource([Step(tuple(frames(5)), restart=True)], ends=True)
    async with running_screen(source) as rig:
        await rig.until(lambda: rig.app._notifications)
        assert "no more data" in next(iter(rig.app._notifications)).message
        assert "sessions 33" in rig.text()


async def test_a_crash_shows_no_locals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PgtopApp, "action_idle_crash", _crash, raising=False)
    app = PgtopApp(Controls(Engine(ScriptedSource())), ScreenOptions())
    printed: list[str] = []

    def keep(self: PgtopApp) -> None:
        printed.extend(
            segment.text
            for renderable in self._exit_renderables
            for segment in renderable.segments  # type: ignore
        )

    monkeypatch.setattr(PgtopApp, "_print_error_renderables", keep)
    try:
        with pytest.raises(ValueError, match="boom"):
            await _run_until_it_fails(app, "app.idle_crash")
    finally:
        assert app._controls.engine.stop()
    text = "".join(printed)
    assert "ValueError" in text
    assert "boom ␛[31m" in text
    assert "hunter2@" not in text
    assert "\x1b]" not in text


def _crash(self: PgtopApp) -> None:
    password_holding_local = "".join(["postgres://u:", "hunter2", "@h"])
    assert password_holding_local
    raise ValueError("boom \x1b[31m")


async def test_the_password_is_asked_for_handed_over_and_never_drawn() -> None:
    taken: list[Secret] = []
    seen: list[str] = []
    needed = [True]

    def take(password: Secret) -> None:
        taken.append(password)
        needed[0] = False

    async with running_screen(
        on_password=take, password_needed=lambda: needed[0], options=ScreenOptions(target="bench@[db1]:5432")
    ) as rig:
        await rig.until(lambda: isinstance(rig.app.screen, PasswordDialog))
        await rig.sees("password for bench@[db1]:5432")
        for letter in "hunter[2]":
            await rig.type(letter)
            seen.append(rig.text())
        seen.append(rig.app.export_screenshot())
        await rig.press("enter")
        await rig.until(lambda: taken)
        seen.append(rig.text())
        assert taken[0].reveal() == "hunter[2]"
        assert not any("hunter" in text or "[2]" in text for text in seen)
        assert "*********" in seen[-3]
        dialogs = [repr(screen.__dict__) for screen in rig.app.screen_stack]
        assert not any("hunter" in text for text in dialogs)


async def test_a_declined_password_is_not_asked_for_again_until_its_key() -> None:
    async with running_screen(on_password=lambda password: None, password_needed=lambda: True) as rig:
        await rig.until(lambda: isinstance(rig.app.screen, PasswordDialog))
        await rig.press("escape")
        for second in range(5, 12):
            rig.source.feed(frame(second))
        await rig.until(lambda: rig.app.context.live.now is not None and rig.app.context.live.now.sequence == 11)
        assert isinstance(rig.app.screen, Dashboard)
        await rig.press("P")
        await rig.until(lambda: isinstance(rig.app.screen, PasswordDialog))


def _hostile_frame(second: int) -> Frame:
    sample = postgres_sample(second, 4)
    activity = sample.activity
    assert isinstance(sample, PostgresSample)
    assert not isinstance(activity, Unavailable)
    rows = tuple(
        replace(row, query=HOSTILE, usename=HOSTILE, application_name=HOSTILE, datname=HOSTILE, state=row.state)
        for row in activity.backends
    )
    return frame(second, postgres=replace(sample, activity=replace(activity, backends=rows)))


async def test_hostile_names_and_queries_are_shown_and_not_obeyed() -> None:
    source = ScriptedSource([Step(tuple(_hostile_frame(second) for second in range(5)), restart=True)])
    async with running_screen(source, size=(200, 50)) as rig:
        await rig.press("down", "enter")
        await rig.sees("as in pg_stat_activity")
        texts = [rig.text()]
        await rig.press("escape", "y")
        await rig.press("slash")
        await rig.type("[/bold]")
        await rig.until(lambda: rig.app._dashboard._rows)
        texts.append(rig.text())
        assert all("[/bold] [b" in text for text in texts)
        for text in texts:
            assert not set(text) & CONTROLS


async def test_a_start_load_begins_with_the_engine_and_its_refusal_is_told() -> None:
    load = ScriptedLoad()
    spec = LoadSpec(clients=3)
    async with running_screen(load=load, options=ScreenOptions(start_load=spec)) as rig:
        await rig.until(lambda: load.started == [spec])


async def test_absence_of_everything_is_drawn_with_its_reason() -> None:
    gone = Unavailable(Reason.NO_ANSWER, "connection refused; trying again in 2 s")
    source = ScriptedSource([Step(tuple(frame(second, postgres=gone) for second in range(3)), restart=True)])
    async with running_screen(source) as rig:
        await rig.sees("connection refused; trying again")
        await rig.sees("postgres  ")


def test_an_unknown_theme_is_one_sentence_with_the_known_ones() -> None:
    with pytest.raises(UsageProblem, match='no theme "neon"') as refused:
        PgtopApp(Controls(Engine(ScriptedSource())), ScreenOptions(theme="neon"))
    assert "dark" in refused.value.hint


def test_no_color_means_mono(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert PgtopApp(Controls(Engine(ScriptedSource())), ScreenOptions()).theme == "mono"


async def test_ascii_draws_nothing_else() -> None:
    async with running_screen(options=ScreenOptions(ascii=True), load=ScriptedLoad()) as rig:
        await rig.press("b")
        await rig.sees("stop")
        assert rig.text().isascii()
        await rig.press("escape")
        await rig.until(lambda: isinstance(rig.app.screen, Dashboard))
        assert rig.text().isascii()


async def test_replayed_jumps_replace_the_picture() -> None:
    async with running_screen() as rig:
        rig.source.feed(*(frame(second) for second in range(90, 100)), restart=True)
        await rig.until(lambda: rig.app.context.live.now is not None and rig.app.context.live.now.sequence == 99)
        rig.source.feed(frame(3), restart=True)
        await rig.until(lambda: rig.app.context.live.now is not None and rig.app.context.live.now.sequence == 3)
        assert list(rig.app.context.live.events) == []


async def test_asking_after_the_engine_has_ended_is_a_sentence() -> None:
    async with running_screen(load=ScriptedLoad()) as rig:
        await asyncio.to_thread(rig.controls.engine.stop)
        await rig.press("b")
        await rig.until(lambda: "x stop" in rig.text())
        await rig.press("x")
        await rig.sees("sampling has ended")
