"""Every row of the table of actions: its key does what its description says."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.command import CommandPalette
from textual.events import Key

from pgtop_tune.advice.knobs.catalogue import KNOBS
from pgtop_tune.changes.model.change import Terms, WantedParameter
from pgtop_tune.compare.overlay.curves import OverlaySource
from pgtop_tune.model.events import EventKind
from pgtop_tune.runtime.load_control import LoadChange
from pgtop_tune.runtime.ports import Landmark, Step
from pgtop_tune.tui.actions import ACTIONS, NAMES, Need, available, footer_keys
from pgtop_tune.tui.dashboard.screen import Dashboard
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.dialogs.entry import PasswordDialog
from pgtop_tune.tui.dialogs.help import HelpDialog
from pgtop_tune.tui.load.dialog import LoadDialog
from pgtop_tune.tui.parameters.dialog import ParameterDialog
from pgtop_tune.tui.scene.header import PageNames, footer_line
from pgtop_tune.tui.widgets.lines import plain_text
from tests.support.experiments import ScriptedExperiments
from tests.support.frames import frame
from tests.support.reports import ScriptedCheck
from tests.support.screens import (
    Rig,
    ScriptedBackends,
    ScriptedLoad,
    ScriptedParameters,
    ScriptedRecording,
    ScriptedSource,
    ScriptedTransport,
    frames,
    running_screen,
)
from tests.tui.app.table_keys import TABLE_CHECKS, Check, dashboard_of


async def _load(rig: Rig) -> None:
    await rig.press("b")
    await rig.until(lambda: isinstance(rig.app.screen, LoadDialog))


async def _change_load(rig: Rig) -> None:
    load = rig.app.context.services.load
    assert isinstance(load, ScriptedLoad)
    await rig.press("L", "l", ")", "(", "B")
    await rig.until(lambda: load.changes == list(LoadChange))
    await rig.sees("load ×10")


async def _parameters(rig: Rig) -> None:
    await rig.press("p")
    await rig.until(lambda: isinstance(rig.app.screen, ParameterDialog))


async def _experiment(rig: Rig) -> None:
    await rig.press("x")
    await rig.sees("Press p, stage a value")


async def _undo(rig: Rig) -> None:
    control = rig.app.context.services.parameters
    assert control is not None
    await rig.app.context.client.ask(control.apply("work_mem", "8MB"))
    await rig.press("u")
    await rig.sees("ALTER SYSTEM RESET work_mem")
    await rig.press("y")
    await rig.until(lambda: any("work_mem is 4MB again" in each.message for each in rig.app._notifications))


async def _redo(rig: Rig) -> None:
    control = rig.app.context.services.parameters
    assert control is not None
    await rig.app.context.client.ask(control.apply("work_mem", "8MB"))
    await rig.app.context.client.ask(control.apply("max_wal_size", "2GB"))
    await rig.press("U")
    await rig.sees("undo 2 changes")
    await rig.press("y")
    await rig.until(lambda: any("work_mem is 4MB again" in each.message for each in rig.app._notifications))
    await rig.press("ctrl+r")
    await rig.until(lambda: any("work_mem 4MB→8MB again" in each.message for each in rig.app._notifications))


async def _keep(rig: Rig) -> None:
    assert rig.app.parameters.changes is not None
    await rig.app.parameters.changes.apply((WantedParameter("work_mem", "8MB"),), Terms(keep_within_s=60.0))
    rig.source.feed(frame(5))
    await rig.sees("auto-revert in")
    await rig.press("Y")
    await rig.until(lambda: any("confirmed: work_mem 4MB→8MB" in each.message for each in rig.app._notifications))
    await rig.until(lambda: "auto-revert in" not in rig.text())


async def _password(rig: Rig) -> None:
    await rig.press("P")
    await rig.until(lambda: isinstance(rig.app.screen, PasswordDialog))


async def _record(rig: Rig) -> None:
    control = rig.controls.recording
    assert control is not None
    await rig.press("r")
    await rig.until(lambda: control.state().path is not None)
    await rig.sees("rec  00:0")
    await rig.press("r")
    await rig.until(lambda: control.state().path is None)
    assert rig.app.source.recording == "made-up.jsonl.gz"


async def _note(rig: Rig) -> None:
    await rig.press("m")
    await rig.type("more [clients]")
    await rig.press("enter")
    await rig.until(lambda: rig.source.noted)
    assert (rig.source.noted[0].kind, rig.source.noted[0].text) == (EventKind.NOTE, "more [clients]")
    rig.source.feed(frame(5))
    await rig.until(lambda: any(event.text == "more [clients]" for _, event in rig.app.context.live.events))


async def _steps(rig: Rig) -> None:
    await rig.press("full_stop", "full_stop", "comma")
    assert _transport(rig).steps == 1
    await rig.press("z")
    assert _transport(rig).jumped == [math.inf]


async def _seeks(rig: Rig) -> None:
    transport = _transport(rig)
    keys = dict(zip(("n", "N", "v", "V", "W"), Landmark, strict=True))
    await rig.press("n")
    await rig.until(lambda: any("no event after this moment" in each.message for each in rig.app._notifications))
    for place, (key, landmark) in enumerate(keys.items()):
        transport.landmarks = {landmark: 10.0 * place}
        await rig.press(key)
        await rig.until(lambda: len(transport.jumped) > place)  # noqa: B023
    assert transport.jumped == [0.0, 10.0, 20.0, 30.0, 40.0]
    assert transport.paused


async def _jump(rig: Rig) -> None:
    await rig.press("T")
    await rig.type("nonsense")
    await rig.press("enter")
    await rig.sees("is not a point in time")
    await rig.press("ctrl+u")
    await rig.type("00:01:30")
    await rig.press("enter")
    await rig.until(lambda: _transport(rig).jumped == [90.0])


def _transport(rig: Rig) -> ScriptedTransport:
    transport = rig.controls.transport
    assert isinstance(transport, ScriptedTransport)
    return transport


async def _speed(rig: Rig) -> None:
    await rig.press("right_curly_bracket", "right_curly_bracket", "left_curly_bracket")
    assert _transport(rig).speed == 2.0
    await rig.sees("2×")


async def _pause(rig: Rig) -> None:
    await rig.press("space")
    shown = rig.app.time_travel.shown
    rig.source.feed(frame(5), frame(6), frame(7))
    await rig.sees("−3s")
    assert shown is not None
    assert shown.now is not None
    assert shown.now.sequence == 4
    await rig.press("space")
    await rig.until(lambda: "−3s" not in rig.text())
    assert rig.app.context.live.now is not None
    assert rig.app.context.live.now.sequence == 7


async def _interval(rig: Rig) -> None:
    await rig.press("plus", "plus", "minus")
    assert rig.source.interval_s == 2.0
    await rig.press(*["plus"] * 9)
    assert rig.source.interval_s == 60.0
    assert [each.message for each in rig.app._notifications] == ["one sample every 60 s"]


async def _theme(rig: Rig) -> None:
    themes = [rig.app.theme]
    for _ in range(len(rig.app._themes) - 1):
        await rig.press("t")
        themes.append(rig.app.theme)
    assert sorted(themes) == sorted(rig.app._themes)
    await rig.press("t")
    assert rig.app.theme == themes[0]


async def _palette(rig: Rig) -> None:
    for close in "ctrl+c", "escape":
        await rig.press("ctrl+p")
        await rig.until(lambda: isinstance(rig.app.screen, CommandPalette))
        await rig.press("i", "ctrl+p", close)
        await rig.until(lambda: isinstance(rig.app.screen, Dashboard))
    await rig.press("ctrl+p")
    await rig.until(lambda: isinstance(rig.app.screen, CommandPalette))
    await rig.type("hide or show")
    await rig.sees("idle rows")
    await rig.press("enter")
    await rig.until(lambda: dashboard_of(rig).view.hide_idle)


async def _mouse(rig: Rig) -> None:
    """What it does is seen on a real terminal (tests/terminal/test_mouse.py); here: text being typed keeps its M."""
    await rig.press("M", "slash", "M")
    assert dashboard_of(rig).view.filter == "M"


async def _redraw(rig: Rig) -> None:
    """What it does is seen on a real terminal; here: it is nobody else's key, in dialogs and while typing either."""
    await rig.press("ctrl+l", "slash", "c", "ctrl+l", "h")
    assert dashboard_of(rig).view.filter == "ch"
    await rig.press("enter", "question_mark")
    await rig.until(lambda: isinstance(rig.app.screen, HelpDialog))
    await rig.press("ctrl+l")
    assert isinstance(rig.app.screen, HelpDialog)


