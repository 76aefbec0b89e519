"""`pgtop-tune revert`: takes back what earlier sessions changed and left."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgtop_tune.cli import options
from pgtop_tune.cli.connecting import ConnectionWords
from pgtop_tune.cli.output import say
from pgtop_tune.errors import PgtopError

if TYPE_CHECKING:
    from pgtop_tune.cli.machine_reverting import MachineHalves
    from pgtop_tune.host.control import Choice as MachineChoice
    from pgtop_tune.model.change import ParameterChange
    from pgtop_tune.postgres.conninfo import ConnInfo
    from pgtop_tune.postgres.reverting import Choice
    from pgtop_tune.tuning.restart.recovery import Elsewhere


def revert(
    target: options.Target = "",
    list_only: Annotated[bool, typer.Option("--list", help="Show what is in force; change nothing.")] = False,
    last: Annotated[bool, typer.Option("--last", help="Only the last change, with its set.")] = False,
    all_changes: Annotated[bool, typer.Option("--all", help="Everything; so without any of these words.")] = False,
    set_id: Annotated[str, typer.Option("--set", metavar="ID", help="One set or change, as --list names it.")] = "",
    to: Annotated[
        str, typer.Option("--to", metavar="TIME", help="What was changed since: 14:05, or 2026-05-01T14:05.")
    ] = "",
    machine: Annotated[
        bool, typer.Option("--machine", help="The settings of this machine's operating system; no server is needed.")
    ] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Restart the server where the old values need it to be in force.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask before a server that is down is started; only one can be meant.")
    ] = False,
    journal: Annotated[
        Path | None, typer.Option("--journal", metavar="DIRECTORY", help="Where the change journals are.")
    ] = None,
    host: options.Host = "",
    port: options.Port = "",
    user: options.User = "",
    database: options.Database = "",
    no_password: options.NoPassword = False,
    ask_password: options.AskPassword = False,
) -> None:
    """Restore every parameter that pgtop-tune changed on this server and did not undo, also after a crash.

    Settings of the machine that were changed in the same sets go along; --machine takes back all of those, and only
    those. A server that is down through a change of ours is shown, and gets its old values back and is started when you
    say yes; one that listens elsewhere since a restart is found. Works from the change journal; the process that made
    the changes need not live. With --list and no connection words, shows the changes of all servers this user has
    journals for.

    Examples: pgtop-tune revert --list  ·  pgtop-tune revert -h /run/postgresql -d bench  ·  pgtop-tune revert --last
    """
    words = ConnectionWords(target, host, port, user, database, no_password, ask_password)
    if list_only:
        sys.exit(_list(journal))
    if machine:
        sys.exit(_revert_machine(_chosen_of_machine(last, all_changes, set_id, to), journal))
    sys.exit(_revert(words, _chosen(last, all_changes, set_id, to), set_id, journal, restart=restart, yes=yes))


def _chosen(last: bool, all_changes: bool, set_id: str, to: str) -> Choice:
    """Which changes the words mean.

    Raises:
        UsageProblem: More than one of them, or no moment.
    """
    from pgtop_tune.postgres import reverting

    _check_one_at_most(last, all_changes, set_id, to)
    if last:
        return reverting.last
    if set_id:
        return reverting.of_set(set_id)
    return reverting.since(_moment_ms(to)) if to else reverting.everything


def _chosen_of_machine(last: bool, all_changes: bool, set_id: str, to: str) -> MachineChoice:
    """The same for the operating system."""
    from pgtop_tune.cli.machine_reverting import choice

    _check_one_at_most(last, all_changes, set_id, to)
    return choice(last, set_id, _moment_ms(to) if to else None)


def _check_one_at_most(last: bool, all_changes: bool, set_id: str, to: str) -> None:
    from pgtop_tune.errors import UsageProblem

    if sum(map(bool, (last, all_changes, set_id, to))) > 1:
        raise UsageProblem("--last, --all, --set and --to contradict each other", "give one of them")


def _revert_machine(choice: MachineChoice, directory: Path | None) -> int:
    from pgtop_tune.cli.machine_reverting import revert_machine

    revert_machine(choice, directory)
    return 0


def _moment_ms(text: str) -> int:
    """A moment of local time, milliseconds since the epoch; a time of the day is the last one that was.

    Raises:
        UsageProblem: Not a moment.
    """
    from datetime import datetime, time, timedelta

    from pgtop_tune.errors import UsageProblem

    now = datetime.now()
    try:
        moment = datetime.combine(now.date(), time.fromisoformat(text))
        moment -= timedelta(days=moment > now)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise UsageProblem(f"{text!r} is no moment", "for example: 14:05  or  2026-05-01T14:05") from None
    return int(moment.timestamp() * 1000)


def _list(directory: Path | None) -> int:
    from pgtop_tune.cli.machine_reverting import told as told_of_machine
    from pgtop_tune.cli.output import tell
    from pgtop_tune.journal import journals, read

    found = 0
    for path in journals(directory):
        text = read(path)
        for problem in text.problems:
            tell(f"{path}: {problem}")
        told = [*map(_told, text.in_force), *map(told_of_machine, text.host_in_force)]
        if told:
            say(text.server.description if text.server else path.stem)
        for line in told:
            found += 1
            say(f"  {line}")
    if not found:
        say("no changes in force")
    return 0


def _told(change: ParameterChange) -> str:
    """One change in force in a line: what, how far, since when, by whom, for whom, why, and the id to revert it by."""
    from datetime import datetime

    from pgtop_tune.model.change import SYSTEM

    scope = " ".join(filter(None, (str(change.scope.kind), change.scope.role, change.scope.database)))
    notes = (
        str(change.state),
        f"{datetime.fromtimestamp(change.at_ms / 1000):%Y-%m-%d %H:%M:%S}",
        f"by {change.by}" if change.by else "",
        "" if change.scope == SYSTEM else f"for {scope}",
        "" if change.kept else "on trial",
        f"can lose {change.loss}" if change.loss else "",
        "takes a restart" if change.restart else "",
        change.reason,
        f"--set {change.set_id or change.id}",
    )
    return f"{change.name}: {change.shown_before} → {change.value or 'default'}  ({'; '.join(filter(None, notes))})"


def _revert(
    words: ConnectionWords, choice: Choice, set_id: str, directory: Path | None, *, restart: bool, yes: bool
) -> int:
    import asyncio

    from pgtop_tune.cli.machine_reverting import MachineHalves, is_of_machine_only, say_sum, tell_of_the_rest
    from pgtop_tune.cli.output import tell
    from pgtop_tune.cli.overdue import take_back_overdue_settings

    halves = MachineHalves(set_id, directory)
    if set_id and is_of_machine_only(set_id, directory):
        say_sum(halves.after())
        return 0
    try:
        reverted = _taken_back(words, choice, halves, set_id, directory, restart=restart, yes=yes)
    except PgtopError:
        halves.after()
        raise
    for change in reverted:
        note = f"  ({change.message})" if change.message else ""
        say(f"{change.name}: {change.value or 'default'} → {change.shown_after}{note}")
    say_sum(len(reverted) + halves.after())
    asyncio.run(take_back_overdue_settings(directory, tell))
    tell_of_the_rest(directory)
    return 0


def _taken_back(
    words: ConnectionWords,
    choice: Choice,
    halves: MachineHalves,
    set_id: str,
    directory: Path | None,
    *,
    restart: bool,
    yes: bool,
) -> tuple[ParameterChange, ...]:
    from pgtop_tune.cli.looking import let_in
    from pgtop_tune.cli.output import tell
    from pgtop_tune.cli.overdue import WHY
    from pgtop_tune.cli.restarting import agreeing, restart_after_reverting, sure
    from pgtop_tune.cli.signals import run_until_signalled
    from pgtop_tune.errors import ConnectionProblem, NotLetIn
    from pgtop_tune.postgres.changes import now_ms
    from pgtop_tune.postgres.reverting import overdue
    from pgtop_tune.postgres.reverting import revert as take_back
    from pgtop_tune.tuning.restart.recovery import elsewhere, recover

    def taken(conninfo: ConnInfo, key: str = "") -> tuple[ParameterChange, ...]:
        late = take_back(conninfo, overdue(now_ms()), directory=directory, why=WHY, first=halves.before, key=key)
        return *late, *take_back(conninfo, choice, directory=directory, first=halves.before, key=key)

    def restarted(conninfo: ConnInfo, reverted: tuple[ParameterChange, ...]) -> tuple[ParameterChange, ...]:
        if not restart or not any(change.restart for change in reverted):
            return reverted
        return run_until_signalled(restart_after_reverting(conninfo, reverted, directory))

    def sought(conninfo: ConnInfo) -> Elsewhere | None:
        there = elsewhere(conninfo, choice, directory, set_id)
        if there is not None:
            tell(f"the server of {there.data_directory} listens at {there.conninfo.endpoints[0]} now")
        return there

    def act(conninfo: ConnInfo) -> tuple[ParameterChange, ...]:
        problem = None
        try:
            reverted = taken(conninfo)
            if reverted or not set_id:
                return restarted(conninfo, reverted)
        except ConnectionProblem as error:
            if isinstance(error, NotLetIn) and not set_id:
                raise
            problem = error
        there = sought(conninfo)
        if there is None and problem is None:
            return ()
        if there is None and problem is not None:
            agree = agreeing(conninfo, yes=yes or bool(set_id))
            if isinstance(problem, NotLetIn) or not recover(conninfo, choice, directory, tell, agree, set_id, sure):
                raise problem
            there = sought(conninfo)
        if there is None:
            return restarted(conninfo, taken(conninfo))
        return restarted(there.conninfo, taken(there.conninfo, there.key))

    return let_in(words, act)
