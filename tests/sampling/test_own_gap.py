"""Our own process is stopped and goes on: the gap is an event and a hole, not the server's silence and not a mean."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import host, sections
from pgtop_tune.metrics.active_sessions import WAITS_WINDOW_S
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.server import TPS, WAL_BYTES
from pgtop_tune.metrics.waits import ACTIVE_SESSIONS
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.events import EventKind
from pgtop_tune.model.frame import Frame
from pgtop_tune.recording.reader import RecordingReader
from pgtop_tune.sampling.live import skipped_ticks
from pgtop_tune.sampling.wait_looks import next_waits, waits_every_s
from tests.cli.runs import PROGRAM, ROOT, environment
from tests.support.processes import eventually
from tests.support.servers import conninfo

STOPPED_S = 4.0


def frames_of(path: Path) -> list[Frame]:
    if not path.exists() or not path.stat().st_size:
        return []
    reader = RecordingReader(path)
    try:
        return [frame for _, frame in reader.frames()]
    finally:
        reader.close()


def test_a_stop_of_our_own_is_an_event_and_a_hole(server: Throwaway, tmp_path: Path) -> None:
    output = tmp_path / "stopped.jsonl"
    ours = subprocess.Popen(
        [*PROGRAM, "record", "-q", "-o", str(output), "--interval", "0.5", conninfo(server)],
        cwd=ROOT, env=environment(tmp_path), stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert eventually(lambda: len(frames_of(output)) >= 5)
        ours.send_signal(signal.SIGSTOP)
        # The time that nobody looks is what this is about.
        time.sleep(STOPPED_S)
        before = len(frames_of(output))
        ours.send_signal(signal.SIGCONT)
        assert eventually(lambda: len(frames_of(output)) >= before + 4)
    finally:
        ours.send_signal(signal.SIGCONT)
        ours.terminate()
        ours.wait(30)
    frames = frames_of(output)
    gaps = [(at, event) for at, frame in enumerate(frames) for event in frame.events if event.kind is EventKind.GAP]
    long = [(at, event) for at, event in gaps if frames[at].elapsed_s - frames[at - 1].elapsed_s >= STOPPED_S - 0.5]
    assert len(long) == 1, [event.text for _, event in gaps]
    at, event = long[0]
    assert event.text == f"no samples for {frames[at].elapsed_s - frames[at - 1].elapsed_s:.1f} s"
    for metric in (TPS, WAL_BYTES, host.CPU_BUSY, ACTIVE_SESSIONS):
        assert metric(Interval(frames[: at + 1])) is None, metric.id
    assert not isinstance(frames[at].postgres, Unavailable), "the server answered all the time"
    assert any(TPS(Interval(frames[:end])) is not None for end in range(at + 2, len(frames) + 1))


def test_the_tick_after_a_stop_is_no_rate_of_some_milliseconds() -> None:
    """Stopped after 14, it goes on at 19.9: the tick of 15 is late, and that of 20 would be 100 ms later."""
    assert [skipped_ticks(15.0, began + 0.01, began, 1.0) for began in (14.0, 15.0, 19.2, 19.9)] == [0, 1, 5, 6]
    assert skipped_ticks(15.0, 16.3, 14.0, 1.0) == 2, "it took 2.3 s"


def test_after_a_stop_in_the_middle_of_a_look_waits_are_looked_at_within_their_window() -> None:
    assert next_waits(100.0, 100.005, 0.005) == 100.0 + sections.waits.every_s
    assert next_waits(100.0, 100.08, 0.08) == 100.08 + 9 * 0.08, "a tenth of the time is for looks"
    assert next_waits(100.0, 100.3, 0.01) == 100.3 + sections.waits.every_s, "late looks are not made up for"
    assert next_waits(100.0, 100.08, 0.08, 0.02, 3.0) == 100.08 + 2 * 0.08, "in a burst a third is"
    assert next_waits(100.0, 110.0, 10.0) - 110.0 < WAITS_WINDOW_S


def test_a_crowd_is_looked_at_less_often_and_never_seen_less() -> None:
    """A look at a thousand sessions costs the server as much as four at three hundred, and one at 300 as three at 8."""
    observations = {sessions: sessions / waits_every_s(sessions) for sessions in range(1, 2000)}
    assert waits_every_s(99) == sections.waits.every_s
    assert waits_every_s(99) < waits_every_s(300) < waits_every_s(1000)
    assert min(observations[sessions] for sessions in range(100, 2000)) >= observations[50]
    assert min(observations[sessions] for sessions in range(500, 2000)) >= observations[200]
