"""Figures, effects and moments in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from pgtop_tune.base import units
from pgtop_tune.compare.figure_rows import FigureRow
from pgtop_tune.compare.sides.figures import Figure, WaitRow
from pgtop_tune.compare.sides.material import ComparedRun, Material
from pgtop_tune.model.events import Event

_UNITS: Final[Mapping[str, Callable[[float | None], str]]] = {
    "1/s": lambda value: units.UNKNOWN if value is None else f"{value:.1f}",
    "ms": units.ms,
    "bytes": units.size,
    "bytes/s": units.size,
    "%": units.percent,
}
_SUFFIXES: Final[Mapping[str, str]] = {"1/s": "", "ms": ", ms", "bytes": ", B", "bytes/s": ", B/s", "%": ", %"}


def title(figure: Figure) -> str:
    """With its unit."""
    return figure.title + _SUFFIXES[figure.unit]


def value(figure: Figure, number: float | None) -> str:
    """A figure as a table has it."""
    return _UNITS[figure.unit](number)


def effect(row: FigureRow) -> str:
    """The change: "+3.9 %", "−2.1 pt"."""
    if row.change is None:
        return units.UNKNOWN
    return f"{signed(100 * row.change[0])} {_sign_of(row)}"


def interval(row: FigureRow) -> str:
    """Its interval."""
    if row.change is None or row.change[1] is None or row.change[2] is None:
        return units.UNKNOWN
    return f"{signed(100 * row.change[1])} … {signed(100 * row.change[2])} {_sign_of(row)}"


def confidence(rows: Iterable[FigureRow]) -> str:
    """Of the intervals of a table, as its heading: "98 % interval"."""
    found = next((row.effect.confidence for row in rows if row.effect is not None), 0.95)
    return f"{100 * found:.0f} % interval"


def _sign_of(row: FigureRow) -> str:
    return "%" if row.figure.points is None else "pt"


def signed(number: float) -> str:
    """With its sign, one digit behind the point as far as it says something."""
    return f"{number:+.0f}" if abs(number) >= 99.95 else f"{number:+.1f}"


def wait_change(row: WaitRow) -> str:
    """Milliseconds more or less."""
    return wait_ms(row.change_ms, "+.3f")


def wait_ms(number: float | None, form: str = ".3f") -> str:
    """Milliseconds of a wait; a dash where the side does not tell it."""
    return units.UNKNOWN if number is None else format(number, form)


def shares(low: float, high: float) -> str:
    """An interval: "+1.0 … +3.0 %"."""
    return f"{signed(100.0 * low)} … {signed(100.0 * high)} %"


def wait_interval(row: WaitRow) -> str:
    """As per cent of A's latency."""
    found = row.effect
    if found is None or found.low is None or found.high is None:
        return ""
    return shares(found.low, found.high)


def moment(at_ms: int) -> str:
    """A moment by the clock of this machine: "2026-11-21 22:00:07"."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return units.UNKNOWN


def side(material: Material) -> str:
    """A side in one line: name, when, how long, runs."""
    runs = len([run for run in material.runs if run.key.name])
    count = {0: "no load", 1: "1 run"}.get(runs, f"{runs} runs")
    return f"{material.name}: {moment(material.began_ms)}, {units.clock(material.seconds)}, {count}"


def run_lengths(runs: tuple[ComparedRun, ...]) -> str:
    """Seconds measured, and what was left out as warm-up."""
    words = []
    for run in runs:
        cut = f" ({run.warm_up_s:.0f} s at the start left out)" if run.warm_up_s else ""
        words.append(f"{run.seconds:.0f} s{cut}")
    return ", ".join(words)


def event_words(event: Event, began_ms: int) -> tuple[str, str, str]:
    """When since the begin, what kind, what."""
    return units.clock((event.at_ms - began_ms) / 1000.0), str(event.kind), event.text
