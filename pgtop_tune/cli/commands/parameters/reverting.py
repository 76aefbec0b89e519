"""What `revert` does: the server's half, the machine's half, damaged journals, and its words."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from pgtop_tune.base.errors import (
    ClusterProblem,
    ConnectionProblem,
    JournalProblem,
    LockedOut,
    NoAnswer,
    NotLetIn,
    PasswordNeeded,
    PgtopError,
    UsageProblem,
    WrongPassword,
)
from pgtop_tune.base.paths import journal_dir
from pgtop_tune.base.units import counted
from pgtop_tune.changes import selection
from pgtop_tune.changes.change_sets import MachineHalves, check_up, is_of_machine_only
from pgtop_tune.changes.confirm.orphans import leave_watchdogs, note_given_up
from pgtop_tune.changes.journal import JournalText, journals, path_for, read, read_all
from pgtop_tune.changes.journal import retire as renamed
from pgtop_tune.changes.machine.control import HostControl, machine, revert_settings
from pgtop_tune.changes.model.change import SYSTEM, ChangeState, HostChange, ParameterChange
from pgtop_tune.changes.model.change_set import Change, Refusal, RestartState, RevertOutcome
from pgtop_tune.changes.model.pending_set import NOT_CONFIRMED, now_ms
from pgtop_tune.changes.restart.control import RestartService
from pgtop_tune.changes.restart.recovery import (
    Elsewhere,
    KnownServer,
    Policy,
    by_hand,
    elsewhere,
    let_in_again,
    recover,
)
from pgtop_tune.changes.selection import Selection
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.changes.server.reverting import missed_set, try_to_revert
from pgtop_tune.cli.changing import _back_to, of_settled
from pgtop_tune.cli.commands.parameters.request import RevertRequest
from pgtop_tune.cli.connecting import can_ask, let_in
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.output import complain, say, tell
from pgtop_tune.cli.signals import answer_to, run_until_signalled, to_the_end
from pgtop_tune.postgres.server.conninfo import ConnInfo


def run_revert(request: RevertRequest) -> int:
    """Revert, list or retire; return the exit status.

    Raises:
        PgtopError: The journals cannot be used, or the server cannot be reached.
    """
    directory, set_id = request.journal, request.set_id
    copy = sys.stdin.buffer.read() if request.copy_on_stdin else b""
    copies = (copy,) if copy else ()
    _check_there(directory, copies)
    if request.list_only:
        return _list(directory)
    if request.retire is not None:
        return retire(request.retire, directory, yes=request.yes)
    if request.overdue and (unknown := _unknown(set_id, directory)) is not None:
        raise unknown
    if request.overdue and set_id and not _is_pending(set_id, directory):
        # Reverted or kept by somebody else: a server that is gone by now need not be asked.
        say("nothing to revert")
        return ExitCode.OK
    try:
        chosen = _selected(request)
        if request.machine:
            revert_machine(chosen, directory, copies)
            return ExitCode.OK
        status, left = _revert(request, chosen, copies)
    except PgtopError as problem:
        if request.last_attempt:
            note_given_up(set_id, directory, problem)
        raise
    if request.last_attempt and left is not None:
        note_given_up(set_id, directory, left)
    return status


def _selected(request: RevertRequest) -> Selection:
    """Which changes the words mean.

    Raises:
        UsageProblem: More than one of them, or no moment.
    """
    last, everything, set_id, to = request.last, request.all_changes, request.set_id, request.to
    _check_one_at_most(last, everything, set_id, to)
    if request.overdue:
        _check_one_at_most(True, last, everything, to)
        # All of it goes first, whatever else is asked for.
        return selection.overdue(now_ms())
    if last:
        return selection.last
    if set_id:
        return selection.of_set(set_id)
    return selection.since(_moment_ms(to)) if to else selection.everything


def _check_one_at_most(*words: bool | str) -> None:
    if sum(map(bool, words)) > 1:
        raise UsageProblem("--last, --all, --set, --to and --overdue contradict each other", "pass one of them")


def _check_there(directory: Path | None, copies: Sequence[bytes]) -> None:
    """Make sure that a directory that was named is there: one that was moved away says nothing of what is in force.

    Raises:
        JournalProblem: It is not; nothing was changed.
    """
    if directory is not None and not copies and not os.path.lexists(directory):
        raise JournalProblem(
            f"there is no directory {directory}", "--journal names the directory of the change journals"
        )


def _unknown(set_id: str, directory: Path | None) -> PgtopError | None:
    """Return a problem for a set that no journal has, in force or not; None where one has it, or may have it."""
    found = read_all(directory)
    if not set_id or set_id in found.ids or found.problems:
        return None
    return JournalProblem(
        f"no change journal in {directory or journal_dir()} has the set {set_id}: it may be in force",
        "`pgtop-tune revert --list` lists the changes in force; --journal names another directory",
    )


def _is_pending(set_id: str, directory: Path | None) -> bool:
    """Whether a set is, or may be: a journal that cannot be read may have it."""
    found = read_all(directory)
    changes: list[Change] = []
    for text in found.texts.values():
        changes += (*text.in_force, *text.host_in_force)
    return bool(found.problems) or any(set_id in (each.set_id, each.id) and not each.kept for each in changes)


def _moment_ms(text: str) -> int:
    """A moment of local time, milliseconds since the epoch; a time of the day is the last one that was.

    Raises:
        UsageProblem: Not a moment.
    """
    now = datetime.now()
    try:
        moment = datetime.combine(now.date(), time.fromisoformat(text))
        moment -= timedelta(days=moment > now)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise UsageProblem(f"{text!r} is not a point in time", "for example: 14:05  or  2026-05-01T14:05") from None
    return int(moment.timestamp() * 1000)


def _list(directory: Path | None) -> int:
    usable, found = tell_of_damage(directory), 0
    for path, text in read_all(directory).texts.items():
        lines = _in_force(text)
        if lines:
            say(f"{text.server.description}  ({path.stem})" if text.server else path.stem)
        for line in lines:
            found += 1
            say(f"  {line}")
    where = directory or journal_dir()
    if not found and usable:
        say("no changes in force" if where.exists() else f"no changes in force: {where} is not there")
    return ExitCode.OK if usable else ExitCode.CHANGE


def _in_force(text: JournalText) -> list[str]:
    """What a journal has in force, or may have again, a line each."""
    again = [f"{_told(change)}: in force if the server has this value again" for change in text.displaced]
    return [*map(_told, text.in_force), *again, *map(_told_of_setting, text.host_in_force)]


def _told(change: ParameterChange) -> str:
    """One change in force in a line: what, how far, since when, by whom, for whom, why, and the id to revert it by."""
    scope = " ".join(filter(None, (str(change.scope.kind), change.scope.role, change.scope.database)))
    notes = (
        str(change.state),
        f"{datetime.fromtimestamp(change.at_ms / 1000):%Y-%m-%d %H:%M:%S}",
        f"by {change.by}" if change.by else "",
        "" if change.scope == SYSTEM else f"for {scope}",
        "" if change.kept else "pending confirmation",
        f"can lose {change.loss}" if change.loss else "",
        "takes a restart" if change.restart else "",
        change.reason,
        change.message,
        f"--set {change.set_id or change.id}",
    )
    return f"{change.name}: {change.shown_before} → {change.value or 'default'}  ({'; '.join(filter(None, notes))})"


def _revert(request: RevertRequest, chosen: Selection, copies: Sequence[bytes]) -> tuple[int, PgtopError | None]:
    """The exit status, and what left the set in force that was asked for."""
    directory, on_server = request.journal, request.set_id
    set_id = "" if request.overdue else on_server
    if not copies:
        tell_of_damage(directory)
    # The sets whose halves of the server are reverted, and the one that was asked for.
    lost = read_all(directory).lost(copies)
    machine = HostControl(directory=directory, copies={set_id: copies[0]} if copies else {})
    # Each half of a set has a revert watchdog with a copy of its own.
    is_server_alone = any(text.in_force for _, text in lost)
    halves = MachineHalves(None if is_server_alone else machine, [set_id] if set_id else [], report=say_reverted)
    if set_id and is_of_machine_only(set_id, directory, copies):
        say(sum_of(RevertOutcome(), asyncio.run(halves.after())))
        return ExitCode.OK, None
    try:
        conninfo, outcome = _taken_back(request, chosen, halves, copies)
    except PgtopError:
        try:
            asyncio.run(halves.after())
        except PgtopError as problem:
            complain(problem)
        raise
    for line in of_outcome(outcome):
        say(line)
    refused: dict[tuple[str, str], list[str]] = {}
    for refusal in outcome.refused:
        refused.setdefault((refusal.problem.message, refusal.problem.hint), []).append(refusal.change.name)
    for (message, hint), names in refused.items():
        complain(PgtopError(f"{', '.join(names)}: {message}", hint))
    for line in (*of_elsewhere(outcome), *of_inherited(outcome)):
        tell(line)
    # A process that waits for a deadline tries again: a name may lead to another server for a while.
    settled = any(on_server in (each.set_id, each.id) for each in outcome.settled)
    missed = None if outcome.refused else missed_set(on_server, directory, chosen, settled=settled)
    if missed is None and not outcome.refused and not settled:
        missed = _unknown(on_server, directory)
    if missed is not None and not outcome.elsewhere:
        complain(missed)
    say(sum_of(outcome, () if missed is not None else asyncio.run(halves.after())))
    asyncio.run(_look_after_the_rest(conninfo, directory))
    tell_of_the_rest(directory)
    left = outcome.refused[0].problem if outcome.refused else missed
    return (ExitCode.OK if left is None else ExitCode.CHANGE), left


async def _look_after_the_rest(conninfo: ConnInfo, directory: Path | None) -> None:
    """Pending sets of others, and the machine's halves of those that were overdue."""
    control = PostgresControl(conninfo, directory=directory)
    with suppress(ConnectionProblem):
        # A server that stays down is looked at when it is up again.
        await leave_watchdogs(control, HostControl(directory=directory), directory, tell)
    await control.aclose()


