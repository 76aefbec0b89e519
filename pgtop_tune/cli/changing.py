"""`set` and `reset`: show the SQL and the commands, change, read back, and revert after a time if one is given."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import HostProblem, ServerProblem, UnsafeChange, UsageProblem
from pgtop_tune.base.foreign_answers import decoding
from pgtop_tune.base.secret import without_secrets
from pgtop_tune.base.units import counted, duration
from pgtop_tune.changes.change_sets import ChangeSets, WithRestart
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
from pgtop_tune.changes.restart.control import RestartService
from pgtop_tune.changes.selection import parameters_in_order
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.changes.server.one_change import Rules, with_reset_values
from pgtop_tune.changes.start.checks import AS_ON_PRIMARY
from pgtop_tune.changes.statements import check_lists
from pgtop_tune.changes.watchdogs import guard_machine_set, guard_set
from pgtop_tune.cli.assignments import PARAMETER_NAMES, SESSION_CONTEXTS, check_known, nearest_settings
from pgtop_tune.cli.connecting import can_ask
from pgtop_tune.cli.output import complain, say, tell
from pgtop_tune.cli.signals import answer_to, to_the_end
from pgtop_tune.host.block_devices import QUEUE_SETTINGS, server_directories
from pgtop_tune.host.process_files import local_postmaster, working_directory
from pgtop_tune.metrics.setting_risks import risk_of
from pgtop_tune.metrics.value_risks import ValueRisk
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.parameter_values import check_value, without_blanks
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.sql_session import open_sql_session
from pgtop_tune.postgres.server.straight_way import whereabouts
from pgtop_tune.process.revert_watchdog import RevertWatchdog

# The machine's half: what may be changed, what to paste otherwise.

_PASTE: Final = "paste the commands with sudo above into a shell, or run this as root"


async def machine_of(
    conninfo: ConnInfo, names: Sequence[str], *, beside_server: bool, with_restart: bool = False
) -> HostControl:
    """The door to this machine's settings; the server is asked where that matters.

    Args:
        conninfo: The server.
        names: Settings it is about.
        beside_server: Whether parameters of the server are changed in the same set.
        with_restart: Whether what takes it back after our end restarts the server.

    Raises:
        ConnectionProblem: The server is asked, and is not there.
    """
    surely_here = all(endpoint.is_socket for endpoint in conninfo.endpoints)
    of_disks = any(name.rpartition("/")[2] in QUEUE_SETTINGS for name in names)
    asked = bool(names) and (beside_server or of_disks or not surely_here)
    directories = await _directories(conninfo) if asked else ()

    def guard(set_id: str, until_ms: int | None, directory: Path | None) -> RevertWatchdog:
        if beside_server:
            return guard_set(conninfo, set_id, until_ms, directory, with_restart=with_restart)
        return guard_machine_set(set_id, until_ms, directory)

    return HostControl(lambda: directories, guard=guard)


async def _directories(conninfo: ConnInfo) -> tuple[str, ...] | Unavailable:
    """Where the server keeps data and WAL; why not, where its backend is no process of this machine."""
    async with whereabouts(conninfo) as found:
        postmaster = local_postmaster(found.backend_pid, found.backend_start_ms)
    if isinstance(postmaster, Unavailable):
        return postmaster
    directory = found.data_directory or working_directory(postmaster)
    return tuple(server_directories(directory).values()) if directory else ()


def show_commands(machine: HostControl, settings: Sequence[WantedSetting], *, survive: bool) -> None:
    """What a shell would make of the set, one command a line."""
    for each in settings:
        for command in machine.commands(each.name, each.value, survive=survive):
            say(command)


async def live_values(machine: HostControl, settings: Sequence[WantedSetting]) -> Mapping[str, str]:
    """Values of this machine now, by name.

    Raises:
        HostProblem: The server runs on another machine; what to paste there is shown.
    """
    found = await machine.settings()
    if isinstance(found, Unavailable):
        show_commands(machine, settings, survive=False)
        raise HostProblem(f"nothing was changed: {found.detail}", "paste the commands above into a shell there")
    return {each.name: each.live for each in found if not isinstance(each.live, Unavailable)}


async def check_permitted(machine: HostControl, settings: Sequence[WantedSetting]) -> None:
    """Makes sure that this process may change them.

    Raises:
        HostProblem: It may not, and nothing was changed.
    """
    wanted = {each.name for each in settings}
    found = await machine.settings() if wanted else ()
    here = () if isinstance(found, Unavailable) else found
    closed = [each for each in here if each.name in wanted and not each.writable]
    if closed:
        raise HostProblem(f"{closed[0].path} cannot be written by this process: nothing was changed", _PASTE)


def say_setting(change: HostChange, before: str) -> None:
    """One change in a line: what it was, what the kernel has now."""
    note = f"  ({change.message})" if change.message else ""
    say(f"{change.name}: {before} → {change.shown_after}{note}")


# A restart: the plan shown, and a confirmation.


def show_plan(plan: RestartPlan, for_s: float | None = None) -> None:
    """What a restart would do, one line each: checks, the command, who is cut off."""
    for pending in plan.pending:
        say(f"applies pending: {pending.name}: {pending.running} → {pending.after}")
    for check in plan.checks:
        hint = f" ({check.hint})" if check.hint else ""
        say(f"{check.subject:<13} {check.verdict:<10} {check.words}{hint}")
    say(f"restart ({plan.managed}): {plan.command}" if plan.command else f"restart: {plan.managed}")
    if not plan.by_us:
        say(f"pgtop-tune cannot run it: {plan.why_not}; it waits for the restart")
    within = f", {plan.in_transaction} of them within a transaction" if plan.in_transaction else ""
    say(f"ends {counted(plan.sessions, 'session')}{within}")
    if for_s is not None:
        say(f"reverts after {duration(for_s)}, with a second restart")


def confirm(plan: RestartPlan, *, yes: bool, anyway: bool) -> None:
    """Somebody has to want it.

    Raises:
        ServerProblem: A check says that the server would not start, or nobody says yes; nothing was changed.
        UsageProblem: There is nobody to ask.
    """
    stopping = [check for check in plan.checks if check.verdict is RestartVerdict.IMPOSSIBLE]
    if stopping and not anyway:
        hint = "; ".join(filter(None, (stopping[0].hint, "nothing was changed; --anyway restarts all the same")))
        raise ServerProblem(stopping[0].words, hint)
    if yes:
        return
    if not can_ask():
        raise UsageProblem("a restart ends every session and needs a confirmation", "pass --yes without a terminal")
    if answer_to("restart the server? [y/N] ").lower() not in ("y", "yes"):
        raise ServerProblem("not restarted: nothing was changed")


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
    """What somebody wants changed, and how.

    Attributes:
        wanted: Parameters with values; None resets.
        scope: For whom; None is the session of the next load.
        for_s: It is taken back after so many seconds; None leaves it.
        reason: For the journal.
        dry_run: Only show what would be done.
        allow_unsafe: Values that can lose data may be unlocked.
        confirmed: Names that were typed to unlock values that are not safe.
        settings: Of the machine's operating system, in the same set.
        settings_after: Those that have to be made after the server's half; one of `settings` may be set again.
        persist: The machine's half is written into a file of sysctl.d as well.
        restart: The server is restarted once, so that all of it is in force.
        yes: Nobody needs to be asked before.
        anyway: Also where a check says that the server would not start.
    """

    wanted: tuple[WantedParameter, ...]
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


async def change(conninfo: ConnInfo, asked: ChangeRequest) -> int:
    """Does it.

    Returns:
        The exit status.

    Raises:
        UsageProblem: A name or a value that the server or the kernel would not take.
        UnsafeChange: A value can lose data and was not unlocked.
        ServerProblem: The server refused; nothing is changed.
        HostProblem: We may not change the machine, or the kernel refused; nothing is changed.
    """
    control = PostgresControl(conninfo, rules=Rules(fenced=True, allow_unsafe=asked.allow_unsafe, tell=tell))
    service = RestartService(control)
    machine = await machine_of(
        conninfo,
        [each.name for each in (*asked.settings, *asked.settings_after)],
        beside_server=bool(asked.wanted),
        with_restart=asked.restart,
    )
    try:
        current: dict[str, Parameter] = {}
        if not asked.dry_run:
            await leave_watchdogs(control if asked.wanted else None, machine, None, tell)
        if asked.wanted:
            listed = await control.list(tuple(each.name for each in asked.wanted))
            current = {each.name.lower(): each for each in listed}
            asked = await _checked(conninfo, asked, current)
            if asked.scope is not None:
                await control.ask(lambda session: check_lists(session, asked.wanted))
        valued = asked
        if asked.wanted and any(each.value is None for each in asked.wanted):
            with_values = await control.ask(lambda session: with_reset_values(session, asked.wanted, current))
            valued = replace(asked, wanted=with_values)
        confirmed = _unlocked(valued, current)
        if asked.scope is None:
            _show_options(asked.wanted, current)
            return 0
        halves = await _planned(machine, asked, current)
        _show(control, machine, halves)
        _say_reach(asked, current)
        await _say_standby(control, asked)
        plan = await _plan(service, asked)
        if asked.dry_run:
            await _try_start(control, asked)
            return 0
        await check_permitted(machine, halves.of_machine)
        if plan is not None:
            # Huge pages of the same set are there only after its machine's half was made; it is counted again then.
            confirm(plan, yes=asked.yes, anyway=asked.anyway or bool(asked.settings))
        door = control if plan is None else WithRestart(control, service, tell, anyway=asked.anyway)
        sets = ChangeSets(door if asked.wanted else None, machine if halves.of_machine else None)
        pending = PendingSets(sets, lambda event: None, report=complain, at_deadline="")
        await _make(pending, halves, Terms(asked.for_s, asked.reason, confirmed), service.give_up)
    finally:
        await service.aclose()
        await control.aclose()
        await machine.aclose()
    return 0


def _say_reach(asked: ChangeRequest, current: dict[str, Parameter]) -> None:
    """What becomes of sessions that are connected already; what a restart does is said elsewhere."""
    reached = dict.fromkeys(
        choice.connected
        for each in asked.wanted
        if (choice := of_reach(current[each.name.lower()].context, _REACH[each.scope.kind])) is not None
    )
    for words in reached if not asked.restart else ():
        tell(words)


async def _say_standby(control: PostgresControl, asked: ChangeRequest) -> None:
    """On a standby ALTER SYSTEM works, for this server alone; some values have to follow the primary's."""
    if not asked.wanted or not await control.ask(lambda session: session.rows(_RECOVERY)[0]["in_recovery"]):
        return
    tell("this is a standby: ALTER SYSTEM changes this server, not its primary")
    for each in asked.wanted:
        if each.name.lower() in AS_ON_PRIMARY:
            tell(f"{each.name} must be at least the primary's value, otherwise this standby does not start")