async def _suspend(rig: Rig) -> None:
    """That it stops is seen with a real shell (tests/terminal); here: not while a change waits for its revert."""
    assert rig.app.parameters.changes is not None
    await rig.app.parameters.changes.apply((WantedParameter("work_mem", "8MB"),), Terms(keep_within_s=60.0))
    rig.source.feed(frame(5))
    await rig.sees("auto-revert in")
    await rig.press("ctrl+z")
    await rig.until(lambda: any("could not revert it" in each.message for each in rig.app._notifications))


def first_line(rig: Rig) -> str:
    """The line below the upper edge of a dialog."""
    lines = rig.text().split("\n")
    return lines[next((at for at, line in enumerate(lines) if "╭" in line), -2) + 1]


async def _help(rig: Rig) -> None:
    # It opens at what is on the screen; the keys are one key away.
    for key, heading in ("escape", "this program"), ("down", "sessions in the table"), ("s", "PID"):
        await rig.press(key, "question_mark")
        await rig.until(lambda heading=heading: f" {heading}" in first_line(rig))  # type: ignore[misc]
        await rig.press("home")
        await rig.until(lambda: "load and parameters" in first_line(rig))
        await rig.press("escape")
        await rig.until(lambda: isinstance(rig.app.screen, Dashboard))
    await rig.press("question_mark")
    await rig.until(lambda: isinstance(rig.app.screen, HelpDialog))
    for action in rig.app._dashboard.offered():
        assert action.description[:40] in "\n".join(
            "".join(text for text, _ in line)
            for line in rig.app.screen.content(96)  # type: ignore[attr-defined]
        )
    await rig.press("f1")
    await rig.until(lambda: isinstance(rig.app.screen, Dashboard))


