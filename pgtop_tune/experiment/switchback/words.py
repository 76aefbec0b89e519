"""A switchback in words: lines while it runs, and its result as text and Markdown. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from pgtop_tune.base import tables, units
from pgtop_tune.compare.reports.sheets import OF_PAIRS, statement_sheet
from pgtop_tune.compare.reports.written import sheets_markdown as sheets_markdown
from pgtop_tune.compare.reports.written import sheets_text as sheets_text
from pgtop_tune.compare.sides.figures import BY_ID
from pgtop_tune.compare.statement_rows import SAME_MIX
from pgtop_tune.compare.statistics.switchback import Paired, PairedVerdict
from pgtop_tune.experiment.attribution import surroundings_rows
from pgtop_tune.experiment.prediction import inside_bounds, prediction_words
from pgtop_tune.experiment.switchback.arms import Arm, BlockPair, Rival
from pgtop_tune.experiment.switchback.evaluation import FigureEffect, PairsEvaluation
from pgtop_tune.experiment.switchback.plans import plan_remarks, plan_verdict
from pgtop_tune.experiment.switchback.state import Ending, SwitchbackPhase, SwitchbackPlan, SwitchbackState
from pgtop_tune.runtime.experiment_control import ArmValues, ExperimentState

# A switchback as screens show it: states of the engine made into `ExperimentState`.

_SHORT: Final = {SAME_MIX: "same mix"}
"""Titles of figures where there is little room."""
_PREDICTED: Final = "prediction: "


class ShownStates:
    """The states of an experiment as shown: figures and texts are made anew only after another pair and at the end.

    Args:
        plan: The request.
        number: The number of the experiment.

    Attributes:
        newest: The newest state, as shown. Thread-safe.
    """

    def __init__(self, plan: SwitchbackPlan, number: int = 1) -> None:
        self._plan: Final = plan
        self._pairs = -1
        self._arm = ""
        self.newest = ExperimentState(
            number=number,
            under_way=True,
            values=tuple(ArmValues(rival.name, rival.a, rival.b) for rival in plan.rivals),
            phase="checking the values",
            remaining_s=plan.for_s,
            figure=_SHORT.get(plan.objective) or BY_ID[plan.objective].title,
        )

    def take(self, state: SwitchbackState) -> bool:
        """Take a state of the engine into `newest`; return whether its figures are new."""
        has_ended = is_over(state)
        arm = "" if state.arm is None else str(state.arm)
        if arm and arm != self._arm:
            self._arm = arm
            self.newest = replace(self.newest, arm_since_ms=time.time_ns() // 1_000_000)
        self.newest = replace(
            self.newest,
            phase=str(state.phase),
            arm=arm,
            pair=state.pair,
            elapsed_s=state.elapsed_s,
            remaining_s=state.remaining_s,
        )
        if len(state.pairs) == self._pairs and not has_ended:
            return False
        self._pairs = len(state.pairs)
        self.newest = self._judged(state, self.newest, has_ended=has_ended)
        return True

    def _judged(self, state: SwitchbackState, shown_state: ExperimentState, *, has_ended: bool) -> ExperimentState:
        result = result_text(self._plan, state)
        # The result names the prediction once there is something to hold it against.
        notes = [note for note in state.notes if note not in result and note.removeprefix(_PREDICTED) not in result]
        shown_state = replace(
            shown_state,
            details="\n".join((result, *(["", *notes] if notes else []))),
            # Where the load or the server ended, the reason says more than the ending.
            ending=(state.reason if state.ending is Ending.ENDED else "") or str(state.ending) if has_ended else "",
            problem=state.left_in_force,
        )
        evaluation = state.evaluation
        if evaluation is None or not evaluation.paired.pairs:
            return shown_state
        paired = evaluation.paired
        return replace(
            shown_state,
            figure=_SHORT.get(evaluation.main.id) or evaluation.main.title,
            effect=paired.relative,
            low=paired.low,
            high=paired.high,
            counted=paired.pairs,
            better=state.ending is Ending.BETTER and not evaluation.trade,
        )


def is_over(state: SwitchbackState) -> bool:
    """Return whether the state has an ending, or a reason for one."""
    return bool(state.reason) or state.ending is not Ending.UNDER_WAY


_SAID: Final = (
    SwitchbackPhase.CHECKING,
    SwitchbackPhase.WARMING_UP,
    SwitchbackPhase.PLANNING,
    SwitchbackPhase.PUTTING_BACK,
)
"""Phases that get a line of their own."""
_TIMES: Final = 9.0
"""Relative effect from which on it is written as a multiple, "10x"."""


class Narrator:
    """The lines of an experiment's states: each phase, block, pair and note once."""

    def __init__(self) -> None:
        self._phase: SwitchbackPhase | None = None
        self._block: tuple[int, object] = (0, None)
        self._pairs = self._notes = 0

    def lines(self, state: SwitchbackState) -> Iterator[str]:
        """Yield the lines that are new."""
        clock = _clock(state.elapsed_s)
        for note in state.notes[self._notes :]:
            yield f"{clock}  {note}"
        self._notes = len(state.notes)
        if len(state.pairs) > self._pairs and state.evaluation is not None:
            self._pairs = len(state.pairs)
            yield f"{clock}  pair {state.pairs[-1].number}: {estimate(state.evaluation, state.pairs)}"
        if state.phase is not self._phase and state.phase in _SAID:
            yield f"{clock}  {state.phase}"
        self._phase = state.phase
        block = (state.pair, state.arm)
        if state.phase is SwitchbackPhase.MEASURING and state.arm is not None and block != self._block:
            self._block = block
            yield f"{clock}  pair {state.pair}, {state.arm}: measuring, {_clock(state.remaining_s)} remain"


