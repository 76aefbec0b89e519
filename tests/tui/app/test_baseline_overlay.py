"""An earlier run under the charts: chosen with `g`, drawn dim, its difference in the titles, and gone with `g`."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from threading import Event

import pytest

from pgtop_tune.compare.overlay.curves import OverlayCurves, OverlaySource
from pgtop_tune.runtime.ports import Step
from pgtop_tune.tui.controls import ScreenOptions
from pgtop_tune.tui.dashboard.screen import Dashboard
from tests.support.pictures import assert_picture
from tests.support.screens import ScriptedSource, running_screen
from tests.support.sides import frames, recorded

GOLDENS = Path(__file__).parent.parent / "goldens"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("recordings")
    recorded(frames(800.0, "a"), directory / "run-041.jsonl.gz")
    return directory


def overlay_source(directory: Path) -> OverlaySource:
    return OverlaySource(directory, lambda: None)


def faster(seconds: int = 120) -> ScriptedSource:
    return ScriptedSource([Step(tuple(frames(1000.0, "b")[:seconds]), restart=True)])


async def test_a_ghost_is_chosen_from_the_list_and_let_go_with_the_same_key(kept: Path) -> None:
    async with running_screen(faster(), overlays=overlay_source(kept)) as rig:
        await rig.press("g")
        await rig.sees("run-041.jsonl.gz")
        await rig.sees("00:02:40")
        await rig.press("enter")
        await rig.until(lambda: isinstance(rig.app.screen, Dashboard))
        await rig.sees("baseline run-041")
        await rig.sees("differ")
        await rig.sees("baseline p99")
        await rig.press("g")
        await rig.until(lambda: "baseline" not in rig.text())


async def test_the_session_itself_ten_minutes_ago_moves_along(tmp_path: Path) -> None:
    async with running_screen(faster(), overlays=overlay_source(tmp_path)) as rig:
        await rig.press("g")
        await rig.sees("a 10 min ago")
        await rig.press("a")
        await rig.sees("baseline 10m00s ago")
        await rig.press("g")
        await rig.until(lambda: "baseline" not in rig.text())


async def test_a_recording_at_its_time_of_day(kept: Path) -> None:
    async with running_screen(faster(), overlays=overlay_source(kept)) as rig:
        await rig.press("g")
        await rig.sees("t by time of day")
        await rig.press("t")
        await rig.sees("baseline run-041")
        await rig.sees("baseline p99")


async def test_a_directory_without_recordings_says_how_to_get_one(tmp_path: Path) -> None:
    async with running_screen(faster(), overlays=overlay_source(tmp_path)) as rig:
        await rig.press("g")
        await rig.sees("no recordings yet")
        assert "Enter draw" not in rig.text(), "it would do nothing"
        await rig.press("enter", "escape")
        await rig.until(lambda: isinstance(rig.app.screen, Dashboard))


async def test_a_file_that_cannot_be_read_says_why_and_the_screen_goes_on(tmp_path: Path) -> None:
    (tmp_path / "torn\x1b[31m.jsonl").write_text("hello\n", encoding="utf-8")
    async with running_screen(faster(), overlays=overlay_source(tmp_path)) as rig:
        await rig.press("g")
        await rig.sees("not a recording")
        (listed,) = (row for row in rig.text().splitlines() if "not a recording" in row)
        assert "00:00:00" not in listed, "nobody knows its length"
        await rig.press("enter")
        await rig.sees("no overlay:")
        assert "\x1b" not in rig.text()
        await rig.press("g")
        await rig.sees("an earlier run under the charts")


class SlowSource(OverlaySource):
    """Reads in a thread until it is told to go on."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, lambda: None)
        self.begun, self.may_end, self.closed = Event(), Event(), Event()

    def read(self, path: Path) -> Generator[OverlayCurves, None, None]:
        """See the base class."""
        try:
            self.begun.set()
            assert self.may_end.wait(60)
            yield from ()
        finally:
            self.closed.set()


async def test_leaving_while_a_recording_is_read_is_no_crash(kept: Path) -> None:
    source = SlowSource(kept)
    options = ScreenOptions(overlay=kept / "run-041.jsonl.gz")
    async with running_screen(faster(), options=options, overlays=source) as rig:
        await rig.until(source.begun.is_set)
        rig.app.workers.cancel_all()
        await rig.pilot.pause()
        source.may_end.set()
        await rig.until(source.closed.is_set)
        await rig.pilot.pause()
        assert rig.app.is_running
    assert not rig.app._exception


async def test_a_ghost_of_other_steps_says_so(kept: Path, tmp_path: Path) -> None:
    both = [*frames(800.0, "a", run={"clients": 4}), *frames(800.0, "a", run={"clients": 8, "run": 2})]
    recorded(both, tmp_path / "steps.jsonl")
    async with running_screen(faster(), overlays=overlay_source(tmp_path)) as rig:
        await rig.press("g")
        await rig.sees("steps.jsonl")
        await rig.press("enter")
        await rig.sees("no such load")


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_ghost_asked_for_at_the_start_as_a_picture(kept: Path, size: tuple[int, int]) -> None:
    options = ScreenOptions(overlay=kept / "run-041.jsonl.gz")
    async with running_screen(faster(90), size=size, options=options, overlays=overlay_source(kept)) as rig:
        watch = rig.app.overlay
        await rig.until(lambda: (now := watch.watch(rig.app.context.live.now)) is not None and not now.reading)
        rig.source.feed(frames(1000.0, "b")[90])
        await rig.sees("baseline")
        await rig.until(lambda: rig.app.context.live.now is not None and rig.app.context.live.now.sequence == 90)
        await rig.pilot.pause()
        assert_picture(GOLDENS / f"baseline-overlay-{size[0]}x{size[1]}.txt", rig.text().splitlines())
