"""The line of an experiment above the footer: phase, arm, pair, time and estimate; at the end the verdict. Pure."""

from __future__ import annotations

from typing import Final

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import clock
from pgtop_tune.metrics.durability import switched_risks
from pgtop_tune.runtime.experiment_control import KILLED, ArmValues, ExperimentState
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line, clip, fit, width
from pgtop_tune.tui.widgets.phrase import Phrase, fitting

_VALUE: Final = 24
_PHASES: Final = {
    "checking the values": "checking",
    "putting back": "restoring",
    "copying the server": "copying",
    "cloning the copy": "cloning",
    "starting both copies": "starting",
    "exchanging the settings of the copies": "exchanging",
    "removing the copies": "removing",
}
_PHASE_CELLS: Final = 10
_BY_TURNS: Final = "A/B"
_STEPS: Final = {"tuning": "step"}
_NOTHING_YET: Final = {"tuning": "unconfirmed"}
"""By kind of experiment, where they are no pairs."""
_GAP: Final = "  "
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
        return fit(((f" {state.kind}: {one_line(state.problem, 4 * cells)}", "critical"),), cells)
    parts = _running(state, glyphs, details, cells - 1) if state.under_way else _over(state, glyphs, details, keep)
    values = Phrase(((values_words(state.values, glyphs), "dim"),), 3)
    # The interval comes before the values, which the details have, too.
    whole = sum(width(part.line) + len(_GAP) for part in (*parts, values) if part.line)
    return ((" ", PLAIN), *fitting([*parts, values] if whole < cells else parts, cells - 1, (_GAP, PLAIN)))


def switched_danger(state: ExperimentState, cells: int, glyphs: Glyphs) -> Line | None:
    """What has the place of the banner over the screen while the other arm is in force: no switch moves the panes.

    None where neither arm can lose data, and for kinds that change nothing on this server.
    """
    if not state.under_way or state.kind != _BY_TURNS:
        return None
    found = switched_risks((each.name, each.a, each.b) for each in state.values)
    if not found:
        return None
    words = f" {glyphs.separator} ".join(f"{risk.name}={risk.value} can lose {risk.loss}" for risk in found)
    return ((clip(f" {glyphs.warning} by turns: {words}".replace("×", glyphs.times), cells), "warning"),)


def _running(state: ExperimentState, glyphs: Glyphs, details: str, cells: int) -> list[Phrase]:
    """With the phase, unless the interval takes its room."""
    parts = _parts(state, glyphs, details, room=True)
    needed = sum(
        width(part.short if part.rank and part.short else part.line) + len(_GAP) for part in parts if part.line
    )
    fits = state.effect is None or needed - len(_GAP) <= cells
    return parts if fits else _parts(state, glyphs, details, room=False)


def _parts(state: ExperimentState, glyphs: Glyphs, details: str, *, room: bool) -> list[Phrase]:
    phase = _PHASES.get(state.phase, one_line(state.phase, _VALUE))
    arm: Line = ((f" {state.arm or ' '}", _arm_style(state.arm)),) if state.kind == _BY_TURNS else ()
    return [
        Phrase(((state.kind, "title"), *arm)),
        *_where(state),
        Phrase(((_place(state), PLAIN),)),
        Phrase(((phase.ljust(_PHASE_CELLS), "label"),) if room else (), 1),
        Phrase(((_times(state, room=room), PLAIN),)),
        Phrase(_estimate(state, glyphs), 0, _estimate(state, glyphs, short=True)),
        _details(details, 2),
    ]


def _place(state: ExperimentState) -> str:
    if state.of:
        return f"cell {state.pair:>{len(str(state.of))}}/{state.of}"
    each = _STEPS.get(state.kind, "pair")
    return f"{each} {state.pair:>2}" if state.pair else " " * (len(each) + 3)


def _times(state: ExperimentState, *, room: bool) -> str:
    if room:
        return f"{_clock(state.elapsed_s)} {_clock(state.remaining_s)} left"
    return f"{_clock(state.elapsed_s)} of {_clock(state.elapsed_s + state.remaining_s)}"


def _over(state: ExperimentState, glyphs: Glyphs, details: str, keep: str) -> list[Phrase]:
    words = _WORDS.get(state.ending, state.ending)
    put_back = state.kind == _BY_TURNS and state.ending != KILLED
    return [
        Phrase(((state.kind, "title"), (f" {words}", _STYLES.get(state.ending, "warning")))),
        *_where(state),
        Phrase(_verdict_estimate(state, glyphs) if state.effect is not None else ()),
        Phrase(((keep, "key"), (" keep B", PLAIN)) if state.better and keep else ()),
        Phrase((("values are put back", PLAIN),) if put_back else (), 2),
        _details(details, 1),
    ]


def _where(state: ExperimentState) -> list[Phrase]:
    """Which other program runs it."""
    short = state.where.replace("process", "pid")
    return [Phrase(((state.where, "strong"),), 1, ((short, "strong"),))] if state.where else []


def _details(key: str, rank: int) -> Phrase:
    return Phrase(((key, "key"), (" details", PLAIN)), rank, ((key, "key"),)) if key else Phrase(())


def _arm_style(arm: str) -> str:
    return f"arm-{arm.lower()}" if arm else PLAIN


def _estimate(state: ExperimentState, glyphs: Glyphs, *, short: bool = False) -> Line:
    figure = state.figure
    if state.effect is None:
        nothing = "not judged" if state.of else _NOTHING_YET.get(state.kind, "no pair yet")
        return ((f"{figure} ", "label"), (nothing.ljust(_cells(short=short)), "dim"))
    effect = f"{_percent(state.effect, glyphs)} %"
    if not short:
        bounds = [f"{_percent(each, glyphs) if each is not None else '?':>{_PERCENT_CELLS}}" for each in _bounds(state)]
        effect += f" ({f' {glyphs.ellipsis} '.join(bounds)})" if bounds else ""
    return ((f"{figure} ", "label"), (effect.ljust(_cells(short=short)), "strong"))


def _verdict_estimate(state: ExperimentState, glyphs: Glyphs) -> Line:
    """The same once nothing moves any more: without room for other figures."""
    (figure, label), (effect, style) = _estimate(state, glyphs)
    return ((figure, label), (" ".join(effect.split()).replace("( ", "("), style))


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