async def _plan(service: RestartService, asked: ChangeRequest) -> RestartPlan | None:
    """What the restart would do, shown; None without one."""
    if not asked.restart:
        return None
    plan = await service.plan(asked.wanted)
    show_plan(plan, asked.for_s)
    if asked.settings and not plan.possible:
        tell("the machine's settings are changed first; then this is checked again")
    return plan


async def _try_start(control: PostgresControl, request: ChangeRequest) -> None:
    """Say at a dry run whether the server would start again, as the change itself would.

    Raises:
        ServerProblem: It would not.
    """
    if request.settings:
        tell("a start is tried once the machine's settings are changed")
    elif not request.anyway:
        await control.check_starts(request.wanted)


async def _planned(machine: HostControl, asked: ChangeRequest, current: dict[str, Parameter]) -> ChangeSet:
    """What is to be made, in order; the machine's half is checked."""
    wanted = ChangeSet(
        parameters=parameters_in_order(asked.wanted, current),
        settings=asked.settings,
        settings_after=asked.settings_after,
        persist=asked.persist,
    )
    for settings in filter(None, (asked.settings, asked.settings_after)):
        await live_values(machine, settings)
        await machine.check(settings, survive=asked.persist)
    return await ChangeSets(None, machine).plan(wanted)


def _show(control: PostgresControl, machine: HostControl, halves: ChangeSet) -> None:
    """The commands and the SQL, in the order in which they are made."""
    texts = [control.statement(each.name, each.value, each.scope) for each in halves.parameters]
    show_commands(machine, halves.settings, survive=halves.persist)
    for text in texts:
        say(text.removesuffix(_RELOAD))
    if texts and texts[0].endswith(_RELOAD):
        say(_RELOAD.strip())
    show_commands(machine, halves.settings_after, survive=halves.persist)


