"""Changes from the command line: show SQL and commands, change, read back, and revert after a time if one is given."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import HostProblem, ServerProblem, UnsafeChange, UsageProblem
from pgtop_tune.base.foreign_answers import decoding
from pgtop_tune.base.secret import without_secrets
from pgtop_tune.base.units import counted, duration
from pgtop_tune.changes.change_sets import ChangeSets, WithRestart, check_up
from pgtop_tune.changes.confirm.orphans import leave_watchdogs
from pgtop_tune.changes.confirm.pending_sets import PendingSets
from pgtop_tune.changes.machine.control import HostControl
from pgtop_tune.changes.model.change import (
    SYSTEM,
    ChangeState,
    HostChange,
    ParameterChange,
    Reach,
    Scope,
    ScopeKind,
    Terms,
    WantedParameter,
    WantedSetting,
    of_reach,
)
from pgtop_tune.changes.model.change_set import ChangeSet, RestartPlan, RestartVerdict, Settled
from pgtop_tune.changes.ports import SetControl
from pgtop_tune.changes.restart.control import RestartService
from pgtop_tune.changes.selection import parameters_in_order
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.changes.server.one_change import Rules, with_reset_values
from pgtop_tune.changes.start.checks import AS_ON_PRIMARY
from pgtop_tune.changes.statements import check_lists
from pgtop_tune.changes.watchdogs import guard_machine_set, guard_set
from pgtop_tune.cli.assignments import SESSION_CONTEXTS, instead, nearest_settings
from pgtop_tune.cli.connections import ConnectionWords, let_in
from pgtop_tune.cli.output import can_ask, complain, say, tell
from pgtop_tune.cli.signals import answer_to, require_yes, run_until_signalled, to_the_end
from pgtop_tune.host.block_devices import QUEUE_SETTINGS, server_directories
from pgtop_tune.host.process_files import local_postmaster, working_directory
from pgtop_tune.metrics.setting_risks import risk_of
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.parameter_values import check_value, without_blanks
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.sql_session import PsycopgSession, open_sql_session
from pgtop_tune.postgres.server.straight_way import whereabouts
from pgtop_tune.process.revert_watchdog import RevertWatchdog

# The machine's half.


async def machine_of(
    conninfo: ConnInfo, names: Sequence[str], *, beside_server: bool, with_restart: bool = False
) -> HostControl:
    """Return the control of this machine's settings.

    Args:
        names: Settings to change; for some, the server tells its directories.
        beside_server: Parameters of the server change in the same set.
        with_restart: A revert after our end restarts the server.

    Raises:
        ConnectionProblem: The server does not tell its directories.
    """
    surely_here = all(endpoint.is_socket for endpoint in conninfo.endpoints)
    of_disks = any(name.rpartition("/")[2] in QUEUE_SETTINGS for name in names)
    takes_directories = bool(names) and (beside_server or of_disks or not surely_here)
    directories = await _directories(conninfo) if takes_directories else ()

    def guard(set_id: str, until_ms: int | None, directory: Path | None) -> RevertWatchdog:
        if beside_server:
            return guard_set(conninfo, set_id, until_ms, directory, with_restart=with_restart)
        return guard_machine_set(set_id, until_ms, directory)

    return HostControl(lambda: directories, guard=guard)


async def _directories(conninfo: ConnInfo) -> tuple[str, ...] | Unavailable:
    """Return the directories of data and WAL; Unavailable where the server's backend is no process of this machine."""
    async with whereabouts(conninfo) as backend:
        postmaster = local_postmaster(backend.backend_pid, backend.backend_start_ms)
    if isinstance(postmaster, Unavailable):
        return postmaster
    directory = backend.data_directory or working_directory(postmaster)
    return tuple(server_directories(directory).values()) if directory else ()


def show_commands(machine: HostControl, settings: Sequence[WantedSetting], *, survive: bool) -> None:
    """Print the shell commands that make the settings, one a line."""
    for setting in settings:
        for command in machine.commands(setting.name, setting.value, survive=survive):
            say(command)


async def live_settings(machine: HostControl, settings: Sequence[WantedSetting]) -> Mapping[str, str]:
    """Return the values of this machine by name.

    Raises:
        HostProblem: The server runs on another machine; the commands to paste there were printed.
    """
    live = await machine.settings()
    if isinstance(live, Unavailable):
        show_commands(machine, settings, survive=False)
        raise HostProblem(f"nothing was changed: {live.detail}", "run the commands above on the server's machine")
    return {setting.name: setting.live for setting in live if not isinstance(setting.live, Unavailable)}


