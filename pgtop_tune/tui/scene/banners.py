"""The lines of a scene that come and go: the bottleneck, marks, a replay, a pending change set, an experiment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import clock, wall_clock, wall_moment
from pgtop_tune.changes.model.change_set import value_before
from pgtop_tune.diagnosis.finding import Diagnosis, Finding, FindingKind
from pgtop_tune.metrics.durability import at_risk, switched_risks
from pgtop_tune.runtime.experiment_control import KILLED, ArmValues, ExperimentState
from pgtop_tune.runtime.ports import TransportState
from pgtop_tune.runtime.session import Session
from pgtop_tune.runtime.window import Marks, Window
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line, clip, ellipsized, fit, text_width, width
from pgtop_tune.tui.widgets.phrase import Phrase, fitting, lasting

if TYPE_CHECKING:
    from pgtop_tune.changes.confirm.pending_sets import Pending

if TYPE_CHECKING:
    from pgtop_tune.changes.confirm.pending_sets import Pending
    from pgtop_tune.changes.model.change_set import Change

# The line of the marked windows.


def marks_line(marks: Marks, cells: int, glyphs: Glyphs, began_ms: float, begin: str, end: str, table: str) -> Line:
    """Return one line of at most so many cells.

    Args:
        began_ms: When the session's clock was 0, see `began_ms`.
        begin, end, table: The keys that set a begin, an end, and open the table.
    """
    title: Line = ((" marks  ", "title"),)
    phrases = [*_windows(marks, glyphs, began_ms), *_following(marks, begin, end, table)]
    return (*title, *fitting(phrases, cells - 8, ("   ", "dim")))


def began_ms(session: Session) -> float:
    """Return milliseconds since the epoch at the session's 0: windows are told in times of day, as charts are."""
    return 0.0 if session.now is None else session.now.taken_at_ms - 1000.0 * session.now.elapsed_s


def _windows(marks: Marks, glyphs: Glyphs, began_ms: float) -> Iterator[Phrase]:
    alone = len(marks.windows) == 1 and marks.begun_s is None
    names = ("window",) if alone else ("A", "B")
    for name, window in zip(names, marks.windows, strict=False):
        label, span = (f"{name} ", "label"), span_words(window, began_ms)
        yield Phrase((label, (span, "strong")), 0, (label, (_span(window, began_ms), "strong")))
    if marks.begun_s is not None:
        since = _time_of_day(marks.begun_s, began_ms)
        yield Phrase(((f"{names[len(marks.windows)]} ", "label"), (f"{since}{glyphs.ellipsis}", "strong")))


def _following(marks: Marks, begin: str, end: str, table: str) -> Iterator[Phrase]:
    """Yield what the keys do next."""
    if marks.begun_s is not None:
        yield _key(end, "ends it here", "ends it", 1)
    elif len(marks.windows) == 1:
        yield _key(table, "compare with the time before", "compare", 1)
        yield _key(begin, "starts window B", "a second", 2)
    else:
        yield _key(table, "shows the differences", "compare", 1)
        yield _key(begin, "starts over", "anew", 2)
    yield _key("Esc", "clears", "clears", 3)


def _key(key: str, text: str, short: str, rank: int) -> Phrase:
    return Phrase(((key, "key"), (f" {text}", "dim")), rank, ((key, "key"), (f" {short}", "dim")))


def span_words(window: Window, began_ms: float) -> str:
    """Return `12:40:10–12:41:40 (1m30s)`."""
    return f"{_span(window, began_ms)} ({lasting(window.seconds)})"


def _span(window: Window, began_ms: float) -> str:
    since, until = (_time_of_day(at_s, began_ms) for at_s in (window.since_s, window.until_s))
    return f"{since}–{until}"


def _time_of_day(at_s: float, began_ms: float) -> str:
    return wall_clock(round(began_ms + 1000.0 * at_s))


# Where a replay stands, in one line: playing or not, position and length, speed, a bar.

_ROOM_FOR_TIME: Final = 70
_ROOM_FOR_DATE: Final = 100
_LEAST_BAR: Final = 4