async def _checked(conninfo: ConnInfo, request: ChangeRequest, current: dict[str, Parameter]) -> ChangeRequest:
    """Return the request with its values as they are meant; raise a UsageProblem for what the server would refuse."""
    names = [change.name for change in request.wanted]
    if any(name.lower() not in current for name in names):
        sql_session = await open_sql_session(conninfo)
        try:
            with decoding():
                parameter_names = [str(row[0]) for row in await sql_session.rows(PARAMETER_NAMES)]
        finally:
            await sql_session.aclose()
        check_known(names, current.values(), [*parameter_names, *nearest_settings(names)])
    checked = []
    for change in request.wanted:
        parameter = current[change.name.lower()]
        value = None if change.value is None else without_blanks(parameter, change.value)
        if value is not None:
            check_value(parameter, value)
        checked.append(replace(change, value=value))
    return replace(request, wanted=tuple(checked))


def _show_options(wanted: Sequence[WantedParameter], current: dict[str, Parameter]) -> None:
    """PGOPTIONS for a load: libpq splits them at spaces, a backslash keeps one (libpq documentation, "options")."""
    words = []
    for each in wanted:
        parameter = current[each.name.lower()]
        if parameter.context not in SESSION_CONTEXTS:
            raise UsageProblem(
                f"{parameter.name} is one value for the whole server (context {parameter.context})",
                "--scope system changes it",
            )
        value = (each.value or "").replace("\\", "\\\\").replace(" ", "\\ ")
        words.append(f"-c {parameter.name}={value}")
    say(f"export PGOPTIONS={shlex.quote(' '.join(words))}")
    tell("nothing changes on the server: only the sessions of a load started with it have these values")


