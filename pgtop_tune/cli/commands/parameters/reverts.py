"""`revert`: the server's half, the machine's half, damaged journals, and messages."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import aclosing, suppress
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Any

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
    ServerProblem,
    UsageProblem,
    WrongPassword,
)
from pgtop_tune.base.paths import journal_dir
from pgtop_tune.base.tables import Table
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
from pgtop_tune.changes.server.reverts import missed_set, try_to_revert
from pgtop_tune.cli.commands.parameters import RevertRequest
from pgtop_tune.cli.connections import let_in
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.options import ListFormat
from pgtop_tune.cli.output import can_ask, complain, say, say_list, tell
from pgtop_tune.cli.parameter_changes import say_setting, settled_words, value_after
from pgtop_tune.cli.signals import run_until_signalled, says_yes, to_the_end
from pgtop_tune.postgres.server.conninfo import ConnInfo


def run_revert(request: RevertRequest) -> int:
    """Revert, list or retire; return the exit status.

    Raises:
        PgtopError: The journals cannot be used, or the server cannot be reached.
    """
    directory, set_id = request.journal, request.set_id
    copy = sys.stdin.buffer.read() if request.copy_on_stdin else b""
    copies = (copy,) if copy else ()
    if directory is not None and not copies and not os.path.lexists(directory):
        # A directory that was moved away says nothing of the changes in force.
        raise JournalProblem(f"no directory {directory}", "pass the directory of the change journals with --journal")
    if request.list_only or request.dry_run:
        return _list(request)
    if request.retire is not None:
        return retire(request.retire, directory, yes=request.yes)
    if request.overdue and (unknown := _unknown(set_id, directory)) is not None:
        raise unknown
    if request.overdue and set_id and not _is_pending(set_id, directory):
        # Another process has reverted or kept the set: a server that is gone by now need not be asked.
        say("nothing to revert")
        return ExitCode.OK
    try:
        chosen = _selected(request)
        if request.machine:
            revert_machine(chosen, directory, copies)
            return ExitCode.OK
        status, unreverted = _revert(request, chosen, copies)
    except PgtopError as problem:
        if request.last_attempt:
            note_given_up(set_id, directory, problem)
        raise
    if request.last_attempt and unreverted is not None:
        note_given_up(set_id, directory, unreverted)
    return status


def _selected(request: RevertRequest) -> Selection:
    """Return the selection of the options. Raises UsageProblem for more than one of them, or for a wrong moment."""
    selections = sum((request.last, request.all_changes, bool(request.to)))
    if selections + bool(request.set_id) > 1 or (request.overdue and selections):
        raise UsageProblem("--last, --all, --set, --to and --overdue contradict each other", "pass one of them")
    if request.overdue:
        # Overdue sets are reverted first in any case.
        return selection.overdue(now_ms())
    if request.last:
        return selection.last
    if request.set_id:
        return selection.of_set(request.set_id)
    return selection.since(_moment_ms(request.to)) if request.to else selection.everything


def _unknown(set_id: str, directory: Path | None) -> PgtopError | None:
    """Return a problem for a set that no journal has, in force or not; None where one has it, or may have it."""
    readable = read_all(directory)
    if not set_id or set_id in readable.ids or readable.problems:
        return None
    return JournalProblem(
        f"no change journal in {directory or journal_dir()} has the change set {set_id}: the set may still be in force",
        "`pgtop-tune revert --list` lists the changes in force; pass another directory with --journal",
    )


def _is_pending(set_id: str, directory: Path | None) -> bool:
    """Return True where a set is pending, or may be in a journal that cannot be read."""
    readable = read_all(directory)
    changes: list[Change] = []
    for text in readable.texts.values():
        changes += (*text.in_force, *text.host_in_force)
    return bool(readable.problems) or any(
        set_id in (change.set_id, change.id) and not change.kept for change in changes
    )


def _moment_ms(text: str) -> int:
    """Return a moment of local time, in milliseconds since the epoch; a time of day is the last one in the past.

    Raises:
        UsageProblem: The text is no moment.
    """
    now = datetime.now()
    try:
        moment = datetime.combine(now.date(), time.fromisoformat(text))
        moment -= timedelta(days=moment > now)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise UsageProblem(
                f"{text!r} is not a point in time", "pass a time such as 14:05 or 2026-05-01T14:05"
            ) from None
    return int(moment.timestamp() * 1000)


def _list(request: RevertRequest) -> int:
    """Print the changes in force, with --dry-run those that would be reverted, for each server of the journals."""
    directory, chosen = request.journal, _selected(request)
    usable, objects = tell_of_damage(directory), list[dict[str, Any]]()
    as_text = request.format is ListFormat.TEXT
    for path, text in read_all(directory).texts.items():
        server = text.server.description if text.server else ""
        changes: list[Change] = [*(() if request.machine else chosen(text.in_force)), *chosen(text.host_in_force)]
        again = text.displaced if request.list_only and not request.machine else ()
        if as_text and (changes or again):
            say(f"{server}  ({path.stem})" if server else path.stem)
            for line in (*map(_change_line, changes), *map(_displaced_line, again)):
                say(f"  {line}")
        objects += [_change_json(change, server, path.stem) for change in (*changes, *again)]
    searched = directory or journal_dir()
    if not as_text:
        say_list(request.format, objects, Table((), ()))
    elif not objects and usable:
        say("no changes in force" if searched.exists() else f"no changes in force: {searched} does not exist")
    return ExitCode.OK if usable else ExitCode.CHANGE


def _change_json(change: Change, server: str, journal: str) -> dict[str, Any]:
    of_server = isinstance(change, ParameterChange)
    scope = change.scope if isinstance(change, ParameterChange) else None
    return {
        "name": change.name,
        "kind": "parameter" if of_server else "machine",
        "server": server or None,
        "journal": journal,
        "before": change.shown_before if isinstance(change, ParameterChange) else change.value_before,
        "value": change.value,
        "scope": None if scope is None else str(scope.kind),
        "role": None if scope is None else scope.role or None,
        "database": None if scope is None else scope.database or None,
        "state": str(change.state),
        "confirmed": change.kept,
        "at_ms": change.at_ms,
        "until_ms": change.until_ms,
        "by": change.by or None,
        "reason": change.reason or None,
        "needs_restart": isinstance(change, ParameterChange) and change.restart,
        "can_lose": change.loss or None if isinstance(change, ParameterChange) else None,
        "in_force": not (isinstance(change, ParameterChange) and change.displaced),
        "set": change.set_id or change.id,
    }


def _in_force(text: JournalText) -> list[str]:
    """Return a line for each change of a journal that is in force, or may be again."""
    changes: list[Change] = [*text.in_force, *text.host_in_force]
    return [*map(_change_line, changes), *map(_displaced_line, text.displaced)]


def _change_line(change: Change) -> str:
    return _parameter_line(change) if isinstance(change, ParameterChange) else _setting_line(change)


def _displaced_line(change: ParameterChange) -> str:
    return f"{_parameter_line(change)}: in force again if the server gets this value back"


def _parameter_line(change: ParameterChange) -> str:
    scope = " ".join(filter(None, (str(change.scope.kind), change.scope.role, change.scope.database)))
    notes = (
        "" if change.scope == SYSTEM else f"for {scope}",
        "" if change.kept else "pending confirmation",
        f"can lose {change.loss}" if change.loss else "",
        "needs a restart" if change.restart else "",
    )
    return f"{change.name}: {change.shown_before} → {change.value or 'default'}  ({_notes(change, notes)})"


def _setting_line(change: HostChange) -> str:
    notes = (f"also in {change.drop_in}" if change.drop_in else "", "" if change.kept else "pending confirmation")
    return f"{change.name}: {change.value_before} → {change.value}  ({_notes(change, notes, '--machine ')})"


def _notes(change: Change, notes: Sequence[str], option: str = "") -> str:
    """Return state, time, author, the notes, reason and message of a change, and the options that revert it."""
    by = f"by {change.by}" if change.by else ""
    reverts = f"{option}--set {change.set_id or change.id}"
    parts = (str(change.state), _clock(change.at_ms), by, *notes, change.reason, change.message, reverts)
    return "; ".join(filter(None, parts))


def _clock(at_ms: float) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000):%Y-%m-%d %H:%M:%S}"


def _revert(request: RevertRequest, chosen: Selection, copies: Sequence[bytes]) -> tuple[int, PgtopError | None]:
    """Revert a selection; return the exit status, and the problem that leaves the requested set in force."""
    directory, on_server = request.journal, request.set_id
    set_id = "" if request.overdue else on_server
    if not copies:
        tell_of_damage(directory)
    lost = read_all(directory).lost(copies)
    machine = HostControl(directory=directory, copies={set_id: copies[0]} if copies else {})
    # Each half of a set has a revert watchdog with a copy of its own.
    is_server_alone = any(text.in_force for _, text in lost)
    halves = MachineHalves(None if is_server_alone else machine, [set_id] if set_id else [], report=say_reverted)
    if set_id and is_of_machine_only(set_id, directory, copies):
        say(sum_words(RevertOutcome(), asyncio.run(halves.after())))
        return ExitCode.OK, None
    try:
        conninfo, outcome = _revert_on_server(request, chosen, halves, copies)
    except PgtopError:
        try:
            asyncio.run(halves.after())
        except PgtopError as problem:
            complain(problem)
        raise
    for line in outcome_lines(outcome):
        say(line)
    refused: dict[tuple[str, str], list[str]] = {}
    for refusal in outcome.refused:
        refused.setdefault((refusal.problem.message, refusal.problem.hint), []).append(refusal.change.name)
    for (message, hint), names in refused.items():
        complain(PgtopError(f"{', '.join(names)}: {message}", hint))
    for line in (*elsewhere_lines(outcome), *inherited_lines(outcome)):
        tell(line)
    # A process that waits for a deadline tries again: a name may lead to another server for a while.
    settled = any(on_server in (change.set_id, change.id) for change in outcome.settled)
    missed = None if outcome.refused else missed_set(on_server, directory, chosen, settled=settled)
    if missed is None and not outcome.refused and not settled:
        missed = _unknown(on_server, directory)
    if missed is not None and not outcome.elsewhere:
        complain(missed)
    say(sum_words(outcome, () if missed is not None else asyncio.run(halves.after())))
    asyncio.run(_look_after_the_rest(conninfo, directory))
    tell_of_the_rest(directory)
    unreverted = outcome.refused[0].problem if outcome.refused else missed
    return (ExitCode.OK if unreverted is None else ExitCode.CHANGE), unreverted


async def _look_after_the_rest(conninfo: ConnInfo, directory: Path | None) -> None:
    """Look after pending sets of other programs, and the machine's halves of overdue ones."""
    async with aclosing(PostgresControl(conninfo, directory=directory)) as control:
        # A later revert looks after a server that is down.
        with suppress(ConnectionProblem):
            await leave_watchdogs(control, HostControl(directory=directory), directory, tell)


