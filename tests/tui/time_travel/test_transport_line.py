"""The line of a replay: where it stands, and when that was."""

from __future__ import annotations

from pgtop_tune.base.units import wall_clock, wall_moment
from pgtop_tune.runtime.ports import TransportState
from pgtop_tune.tui.scene.banners import transport_line
from pgtop_tune.tui.widgets.lines import UNICODE, plain_text, width

STATE = TransportState(paused=True, speed=4.0, position_s=149.0, length_s=769.0, at_end=False)
TAKEN_MS = 1_790_000_000_000


def line(cells: int, shown_ms: int | None = TAKEN_MS) -> str:
    drawn = transport_line(STATE, cells, UNICODE, shown_ms)
    assert width(drawn) <= cells
    return plain_text(drawn)


def test_it_says_when_that_was_so_that_one_can_jump_to_a_time_of_day() -> None:
    assert f"00:02:29 / 00:12:49  {wall_moment(TAKEN_MS)}  4×" in line(120)
    assert f"00:02:29 / 00:12:49  {wall_clock(TAKEN_MS)}  4×" in line(80)
    assert wall_moment(TAKEN_MS).endswith(wall_clock(TAKEN_MS))


def test_without_room_or_before_the_first_frame_the_position_stays() -> None:
    for short in (line(50), line(120, None)):
        assert "00:02:29 / 00:12:49  4×" in short