async def _check(rig: Rig) -> None:
    await rig.press("C")
    await rig.sees("found: nothing")
    await rig.press("escape")
    await rig.until(lambda: isinstance(rig.app.screen, Dashboard))


async def _zoom(rig: Rig) -> None:
    for words in ("a column is 5 s", "a column is 30 s", "chart of 3m18s", "chart of 1m39s"):
        await rig.press("Z")
        await rig.sees(words)
    await rig.press("Z")


async def _quit(rig: Rig) -> None:
    await rig.press("q")
    await rig.until(lambda: rig.app._exit)
    assert rig.app.return_value == 0


async def _findings(rig: Rig) -> None:
    await rig.press("w")
    await rig.sees("bottleneck")
    await rig.press("escape")


async def _deed(rig: Rig) -> None:
    await rig.press("f")
    await rig.until(lambda: not isinstance(rig.app.screen, Dashboard))


async def _ghost(rig: Rig) -> None:
    await rig.press("g")
    await rig.sees("no recordings yet")
    await rig.press("escape")


async def _marks(rig: Rig) -> None:
    await rig.press("[")
    await rig.sees("] ends it")
    rig.source.feed(frame(6))
    await rig.until(lambda: rig.app.context.live.now is not None and rig.app.context.live.now.sequence == 6)
    await rig.press("]")
    await rig.sees("compare with the time before")
    await rig.press("D")
    await rig.sees("has fewer than 2 frames")
    await rig.press("escape")


async def _marks_moving(rig: Rig) -> None:
    await rig.press("shift+right", "shift+left")
    assert (_transport(rig).steps, rig.app.windows.marks.begun_s) == (0, 4.0)


async def _heatmap(rig: Rig) -> None:
    await rig.press("H")
    await rig.sees("latency heatmap")
    await rig.press("escape")
    await rig.until(lambda: isinstance(rig.app.screen, Dashboard))


async def _wait_groups(rig: Rig) -> None:
    await rig.press("G")
    await rig.sees("class  ")
    await rig.press("tab")
    await rig.sees("statement  ")
    await rig.press("enter")
    await rig.sees("all active sessions ▸ statement")
    await rig.press("backspace")
    await rig.until(lambda: "▸ statement" not in rig.text())
    await rig.press("escape")
    await rig.until(lambda: isinstance(rig.app.screen, Dashboard))


async def _burst(rig: Rig) -> None:
    await rig.press("F")
    await rig.until(lambda: any("50 samples a second" in each.message for each in rig.app._notifications))


CHECKS: dict[str, Check] = {
    "load": _load, "more-clients": _change_load, "fewer-clients": _change_load, "rate-up": _change_load,
    "rate-down": _change_load, "pause-load": _change_load, "parameters": _parameters, "undo": _undo, "undo-all": _redo,
    "redo": _redo, "keep": _keep, "experiment": _experiment, "check": _check, "password": _password,
    "findings": _findings, "deed": _deed, "note": _note,
    "ghost": _ghost, "live": _steps, "step-back": _steps, "step-forward": _steps, "jump": _jump,
    "next-event": _seeks, "previous-event": _seeks, "next-checkpoint": _seeks, "previous-checkpoint": _seeks,
    "worst-p99": _seeks, "slower": _speed, "faster": _speed,
    "record": _record,
    "mark-begin": _marks, "mark-end": _marks, "mark-earlier": _marks_moving, "mark-later": _marks_moving,
    "brush": _marks,
    **TABLE_CHECKS,
    "pause": _pause, "longer": _interval, "shorter": _interval,
    "heatmap": _heatmap, "wait-groups": _wait_groups, "burst": _burst, "zoom": _zoom, "theme": _theme,
    "palette": _palette, "mouse": _mouse, "redraw": _redraw, "suspend": _suspend, "help": _help, "quit": _quit,
}  # fmt: skip