async def check_permitted(machine: HostControl, settings: Sequence[WantedSetting]) -> None:
    """Make sure that this process may change the settings.

    Raises:
        HostProblem: It may not; nothing was changed.
    """
    names = {setting.name for setting in settings}
    live = await machine.settings() if names else ()
    for setting in () if isinstance(live, Unavailable) else live:
        if setting.name in names and not setting.writable:
            raise HostProblem(
                f"{setting.path} cannot be written by this process: nothing was changed",
                "run the sudo commands above, or run this command as root",
            )


def say_setting(change: HostChange, before: str) -> None:
    """Print a change in a line: the value before, and the one that the kernel has now."""
    note = f"  ({change.message})" if change.message else ""
    say(f"{change.name}: {before} → {change.shown_after}{note}")


# A restart: its plan, its confirmation, itself.


def show_plan(plan: RestartPlan, for_s: float | None = None) -> None:
    """Print what a restart does: parameters it applies, checks, the command, the sessions that it ends."""
    for pending in plan.pending:
        say(f"applies pending: {pending.name}: {pending.running} → {pending.after}")
    for check in plan.checks:
        hint = f" ({check.hint})" if check.hint else ""
        say(f"{check.subject:<13} {check.verdict:<10} {check.words}{hint}")
    say(f"restart ({plan.managed}): {plan.command}" if plan.command else f"restart: {plan.managed}")
    if not plan.by_us:
        say(f"pgtop-tune cannot restart the server: {plan.why_not}; pgtop-tune waits for the restart")
    within = f", {plan.in_transaction} of them in a transaction" if plan.in_transaction else ""
    say(f"ends {counted(plan.sessions, 'session')}{within}")
    if for_s is not None:
        say(f"reverts after {duration(for_s)}, with a second restart")


def confirm(plan: RestartPlan, *, yes: bool, anyway: bool) -> None:
    """Ask for a restart, unless --yes has.

    Raises:
        ServerProblem: A check says that the server would not start, or the operator does not say yes.
        UsageProblem: There is no terminal to ask on.
    """
    stopping = [check for check in plan.checks if check.verdict is RestartVerdict.IMPOSSIBLE]
    if stopping and not anyway:
        hint = "; ".join(filter(None, (stopping[0].hint, "nothing was changed; --anyway restarts regardless")))
        raise ServerProblem(stopping[0].words, hint)
    reason = "a restart ends every session and needs a confirmation"
    require_yes("restart the server?", yes=yes, reason=reason, refused="not restarted: nothing was changed")


def check_nothing_waits(plan: RestartPlan, expected: Collection[str] = ()) -> None:
    """Raise UsageProblem where a restart would apply parameters other than the expected ones."""
    if waiting := ", ".join(parameter.name for parameter in plan.pending if parameter.name not in expected):
        raise UsageProblem(
            f"{waiting} already waits for a restart, which would apply it too", "run `pgtop-tune set --restart` first"
        )


async def restart(service: RestartService) -> None:
    """Restart the server, and say how. Raises ServerProblem where it does not come up."""
    outcome = await service.apply((), Terms(), tell)
    check_up(outcome)
    tell(outcome.words)


async def check_known(
    names: Sequence[str], parameters: Iterable[Parameter], open_session: Callable[[], Awaitable[PsycopgSession]]
) -> None:
    """Make sure that the server has the parameters.

    Args:
        parameters: The parameters with these names that the server has.
        open_session: Opens a session that lists all names for the hint.

    Raises:
        UsageProblem: It lacks one; the hint has the nearest name.
    """
    names_of_server = {parameter.name.lower() for parameter in parameters}
    for unknown in (name for name in names if name.lower() not in names_of_server):
        async with aclosing(await open_session()) as sql_session:
            with decoding():
                all_names = [str(name) for name, *_ in await sql_session.rows("SELECT name FROM pg_settings")]
        hint = instead(unknown, [*all_names, *nearest_settings(names)])
        raise UsageProblem(f"the server has no parameter {unknown}", hint)


_RELOAD: Final = " SELECT pg_reload_conf();"
_RECOVERY: Final = "SELECT pg_is_in_recovery() AS in_recovery"
_READ_ONLY: Final = "25006"

