"""Sets of settings of a made-up machine: confirmed and reverted together, pending, all or nothing."""

from __future__ import annotations

import asyncio
import errno
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import HostProblem, JournalProblem, UsageProblem
from pgtop_tune.changes.change_sets import ChangeSets
from pgtop_tune.changes.confirm.pending_sets import PendingSets
from pgtop_tune.changes.journal import Journal
from pgtop_tune.changes.machine import one_change as setting_change
from pgtop_tune.changes.machine.control import HostControl, machine, revert_settings
from pgtop_tune.changes.model.change import Terms, WantedSetting
from pgtop_tune.changes.model.change_set import ChangeSet
from pgtop_tune.host.system_settings import path_of
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.process.revert_watchdog import RevertWatchdog
from tests.host.made_machine import SWAPPINESS, Machine
from tests.support.machine_tree import snapshot


def test_a_set_is_kept_and_reverted_together_and_nothing_else_with_it(made: Machine) -> None:
    made.change("vm.overcommit_memory", "2")
    made.change("vm.swappiness", "5", set_id="s")
    made.change("vm.zone_reclaim_mode", "1", set_id="s")
    pending = made.pending("vm.dirty_expire_centisecs", "1000", 60_000, "s")
    assert (pending.kept, pending.until_ms) == (False, 60_000)
    assert [(each.kept, each.until_ms) for each in asyncio.run(made.control.keep("s"))] == [(True, None)] * 3
    assert [each.name for each in asyncio.run(made.control.revert_set("s"))] == [
        "vm.dirty_expire_centisecs", "vm.zone_reclaim_mode", "vm.swappiness",
    ]  # fmt: skip
    assert [each.name for each in asyncio.run(made.control.in_force())] == ["vm.overcommit_memory"]


def test_what_was_on_trial_and_not_kept_is_taken_back_by_whoever_looks_next(made: Machine) -> None:
    now_ms = time.time_ns() // 1_000_000
    made.change("vm.overcommit_memory", "2")
    late = made.pending("vm.swappiness", "1", now_ms - 1)
    made.pending("vm.zone_reclaim_mode", "1", now_ms + 3_600_000)
    (back,) = asyncio.run(made.control.revert_overdue([late.set_id or late.id]))
    assert (back.name, back.message) == ("vm.swappiness", "not confirmed in time")
    assert made.text(SWAPPINESS) == "60\n"
    assert len(asyncio.run(made.control.in_force())) == 2


ORDERED = (WantedSetting("vm.swappiness", "5"), WantedSetting("vm.min_free_kbytes", "102400"))


class Waiting:
    """Stands for the process that waits for our end."""

    def __init__(self) -> None:
        self.sets: list[str] = []

    def __call__(self, set_id: str, until_ms: int, directory: Path | None) -> RevertWatchdog:
        self.sets.append(set_id)
        return RevertWatchdog(["true"], {})


async def test_a_set_on_trial_is_taken_back_when_its_time_is_over(made: Machine) -> None:
    before = snapshot(made.root)
    waiting = Waiting()
    control = HostControl(root=made.root, directory=made.journals, guard=waiting)
    pending = PendingSets(ChangeSets(None, control), lambda event: None)
    changes = (await pending.apply(ChangeSet(settings=ORDERED), Terms(keep_within_s=0.2, reason="a try"))).settings
    assert waiting.sets == [changes[0].set_id] == [changes[1].set_id]
    assert [(each.kept, each.reason) for each in changes] == [(False, "a try")] * 2
    async with asyncio.timeout(60):
        await pending.over(changes[0].set_id)
    assert await control.in_force() == ()
    assert snapshot(made.root) == before
    pending.close()


async def test_a_set_on_trial_ends_with_the_session_and_a_kept_one_does_not(made: Machine) -> None:
    control = HostControl(root=made.root, directory=made.journals, guard=Waiting())
    kept, left = [(await control.apply_set([each], Terms(keep_within_s=600.0)))[0] for each in ORDERED]
    await control.keep(kept.set_id)
    await control.aclose()
    assert (made.text(SWAPPINESS), made.text(path_of(left.name))) == ("5\n", "67584\n")
    assert [(each.id, each.kept) for each in await control.in_force()] == [(kept.id, True)]


