"""Marks on the tape, and the table of what differs between the windows they make."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from rich.cells import cell_len

from pgtop_tune.model.frame import Frame
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.window import Marks, Window
from pgtop_tune.tui.compare import windows_dialog
from pgtop_tune.tui.compare.windows_dialog import WindowsDialog
from pgtop_tune.tui.dashboard.screen import Dashboard
from pgtop_tune.tui.widgets.lines import plain_text, width
from tests.support.pictures import assert_picture
from tests.support.screens import Rig, ScriptedSource, ScriptedTransport, running_screen
from tests.support.sides import frames, with_parameter, with_statements

GOLDENS = Path(__file__).parent.parent / "goldens"
FASTER = 80
WORDS = {1: "UPDATE items SET n = n + $1 WHERE id = $2", 2: "SELECT filler FROM items WHERE id = $1", 3: "SELECT now()"}


def changed() -> list[Frame]:
    """Thirty per cent more from the second on at which a parameter was set."""
    return [*frames(1000.0, "a")[:FASTER], *with_parameter(frames(1300.0, "b"), "max_wal_size", "3GB")[FASTER:]]


class Kept:
    """Frames that can be read again."""

    def __init__(self, found: Sequence[Frame]) -> None:
        self.found = found
        self.reads = 0

    def __call__(self, since_s: float) -> Iterator[Frame]:
        self.reads += 1
        return (frame for frame in self.found if frame.elapsed_s >= since_s)


async def shown(rig: Rig, source: ScriptedSource, found: Sequence[Frame], second: int) -> None:
    """Brings the screen to a moment."""
    source.feed(found[second], restart=True)
    now_s = found[second].elapsed_s
    await rig.until(lambda: rig.app.context.live.now is not None and rig.app.context.live.now.elapsed_s == now_s)


async def marked(rig: Rig, source: ScriptedSource, found: Sequence[Frame], *at: tuple[int, str]) -> None:
    for second, key in at:
        await shown(rig, source, found, second)
        await rig.press(key)


def test_a_second_window_makes_a_pair_and_one_alone_stands_against_the_time_before_it() -> None:
    one = Marks().begin(60.0).end(90.0)
    assert one.pair == (Window(30.0, 60.0), Window(60.0, 90.0))
    two = one.begin(100.0).end(140.0)
    assert two.pair == (Window(60.0, 90.0), Window(100.0, 140.0))
    assert two.begin(10.0) == Marks((), 10.0)


def test_marks_can_be_set_backwards_and_moved() -> None:
    assert Marks().begin(90.0).end(60.0).windows == (Window(60.0, 90.0),)
    assert Marks().begin(10.0).begin(20.0).end(30.0).end(40.0).windows == (Window(20.0, 40.0),)
    assert not Marks().end(10.0)
    assert Marks().begin(10.0).end(10.0).windows == ()


async def test_two_windows_end_in_a_table_with_the_largest_effect_first() -> None:
    found, source = changed(), ScriptedSource([Step((frames()[0],))])
    async with running_screen(transport=ScriptedTransport(), frames=Kept(found), source=source) as rig:
        await marked(rig, source, found, (5, "["), (79, "]"))
        await rig.sees("compare with the time before")
        assert isinstance(rig.app.screen, Dashboard)
        await marked(rig, source, found, (85, "["), (159, "]"))
        await rig.sees("largest effect first")
        await rig.sees("max_wal_size  16GB → 3GB")
        lines = rig.text().splitlines()
        tps = next(line for line in lines if " tps, 1/s " in line)
        assert "better" in tps
        assert "ms per transaction" in rig.text()
        await rig.press("escape")
        await rig.until(lambda: isinstance(rig.app.screen, Dashboard))
        await rig.sees("marks")
        await rig.press("escape")
        await rig.until(lambda: " marks " not in rig.text())


async def test_one_window_stands_against_as_long_a_time_before_it() -> None:
    found, source = changed(), ScriptedSource([Step((frames()[0],))])
    async with running_screen(transport=ScriptedTransport(), frames=Kept(found), source=source) as rig:
        await marked(rig, source, found, (85, "["), (150, "]"))
        await rig.press("D")
        await rig.sees("A  21:20:20–21:21:25 (1m05s)")
        await rig.sees("B  21:21:25–21:22:30 (1m05s)")


@pytest.mark.parametrize(
    ("at", "says"),
    [
        (((10, "D"),), "no window is marked"),
        (((10, "]"),), "set the start ([)"),
        (((10, "["), (60, "]"), (40, "["), (80, "]")), "overlap"),
        (((0, "["), (60, "]"), (60, "D")), "no data before"),
    ],
)
async def test_what_cannot_be_compared_is_said(at: tuple[tuple[int, str], ...], says: str) -> None:
    found, source = changed(), ScriptedSource([Step((frames()[0],))])
    async with running_screen(transport=ScriptedTransport(), frames=Kept(found), source=source) as rig:
        await marked(rig, source, found, *at)
        await rig.until(lambda: any(says in notice.message for notice in rig.app._notifications))


async def test_a_window_of_which_nothing_was_kept_is_said_in_the_table() -> None:
    found, source = changed(), ScriptedSource([Step((frames()[0],))])
    async with running_screen(transport=ScriptedTransport(), frames=Kept(found[120:]), source=source) as rig:
        await marked(rig, source, found, (10, "["), (60, "]"), (130, "["), (150, "]"))
        await rig.sees("has fewer than 2 frames")
        await rig.press("escape")


async def test_what_is_not_kept_any_more_of_a_window_is_said() -> None:
    found, source = changed(), ScriptedSource([Step((frames()[0],))])
    async with running_screen(transport=ScriptedTransport(), frames=Kept(found[40:]), source=source) as rig:
        await marked(rig, source, found, (10, "["), (79, "]"), (85, "["), (159, "]"))
        await rig.sees("the first 30 s of window A are no longer in the history buffer")


async def test_reading_ends_when_the_table_is_closed() -> None:
    found, source, left = changed(), ScriptedSource([Step((frames()[0],))]), []

    def endless(since_s: float) -> Iterator[Frame]:
        try:
            while True:
                yield found[20]
        finally:
            left.append(since_s)

    async with running_screen(transport=ScriptedTransport(), frames=endless, source=source) as rig:
        await marked(rig, source, found, (10, "["), (60, "]"), (85, "["), (150, "]"))
        await rig.sees("frames so far")
        await rig.press("escape")
        await rig.until(lambda: left == [10.0])


async def test_marks_stand_on_the_tape_in_the_columns_of_their_moments() -> None:
    found, source = changed(), ScriptedSource([Step((frames()[0],))])
    async with running_screen(transport=ScriptedTransport(), frames=Kept(found), source=source) as rig:
        await marked(rig, source, found, (10, "["), (60, "]"))
        await rig.until(lambda: any("[" in line for line in rig.text().splitlines() if line.startswith(" tape")))
        (tape,) = (line for line in rig.text().splitlines() if line.startswith(" tape"))
        assert tape.index("]") == 7 + 98, "now is in the last column, of two seconds"
        assert tape.index("[") == 7 + 74


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_the_table_as_a_picture(size: tuple[int, int]) -> None:
    def statements(second: int) -> dict[int, tuple[int, float]]:
        every = {1: (900, 0.4), 2: (40, 6.0 if second >= FASTER else 0.5)}
        return every | {3: (5, 9.0)} if second >= FASTER else every

    found, source = with_statements(changed(), statements, WORDS), ScriptedSource([Step((frames()[0],))])
    async with running_screen(transport=ScriptedTransport(), frames=Kept(found), source=source, size=size) as rig:
        await marked(rig, source, found, (5, "["), (79, "]"), (85, "["), (159, "]"))
        await rig.until(lambda: isinstance(rig.app.screen, WindowsDialog) and "by change" in rig.text())
        assert_picture(GOLDENS / f"compare-windows-{size[0]}x{size[1]}.txt", rig.text().splitlines())


@pytest.mark.parametrize("cells", [40, 56, 76, 99, 128])
def test_no_row_breaks_the_columns_however_long_its_name_or_its_figures(cells: int) -> None:
    texts = ("\u8868" * 63, "-123456.78", "1234567.89", "+123456789 %", "-76.8 \u2026 +1353100000 %", "~+12.3",
             "no difference distinguishable")  # fmt: skip
    row, head = windows_dialog._row(texts, "", cells), windows_dialog._row(("name", *windows_dialog._HEADS), "", cells)
    assert width(row) <= cells
    starts = [list(itertools.accumulate(cell_len(text) for text, _ in line)) for line in (row, head)]
    assert starts[0][:-1] == starts[1][:-1]
    assert plain_text(row).count("\u2026") >= 2, "what is cut says so"