def transport_line(state: TransportState, cells: int, glyphs: Glyphs, shown_ms: int | None = None) -> Line:
    """Return one line of so many cells.

    Args:
        state: State of the replay.
        cells: Width.
        glyphs: For the bar.
        shown_ms: When the frame shown was taken, milliseconds since the epoch; None before the first.
    """
    figures = _figures(state, cells, glyphs, shown_ms)
    room = cells - width(figures) - 1
    if room < _LEAST_BAR:
        return fit(figures, cells)
    share = state.position_s / state.length_s if state.length_s > 0 else 1.0
    done = min(max(round(share * (room - 1)), 0), room - 1)
    played, remaining = glyphs.rule * done, glyphs.rule * (room - 1 - done)
    return (*figures, (played, "series-1"), (glyphs.bullet, "strong"), (remaining, "dim"))


def moment_of_bar(state: TransportState, cells: int, glyphs: Glyphs, shown_ms: int | None, x: int) -> float | None:
    """Return the position in the replay that a cell of `transport_line` stands for; None beside the bar."""
    start = width(_figures(state, cells, glyphs, shown_ms))
    room = cells - start - 1
    if room < _LEAST_BAR or not start <= x < start + room:
        return None
    return state.length_s * (x - start) / (room - 1)


def _figures(state: TransportState, cells: int, glyphs: Glyphs, shown_ms: int | None) -> Line:
    doing, style = _doing(state)
    return (
        (" replay ", "title"), (doing.ljust(8), style), (clock(state.position_s), "strong"),
        (f" / {clock(state.length_s)}  ", PLAIN),
        *_taken(shown_ms, cells), (f"{state.speed:g}{glyphs.times} ".ljust(7), PLAIN),
    )  # fmt: skip


def _taken(shown_ms: int | None, cells: int) -> Line:
    """Return the moment by the calendar, in the time zone of whoever looks; with little room only the time of day."""
    if shown_ms is None or cells < _ROOM_FOR_TIME:
        return ()
    text = wall_moment(shown_ms) if cells >= _ROOM_FOR_DATE else wall_clock(shown_ms)
    return ((f"{text}  ", "label"),)


def _doing(state: TransportState) -> tuple[str, str]:
    if state.at_end and state.growing and not state.paused:
        return "follows", "good"
    if state.at_end:
        return "end", "warning"
    return ("paused", "warning") if state.paused else ("playing", "good")


# A change set that is pending, and a change in a few words.


def brought(change: Change) -> str:
    """Return the value that a change brought: as read back, or as requested where it waits for a restart."""
    return change.value if change.message and change.value is not None else change.shown_after


def change_text(change: Change) -> str:
    """Return a change in a few words: "max_wal_size 1GB→16GB"."""
    return f"{change.name} {value_before(change)}→{brought(change)}"


def pending_line(pending: Pending, now_ms: int, cells: int, glyphs: Glyphs, keep: str = "Y", undo: str = "u") -> Line:
    """Return one line of at most so many cells.

    Args:
        pending: The set that awaits confirmation.
        now_ms: Milliseconds since the epoch.
        cells: Width.
        glyphs: Characters.
        keep, undo: The keys.
    """
    changes = "; ".join(change_text(change) for change in pending.changes).replace("→", glyphs.arrow)
    if pending.reverting:
        failed = f" ({pending.problem}; retrying)" if pending.problem else ""
        return fit(((f" reverting: {pending.reverting}{failed}: {changes}", "critical"),), cells)
    left_s = pending.remaining_s(now_ms)
    wires = "" if not pending.wires else f"or if {' '.join(wire.text for wire in pending.wires)}"
    adopted = f"adopted from {pending.adopted_from}" if pending.adopted_from else ""
    parts = (
        Phrase(((f"auto-revert in {left_s:.0f} s", "critical" if left_s < 10 else "warning"),)),
        Phrase(((keep, "key"), (" confirm", PLAIN))),
        Phrase(((undo, "key"), (" undo", PLAIN))),
        Phrase(((pending.problem, "critical"),) if pending.problem else (), 1),
        Phrase(((changes, "strong"),), 1),
        Phrase(((f"{glyphs.separator} {adopted}", "warning"),) if adopted else (), 2),
        Phrase(((f"{glyphs.separator} {wires}", "dim"),) if wires else (), 3),
    )
    return ((" ", PLAIN), *fitting(parts, cells - 1, ("  ", PLAIN)))


