"""What a server was measured to do at most stands beside what it does, on the dashboard and on page 6."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.health.against import read_measured_limits
from pgtop_tune.health.formats.writers import json_lines
from pgtop_tune.health.judge import judge
from pgtop_tune.health.registry import chosen
from pgtop_tune.metrics.io import COMMITS_PER_FLUSH, WAL_FLUSHES
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.setup import Measured, MeasuredLimit
from pgtop_tune.recording.codec import codec_for
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.wal import wal_lines
from pgtop_tune.tui.pages.io import PAGE
from pgtop_tune.tui.widgets.lines import UNICODE, Line
from tests.support.frames import frame
from tests.support.health_facts import spoilt

FLUSHES_PER_S, COMMITS_PER_S = 950, 2850


def _looked(second: int) -> Frame:
    made = frame(second)
    assert not isinstance(made.postgres, Unavailable)
    wal, database = made.postgres.wal, made.postgres.database
    assert not isinstance(wal, Unavailable)
    assert not isinstance(database, Unavailable)
    sections = {
        "wal": replace(wal, wal_syncs=FLUSHES_PER_S * second),
        "database": replace(database, xact_commit=COMMITS_PER_S * second),
    }
    return replace(made, postgres=replace(made.postgres, **sections))


def _session(ceiling: float | None, measured_ms: int = 0) -> Session:
    session = Session()
    frames = _looked(10), _looked(11)
    if ceiling is not None:
        flushes = MeasuredLimit("wal-flushes", "the WAL device flushes", ceiling, "1/s", "measured")
        frames = tuple(replace(each, ceilings=Measured((flushes,), at_ms=measured_ms)) for each in frames)
    session.apply(Step(frames))
    return session


def _summary(session: Session, width: int = 160) -> Line:
    return PAGE.summary(session, width, 2, UNICODE)[0]


def _said(line: Line) -> str:
    return "".join(text for text, _ in line)


def test_flushes_stand_beside_the_ceiling() -> None:
    session = _session(1000.0)
    said = _said(_summary(session))
    assert "flushes 950/s of 1000 (95 %)" in said
    assert "commits per flush 3" in said
    assert session.interval is not None
    assert WAL_FLUSHES(session.interval) == pytest.approx(FLUSHES_PER_S)
    assert COMMITS_PER_FLUSH(session.interval) == pytest.approx(3.0)


@pytest.mark.parametrize(("ceiling", "style"), [(1000.0, "critical"), (1100.0, "warning"), (1300.0, "plain")])
def test_the_nearer_the_ceiling_the_louder(ceiling: float, style: str) -> None:
    styles = dict(_summary(_session(ceiling)))
    shown = next(found for text, found in styles.items() if text.strip().startswith("950"))
    assert (shown if shown in ("critical", "warning") else "plain") == style


def test_without_a_measurement_nothing_is_said_of_it() -> None:
    assert "flushes" not in _said(_summary(_session(None)))


def test_the_dashboard_has_it_in_the_line_of_wal_and_says_when_it_is_old() -> None:
    (line,) = wal_lines(_session(1000.0), 240, 1, UNICODE)
    assert "flushes 950/s of 1000 (95 %)" in _said(line)
    assert "measured" not in _said(line)
    now_ms = _looked(11).taken_at_ms
    (line,) = wal_lines(_session(1000.0, now_ms - 3 * 86_400_000), 320, 1, UNICODE)
    assert "measured 3d" in _said(line)
    (line,) = wal_lines(_session(1000.0), 80, 1, UNICODE)
    assert "950/s of 1000 (95 %)" in _said(line)
    (line,) = wal_lines(_session(None), 240, 1, UNICODE)
    assert "flushes" not in _said(line)


def test_a_recording_has_them() -> None:
    codec = codec_for(Frame)
    older, newer = _session(1000.0).now, _session(1000.0, 1).now
    assert codec.read(json.loads(json.dumps(codec.full(newer)))) == newer
    assert codec.apply(older, json.loads(json.dumps(codec.delta(older, newer)))) == newer


def test_the_ceilings_are_those_of_the_report(tmp_path: Path) -> None:
    ceiling = MeasuredLimit("wal-flushes", "the WAL device flushes 1940 times a second", 1940.0, "1/s", "ours")
    facts = spoilt(measured=Measured((ceiling,)))
    report = judge(chosen(["MEM"], []), facts)
    measured = Measured((ceiling,), at_ms=report.at_ms)
    file = tmp_path / "report.json"
    file.write_text("\n".join(json_lines(report)))
    assert read_measured_limits(file) == measured
    file.write_text("\n".join(json_lines(judge(chosen(["MEM"], []), spoilt()))))
    with pytest.raises(UsageProblem, match="contains no measured limits"):
        read_measured_limits(file)
    for text in ("", "[]", '{"format": "other"}', '{"format": "pgtop-tune-check/1", "ceilings": [1]}'):
        file.write_text(text)
        with pytest.raises(UsageProblem):
            read_measured_limits(file)
