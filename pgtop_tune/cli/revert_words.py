"""What is said of changes that were taken back: what was done, and what was not. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pgtop_tune.changes.model.change import ChangeState

if TYPE_CHECKING:
    from pgtop_tune.changes.model.change import HostChange, ParameterChange
    from pgtop_tune.changes.model.change_set import RevertOutcome


def of_settled(change: ParameterChange) -> str:
    """One change that is not in force any more: from what to what, or why nothing was written."""
    if change.state is ChangeState.SUPERSEDED:
        return f"{change.name}: {change.message}"
    note = f"  ({change.message})" if change.message else ""
    return f"{change.name}: {change.value or 'default'} → {_back_to(change)}{note}"


def of_outcome(outcome: RevertOutcome) -> Iterator[str]:
    """A line for each change that was settled."""
    yield from map(of_settled, outcome.reverted)
    for change in outcome.already:
        yield f"{change.name}: {change.message}: {_back_to(change)}"
    yield from map(of_settled, outcome.left_alone)


def of_elsewhere(outcome: RevertOutcome) -> Iterator[str]:
    """A line for each change that is left in force because it was made on another server, and how to go on."""
    for change in outcome.elsewhere:
        value = change.value or "default"
        yield f"{change.name} = {value} was set on another server of this cluster, as far as can be told: left in force"
    for origin in dict.fromkeys(outcome.origins.get(change.id, "") for change in outcome.elsewhere):
        named = f" ({origin})" if origin else ""
        yield f"connect to that server{named}; or pass --adopt if this server has replaced it"


def of_inherited(outcome: RevertOutcome) -> Iterator[str]:
    """A line for each change that this server had from another one, whose journal does not hold it any more."""
    for change in outcome.settled:
        if origin := outcome.origins.get(change.id):
            yield (
                f"{change.name} was set on {origin}. If that server still runs, it keeps {change.value or 'default'},"
                " and no journal reverts it: run `pgtop-tune reset` there"
            )


def sum_of(outcome: RevertOutcome, on_machine: Sequence[HostChange] = ()) -> str:
    """How many changes came to what, those of the machine among them."""
    untouched = sum(change.state is ChangeState.SUPERSEDED for change in on_machine)
    done = len(outcome.reverted) + len(on_machine) - untouched
    left_alone = len(outcome.left_alone) + untouched
    counts = (
        (done, f"{done} change{'' if done == 1 else 's'} reverted"),
        (len(outcome.already), f"{len(outcome.already)} had the old value already"),
        (left_alone, f"{left_alone} left alone"),
        (len(outcome.refused), f"{len(outcome.refused)} refused and still in force"),
    )
    return ", ".join(words for count, words in counts if count) or "nothing to revert"


def _back_to(change: ParameterChange) -> str:
    """What takes a restart has its running value until then, and goes back to this one."""
    waits = change.restart and change.shown_after != change.shown_before
    return (change.auto_conf_before or change.shown_before) if waits else change.shown_after
