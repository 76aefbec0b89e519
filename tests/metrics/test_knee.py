"""The knee of a curve over clients or rates, and what is said when there is none."""

from __future__ import annotations

import pytest

from pgtop_tune.metrics.knee import LoadPoint, knee_of_clients, knee_of_rates


def points(*pairs: tuple[float, float | None], error: float | None = None) -> list[LoadPoint]:
    return [LoadPoint(load, tps, error) for load, tps in pairs]


SATURATED = ((1, 100), (2, 195), (4, 380), (8, 600), (16, 620), (32, 610), (64, 580))


def test_the_knee_is_the_fewest_clients_with_nearly_all_there_is() -> None:
    found = knee_of_clients(points(*SATURATED))
    assert found.load == 8
    assert "knee at 8 clients" in found.reason
    assert "620.0 tps at 16" in found.reason


def test_the_order_of_the_steps_and_failed_ones_do_not_matter() -> None:
    assert knee_of_clients(points((600, None), *reversed(SATURATED))).load == 8


def test_still_rising_is_said_with_the_last_gain() -> None:
    found = knee_of_clients(points((1, 100), (2, 200), (4, 400)))
    assert found.load is None
    assert "still rises at 4 clients, +100% over 2" in found.reason


def test_a_gain_within_the_noise_is_none() -> None:
    assert knee_of_clients(points((1, 100), (2, 200), (4, 215), error=2.0)).load is None
    assert knee_of_clients(points((1, 100), (2, 200), (4, 215), error=15.0)).load == 2


@pytest.mark.parametrize("pairs", [(), ((1, 100),), ((1, 100), (2, None), (4, 300))])
def test_too_few_steps_have_no_knee(pairs: tuple[tuple[float, float | None], ...]) -> None:
    assert "needs 3 successful steps" in knee_of_clients(points(*pairs)).reason


def test_of_rates_the_last_one_reached() -> None:
    found = knee_of_rates(points((100, 99.8), (200, 199), (400, 310), (800, 305)))
    assert found.load == 200
    assert "400 reached only 310.0" in found.reason
    assert "even 200 per second was reached" in knee_of_rates(points((100, 99), (200, 199))).reason
    assert "no rate was reached" in knee_of_rates(points((400, 310), (800, 305))).reason
    assert "no step succeeded" in knee_of_rates(points((400, None))).reason


def test_steps_of_the_same_load_are_one_step() -> None:
    assert "got 1" in knee_of_clients(points((4, 100), (4, 101), (4, 99))).reason
    found = knee_of_clients(points((1, 100), (8, 630), (8, 570), (16, 610), (32, 605)))
    assert found.load == 8
    assert "600.0 tps" in found.reason
    assert "even 100 " in knee_of_rates(points((50, 50), (100, 99), (100, 93))).reason
    assert "a rate of 100 reached only 80.0" in knee_of_rates(points((50, 50), (100, 99), (100, 61))).reason


def test_a_curve_that_is_flat_from_its_first_step_on_has_its_knee_there_or_below() -> None:
    found = knee_of_clients(points((4, 600), (8, 605), (16, 598)))
    assert found.load is None
    assert "start with fewer clients to see it" in found.reason
    assert knee_of_clients(points((1, 600), (8, 605), (16, 598))).load == 1
