"""The dashboard says when pgbench is the limit, and what to do."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.throughput import throughput_lines
from pgtop_tune.tui.widgets.lines import UNICODE, plain_text
from pgtop_tune.tui.widgets.time_axis import CHARTED
from tests.support.run_frames import run_frames


def head(cpu: tuple[int, ...], width: int, *, last: int | None = -1) -> str:
    session = Session(CHARTED)
    for frame in run_frames(cpu=cpu)[:last]:
        session.apply(Step((replace(frame, events=()),)))
    return "\n".join(map(plain_text, throughput_lines(session, width, 6, UNICODE)))


@pytest.mark.parametrize(("width", "said"), [(80, "CLIENT-BOUND ─"), (120, "CLIENT-BOUND: more threads (-j 4)")])
def test_a_thread_of_pgbench_at_its_limit_is_said_over_the_chart_beside_the_figures(width: int, said: str) -> None:
    line = head((98, 3), width)
    assert said in line
    assert "client  1000" in line


def test_a_load_that_leaves_its_client_time_has_its_name_there() -> None:
    assert "CLIENT-BOUND" not in head((40, 35), 120)
    assert "16 clients" in head((40, 35), 120)


def test_a_load_that_has_ended_is_nobody_s_limit() -> None:
    assert "CLIENT-BOUND" not in head((98, 3), 120, last=None)