# The line of an experiment above the footer: phase, arm, pair, time and estimate; at the end the verdict. Pure.

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
    """Return the values compared: "work_mem 4MB→64MB"."""
    return ", ".join(
        f"{one_line(value.name, _VALUE * 2)} {one_line(value.a, _VALUE)}{glyphs.arrow}{one_line(value.b, _VALUE)}"
        for value in values
    )


def experiment_line(state: ExperimentState, cells: int, glyphs: Glyphs, details: str, keep: str) -> Line:
    """Return one line of at most so many cells; while it runs, each part has its place whatever it says.

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
    needed = sum(width(part.line) + len(_GAP) for part in (*parts, values) if part.line)
    return ((" ", PLAIN), *fitting([*parts, values] if needed < cells else parts, cells - 1, (_GAP, PLAIN)))


def switched_danger(state: ExperimentState, cells: int, glyphs: Glyphs) -> Line | None:
    """Return the line in place of the danger banner while the other arm is in force: no switch moves the panes.

    None where neither arm can lose data, and for kinds that change nothing on this server.
    """
    if not state.under_way or state.kind != _BY_TURNS:
        return None
    risks = switched_risks((value.name, value.a, value.b) for value in state.values)
    if not risks:
        return None
    text = f" {glyphs.separator} ".join(f"{risk.name}={risk.value} can lose {risk.loss}" for risk in risks)
    return ((clip(f" {glyphs.warning} by turns: {text}".replace("×", glyphs.times), cells), "warning"),)


def _running(state: ExperimentState, glyphs: Glyphs, details: str, cells: int) -> list[Phrase]:
    """Return the parts with the phase, unless the interval takes its room."""
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
    unit = _STEPS.get(state.kind, "pair")
    return f"{unit} {state.pair:>2}" if state.pair else " " * (len(unit) + 3)


def _times(state: ExperimentState, *, room: bool) -> str:
    if room:
        return f"{_clock(state.elapsed_s)} {_clock(state.remaining_s)} left"
    return f"{_clock(state.elapsed_s)} of {_clock(state.elapsed_s + state.remaining_s)}"


def _over(state: ExperimentState, glyphs: Glyphs, details: str, keep: str) -> list[Phrase]:
    verdict = _WORDS.get(state.ending, state.ending)
    put_back = state.kind == _BY_TURNS and state.ending != KILLED
    return [
        Phrase(((state.kind, "title"), (f" {verdict}", _STYLES.get(state.ending, "warning")))),
        *_where(state),
        Phrase(_verdict_estimate(state, glyphs) if state.effect is not None else ()),
        Phrase(((keep, "key"), (" keep B", PLAIN)) if state.better and keep else ()),
        Phrase((("values restored", PLAIN),) if put_back else (), 2),
        _details(details, 1),
    ]


def _where(state: ExperimentState) -> list[Phrase]:
    """Return the other program that runs the experiment."""
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
        bounds = [
            f"{_percent(bound, glyphs) if bound is not None else '?':>{_PERCENT_CELLS}}" for bound in _bounds(state)
        ]
        effect += f" ({f' {glyphs.ellipsis} '.join(bounds)})" if bounds else ""
    return ((f"{figure} ", "label"), (effect.ljust(_cells(short=short)), "strong"))


def _verdict_estimate(state: ExperimentState, glyphs: Glyphs) -> Line:
    """Return the estimate at the end, without room for other figures."""
    (figure, label), (effect, style) = _estimate(state, glyphs)
    return ((figure, label), (" ".join(effect.split()).replace("( ", "("), style))


def _bounds(state: ExperimentState) -> tuple[float | None, ...]:
    """Return the bounds of the interval; none before there is one."""
    return () if state.low is None and state.high is None else (state.low, state.high)


def _cells(*, short: bool) -> int:
    """Return the cells of an estimate's figures."""
    return _PERCENT_CELLS + 2 if short else 3 * _PERCENT_CELLS + 8


