"""Runs one after the other: steps of a load, several profiles, several endpoints. A failed one is a result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.experiment.load_run import BeforeEachRun, Cancelled, LoadRun, RunCell
from pgtop_tune.experiment.steps import Steps
from pgtop_tune.metrics.knee import Knee, LoadPoint, knee_of_clients, knee_of_rates
from pgtop_tune.metrics.latency import P99
from pgtop_tune.model.run_json import as_json, plain
from pgtop_tune.model.run_result import RunResult

FORMAT: Final = "pgtop-tune-series/1"


class StepCurve(Struct, frozen=True):
    """Throughput over the steps of one load.

    Attributes:
        axis: "clients" or "rate".
    """

    endpoint: str
    profile: str
    axis: str
    points: tuple[LoadPoint, ...]
    knee: Knee


class Series:
    """Cells measured in order.

    Args:
        run: Makes one run.
        cells: What is to be measured.
        before: What precedes each.
        began: Takes the number of the cell from 0, and the cell.
        ended: Takes each result as it comes.

    Attributes:
        results: So far, one per cell, in order.
    """

    def __init__(
        self,
        run: LoadRun,
        cells: Sequence[RunCell],
        before: BeforeEachRun,
        began: Callable[[int, RunCell], None],
        ended: Callable[[RunResult], None],
    ) -> None:
        self._run = run
        self._cells = tuple(cells)
        self._before = before
        self._began = began
        self._ended = ended
        self.results: list[RunResult] = []

    async def measure(self) -> None:
        """Measures all cells.

        Raises:
            asyncio.CancelledError: It was stopped; the run under way is in the results, marked partial.
        """
        for number, cell in enumerate(self._cells):
            self._began(number, cell)
            try:
                result = await self._run.measure(cell, self._before)
            except Cancelled as cancelled:
                self._keep(cancelled.partial)
                raise
            self._keep(result)

    def _keep(self, result: RunResult) -> None:
        self.results.append(result)
        self._ended(result)


def curves(results: Sequence[RunResult], steps: Steps | None) -> tuple[StepCurve, ...]:
    """One curve per endpoint and profile; none without steps."""
    if steps is None:
        return ()
    groups: dict[tuple[str, str], list[RunResult]] = {}
    for result in results:
        groups.setdefault((result.endpoint, result.profile), []).append(result)
    return tuple(_curve(*names, steps.axis, group) for names, group in groups.items())


def _curve(endpoint: str, profile: str, axis: str, results: Sequence[RunResult]) -> StepCurve:
    points = tuple(_point(result, axis) for result in results)
    knee = knee_of_clients(points) if axis == "clients" else knee_of_rates(points)
    return StepCurve(endpoint=endpoint, profile=profile, axis=axis, points=points, knee=knee)


def _point(result: RunResult, axis: str) -> LoadPoint:
    load = float(result.spec.clients if axis == "clients" else result.spec.rate_per_s or 0.0)
    tps = None if result.partial else result.tps
    return LoadPoint(load=load, tps=tps, error_tps=result.steady.error_tps, p99_ms=result.percentile(P99.per_cent))


def series_json(results: Sequence[RunResult], steps: Steps | None, *, single: bool) -> dict[str, Any]:
    """One object: the record itself of a single run, else all of them with their curves."""
    if single and results:
        return as_json(results[0])
    return {
        "format": FORMAT,
        "runs": [as_json(result) for result in results],
        "curves": [plain(curve) for curve in curves(results, steps)],
    }