def _reverted_without_restart(set_id: str, directory: Path | None) -> tuple[ParameterChange, ...]:
    """What a program has taken back of a set that nobody confirmed, and may have been killed before its restart."""
    return tuple(
        each
        for text in (read_all(directory).texts.values() if set_id else ())
        for each in text.changes
        if set_id in (each.set_id, each.id) and each.state is ChangeState.REVERTED and not each.kept
    )


def _taken_back(
    request: RevertRequest, chosen: Selection, halves: MachineHalves, copies: Sequence[bytes]
) -> tuple[ConnInfo, RevertOutcome]:
    directory, set_id = request.journal, request.set_id

    # Whoever passes both is a process that waited for the deadline of a set.
    is_watchdog = request.copy_on_stdin or (request.overdue and bool(set_id))
    written: list[frozenset[str]] = []

    def first(changes: Sequence[ParameterChange]) -> None:
        asyncio.run(halves.before(changes))

    def taken(conninfo: ConnInfo, key: str = "") -> RevertOutcome:
        # Without its journal nothing but the set of the copy is known.
        late = RevertOutcome()
        if not read_all(directory).lost(copies):
            late = try_to_revert(
                conninfo,
                selection.overdue(now_ms()),
                directory=directory,
                reason=NOT_CONFIRMED,
                first=first,
                key=key,
                tell_of_others=None if set_id else tell,
            )
        # Those that are refused or elsewhere are asked for once more.
        late = replace(late, refused=(), elsewhere=())
        selected = try_to_revert(
            conninfo,
            chosen,
            directory=directory,
            adopt=request.adopt,
            first=first,
            key=key,
            copies=copies,
            tell_of_others=tell if request.adopt else None,
        )
        return late.and_then(selected).after_writing(frozenset().union(*written))

    def restarted(conninfo: ConnInfo, outcome: RevertOutcome) -> tuple[ConnInfo, RevertOutcome]:
        settled = outcome.settled or _reverted_without_restart(set_id, directory)
        if not request.restart or not any(change.restart for change in settled):
            return conninfo, outcome
        again = run_until_signalled(restart_after_reverting(conninfo, settled, directory))
        shown = {each.id: each for each in again}
        return conninfo, replace(outcome, settled=tuple(shown.get(each.id, each) for each in outcome.settled))

    def sought(conninfo: ConnInfo) -> Elsewhere | None:
        there = elsewhere(conninfo, chosen, directory, set_id)
        if there is not None:
            tell(f"the server of {there.data_directory} listens at {there.conninfo.endpoints[0]} now")
        return there

    def act(conninfo: ConnInfo) -> tuple[ConnInfo, RevertOutcome]:
        problem, outcome = None, RevertOutcome()
        try:
            outcome = taken(conninfo)
            if outcome.settled or outcome.refused or not set_id:
                return restarted(conninfo, outcome)
        except ConnectionProblem as error:
            if not isinstance(error, PasswordNeeded | WrongPassword) and let_in_again(
                conninfo, chosen, directory, tell, set_id, written.append
            ):
                return restarted(conninfo, taken(conninfo))
            if isinstance(error, LockedOut | NoAnswer):
                error.hint = by_hand(conninfo, chosen, directory, set_id) or error.hint
            if isinstance(error, NotLetIn) and not set_id:
                raise
            problem = error
        there = sought(conninfo)
        if there is None:
            policy = policy_for(conninfo, yes=request.yes, watchdog=is_watchdog)
            recovered = None
            # Another server may answer there while that of the set is down.
            if not isinstance(problem, NotLetIn | LockedOut):
                recovered = recover(conninfo, chosen, directory, tell, policy, set_id, written.append)
            if recovered is None and problem is not None:
                raise problem
            if recovered is None:
                return restarted(conninfo, outcome)
            if not recovered.is_up:
                first(recovered.settled)
                down = ConnectionProblem("its server is down")
                return conninfo, RevertOutcome(
                    settled=recovered.settled,
                    written=frozenset().union(*written),
                    refused=tuple(Refusal(change, down) for change in recovered.waiting),
                )
            there = sought(conninfo)
        if there is None:
            return restarted(conninfo, taken(conninfo))
        return restarted(there.conninfo, taken(there.conninfo, there.key))

    return let_in(request.words, act)


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


