"""Student's t against scipy."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from pgtop_tune.compare.statistics.effect import t_probability, t_quantile

DEGREES = st.one_of(st.integers(1, 2000), st.floats(0.5, 200.0))


@example(5.960464477539063e-08, 3)
@given(st.floats(-50, 50), DEGREES)
def test_the_distribution_is_that_of_scipy(t: float, degrees: float) -> None:
    assert t_probability(t, degrees) == pytest.approx(stats.t.cdf(t, degrees), abs=1e-8)


@given(st.floats(0.001, 0.999), DEGREES)
def test_quantiles_are_those_of_scipy(probability: float, degrees: float) -> None:
    assert t_quantile(probability, degrees) == pytest.approx(stats.t.ppf(probability, degrees), rel=1e-7, abs=1e-8)


@pytest.mark.parametrize(("probability", "degrees"), [(0.0, 5), (1.0, 5), (0.5, 0)])
def test_what_has_no_quantile_is_refused(probability: float, degrees: float) -> None:
    with pytest.raises(ValueError, match=r"probability|degrees"):
        t_quantile(probability, degrees)
