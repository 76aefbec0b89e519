"""`set` and `reset`: their requests, parameters that wait for a restart, and settings of the machine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from pgtop_tune.base.errors import HostProblem, UsageProblem
from pgtop_tune.changes.change_sets import check_up
from pgtop_tune.changes.confirm.orphans import leave_watchdogs
from pgtop_tune.changes.machine.control import HostControl, revert_settings
from pgtop_tune.changes.model.change import SYSTEM, Scope, Terms, WantedParameter, WantedSetting
from pgtop_tune.changes.model.change_set import RestartState
from pgtop_tune.changes.restart.control import RestartService
from pgtop_tune.changes.selection import named
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.cli.assignments import (
    as_assignments,
    check_machine_options,
    checked_name,
    scope_of,
    split_names,
    split_words,
    wanted_parameters,
)
from pgtop_tune.cli.commands.parameters import ChangeOptions, ResetRequest, SetRequest
from pgtop_tune.cli.connections import let_in
from pgtop_tune.cli.options import for_seconds
from pgtop_tune.cli.output import say, tell
from pgtop_tune.cli.parameter_changes import (
    ChangeRequest,
    check_permitted,
    confirm,
    live_settings,
    machine_of,
    make_change,
    say_setting,
    show_commands,
    show_plan,
)
from pgtop_tune.cli.signals import run_until_signalled, to_the_end
from pgtop_tune.host.sysctl_files import starts_with
from pgtop_tune.host.system_settings import ALONG
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.machine import SystemSetting
from pgtop_tune.postgres.server.conninfo import ConnInfo


def set_values(request: SetRequest) -> int:
    """Set values, or without any apply the parameters that wait for a restart; return the exit status.

    Raises:
        PgtopError: As `parameter_changes.change`.
    """
    scope = _scope(request)
    if not request.assignments:
        if not request.restart:
            raise UsageProblem(
                "nothing to set", "pass NAME=VALUE as in max_wal_size=4GB; --restart alone applies pending parameters"
            )
        return let_in(request.connection, lambda conninfo: run_until_signalled(apply_pending(conninfo, request)))
    assignments, settings = split_words(as_assignments(request.assignments))
    pending = bool(request.for_how_long)
    check_machine_options(settings, persist=request.persist, pending=pending, of_load=scope is None)
    parameters = wanted_parameters(assignments, SYSTEM if scope is None else scope)
    return make_change(request.connection, _change_request(request, parameters, scope, settings))


def reset_values(request: ResetRequest) -> int:
    """Reset values; return the exit status. Raises as `set_values`."""
    scope = _scope(request)
    if scope is None:
        raise UsageProblem("--scope load has nothing to reset on the server", "unset PGOPTIONS")
    parameters, settings = split_names(request.names)
    if settings and request.for_how_long:
        raise UsageProblem(
            f"{settings[0]} cannot be reset for a limited time", "leave --for out, or use `pgtop-tune set` with a value"
        )
    resets = tuple(WantedParameter(checked_name(name), None, scope) for name in parameters)
    change_request = _change_request(request, resets, scope)
    if settings:
        let_in(request.connection, lambda conninfo: run_until_signalled(reset_settings(conninfo, settings, request)))
    return make_change(request.connection, change_request) if parameters else 0


def _scope(request: ChangeOptions) -> Scope | None:
    """Return the scope; None for the session of the next load."""
    scope = scope_of(request.scope)
    if scope != SYSTEM and request.restart:
        raise UsageProblem("--restart applies to parameters of the whole server", "leave --scope out")
    return scope


def _change_request(
    request: ChangeOptions,
    parameters: tuple[WantedParameter, ...],
    scope: Scope | None,
    settings: tuple[WantedSetting, ...] = (),
) -> ChangeRequest:
    return ChangeRequest(
        parameters=parameters,
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


async def reset_settings(conninfo: ConnInfo, names: Sequence[str], request: ChangeOptions) -> None:
    """Revert our changes of settings, with our lines in sysctl.d, and set the boot values of those that still differ.

    Raises:
        UsageProblem: The boot value is unknown, or follows from another setting.
        HostProblem: This process may not change a setting, or the server runs on another machine.
        JournalProblem: The journal could not be written.
    """
    machine = await machine_of(conninfo, names, beside_server=False)
    boot_settings = await _boot_settings(machine, names)
    await machine.check(boot_settings)
    live = await live_settings(machine, boot_settings)
    show_commands(machine, [setting for setting in boot_settings if live[setting.name] != setting.value], survive=False)
    if request.dry_run:
        return
    await check_permitted(machine, boot_settings)
    await leave_watchdogs(None, machine, None, tell)
    reverted = await asyncio.to_thread(revert_settings, named(names))
    for change in reverted:
        say_setting(change, change.value)
    live = await live_settings(machine, boot_settings)
    different = [setting for setting in boot_settings if live[setting.name] != setting.value]
    changes = await machine.apply_set(different, Terms(reason=request.reason)) if different else ()
    for change in changes:
        say_setting(change, change.value_before)
    for name in set(names) - {change.name for change in (*reverted, *changes)}:
        say(f"{name} is {live[name]}, the boot value")
    for setting in await _settings(machine, names):
        after = setting.after_reboot
        if after.value is not None and after.value != setting.live:
            last = after.assignments[-1]
            tell(f"after a reboot {last.file} line {last.line} takes precedence: {last.value}")


async def _boot_settings(machine: HostControl, names: Sequence[str]) -> list[WantedSetting]:
    boot_settings = []
    for setting in await _settings(machine, names):
        value = starts_with(setting)
        # Of two settings that exclude each other, one is 0.
        pair = [partner for partner in ALONG.get(setting.name, ()) if setting.name in ALONG.get(partner, ())]
        if value == "0" and pair and setting.live != value:
            raise UsageProblem(f"{setting.name} is 0 at boot because {pair[0]} is set", f"reset {pair[0]} instead")
        if value is None:
            raise UsageProblem(
                f"the boot value of {setting.name} is unknown: no file sets it, and it depends on the kernel",
                f"the value is {setting.live} now; `pgtop-tune revert --machine` reverts changes of pgtop-tune",
            )
        boot_settings.append(WantedSetting(setting.name, value))
    return boot_settings


async def _settings(machine: HostControl, names: Sequence[str]) -> list[SystemSetting]:
    """Return settings by their names.

    Raises:
        HostProblem: The server runs on another machine.
        UsageProblem: This machine has no such setting.
    """
    settings = await machine.settings()
    if isinstance(settings, Unavailable):
        raise HostProblem(f"nothing was changed: {settings.detail}", "run this command on the server's machine")
    by_name = {setting.name: setting for setting in settings}
    for name in names:
        if name not in by_name:
            raise UsageProblem(f"{name!r} is not a machine setting that pgtop-tune can change")
    return [by_name[name] for name in names]


async def apply_pending(conninfo: ConnInfo, request: SetRequest) -> int:
    """Restart the server for the parameters that wait for it, and return the exit status."""
    control = PostgresControl(conninfo)
    service = RestartService(control)
    async with aclosing(control):
        if not request.dry_run:
            await leave_watchdogs(control, HostControl(), None, tell)
        plan = await service.plan()
        if not plan.pending:
            tell("no parameter is pending a restart")
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
    return 0