def _clock(seconds: float) -> str:
    return units.clock(seconds).removeprefix("00:")


def estimate(evaluation: PairsEvaluation, pairs: tuple[BlockPair, ...]) -> str:
    """Return the effect so far, with its interval and what is missing."""
    paired = evaluation.paired
    reason = dict(evaluation.left_out).get(pairs[-1].number) if pairs else None
    left_out = f"left out ({reason}); " if reason else ""
    if not paired.pairs:
        return f"{left_out}no pair counts yet"
    unattributable = f"; {evaluation.unattributable}" if evaluation.unattributable and paired.over else ""
    return f"{left_out}{evaluation.main.title} {effect_words(paired)}, {_verdict(paired, pairs)}{unattributable}"


def _verdict(paired: Paired, pairs: tuple[BlockPair, ...]) -> str:
    if not paired.more_pairs:
        return paired.verdict.value
    more_s = paired.more_pairs * sum(pair.seconds for pair in pairs) / len(pairs)
    return f"{paired.verdict}, about {units.counted(paired.more_pairs, 'more pair')} ({units.duration(more_s)})"


def effect_words(paired: Paired) -> str:
    """Return the effect, with its interval where it has one."""
    interval = "" if paired.low is None or paired.high is None else f" ({_share(paired.low)} … {_share(paired.high)})"
    return f"{_share(paired.relative)}{interval}"


def _share(relative: float) -> str:
    if relative >= _TIMES:
        return f"{1.0 + relative:.0f}x"
    # Rounding first and adding 0.0 turn a small negative effect into +0.0, never -0.0.
    return f"{round(100.0 * relative, 1) + 0.0:+.1f} %"


def headline(plan: SwitchbackPlan, state: SwitchbackState) -> str:
    """Return the result in one line."""
    verdict_words = outcome(plan.rivals, state.evaluation, state.ending, state.reason)
    changed = plan_verdict(state.plans)
    return f"{verdict_words}; {changed}" if changed else verdict_words


def outcome(rivals: Sequence[Rival], evaluation: PairsEvaluation | None, ending: Ending, reason: str) -> str:
    """Return a verdict with its effect in one line, or why there is none."""
    a, b = (", ".join(f"{rival.name}={rival.value(arm)}" for rival in rivals) for arm in Arm)
    names = f"B ({b}) against A ({a})"
    if evaluation is None or not evaluation.paired.pairs:
        return f"{names}: {_ending(ending, reason)}"
    effect = f"{evaluation.main.title} {effect_words(evaluation.paired)}"
    if ending is Ending.EQUIVALENT:
        return f"{names}: equivalent within 2 %, {effect}"
    if ending in (Ending.BETTER, Ending.WORSE):
        return f"{names}: {ending}, {effect}"
    return f"{names}: {_ending(ending, reason)}; {effect} so far"


def _ending(ending: Ending, reason: str) -> str:
    if not reason or reason.startswith(ending.value):
        return reason or ending.value
    return f"{ending}: {reason}"


def remarks(plan: SwitchbackPlan, state: SwitchbackState) -> list[str]:
    """Return the remarks on the result: the trade, the cross-check, the pairs that do not count."""
    evaluation = state.evaluation
    afterwards = [state.afterwards] if state.afterwards else []
    if evaluation is None:
        return afterwards
    slow = f"the effect takes longer than {state.lengths.settle_s:.0f} s to build up; the figure is too small"
    lines = of_evaluation(evaluation, state.ending, slow)
    if evaluation.no_mix:
        lines.insert(0, f"tps decides: {evaluation.no_mix}")
    lines = [*afterwards, *plan_remarks(state.plans), *lines]
    throughput = evaluation.throughput
    if (
        state.prediction is not None
        and throughput is not None
        and (hit := inside_bounds(state.prediction, throughput.low, throughput.high)) is not None
    ):
        lines.append(f"prediction: {'inside' if hit else 'outside'} ({prediction_words(state.prediction)})")
    counted, measured = len(evaluation.counted), len(state.pairs)
    pair_s = sum(pair.seconds for pair in state.pairs) / measured if measured else 0.0
    lines.append(
        f"{counted} of {measured} pairs count, {pair_s:.0f} s each; {units.duration(state.elapsed_s)}; "
        f"load {plan.load}; seed {plan.seed}"
    )
    return lines


