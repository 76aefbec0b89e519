"""Silences as progress lines tell them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.bench.silences import Silences
from pgtop_tune.model.bench import BenchProgress, LatencySecond, Silence

STARTED_MS = 1_790_000_000_000


def heard(*tps: float, failed: int = 0, latency_ms: float = 4.0) -> Silences:
    """Lines of one second each; the first came a second after the start."""
    found = Silences()
    for second, each in enumerate(tps, start=1):
        line = BenchProgress(float(second), each, latency_ms if each else 0.0, 0.0, failed)
        found.hear(line, STARTED_MS + 1000 * second)
    return found


def test_a_silence_counts_from_the_last_line_with_a_transaction_and_lasts_until_the_next() -> None:
    silences = heard(100.0, 300.0, 0.0, 0.0)
    assert silences.take() == (Silence(STARTED_MS + 2000, None, 2.0, 4.0),)
    assert silences.take() == (Silence(STARTED_MS + 2000, None, 2.0, 4.0),), "it still lasts"
    silences.hear(BenchProgress(5.0, 8.0, 3000.0, 0.0), STARTED_MS + 5000)
    assert silences.take() == (Silence(STARTED_MS + 2000, STARTED_MS + 5000, 2.0, 4.0),)
    assert silences.take() == ()


def test_before_the_first_transaction_it_counts_from_the_start_and_no_pace_is_known() -> None:
    assert heard(0.0, 0.0).take() == (Silence(STARTED_MS, None, 2.0, None),)


def test_a_transaction_that_fails_has_ended() -> None:
    assert heard(100.0, 0.0, 0.0, failed=3).take() == ()


def test_the_end_of_the_run_ends_it() -> None:
    silences = heard(100.0, 0.0)
    silences.end(STARTED_MS + 2500)
    assert [silence.until_ms for silence in silences.take()] == [STARTED_MS + 2500]


def test_the_log_may_know_it_before_the_line_comes_but_not_by_seconds_from_before_it() -> None:
    silences = heard(100.0, 0.0, 0.0)
    began_s = STARTED_MS // 1000
    silences.read([LatencySecond(began_s, 1, 4000, 4000, ((1, 1),)), LatencySecond(began_s + 3, 0, 0, 0, ())], 0)
    assert silences.take()[0].until_ms is None
    silences.read([LatencySecond(began_s + 3, 1, 4000, 4000, ((1, 1),))], STARTED_MS + 3900)
    assert silences.take()[0].until_ms == STARTED_MS + 3900
    silences.hear(BenchProgress(4.0, 8.0, 3000.0, 0.0), STARTED_MS + 4000)
    assert silences.take() == ()


def test_several_between_two_looks_are_all_there() -> None:
    assert [silence.zero_s for silence in heard(9.0, 0.0, 9.0, 0.0, 0.0, 9.0, 0.0).take()] == [1.0, 2.0, 1.0]


@given(st.lists(st.sampled_from((0.0, 1.0, 250.0)), max_size=60))
def test_every_second_without_a_transaction_is_in_one_silence(tps: list[float]) -> None:
    found = heard(*tps).take()
    assert sum(silence.zero_s for silence in found) == tps.count(0.0)
    assert all(silence.until_ms is not None for silence in found[:-1])
