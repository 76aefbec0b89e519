"""Outages of an experiment as the clients saw them: a line for a run, and a table over the repeats. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from pgtop_tune.base import units
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.tables import Table
from pgtop_tune.compare.reports.outages import commit_lines, silence_words
from pgtop_tune.compare.reports.sheets import Sheet
from pgtop_tune.experiment.plan.model import Cell
from pgtop_tune.experiment.plan.results import CausedOutage, CellResult
from pgtop_tune.model.outage import OutageResult

_REASON: Final = 200
_HEADS: Final = ("outage", "load", "runs", "down s", "p99 back s", "failed", "acknowledged", "missing", "in doubt")
_OVER_REPEATS: Final = "down and p99 back: smallest, median and largest of the runs, from the first error of a client"


def outage_words(result: OutageResult, caused: CausedOutage) -> str:
    """Return an outage in one line."""
    if not result.outages:
        parts = [silence_words(result) or "no client was lost"]
    else:
        down, back = down_s(result), back_s(result)
        parts = ["downtime unknown" if down is None else f"down {units.decimal(down, 3)} s"]
        parts += ["p99 not known to be back" if back is None else f"p99 back after {units.decimal(back, 1)} s"]
        parts += [units.counted(_failed(result), "failed transaction")]
    parts += commit_lines(result.commits)
    parts += [f"a server did not come back at once: {one_line(caused.problem, _REASON)}"] if caused.problem else []
    return one_line("; ".join(parts), 2 * _REASON)


def down_s(result: OutageResult) -> float | None:
    """Return how long the clients got no commit, all outages of the run together; None where one is not known."""
    return None if _waited(result) else _sum([row.down_s for row in result.outages])


def back_s(result: OutageResult) -> float | None:
    """Return the time from the first error until p99 was back; None where it was not, or that is not known."""
    if not result.outages:
        return None if _waited(result) else 0.0
    recovered_ms = result.outages[-1].recovered_ms
    return None if recovered_ms is None else (recovered_ms - result.outages[0].span.first_error_ms) / 1000.0


def _waited(result: OutageResult) -> bool:
    """Return whether clients were not lost, and waited for an answer instead."""
    return not result.outages and bool(result.silent_s or result.waiting_clients)


def outage_sheet(cells: Sequence[tuple[Cell, CellResult]]) -> Sheet | None:
    """Return the outages down, with the figures over their repeats; None where no cell has one."""
    groups: dict[tuple[str, str], list[tuple[Cell, CellResult]]] = {}
    for cell, result in cells:
        if cell.outage:
            load = f"{cell.arm}, scale {cell.scale}, {cell.endpoint}, {cell.profile}, {cell.clients} clients"
            groups.setdefault((cell.outage, load), []).append((cell, result))
    if not groups:
        return None
    rows = tuple((one_line(outage, 60), one_line(load, 90), *_figures(runs)) for (outage, load), runs in groups.items())
    notes = [one_line(note, _REASON) for runs in groups.values() for note in _notes(runs)]
    return Sheet("outages", (), Table(_HEADS, rows, frozenset(range(2, len(_HEADS)))), (_OVER_REPEATS, *notes))


def _figures(runs: Sequence[tuple[Cell, CellResult]]) -> Iterator[str]:
    outages = [result.outage for _, result in runs if result.outage is not None]
    yield f"{len(outages)} of {len(runs)}"
    yield _range([down_s(outage) for outage in outages], 3)
    yield _range([back_s(outage) for outage in outages], 1)
    yield str(sum(map(_failed, outages))) if outages else units.UNKNOWN
    commits = [outage.commits for outage in outages]
    if not commits or any(run_commits.missing is None for run_commits in commits):
        yield from (units.UNKNOWN,) * 3
    else:
        yield str(sum(run_commits.acknowledged for run_commits in commits))
        yield str(sum(run_commits.missing or 0 for run_commits in commits))
        yield str(sum(run_commits.in_doubt for run_commits in commits))


def _notes(runs: Sequence[tuple[Cell, CellResult]]) -> Iterator[str]:
    """Yield what a table over repeats would hide: runs without figures, and each run with missing commits."""
    for cell, result in runs:
        name = f"cell {cell.number}, {cell.outage}, repeat {cell.repeat}"
        if result.reason:
            yield f"{name}: {result.reason}"
        if result.outage is None:
            continue
        if result.outage.commits.missing != 0 or result.outage.commits.unknown_clients:
            yield f"{name}: {'; '.join(commit_lines(result.outage.commits))}"
        outages = result.outage.outages
        if len(outages) > 1:
            # One was caused: what came after it may have another reason.
            yield f"{name}: clients were lost {len(outages)} times, at last: {outages[-1].span.reason}"
        if silence := silence_words(result.outage):
            yield f"{name}: {silence}"
        if outages and outages[-1].recovered_ms is None:
            yield f"{name}: p99 is not back: {outages[-1].recovery}"
        if result.caused is not None and result.caused.problem:
            yield f"{name}: a server did not come back at once: {result.caused.problem}"


def _range(values: Sequence[float | None], digits: int) -> str:
    """Return "0.512 0.600 0.731": smallest, median and largest; unknown where one is."""
    known_values = [value for value in values if value is not None]
    if not known_values or len(known_values) < len(values):
        return units.UNKNOWN
    figures = (
        (min(known_values), median(known_values), max(known_values)) if len(known_values) > 1 else (known_values[0],)
    )
    return " ".join(units.decimal(figure, digits) for figure in figures)


def _failed(result: OutageResult) -> int:
    return sum(row.failed_transactions for row in result.outages)


def _sum(values: Sequence[float | None]) -> float | None:
    return None if None in values else sum(filter(None, values))
