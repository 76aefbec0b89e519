"""The line of an experiment above the footer: phase, arm, pair, time and estimate; at the end the verdict. Pure."""

from __future__ import annotations

from typing import Final

from pgtop_tune.runtime.experiment_control import ArmValues, ExperimentState
from pgtop_tune.safe_text import one_line
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line, fit
from pgtop_tune.tui.widgets.phrase import Phrase, fitting
from pgtop_tune.units import clock

_VALUE: Final = 24
_PHASES: Final = {"checking the values": "checking", "putting back": "restoring"}
_PHASE_CELLS: Final = 10
_PERCENT_CELLS: Final = 6
_STYLES: Final = {"better": "good", "worse": "critical", "equivalent": "strong"}
_WORDS: Final = {"better": "B is better", "worse": "B is worse", "equivalent": "A and B are equivalent within 2 %"}


def values_words(values: tuple[ArmValues, ...], glyphs: Glyphs) -> str:
    """What is compared: "work_mem 4MB→64MB"."""
    return ", ".join(
        f"{one_line(each.name, _VALUE * 2)} {one_line(each.a, _VALUE)}{glyphs.arrow}{one_line(each.b, _VALUE)}"
        for each in values
    )


def experiment_line(state: ExperimentState, cells: int, glyphs: Glyphs, details: str, keep: str) -> Line:
    """One line of at most so many cells; while it runs, each part has its place whatever it says.

    Args:
        state: The experiment.
        cells: Width.
        glyphs: Characters.
        details, keep: The keys.
    """
    if state.problem:
        return fit(((f" A/B: {one_line(state.problem, 4 * cells)}", "critical"),), cells)
    parts = _running(state, glyphs, details) if state.under_way else _over(state, glyphs, details, keep)
    return ((" ", PLAIN), *fitting(parts, cells - 1, ("  ", PLAIN)))


def _running(state: ExperimentState, glyphs: Glyphs, details: str) -> list[Phrase]:
    phase = _PHASES.get(state.phase, state.phase)
    return [
        Phrase((("A/B", "title"), (f" {state.arm or ' '}", _arm_style(state.arm)))),
        Phrase(((f"pair {state.pair:>2}" if state.pair else "       ", PLAIN),)),
        Phrase(((phase.ljust(_PHASE_CELLS), "label"),), 1),
        Phrase(((f"{_clock(state.elapsed_s)} {_clock(state.remaining_s)} left", PLAIN),)),
        Phrase(_estimate(state, glyphs), 0, _estimate(state, glyphs, short=True)),
        _details(details, 2),
        Phrase(((values_words(state.values, glyphs), "dim"),), 3),
    ]


def _over(state: ExperimentState, glyphs: Glyphs, details: str, keep: str) -> list[Phrase]:
    words = _WORDS.get(state.ending, state.ending)
    return [
        Phrase((("A/B", "title"), (f" {words}", _STYLES.get(state.ending, "warning")))),
        Phrase(_estimate(state, glyphs) if state.effect is not None else ()),
        Phrase(((keep, "key"), (" keep B", PLAIN)) if state.better and keep else ()),
        Phrase((("A is in force", PLAIN),), 1),
        _details(details, 1),
        Phrase(((values_words(state.values, glyphs), "dim"),), 2),
    ]


def _details(key: str, rank: int) -> Phrase:
    return Phrase(((key, "key"), (" details", PLAIN)), rank, ((key, "key"),)) if key else Phrase(())


def _arm_style(arm: str) -> str:
    return f"arm-{arm.lower()}" if arm else PLAIN


def _estimate(state: ExperimentState, glyphs: Glyphs, *, short: bool = False) -> Line:
    figure = state.figure
    if state.effect is None:
        return ((f"{figure} ", "label"), ("no pair yet".ljust(_cells(short=short)), "dim"))
    effect = f"{_percent(state.effect, glyphs)} %"
    if not short:
        bounds = [f"{_percent(each, glyphs) if each is not None else '?':>{_PERCENT_CELLS}}" for each in _bounds(state)]
        effect += f" ({f' {glyphs.ellipsis} '.join(bounds)})" if bounds else ""
    return ((f"{figure} ", "label"), (effect.ljust(_cells(short=short)), "strong"))


def _bounds(state: ExperimentState) -> tuple[float | None, ...]:
    """Of the interval; none before there is one."""
    return () if state.low is None and state.high is None else (state.low, state.high)


def _cells(*, short: bool) -> int:
    """Of the figures of an estimate."""
    return _PERCENT_CELLS + 2 if short else 3 * _PERCENT_CELLS + 8


def _percent(share: float, glyphs: Glyphs) -> str:
    return f"{100.0 * share:+{_PERCENT_CELLS}.1f}".replace("-", glyphs.minus)


def _clock(seconds: float) -> str:
    return clock(seconds).removeprefix("00:")
