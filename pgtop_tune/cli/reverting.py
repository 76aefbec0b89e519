"""What `pgtop-tune revert` does besides the server: this machine's settings, damaged journals, and its words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pgtop_tune.base.errors import JournalProblem, UsageProblem
from pgtop_tune.base.paths import journal_dir
from pgtop_tune.base.units import counted
from pgtop_tune.changes.journal import JournalText, journals, read, read_all
from pgtop_tune.changes.journal import retire as renamed
from pgtop_tune.changes.model.change import ChangeState
from pgtop_tune.changes.model.change_set import RevertOutcome
from pgtop_tune.cli.connecting import can_ask
from pgtop_tune.cli.output import complain, say, tell
from pgtop_tune.cli.signals import answer_to

if TYPE_CHECKING:
    from pgtop_tune.changes.model.change import HostChange, ParameterChange
    from pgtop_tune.changes.selection import Selection


# Journals that are damaged, not ours, or of servers that are gone: told of, and taken out of use.

_NOTHING: Final = "none of its changes is in force"


def tell_of_damage(directory: Path | None) -> bool:
    """Says which journals are damaged or not used, and what to do about it; whether all can be used.

    Raises:
        JournalProblem: They cannot be listed.
    """
    journals(directory)
    found = read_all(directory)
    for problem in found.problems.values():
        complain(problem)
    for path, text in found.texts.items():
        for words in text.problems:
            tell(f"{path}: {words}")
        if text.problems:
            tell(f"its intact lines count; `pgtop-tune revert --retire {path}` takes the journal out of use")
    return not found.problems


def retire(journal: Path, directory: Path | None, listed: Callable[[JournalText], list[str]], *, yes: bool) -> int:
    """Lists what a journal has in force, asks, and takes it out of use; nothing is changed on a server.

    Returns:
        The exit status.

    Raises:
        UsageProblem: There is no such journal, or nobody is there to be asked.
        JournalProblem: It is not ours, or is being written.
    """
    path = _found(journal, directory)
    try:
        text = read(path)
        lines = listed(text)
        say(text.server.description if text.server is not None else path.stem)
    except JournalProblem as problem:
        tell(f"it cannot be read: {problem.message}")
        lines = []
    for line in lines or [_NOTHING]:
        say(f"  {line}")
    if not yes:
        if not can_ask():
            raise UsageProblem("nothing would revert these changes any more", "pass --yes without a terminal")
        if answer_to("take the journal out of use? [y/N] ").lower() not in ("y", "yes"):
            say("no change was made")
            return 0
    say(f"retired: {renamed(path)}")
    return 0


def _found(journal: Path, directory: Path | None) -> Path:
    for path in journals(directory):
        if journal in (path, Path(path.name), Path(path.stem)) or journal.absolute() == path.absolute():
            return path
    where = directory or journal_dir()
    raise UsageProblem(
        f"{journal} is not a journal in {where}", "`pgtop-tune revert --list` names servers and journals"
    )


# What is said of changes that were taken back: what was done, and what was not. Pure.


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
        (done, f"{counted(done, 'change')} reverted"),
        (len(outcome.already), f"{len(outcome.already)} had the old value already"),
        (left_alone, f"{left_alone} left alone"),
        (len(outcome.refused), f"{len(outcome.refused)} refused and still in force"),
    )
    return ", ".join(words for count, words in counts if count) or "nothing to revert"


def _back_to(change: ParameterChange) -> str:
    """What takes a restart has its running value until then, and goes back to this one."""
    waits = change.restart and change.shown_after != change.shown_before
    return (change.auto_conf_before or change.shown_before) if waits else change.shown_after


def revert_machine(selection: Selection, directory: Path | None, copies: Sequence[bytes]) -> None:
    """Takes the changes back and tells of each.

    Raises:
        JournalProblem: The journals cannot be listed: this machine's may be among them.
    """
    from pgtop_tune.changes.machine.control import revert

    if not copies:
        journals(directory)
    say(sum_of(RevertOutcome(), revert(selection, directory=directory, each=say_reverted, copies=copies)))


def tell_of_the_rest(directory: Path | None) -> None:
    """That settings of this machine are still in force, where some are."""
    from pgtop_tune.changes.journal import path_for, read
    from pgtop_tune.changes.machine.control import machine

    try:
        left = len(read(path_for(machine().key, directory)).host_in_force)
    except JournalProblem:
        # `tell_of_damage` has told of it.
        return
    if left:
        what = "a setting of this machine is" if left == 1 else f"{left} settings of this machine are"
        tell(f"{what} still changed: `pgtop-tune revert --machine`")


def say_reverted(change: HostChange) -> None:
    """What came of reverting a change, in a line."""
    if change.state is ChangeState.SUPERSEDED:
        say(f"{change.name}: {change.message}")
        return
    note = f"  ({change.message})" if change.message else ""
    say(f"{change.name}: {change.value} → {change.shown_after}{note}")


def told(change: HostChange) -> str:
    """One change in force in a line, with the words to revert it by."""
    notes = (
        str(change.state),
        f"{datetime.fromtimestamp(change.at_ms / 1000):%Y-%m-%d %H:%M:%S}",
        f"by {change.by}" if change.by else "",
        f"also in {change.drop_in}" if change.drop_in else "",
        "" if change.kept else "pending confirmation",
        change.reason,
        change.message,
        f"--machine --set {change.set_id or change.id}",
    )
    return f"{change.name}: {change.value_before} → {change.value}  ({'; '.join(filter(None, notes))})"
