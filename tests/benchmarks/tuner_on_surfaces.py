"""The tuner, P3's rule and the best of 60 trials on made surfaces: the table of `docs/guide/tuning.md`.

.venv/bin/python tests/benchmarks/tuner_on_surfaces.py [SEARCHES [SEARCHES_BY_OPTUNA [NAME…]]]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.tuning_rates import Rates, SearchEnd, of_hand, of_trials, ours, rates
from tests.support.tuning_surfaces import KINDS

NOISES: Final = (0.01, 0.02, 0.04)
COLUMNS: Final = (
    "gain", "wrong", "changed", "refused", "evaluations", "idle", "off", "own", "confirmations hold", "results hold",
)  # fmt: skip
SEARCHES: Final[dict[str, tuple[Callable[[str, int, float], SearchEnd], bool]]] = {
    "tune, climb": (ours, False),
    "tune, bayes": (lambda kind, seed, sd: ours(kind, seed, sd, "bayes"), True),
    "P3's rule": (of_hand, False),
    "best of 60 (TPE)": (of_trials, True),
}


def cells(kind: str, found: list[Rates]) -> list[str]:
    """Of a row, each for the three noises."""
    gained = [
        f"{each.gained:.0%}" if kind not in ("start best", "nothing") else f"{each.gained:+.1%}" for each in found
    ]
    columns = [
        gained,
        [f"{each.wrong:.1%}" for each in found],
        [f"{each.changed:.0%}" for each in found],
        [f"{each.refused:.0%}" for each in found],
        [f"{each.evaluations:.0f}" for each in found],
        [f"{each.idle:.1f}" for each in found],
        [_points(each.off) for each in found],
        [_points(each.own) for each in found],
        [_share(each.confirmed_covered) for each in found],
        [_share(each.covered) for each in found],
    ]
    return [" / ".join(column) for column in columns]


def _points(value: float | None) -> str:
    return "–" if value is None else f"{100.0 * value:+.1f}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100.0 * value:.1f}"


def main() -> None:
    """Print the rows as they come."""
    many = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    few = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    names = sys.argv[3:] or list(SEARCHES)
    print(f"| surface | search | {' | '.join(COLUMNS)} |")
    for kind in KINDS:
        for name in names:
            search, slow = SEARCHES[name]
            searches = few if slow else many
            found = [rates([search(kind, seed, sd) for seed in range(searches)]) for sd in NOISES]
            print(f"| {kind} | {name} | {' | '.join(cells(kind, found))} |", flush=True)


if __name__ == "__main__":
    main()
