"""The machine's settings among the rivals of an experiment: what an arm sets, and what another session changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from pgtop_tune.changes.model.change import HostChange, WantedSetting
from pgtop_tune.changes.ports import MachineControl
from pgtop_tune.errors import HostProblem, UsageProblem
from pgtop_tune.experiment.switchback.arms import CURRENT, Rival
from pgtop_tune.experiment.switchback.blocks import Arm
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.machine import SystemSetting


class RivalSettings:
    """Settings of the operating system, by turns with two values.

    Args:
        control: The door to the machine.
        rivals: Resolved.
    """

    def __init__(self, control: MachineControl, rivals: Sequence[Rival]) -> None:
        self.control: Final = control
        self.rivals: Final = tuple(rivals)
        self._expected: dict[str, str] = {}

    async def wanted(self, arm: Arm) -> tuple[WantedSetting, ...]:
        """What the arm sets on top of what is in force."""
        self._expected = await self._live()
        pairs = ((rival.name, rival.value(arm)) for rival in self.rivals)
        return tuple(WantedSetting(name, value) for name, value in pairs if self._expected[name] != value)

    def made(self, changes: Sequence[HostChange]) -> None:
        """Takes what was changed."""
        self._expected |= {change.name: change.shown_after for change in changes}

    async def foreign_change(self) -> str:
        """Which setting another program changed since; "" for none."""
        for name, value in (await self._live()).items():
            if value != self._expected.get(name, value):
                return f"{name} was changed to {value} by someone else"
        return ""

    async def _live(self) -> dict[str, str]:
        return await live_values(self.control, [rival.name for rival in self.rivals])


async def resolved_settings(control: MachineControl, rivals: Sequence[Rival]) -> tuple[Rival, ...]:
    """The same with A's value where that is the current one.

    Raises:
        UsageProblem: A setting that this machine does not have, or the same value twice.
        HostProblem: The server runs on another machine, or this process may not change a setting.
    """
    found = by_name(await control.settings()) if rivals else {}
    told = []
    for rival in rivals:
        setting = found.get(rival.name)
        if setting is None or isinstance(setting.live, Unavailable):
            raise UsageProblem(f"this machine has no setting {rival.name}", "`pgtop-tune parameters --machine` lists")
        if not setting.writable:
            raise HostProblem(f"{setting.path} cannot be written by this process", "run this as root")
        a = setting.live if rival.a.lower() == CURRENT else rival.a
        if a == rival.b:
            raise UsageProblem(f"{rival.name}: A and B are both {rival.b}", "pass two different values")
        told.append(replace(rival, a=a))
    return tuple(told)


async def live_values(control: MachineControl, names: Iterable[str]) -> dict[str, str]:
    """What the kernel has now, by name. Raises as `by_name`."""
    found = by_name(await control.settings())
    return {name: str(found[name].live) for name in names}


def by_name(found: Sequence[SystemSetting] | Unavailable) -> Mapping[str, SystemSetting]:
    """The settings of the machine.

    Raises:
        HostProblem: They cannot be reached from here.
    """
    if isinstance(found, Unavailable):
        raise HostProblem(f"the settings of the machine cannot be changed: {found.detail}", "run this on the server")
    return {each.name: each for each in found}