def _reverted_before_restart(set_id: str, directory: Path | None) -> tuple[ParameterChange, ...]:
    """Return the reverted changes whose old values waited for a restart: it may not have been made."""
    return tuple(
        change
        for text in read_all(directory).texts.values()
        for change in text.changes
        if set_id in ("", change.set_id, change.id)
        and change.state is ChangeState.REVERTED
        and change.restart
        and change.shown_after != change.shown_before
    )


async def _still_waiting(
    conninfo: ConnInfo, directory: Path | None, reverted: Sequence[ParameterChange]
) -> tuple[ParameterChange, ...]:
    async with aclosing(PostgresControl(conninfo, directory=directory)) as control:
        return await RestartService(control).still_waiting(reverted)


def _revert_on_server(
    request: RevertRequest, chosen: Selection, halves: MachineHalves, copies: Sequence[bytes]
) -> tuple[ConnInfo, RevertOutcome]:
    directory, set_id = request.journal, request.set_id
    # A process that waited for the deadline of a set passes both options.
    is_watchdog = request.copy_on_stdin or (request.overdue and bool(set_id))
    written: list[frozenset[str]] = []

    def first(changes: Sequence[ParameterChange]) -> None:
        asyncio.run(halves.before(changes))

    def before_restart(changes: Sequence[ParameterChange] = ()) -> None:
        asyncio.run(halves.before_restart(changes))

    def revert_here(conninfo: ConnInfo, key: str = "") -> RevertOutcome:
        # Without the journal only the set of the copy is known.
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
        # Refused changes, and those made elsewhere, are tried once more below.
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
        is_of_interest = not outcome.refused and (request.restart or not outcome.settled)
        waiting = _reverted_before_restart(set_id, directory) if is_of_interest else ()
        try:
            waiting = asyncio.run(_still_waiting(conninfo, directory, waiting)) if waiting else ()
        except ServerProblem:
            # A role may revert nothing, and not be allowed to see what waits.
            if request.restart:
                raise
            waiting = ()
        settled = (*outcome.settled, *waiting)
        if not request.restart or not any(change.restart for change in settled):
            for name in dict.fromkeys(change.name for change in waiting):
                tell(f"{name}: the old value waits for a restart: `pgtop-tune revert --restart`")
            return conninfo, outcome
        before_restart()
        after = {
            change.id: change for change in run_until_signalled(restart_after_reverting(conninfo, settled, directory))
        }
        return conninfo, replace(outcome, settled=tuple(after.get(change.id, change) for change in outcome.settled))

    def find_moved(conninfo: ConnInfo) -> Elsewhere | None:
        moved = elsewhere(conninfo, chosen, directory, set_id)
        if moved is not None:
            tell(f"the server of {moved.data_directory} now listens at {moved.conninfo.endpoints[0]}")
        return moved

    def act(conninfo: ConnInfo) -> tuple[ConnInfo, RevertOutcome]:
        problem, outcome = None, RevertOutcome()
        try:
            outcome = revert_here(conninfo)
            if outcome.settled or outcome.refused or not set_id:
                return restarted(conninfo, outcome)
        except ConnectionProblem as error:
            if not isinstance(error, PasswordNeeded | WrongPassword) and let_in_again(
                conninfo, chosen, directory, tell, set_id, written.append
            ):
                return restarted(conninfo, revert_here(conninfo))
            if isinstance(error, LockedOut | NoAnswer):
                error.hint = by_hand(conninfo, chosen, directory, set_id) or error.hint
            if isinstance(error, NotLetIn) and not set_id:
                raise
            problem = error
        moved = find_moved(conninfo)
        if moved is None:
            policy = policy_for(conninfo, yes=request.yes, watchdog=is_watchdog)
            recovered = None
            # Another server may answer there while that of the set is down.
            if not isinstance(problem, NotLetIn | LockedOut):
                recovered = recover(conninfo, chosen, directory, tell, policy, set_id, written.append, before_restart)
            if recovered is None and problem is not None:
                raise problem
            if recovered is None:
                return restarted(conninfo, outcome)
            if not recovered.is_up:
                down = ConnectionProblem("its server is down")
                return conninfo, RevertOutcome(
                    settled=recovered.settled,
                    written=frozenset().union(*written),
                    refused=tuple(Refusal(change, down) for change in recovered.waiting),
                )
            moved = find_moved(conninfo)
        if moved is None:
            return restarted(conninfo, revert_here(conninfo))
        return restarted(moved.conninfo, revert_here(moved.conninfo, moved.key))

    return let_in(request.connection, act)


