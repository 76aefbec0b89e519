"""The pending set, in one line that fits every screen; and the trip wires that are offered."""

from __future__ import annotations

import pytest

from pgtop_tune.changes.confirm.pending_sets import Pending
from pgtop_tune.changes.model.change import ChangeState, ParameterChange
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.trip_wires import trip_wire
from pgtop_tune.tui.parameters.staged_changes import HARM, OFF, SLOWER, suggested
from pgtop_tune.tui.scene.banners import pending_line
from pgtop_tune.tui.widgets.lines import ASCII, UNICODE, plain_text, width
from tests.support.frames import frame

CHANGE = ParameterChange(
    "c1", 0, "max_wal_size", "16GB", "1GB", None, "default", ChangeState.APPLIED, "16GB", set_id="s1"
)
PENDING = Pending(set_id="s1", changes=(CHANGE,), until_ms=60_000, wires=(trip_wire("p99>50ms"),))


def test_seconds_keys_change_and_wires() -> None:
    line = plain_text(pending_line(PENDING, 18_400, 120, UNICODE))
    assert line == " auto-revert in 42 s  Y confirm  u undo  max_wal_size 1GB→16GB  · or if p99>50ms"
    assert "auto-revert in 0 s" in plain_text(pending_line(PENDING, 99_000, 120, UNICODE))


def test_what_is_being_taken_back_says_why_and_what_is_in_the_way() -> None:
    away = Pending(
        set_id="s1", changes=(CHANGE,), until_ms=60_000, reverting="p99>50ms for 3 s", problem="connection refused"
    )
    words = plain_text(pending_line(away, 0, 200, UNICODE))
    assert words.startswith(" reverting: p99>50ms for 3 s (connection refused; retrying)")


@pytest.mark.parametrize("cells", [60, 80, 120])
def test_it_fits_and_an_ascii_terminal_gets_ascii(cells: int) -> None:
    assert width(pending_line(PENDING, 0, cells, UNICODE)) <= cells
    assert plain_text(pending_line(PENDING, 0, cells, ASCII)).isascii()


def test_offered_wires_are_typed_as_one_types_them_and_are_not_crossed_now() -> None:
    interval = Interval([frame(second) for second in range(8)])
    assert suggested(OFF, interval) == suggested(SLOWER, None) == ""
    harm, slower = suggested(HARM, interval), suggested(SLOWER, interval)
    assert "errors>0" in harm
    assert "p99>" not in harm
    assert slower.startswith("p99>")
    for word in slower.split():
        assert not trip_wire(word).crossed(interval)


def test_what_has_no_room_is_left_out_and_no_word_is_cut() -> None:
    wires = Pending(
        set_id="s1", changes=(CHANGE,), until_ms=60_000, wires=(trip_wire("p99>50ms"), trip_wire("errors>0"))
    )
    whole = plain_text(pending_line(wires, 0, 200, UNICODE))
    for cells in range(60, len(whole)):
        line = plain_text(pending_line(wires, 0, cells, UNICODE))
        assert whole.startswith(line), line
        assert line.endswith(("undo", "16GB")), line
