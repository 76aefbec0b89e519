"""`pgtop-tune revert`: reverts changes that earlier sessions left in force."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.changes.watchdogs import COPY_ON_STDIN, LAST_ATTEMPT
from pgtop_tune.cli.connecting import ConnectionWords
from pgtop_tune.cli.output import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgtop_tune.changes.change_sets import MachineHalves
    from pgtop_tune.changes.journal import JournalText
    from pgtop_tune.changes.model.change import ParameterChange
    from pgtop_tune.changes.model.change_set import Change, RevertOutcome
    from pgtop_tune.changes.restart.recovery import Elsewhere
    from pgtop_tune.changes.selection import Selection
    from pgtop_tune.postgres.server.conninfo import ConnInfo


def revert(
    *,
    list_only: Annotated[bool, typer.Option("--list", help="List the changes in force; change nothing.")] = False,
    last: Annotated[bool, typer.Option("--last", help="Revert only the last change set.")] = False,
    all_changes: Annotated[bool, typer.Option("--all", help="Revert all changes (the default).")] = False,
    set_id: Annotated[
        str, typer.Option("--set", metavar="ID", help="Revert one set or change, named as in --list.")
    ] = "",
    to: Annotated[
        str, typer.Option("--to", metavar="TIME", help="Revert the changes made since: 14:05, or 2026-05-01T14:05.")
    ] = "",
    overdue: Annotated[
        bool, typer.Option("--overdue", help="Revert only unconfirmed change sets past their deadline.")
    ] = False,
    machine: Annotated[
        bool,
        typer.Option("--machine", help="Revert the settings of this machine's operating system; no server is needed."),
    ] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Restart the server if the old values need it.")] = False,
    last_attempt: Annotated[bool, typer.Option(LAST_ATTEMPT, hidden=True)] = False,
    copy_on_stdin: Annotated[bool, typer.Option(COPY_ON_STDIN, hidden=True)] = False,
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="Also revert changes made on another server of this cluster that this one has replaced.",
        ),
    ] = False,
    retire: Annotated[
        Path | None,
        typer.Option("--retire", metavar="FILE", help="Take a change journal out of use; reverts nothing."),
    ] = None,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            help="Do not ask before retiring a journal or starting a server that is down.",
        ),
    ] = False,
    journal: Annotated[
        Path | None, typer.Option("--journal", metavar="DIRECTORY", help="Directory of the change journals.")
    ] = None,
    words: ConnectionWords,
) -> None:
    """Revert every change in force that pgtop-tune made on this server, also after a crash.

    Settings of the machine in the same change sets are reverted, too; --machine reverts all settings of the machine,
    and nothing else. If the server is down, the command restores the old values in its postgresql.auto.conf and prints
    what starts it; it starts it if a restart of ours is reverted, or after a yes. It finds a server that listens
    elsewhere since a restart. The command works from the change journal; the process that made the changes need not
    exist. A primary and its standbys have separate journals. A change that the server refuses to revert stays in
    force, does not stop the others, and ends the command with status 6. --list shows the changes of all
    servers in this user's journals.

    Examples: pgtop-tune revert --list  ·  pgtop-tune revert -h /run/postgresql -d bench  ·  pgtop-tune revert --last
    """
    from pgtop_tune.changes.confirm.orphans import note_given_up

    copy = sys.stdin.buffer.read() if copy_on_stdin else b""
    copies = (copy,) if copy else ()
    _check_there(journal, copies)
    if list_only:
        sys.exit(_list(journal))
    if retire is not None:
        from pgtop_tune.cli.reverting import retire as retired

        sys.exit(retired(retire, journal, _in_force, yes=yes))
    if overdue and (unknown := _unknown(set_id, journal)) is not None:
        raise unknown
    if overdue and set_id and not _is_pending(set_id, journal):
        # Reverted or kept by somebody else: a server that is gone by now need not be asked.
        say("nothing to revert")
        return
    try:
        if machine:
            sys.exit(_revert_machine(_selected(last, all_changes, set_id, to, overdue), journal, copies))
        chosen = _selected(last, all_changes, set_id, to, overdue)
        of_set = "" if overdue else set_id
        status, left = _revert(
            words,
            chosen,
            of_set,
            set_id,
            journal,
            restart=restart,
            adopt=adopt,
            yes=yes,
            copies=copies,
            # Whoever passes both is a process that waited for the deadline of a set.
            watchdog=copy_on_stdin or (overdue and bool(set_id)),
        )
    except PgtopError as problem:
        if last_attempt:
            note_given_up(set_id, journal, problem)
        raise
    if last_attempt and left is not None:
        note_given_up(set_id, journal, left)
    sys.exit(status)


def _selected(last: bool, all_changes: bool, set_id: str, to: str, overdue: bool) -> Selection:
    """Which changes the words mean.

    Raises:
        UsageProblem: More than one of them, or no moment.
    """
    from pgtop_tune.changes import selection
    from pgtop_tune.changes.server.one_change import now_ms

    _check_one_at_most(last, all_changes, set_id, to)
    if overdue:
        _check_one_at_most(overdue, last, all_changes, to)
        # All of it goes first, whatever else is asked for.
        return selection.overdue(now_ms())
    if last:
        return selection.last
    if set_id:
        return selection.of_set(set_id)
    return selection.since(_moment_ms(to)) if to else selection.everything


def _check_one_at_most(*words: bool | str) -> None:
    from pgtop_tune.base.errors import UsageProblem

    if sum(map(bool, words)) > 1:
        raise UsageProblem("--last, --all, --set, --to and --overdue contradict each other", "pass one of them")


def _check_there(directory: Path | None, copies: Sequence[bytes]) -> None:
    """Make sure that a directory that was named is there: one that was moved away says nothing of what is in force.

    Raises:
        JournalProblem: It is not; nothing was changed.
    """
    import os

    from pgtop_tune.base.errors import JournalProblem

    if directory is not None and not copies and not os.path.lexists(directory):
        raise JournalProblem(
            f"there is no directory {directory}", "--journal names the directory of the change journals"
        )


def _unknown(set_id: str, directory: Path | None) -> PgtopError | None:
    """Return a problem for a set that no journal has, in force or not; None where one has it, or may have it."""
    from pgtop_tune.base.errors import JournalProblem
    from pgtop_tune.base.paths import journal_dir
    from pgtop_tune.changes.journal import read_all

    found = read_all(directory)
    if not set_id or set_id in found.ids or found.problems:
        return None
    return JournalProblem(
        f"no change journal in {directory or journal_dir()} has the set {set_id}: it may be in force",
        "`pgtop-tune revert --list` lists the changes in force; --journal names another directory",
    )


def _is_pending(set_id: str, directory: Path | None) -> bool:
    """Whether a set is, or may be: a journal that cannot be read may have it."""
    from pgtop_tune.changes.journal import read_all

    found = read_all(directory)
    changes: list[Change] = []
    for text in found.texts.values():
        changes += (*text.in_force, *text.host_in_force)
    return bool(found.problems) or any(set_id in (each.set_id, each.id) and not each.kept for each in changes)


def _revert_machine(selection: Selection, directory: Path | None, copies: Sequence[bytes]) -> int:
    from pgtop_tune.cli.reverting import revert_machine

    revert_machine(selection, directory, copies)
    return 0


def _moment_ms(text: str) -> int:
    """A moment of local time, milliseconds since the epoch; a time of the day is the last one that was.

    Raises:
        UsageProblem: Not a moment.
    """
    from datetime import datetime, time, timedelta

    from pgtop_tune.base.errors import UsageProblem

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
    from pgtop_tune.base.paths import journal_dir
    from pgtop_tune.changes.journal import read_all
    from pgtop_tune.cli.exit_codes import ExitCode
    from pgtop_tune.cli.reverting import tell_of_damage

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
    from pgtop_tune.cli.reverting import told as told_of_machine

    again = [f"{_told(change)}: in force if the server has this value again" for change in text.displaced]
    return [*map(_told, text.in_force), *again, *map(told_of_machine, text.host_in_force)]


def _told(change: ParameterChange) -> str:
    """One change in force in a line: what, how far, since when, by whom, for whom, why, and the id to revert it by."""
    from datetime import datetime

    from pgtop_tune.changes.model.change import SYSTEM

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


def _revert(
    words: ConnectionWords,
    selection: Selection,
    set_id: str,
    on_server: str,
    directory: Path | None,
    *,
    restart: bool,
    adopt: bool,
    yes: bool,
    copies: Sequence[bytes],
    watchdog: bool,
) -> tuple[int, PgtopError | None]:
    """The exit status, and what left the set in force that was asked for."""
    import asyncio

    from pgtop_tune.changes.change_sets import MachineHalves, is_of_machine_only
    from pgtop_tune.changes.journal import read_all
    from pgtop_tune.changes.machine.control import HostControl
    from pgtop_tune.changes.model.change_set import RevertOutcome
    from pgtop_tune.changes.server.reverting import missed_set
    from pgtop_tune.cli import reverting
    from pgtop_tune.cli.exit_codes import ExitCode
    from pgtop_tune.cli.output import complain, tell
    from pgtop_tune.cli.reverting import say_reverted, tell_of_damage, tell_of_the_rest

    if not copies:
        tell_of_damage(directory)
    # The sets whose halves of the server are reverted, and the one that was asked for.
    lost = read_all(directory).lost(copies)
    machine = HostControl(directory=directory, copies={set_id: copies[0]} if copies else {})
    # Each half of a set has a revert watchdog with a copy of its own.
    is_server_alone = any(text.in_force for _, text in lost)
    halves = MachineHalves(None if is_server_alone else machine, [set_id] if set_id else [], told=say_reverted)
    if set_id and is_of_machine_only(set_id, directory, copies):
        say(reverting.sum_of(RevertOutcome(), asyncio.run(halves.after())))
        return ExitCode.OK, None
    try:
        conninfo, outcome = _taken_back(
            words,
            selection,
            halves,
            on_server,
            directory,
            restart=restart,
            adopt=adopt,
            yes=yes,
            copies=copies,
            watchdog=watchdog,
        )
    except PgtopError:
        try:
            asyncio.run(halves.after())
        except PgtopError as problem:
            complain(problem)
        raise
    for line in reverting.of_outcome(outcome):
        say(line)
    refused: dict[tuple[str, str], list[str]] = {}
    for refusal in outcome.refused:
        refused.setdefault((refusal.problem.message, refusal.problem.hint), []).append(refusal.change.name)
    for (message, hint), names in refused.items():
        complain(PgtopError(f"{', '.join(names)}: {message}", hint))
    for line in (*reverting.of_elsewhere(outcome), *reverting.of_inherited(outcome)):
        tell(line)
    # A process that waits for a deadline tries again: a name may lead to another server for a while.
    settled = any(on_server in (each.set_id, each.id) for each in outcome.settled)
    missed = None if outcome.refused else missed_set(on_server, directory, selection, settled=settled)
    if missed is None and not outcome.refused and not settled:
        missed = _unknown(on_server, directory)
    if missed is not None and not outcome.elsewhere:
        complain(missed)
    say(reverting.sum_of(outcome, () if missed is not None else asyncio.run(halves.after())))
    asyncio.run(_look_after_the_rest(conninfo, directory))
    tell_of_the_rest(directory)
    left = outcome.refused[0].problem if outcome.refused else missed
    return (ExitCode.OK if left is None else ExitCode.CHANGE), left


async def _look_after_the_rest(conninfo: ConnInfo, directory: Path | None) -> None:
    """Pending sets of others, and the machine's halves of those that were overdue."""
    from pgtop_tune.base.errors import ConnectionProblem
    from pgtop_tune.changes.confirm.orphans import leave_watchdogs
    from pgtop_tune.changes.machine.control import HostControl
    from pgtop_tune.changes.server.control import PostgresControl
    from pgtop_tune.cli.output import tell

    control = PostgresControl(conninfo, directory=directory)
    with suppress(ConnectionProblem):
        # A server that stays down is looked at when it is up again.
        await leave_watchdogs(control, HostControl(directory=directory), directory, tell)
    await control.aclose()


