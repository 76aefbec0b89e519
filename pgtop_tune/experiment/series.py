"""A series of runs, one after the other. A failed run is a result."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.units import COUNTS, quantity
from pgtop_tune.bench.profiles import BUILTIN_STATEMENTS, Profile, check_script, read_script, statements_in
from pgtop_tune.compare.statistics.scalability import Scalability, scalability
from pgtop_tune.experiment.attribution import known_mean
from pgtop_tune.experiment.load_run import BeforeEachRun, Cancelled, LoadRun, RunCell
from pgtop_tune.experiment.path import LoadTarget
from pgtop_tune.metrics.knee import Knee, LoadPoint, knee_of_clients, knee_of_rates
from pgtop_tune.metrics.load import P99
from pgtop_tune.model.bench import ABORTED, OVERLOADED, LoadSpec
from pgtop_tune.model.run_result import RunResult, ScriptFile, as_json, plain

# A list of clients or rates that a load goes through, one run after the other.

_MOST: Final = 100


class Steps(Struct, frozen=True):
    """The option of a load that changes from run to run.

    Attributes:
        axis: "clients" or "rate".
        values: The values in the order in which they are run.
        law: Whether the scalability law is fitted, too.
    """

    axis: str
    values: tuple[float, ...]
    law: bool = False

    def specs(self, spec: LoadSpec) -> tuple[LoadSpec, ...]:
        """Return the load at each step."""
        return tuple(_AXES[self.axis](spec, value) for value in self.values)


_AXES: Final[dict[str, Callable[[LoadSpec, float], LoadSpec]]] = {
    "clients": lambda spec, value: replace(spec, clients=int(value)),
    "rate": lambda spec, value: replace(spec, rate_per_s=value),
}


def parse_steps(text: str) -> Steps:
    """Return clients=1,2,4,8 or rate=100,200.

    Raises:
        UsageProblem: It is not of that form.
    """
    axis, equals, numbers = text.partition("=")
    axis = axis.strip()
    if not equals or axis not in _AXES:
        raise UsageProblem(f"{text!r} is not a list of steps", "write --steps clients=1,2,4,8 or --steps rate=100,200")
    values = tuple(value for word in numbers.split(",") if (value := quantity(word, COUNTS)) is not None)
    if len(values) != numbers.count(",") + 1:
        raise UsageProblem(f"{numbers!r} is not a list of numbers", "separate them by commas: 1,2,4,8, or 1k,2k")
    is_whole = axis != "clients" or all(value == int(value) for value in values if value < 1e9)
    if not 1 <= len(values) <= _MOST or not is_whole or not all(0 < value < 1e9 for value in values):
        raise UsageProblem(
            f"{numbers!r} cannot be steps", f"at most {_MOST} numbers above 0; whole numbers for clients"
        )
    return Steps(axis, values)


def knee_steps(typed: Steps | None, most: int) -> Steps:
    """Return the steps of --find-knee: the operator's, or 1, 2, 3, 4, 6, 8, 12 … up to `most` clients.

    Raises:
        UsageProblem: The operator's are rates.
    """
    if typed is not None and typed.axis != "clients":
        raise UsageProblem("--find-knee goes over clients", "pass --steps clients=1,2,4,8,16, or none")
    doubled = [float(2**power * factor) for power in range(12) for factor in (1.0, 1.5) if power or factor == 1.0]
    values = tuple(value for value in doubled if value <= most) if typed is None else typed.values
    return Steps("clients", values, law=True)


FORMAT: Final = "pgtop-tune-series/1"


class StepCurve(Struct, frozen=True):
    """Throughput over the steps of one load.

    Attributes:
        configuration: "" for the server as it is.
        axis: "clients" or "rate".
    """

    endpoint: str
    configuration: str
    profile: str
    axis: str
    points: tuple[LoadPoint, ...]
    knee: Knee
    scalability: Scalability | None = None

    @property
    def name(self) -> str:
        """Return the name in words."""
        return " ".join(filter(None, (self.endpoint, self.configuration, self.profile)))


class Series:
    """Cells measured in order.

    Args:
        run: Makes one run.
        cells: The runs to be made.
        before: The steps before each run.
        began: Takes the number of the run from 0, and its cell.
        ended: Takes each result as it comes.
        order: Numbers of the cells in the order of the runs, asked for one by one; None runs each once.

    Attributes:
        results: The results so far, in order.
    """

    def __init__(
        self,
        run: LoadRun,
        cells: Sequence[RunCell],
        before: BeforeEachRun,
        began: Callable[[int, RunCell], None],
        ended: Callable[[RunResult], None],
        order: Iterable[int] | None = None,
    ) -> None:
        self._run = run
        self._cells = tuple(cells)
        self._order = range(len(self._cells)) if order is None else order
        self._before = before
        self._began = began
        self._ended = ended
        self.results: list[RunResult] = []

    async def measure(self) -> None:
        """Measure all cells, up to one that a condition of the operator ends.

        Raises:
            asyncio.CancelledError: It was stopped; the run under way is in the results, marked partial.
        """
        for number, cell_number in enumerate(self._order):
            cell = self._cells[cell_number]
            self._began(number, cell)
            try:
                result = await self._run.measure(cell, self._before)
            except Cancelled as cancelled:
                self._keep(cancelled.partial)
                raise
            self._keep(result)
            if result.ended_for == ABORTED:
                return

    def _keep(self, result: RunResult) -> None:
        self.results.append(result)
        self._ended(result)


def curves(results: Sequence[RunResult], steps: Steps | None) -> tuple[StepCurve, ...]:
    """Return a curve per endpoint, configuration and profile, with the means of repeats; none without steps."""
    if steps is None:
        return ()
    groups: dict[tuple[str, str, str], list[RunResult]] = {}
    for result in results:
        groups.setdefault((result.endpoint, result.configuration, result.profile), []).append(result)
    return tuple(_curve(*names, steps, group) for names, group in groups.items())


def _curve(endpoint: str, configuration: str, profile: str, steps: Steps, results: Sequence[RunResult]) -> StepCurve:
    axis = steps.axis
    loads: dict[float, list[LoadPoint]] = {}
    for point in (_point(result, axis) for result in results):
        loads.setdefault(point.load, []).append(point)
    points = tuple(_together(repeats) for repeats in loads.values())
    knee = knee_of_clients(points) if axis == "clients" else knee_of_rates(points)
    measured = [(point.load, point.tps) for repeats in loads.values() for point in repeats if point.tps]
    return StepCurve(
        endpoint=endpoint,
        configuration=configuration,
        profile=profile,
        axis=axis,
        points=points,
        knee=knee,
        scalability=scalability(measured) if steps.law else None,
    )


def _point(result: RunResult, axis: str) -> LoadPoint:
    load = float(result.spec.clients if axis == "clients" else result.spec.rate_per_s or 0.0)
    tps = None if result.partial and result.ended_for != OVERLOADED else result.tps
    return LoadPoint(load=load, tps=tps, error_tps=result.steady.error_tps, p99_ms=result.percentile(P99.per_cent))


def _together(repeats: Sequence[LoadPoint]) -> LoadPoint:
    """Return one step: of repeats the means, over those that have a figure."""
    if len(repeats) == 1:
        return repeats[0]
    errors = [point.error_tps for point in repeats if point.error_tps is not None]
    return LoadPoint(
        load=repeats[0].load,
        tps=known_mean(point.tps for point in repeats),
        error_tps=math.hypot(*errors) / len(errors) if errors else None,
        p99_ms=known_mean(point.p99_ms for point in repeats),
    )


def series_json(
    results: Sequence[RunResult], steps: Steps | None, *, single: bool, repeats: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return one object: the record itself of a single run, else all of them with their curves.

    Args:
        repeats: The order of the runs, and what is known of each cell; None where each was run once.
    """
    if single and results:
        return as_json(results[0])
    return {
        "format": FORMAT,
        "runs": [as_json(result) for result in results],
        "curves": [plain(curve) for curve in curves(results, steps)],
        **(repeats or {}),
    }


