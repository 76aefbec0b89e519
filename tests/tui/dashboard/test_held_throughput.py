"""Throughput while another program's session holds everybody up: an outage looks like one without a load of ours."""

from __future__ import annotations

from msgspec.structs import replace

from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.throughput import throughput_lines
from pgtop_tune.tui.dashboard.waits import budget_lines
from pgtop_tune.tui.widgets.lines import UNICODE, Line, plain_text
from pgtop_tune.tui.widgets.time_axis import CHARTED
from tests.support.made_situations import NO_TABLE, jammed, jammed_since
from tests.support.situations import Situation

QUIET = Situation(waits={"CPU:": 1.0}, tps=1000.0, cpu=1.0, load=False)
HELD = Situation(waits={"Lock:transactionid": 16.0}, tps=0.0, load=False, backends=jammed)
IDLE = Situation(tps=0.0, load=False, cpu=0.0, busy=2.0)


def red(*seconds: Situation) -> str:
    session = Session(CHARTED)
    for second, situation in enumerate(seconds):
        session.apply(Step((situation.frame(second),)))
    lines: list[Line] = throughput_lines(session, 120, 8, UNICODE)
    return " ".join(text for line in lines for text, style in line if style == "critical")


def test_a_jam_of_others_is_red_with_its_length() -> None:
    said = red(*[QUIET] * 30, *[replace(HELD, backends=jammed_since(30))] * 20)
    assert "no commit for 1" in said
    assert "▁" in said
    # A commit of a background process ends no standstill: "no commit for 9 s" stood beside waits of 30 s.
    assert "16 of 16 active sessions wait 48 s" in red(*[QUIET] * 30, *[HELD] * 20)


def test_an_idle_server_and_a_short_queue_are_not() -> None:
    assert not red(*[QUIET] * 30, *[IDLE] * 20)
    assert not red(*[QUIET] * 30, *[replace(HELD, backends=jammed_since(28))] * 2)
    assert not red(*[QUIET] * 50)


def test_commits_of_monitoring_do_not_make_a_jam_look_healthy() -> None:
    """A query each second was enough: the server's throughput was not zero, and nothing was red for a minute."""
    said = red(*[QUIET] * 30, *[replace(HELD, tps=1.0)] * 20)
    assert "16 of 16 active sessions wait 48 s" in said
    assert "▁" in said
    assert "█" in red(*[replace(QUIET, tps=9.0)] * 20, *[replace(HELD, tps=9.0)] * 30), "a column has one colour"
    assert not red(*[QUIET] * 30, *[replace(HELD, tps=400.0)] * 20), "others work on"


def test_transactions_that_the_server_does_not_count_are_a_dash_with_the_reason() -> None:
    """The pane said 0 beside 703 queries a second, and the waits were those "of each transaction"."""
    session = Session(CHARTED)
    for second in range(30):
        session.apply(Step((NO_TABLE.frame(second),)))
    lines = [plain_text(line) for line in throughput_lines(session, 80, 5, UNICODE)]
    assert "the server does not count transactions without tables · qps   700" in lines[0]
    assert "server     -" in "".join(lines)
    assert "tps not counted" in plain_text(throughput_lines(session, 80, 1, UNICODE)[0])
    assert "waits of 8.00 active sessions" in plain_text(budget_lines(session, 120, 4, UNICODE)[0])