def test_every_action_has_a_check() -> None:
    assert list(CHECKS) == [action.id for action in ACTIONS]


@pytest.mark.parametrize("check", dict.fromkeys(CHECKS.values()), ids=lambda check: check.__name__.strip("_"))
async def test_a_key_does_what_the_table_says(check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    replayed = check in (_steps, _jump, _seeks, _speed, _marks_moving)
    source = ScriptedSource([Step(tuple(frames(5, load=False)), restart=True)])
    async with running_screen(
        source,
        load=None if replayed else ScriptedLoad(),
        parameters=None if replayed else ScriptedParameters(),
        experiments=None if replayed else ScriptedExperiments(),
        knobs=KNOBS,
        recording=None if replayed else ScriptedRecording(),
        transport=ScriptedTransport() if replayed else None,
        interval=None if replayed else source,
        backends=None if replayed else ScriptedBackends(),
        checks=None if replayed else ScriptedCheck(),
        on_password=lambda password: None,
        frames=lambda since_s: iter(frames(5)),
        overlays=OverlaySource(tmp_path, lambda: None),
    ) as rig:
        await check(rig)


@pytest.mark.parametrize("close", ["q", "f10"])
async def test_q_and_f10_close_every_dialog_and_q_is_a_letter_where_text_is_typed(close: str) -> None:
    opened = ("h", "f1", "b", "p", "H", "w", "G", "C", "down,enter", "2,o", "2,down,f9")
    source = ScriptedSource([Step(tuple(frames(5, load=False)), restart=True)])
    parts = {"load": ScriptedLoad(), "parameters": ScriptedParameters(), "checks": ScriptedCheck()}
    async with running_screen(
        source, **parts, knobs=KNOBS, backends=ScriptedBackends(), frames=lambda since_s: iter(())
    ) as rig:
        for keys in opened:
            await rig.press("1", *keys.split(","))
            await rig.until(lambda: isinstance(rig.app.screen, Dialog))
            await rig.press(close)
            await rig.until(lambda: not isinstance(rig.app.screen, Dialog))
            assert not rig.app._exit, keys
        await rig.press("m", "q", "u", "enter")
        await rig.until(lambda: rig.source.noted)
        assert rig.source.noted[0].text == "qu"


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (160, 48)])
async def test_the_keys_of_a_replay_stand_in_its_footer_at_every_size(size: tuple[int, int]) -> None:
    async with running_screen(transport=ScriptedTransport(), frames=lambda since_s: iter(()), size=size) as rig:
        footer = rig.text().splitlines()[-1]
        for words in ("z newest", "←→ step", "T jump", "Shift+←→ mark", "D compare", " ?", " q"):
            assert words in footer
        assert "live" not in footer, "there is nothing live about it"
        assert "press b" not in rig.text()


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160, 200, 250])
@pytest.mark.parametrize("moving", [False, True])
def test_no_key_of_the_footer_goes_as_the_terminal_becomes_wider_or_narrower(width: int, *, moving: bool) -> None:
    keys = footer_keys(available(Need), {}, moving=moving)
    for selected in (False, True):
        line = footer_line(replace(keys, selected=selected), width, PageNames(NAMES, "1"))
        words = plain_text(line).split()
        for key, _ in (*keys.rows[not selected :], *keys.deeds, *keys.last):
            assert key in words
        assert words[0] == "0-9"
        assert "end" in words or width < 80


@pytest.mark.parametrize("key", ["1", "2"])
async def test_the_footer_says_what_the_selected_row_can_do(key: str) -> None:
    async with running_screen(size=(80, 24), backends=ScriptedBackends()) as rig:
        await rig.press(key)
        await rig.sees("↑↓ select  e plan  c cancel  K end")
        await rig.press("down")
        await rig.sees("Enter open  e plan  c cancel  K end")


async def test_letters_that_arrive_with_the_key_before_them_belong_to_what_that_key_opens() -> None:
    async with running_screen() as rig:
        for key in ("slash", *"sleep"):
            rig.app.post_message(Key(key, key if len(key) == 1 else "/"))
        await rig.until(lambda: dashboard_of(rig).filtered_by == "sleep")
        assert rig.app.screen is dashboard_of(rig)