def _reverted_without_restart(set_id: str, directory: Path | None) -> tuple[ParameterChange, ...]:
    """What a program has taken back of a set that nobody confirmed, and may have been killed before its restart."""
    from pgtop_tune.changes.journal import read_all
    from pgtop_tune.changes.model.change import ChangeState

    return tuple(
        each
        for text in (read_all(directory).texts.values() if set_id else ())
        for each in text.changes
        if set_id in (each.set_id, each.id) and each.state is ChangeState.REVERTED and not each.kept
    )


def _taken_back(
    words: ConnectionWords,
    selection: Selection,
    halves: MachineHalves,
    set_id: str,
    directory: Path | None,
    *,
    restart: bool,
    adopt: bool,
    yes: bool,
    copies: Sequence[bytes],
    watchdog: bool,
) -> tuple[ConnInfo, RevertOutcome]:
    import asyncio

    from msgspec.structs import replace

    from pgtop_tune.base.errors import ConnectionProblem, LockedOut, NoAnswer, NotLetIn, PasswordNeeded, WrongPassword
    from pgtop_tune.changes.journal import read_all
    from pgtop_tune.changes.model.change_set import Refusal, RevertOutcome
    from pgtop_tune.changes.model.pending_set import NOT_CONFIRMED
    from pgtop_tune.changes.restart.locked_out import by_hand, let_in_again
    from pgtop_tune.changes.restart.recovery import elsewhere, recover
    from pgtop_tune.changes.selection import overdue
    from pgtop_tune.changes.server.one_change import now_ms
    from pgtop_tune.changes.server.reverting import try_to_revert
    from pgtop_tune.cli.looking import let_in
    from pgtop_tune.cli.output import tell
    from pgtop_tune.cli.restarting import policy_for, restart_after_reverting
    from pgtop_tune.cli.signals import run_until_signalled

    written: list[frozenset[str]] = []

    def first(changes: Sequence[ParameterChange]) -> None:
        asyncio.run(halves.before(changes))

    def taken(conninfo: ConnInfo, key: str = "") -> RevertOutcome:
        # Without its journal nothing but the set of the copy is known.
        late = RevertOutcome()
        if not read_all(directory).lost(copies):
            late = try_to_revert(
                conninfo,
                overdue(now_ms()),
                directory=directory,
                why=NOT_CONFIRMED,
                first=first,
                key=key,
                tell_of_others=None if set_id else tell,
            )
        # Those that are refused or elsewhere are asked for once more.
        late = replace(late, refused=(), elsewhere=())
        selected = try_to_revert(
            conninfo,
            selection,
            directory=directory,
            adopt=adopt,
            first=first,
            key=key,
            copies=copies,
            tell_of_others=tell if adopt else None,
        )
        return late.and_then(selected).after_writing(frozenset().union(*written))

    def restarted(conninfo: ConnInfo, outcome: RevertOutcome) -> tuple[ConnInfo, RevertOutcome]:
        settled = outcome.settled or _reverted_without_restart(set_id, directory)
        if not restart or not any(change.restart for change in settled):
            return conninfo, outcome
        again = run_until_signalled(restart_after_reverting(conninfo, settled, directory))
        shown = {each.id: each for each in again}
        return conninfo, replace(outcome, settled=tuple(shown.get(each.id, each) for each in outcome.settled))

    def sought(conninfo: ConnInfo) -> Elsewhere | None:
        there = elsewhere(conninfo, selection, directory, set_id)
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
                conninfo, selection, directory, tell, set_id, written.append
            ):
                return restarted(conninfo, taken(conninfo))
            if isinstance(error, LockedOut | NoAnswer):
                error.hint = by_hand(conninfo, selection, directory, set_id) or error.hint
            if isinstance(error, NotLetIn) and not set_id:
                raise
            problem = error
        there = sought(conninfo)
        if there is None:
            policy = policy_for(conninfo, yes=yes, watchdog=watchdog)
            recovered = None
            # Another server may answer there while that of the set is down.
            if not isinstance(problem, NotLetIn | LockedOut):
                recovered = recover(conninfo, selection, directory, tell, policy, set_id, written.append)
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

    return let_in(words, act)
