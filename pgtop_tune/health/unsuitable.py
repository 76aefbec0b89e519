"""Values that a check warns of, and what to set in their place, as advice takes it. Pure.

A finding that one parameter mends is advice as well: `advise` and the parameter screen offer it where no rule of
`advice` has a value, as the proposal of a check does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pgtop_tune.advice.facts import Advice
from pgtop_tune.health.facts import Answer, CheckFacts
from pgtop_tune.health.judge import judge
from pgtop_tune.health.proposing import in_place
from pgtop_tune.health.questions import SCOPED
from pgtop_tune.health.registry import CHECKS
from pgtop_tune.model.frame import Frame


def unsuitable(frames: Sequence[Frame]) -> Mapping[str, Advice]:
    """What to set in place of the values of these frames that suit no server, by parameter."""
    return in_place(judge(CHECKS, CheckFacts(tuple(frames), answers={SCOPED.name: Answer(())})).findings)