_REACH: Final = {
    ScopeKind.SYSTEM: Reach.SYSTEM,
    ScopeKind.ROLE: Reach.ROLE,
    ScopeKind.DATABASE: Reach.DATABASE,
    ScopeKind.ROLE_IN_DATABASE: Reach.ROLE,
}


class ChangeRequest(Struct, frozen=True):
    """A change of parameters and of settings of the machine.

    Attributes:
        parameters: Parameters to change; one with the value None is reset.
        scope: None is the session of the next load.
        for_s: Seconds until the change reverts; None keeps it.
        reason: Reason that the journal records.
        dry_run: Show the change, and make none.
        allow_unsafe: Values that can lose data may be unlocked.
        confirmed: Names typed to unlock values that are not safe.
        settings: Settings of the machine, made before the server's half.
        settings_after: Settings of the machine, made after the server's half; may set one of `settings` again.
        persist: Write the machine's half into a file of sysctl.d, too.
        restart: Restart the server once, so that all values are in force.
        yes: Ask for no confirmation.
        anyway: Restart although a check says that the server would not start.
    """

    parameters: tuple[WantedParameter, ...]
    scope: Scope | None = SYSTEM
    for_s: float | None = None
    reason: str = ""
    dry_run: bool = False
    allow_unsafe: bool = False
    confirmed: frozenset[str] = frozenset()
    settings: tuple[WantedSetting, ...] = ()
    settings_after: tuple[WantedSetting, ...] = ()
    persist: bool = False
    restart: bool = False
    yes: bool = False
    anyway: bool = False


def make_change(connection: ConnectionWords, request: ChangeRequest) -> int:
    """Make a change on the server of the options, and return the exit status. Raises as `change`."""
    return let_in(connection, lambda conninfo: run_until_signalled(change(conninfo, request)))


def require_yes_to(changes: int, *, yes: bool) -> None:
    """Ask for a number of changes. Raises as `require_yes`."""
    reason = f"{changes} changes need a confirmation"
    require_yes(f"apply these {changes} changes?", yes=yes, reason=reason, refused="nothing was changed")


async def change(conninfo: ConnInfo, request: ChangeRequest) -> int:
    """Make a change, and return the exit status.

    Raises:
        UsageProblem: The server or the kernel would not take a name or a value.
        UnsafeChange: A value can lose data and was not unlocked.
        ServerProblem: The server refused; nothing is changed.
        HostProblem: This process may not change the machine, or the kernel refused; nothing is changed.
    """
    control = PostgresControl(conninfo, rules=Rules(fenced=True, allow_unsafe=request.allow_unsafe, tell=tell))
    service = RestartService(control)
    machine = await machine_of(
        conninfo,
        [setting.name for setting in (*request.settings, *request.settings_after)],
        beside_server=bool(request.parameters),
        with_restart=request.restart,
    )
    async with aclosing(machine), aclosing(control), aclosing(service):
        current: dict[str, Parameter] = {}
        if not request.dry_run:
            await leave_watchdogs(control if request.parameters else None, machine, None, tell)
        if request.parameters:
            listed = await control.list(tuple(parameter.name for parameter in request.parameters))
            current = {parameter.name.lower(): parameter for parameter in listed}
            request = await _checked(conninfo, request, current)
            if request.scope is not None:
                await control.ask(lambda session: check_lists(session, request.parameters))
        valued = request
        if any(parameter.value is None for parameter in request.parameters):
            with_values = await control.ask(lambda session: with_reset_values(session, request.parameters, current))
            valued = replace(request, parameters=with_values)
        confirmed = _unlocked(valued, current)
        if request.scope is None:
            _show_options(request.parameters, current)
            return 0
        parameters = WithRestart(control, service, tell, anyway=request.anyway) if request.restart else control
        halves = await _planned(machine, parameters, request, current)
        _show(control, machine, halves)
        _say_reach(request, current)
        await _say_standby(control, request)
        plan = None
        if request.restart:
            plan = await service.plan(request.parameters)
            show_plan(plan, request.for_s)
            if request.settings and not plan.possible:
                tell("the machine's settings are changed first; then the restart is checked again")
        if request.dry_run:
            if request.settings:
                tell("a test start follows once the machine's settings are changed")
            elif not request.anyway:
                await control.check_starts(request.parameters)
            return 0
        await check_permitted(machine, halves.of_machine)
        if plan is not None:
            # Huge pages of the same set are there only after its machine's half was made; it is counted again then.
            confirm(plan, yes=request.yes, anyway=request.anyway or bool(request.settings))
        sets = ChangeSets(parameters if request.parameters else None, machine if halves.of_machine else None)
        pending = PendingSets(sets, lambda event: None, report=complain, at_deadline="")
        await _make(pending, halves, Terms(request.for_s, request.reason, confirmed), service.give_up)
    return 0


