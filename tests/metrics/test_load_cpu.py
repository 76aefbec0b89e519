"""CPU time of a load whose sessions come and go: what intervals hand on is what each finds by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.load_cpu import CpuUse, cpu_of_load
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import HostFacts, HostSample, ProcessCounters, ProcessSample
from pgtop_tune.model.postgres import Activity, PostgresSample
from pgtop_tune.model.waits import LOAD_APPLICATION
from pgtop_tune.runtime.frame_window import FrameWindow
from tests.support.frames import backend, facts

WINDOWS_S = (0.0, 3.0, 10.0, 60.0, 100.0)
MACHINE = HostFacts(
    hostname="here", kernel="6", source="local", boot_id="b", cpu_count=4, ticks_per_s=100, page_size_bytes=4096,
    memory_bytes=1,
)  # fmt: skip


def frame(second: int, pids: frozenset[int]) -> Frame:
    """Each session runs for a tenth of each second and waits for a CPU for a twentieth."""
    at_s = float(second)
    rows = tuple(
        ProcessCounters(
            pid=pid, state="S", start_ticks=pid, user_ticks=second * 10, system_ticks=0, rss_bytes=1, delay_ticks=0,
            read_bytes=None, write_bytes=None, run_delay_ms=50 * second, run_ms=100 * second,
        )
        for pid in sorted(pids)
    )  # fmt: skip
    backends = tuple(backend(pid, 0, application_name=LOAD_APPLICATION) for pid in sorted(pids))
    return Frame(
        second, 0, at_s,
        host=HostSample(facts=MACHINE, processes=ProcessSample(at_s, rows)),
        postgres=PostgresSample(server=facts(), activity=Activity(at_s, 0, backends)),
    )  # fmt: skip


def seen(frames: list[Frame], *, chained: bool) -> list[CpuUse | None]:
    window, before, found = FrameWindow(), None, []
    for each in frames:
        window.append(each)
        before = Interval(window, before if chained else None)
        found += [cpu_of_load(before, window_s) for window_s in WINDOWS_S]
    return found


@given(st.lists(st.tuples(st.integers(1, 15), st.frozensets(st.integers(1, 6))), min_size=1, max_size=5))
def test_intervals_that_follow_say_what_each_says_alone(phases: list[tuple[int, frozenset[int]]]) -> None:
    sessions = [pids for seconds, pids in phases for _ in range(seconds)]
    frames = [frame(second, pids) for second, pids in enumerate(sessions)]
    assert seen(frames, chained=True) == seen(frames, chained=False)


def test_sessions_that_have_gone_count_as_long_as_they_were_there() -> None:
    frames = [frame(second, frozenset(range(1, 11 if second < 20 else 3))) for second in range(26)]
    found = seen(frames, chained=True)[-len(WINDOWS_S) :]
    used = [round(use.used * use.share, 2) for use in found if use is not None]
    # Ten for a tenth each, two from the 20th second on. From the oldest look of ten seconds, at 16, eight were seen
    # until 19.
    assert used == [0.2, 0.2, round(0.2 + 0.8 * 3 / 9, 2), *[round(0.2 + 0.8 * 19 / 25, 2)] * 2]