def of_evaluation(evaluation: PairsEvaluation, ending: Ending, slow: str) -> list[str]:
    """Return the remarks on an evaluation of pairs, for experiments of any kind.

    Args:
        slow: Remark for an effect that still builds up.
    """
    lines = []
    if evaluation.trade:
        lines.append(f"trade: {evaluation.trade}")
    if evaluation.slow:
        lines.append(slow)
    if evaluation.unattributable and ending is not Ending.NOT_ATTRIBUTABLE:
        lines.append(evaluation.unattributable)
    if evaluation.beside:
        lines.append(evaluation.beside)
    if evaluation.check is not None:
        check = evaluation.check
        lines.append(f"cross-check: Hodges-Lehmann {_share(check.relative)}, sign-flip p = {check.chance:.3f}")
    if evaluation.checkpoints_kept:
        lines.append("pairs in which a checkpoint began or ended count: half of the first eight are such pairs")
    reasons: dict[str, list[int]] = {}
    for number, reason in evaluation.left_out:
        reasons.setdefault(reason, []).append(number)
    return lines + [
        f"left out: pair{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))} ({reason})"
        for reason, numbers in reasons.items()
    ]


def _table(evaluation: PairsEvaluation) -> tables.Table:
    rows = [
        (
            effect.title,
            _value(effect, effect.a),
            _value(effect, effect.b),
            _share(effect.relative),
            "" if effect.low is None or effect.high is None else f"{_share(effect.low)} … {_share(effect.high)}",
            _SAID_AT_THE_END.get(effect.verdict, effect.verdict),
        )
        for effect in (evaluation.main, *evaluation.others)
    ]
    rows += [(title, a, b, "", "", "") for title, a, b in surroundings_rows(*evaluation.surroundings)]
    return tables.Table(_HEADS, tuple(rows))


def _of_budget(evaluation: PairsEvaluation) -> list[str]:
    return [_BUDGET] if any(effect.of_latency for effect in evaluation.others) else []


def _value(effect: FigureEffect, value: float) -> str:
    if effect.unit == "bytes":
        return units.size(value)
    return f"{value:.1f}/s" if effect.unit == "1/s" else f"{value:.3g} {effect.unit}"


_SAID_AT_THE_END: Final = {PairedVerdict.MEASURING.value: "too few pairs"}
_MEANS: Final = "A, B: arithmetic means over blocks; B against A: geometric mean of the ratios within pairs"
"""Two means, because one disturbed block moves the first and hardly the second."""
_BUDGET: Final = "latency budget: changes are in percent of A's latency"
_HEADS: Final = ("figure", "A", "B", "B against A", "95 %", "verdict")


def result_text(plan: SwitchbackPlan, state: SwitchbackState) -> str:
    """Return the result with its figures."""
    return evaluation_text(headline(plan, state), state.evaluation, remarks(plan, state))


def evaluation_text(headline: str, evaluation: PairsEvaluation | None, remarks: Sequence[str]) -> str:
    """Return a headline, the figures of its evaluation, and remarks, as text."""
    lines = [headline]
    if evaluation is not None and evaluation.paired.pairs:
        lines += [
            "",
            tables.aligned_text(_table(evaluation)),
            f"{evaluation.main.title} decides; other figures are corrected for multiple comparisons",
            _MEANS,
            *_of_budget(evaluation),
        ]
    if evaluation is not None and evaluation.statements is not None:
        lines += ["", sheets_text([statement_sheet(evaluation.statements, rule=OF_PAIRS)])]
    if remarks:
        lines += ["", *remarks]
    return "\n".join(lines)


def result_markdown(plan: SwitchbackPlan, state: SwitchbackState) -> str:
    """Return the result with its figures, as Markdown."""
    return evaluation_markdown(headline(plan, state), state.evaluation, remarks(plan, state))


def evaluation_markdown(headline: str, evaluation: PairsEvaluation | None, remarks: Sequence[str]) -> str:
    """Return a result with its figures, as Markdown; foreign text in it, such as statements, is escaped."""
    lines = [f"**{tables.escaped(headline)}**", ""]
    if evaluation is not None and evaluation.paired.pairs:
        lines += [tables.as_markdown(_table(evaluation), tables.escaped), "", _MEANS, ""]
        lines += [line for line_of_budget in _of_budget(evaluation) for line in (line_of_budget, "")]
    if evaluation is not None and evaluation.statements is not None:
        lines += [sheets_markdown([statement_sheet(evaluation.statements, rule=OF_PAIRS)], level=3), ""]
    return "\n".join((*lines, *(f"- {tables.escaped(remark)}" for remark in remarks)))
