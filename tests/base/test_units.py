"""Numbers as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.base import units
from pgtop_tune.base.units import GB, KB, MB, about

POSITIVE = st.floats(min_value=1e-9, max_value=1e18)


def test_milliseconds_have_one_unit() -> None:
    said = [units.with_ms(value) for value in (None, 0.0, 7.123, 9_999.0, 10_000.0, 84_190.0, 150_000.0)]
    assert said == ["-", "0 ms", "7.12 ms", "9999 ms", "10.0 s", "84.2 s", "150 s"]


def test_means_line_up_and_nothing_is_no_row_of_zeros() -> None:
    assert [units.mean(value) for value in (0.0, 1.0, 3.04, 12.0, 812.0, None)] == [
        "0",
        "1.00",
        "3.04",
        "12.0",
        "812",
        "-",
    ]
    assert [units.ms(value) for value in (0.0, 0.0004, 0.042)] == ["0", "0", "0.042"]


@given(POSITIVE, st.integers(1, 6))
def test_no_number_for_people_has_an_exponent(value: float, digits: int) -> None:
    assert "e" not in units.number(value, digits)
    assert "e" not in about(value)


@given(st.floats(min_value=0.001, max_value=1e15), st.integers(1, 6))
def test_a_number_keeps_its_significant_digits(value: float, digits: int) -> None:
    assert float(units.number(value, digits)) == pytest.approx(value, rel=0.5 * 10 ** (1 - digits) + 1e-9)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (1020 * MB, "1020 MB"),
        (15.6 * GB, "15.6 GB"),
        (2048 * GB, "2 TB"),
        (1023 * KB, "1023 kB"),
        (64 * KB, "64 kB"),
    ],
)
def test_a_size_in_a_sentence_is_said_in_the_unit_a_parameter_takes(value: float, said: str) -> None:
    assert about(value) == said