def _say_reach(request: ChangeRequest, current: dict[str, Parameter]) -> None:
    """Say when sessions that are connected already get the values; `show_plan` says what a restart does."""
    reached = dict.fromkeys(
        choice.connected
        for parameter in request.parameters
        if (choice := of_reach(current[parameter.name.lower()].context, _REACH[parameter.scope.kind])) is not None
    )
    for message in reached if not request.restart else ():
        tell(message)


async def _say_standby(control: PostgresControl, request: ChangeRequest) -> None:
    """Say on a standby that ALTER SYSTEM changes this server alone, and which values must follow the primary's."""
    if not request.parameters or not await control.ask(lambda session: session.rows(_RECOVERY)[0]["in_recovery"]):
        return
    tell("this is a standby: ALTER SYSTEM changes this server, not its primary")
    for parameter in request.parameters:
        if parameter.name.lower() in AS_ON_PRIMARY:
            tell(f"{parameter.name} must be at least the primary's value, otherwise this standby does not start")


async def _planned(
    machine: HostControl, door: SetControl, request: ChangeRequest, current: dict[str, Parameter]
) -> ChangeSet:
    """Return the change set in the order in which it is made; the machine's half is checked."""
    change_set = ChangeSet(
        parameters=parameters_in_order(request.parameters, current),
        settings=request.settings,
        settings_after=request.settings_after,
        persist=request.persist,
    )
    for settings in filter(None, (request.settings, request.settings_after)):
        await live_settings(machine, settings)
        await machine.check(settings, survive=request.persist)
    return await ChangeSets(door, machine).plan(change_set)


def _show(control: PostgresControl, machine: HostControl, halves: ChangeSet) -> None:
    """Print the commands and the SQL in the order in which they are change_set."""
    texts = [control.statement(parameter.name, parameter.value, parameter.scope) for parameter in halves.parameters]
    show_commands(machine, halves.settings, survive=halves.persist)
    for text in texts:
        say(text.removesuffix(_RELOAD))
    if texts and texts[0].endswith(_RELOAD):
        say(_RELOAD.strip())
    show_commands(machine, halves.settings_after, survive=halves.persist)


async def _checked(conninfo: ConnInfo, request: ChangeRequest, current: dict[str, Parameter]) -> ChangeRequest:
    """Return the request without meaningless blanks; raise UsageProblem for a value that the server would refuse."""
    names = [assignment.name for assignment in request.parameters]
    await check_known(names, current.values(), lambda: open_sql_session(conninfo))
    checked = []
    for assignment in request.parameters:
        parameter = current[assignment.name.lower()]
        value = None if assignment.value is None else without_blanks(parameter, assignment.value)
        if value is not None:
            check_value(parameter, value)
        checked.append(replace(assignment, value=value))
    return replace(request, parameters=tuple(checked))


def _show_options(assignments: Sequence[WantedParameter], current: dict[str, Parameter]) -> None:
    """Print PGOPTIONS for a load: libpq splits them at spaces, a backslash keeps one (libpq manual, "options")."""
    options = []
    for assignment in assignments:
        parameter = current[assignment.name.lower()]
        if parameter.context not in SESSION_CONTEXTS:
            raise UsageProblem(
                f"{parameter.name} applies to the whole server (context {parameter.context})",
                "--scope system changes it",
            )
        value = (assignment.value or "").replace("\\", "\\\\").replace(" ", "\\ ")
        options.append(f"-c {parameter.name}={value}")
    say(f"export PGOPTIONS={shlex.quote(' '.join(options))}")
    tell("nothing changes on the server: only sessions of a load started with these PGOPTIONS have the values")


