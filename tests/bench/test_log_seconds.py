"""Seconds with more lines than are read: what is counted, what is exact, and how far off the rest is."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.bench.log_seconds import READ_LINES, GrowingSecond, LogLayout, SecondPart, at_least, tail_of
from pgtop_tune.bench.transaction_log import TransactionLog
from pgtop_tune.metrics.percentiles import WORST_RELATIVE_ERROR, bucket_edges, merge, percentiles
from pgtop_tune.model.bench import LatencySecond, estimate_mark
from tests.support.latencies import bucket_counts

T0 = 1_795_000_000
LINES = 90_000
EXACT = (99.0, 99.9, 99.99)
Draw = Callable[[random.Random, int], tuple[int, int | str]]


def usual(chance: random.Random, _: int) -> tuple[int, int | str]:
    return 0, round(900 * chance.lognormvariate(0, 0.5))


def slower_later(chance: random.Random, number: int) -> tuple[int, int | str]:
    """The first quarter of the second tells nothing of the rest."""
    return 0, round((300 if number < LINES / 8 else 900) * chance.lognormvariate(0, 0.3))


def quicker_later(chance: random.Random, number: int) -> tuple[int, int | str]:
    return 0, round((1200 if number < LINES / 8 else 700) * chance.lognormvariate(0, 0.3))


def stalled_once(chance: random.Random, number: int) -> tuple[int, int | str]:
    return 0, 250_000 + number % 7 if LINES / 4 < number <= LINES / 4 + 64 else chance.randint(90, 99)


def all_alike(_: random.Random, number: int) -> tuple[int, int | str]:
    return 0, 70 if number % 30_000 else 71


def with_words(chance: random.Random, number: int) -> tuple[int, int | str]:
    return 0, "serialization" if not number % 1000 else round(900 * chance.lognormvariate(0, 0.5))


def four_scripts(chance: random.Random, number: int) -> tuple[int, int | str]:
    """One is slow, one is rare and has the slowest of all."""
    script = 3 if not number % 997 else number % 3
    return script, round((200, 300, 4000, 90_000)[script] * chance.lognormvariate(0, 0.4))


def written(directory: Path, draw: Draw, scripts: int) -> tuple[LatencySecond, dict[int, list[int]], int]:
    """A second of two threads as it is read in pieces, what was in it, and how many of its lines were words."""
    chance = random.Random(7)
    log = TransactionLog(directory, "tx", 2, layout=LogLayout(scripts=scripts), clock=lambda: 0.0)
    truth: dict[int, list[int]] = {}
    words = 0
    paths = [directory / "tx.1", directory / "tx.1.1"]
    for piece in range(5):
        for path in paths:
            with path.open("ab") as out:
                for number in range(piece * LINES // 10, (piece + 1) * LINES // 10):
                    script, latency = draw(chance, number)
                    out.write(b"%d %d %b %d %d %d\n" % (number % 16, number, str(latency).encode(), script, T0, number))
                    if isinstance(latency, int):
                        truth.setdefault(script, []).append(latency)
                    else:
                        words += 1
        assert log.read() == ()
    found = log.read(final=True)
    assert log.statistics().lines == sum(map(len, truth.values()))
    log.close()
    (second,) = found
    return second, truth, words


@pytest.mark.parametrize(
    "draw", [usual, slower_later, quicker_later, stalled_once, all_alike, with_words, four_scripts]
)
def test_number_maximum_and_slow_ones_are_exact_and_the_others_near(tmp_path: Path, draw: Draw) -> None:
    second, truth, words = written(tmp_path, draw, scripts=4 if draw is four_scripts else 1)
    whole = sorted(us for latencies in truth.values() for us in latencies)
    assert (second.logged, second.max_us, second.failed) == (len(whole), whole[-1], words)
    assert sum(count for _, count in second.buckets) == len(whole)
    assert second.counted or draw is all_alike
    exact = merge([LatencySecond(T0, len(whole), 0, whole[-1], tuple(sorted(bucket_counts(whole).items())))])
    ours = percentiles(second.buckets, EXACT, second.max_us)
    assert ours == percentiles(exact.buckets, EXACT, exact.max_us)
    assert not any(estimate_mark(value, second.counted_below_us) for value in ours)
    for q in (50.0, 95.0):
        (value,) = percentiles(second.buckets, (q,), second.max_us)
        assert value == pytest.approx(whole[round(q / 100 * (len(whole) - 1))], rel=2 * WORST_RELATIVE_ERROR)
    assert second.sum_us == pytest.approx(sum(whole), rel=0.02)


def test_of_several_scripts_the_slowest_of_each_and_all_of_a_rare_one_are_exact(tmp_path: Path) -> None:
    second, truth, _ = written(tmp_path, four_scripts, scripts=4)
    assert [each.script for each in second.scripts] == [0, 1, 2, 3]
    assert sum(each.logged for each in second.scripts) == second.logged
    for each in second.scripts:
        latencies = truth[each.script]
        assert each.max_us == max(latencies)
        assert each.logged == pytest.approx(len(latencies), rel=0.03)
    rare = second.scripts[3]
    assert (rare.logged, rare.sum_us, rare.counted) == (len(truth[3]), sum(truth[3]), 0)


def test_below_the_limit_everything_is_read(tmp_path: Path) -> None:
    (tmp_path / "tx.1").write_text("".join(f"0 {n} {500 + n % 700} 0 {T0} {n}\n" for n in range(READ_LINES)))
    (second,) = TransactionLog(tmp_path, "tx", 1).read(final=True)
    assert (second.logged, second.counted, second.lag_max_us) == (READ_LINES, 0, None)


def test_lags_of_counted_lines_are_as_those_that_were_read(tmp_path: Path) -> None:
    chance = random.Random(3)
    lags = [chance.randint(0, 500) for _ in range(4 * READ_LINES)]
    lines = (f"0 {n} {500 + n % 700 + lag} 0 {T0} {n} {lag}\n" for n, lag in enumerate(lags))
    (tmp_path / "tx.1").write_text("".join(lines))
    (second,) = TransactionLog(tmp_path, "tx", 1, layout=LogLayout(lag=True)).read(final=True)
    assert (second.logged, second.max_us) == (len(lags), max(500 + n % 700 + lag for n, lag in enumerate(lags)))
    assert second.counted > 2 * READ_LINES
    assert second.lag_sum_us == pytest.approx(sum(lags), rel=0.02)
    assert second.lag_max_us == 500


def test_a_chunk_with_a_torn_line_is_decoded_and_not_counted() -> None:
    tail = tail_of({0: bucket_counts([100] * 2000), 1: bucket_counts([200] * 2000)}, 2)
    assert tail is not None
    assert tail.count(b"0 1 900 1 1795000000 5\n" * 3, T0) is not None
    assert tail.count(b"0 1 900 1 1795000000 5\n0 2 900 4711 1795000000 5\n", T0) is None


def test_a_script_that_may_have_counted_lines_is_marked_though_no_chunk_of_the_sample_had_it() -> None:
    growing = GrowingSecond(arrived_s=0.0, layout=LogLayout(scripts=2))
    for script in (0, 1):
        growing.add(SecondPart(T0, script, [100 + number % 50 for number in range(READ_LINES // 2)]))
    assert growing.tail is not None
    counted = growing.tail.count(b"".join(b"0 %d 110 1 %d 5\n" % (number, T0) for number in range(1000)), T0)
    assert counted is not None
    growing.add_counted(counted)
    growing.add_sample(SecondPart(T0, 0, [105] * 1000))
    found = growing.done(T0).scripts[1]
    assert found.max_us == 149
    assert estimate_mark(100, found.counted_below_us) == "~"


def test_a_torn_line_among_counted_ones_is_no_slow_transaction(tmp_path: Path) -> None:
    whole = [f"0 {n} {500 + n % 700} 0 {T0} {n}\n" for n in range(4 * READ_LINES)]
    for at in range(READ_LINES + 1000, 4 * READ_LINES, 100):
        # A line of which two columns were written, and the next one.
        whole[at] = f"0 90{at}1 {whole[at]}" if at % 200 else f"0 {whole[at]}"
    (tmp_path / "tx.1").write_text("".join(whole))
    (second,) = TransactionLog(tmp_path, "tx", 1).read(final=True)
    assert second.counted > READ_LINES
    assert second.max_us == 1199


@pytest.mark.parametrize("scripts", [1, 2])
def test_chunks_with_failures_are_counted_too(tmp_path: Path, scripts: int) -> None:
    """Failures in every chunk would have all of it decoded, at three times the cost."""
    chance, words, slowest = random.Random(5), ("serialization", "deadlock", "skipped"), 0
    truth, lines = Counter[str](), []
    for number in range(4 * READ_LINES):
        latency = str(500 + chance.randrange(700)) if number % 100 else words[number % 3]
        if number % 100:
            slowest = max(slowest, int(latency))
        else:
            truth[latency] += 1
        lines.append(f"0 {number} {latency} {number % scripts} {T0} {number}\n")
    (tmp_path / "tx.1").write_text("".join(lines))
    log = TransactionLog(tmp_path, "tx", 1, layout=LogLayout(scripts=scripts))
    (second,) = log.read(final=True)
    assert second.counted > 2 * READ_LINES
    assert (second.logged, second.max_us) == (len(lines) - truth.total(), slowest)
    failures = {"serialization": second.serialization_failures, "deadlock": second.deadlock_failures}
    assert {**failures, "skipped": second.skipped} == truth
    assert second.failed == truth["serialization"] + truth["deadlock"]
    of_log = log.statistics()
    assert (of_log.lines, of_log.failed, of_log.skipped) == (second.logged, second.failed, second.skipped)
    if scripts > 1:
        assert sum(each.failed for each in second.scripts) == second.failed


@given(st.integers(0, 10**9), st.integers(0, 10**10))
def test_the_search_takes_exactly_the_numbers_from_the_rounded_one_on(low: int, us: int) -> None:
    unit = 10 ** max(len(str(low)) - 2, 0)
    rounded = low - low % unit
    assert bool(re.fullmatch(at_least(rounded), b"%d" % us)) == (us >= rounded)


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=50), st.integers(20, 100))
def test_of_any_latencies_the_slowest_is_searched_for(latencies: list[int], times: int) -> None:
    counts = bucket_counts(latencies * times)
    tail = tail_of({0: counts}, 1)
    if len(latencies) * times < 1000:
        assert tail is None
        return
    assert tail is not None
    assert tail.from_us <= bucket_edges(tail.bucket)[0]
    assert tail.bucket <= max(counts)
