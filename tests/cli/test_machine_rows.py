"""Settings of the machine as commands list and compare them."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from pgtop_tune.advice.facts import Advice
from pgtop_tune.advice.knobs.system import knob_of
from pgtop_tune.cli.commands.parameters.differences import settings_differing, setup_settings
from pgtop_tune.cli.parameter_rows import MachineRow, machine_json, machine_table
from pgtop_tune.host.sysctl_files import PATH as DROP_IN
from pgtop_tune.host.sysctl_files import starts_with
from pgtop_tune.host.system_settings import settings
from pgtop_tune.model.setup import DiskSetup, MachineSetup, SetValue
from tests.support.machine_tree import USUAL, write

DISK = DiskSetup("vda", ("data",), "", None, None, "", "none", 128, None)
SETUP = MachineSetup(
    1.0, "", None, "", "", (SetValue("vm.swappiness", "60"), SetValue("vm.dirty_ratio", "20")), (DISK,), ()
)


def row(root: Path, name: str, advice: Advice | None = None) -> MachineRow:
    knob = knob_of(name)
    assert knob is not None
    return MachineRow(next(each for each in settings(root) if each.name == name), knob, advice)


def test_a_row_has_the_value_now_the_value_at_boot_and_who_sets_it(tmp_path: Path) -> None:
    write(tmp_path, {**USUAL, "etc/sysctl.d/50-x.conf": "# x\nvm.swappiness = 10\n"})
    rows = [
        row(tmp_path, "vm.swappiness", Advice("5", "Because.")),
        row(tmp_path, "vm.dirty_ratio"),
        row(tmp_path, "transparent_hugepage/enabled"),
    ]
    cells = [" ".join(row).split() for row in machine_table(rows).rows]
    assert cells[0][:4] == ["vm.swappiness", "60", "10", "5"]
    assert cells[0][-1] == "/etc/sysctl.d/50-x.conf:2"
    assert cells[1][:4] == ["vm.dirty_ratio", "20", "20", "-"]
    assert " ".join(cells[1][-3:]) == "the kernel's default"
    assert cells[2][:4] == ["transparent_hugepage/enabled", "always", "-", "-"]
    assert "perhaps tmpfiles.d and units" in " ".join(cells[2])
    assert [each.changed for each in rows] == [True, False, False]
    assert [each.differs for each in rows] == [True, False, False]
    assert machine_json(rows[0])["set_at_boot"] == [{"value": "10", "file": "/etc/sysctl.d/50-x.conf", "line": 2}]


def test_our_own_file_is_not_what_a_machine_starts_with_when_it_is_reset(tmp_path: Path) -> None:
    write(tmp_path, {**USUAL, "etc/sysctl.d/50-x.conf": "vm.dirty_ratio=7\n"})
    write(tmp_path, {DROP_IN: "vm.dirty_ratio = 3\nvm.swappiness = 3\n"})
    by_name = {each.name: starts_with(each) for each in settings(tmp_path)}
    assert (by_name["vm.dirty_ratio"], by_name["vm.swappiness"]) == ("7", "60")
    assert by_name["vm.min_free_kbytes"] is None


def test_two_machines_differ_in_settings_and_queues_and_one_not_seen_in_nothing() -> None:
    other = replace(
        SETUP,
        settings=(SetValue("vm.swappiness", "5"), SetValue("vm.dirty_ratio", "20")),
        disks=(replace(DISK, scheduler="mq-deadline"),),
    )
    found = settings_differing(setup_settings(SETUP), setup_settings(other))
    assert [(each.name, each.a, each.b) for each in found] == [
        ("vm.swappiness", "60", "5"),
        ("vda/scheduler", "none", "mq-deadline"),
    ]
    assert settings_differing(setup_settings(SETUP), setup_settings(None)) == ()
