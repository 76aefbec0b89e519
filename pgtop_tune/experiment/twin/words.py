"""A twin in words, and its record as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pgtop_tune import units
from pgtop_tune.experiment.switchback.record import block_json
from pgtop_tune.experiment.switchback.words import as_markdown, as_text, effect_words, of_evaluation, outcome
from pgtop_tune.experiment.twin.design import TwinPair
from pgtop_tune.experiment.twin.state import TwinPhase, TwinPlan, TwinState
from pgtop_tune.model.run_json import plain

FORMAT: Final = "pgtop-tune-twin/1"
_SLOW: Final = "the effect still grew from pair to pair; figure too small"


class TwinNarrator:
    """Makes lines of states: each phase and each pair once."""

    def __init__(self) -> None:
        self._phase: TwinPhase | None = None
        self._pairs = self._notes = 0

    def lines(self, state: TwinState) -> Iterator[str]:
        """What is new."""
        clock = units.clock(state.elapsed_s).removeprefix("00:")
        for note in state.notes[self._notes :]:
            yield f"{clock}  {note}"
        self._notes = len(state.notes)
        if len(state.pairs) > self._pairs and state.stage is not None and state.evaluation is not None:
            self._pairs = len(state.pairs)
            evaluation, paired = state.evaluation, state.evaluation.paired
            why = dict(evaluation.left_out).get(self._pairs)
            pair = f"{clock}  pair {self._pairs}: {f'left out ({why}); ' if why else ''}"
            attribution = f"; {evaluation.unattributable}" if evaluation.unattributable and paired.over else ""
            if paired.pairs:
                yield f"{pair}{effect_words(paired)}, {paired.verdict}{attribution}"
            else:
                yield f"{pair}{effect_words(state.stage)} before the copies exchange settings"
        if state.phase is not self._phase and state.phase is not TwinPhase.OVER:
            remain = f", {units.duration(state.remaining_s)} remain" if state.phase is TwinPhase.MEASURING else ""
            yield f"{clock}  {state.phase}{remain}"
        self._phase = state.phase


def remarks(plan: TwinPlan, state: TwinState) -> list[str]:
    """What belongs to the result."""
    evaluation = state.evaluation
    found = [] if evaluation is None else of_evaluation(evaluation, state.ending, _SLOW)
    found += state.notes
    cpus = " and ".join(",".join(map(str, half)) for half in plan.halves)
    found.append(
        f"each copy and its load ran on half of the CPUs ({cpus}), exchanged every second {state.placement}"
        if cpus
        else "both copies and their loads shared the CPUs: there are too few for halves"
    )
    counted = 0 if evaluation is None else len(evaluation.counted) // 2
    found.append(
        f"{counted} pairs from each stage count; copies made in {units.duration(state.copying_s)}, measured for "
        f"{units.duration(state.elapsed_s)}; load {plan.load} on each; seed {plan.seed}"
    )
    return found


def text(plan: TwinPlan, state: TwinState) -> str:
    """The result with its figures."""
    headline = outcome(plan.rivals, state.evaluation, state.ending, state.reason)
    return as_text(headline, state.evaluation, remarks(plan, state))


def markdown(plan: TwinPlan, state: TwinState) -> str:
    """The same for a document."""
    headline = outcome(plan.rivals, state.evaluation, state.ending, state.reason)
    return as_markdown(headline, state.evaluation, remarks(plan, state))


def as_json(plan: TwinPlan, state: TwinState, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The record: the result first, then the evaluation, then every block.

    Args:
        facts: Of server, program and copies, as JSON has them.
    """
    return {
        "format": FORMAT,
        "ending": state.ending.value,
        "reason": state.reason,
        "parameters": plain(plan.rivals),
        "load": plan.load,
        "for_s": plan.for_s,
        "seed": plan.seed,
        "cpu_halves": plain(plan.halves),
        "placement": state.placement,
        "copying_s": round(state.copying_s, 1),
        "elapsed_s": round(state.elapsed_s, 1),
        "notes": list(state.notes),
        **plain(dict(facts)),
        "evaluation": plain(state.evaluation),
        "pairs": [_pair(pair) for pair in state.pairs],
    }


def _pair(pair: TwinPair) -> dict[str, Any]:
    return {
        "number": pair.number,
        "crossed": pair.crossed,
        "spoiled": pair.spoiled,
        "blocks": [
            {"swapped": moment.swapped, "a": block_json(moment.a), "b": block_json(moment.b)} for moment in pair.moments
        ],
    }
