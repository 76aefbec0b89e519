"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.base import units
from pgtop_tune.base.units import COUNTS, GB, KB, MB, SIZES, TIMES, about, quantity

POSITIVE = st.floats(min_value=1e-9, max_value=1e18)


def test_milliseconds_have_one_unit() -> None:
    said = [units.with_ms(value) for value in (None, 0.0, 7.123, 9_999.0, 10_000.0, 84_190.0, 150_000.0)]
    assert said == ["-", "0 ms", "7.12 ms", "9999 ms", "10.0 s", "84.2 s", "150 s"]


def test_counts_have_one_grammar() -> None:
    """A rate of 12,345 read "12 345" in a sentence, "1.20k" in a column, "1,205" in the first line."""
    values = (None, 0.0, 7.25, 812.0, 999.6, 1199.6, 9999.4, 9999.6, 12_345.0, 2e6)
    said = [units.count(value) for value in values]
    assert said == ["-", "0", "7.25", "812", "1000", "1200", "9999", "10.0k", "12.3k", "2.00M"]
    assert units.mean(5913.0) == "5913"


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


def test_sizes_and_rates_have_the_units_of_postgresql_and_keep_their_width() -> None:
    values = (None, 0.0, 812.0, 6_052.0, 999.4 * KB, 1023.0 * KB, 15.6 * GB)
    assert [units.size(value) for value in values] == [
        "-", "0 B", "812 B", "5.91 kB", "999 kB", "1.00 MB", "15.6 GB"
    ]  # fmt: skip
    assert units.byte_rate(6_052.0) == "5.91 kB/s"
    assert units.byte_rate(None) == "-"
    assert units.compact_size(6_052.0) + units.compact_size(812.0) + units.compact_size(15.6 * GB) == "5.91K81215.6G"


@given(st.none() | POSITIVE, st.none() | POSITIVE)
def test_no_size_takes_more_than_seven_cells_and_two_rates_share_a_unit(
    first: float | None, second: float | None
) -> None:
    assert len(units.size(first)) <= 7
    assert len(units.byte_rate(first)) <= 9
    both = units.byte_rates(first, second)
    assert both.count("B/s") == 1
    assert ("-" in both) is (first is None or second is None)


def test_two_rates_stand_in_the_unit_of_the_larger_one() -> None:
    assert [units.byte_rates(*each) for each in ((31e3, 9.8e6), (0.0, 0.0), (None, 4e3))] == [
        "0.03/9.35 MB/s", "       0/0 B/s", "   -/3.91 kB/s"
    ]  # fmt: skip


def test_the_label_of_a_round_number_has_no_decimals_that_say_nothing() -> None:
    labels = {"1.50k": "1.5k", "60.0": "60", "20.0s": "20s", "0.50": "0.5", "1.05k": "1.05k", "100": "100", "0": "0"}
    assert {text: units.axis_label(text) for text in labels} == labels


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


@pytest.mark.parametrize(
    ("text", "units", "value"),
    [
        ("90", TIMES, None), ("1h30m", TIMES, 5400.0), ("500ms", TIMES, 0.5), ("1.5 min", TIMES, 90.0),
        ("20GB", SIZES, 20e9), ("1MiB", SIZES, 2.0**20), ("20gb", SIZES, None), ("1k", COUNTS, 1000.0),
        (".5", COUNTS, 0.5), ("1k 5", COUNTS, None), ("", COUNTS, None), ("-5s", TIMES, None), ("5x", TIMES, None),
        ("٣s", TIMES, None), ("9" * 70, COUNTS, None),
    ],
)  # fmt: skip
def test_a_quantity_has_known_units_and_nothing_else(
    text: str, units: Mapping[str, float], value: float | None
) -> None:
    assert quantity(text, units) == value
