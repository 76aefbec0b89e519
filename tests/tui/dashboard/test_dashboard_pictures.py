"""The whole dashboard as it looks, and what holds for every size and every kind of trouble."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import RunState
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.model.host import HostSample
from pgtop_tune.model.postgres import Activity, PostgresSample
from pgtop_tune.runtime.ports import RecordingState
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.actions import DASHBOARD_KEY, NAMES, Need, available, footer_keys
from pgtop_tune.tui.dashboard.latency import CLOCK_ROWS
from pgtop_tune.tui.dashboard.screen import (
    PANES,
    Dashboard,
    DashboardState,
    dashboard_layout,
    dashboard_lines,
    sessions_wanted,
)
from pgtop_tune.tui.dashboard.session_rows import SessionsView
from pgtop_tune.tui.scene.header import PageNames
from pgtop_tune.tui.widgets.lines import ASCII, UNICODE, plain_text, width
from pgtop_tune.tui.widgets.time_axis import CHARTED
from tests.support.frames import EPOCH_MS, backend, bench_sample, facts, frame, host_sample, postgres_sample, session_of
from tests.support.pictures import assert_picture, dashboard_rows, pane_text

GOLDENS = Path(__file__).parents[1] / "goldens"
SIZES = ((80, 24), (120, 40), (200, 50))
OFFERED = [
    action for action in available([Need.LOAD, Need.PARAMETERS, Need.RECORDING, Need.LIVE, Need.BACKENDS])
    if action.action.startswith("app.") or hasattr(Dashboard, "action_" + action.action.partition("(")[0])
]  # fmt: skip
LOOK = DashboardState(keys=footer_keys(OFFERED, {}), recording=RecordingState("run.jsonl", 2.0, 100),
            pages=PageNames(NAMES, DASHBOARD_KEY))  # fmt: skip
HOSTILE = (
    "\x1b]52;c;bWFsaWNl\x07[red]DROP\x9b31m\u202eevil\u2066 \u4e16\u754c \U0001f468\u200d\U0001f469\n--\t\ud800 [/]"
)


def loaded() -> Session:
    return session_of(115, charted=CHARTED)


def no_load() -> Session:
    return session_of(115, charted=CHARTED, load=False)


def server_gone() -> Session:
    gone = Unavailable(Reason.NO_ANSWER, "no answer for 12 s: connection refused; trying again")

    def change(second: int) -> dict[str, object]:
        return {"postgres": gone, "host": host_sample(second)} if second > 102 else {}

    return session_of(115, charted=CHARTED, load=False, change=change)


def host_elsewhere() -> Session:
    elsewhere = Unavailable(Reason.NOT_LOCAL, "not local: the server runs on another machine")
    return session_of(115, charted=CHARTED, change=lambda second: {"host": elsewhere})


def hostile() -> Session:
    def change(second: int) -> dict[str, object]:
        now_ms = EPOCH_MS + second * 1000
        texts = dict.fromkeys(("usename", "datname", "application_name", "client", "wait_event", "query"), HOSTILE)
        rows = (backend(77, now_ms, wait_event_type="Extension", **texts), backend(78, now_ms, state=HOSTILE))
        return {
            "postgres": postgres_sample(
                second, server=facts(endpoint=HOSTILE, user=HOSTILE, version=HOSTILE),
                activity=Activity(float(second), now_ms, rows),
                statements=Unavailable(Reason.NO_EXTENSION, HOSTILE),
            ),
            "events": (Event(now_ms, EventKind.NOTE, HOSTILE),) if second % 20 == 7 else (),
        }  # fmt: skip

    return session_of(60, charted=CHARTED, change=change)


@pytest.mark.parametrize(("columns", "rows"), SIZES)
@pytest.mark.parametrize("made", [loaded, no_load, server_gone, host_elsewhere])
def test_dashboard_looks_as_it_did(made: Callable[[], Session], columns: int, rows: int) -> None:
    assert_picture(
        GOLDENS / f"{made.__name__}-{columns}x{rows}.txt", dashboard_rows(made(), columns, rows, UNICODE, LOOK)
    )


def test_ascii_dashboard_looks_as_it_did_and_is_ascii() -> None:
    rows = [row.translate(dict(ASCII.instead)) for row in dashboard_rows(no_load(), 120, 40, ASCII, LOOK)]
    assert_picture(GOLDENS / "ascii-120x40.txt", rows)
    drawn = "\n".join(row for row in rows if not row.lstrip().startswith("tape"))
    assert drawn.isascii()


def obeyed(text: str) -> list[str]:
    """Characters a terminal acts upon instead of showing them."""
    return [char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


def test_hostile_texts_are_shown_and_not_obeyed() -> None:
    session = hostile()
    for columns, rows in SIZES:
        for pane, lines in dashboard_lines(session, dashboard_layout(columns, rows), columns, UNICODE, LOOK).items():
            for line in lines:
                assert width(line) == columns, (pane, plain_text(line))
                assert not obeyed(plain_text(line))
    assert "[red]DROP" in pane_text(session, "sessions", 200, 50), "markup is plain text"


REASONS = st.builds(Unavailable, st.sampled_from(Reason), st.sampled_from(["", "a reason " * 30, HOSTILE]))


@st.composite
def troubles(draw: st.DrawFn) -> list[dict[str, object]]:
    """What is missing, per frame."""
    found = []
    for second in range(4):
        missing: dict[str, object] = {}
        for name, kind in (("postgres", PostgresSample), ("host", HostSample)):
            how = draw(st.sampled_from(["there", "there", "gone", "parts"]))
            if how == "gone":
                missing[name] = draw(REASONS)
            elif how == "parts":
                gone = draw(st.dictionaries(st.sampled_from(kind.__struct_fields__), REASONS))
                missing[name] = postgres_sample(second, **gone) if name == "postgres" else host_sample(second, **gone)
        if draw(st.booleans()):
            state = draw(st.sampled_from(RunState))
            bench = bench_sample(second)
            missing["bench"] = bench_sample(second, run=replace(bench.run, state=state, message=HOSTILE))
        found.append(missing)
    return found


VIEWS = st.builds(
    SessionsView, top=st.integers(0, 100), filter=st.sampled_from(["", "bench", HOSTILE]), hide_idle=st.booleans()
)


@settings(max_examples=80, deadline=None)
@given(
    missing=troubles(),
    columns=st.integers(60, 250),
    rows=st.integers(15, 70),
    load=st.booleans(),
    ascii_only=st.booleans(),
    view=VIEWS,
    recording=st.sampled_from([None, RecordingState(), RecordingState("x"), RecordingState(problem=HOSTILE)]),
    offset_s=st.sampled_from([None, 0.0, 133.0, 90_000.0]),
)  # fmt: skip
def test_every_line_is_as_wide_as_the_screen_whatever_is_missing(
    missing: list[dict[str, object]], columns: int, rows: int, load: bool, ascii_only: bool,
    view: SessionsView, recording: RecordingState | None, offset_s: float | None,
) -> None:  # fmt: skip
    session = session_of(4, charted=CHARTED, backends=3, load=load, change=lambda second: missing[second])
    look = DashboardState(view=view, keys=LOOK.keys, recording=recording, offset_s=offset_s, target=HOSTILE)
    layout = dashboard_layout(columns, rows)
    panes = dashboard_lines(session, layout, columns, ASCII if ascii_only else UNICODE, look)
    assert {pane: len(lines) for pane, lines in panes.items()} == dict(layout)
    assert {(pane, width(line)) for pane, lines in panes.items() for line in lines} == {
        (pane, columns) for pane, _ in layout
    }
    assert not [line for lines in panes.values() for line in lines if obeyed(plain_text(line))]


def test_before_the_first_frame_every_pane_is_there() -> None:
    rows = dashboard_rows(Session(CHARTED), 80, 24, UNICODE, DashboardState(target="db1"))
    assert len(rows) == 24
    assert "db1" in rows[0]
    assert "waiting for the first sample" in rows[0]
    assert {"CPU", "MEM", "DISK"} <= {row.split()[0] for row in rows if row.strip()}
    assert any(row.startswith("─ TPS") for row in rows)


@given(st.integers(60, 300), st.integers(8, 120), st.integers(2, 400))
def test_rows_of_the_layout_add_up_to_the_screen(columns: int, rows: int, sessions: int) -> None:
    layout = dashboard_layout(columns, rows, sessions)
    assert sum(count for _, count in layout) == rows
    assert [pane for pane, _ in layout] == [pane for pane in PANES if pane in dict(layout)]
    panes = dict(layout)
    charts = panes.get("throughput", 0) + panes.get("latency", 0)
    clock = panes.get("latency", 0) >= CLOCK_ROWS
    assert panes.get("latency", 0) - panes.get("throughput", 0) in (clock, 0 if rows >= 11 else -1), "equally high"
    assert rows < 24 or charts >= rows // 3 - 1


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40), (200, 50), (250, 70)])
def test_charts_take_what_the_sessions_do_not_need(columns: int, rows: int) -> None:
    many, few = (dict(dashboard_layout(columns, rows, sessions)) for sessions in (400, 8))
    assert set(many) == set(few) == set(PANES)
    assert rows // 3 <= many["throughput"] + many["latency"] + 1 <= rows // 2 + 1
    assert few["sessions"] in (8, 9) or rows == 24
    assert many["sessions"] >= 7


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40), (200, 50), (250, 70)])
def test_without_latencies_throughput_has_the_rows_of_both_charts(columns: int, rows: int) -> None:
    with_them, without = (dict(dashboard_layout(columns, rows, 8, measured=measured)) for measured in (True, False))
    assert without["latency"] == 1
    assert sum(without.values()) == rows
    # Equally high charts may leave one row to the sessions.
    assert without["throughput"] + 1 - with_them["throughput"] - with_them["latency"] in (0, 1)


def test_the_layout_stands_still_while_sessions_come_and_go() -> None:
    wanted = 0
    seen = []
    for count in (9, 12, 10, 8, 6, 13, 12, 3, 40):
        wanted = sessions_wanted(count, wanted)
        seen.append(wanted)
    assert seen == [12, 12, 12, 12, 12, 16, 16, 4, 40]


def test_numbers_keep_their_places_from_one_second_to_the_next() -> None:
    """Words stand still while their numbers change: what moves costs bytes and the eye."""
    words = ("usr", "sys", "rq", "await", "qps", "failed", "mean", "p99.9", "full pages")
    pictures = [
        dashboard_rows(session_of(seconds, charted=CHARTED), 80, 24, UNICODE, LOOK)[:12] for seconds in (90, 91, 97)
    ]
    places = [[(row.find(word), index) for word in words for index, row in enumerate(rows)] for rows in pictures]
    assert places[0] == places[1] == places[2]


def test_frames_of_a_replay_look_like_those_of_a_live_session() -> None:
    """Only the clock tells: panes have nothing else to tell by."""
    live, back = (
        dashboard_rows(loaded(), 120, 40, UNICODE, look)
        for look in (LOOK, replace(LOOK, recording=None, offset_s=133.0))
    )
    assert live[1:] == back[1:]
    assert "−2m 13s" in back[0]
    assert frame(3) == frame(3)
