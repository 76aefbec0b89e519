"""Runs on several servers: the server is a block."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pgtop_tune.compare.statistics.switchback import in_blocks, server_effects


def by_least_squares(a: list[tuple[str, float]], b: list[tuple[str, float]]) -> tuple[float, float, float, int]:
    """Effect, its root, squares and degrees of freedom of ln y = server + arm, by numpy."""
    servers = sorted({server for server, _ in (*a, *b)})
    rows = [
        [*(float(server == each) for each in servers), arm] for arm, side in ((0.0, a), (1.0, b)) for server, _ in side
    ]
    x, y = np.array(rows), np.array([value for _, value in (*a, *b)])
    fit = np.linalg.lstsq(x, y, rcond=None)[0]
    squares = float(((y - x @ fit) ** 2).sum())
    root = float(np.sqrt(np.linalg.inv(x.T @ x)[-1, -1]))
    return float(fit[-1]), root, squares, len(y) - len(servers) - 1


@pytest.mark.parametrize(
    "counts", [((1, 1), (1, 1), (1, 1)), ((3, 1), (2, 2), (1, 4)), ((2, 0), (3, 3), (0, 1)), ((4, 3),)]
)
def test_effect_error_and_spread_are_those_of_least_squares(counts: tuple[tuple[int, int], ...]) -> None:
    draw = random.Random(len(counts))
    speeds = [draw.gauss(7.0, 1.0) for _ in counts]
    a, b = (
        [
            (f"s{at}", speeds[at] + 0.05 * arm + draw.gauss(0.0, 0.02))
            for at, each in enumerate(counts)
            for _ in range(each[arm])
        ]
        for arm in (0, 1)
    )
    change, root, squares, degrees = by_least_squares(a, b)
    found = in_blocks(a, b)
    assert found is not None
    assert found.change == pytest.approx(change)
    assert found.root == pytest.approx(root)
    assert found.spread.squares == pytest.approx(squares, abs=1e-12)
    assert found.spread.degrees == degrees


def test_how_fast_servers_are_changes_nothing() -> None:
    a, b = [("s1", 1.0), ("s2", 1.1), ("s2", 1.2)], [("s1", 1.3), ("s2", 1.2), ("s1", 1.1)]
    slower = [[(server, y - 3.0 * (server == "s2")) for server, y in side] for side in (a, b)]
    one, other = in_blocks(a, b), in_blocks(*slower)
    assert one is not None
    assert other is not None
    assert other.change == pytest.approx(one.change)
    assert other.spread.squares == pytest.approx(one.spread.squares)


def test_without_a_server_that_ran_both_there_is_no_effect() -> None:
    assert in_blocks([("s1", 1.0), ("s1", 1.1)], [("s2", 1.3)]) is None
    assert in_blocks([], [("s2", 1.3)]) is None


def test_the_speed_of_servers_is_told_from_the_arms_that_they_happened_to_run() -> None:
    truth, arms = {"s1": 0.5, "s2": -0.2, "s3": -0.3}, {"a": 7.0, "b": 7.4}
    ran = [("a", "s1"), ("a", "s1"), ("b", "s1"), ("b", "s2"), ("b", "s2"), ("a", "s2"), ("b", "s3")]
    found = server_effects((arm, server, truth[server] + arms[arm]) for arm, server in ran)
    assert found == pytest.approx(truth, abs=1e-9)