# From what an operator asks to the runs that are to be made.


def cells(
    targets: Sequence[LoadTarget],
    profiles: Sequence[Profile],
    spec: LoadSpec,
    steps: Steps | None,
    *,
    clients: int | None = None,
    protocol: str | None = None,
    allow_shell: bool = False,
    configurations: Sequence[str] = ("",),
) -> tuple[RunCell, ...]:
    """Return each endpoint with each profile at each step under each configuration, in this order.

    Args:
        spec: The part of the load that all runs share.
        configurations: Their names; "" for the server as it is.
        clients, protocol: None takes what suits the profile; scripts of the operator's run as pgbench runs them.

    Raises:
        LoadProblem: A script that is not there, or that starts programs and may not.
    """
    run_cells = []
    for target in targets:
        for profile in profiles:
            base = spec_of(spec, profile, clients, protocol)
            scripts = scripts_of(base, profile, allow_shell=allow_shell)
            for step_spec in steps.specs(base) if steps else (base,):
                run_cells += [
                    RunCell(target=target, profile=profile, spec=step_spec, scripts=scripts, configuration=name)
                    for name in configurations
                ]
    return tuple(run_cells)


def spec_of(spec: LoadSpec, profile: Profile, clients: int | None, protocol: str | None) -> LoadSpec:
    """Return the load with its profile; clients and protocol as in `cells`."""
    return replace(
        spec,
        profile=profile.name,
        clients=clients or profile.clients(),
        protocol=protocol or ("simple" if spec.scripts else profile.protocol),
    )


def scripts_of(spec: LoadSpec, profile: Profile, *, allow_shell: bool) -> tuple[ScriptFile, ...]:
    """Return the scripts that will run, with the hashes of their files.

    Raises:
        LoadProblem: A script that is not there, or that starts programs and may not.
    """
    if profile.builtin and not spec.scripts:
        return (ScriptFile(profile.builtin, 1, statements=BUILTIN_STATEMENTS[profile.builtin]),)
    chosen = [(Path(script.file), script.weight) for script in spec.scripts]
    allowed = allow_shell or (profile.allow_shell and not chosen)
    if not chosen:
        chosen = [(script.file, script.weight) for script in profile.scripts]
    read = [(read_script(file), weight) for file, weight in chosen]
    for script, _ in read:
        check_script(script, allow_shell=allowed)
    return tuple(
        ScriptFile(name=script.file.name, weight=weight, sha256=script.sha256, statements=statements_in(script.text))
        for script, weight in read
    )
