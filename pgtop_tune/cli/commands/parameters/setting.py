"""`set` and `reset` besides the change itself: requests, what waits for a restart, the machine's settings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from pgtop_tune.base.errors import HostProblem, UsageProblem
from pgtop_tune.changes.change_sets import check_up
from pgtop_tune.changes.confirm.orphans import leave_watchdogs
from pgtop_tune.changes.machine.control import HostControl, revert_settings
from pgtop_tune.changes.model.change import (
    SYSTEM,
    Scope,
    Terms,
    WantedParameter,
    WantedSetting,
)
from pgtop_tune.changes.model.change_set import RestartState
from pgtop_tune.changes.restart.control import RestartService
from pgtop_tune.changes.selection import named
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.cli.assignments import (
    check_machine_options,
    checked_name,
    scope_of,
    split_names,
    split_words,
    wanted_parameters,
)
from pgtop_tune.cli.changing import (
    ChangeRequest,
    change,
    check_permitted,
    confirm,
    live_values,
    machine_of,
    say_setting,
    show_commands,
    show_plan,
)
from pgtop_tune.cli.commands.parameters.request import SetRequest
from pgtop_tune.cli.connecting import let_in
from pgtop_tune.cli.options import for_seconds
from pgtop_tune.cli.output import say, tell
from pgtop_tune.cli.signals import run_until_signalled, to_the_end
from pgtop_tune.host.sysctl_files import starts_with
from pgtop_tune.host.system_settings import ALONG
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.machine import SystemSetting
from pgtop_tune.postgres.server.conninfo import ConnInfo


def set_values(assignments: Sequence[str], request: SetRequest) -> int:
    """Set values, or apply what waits for a restart where there are none; return the exit status.

    Raises:
        PgtopError: As `changing.change`.
    """
    scope = _scope(request)
    if not assignments:
        if not request.restart:
            raise UsageProblem("nothing to set", "as in max_wal_size=4GB; --restart alone applies pending parameters")
        return let_in(request.connection, lambda conninfo: run_until_signalled(take_over(conninfo, request)))
    words, settings = split_words(assignments)
    pending = bool(request.for_how_long)
    check_machine_options(settings, persist=request.persist, pending=pending, of_load=scope is None)
    parameters = wanted_parameters(words, SYSTEM if scope is None else scope)
    return _changed(request, _request(request, parameters, scope, settings))


def reset_values(names: Sequence[str], wanted: SetRequest) -> int:
    """Reset values; return the exit status. Raises as `set_values`."""
    scope = _scope(wanted)
    if scope is None:
        raise UsageProblem("a load that has not started has nothing to reset", "unset PGOPTIONS")
    parameters, settings = split_names(names)
    if settings and wanted.for_how_long:
        raise UsageProblem(f"{settings[0]} is reset for good", "leave --for out, or `set` it to a value for some time")
    resets = tuple(WantedParameter(checked_name(name), None, scope) for name in parameters)
    request = _request(wanted, resets, scope)
    if settings:
        let_in(wanted.connection, lambda conninfo: run_until_signalled(reset_settings(conninfo, settings, wanted)))
    return _changed(wanted, request) if parameters else 0


def _scope(request: SetRequest) -> Scope | None:
    """Return for whom; None for the session of the next load."""
    scope = scope_of(request.scope)
    if scope != SYSTEM and request.restart:
        raise UsageProblem("--restart is for parameters of the whole server", "leave --scope out")
    return scope


def _request(
    request: SetRequest,
    parameters: tuple[WantedParameter, ...],
    scope: Scope | None,
    settings: tuple[WantedSetting, ...] = (),
) -> ChangeRequest:
    return ChangeRequest(
        wanted=parameters,
        scope=scope,
        for_s=for_seconds(request.for_how_long),
        reason=request.reason,
        dry_run=request.dry_run,
        allow_unsafe=request.allow_unsafe,
        confirmed=frozenset(request.confirm or ()),
        settings=settings,
        persist=request.persist,
        restart=request.restart,
        yes=request.yes,
        anyway=request.anyway,
    )


def _changed(wanted: SetRequest, request: ChangeRequest) -> int:
    return let_in(wanted.connection, lambda conninfo: run_until_signalled(change(conninfo, request)))


_OTHER_HALF: Final = "0"


async def reset_settings(conninfo: ConnInfo, names: Sequence[str], request: SetRequest) -> None:
    """Takes back what the journal holds of them, with our lines in sysctl.d, and sets what is still different.

    Raises:
        UsageProblem: What the machine starts with is not known, or follows from another setting.
        HostProblem: We may not, or the server runs on another machine.
        JournalProblem: The journal could not be written.
    """
    machine = await machine_of(conninfo, names, beside_server=False)
    wanted = await _wanted(machine, names)
    await machine.check(wanted)
    before = await live_values(machine, wanted)
    show_commands(machine, [each for each in wanted if before[each.name] != each.value], survive=False)
    if request.dry_run:
        return
    await check_permitted(machine, wanted)
    await leave_watchdogs(None, machine, None, tell)
    taken_back = await asyncio.to_thread(revert_settings, named(names))
    for each in taken_back:
        say_setting(each, each.value)
    live = await live_values(machine, wanted)
    different = [each for each in wanted if live[each.name] != each.value]
    made = await machine.apply_set(different, Terms(reason=request.reason)) if different else ()
    for each in made:
        say_setting(each, each.value_before)
    for name in set(names) - {each.name for each in (*taken_back, *made)}:
        say(f"{name} is {live[name]}, the boot value")
    for setting in await _settings(machine, names):
        after = setting.after_reboot
        if after.value is not None and after.value != setting.live:
            last = after.assignments[-1]
            tell(f"after a reboot {last.file} line {last.line} wins: {last.value}")


async def _wanted(machine: HostControl, names: Sequence[str]) -> list[WantedSetting]:
    """What the machine starts with."""
    wanted = []
    for setting in await _settings(machine, names):
        value = starts_with(setting)
        pair = [other for other in ALONG.get(setting.name, ()) if setting.name in ALONG.get(other, ())]
        if value == _OTHER_HALF and pair and setting.live != value:
            raise UsageProblem(f"{setting.name} is 0 at boot because {pair[0]} is set", f"reset {pair[0]} instead")
        if value is None:
            raise UsageProblem(
                f"the boot value of {setting.name} is unknown: no file sets it, and it depends on the kernel",
                f"now {setting.live}; `pgtop-tune revert --machine` reverts the changes made here",
            )
        wanted.append(WantedSetting(setting.name, value))
    return wanted


async def _settings(machine: HostControl, names: Sequence[str]) -> list[SystemSetting]:
    """Raises HostProblem where the server runs elsewhere, UsageProblem for a name this machine does not have."""
    found = await machine.settings()
    if isinstance(found, Unavailable):
        raise HostProblem(f"nothing was changed: {found.detail}", "reset it on the server's machine")
    by_name = {each.name: each for each in found}
    for name in names:
        if name not in by_name:
            raise UsageProblem(f"{name!r} is not a setting of this machine that pgtop-tune changes")
    return [by_name[name] for name in names]


async def take_over(conninfo: ConnInfo, request: SetRequest) -> int:
    """A restart for what waits already.

    Returns:
        The exit status.
    """
    control = PostgresControl(conninfo)
    service = RestartService(control)
    try:
        if not request.dry_run:
            await leave_watchdogs(control, HostControl(), None, tell)
        plan = await service.plan()
        if not plan.pending:
            tell("no change is pending a restart")
            return 0
        show_plan(plan)
        if request.dry_run:
            return 0
        confirm(plan, yes=request.yes, anyway=request.anyway)
        outcome, interrupted = await to_the_end(
            service.apply((), Terms(), tell, anyway=request.anyway), service.give_up
        )
        if interrupted and outcome.state in (RestartState.WAITING, RestartState.LEFT):
            tell(outcome.words)
            raise asyncio.CancelledError
        check_up(outcome)
        say(outcome.words)
    finally:
        await control.aclose()
    return 0
