"""The search for the highest rate and the detector of overload on the simulated server: the figures of the guide.

.venv/bin/python tests/benchmarks/highest_rate_by_simulation.py [SEARCHES [truth]]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from statistics import fmean, median

sys.path.insert(0, str(Path(__file__).parents[2]))

from pgtop_tune.experiment.slo.search import RateEnding, StepKind
from tests.support.rate_server import KINDS, TRUE, knowing_probes, overloads, search, true_rate


def main() -> None:
    """Print a row for each noise."""
    many = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    if "truth" in sys.argv:
        for kind in KINDS:
            print(kind, round(true_rate(kind), 1), flush=True)
        return
    held, ended, probes, known = [], [], [], []
    print("noise   held  confirmed  probes  knowing  ratio  minutes  half width %  low/true high/true")
    for kind in [kind for kind in KINDS if kind in sys.argv] or KINDS:
        began = time.perf_counter()
        rows = []
        for seed in range(many):
            found, end, server = search(kind, seed)
            own = sum(outcome.step.kind is StepKind.PROBE for outcome in found.outcomes)
            rows.append((end, own, knowing_probes(found.plan.start, TRUE[kind]), server.at_s / 60.0))
        covered = [bool(e.low and e.high and e.low <= TRUE[kind] <= e.high) for e, *_ in rows]
        if "wrong" in sys.argv:
            for (e, *_), is_covered in zip(rows, covered, strict=True):
                if not is_covered:
                    print("   wrong:", e, TRUE[kind])
        width = [100.0 * ((e.high / e.low) ** 0.5 - 1.0) for e, *_ in rows if e.low and e.high]
        held += covered
        probes += [row[1] for row in rows]
        known += [row[2] for row in rows]
        ended += [row[0].ending is RateEnding.CONFIRMED for row in rows]
        ratio = fmean(row[1] for row in rows) / fmean(row[2] for row in rows)
        low = median(e.low / TRUE[kind] for e, *_ in rows if e.low)
        high = median(e.high / TRUE[kind] for e, *_ in rows if e.high)
        figures = (
            f"{fmean(covered):7.3f}", f"{fmean(row[0].ending is RateEnding.CONFIRMED for row in rows):8.2f}",
            f"{fmean(row[1] for row in rows):8.1f}", f"{fmean(row[2] for row in rows):8.1f}", f"{ratio:6.2f}",
            f"{median(row[3] for row in rows):8.1f}", f"{median(width):8.1f}", f"  {low:.3f} {high:.3f}",
        )  # fmt: skip
        print(f"{kind:5} {' '.join(figures)}  ({time.perf_counter() - began:.1f} s)", flush=True)
    print(f"held {sum(held)} of {len(held)}, confirmed {fmean(ended):.3f}, probes {sum(probes) / sum(known):.2f} times")
    for line in overloads(many) if "overload" in sys.argv else ():
        print(line, flush=True)


if __name__ == "__main__":
    main()
