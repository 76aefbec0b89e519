"""One histogram per second out of files that are written in pieces."""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgtop_tune.bench.log_seconds import LogLayout
from pgtop_tune.bench.transaction_log import MOST_BYTES, TransactionLog
from pgtop_tune.metrics.percentiles import ascending
from pgtop_tune.model.bench import LatencySecond, ScriptLatencies
from tests.support.latencies import bucket_counts

T0 = 1_795_000_000


class Bench:
    """A log directory, written as pgbench would, with a clock of its own."""

    def __init__(self, directory: Path, threads: int, most_bytes: int = MOST_BYTES) -> None:
        self.now_s = 0.0
        self.paths = [directory / ("tx.4711" if not n else f"tx.4711.{n}") for n in range(threads)]
        for path in self.paths:
            path.touch()
        self.log = TransactionLog(directory, "tx", threads, clock=lambda: self.now_s, most_bytes=most_bytes)

    def write(self, thread: int, second: int, latencies: Sequence[int | str]) -> None:
        with self.paths[thread].open("ab") as out:
            for latency in latencies:
                out.write(f"{thread} 1 {latency} 0 {T0 + second} 5\n".encode())

    def tick(self, *, final: bool = False, seconds: float = 1.0) -> list[tuple[int, int]]:
        """(second, logged) of what is reported a second later."""
        self.now_s += seconds
        return [(each.second - T0, each.logged) for each in self.log.read(final=final)]


@pytest.fixture
def one(tmp_path: Path) -> Bench:
    return Bench(tmp_path, 1)


@pytest.fixture
def two(tmp_path: Path) -> Bench:
    return Bench(tmp_path, 2)


def test_a_second_is_reported_when_its_file_has_gone_past_it(one: Bench) -> None:
    one.write(0, 0, [100, 200])
    assert one.tick() == []
    one.write(0, 0, [300])
    one.write(0, 1, [400])
    assert one.tick() == [(0, 3)]
    assert one.tick(final=True) == [(1, 1)]


def test_figures_of_a_second(one: Bench) -> None:
    one.write(0, 0, [100, "skipped", 70_000, "failed", 100])
    (second,) = one.log.read(final=True)
    latencies = [100, 70_000, 100]
    assert second == LatencySecond(T0, 3, 70_200, 70_000, ascending(bucket_counts(latencies)), failed=1, skipped=1)
    statistics = one.log.statistics()
    assert (statistics.lines, statistics.skipped, statistics.failed) == (3, 1, 1)


def test_failures_are_told_by_kind_and_a_second_of_nothing_else_is_reported(one: Bench) -> None:
    one.write(0, 0, ["serialization", "deadlock", "serialization", "skipped"])
    (second,) = one.log.read(final=True)
    assert (second.logged, second.max_us, second.buckets) == (0, 0, ())
    assert (second.failed, second.serialization_failures, second.deadlock_failures, second.skipped) == (3, 2, 1, 1)
    assert (second.lag_sum_us, second.scripts) == (None, ())


def test_scripts_and_lag_of_several_threads(tmp_path: Path) -> None:
    for thread, rows in enumerate((("100 0 {} 1 20", "900 1 {} 1 30"), ("300 0 {} 1 50", "skipped 1 {} 1 0"))):
        text = "".join(f"0 1 {row.format(T0)}\n" for row in rows)
        (tmp_path / f"tx.7.{thread}").write_text(text)
    log = TransactionLog(tmp_path, "tx", 2, layout=LogLayout(lag=True, scripts=4))
    (second,) = log.read(final=True)
    assert (second.logged, second.lag_sum_us, second.lag_max_us) == (3, 100, 50)
    assert second.scripts == (
        ScriptLatencies(0, 2, 400, 300, ascending(bucket_counts([100, 300]))),
        ScriptLatencies(1, 1, 900, 900, ascending(bucket_counts([900])), skipped=1),
    )


def test_all_threads_must_have_gone_past(two: Bench) -> None:
    two.write(0, 0, [1])
    two.write(0, 1, [1])
    assert two.tick() == []
    two.write(1, 0, [1])
    two.write(1, 1, [1])
    assert two.tick() == [(0, 2)]


def test_a_thread_that_usually_speaks_each_second_is_not_waited_for_long(two: Bench) -> None:
    for second in range(5):
        for thread in (0, 1):
            two.write(thread, second, [10])
        two.tick()
    reported: list[tuple[int, int]] = []
    for second in range(5, 12):
        two.write(0, second, [10])
        reported += two.tick()
    assert (4, 2) in reported
    assert (5, 1) in reported


def test_a_thread_that_seldom_speaks_is_waited_for(two: Bench) -> None:
    """Two transactions per second and thread fill a buffer in 55 s; both threads out of step."""
    reported: list[tuple[int, int]] = []
    for now in range(1, 400):
        for thread, phase in ((0, 0), (1, 27)):
            if now > phase and (now - phase) % 55 == 0:
                for second in range(now - 55, now):
                    two.write(thread, second, [1000, 1000])
        reported += two.tick()
    reported += two.tick(final=True)
    lines, seconds = two.log.statistics().lines, {second for second, _ in reported}
    assert sum(logged for _, logged in reported) == lines
    assert len(reported) <= 1.02 * len(seconds)


def test_lines_that_come_after_their_second_was_reported_are_reported_by_themselves(two: Bench) -> None:
    for second in range(8):
        two.write(0, second, [10])
        two.tick()
    two.write(1, 0, [99, 99])
    two.write(1, 8, [10])
    two.write(0, 8, [10])
    assert (0, 2) in two.tick()
    assert two.tick(final=True) == [(8, 2)]


def test_a_file_that_appears_later_is_read_from_its_beginning(tmp_path: Path) -> None:
    log = TransactionLog(tmp_path, "tx", 1)
    assert log.read() == ()
    (tmp_path / "tx.1").write_bytes(b"0 1 5 0 1795000000 0\n")
    (tmp_path / "unrelated").write_bytes(b"0 1 5 0 1795000000 0\n")
    assert [each.logged for each in log.read(final=True)] == [1]


def test_a_file_is_read_once_a_descriptor_is_free(tmp_path: Path) -> None:
    (tmp_path / "tx.1").write_bytes(b"0 1 5 0 1795000000 0\n")
    log = TransactionLog(tmp_path, "tx", 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        assert log.read() == ()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [each.logged for each in log.read(final=True)] == [1]


def test_the_rest_of_what_one_call_does_not_read_waits_for_the_next(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 2, most_bytes=2**17)
    for thread in (0, 1):
        for second in range(4):
            bench.write(thread, second, [1000 + second] * 4_000)
    calls, reported = 0, []
    while not reported:
        calls += 1
        reported = bench.tick(seconds=0.0)
        assert bench.log.behind != bool(reported)
    assert calls > 3
    assert [*reported, *bench.tick(final=True)] == [(second, 8_000) for second in range(4)]


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 4)), max_size=60), st.data())
def test_every_line_is_reported_once(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    bench = Bench(tmp_path_factory.mktemp("log"), 3)
    reported: Counter[int] = Counter()
    for thread, second, count in writes:
        bench.write(thread, second, [7] * count)
        if data.draw(st.booleans()):
            reported.update(dict(bench.tick(seconds=data.draw(st.sampled_from((0.1, 1.0, 200.0))))))
    reported.update(dict(bench.tick(final=True)))
    written: Counter[int] = Counter()
    for _, second, count in writes:
        written[second] += count
    assert reported == +written