def _percent(share: float, glyphs: Glyphs) -> str:
    return f"{100.0 * share:+{_PERCENT_CELLS}.1f}".replace("-", glyphs.minus)


def _clock(seconds: float) -> str:
    return clock(seconds).removeprefix("00:")


FINDING_STYLES: Final[Mapping[FindingKind, str]] = {
    FindingKind.OUTAGE: "critical", FindingKind.LIMIT: "warning", FindingKind.LATENCY: "strong",
    FindingKind.NOTE: PLAIN,
}  # fmt: skip
"""Red is kept for outages."""
_LEAST: Final = 40
"""Cells of a sentence that come before keys beside it."""
_ROOMY: Final = 100
_FOR_KEYS: Final = 36
_FOR_SHORT_KEYS: Final = 24
_FOR_FIX: Final = 7
"""Cells that are kept for keys beside a sentence: on a roomy line, on another one, and beside its short form."""


def finding_line(
    diagnosis: Diagnosis | None, cells: int, glyphs: Glyphs, list_key: str = "", deed: tuple[str, str] = ("", "")
) -> Line:
    """Return the line of the bottleneck, at most so many cells.

    Args:
        diagnosis: Of the moment shown; None before there is one.
        cells: Width.
        glyphs: Characters.
        list_key: Key that opens the list; "" where there is none.
        deed: Key and words of the first deed; "" without one.
    """
    if diagnosis is None:
        return fit(((f" {glyphs.pointer} diagnosing {glyphs.ellipsis}", "dim"),), cells)
    first = diagnosis.first
    style = FINDING_STYLES[first.kind]
    text, keys = _fitting(first, _keys(list_key, deed, len(diagnosis.findings) - 1), cells - 4)
    sentence = ellipsized(text, cells - 4 - width(keys), glyphs.ellipsis)
    return fit(((f" {glyphs.pointer} {sentence}", style), *keys), cells)


def _keys(list_key: str, deed: tuple[str, str], count: int) -> tuple[Line, ...]:
    """Return the keys beside the sentence, from many words to none; the deed is the last to go."""
    key, deed_words = deed
    more: Line = ((f"  +{count}", "dim"),) if count else ()
    opens: Line = (("  ", PLAIN), (list_key, "key"), (" why", PLAIN)) if list_key else ()
    if not key or not deed_words:
        return (*opens, *more), opens, opens[:2], ()
    acts: Line = (("  ", PLAIN), (key, "key"), (f" {deed_words}", PLAIN))
    fixes: Line = (*acts[:2], (" fix", PLAIN))
    return (*opens, *acts, *more), (*opens, *fixes, *more), (*opens[:2], *fixes), fixes, acts[:2], ()


def _fitting(first: Finding, keys: tuple[Line, ...], room: int) -> tuple[str, Line]:
    """Return the longest form of the sentence that leaves room for keys, and as many words at these as then fit.

    Which form it is does not depend on the keys: the past offers others than the live screen.
    """
    longer = [form for form in first.forms if len(form) >= len(first.short)]
    for_keys = _FOR_KEYS if room >= _ROOMY else _FOR_SHORT_KEYS
    text = next((form for form in longer if text_width(form) <= room - for_keys), "")
    if not text:
        text = first.short if text_width(first.short) <= room - _FOR_FIX else first.forms[-1]
    fitting_lines = (line for line in keys if text_width(text) + width(line) <= room)
    least_lines = (line for line in keys if room - width(line) >= _LEAST or not line)
    return text, next(fitting_lines, None) or next(least_lines)


def danger_line(session: Session, cells: int, glyphs: Glyphs) -> Line | None:
    """Return one line of exactly so many cells; None when nothing is at risk.

    Args:
        session: The session that is shown.
        cells: Width.
        glyphs: Characters.
    """
    risks = () if session.interval is None else session.interval.once(at_risk)
    if not risks:
        return None
    text = f" {glyphs.separator} ".join(f"{risk.name}={risk.value} can lose {risk.loss}" for risk in risks)
    return ((clip(f" {glyphs.warning} {text}".replace("×", glyphs.times), cells), "danger"),)
