"""Trip wires over arriving frames."""

from __future__ import annotations

from pgtop_tune.changes.confirm.pending import SETTLE_S, Fate, Trial
from pgtop_tune.changes.confirm.trip_watch import TrialWatch
from pgtop_tune.runtime.ports import Step
from tests.changes.confirm.test_pending import Number
from tests.support.frames import frame


async def test_a_crossed_line_takes_the_set_back_once_and_says_why() -> None:
    number, said = Number(0.5), list[str]()

    async def revert(why: str) -> None:
        said.append(why)

    watch = TrialWatch(Trial(0.0, 600.0, (number.wire(1.0),)), revert)
    for second in range(8):
        watch.accept(Step((frame(second),)))
    assert (watch.standing.fate, said, await watch.reverted()) == (Fate.ON_TRIAL, [], False)
    number.value = 9.0
    for second in range(8, 20):
        watch.accept(Step((frame(second),)))
    assert await watch.reverted()
    assert watch.standing.fate is Fate.TRIPPED
    assert said == ["x>1 for 3 s"]


async def test_what_was_kept_is_left_alone() -> None:
    number, said = Number(9.0), list[str]()

    async def revert(why: str) -> None:
        said.append(why)

    trial = Trial(0.0, SETTLE_S, (number.wire(1.0),))
    trial.keep()
    watch = TrialWatch(trial, revert)
    watch.accept(Step(tuple(frame(second) for second in range(20)), restart=True))
    watch.close()
    assert (watch.standing.fate, await watch.reverted(), said) == (Fate.KEPT, False, [])
