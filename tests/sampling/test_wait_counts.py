"""Looks at waits added up between frames: nothing is lost, rows keep their places, many kinds stay few rows."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgtop_tune.model.waits import WaitCount, WaitPeak
from pgtop_tune.sampling.wait_looks import MOST_KINDS, WaitCounts

_COUNTS = st.builds(
    WaitCount,
    wait_event_type=st.sampled_from(("IO", "Lock", "CPU")),
    wait_event=st.sampled_from(("", "WalSync", "tuple")),
    backend_type=st.just("client backend"),
    observations=st.integers(1, 9),
    query_id=st.none() | st.integers(1, 3),
    datname=st.sampled_from(("a", "b")),
    usename=st.none(),
)


def by_kind(counts: tuple[WaitCount, ...] | list[WaitCount]) -> Counter[str]:
    found: Counter[str] = Counter()
    for count in counts:
        found[count.kind] += count.observations
    return +found


@given(st.lists(st.lists(st.lists(_COUNTS, max_size=5), max_size=4), max_size=6))
def test_every_observation_is_in_exactly_one_sample(frames: list[list[list[WaitCount]]]) -> None:
    counts = WaitCounts()
    for number, looks in enumerate(frames):
        for look in looks:
            counts.add(look)
        sample = counts.drain(float(number))
        assert sample.samples == len(looks)
        assert by_kind(sample.counts) == by_kind([count for look in looks for count in look])
        assert len({count.kind for count in sample.counts}) == len(sample.counts)


def test_a_wait_that_comes_and_goes_keeps_its_row_for_a_while() -> None:
    counts = WaitCounts()
    first, second = WaitCount("IO", "WalSync", "client backend", 2), WaitCount("CPU", "", "client backend", 1)
    counts.add([first, second])
    before = counts.drain(0.0).counts
    counts.add([second])
    after = counts.drain(1.0).counts
    assert [count.kind for count in after] == [count.kind for count in before]
    assert [count.observations for count in after] == [0, 1]
    for number in range(30):
        counts.add([second])
        after = counts.drain(2.0 + number).counts
    assert [count.kind for count in after] == [second.kind]


def test_thousands_of_statements_cost_the_rare_ones_their_name_and_no_observation() -> None:
    counts = WaitCounts()
    often = WaitCount("IO", "DataFileRead", "client backend", 50, 7, "a", "b")
    counts.add([often, *(WaitCount("CPU", "", "client backend", 1, 100 + n, "a", "b") for n in range(3000))])
    sample = counts.drain(0.0)
    assert len(sample.counts) <= MOST_KINDS
    assert sum(count.observations for count in sample.counts) == 3050
    assert often in sample.counts
    assert max(sample.counts, key=lambda count: count.observations).query_id is None


def test_nothing_of_a_server_that_was_gone_is_in_the_next_sample() -> None:
    counts = WaitCounts()
    counts.add([WaitCount("CPU", "", "client backend", 1)])
    counts.clear()
    assert counts.drain(0.0).counts == ()


def test_a_herd_that_one_look_saw_is_a_peak_beside_the_mean() -> None:
    counts = WaitCounts()
    sync = WaitCount("IO", "WalSync", "client backend", 1, 7)
    for herd in (0, 0, 6, 0):
        counts.add([*[sync] * herd, *[replace(sync, query_id=8)] * herd, WaitCount("CPU", "", "client backend", 1)])
    sample = counts.drain(1.0)
    assert sample.peaks == (WaitPeak("IO", "WalSync", 12),)
    assert counts.drain(2.0).peaks == ()