# Journals that are damaged, not ours, or of servers that are gone.


def tell_of_damage(directory: Path | None) -> bool:
    """Report journals that are damaged or cannot be used; return True where all can be used.

    Raises:
        JournalProblem: The journals cannot be listed.
    """
    journals(directory)
    readable = read_all(directory)
    for problem in readable.problems.values():
        complain(problem)
    for path, text in readable.texts.items():
        for damage in text.problems:
            tell(f"{path}: {damage}")
        if text.problems:
            tell(f"its intact lines are still used; `pgtop-tune revert --retire {path}` retires the journal")
    return not readable.problems


def retire(journal: Path, directory: Path | None, *, yes: bool) -> int:
    """List the changes of a journal in force, ask, and take it out of use; change nothing on a server.

    Raises:
        UsageProblem: There is no such journal, or no terminal to ask on.
        JournalProblem: It is not ours, or is being written.
    """
    path = _journal_path(journal, directory)
    lines = []
    try:
        text = read(path)
        lines = _in_force(text)
        say(text.server.description if text.server is not None else path.stem)
    except JournalProblem as problem:
        tell(f"the journal cannot be read: {problem.message}")
    for line in lines or ["none of its changes is in force"]:
        say(f"  {line}")
    if not yes:
        if not can_ask():
            raise UsageProblem(
                "retiring the journal leaves these changes in force for good", "pass --yes without a terminal"
            )
        if not says_yes("retire the journal?"):
            say("nothing was changed")
            return ExitCode.OK
    say(f"retired: {renamed(path)}")
    return ExitCode.OK


