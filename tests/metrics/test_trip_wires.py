"""Trip wires as typed, and what they read from frames."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.percentiles import ascending
from pgtop_tune.metrics.trip_wires import WATCHED, trip_wire
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import BenchProgress, LatencySecond
from pgtop_tune.model.frame import Frame
from tests.support.frames import bench_sample, frame
from tests.support.latencies import bucket_counts


def loaded(seconds: int, latencies_us: list[int], tps: float = 1000.0, failed: int = 0) -> Interval:
    frames: list[Frame] = []
    for second in range(seconds):
        histogram = LatencySecond(
            second, len(latencies_us), sum(latencies_us), max(latencies_us), ascending(bucket_counts(latencies_us))
        )
        sample = replace(
            bench_sample(second),
            progress=(BenchProgress(float(second), tps, 8.0, 1.0, failed),),
            latencies=(histogram,),
        )
        frames.append(replace(frame(second), bench=sample))
    return Interval(frames)


def test_a_percentile_is_that_of_the_last_seconds_of_the_load() -> None:
    latencies = [*range(1000, 60_000, 59)]
    true_ms = float(np.percentile(latencies, 99)) / 1000.0
    interval = loaded(8, latencies)
    assert trip_wire(f"p99>{true_ms * 0.97:.3f}ms").crossed(interval) is True
    assert trip_wire(f"p99>{true_ms * 1.03:.3f}ms").crossed(interval) is False
    assert trip_wire("p99 > 0.01s").crossed(interval) is True


def test_throughput_and_errors_are_the_clients_while_a_load_runs() -> None:
    interval = loaded(8, [5000], tps=900.0, failed=2)
    assert trip_wire("tps<1k").crossed(interval) is True
    assert trip_wire("tps<800").crossed(interval) is False
    assert trip_wire("errors>0").crossed(interval) is True
    assert trip_wire("errors>0").crossed(loaded(8, [5000])) is False


def test_what_cannot_be_said_never_trips() -> None:
    away = Unavailable(Reason.NOT_YET)
    nothing = Interval([replace(frame(0), host=away, postgres=away, bench=away)])
    assert [trip_wire(f"{watched.name}>0").crossed(nothing) for watched in WATCHED] == [None] * len(WATCHED)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("p99", "is not a trip wire"),
        ("p99=5", "is not a trip wire"),
        ("p98>5ms", "no trip wire can watch 'p98'"),
        ("p99>5GB", "not measured in gb"),
        ("tps<5ms", "not measured in ms"),
        ("tps<-5", "is not a trip wire"),
    ],
)
def test_nonsense_is_told_in_words(text: str, words: str) -> None:
    with pytest.raises(UsageProblem, match=words):
        trip_wire(text)


@given(st.text(max_size=30))
def test_any_text_is_a_wire_or_a_problem(text: str) -> None:
    try:
        wire = trip_wire(text)
    except UsageProblem:
        return
    assert wire.watched in WATCHED


def test_units_are_those_of_the_number() -> None:
    assert trip_wire("free<5GB").limit == 5 * 2**30
    assert trip_wire("p99>2s").limit == 2000.0
    assert trip_wire("lag>10MB").text == "lag>10MB"


def test_units_are_read_in_any_case_and_written_as_postgresql_does() -> None:
    assert [trip_wire(text).text for text in ("free<1gb", "LAG>10MB", "p99>50MS")] == [
        "free<1GB",
        "lag>10MB",
        "p99>50ms",
    ]