async def test_without_the_process_that_waits_for_our_end_nothing_is_put_on_trial(made: Machine) -> None:
    def none(set_id: str, until_ms: int, directory: Path | None) -> RevertWatchdog:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    control = HostControl(root=made.root, directory=made.journals, guard=none)
    with pytest.raises(JournalProblem, match="cannot be started: Resource temporarily unavailable"):
        await control.apply_set(ORDERED, Terms(keep_within_s=600.0))
    assert made.text(SWAPPINESS) == "60\n"


def test_of_a_set_with_a_bad_value_nothing_is_made(made: Machine) -> None:
    with pytest.raises(UsageProblem, match=r"vm\.min_free_kbytes does not accept '1GB'"):
        asyncio.run(made.control.apply_set([ORDERED[0], WantedSetting("vm.min_free_kbytes", "1GB")], Terms()))
    assert made.journaled() == ()


def test_what_the_kernel_refuses_takes_the_rest_of_its_set_back(made: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    write_live = setting_change._write

    def refusing(root: Path, path: str, value: str) -> None:
        if value == "102400":
            raise HostProblem(f"{path} does not take {value!r}: Invalid argument")
        write_live(root, path, value)

    before = snapshot(made.root)
    monkeypatch.setattr(setting_change, "_write", refusing)
    with pytest.raises(HostProblem, match="Invalid argument"):
        asyncio.run(made.control.apply_set(ORDERED, Terms(), survive=True))
    assert snapshot(made.root) == before
    assert asyncio.run(made.control.in_force()) == ()


@pytest.mark.parametrize("pair", [("vm.dirty_bytes", "vm.dirty_ratio"), ("vm.swappiness", "vm.swappiness")])
def test_two_values_of_which_the_kernel_keeps_one_are_refused(made: Machine, pair: tuple[str, str]) -> None:
    with pytest.raises(UsageProblem, match=r"are alternatives|is given twice"):
        asyncio.run(made.control.apply_set([WantedSetting(name, "40") for name in pair], Terms()))
    assert made.journaled() == ()


def test_of_a_server_elsewhere_nothing_is_shown_and_nothing_changed(made: Machine) -> None:
    elsewhere = Unavailable(Reason.NOT_LOCAL, "no server process 17 here")
    control = HostControl(lambda: elsewhere, root=made.root, directory=made.journals)
    assert asyncio.run(control.settings()) == elsewhere
    assert asyncio.run(control.disks()) == ()
    with pytest.raises(HostProblem, match="changed on the server's machine: no server process 17 here"):
        asyncio.run(control.apply("vm.swappiness", "5"))
    assert made.text(SWAPPINESS) == "60\n"


def test_a_change_that_cannot_be_ours_is_not_followed_and_stops_no_other(made: Machine) -> None:
    victim = made.root / "victim"
    victim.write_text("precious")
    honest = made.change("vm.swappiness", "5")
    made.undo()
    forged = [
        replace(honest, id="path", path="/victim"),
        replace(honest, id="name", name="kernel.core_pattern", path="/proc/sys/kernel/core_pattern"),
        replace(honest, id="along", also_before=(("/victim", "evil"),)),
        replace(honest, id="drop-in", drop_in="/victim", drop_in_before="evil"),
        replace(honest, id="disk", name="../../victim/scheduler", path="/sys/block/../../victim/queue/scheduler"),
    ]
    with Journal(machine(made.root), made.journals) as journal:
        for change in forged:
            journal.write(change)
    honest = made.change("vm.swappiness", "6")
    told: list[str] = []
    with pytest.raises(HostProblem, match="cannot have made"):
        revert_settings(root=made.root, directory=made.journals, report=lambda change: told.append(change.id))
    assert (told, victim.read_text(), made.text("proc/sys/vm/swappiness")) == ([honest.id], "precious", "60\n")