def _unlocked(asked: ChangeRequest, current: dict[str, Parameter]) -> frozenset[str]:
    """Return the names that the operator has typed to unlock values that are not safe; each value is shown whole.

    Raises:
        UsageProblem: A value that can lose data would stay.
        UnsafeChange: With --dry-run, or for a load: a value would be refused.
    """
    confirmed = set(asked.confirmed)
    ends = asked.scope is not None and asked.for_s is not None
    for each in asked.wanted:
        risk = risk_of(each.name, each.value, current[each.name.lower()])
        if risk is None:
            continue
        words = f"{without_secrets(f'{each.name} = {each.value}')} {risk.words}"
        may_unlock = asked.allow_unsafe or not risk.loses_data
        if (
            risk.locked(ends=ends)
            and may_unlock
            and risk.loses_data
            and asked.for_s is None
            and asked.scope is not None
        ):
            raise UsageProblem(f"{words}: it reverts when this command ends", "pass a time, as in --for 5m")
        if not risk.locked(ends=ends) or each.name in confirmed:
            tell(words)
        elif may_unlock and can_ask():
            tell(words)
            if asked.dry_run:
                tell(f"without --dry-run this asks for {each.name}")
            else:
                confirmed.add(answer_to(f"type {each.name} to unlock it: "))
        if asked.dry_run or asked.scope is None:
            _check_unlocked(each, risk, asked, confirmed, ends=ends)
    return frozenset(confirmed)


