"""The first line and every pane are the same live, after a jump, in a replay, and in headless lines."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from pgtop_tune.cli.commands.watch import ReplayRequest
from pgtop_tune.cli.commands.watch.screen import replay_recording
from pgtop_tune.metrics.budget import latency_budget
from pgtop_tune.model.frame import Frame
from pgtop_tune.recording.history_buffer import HistoryBuffer
from pgtop_tune.recording.reader import RecordingReader
from pgtop_tune.recording.replay import ReplaySource
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.screen import DashboardState, dashboard_layout, dashboard_lines
from pgtop_tune.tui.findings import Findings
from pgtop_tune.tui.widgets.lines import UNICODE, plain_text
from pgtop_tune.tui.widgets.time_axis import CHARTED
from tests.support.made_situations import MADE, SLOW_WAL, jammed_since, queued_rows
from tests.support.recordings import write
from tests.support.situations import Situation

WRITES = Situation(waits={"IO:DataFileWrite": 4.0}, latency_ms=16.0, tps=1_000.0, cpu=0.4, busy=30.0)
ROWS = replace(SLOW_WAL, backends=queued_rows("IO", "WalSync"))
FEW = (60, 104, 8)
FIFTY = (*range(2, 110, 5), *range(112, 256, 6), 40, 41, 42, 250)


def frame_of(second: int) -> Frame:
    """A load with its numbers going up and down, another one, a jam, and nothing."""
    if second < 100:
        return replace(SLOW_WAL, latency_ms=31.0 + second % 7).frame(second)
    if second < 150:
        return replace(WRITES, tps=1_000.0 - second).frame(second)
    if second < 170:
        jam = Situation(waits={"Lock:transactionid": 16.0}, tps=0.0, backends=jammed_since(150), load=False)
        return jam.frame(second)
    return (replace(ROWS, tps=520.0 + second % 11) if second < 230 else MADE["nothing in particular"][1]).frame(second)


class Screen:
    """A session and its findings, without a terminal."""

    def __init__(self, live: Session) -> None:
        travel = SimpleNamespace(shown=live)
        self.findings = Findings(cast(Any, SimpleNamespace(live=live)), cast(Any, travel), cast(Any, None))

    def seen(self, session: Session, whole: bool = True) -> tuple[str, ...]:
        """Every sentence, the budget and the panes of its newest frame."""
        found, interval = self.findings.diagnose(session), session.interval
        assert found is not None
        assert interval is not None
        if not whole:
            return tuple(each.sentence for each in found.findings)
        panes = dashboard_lines(session, dashboard_layout(160, 48), 160, UNICODE, DashboardState())
        drawn = "\n".join(plain_text(line) for lines in panes.values() for line in lines)
        return (*(each.sentence for each in found.findings), str(latency_budget(interval)), drawn)


async def arrived(session: Session, source: ReplaySource, at_s: float, steps: Any) -> None:
    source.jump(at_s)
    async with asyncio.timeout(30):
        while session.now is None or session.now.elapsed_s != at_s or session.incomplete:
            session.apply(await anext(steps))


@pytest.mark.parametrize("moments", [FEW, pytest.param(FIFTY, marks=pytest.mark.long)], ids=["few", "fifty"])
async def test_a_moment_says_the_same_in_every_way(moments: Sequence[int], tmp_path: Path, capsys: Any) -> None:
    """After every jump into the past the line said "no single limit", whatever had been said live."""
    frames = [frame_of(second) for second in range(max(moments) + 5)]
    hour, live = HistoryBuffer(), Session(CHARTED)
    screen, seen = Screen(live), list[tuple[str, ...]]()
    for frame in frames:
        live.apply(Step((frame,)))
        hour.accept(Step((frame,)))
        if not seen:
            screen.findings.begin()
        seen.append(screen.seen(live, frame.sequence in moments))
    past = live.copy()
    back = ReplaySource(hour, shown_frames=past.frames)
    file = ReplaySource(RecordingReader(write(tmp_path / "run.jsonl.gz", frames)))
    replayed, back_steps, file_steps = Session(CHARTED), back.steps(), file.steps()
    again = Screen(replayed)
    replayed.apply(await anext(file_steps))
    again.findings.begin()
    file.pause(True)
    for moment in moments:
        at_s = frames[moment].elapsed_s
        await arrived(past, back, at_s, back_steps)
        await arrived(replayed, file, at_s, file_steps)
        assert screen.seen(past) == seen[moment], moment
        assert again.seen(replayed) == seen[moment], moment
    file.step(-1)
    while replayed.now is None or replayed.now.sequence != moment - 1:
        replayed.apply(await anext(file_steps))
    assert again.seen(replayed)[0] == seen[moment - 1][0]
    for start in (0, 100):
        replay_recording(ReplayRequest(file=tmp_path / "run.jsonl.gz", start=float(start), lines=True))
        lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("0", "1", "2"))]
        expected = [sentences[0] for sentences in seen[max(start, 1) :]]
        assert len(lines) >= len(expected)
        assert all(line.endswith(f"  {said}") for line, said in zip(lines, expected, strict=False))
