"""Repeats of a series: in which order cells are run again, until when, and what all runs of a cell say together.

Round by round there and back (c1 … ck, ck … c1): two rounds are a palindrome, so that a drift weighs on all cells
alike. What cells show goes to the noise store, and what it knows says beforehand whether a goal can be reached.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base import units
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.units import counted
from pgtop_tune.compare.noise import (
    SHORTEST_S,
    CellOfRuns,
    LoadFingerprint,
    MeasuredRun,
    cell_of,
    known_spread,
    load_fingerprint,
    measured_run,
    more_runs,
    remember,
    to_keep,
)
from pgtop_tune.compare.sides.material import ComparedRun, Fact, Gathered, LoadKey, Material
from pgtop_tune.compare.statistics.effect import RunSpread, run_noise
from pgtop_tune.experiment.load_run import RunCell
from pgtop_tune.model.run_result import RunResult, as_json, plain

AT_MOST: Final = 12
"""Runs of each cell, where the operator sets no limit."""
FEWEST: Final = 2
"""Runs of each cell before its interval may end the repeats."""
_MOST: Final = 100
_GOAL: Final = re.compile(r"(?:±|\+/?-)?\s*(\d+(?:\.\d+)?)\s*%?")
_NARROWEST: Final = 0.001
_WIDEST: Final = 0.5


class Repetition(Struct, frozen=True):
    """The number of runs of each cell.

    Attributes:
        runs: At least so often.
        until: Half of the interval of each cell's mean, as a share, at which repeats end; None runs `runs` times.
        at_most: Runs of each cell at which they end all the same.
    """

    runs: int = 1
    until: float | None = None
    at_most: int = AT_MOST

    @property
    def most(self) -> int:
        """Run of each cell, at most."""
        return self.runs if self.until is None else self.at_most


def repetition(repeat: int | None, until: str | None, at_most: int | None) -> Repetition:
    """Return the repetition that the options ask for.

    Raises:
        UsageProblem: They contradict each other, or are no numbers.
    """
    if until is None:
        if at_most is not None:
            raise UsageProblem("--at-most is the limit of --until", "pass --repeat N, or --until '±2 %' --at-most N")
        return Repetition(runs=_checked("--repeat", repeat, 1))
    goal, most = parse_goal(until), _checked("--at-most", at_most, AT_MOST)
    runs = max(_checked("--repeat", repeat, FEWEST), FEWEST)
    if runs > most:
        raise UsageProblem(f"--repeat {runs} is above --at-most {most}", "raise the limit")
    return Repetition(runs=runs, until=goal, at_most=most)


def _checked(option: str, number: int | None, otherwise: int) -> int:
    if number is not None and not 1 <= number <= _MOST:
        raise UsageProblem(f"{option} {number} is not possible", f"choose 1 to {_MOST} runs of each cell")
    return otherwise if number is None else number


def parse_goal(text: str) -> float:
    """Return "±2 %", "2%" or "2" as a share.

    Raises:
        UsageProblem: It is none of them, or out of reach.
    """
    number = _GOAL.fullmatch(text.strip())
    goal = float(number[1]) / 100.0 if number else 0.0
    if not _NARROWEST <= goal <= _WIDEST:
        raise UsageProblem(f"{text!r} is not an interval", "write --until '±2 %', from 0.1 to 50 %")
    return goal


def there_and_back(cells: int) -> Iterator[tuple[int, ...]]:
    """Yield rounds without end: 0 … k, then k … 0."""
    while True:
        yield tuple(range(cells))
        yield tuple(reversed(range(cells)))


class Repeats:
    """The order of the runs, and the measurements of each cell.

    Args:
        cells: Each once.
        wish: The number of runs.

    Attributes:
        order: Number of the cell of each run so far.
    """

    def __init__(self, cells: Sequence[RunCell], wish: Repetition) -> None:
        self._cells = tuple(cells)
        self._wish = wish
        self._runs: list[list[MeasuredRun]] = [[] for _ in cells]
        self._loads: list[LoadFingerprint | None] = [None for _ in cells]
        self._known: list[RunSpread] = [RunSpread() for _ in cells]
        self._several = len({cell.target.name for cell in cells}) > 1
        self.order: list[int] = []

    def __iter__(self) -> Iterator[int]:
        """Yield numbers of cells; a round begins when all runs before it were taken."""
        for number, places in enumerate(there_and_back(len(self._cells))):
            if number >= self._wish.runs and (number >= self._wish.most or self.narrow or self.hopeless):
                return
            for cell_number in places:
                self.order.append(cell_number)
                yield cell_number

    def take(self, result: RunResult) -> None:
        """Take the run of the newest cell."""
        cell_number = self.order[-1]
        measured = measured_run(as_json(result))
        self._runs[cell_number].append(measured)
        if self._loads[cell_number] is None and (load := load_fingerprint(measured.side, measured.run)) is not None:
            load = replace(load, endpoint=result.endpoint if self._several else "")
            self._loads[cell_number], self._known[cell_number] = load, known_spread(load)

    def cells(self) -> tuple[CellOfRuns, ...]:
        """Return the results of each cell that was run."""
        return tuple(cell for _, cell in self._measured())

    def _measured(self) -> Iterator[tuple[RunCell, CellOfRuns]]:
        """Yield each cell that was run; its title tells it from the others."""
        of_all = zip(self._cells, self._runs, self._loads, self._known, strict=True)
        for cell, runs, load, history_spread in of_all:
            if runs:
                cell_of_runs = cell_of(runs, load, history_spread)
                where = cell.target.name if self._several else "", cell.configuration
                yield cell, replace(cell_of_runs, title=", ".join(filter(None, (cell_of_runs.title, *where))))

    def by_configuration(self) -> dict[str, dict[str, CellOfRuns]]:
        """Return the cells of each load by the name of their configuration; empty without configurations."""
        loads: dict[str, dict[str, CellOfRuns]] = {}
        for cell, measured in self._measured():
            if cell.configuration:
                load = measured.title.removesuffix(f", {cell.configuration}")
                loads.setdefault(load, {})[cell.configuration] = measured
        return loads

    @property
    def narrow(self) -> bool:
        """Return whether the interval of each cell is as narrow as wished."""
        return self._wish.until is not None and all(cell.narrow(self._wish.until) for cell in self.cells())

    @property
    def hopeless(self) -> bool:
        """Return whether the interval of a cell will never become narrow, or means nothing."""
        bound = any(all(run.bound_by_generator for run in runs) for runs in self._runs)
        return bound or any(cell.half is None for cell in self.cells())

    def outcome(self) -> tuple[str, ...]:
        """Return how the wish for narrow intervals ended, a line for each cell that missed it."""
        goal = self._wish.until
        if goal is None:
            return ()
        missed = [f"{cell.title}: {_missed(cell, goal)}" for cell in self.cells() if not cell.narrow(goal)]
        bound = [runs[0].run.key.title for runs in self._runs if runs and all(run.bound_by_generator for run in runs)]
        return (
            *missed,
            *(f"{title}: pgbench was the limit: repeats do not show the server" for title in bound),
        )

    def keep(self) -> str:
        """Keep the noise of each cell's runs in the noise store; return one line on a failure, or ""."""
        problems = [
            remember(load, to_keep(runs))
            for runs, load in zip(self._runs, self._loads, strict=True)
            if load is not None
        ]
        return next(filter(None, problems), "")

    def as_json(self) -> dict[str, Any]:
        """Return the part of the series' object."""
        cells = [plain(cell) | {"interval": plain(cell.interval)} for cell in self.cells()]
        return {"order": list(self.order), "cells": cells}


