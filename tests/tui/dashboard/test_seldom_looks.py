"""The sessions pane says when it shows an older look than the rest of the screen."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pgtop_tune.model.absence import Unavailable
from pgtop_tune.tui.dashboard.sessions import sessions_lines
from pgtop_tune.tui.widgets.glyphs import UNICODE
from pgtop_tune.tui.widgets.lines import text_of
from tests.support.frames import frame, postgres_sample, session_of


@pytest.mark.parametrize(("every", "said"), [(1, False), (3, True)])
def test_the_head_says_how_often_sessions_are_looked_at_where_that_is_seldom(every: int, said: bool) -> None:
    def change(second: int) -> dict[str, object]:
        activity = postgres_sample(second - second % every).activity
        return {"postgres": postgres_sample(second, activity=activity)}

    head = text_of(sessions_lines(session_of(12, change=change), 120, 5, UNICODE)[0])
    assert ("looked at every 3.0 s" in head) is said


@pytest.mark.parametrize(("every", "said"), [(1, False), (2, True)])
def test_the_head_says_how_often_processes_are_read_where_that_is_seldom(every: int, said: bool) -> None:
    def change(second: int) -> dict[str, object]:
        read = frame(second - second % every).host
        assert not isinstance(read, Unavailable)
        now = frame(second).host
        assert not isinstance(now, Unavailable)
        return {"host": replace(now, processes=read.processes)}

    head = text_of(sessions_lines(session_of(12, change=change), 160, 5, UNICODE)[0])
    assert ("CPU, R/s, W/s every 2 s" in head) is said
