"""What is known of the noise says what a time can show, before it is spent."""

from __future__ import annotations

import math

import pytest

from pgtop_tune.compare.noise import NoiseFloor
from pgtop_tune.compare.statistics.switchback import decide
from pgtop_tune.experiment.noise_floor import seen_in


def floor(pair_sd: float) -> NoiseFloor:
    return NoiseFloor(at_ms=0, seconds=300.0, pair_sd=pair_sd, pairs=10, autocorrelation_s=1.0, variance=0.01)


def test_a_time_shows_what_the_judge_would_exclude_after_its_pairs() -> None:
    found = seen_in(floor(0.03), 600.0, 27.5, 11.0)
    assert not found.hopeless
    assert found.sentence == (
        "noise known: pairs of blocks of this load differ by 3.0 %; 10m00s can show differences of 2.3 % or more"
    )
    # So many pairs fit: their deviation with the judge's prior of 2 % is 3 %.
    mean, each = math.log1p(0.023), math.sqrt((0.03**2 * 23 - 3 * 0.02**2) / 20)
    judged = decide([mean, *(mean + each * (-1) ** at for at in range(20))])
    assert judged.pair_sd == pytest.approx(0.03)
    assert judged.low == pytest.approx(0.0, abs=0.001)


def test_a_time_that_would_not_even_show_twice_the_throughput_is_refused_with_the_time_that_it_takes() -> None:
    short = seen_in(floor(0.8), 110.0, 27.5, 11.0)
    assert short.hopeless
    assert "differ by 80.0 %, and 1m50s is too short to show even doubled throughput" in short.sentence
    assert short.needed_s is not None
    assert short.needed_s > 110.0
    assert not seen_in(floor(0.8), short.needed_s, 27.5, 11.0).hopeless
    assert seen_in(floor(4.0), 110.0, 27.5, 11.0).needed_s is None