def retire(journal: Path, directory: Path | None, *, yes: bool) -> int:
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
        lines = _in_force(text)
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


def revert_machine(chosen: Selection, directory: Path | None, copies: Sequence[bytes]) -> None:
    """Takes the changes back and tells of each.

    Raises:
        JournalProblem: The journals cannot be listed: this machine's may be among them.
    """
    if not copies:
        journals(directory)
    say(sum_of(RevertOutcome(), revert_settings(chosen, directory=directory, report=say_reverted, copies=copies)))


def tell_of_the_rest(directory: Path | None) -> None:
    """That settings of this machine are still in force, where some are."""
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


def _told_of_setting(change: HostChange) -> str:
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


def policy_for(conninfo: ConnInfo, *, yes: bool, watchdog: bool) -> Policy:
    """Return what may be done to a server that is down: people are asked, revert watchdogs start none.

    Args:
        conninfo: Where it does not answer.
        yes: Start it without a question.
        watchdog: Nobody is there to be asked, ever.
    """

    def is_meant(known: KnownServer) -> bool:
        seen = f"{datetime.fromtimestamp(known.changed_ms / 1000):%Y-%m-%d %H:%M:%S}"
        what = f"PostgreSQL {known.version} in {known.server_place.data_directory}, changed last at {seen}"
        tell(f"nothing answers at {conninfo.endpoints[0]}; down there: {what}")
        if known.alone:
            return True
        if not can_ask():
            raise ClusterProblem(
                f"several data directories have used {conninfo.endpoints[0]}, and one must be chosen",
                "`pgtop-tune revert --list` lists the sets; --set ID selects one",
            )
        return answer_to("restore its old values? [y/N] ").lower() in ("y", "yes")

    def may_start(known: KnownServer) -> bool:
        return yes or (can_ask() and answer_to("start it with its old values? [y/N] ").lower() in ("y", "yes"))

    return Policy(is_meant=is_meant, may_start=None if watchdog else may_start, may_copy=_may_copy)


def _may_copy(words: str) -> bool:
    tell(words)
    return can_ask() and answer_to("restore the copy? [y/N] ").lower() in ("y", "yes")


async def restart_after_reverting(
    conninfo: ConnInfo, reverted: Sequence[ParameterChange], directory: Path | None
) -> tuple[ParameterChange, ...]:
    """Restarts where the old values need it; the changes as they are shown then.

    Raises:
        ServerProblem: It did not come up.
    """
    control = PostgresControl(conninfo, directory=directory)
    try:
        service = RestartService(control)
        outcome, interrupted = await to_the_end(service.restart_for(reverted, tell), service.give_up)
        if outcome.state in (RestartState.WAITING, RestartState.LEFT):
            tell(": ".join(filter(None, (outcome.words, outcome.hint))))
            if interrupted:
                raise asyncio.CancelledError
        elif outcome.state is not RestartState.NOT_RESTARTED:
            check_up(outcome)
            tell(outcome.words)
        return outcome.changes
    finally:
        await control.aclose()
