"""Changes of the operating system on a made-up machine: journaled, proven, kept in a file, undone to the byte."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgtop_tune.base.errors import HostProblem, JournalProblem, UsageProblem
from pgtop_tune.changes.machine import one_change as setting_change
from pgtop_tune.changes.machine.control import HostControl
from pgtop_tune.changes.model.change import ChangeState
from pgtop_tune.host import sysctl_files
from pgtop_tune.host.system_settings import path_of
from pgtop_tune.model.absence import Unavailable
from tests.host.made_machine import SWAPPINESS, Machine, let_others_enter
from tests.support.machine_tree import THP, USUAL, snapshot, write
from tests.support.undoing import undo_settings


def test_a_change_is_live_and_journaled_and_its_undoing_leaves_everything_as_it_was(made: Machine) -> None:
    before = snapshot(made.root)
    change = made.change("vm.swappiness", "5")
    assert (change.state, change.value_before, change.shown_after) == (ChangeState.APPLIED, "60", "5")
    assert made.text(SWAPPINESS) == "5\n"
    assert made.journaled() == (change,)
    reverted = made.undo()
    assert reverted is not None
    assert (reverted.id, reverted.state, reverted.shown_after, reverted.message) == (change.id, "reverted", "60", "")
    assert snapshot(made.root) == before
    assert made.undo() is None


def test_words_in_brackets_are_read_and_offered_and_no_other_word_is_taken(made: Machine) -> None:
    found = made.setting("transparent_hugepage/enabled")
    assert (found.live, found.choices, found.writable) == ("always", ("always", "madvise", "never"), True)
    with pytest.raises(UsageProblem, match="does not accept 'nevr'") as problem:
        made.change("transparent_hugepage/enabled", "nevr")
    assert problem.value.hint == "one of always, madvise, never"
    assert made.journaled() == ()


@pytest.mark.parametrize("value", ["", "5%", "512MB", "1\n2", "0x10", "٣", "--5", "5; reboot"])
def test_what_is_no_whole_number_changes_nothing(made: Machine, value: str) -> None:
    with pytest.raises(UsageProblem, match="does not accept"):
        made.change("vm.dirty_bytes", value)
    assert made.journaled() == ()


@pytest.mark.parametrize("name", ["vm.drop_caches", "../../etc/passwd", "vm/../../etc", "kernel.core_pattern", "sda/x"])
def test_what_is_not_in_the_list_is_not_written(made: Machine, name: str) -> None:
    with pytest.raises(UsageProblem, match="not a setting of this machine"):
        made.change(name, "1")


def meminfo(committed_mb: int) -> str:
    """64 GB without swap, of which so much is committed."""
    sizes = dict.fromkeys(("MemFree", "Buffers", "Cached", "Shmem", "Dirty", "Writeback", "PageTables"), 9)
    sizes |= {"MemTotal": 65536, "Committed_AS": committed_mb, "CommitLimit": 32768, "SwapTotal": 0, "SwapFree": 0}
    lines = [f"{name}: {size * 1024} kB" for name, size in sizes.items()]
    return "\n".join([*lines, "HugePages_Total: 0", "HugePages_Free: 0", "HugePages_Rsvd: 0", "HugePages_Surp: 0",
                      "Hugepagesize: 2048 kB", ""])  # fmt: skip


@pytest.mark.parametrize(
    ("strict", "name", "value", "refused"),
    [
        ("0", "vm.overcommit_memory", "2", True),
        ("0", "vm.overcommit_memory", "1", False),
        ("0", "vm.overcommit_ratio", "10", False),
        ("2", "vm.overcommit_ratio", "40", True),
        ("2", "vm.overcommit_ratio", "60", False),
        ("2", "vm.nr_hugepages", "20", True),
        ("0", "vm.nr_hugepages", "20", False),
        ("2", "vm.swappiness", "5", False),
    ],
)
def test_strict_accounting_that_leaves_no_room_to_fork_is_refused(
    made: Machine, strict: str, name: str, value: str, refused: bool
) -> None:
    pool = {
        f"sys/kernel/mm/hugepages/hugepages-2048kB/{which}_hugepages": "0\n" for which in ("free", "resv", "surplus")
    }
    write(made.root, {"proc/meminfo": meminfo(33_000), path_of("vm.overcommit_memory"): f"{strict}\n", **pool})
    if not refused:
        made.change(name, value)
        return
    with pytest.raises(HostProblem, match=r"CommitLimit would be .*: no program could start"):
        made.change(name, value)
    assert made.journaled() == ()


def test_strict_accounting_is_not_entered_again_by_a_revert_where_no_program_could_start(made: Machine) -> None:
    write(made.root, {"proc/meminfo": meminfo(9000), path_of("vm.overcommit_memory"): "2\n"})
    made.change("vm.overcommit_memory", "0")
    write(made.root, {"proc/meminfo": meminfo(33_000)})
    with pytest.raises(HostProblem, match="no program could start"):
        made.undo()
    write(made.root, {"proc/meminfo": meminfo(9000)})
    made.undo()
    assert made.text(path_of("vm.overcommit_memory")) == "2\n"


def test_a_setting_that_this_kernel_does_not_have_says_so(made: Machine) -> None:
    (made.root / path_of("kernel.numa_balancing")).unlink()
    found = made.setting("kernel.numa_balancing")
    assert isinstance(found.live, Unavailable)
    assert str(found.live) == "this kernel has no /proc/sys/kernel/numa_balancing"
    with pytest.raises(HostProblem, match="this kernel has no"):
        made.change("kernel.numa_balancing", "0")


def test_a_change_that_shall_survive_is_a_line_of_our_file_and_undone_the_file_is_gone(made: Machine) -> None:
    before = snapshot(made.root)
    made.change("vm.swappiness", "5", survive=True)
    change = made.change("vm.min_free_kbytes", "102400", survive=True)
    assert change.message == ""
    assert made.text(sysctl_files.PATH) == "vm.swappiness = 5\nvm.min_free_kbytes = 102400\n"
    boot = made.setting("vm.swappiness").after_reboot
    assert (boot.value, boot.assignments[-1].file) == ("5", f"/{sysctl_files.PATH}")
    asyncio.run(undo_settings(made.control))
    assert snapshot(made.root) == before


FILES = st.none() | st.text("ab=# \n.", max_size=20) | st.just("vm.swappiness = 60") | st.just("#x\nvm.swappiness=1\n")
NAMES = ("vm.swappiness", "vm.overcommit_memory", "vm.zone_reclaim_mode")


@settings(max_examples=25)
@given(before=FILES, changes=st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 9)), max_size=4), data=st.data())
def test_in_whatever_order_changes_are_undone_files_and_values_are_as_before_to_the_byte(
    before: str | None,
    changes: list[tuple[str, int]],
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    made = Machine(tmp_path_factory.mktemp("machine"))
    write(made.root, {} if before is None else {sysctl_files.PATH: before})
    whole = snapshot(made.root)
    done = [made.change(name, str(value), survive=True) for name, value in changes]
    for place in data.draw(st.permutations(range(len(done)))):
        made.undo_only(done[place])
    assert snapshot(made.root) == whole


def test_a_file_that_somebody_edited_since_keeps_the_edit_and_loses_only_our_line(made: Machine) -> None:
    write(made.root, {sysctl_files.PATH: "# ours\nvm.swappiness = 10\n"})
    made.change("vm.swappiness", "5", survive=True)
    with open(made.root / sysctl_files.PATH, "a") as file:
        file.write("vm.max_map_count = 70000\n")
    reverted = made.undo()
    assert made.text(sysctl_files.PATH) == "# ours\nvm.swappiness = 10\nvm.max_map_count = 70000\n"
    assert reverted is not None
    assert "has been edited since: only our line was removed" in reverted.message


def test_a_file_that_wins_over_ours_at_boot_is_named(made: Machine) -> None:
    write(made.root, {"etc/sysctl.conf": "# local\nvm.swappiness = 30\n"})
    assert made.change("vm.swappiness", "5", survive=True).message == (
        "after a reboot, line 2 of /etc/sysctl.conf wins: 30"
    )


def test_what_is_no_sysctl_cannot_be_kept_in_our_file_and_the_hint_is_the_line_to_paste(made: Machine) -> None:
    with pytest.raises(UsageProblem, match="is not a sysctl") as problem:
        made.change("transparent_hugepage/enabled", "never", survive=True)
    assert problem.value.hint.endswith("sudo tee -a /etc/tmpfiles.d/pgtop-tune.conf")
    assert made.text(f"{THP}/enabled").startswith("[always]")


def test_a_value_somebody_else_has_set_since_is_left_alone(made: Machine) -> None:
    made.change("vm.swappiness", "5")
    write(made.root, {SWAPPINESS: "33\n"})
    reverted = made.undo()
    assert reverted is not None
    assert reverted.message == "left alone: another user has set it to 33 since"
    assert made.text(SWAPPINESS) == "33\n"
    assert made.undo() is None


def test_after_a_reboot_a_live_change_is_only_marked_as_gone(made: Machine) -> None:
    made.change("vm.swappiness", "5")
    write(made.root, {"proc/sys/kernel/random/boot_id": "another\n"})
    reverted = made.undo()
    assert reverted is not None
    assert "rebooted" in reverted.message
    assert made.text(SWAPPINESS) == "5\n", "what the machine has now was not set by us"


def test_after_a_reboot_a_change_that_survived_is_undone_in_the_file_and_live(made: Machine) -> None:
    before = snapshot(made.root)
    made.change("vm.swappiness", "5", survive=True)
    write(made.root, {"proc/sys/kernel/random/boot_id": "another\n"})
    made.undo()
    write(made.root, {"proc/sys/kernel/random/boot_id": USUAL["proc/sys/kernel/random/boot_id"]})
    assert snapshot(made.root) == before


@pytest.mark.parametrize(("room", "asked"), [(2944, "3000"), (0, "3000")])
def test_a_kernel_without_room_for_all_huge_pages_is_quoted_with_what_it_gave(
    made: Machine, monkeypatch: pytest.MonkeyPatch, room: int, asked: str
) -> None:
    """Memory in pieces cannot be had on request: a kernel that gives at most `room` pages."""
    write_live = setting_change._write

    def less(root: Path, path: str, value: str) -> None:
        write_live(root, path, str(min(int(value), room)))

    for name in ("free", "resv", "surplus"):
        write(made.root, {f"sys/kernel/mm/hugepages/hugepages-2048kB/{name}_hugepages": "0\n"})
    monkeypatch.setattr(setting_change, "_write", less)
    if room:
        change = made.change("vm.nr_hugepages", asked)
        assert (change.shown_after, change.state) == ("2944", ChangeState.APPLIED)
        assert change.message.startswith("the kernel found room for 2944 of 3000 pages")
        made.undo()
    else:
        with pytest.raises(HostProblem, match="still 0: the kernel found room for 0 of 3000 pages"):
            made.change("vm.nr_hugepages", asked)
        assert made.journaled()[0].state is ChangeState.FAILED
    assert made.text("proc/sys/vm/nr_hugepages") == "0\n"


def test_a_file_that_cannot_be_written_takes_the_live_value_back_and_the_journal_says_failed(made: Machine) -> None:
    write(made.root, {"etc/sysctl.d": ""})
    with pytest.raises(HostProblem, match=r"99-pgtop-tune.conf cannot be"):
        made.change("vm.swappiness", "5", survive=True)
    (made.root / "etc/sysctl.d").unlink()
    (made.root / "etc/sysctl.d/99-pgtop-tune.conf.new").mkdir(parents=True)
    with pytest.raises(HostProblem, match=r"99-pgtop-tune.conf cannot be written"):
        made.change("vm.swappiness", "5", survive=True)
    assert made.text(SWAPPINESS) == "60\n"
    assert [each.state for each in made.journaled()] == [ChangeState.FAILED]
    assert asyncio.run(made.control.in_force()) == ()


def test_a_link_in_place_of_our_file_is_not_followed(made: Machine) -> None:
    write(made.root, {"etc/other": "keep\n", "etc/sysctl.d/x.conf": ""})
    (made.root / sysctl_files.PATH).symlink_to("../other")
    with pytest.raises(HostProblem, match="cannot be read"):
        made.change("vm.swappiness", "5", survive=True)
    assert (made.text("etc/other"), made.text(SWAPPINESS)) == ("keep\n", "60\n")


def test_a_journal_that_cannot_be_written_changes_nothing(made: Machine) -> None:
    before = snapshot(made.root)
    made.journals.write_text("in the way")
    with pytest.raises(JournalProblem):
        made.change("vm.swappiness", "5", survive=True)
    assert snapshot(made.root) == before


def test_queues_of_the_servers_disks_are_settings_too(made: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgtop_tune.changes.machine.control.carriers", lambda directory, root: ("nvme0n1", "dm-9"))
    made.control = HostControl(lambda: ["/var/lib/postgresql"], root=made.root, directory=made.journals)
    assert made.setting("nvme0n1/scheduler").choices == ("none", "mq-deadline")
    change = made.change("nvme0n1/read_ahead_kb", "4096")
    assert (change.path, change.shown_after) == ("/sys/block/nvme0n1/queue/read_ahead_kb", "4096")
    assert [disk.name for disk in asyncio.run(made.control.disks())] == ["nvme0n1"]


@pytest.mark.root
def test_who_may_not_write_gets_the_command_to_paste(made: Machine) -> None:
    (made.root / SWAPPINESS).chmod(0o444)
    let_others_enter(made.root)
    made.journals.mkdir()
    os.chown(made.journals, 65534, 65534)
    os.seteuid(65534)
    try:
        assert made.setting("vm.swappiness").writable is False
        with pytest.raises(HostProblem, match="cannot be written by this process") as problem:
            made.change("vm.swappiness", "5")
    finally:
        os.seteuid(0)
    assert problem.value.hint == "run sudo sysctl -w vm.swappiness=5"


def test_commands_to_paste_for_every_kind_of_setting(made: Machine) -> None:
    said = made.control.commands
    assert said("vm.swappiness", "5", survive=True) == (
        "sudo sysctl -w vm.swappiness=5",
        "echo 'vm.swappiness = 5' | sudo tee -a /etc/sysctl.d/99-pgtop-tune.conf",
    )
    assert said("transparent_hugepage/enabled", "never", survive=True) == (
        "echo never | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
        "echo 'w /sys/kernel/mm/transparent_hugepage/enabled - - - - never' | "
        "sudo tee -a /etc/tmpfiles.d/pgtop-tune.conf",
    )
    assert said("cciss/c0d0/scheduler", "none", survive=True) == (
        "echo none | sudo tee '/sys/block/cciss!c0d0/queue/scheduler'",
        'echo \'ACTION=="add|change", KERNEL=="cciss!c0d0", ATTR{queue/scheduler}="none"\' | '
        "sudo tee -a /etc/udev/rules.d/99-pgtop-tune.rules",
    )
    assert said("hugepages-1048576kB/nr_hugepages", "4")[0] == (
        "echo 4 | sudo tee /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"
    )
