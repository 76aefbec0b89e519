"""The sessions pane says when it shows an older look than the rest of the screen."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pgtop_tune.model.absence import Unavailable
from pgtop_tune.tui.dashboard.sessions import sessions_lines
from pgtop_tune.tui.pages import locks, sessions
from pgtop_tune.tui.pages.page import Page
from pgtop_tune.tui.widgets.lines import UNICODE, plain_text
from tests.support.frames import frame, postgres_sample, session_of


@pytest.mark.parametrize(("every", "said"), [(1, False), (3, True)])
def test_the_head_says_how_often_sessions_are_looked_at_where_that_is_seldom(every: int, said: bool) -> None:
    def change(second: int) -> dict[str, object]:
        activity = postgres_sample(second - second % every).activity
        return {"postgres": postgres_sample(second, activity=activity)}

    head = plain_text(sessions_lines(session_of(12, change=change), 120, 5, UNICODE)[0])
    assert ("sampled every 3.0 s" in head) is said


@pytest.mark.parametrize("page", [locks.PAGE, sessions.PAGE], ids=["locks", "sessions"])
@pytest.mark.parametrize(("every", "said"), [(1, False), (3, True)])
def test_the_pages_of_sessions_and_locks_say_so_too(page: Page, every: int, said: bool) -> None:
    """A jam stood on page 4 for two seconds after its end, as if it were of now."""

    def change(second: int) -> dict[str, object]:
        activity = postgres_sample(second - second % every).activity
        return {"postgres": postgres_sample(second, activity=activity)}

    session = session_of(12, change=change)
    shown = "".join(plain_text(line) for line in page.summary(session, 120, 3, UNICODE))
    assert ("sampled every 3.0 s" in shown) is said
    assert page.summary_needs(session, 120) or not said


@pytest.mark.parametrize(("every", "said"), [(1, False), (2, True)])
def test_the_head_says_how_often_processes_are_read_where_that_is_seldom(every: int, said: bool) -> None:
    def change(second: int) -> dict[str, object]:
        read = frame(second - second % every).host
        assert not isinstance(read, Unavailable)
        now = frame(second).host
        assert not isinstance(now, Unavailable)
        return {"host": replace(now, processes=read.processes)}

    head = plain_text(sessions_lines(session_of(12, change=change), 160, 5, UNICODE)[0])
    assert ("CPU, R/s, W/s every 2 s" in head) is said