def _journal_path(journal: Path, directory: Path | None) -> Path:
    for path in journals(directory):
        if journal in (path, Path(path.name), Path(path.stem)) or journal.absolute() == path.absolute():
            return path
    raise UsageProblem(
        f"{journal} is not a journal in {directory or journal_dir()}",
        "`pgtop-tune revert --list` lists servers and journals",
    )


# Messages about reverted changes. Pure.


def outcome_lines(outcome: RevertOutcome) -> Iterator[str]:
    """Yield a line for each settled change."""
    yield from map(settled_words, outcome.reverted)
    for change in outcome.already:
        yield f"{change.name}: {change.message}: {value_after(change)}"
    yield from map(settled_words, outcome.left_alone)


def elsewhere_lines(outcome: RevertOutcome) -> Iterator[str]:
    """Yield a line for each change that stays in force because it was made on another server, and a remedy."""
    for change in outcome.elsewhere:
        value = change.value or "default"
        yield f"{change.name} = {value} was probably set on another server of this cluster, and stays in force"
    for origin in dict.fromkeys(outcome.origins.get(change.id, "") for change in outcome.elsewhere):
        server = f" ({origin})" if origin else ""
        yield f"connect to that server{server}, or pass --adopt if this server has replaced it"


def inherited_lines(outcome: RevertOutcome) -> Iterator[str]:
    """Yield a line for each change that came from another server, whose journal no longer has it."""
    for change in outcome.settled:
        if origin := outcome.origins.get(change.id):
            yield (
                f"{change.name} was set on {origin}. If that server still runs, it keeps {change.value or 'default'}"
                ", and no journal reverts this: run `pgtop-tune reset` on that server"
            )


