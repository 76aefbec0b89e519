"""Waits by any two properties: into a group, out of it, and what stands on the screen."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pgtop_tune.metrics.waits import PROPERTIES, grouped
from pgtop_tune.model.postgres import Activity
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.pages.wait_groups import GroupsView, entered, found_groups, group_lines, left, turned
from pgtop_tune.tui.widgets.lines import ASCII, UNICODE, plain_text, width
from tests.support.frames import EPOCH_MS, backend, postgres_sample, session_of
from tests.support.wait_frames import HOSTILE, UPDATE, waiting_session

CLASS, EVENT, STATEMENT, DATABASE, USER, APPLICATION, CLIENT, TYPE = PROPERTIES


def of_applications() -> Session:
    """Three applications on two hosts; one waits for locks."""

    def change(second: int) -> dict[str, object]:
        now_ms = EPOCH_MS + second * 1000
        rows = (
            backend(1, now_ms, application_name="shop", client="10.0.0.1", wait_event_type="Lock", wait_event="tuple"),
            backend(2, now_ms, application_name="shop", client="10.0.0.2", wait_event_type="Lock", wait_event="tuple"),
            backend(3, now_ms, application_name=HOSTILE, client="10.0.0.1", wait_event_type=None, wait_event=None),
            backend(4, now_ms, application_name="idle", client="10.0.0.1", state="idle"),
        )
        return {"postgres": postgres_sample(second, activity=Activity(float(second), now_ms, rows))}

    return session_of(8, change=change)


def values(session: Session, view: GroupsView) -> dict[tuple[object, object], float]:
    return {group.values: group.sessions for group in found_groups(session, view).groups}


def test_groups_by_two_properties_have_all_active_sessions_once() -> None:
    interval = waiting_session(95).interval
    assert interval is not None
    for first in PROPERTIES:
        for second in PROPERTIES:
            if first is second or first.by_session or second.by_session:
                continue
            found = grouped(interval, first, second)
            assert sum(group.sessions for group in found.groups) == pytest.approx(7.0)
            assert sum(group.share for group in found.groups) == pytest.approx(100.0)


def test_into_a_group_and_out_of_it() -> None:
    session = waiting_session(95)
    begin = GroupsView()
    assert begin.pair == (CLASS, EVENT)
    assert values(session, begin)["Lock", "Lock:transactionid"] == pytest.approx(2.0)
    at = next(index for index, group in enumerate(found_groups(session, begin).groups) if group.values[0] == "Lock")
    inside = entered(replace(begin, selected=at), found_groups(session, begin))
    assert inside.steps == ((CLASS, "Lock"), (EVENT, "Lock:transactionid"))
    assert inside.pair == (STATEMENT, DATABASE)
    assert values(session, inside) == {(12, "bench"): pytest.approx(2.0)}
    assert left(inside) == begin
    assert left(begin) == begin


def test_looks_of_a_minute_count_by_the_time_they_stand_for() -> None:
    """Of the last seconds all looks are kept, of the rest of the minute a few: an earlier jam was hardly seen."""

    def change(second: int) -> dict[str, object]:
        now_ms, jam = EPOCH_MS + second * 1000, 45 <= second < 75
        waits = {"wait_event_type": "Lock", "wait_event": "tuple"} if jam else {"state": "idle"}
        rows = (backend(1, now_ms, application_name="shop", client="10.0.0.1", **waits),)
        return {"postgres": postgres_sample(second, activity=Activity(float(second), now_ms, rows))}

    interval = session_of(100, change=change).interval
    assert interval is not None
    (jam,) = grouped(interval, APPLICATION, CLASS).groups
    assert jam.sessions == pytest.approx(0.5, abs=0.1)


def test_a_property_stands_in_one_place_only() -> None:
    view = GroupsView()
    for turn in range(30):
        view = turned(view, second=bool(turn % 2))
        assert view.first != view.second
    session = of_applications()
    for _ in range(6):
        view = entered(view, found_groups(session, view))
        used = [each for each, _ in view.steps] + list(view.pair)
        assert len({each.title for each in used}) == len(used)
    assert len(view.path) == 3, "the last two properties tell the groups of the third apart"


def test_application_and_client_come_from_the_looks_at_all_sessions() -> None:
    view = GroupsView(PROPERTIES.index(APPLICATION), PROPERTIES.index(CLIENT))
    found = values(of_applications(), view)
    assert found["shop", "10.0.0.1"] == pytest.approx(1.0)
    assert found["shop", "10.0.0.2"] == pytest.approx(1.0)
    assert "idle" not in {application for application, _ in found}
    assert found_groups(of_applications(), view).looks == 8


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
@pytest.mark.parametrize("size", [(56, 13), (76, 22), (110, 38)])
def test_lines_fit_and_foreign_text_is_not_obeyed(size: tuple[int, int], glyphs: object) -> None:
    drawn = glyphs if glyphs is ASCII else UNICODE
    for session, view in (
        (waiting_session(95), GroupsView(PROPERTIES.index(STATEMENT), PROPERTIES.index(USER))),
        (of_applications(), GroupsView(PROPERTIES.index(APPLICATION), 0)),
    ):
        lines = group_lines(session, view, *size, drawn)
        assert len(lines) <= size[1]
        assert all(width(line) <= size[0] for line in lines)
        assert "\x1b" not in "".join(plain_text(line) for line in lines)
    path = entered(GroupsView(), found_groups(waiting_session(95), GroupsView()))
    head, *_ = group_lines(waiting_session(95), path, 110, 30, UNICODE)
    assert plain_text(head).startswith("all active sessions ▸ class IO ▸ event IO:WalSync")


def test_a_statement_is_told_by_its_text() -> None:
    view = GroupsView(PROPERTIES.index(STATEMENT), PROPERTIES.index(CLASS))
    lines = [plain_text(line) for line in group_lines(waiting_session(95), view, 110, 30, UNICODE)]
    assert any(line.startswith(UPDATE[:40]) for line in lines)
