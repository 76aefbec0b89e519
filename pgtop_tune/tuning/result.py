"""How a search ends."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from pgtop_tune.experiment.prediction import Score
from pgtop_tune.tuning.ablation import Examined
from pgtop_tune.tuning.confirming import Confirmed
from pgtop_tune.tuning.search import Raced, Tried


class Ending(StrEnum):
    """What a search found."""

    BETTER = "better"
    START_KEPT = "start kept"
    NOTHING_TO_GAIN = "nothing to gain"
    REFUSED = "refused"


class Result(Struct, frozen=True, kw_only=True):
    """After the last evaluation, or instead of the first.

    Attributes:
        why: One or two sentences.
        values: Of the knobs to change; empty unless `BETTER`.
        start: What these knobs had before.
        confirmed: The only figure of the result; None where nothing was measured so far. Present, too, where the
            winner was not truly better.
        claimed: Log ratio that the search had seen its steps bring; too high, and no result.
        examined: Knobs that the search had changed: which earned it, which went back.
        left_out: Knobs that were not searched, with reasons.
        let_go: Knobs that another session changed meanwhile.
        changes: Of the conditions meanwhile, in words; the confirmation was made under those behind the last one.
        tried, races: The path.
        predictions: How many predictions were right.
        spent: Of the budget.
        evaluation_sd: Of one evaluation's log ratio.
        needed: The budget that it takes, where it was refused for being too small.
    """

    ending: Ending
    why: str
    values: dict[str, str]
    start: dict[str, str]
    confirmed: Confirmed | None
    claimed: float
    examined: tuple[Examined, ...]
    left_out: tuple[tuple[str, str], ...]
    let_go: tuple[str, ...]
    tried: tuple[Tried, ...]
    races: tuple[Raced, ...]
    predictions: Score
    spent: float
    evaluation_sd: float
    needed: float | None = None
    changes: tuple[str, ...] = ()