def sum_words(outcome: RevertOutcome, on_machine: Sequence[HostChange] = ()) -> str:
    """Return the number of changes by their outcome, with those of the machine."""
    untouched = sum(change.state is ChangeState.SUPERSEDED for change in on_machine)
    done = len(outcome.reverted) + len(on_machine) - untouched
    left_alone = len(outcome.left_alone) + untouched
    counts = (
        (done, f"{counted(done, 'change')} reverted"),
        (len(outcome.already), f"{len(outcome.already)} already had the old value"),
        (left_alone, f"{left_alone} left alone"),
        (len(outcome.refused), f"{len(outcome.refused)} refused and still in force"),
    )
    return ", ".join(message for count, message in counts if count) or "nothing to revert"


def revert_machine(chosen: Selection, directory: Path | None, copies: Sequence[bytes]) -> None:
    """Revert changes of the machine, and tell of each.

    Raises:
        JournalProblem: The journals cannot be listed: this machine's may be among them.
    """
    if not copies:
        journals(directory)
    say(sum_words(RevertOutcome(), revert_settings(chosen, directory=directory, report=say_reverted, copies=copies)))


def tell_of_the_rest(directory: Path | None) -> None:
    """Tell that settings of this machine are still in force, where some are."""
    try:
        count = len(read(path_for(machine().key, directory)).host_in_force)
    except JournalProblem:
        # `tell_of_damage` has told of it.
        return
    if count:
        subject = "a setting of this machine is" if count == 1 else f"{count} settings of this machine are"
        tell(f"{subject} still changed: `pgtop-tune revert --machine`")


def say_reverted(change: HostChange) -> None:
    """Print the outcome of reverting a change in a line."""
    if change.state is ChangeState.SUPERSEDED:
        say(f"{change.name}: {change.message}")
    else:
        say_setting(change, change.value)


def policy_for(conninfo: ConnInfo, *, yes: bool, watchdog: bool) -> Policy:
    """Return the policy for a server that is down: an operator is asked; see `Policy` for a revert watchdog.

    Args:
        conninfo: Connection that does not answer.
        yes: Start the server without a question.
        watchdog: No operator can be asked.
    """

    def is_meant(stopped: KnownServer) -> bool:
        server = f"PostgreSQL {stopped.version} in {stopped.server_place.data_directory}"
        changed = _clock(stopped.changed_ms)
        tell(f"no answer at {conninfo.endpoints[0]}; stopped server: {server}, last changed at {changed}")
        if stopped.alone:
            return True
        if not can_ask():
            raise ClusterProblem(
                f"several data directories have used {conninfo.endpoints[0]}: choose one",
                "`pgtop-tune revert --list` lists the change sets; select one with --set ID",
            )
        return says_yes("restore its old values?")

    def may_start(server: KnownServer) -> bool:
        return yes or (can_ask() and says_yes("start it with its old values?"))

    def may_copy(message: str) -> bool:
        tell(message)
        return can_ask() and says_yes("restore the copy?")

    return Policy(is_meant=is_meant, may_start=None if watchdog else may_start, may_copy=may_copy)


async def restart_after_reverting(
    conninfo: ConnInfo, reverted: Sequence[ParameterChange], directory: Path | None
) -> tuple[ParameterChange, ...]:
    """Restart the server where the old values need it, and return the changes as they are afterwards.

    Raises:
        ServerProblem: The server did not come up.
    """
    async with aclosing(PostgresControl(conninfo, directory=directory)) as control:
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