def _check_unlocked(
    wanted: WantedParameter, risk: ValueRisk, asked: ChangeRequest, confirmed: Collection[str], *, ends: bool
) -> None:
    """Refuse what the control would refuse, where it is not asked: in a dry run, and for options of a load."""
    may_unlock = asked.allow_unsafe or not risk.loses_data
    is_asked_for = asked.dry_run and can_ask()
    if risk.locked(ends=ends) and not (may_unlock and (wanted.name in confirmed or is_asked_for)):
        unlock = f"type {wanted.name} or pass --confirm {wanted.name}" if may_unlock else "pass --allow-unsafe"
        raise UnsafeChange(
            f"{without_secrets(f'{wanted.name} = {wanted.value}')} {risk.words}", f"{unlock} to unlock it"
        )


async def _make(pending: PendingSets, planned: ChangeSet, terms: Terms, give_up: Callable[[], None]) -> None:
    try:
        made, interrupted = await to_the_end(pending.apply(planned, terms), give_up)
    except ServerProblem as problem:
        if problem.sqlstate == _READ_ONLY:
            raise ServerProblem(
                problem.message, "this is a standby: roles and databases are changed on the primary", problem.sqlstate
            ) from None
        raise
    for setting in made.settings:
        say_setting(setting, setting.value_before)
    for each in made.parameters:
        _say_change(each, each.shown_before)
    if terms.keep_within_s is None:
        if interrupted:
            raise asyncio.CancelledError
        if any(each.scope.is_system for each in made.parameters):
            again = " --restart" if any(each.restart for each in made.parameters) else ""
            tell(f"`pgtop-tune revert --last{again}` reverts it")
        elif made.settings:
            tell("`pgtop-tune revert --machine --last` reverts it")
        return
    tell(f"reverts after {duration(terms.keep_within_s)}, or at once with Ctrl-C (set {made.set_id})")
    try:
        if interrupted:
            raise asyncio.CancelledError
        _say_reverted(await pending.over(made.set_id))
    except asyncio.CancelledError:
        reverted, _ = await to_the_end(pending.revert_now(made.set_id), give_up)
        _say_reverted(reverted)
        if reverted.problem is not None:
            complain(reverted.problem)
            machine = "" if made.parameters else "--machine "
            tell(f"`pgtop-tune revert {machine}--set {made.set_id}` reverts it when the server answers again")
        raise


def _say_reverted(reverted: Settled) -> None:
    if not reverted.changes and reverted.problem is None:
        tell("already reverted by another session")
    for each in reverted.parameters:
        say(of_settled(each))
    for setting in reverted.settings:
        say_setting(setting, setting.value)


def _say_change(change: ParameterChange, before: str) -> None:
    after = change.told_after
    message = change.message or (f"SHOW prints {change.shown_after}" if after != change.shown_after else "")
    note = f"  ({message})" if message else ""
    say(f"{change.name}: {before} → {after}{note}")


def of_settled(change: ParameterChange) -> str:
    """One change that is not in force any more: from what to what, or why nothing was written."""
    if change.state is ChangeState.SUPERSEDED:
        return f"{change.name}: {change.message}"
    note = f"  ({change.message})" if change.message else ""
    return f"{change.name}: {change.value or 'default'} → {_back_to(change)}{note}"


def _back_to(change: ParameterChange) -> str:
    """What takes a restart has its running value until then, and goes back to this one."""
    waits = change.restart and change.shown_after != change.shown_before
    return (change.auto_conf_before or change.shown_before) if waits else change.shown_after