def _missed(cell: CellOfRuns, goal: float) -> str:
    if cell.half is None:
        return f"no interval after {counted(cell.runs_made, 'run')}, see the notes"
    more = cell.more(goal)
    needs = "more than 200 runs" if more is None else f"about {counted(more, 'more run')}"
    runs_made = counted(cell.runs, "run")
    return f"±{100 * cell.half:.1f} % after {runs_made}; ±{100 * goal:g} % needs {needs}"


# Whether a goal can be reached at all, before anything is run.


def load_before(facts: Sequence[Fact], cell: RunCell, *, several: bool, machine: str) -> LoadFingerprint | None:
    """Return the fingerprint that a cell's noise is kept under, before its first run; None where too little is known.

    Args:
        facts: Facts of the server, its machine and its data.
        several: Whether the load goes to one of several endpoints.
        machine: The machine of pgbench; "" beside us.
    """
    spec = cell.spec
    run = ComparedRun(
        began_ms=0,
        key=LoadKey(
            name=cell.profile_name or " ".join(script.name for script in cell.scripts) or "scripts",
            clients=spec.clients,
            rate_per_s=spec.rate_per_s,
            protocol=spec.protocol,
            connect_per_transaction=spec.connect_per_transaction,
            endpoint=cell.target.name if several else "",
        ),
        gathered=Gathered(),
        scripts=tuple(script.sha256 for script in cell.scripts if script.sha256),
    )
    side = Material(name="", began_ms=0, seconds=0.0, runs=(), facts=tuple(facts))
    fingerprint = load_fingerprint(side, run)
    return None if fingerprint is None else replace(fingerprint, generator=machine)


def check_length(cells: Sequence[RunCell], wish: Repetition) -> None:
    """Refuse a goal for runs that are too short to have an interval.

    Raises:
        UsageProblem: Names the length that it takes.
    """
    for cell in cells:
        if wish.until is not None and cell.spec.duration_s is not None and cell.spec.duration_s < SHORTEST_S:
            raise UsageProblem(
                f"runs of {cell.spec.duration_s} s have no interval: --until needs {SHORTEST_S:.0f} s",
                f"pass -T {SHORTEST_S:.0f} or more",
            )


def check_goal(
    cells: Sequence[RunCell], loads: Sequence[LoadFingerprint | None], wish: Repetition, warm_up_s: int = 0
) -> None:
    """Refuse a goal that the known noise of these loads puts out of reach.

    Args:
        loads: The load of each cell; None where too little is known.
        warm_up_s: The warm-up before each run.

    Raises:
        UsageProblem: Names the runs and the time that it takes.
    """
    if wish.until is None:
        return
    worst: tuple[int, LoadFingerprint] | None = None
    for load in loads:
        spread = known_spread(load)
        if load is None or not spread.degrees:
            continue
        needed = more_runs(run_noise((), (), history=spread), 0, wish.until) or _MOST + 1
        if needed > wish.at_most and (worst is None or needed > worst[0]):
            worst = needed, load
    if worst is not None:
        needed, load = worst
        seconds = sum((cell.spec.duration_s or 0) + warm_up_s for cell in cells) * needed if needed <= _MOST else 0
        time = f" ({units.duration(seconds)} of load for all cells)" if seconds else ""
        runs = f"more than {_MOST}" if needed > _MOST else f"about {needed}"
        raise UsageProblem(
            f"{load.title} is too noisy here for ±{100 * wish.until:g} %: it needs {runs} runs of each cell{time},"
            f" but the limit is {wish.at_most}",
            "use a wider interval, longer runs, or a larger --at-most",
        )