def _unlocked(request: ChangeRequest, current: dict[str, Parameter]) -> frozenset[str]:
    """Return the names that the operator has typed to unlock values that are not safe; each value is shown whole.

    Raises:
        UsageProblem: A value that can lose data would stay.
        UnsafeChange: With --dry-run, or for a load: a value would be refused.
    """
    confirmed = set(request.confirmed)
    ends = request.scope is not None and request.for_s is not None
    for assignment in request.parameters:
        risk = risk_of(assignment.name, assignment.value, current[assignment.name.lower()])
        if risk is None:
            continue
        message = f"{without_secrets(f'{assignment.name} = {assignment.value}')} {risk.words}"
        is_locked, may_unlock = risk.locked(ends=ends), request.allow_unsafe or not risk.loses_data
        if is_locked and may_unlock and risk.loses_data and request.for_s is None and request.scope is not None:
            raise UsageProblem(
                f"{message}: the value is only allowed for a limited time", "pass a time, as in --for 5m"
            )
        if not is_locked or assignment.name in confirmed:
            tell(message)
        elif may_unlock and can_ask():
            tell(message)
            if request.dry_run:
                tell(f"without --dry-run, this command asks you to type {assignment.name}")
            else:
                confirmed.add(answer_to(f"type {assignment.name} to unlock it: "))
        # The control refuses locked values, but it is asked neither in a dry run nor for the options of a load.
        asks_later = request.dry_run and can_ask()
        unlocks = may_unlock and (assignment.name in confirmed or asks_later)
        if (request.dry_run or request.scope is None) and is_locked and not unlocks:
            unlock = (
                f"type {assignment.name} or pass --confirm {assignment.name}" if may_unlock else "pass --allow-unsafe"
            )
            raise UnsafeChange(message, f"{unlock} to unlock it")
    return frozenset(confirmed)


async def _make(pending: PendingSets, planned: ChangeSet, terms: Terms, give_up: Callable[[], None]) -> None:
    try:
        change_set, interrupted = await to_the_end(pending.apply(planned, terms), give_up)
    except ServerProblem as problem:
        if problem.sqlstate == _READ_ONLY:
            raise ServerProblem(
                problem.message, "this is a standby: roles and databases are changed on the primary", problem.sqlstate
            ) from None
        raise
    for setting in change_set.settings:
        say_setting(setting, setting.value_before)
    for parameter in change_set.parameters:
        after = parameter.told_after
        message = parameter.message
        if not message and after != parameter.shown_after:
            message = f"SHOW prints {parameter.shown_after}"
        note = f"  ({message})" if message else ""
        say(f"{parameter.name}: {parameter.shown_before} → {after}{note}")
    if terms.keep_within_s is None:
        if interrupted:
            raise asyncio.CancelledError
        if any(parameter.scope.is_system for parameter in change_set.parameters):
            again = " --restart" if any(parameter.restart for parameter in change_set.parameters) else ""
            tell(f"`pgtop-tune revert --last{again}` reverts it")
        elif change_set.settings:
            tell("`pgtop-tune revert --machine --last` reverts it")
        return
    tell(f"reverts after {duration(terms.keep_within_s)}, or at once with Ctrl-C (set {change_set.set_id})")
    try:
        if interrupted:
            raise asyncio.CancelledError
        _say_reverted(await pending.over(change_set.set_id))
    except asyncio.CancelledError:
        reverted, _ = await to_the_end(pending.revert_now(change_set.set_id), give_up)
        _say_reverted(reverted)
        if reverted.problem is not None:
            complain(reverted.problem)
            machine = "" if change_set.parameters else "--machine "
            tell(f"`pgtop-tune revert {machine}--set {change_set.set_id}` reverts it when the server answers again")
        raise


def _say_reverted(reverted: Settled) -> None:
    if not reverted.changes and reverted.problem is None:
        tell("already reverted by another session")
    for parameter in reverted.parameters:
        say(settled_words(parameter))
    for setting in reverted.settings:
        say_setting(setting, setting.value)


def settled_words(change: ParameterChange) -> str:
    """Return the line of a change that is no longer in force: from which value to which, or why nothing was written."""
    if change.state is ChangeState.SUPERSEDED:
        return f"{change.name}: {change.message}"
    note = f"  ({change.message})" if change.message else ""
    return f"{change.name}: {change.value or 'default'} → {value_after(change)}{note}"


def value_after(change: ParameterChange) -> str:
    """Return the value after a revert; a parameter that takes a restart keeps its running value until then."""
    waits = change.restart and change.shown_after != change.shown_before
    return (change.auto_conf_before or change.shown_before) if waits else change.shown_after
