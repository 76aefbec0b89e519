"""The universal scalability law on made throughput: coefficients within their intervals, and refusals."""

from __future__ import annotations

import random

from pgtop_tune.compare.statistics.scalability import scalability

CLIENTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def law(clients: float, sigma: float, kappa: float) -> float:
    return 500.0 * clients / (1.0 + sigma * (clients - 1.0) + kappa * clients * (clients - 1.0))


def test_intervals_hold_contention_coherency_and_the_peak_of_a_noisy_server() -> None:
    held = [0, 0, 0]
    for seed in range(200):
        draw = random.Random(seed)
        found = scalability([(n, law(n, 0.05, 0.0005) * draw.gauss(1.0, 0.02)) for n in CLIENTS])
        assert found.contention is not None
        assert found.coherency is not None
        assert found.peak_clients is not None
        for number, (each, truth) in enumerate(
            ((found.contention, 0.05), (found.coherency, 0.0005), (found.peak_clients, (0.95 / 0.0005) ** 0.5))
        ):
            held[number] += each.low <= truth <= each.high
    assert min(held) >= 180


def test_a_server_without_coherency_has_no_peak() -> None:
    found = scalability([(n, law(n, 0.2, 0.0) * (1.0 + 0.01 * (-1) ** n)) for n in CLIENTS])
    assert found.peak_clients is None
    assert "no peak" in found.sentence


def test_throughput_that_does_not_follow_the_law_is_refused_with_the_step_that_is_off_most() -> None:
    found = scalability([(n, 500.0 * min(n, 8) * (0.5 if n > 16 else 1.0)) for n in CLIENTS])
    assert "off by" in found.refused
    assert scalability([(n, 100.0) for n in CLIENTS[:4]]).refused


def test_a_coefficient_too_small_to_be_seen_is_within_its_interval() -> None:
    held = 0
    for seed in range(200):
        draw = random.Random(seed)
        found = scalability([(n, law(n, 0.3, 0.0001) * draw.gauss(1.0, 0.01)) for n in CLIENTS[:8]])
        assert found.coherency is not None
        held += found.coherency.low <= 0.0001 <= found.coherency.high
    assert held >= 180
