"""Throughput and latency over the steps of a load as lines of text."""

from __future__ import annotations

from typing import Final

from pgtop_tune import units
from pgtop_tune.experiment.series import StepCurve

BAR: Final = 40
_KNEE: Final = "<- knee"


def chart_lines(curve: StepCurve, block: str = "#") -> list[str]:
    """A bar per step, as long as its throughput, with p99 beside it; the knee is marked and named.

    Args:
        block: What bars are made of.
    """
    most = max((point.tps or 0.0 for point in curve.points), default=0.0)
    marked = False
    lines = [f"{curve.axis:>8}  {'tps':>9}  {'':<{BAR}}  {'p99, ms':>8}"]
    for point in curve.points:
        if point.tps is None:
            lines.append(f"{point.load:>8g}  {'failed':>9}")
            continue
        bar = block * max(round(BAR * point.tps / most), 1 if point.tps else 0) if most else ""
        mark = f"  {_KNEE}" if point.load == curve.knee.load and not marked else ""
        marked = marked or bool(mark)
        lines.append(f"{point.load:>8g}  {point.tps:>9.1f}  {bar:<{BAR}}  {units.ms(point.p99_ms):>8}{mark}")
    return [*lines, curve.knee.reason]
