"""Settings of the machine in the list of parameters: live, advised, pasted, or changed in one set with the server's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from pgtop_tune.advice.knobs.catalogue import KNOBS
from pgtop_tune.changes.model.change import ChangeState, HostChange, Terms, WantedSetting
from pgtop_tune.host.machine_setup import MachineFacts
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.machine import Disk, SystemSetting
from tests.support.screens import Rig, ScriptedParameters, running_screen


@dataclass
class ScriptedMachine:
    """A `MachineControl` of a kernel with two settings."""

    writable: bool = True
    here: bool = True
    journal: list[HostChange] = field(default_factory=list)
    live: dict[str, str] = field(default_factory=lambda: {"vm.nr_hugepages": "0", "vm.swappiness": "60"})

    async def settings(self) -> tuple[SystemSetting, ...] | Unavailable:
        if not self.here:
            return Unavailable(Reason.NOT_LOCAL)
        return tuple(
            SystemSetting(name, f"/proc/sys/{name}", value, writable=self.writable) for name, value in self.live.items()
        )

    async def facts(self) -> MachineFacts:
        return MachineFacts(16 * 2**30, 0, 2**21, 1)

    async def disks(self) -> tuple[Disk, ...]:
        return ()

    def commands(self, name: str, value: str, *, survive: bool = False) -> tuple[str, ...]:
        return (f"sudo sysctl -w {name}={value}", *((f"echo {name} = {value} | sudo tee",) if survive else ()))

    async def apply(self, name: str, value: str, *, survive: bool = False) -> HostChange:
        raise NotImplementedError

    async def apply_set(
        self, wanted: Sequence[WantedSetting], terms: Terms, *, survive: bool = False
    ) -> tuple[HostChange, ...]:
        until_ms = None if terms.keep_within_s is None else 2**50
        for each in wanted:
            change = HostChange(
                f"h-{each.name}", 0, each.name, f"/proc/sys/{each.name}", each.value, self.live[each.name],
                ChangeState.APPLIED, shown_after=each.value, set_id=terms.set_id, kept=until_ms is None,
                until_ms=until_ms,
            )  # fmt: skip
            self.live[each.name] = each.value
            self.journal.append(change)
        return tuple(self.journal[-len(wanted) :])

    async def keep(self, set_id: str) -> tuple[HostChange, ...]:
        self.journal = [replace(each, kept=True) if each.set_id == set_id else each for each in self.journal]
        return tuple(each for each in self.journal if each.set_id == set_id)

    async def revert_set(
        self,
        set_id: str,
        why: str = "",
        only: Callable[[HostChange], bool] = lambda change: True,
        each: Callable[[HostChange], None] = lambda change: None,
    ) -> tuple[HostChange, ...]:
        back = [one for one in self.journal if one.set_id == set_id and only(one)]
        self.journal = [one for one in self.journal if one not in back]
        self.live |= {one.name: one.value_before for one in back}
        reverted = tuple(replace(one, state=ChangeState.REVERTED, shown_after=one.value_before) for one in back)
        for one in reverted:
            each(one)
        return reverted

    async def begin_deadline(self, set_id: str, within_s: float) -> None: ...

    async def lost(self, set_id: str) -> None: ...

    async def in_force(self) -> tuple[HostChange, ...]:
        return tuple(self.journal)


async def stage(rig: Rig, name: str, value: str) -> None:
    await rig.press("slash", "ctrl+u")
    rig.paste(name)
    await rig.sees(f"/{name}")
    await rig.press("enter")
    await rig.sees(f"▸ {name}")
    await rig.sees("Enter edit")
    await rig.press("enter")
    await rig.type(value)
    await rig.press("enter")
    await rig.sees(f"→ {value}")


async def test_who_may_not_change_the_machine_is_shown_what_to_paste() -> None:
    machine = ScriptedMachine(writable=False)
    async with running_screen(parameters=ScriptedParameters(), machine=machine, knobs=KNOBS) as rig:
        await rig.press("p")
        await stage(rig, "vm.swappiness", "1")
        await rig.sees("live*")
        await rig.sees("root; ")
        await rig.press("a")
        await rig.sees("sudo sysctl -w vm.swappiness=1")
        await rig.sees("echo vm.swappiness = 1 | sudo tee")
        await rig.press("escape")
        await rig.sees("no change was made")
        assert machine.journal == []


async def test_the_machine_and_the_server_are_one_set_that_is_undone_together() -> None:
    machine, control = ScriptedMachine(), ScriptedParameters()
    async with running_screen(parameters=control, machine=machine, knobs=KNOBS) as rig:
        await rig.press("p")
        await stage(rig, "max_wal_size", "2GB")
        await stage(rig, "vm.swappiness", "1")
        await rig.sees("apply: sudo sysctl -w vm.swappiness=1; ALTER SYSTEM SET max_wal_size = '2GB'")
        await rig.press("a")
        await rig.sees("vm.swappiness is now 1, read back from /proc/sys/vm.swappiness")
        assert machine.live["vm.swappiness"] == "1"
        assert len(control.journal) == 1
        await rig.press("Y")
        await rig.sees("confirmed: vm.swappiness 60→1; max_wal_size 1GB→2GB")
        await rig.press("u")
        await rig.sees("undo 2 changes")
        await rig.press("y")
        await rig.sees("vm.swappiness is 60 again")
        assert (machine.live["vm.swappiness"], control.journal) == ("60", [])


async def test_settings_of_another_machine_are_not_listed() -> None:
    async with running_screen(parameters=ScriptedParameters(), machine=ScriptedMachine(here=False), knobs=KNOBS) as rig:
        await rig.press("p")
        await rig.sees("▸ max_wal_size")
        assert "swappiness" not in rig.text()
