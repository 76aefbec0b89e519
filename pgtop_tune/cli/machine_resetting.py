"""`pgtop-tune reset` for settings of the operating system: back to what the machine starts with."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from pgtop_tune.changes.confirm.orphans import leave_watchdogs
from pgtop_tune.changes.machine.control import HostControl, revert
from pgtop_tune.changes.model.change import Terms, WantedSetting
from pgtop_tune.changes.selection import named
from pgtop_tune.cli.machine_half import check_permitted, live_values, machine_of, say_setting, show_commands
from pgtop_tune.cli.output import say, tell
from pgtop_tune.errors import HostProblem, UsageProblem
from pgtop_tune.host.drop_in import starts_with
from pgtop_tune.host.system_settings import ALONG
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.system_setting import SystemSetting
from pgtop_tune.postgres.server.conninfo import ConnInfo

_OTHER_HALF: Final = "0"


async def reset_settings(conninfo: ConnInfo, names: Sequence[str], reason: str, *, dry_run: bool) -> None:
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
    if dry_run:
        return
    await check_permitted(machine, wanted)
    await leave_watchdogs(None, machine, None, tell)
    taken_back = await asyncio.to_thread(revert, named(names))
    for change in taken_back:
        say_setting(change, change.value)
    live = await live_values(machine, wanted)
    different = [each for each in wanted if live[each.name] != each.value]
    made = await machine.apply_set(different, Terms(reason=reason)) if different else ()
    for change in made:
        say_setting(change, change.value_before)
    for name in set(names) - {change.name for change in (*taken_back, *made)}:
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
            raise UsageProblem(f"{name!r} is no setting of this machine that pgtop-tune changes")
    return [by_name[name] for name in names]
