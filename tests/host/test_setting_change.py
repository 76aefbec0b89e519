"""Changes of the operating system on a made-up machine: journaled, proven, kept in a file, undone to the byte."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgtop_tune.errors import HostProblem, JournalProblem, UsageProblem
from pgtop_tune.host import drop_in, setting_change
from pgtop_tune.host.control import HostControl, everything, machine, revert
from pgtop_tune.host.setting_change import Intent, make
from pgtop_tune.host.system_settings import path_of
from pgtop_tune.journal import Journal, path_for, read
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.change import ChangeState, Terms
from pgtop_tune.model.system_setting import HostChange, SystemSetting, WantedSetting
from pgtop_tune.watchman import Watchman
from tests.support.machine_tree import THP, USUAL, snapshot, write

SWAPPINESS = "proc/sys/vm/swappiness"


class Machine:
    """A tree, and a control that has its journal beside it."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "root"
        self.journals = directory / "journal"
        write(self.root, USUAL)
        self.control = HostControl(root=self.root, directory=self.journals)

    def change(self, name: str, value: str, *, survive: bool = False, set_id: str = "") -> HostChange:
        wanted = [WantedSetting(name, value)]
        return asyncio.run(self.control.apply_set(wanted, Terms(set_id=set_id), survive=survive))[0]

    def on_trial(self, name: str, value: str, until_ms: int, set_id: str = "") -> HostChange:
        """As a process that is gone has left it."""
        with Journal(machine(self.root), self.journals) as journal:
            intent = Intent(set_id=set_id, by="t@h, 1", until_ms=until_ms)
            return make(journal, self.root, name, value, survive=False, intent=intent)

    def undo(self) -> HostChange | None:
        return asyncio.run(self.control.undo())

    def undo_only(self, change: HostChange) -> HostChange:
        return revert(lambda all_of_it: [each for each in all_of_it if each.id == change.id], self.root, self.journals)[
            0
        ]

    def setting(self, name: str) -> SystemSetting:
        found = asyncio.run(self.control.settings())
        assert not isinstance(found, Unavailable)
        return next(each for each in found if each.name == name)

    def journaled(self) -> tuple[HostChange, ...]:
        return read(path_for(machine(self.root).key, self.journals)).host_changes

    def text(self, path: str) -> str:
        return (self.root / path).read_text()


@pytest.fixture
def made(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


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
    with pytest.raises(UsageProblem, match="does not take 'nevr'") as problem:
        made.change("transparent_hugepage/enabled", "nevr")
    assert problem.value.hint == "one of always, madvise, never"
    assert made.journaled() == ()


@pytest.mark.parametrize("value", ["", "5%", "512MB", "1\n2", "0x10", "٣", "--5", "5; reboot"])
def test_what_is_no_whole_number_changes_nothing(made: Machine, value: str) -> None:
    with pytest.raises(UsageProblem, match="does not take"):
        made.change("vm.dirty_bytes", value)
    assert made.journaled() == ()


@pytest.mark.parametrize("name", ["vm.drop_caches", "../../etc/passwd", "vm/../../etc", "kernel.core_pattern", "sda/x"])
def test_what_is_not_in_the_list_is_not_written(made: Machine, name: str) -> None:
    with pytest.raises(UsageProblem, match="no setting of this machine"):
        made.change(name, "1")


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
    assert made.text(drop_in.PATH) == "vm.swappiness = 5\nvm.min_free_kbytes = 102400\n"
    boot = made.setting("vm.swappiness").after_reboot
    assert (boot.value, boot.assignments[-1].file) == ("5", f"/{drop_in.PATH}")
    asyncio.run(made.control.undo_all())
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
    write(made.root, {} if before is None else {drop_in.PATH: before})
    whole = snapshot(made.root)
    done = [made.change(name, str(value), survive=True) for name, value in changes]
    for place in data.draw(st.permutations(range(len(done)))):
        made.undo_only(done[place])
    assert snapshot(made.root) == whole


def test_a_file_that_somebody_edited_since_keeps_the_edit_and_loses_only_our_line(made: Machine) -> None:
    write(made.root, {drop_in.PATH: "# ours\nvm.swappiness = 10\n"})
    made.change("vm.swappiness", "5", survive=True)
    with open(made.root / drop_in.PATH, "a") as file:
        file.write("vm.max_map_count = 70000\n")
    reverted = made.undo()
    assert made.text(drop_in.PATH) == "# ours\nvm.swappiness = 10\nvm.max_map_count = 70000\n"
    assert reverted is not None
    assert "has been edited since: only our line was taken out" in reverted.message


def test_a_file_that_wins_over_ours_at_boot_is_named(made: Machine) -> None:
    write(made.root, {"etc/sysctl.conf": "# local\nvm.swappiness = 30\n"})
    assert made.change("vm.swappiness", "5", survive=True).message == (
        "after a reboot /etc/sysctl.conf line 2 wins: 30"
    )


def test_what_is_no_sysctl_cannot_be_kept_in_our_file_and_the_hint_is_the_line_to_paste(made: Machine) -> None:
    with pytest.raises(UsageProblem, match="is no sysctl") as problem:
        made.change("transparent_hugepage/enabled", "never", survive=True)
    assert problem.value.hint.endswith("sudo tee -a /etc/tmpfiles.d/pgtop-tune.conf")
    assert made.text(f"{THP}/enabled").startswith("[always]")


def test_a_value_somebody_else_has_set_since_is_left_alone(made: Machine) -> None:
    made.change("vm.swappiness", "5")
    write(made.root, {SWAPPINESS: "33\n"})
    reverted = made.undo()
    assert reverted is not None
    assert reverted.message == "left alone: somebody has set it to 33 since"
    assert made.text(SWAPPINESS) == "33\n"
    assert made.undo() is None


def test_after_a_reboot_a_live_change_is_only_marked_as_gone(made: Machine) -> None:
    made.change("vm.swappiness", "5")
    write(made.root, {"proc/sys/kernel/random/boot_id": "another\n"})
    reverted = made.undo()
    assert reverted is not None
    assert "started anew" in reverted.message
    assert made.text(SWAPPINESS) == "5\n", "what the machine has now was not set by us"


def test_after_a_reboot_a_change_that_survived_is_undone_in_the_file_and_live(made: Machine) -> None:
    before = snapshot(made.root)
    made.change("vm.swappiness", "5", survive=True)
    write(made.root, {"proc/sys/kernel/random/boot_id": "another\n"})
    made.undo()
    write(made.root, {"proc/sys/kernel/random/boot_id": USUAL["proc/sys/kernel/random/boot_id"]})
    assert snapshot(made.root) == before


def test_a_set_is_kept_and_reverted_together_and_nothing_else_with_it(made: Machine) -> None:
    made.change("vm.overcommit_memory", "2")
    made.change("vm.swappiness", "5", set_id="s")
    made.change("vm.zone_reclaim_mode", "1", set_id="s")
    on_trial = made.on_trial("vm.dirty_expire_centisecs", "1000", 60_000, "s")
    assert (on_trial.kept, on_trial.until_ms) == (False, 60_000)
    assert [(each.kept, each.until_ms) for each in asyncio.run(made.control.keep("s"))] == [(True, None)] * 3
    assert [each.name for each in asyncio.run(made.control.revert_set("s"))] == [
        "vm.dirty_expire_centisecs", "vm.zone_reclaim_mode", "vm.swappiness",
    ]  # fmt: skip
    assert [each.name for each in asyncio.run(made.control.in_force())] == ["vm.overcommit_memory"]


WRITE = os.write


def test_what_was_on_trial_and_not_kept_is_taken_back_by_whoever_looks_next(made: Machine) -> None:
    now_ms = time.time_ns() // 1_000_000
    made.change("vm.overcommit_memory", "2")
    made.on_trial("vm.swappiness", "1", now_ms - 1)
    made.on_trial("vm.zone_reclaim_mode", "1", now_ms + 3_600_000)
    (back,) = asyncio.run(made.control.revert_overdue())
    assert (back.name, back.message) == ("vm.swappiness", "nobody kept it in time")
    assert made.text(SWAPPINESS) == "60\n"
    assert len(asyncio.run(made.control.in_force())) == 2


ORDERED = (WantedSetting("vm.swappiness", "5"), WantedSetting("vm.min_free_kbytes", "102400"))


class Waiting:
    """Stands for the process that waits for our end."""

    def __init__(self) -> None:
        self.sets: list[str] = []

    def __call__(self, set_id: str, until_ms: int, directory: Path | None) -> Watchman:
        self.sets.append(set_id)
        return Watchman(["true"], {})


async def test_a_set_on_trial_is_taken_back_when_its_time_is_over(made: Machine) -> None:
    before = snapshot(made.root)
    waiting = Waiting()
    control = HostControl(root=made.root, directory=made.journals, guard=waiting)
    changes = await control.apply_set(ORDERED, Terms(keep_within_s=0.2, reason="a try"))
    assert waiting.sets == [changes[0].set_id] == [changes[1].set_id]
    assert [(each.kept, each.reason) for each in changes] == [(False, "a try")] * 2
    async with asyncio.timeout(60):
        while await control.in_force():
            await asyncio.sleep(0.05)
    assert snapshot(made.root) == before


async def test_a_set_on_trial_ends_with_the_session_and_a_kept_one_does_not(made: Machine) -> None:
    control = HostControl(root=made.root, directory=made.journals, guard=Waiting())
    kept, left = [(await control.apply_set([each], Terms(keep_within_s=600.0)))[0] for each in ORDERED]
    await control.keep(kept.set_id)
    await control.aclose()
    assert (made.text(SWAPPINESS), made.text(path_of(left.name))) == ("5\n", "67584\n")
    assert [(each.id, each.kept) for each in await control.in_force()] == [(kept.id, True)]


async def test_without_the_process_that_waits_for_our_end_nothing_is_put_on_trial(made: Machine) -> None:
    def none(set_id: str, until_ms: int, directory: Path | None) -> Watchman:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    control = HostControl(root=made.root, directory=made.journals, guard=none)
    with pytest.raises(JournalProblem, match="cannot be started: Resource temporarily unavailable"):
        await control.apply_set(ORDERED, Terms(keep_within_s=600.0))
    assert made.text(SWAPPINESS) == "60\n"


def test_of_a_set_with_a_bad_value_nothing_is_made(made: Machine) -> None:
    with pytest.raises(UsageProblem, match=r"vm\.min_free_kbytes does not take '1GB'"):
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
    with pytest.raises(UsageProblem, match=r"two words for one thing|to be set twice"):
        asyncio.run(made.control.apply_set([WantedSetting(name, "40") for name in pair], Terms()))
    assert made.journaled() == ()


def test_of_a_server_elsewhere_nothing_is_shown_and_nothing_changed(made: Machine) -> None:
    elsewhere = Unavailable(Reason.NOT_LOCAL, "no server process 17 here")
    control = HostControl(lambda: elsewhere, root=made.root, directory=made.journals)
    assert asyncio.run(control.settings()) == elsewhere
    assert asyncio.run(control.disks()) == ()
    with pytest.raises(HostProblem, match="changed where the server runs: no server process 17 here"):
        asyncio.run(control.apply("vm.swappiness", "5"))
    assert made.text(SWAPPINESS) == "60\n"


@pytest.mark.parametrize("line", [2, 4])
def test_a_journal_that_fills_up_half_way_leaves_everything_as_it_was(
    made: Machine, monkeypatch: pytest.MonkeyPatch, line: int
) -> None:
    """The second line of a change says that it was made; the disk is full just then."""
    before, written = snapshot(made.root), 0
    write_line = Journal.write

    def full(self: Journal, change: HostChange) -> None:
        nonlocal written
        written += 1
        if written == line:
            raise JournalProblem("the change journal cannot be written: No space left on device")
        write_line(self, change)

    monkeypatch.setattr(Journal, "write", full)
    with pytest.raises(JournalProblem, match="No space left"):
        asyncio.run(made.control.apply_set(ORDERED, Terms(), survive=True))
    assert snapshot(made.root) == before


def test_a_machine_keeps_its_journal_when_it_is_given_another_name(made: Machine) -> None:
    write(made.root, {"etc/machine-id": "b6ba1c2d0e3f4a5b8c9d0e1f2a3b4c5d\n"})
    assert machine(made.root).key == "host-b6ba1c2d0e3f4a5b8c9d0e1f2a3b4c5d"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
def test_who_may_not_take_back_is_told_and_the_change_stays_in_force(made: Machine) -> None:
    made.change("vm.swappiness", "5")
    # The file keeps a mode that lets nobody else write, as the kernel's do; the journal is another's to write.
    for path in (made.journals, *made.journals.iterdir()):
        os.chown(path, 65534, 65534)
    let_others_enter(made.root)
    os.seteuid(65534)
    try:
        with pytest.raises(HostProblem, match="cannot be written: Permission denied"):
            made.undo()
    finally:
        os.seteuid(0)
    assert [each.state for each in made.journaled()] == [ChangeState.APPLIED]
    made.undo()
    assert made.text(SWAPPINESS) == "60\n"


def let_others_enter(directory: Path) -> None:
    for path in (directory, *directory.parents):
        if path.stat().st_uid == 0 and str(path).startswith(f"{tempfile.gettempdir()}/"):
            path.chmod(0o755)


class Crash(BaseException):
    """What no handler of the program catches, as no handler runs after kill -9."""


class Power:
    """Fails before the given call that reaches the kernel or the disk; counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails_before: int) -> None:
        self.calls = 0
        self._fails_before = fails_before
        self._patch = monkeypatch.context()

    def __enter__(self) -> None:
        patch = self._patch.__enter__()
        for name in ("write", "fsync", "rename", "unlink", "open"):
            patch.setattr(os, name, self._counted(getattr(os, name)))

    def __exit__(self, *about: object) -> None:
        self._patch.__exit__(None, None, None)

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*words: Any, **more: Any) -> Any:
            if call is WRITE and "/proc/sys/" in os.readlink(f"/proc/self/fd/{words[0]}"):
                # A made-up file is emptied when it is opened; the kernel's are not.
                return call(*words, **more)
            self.calls += 1
            if self.calls == self._fails_before:
                raise Crash
            return call(*words, **more)

        return counted


CHANGES = (("vm.swappiness", "5", True), ("vm.min_free_kbytes", "102400", False), ("vm.swappiness", "1", True))


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(None, id="no file"),
        pytest.param("vm.swappiness = 10\nvm.laptop_mode = 0", id="a file", marks=pytest.mark.long),
    ],
)
def test_a_crash_before_any_step_of_making_or_undoing_is_mended_by_the_next_revert(
    tmp_path: Path, before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call to the kernel or the disk of three changes and of their undoing fails once, as with the power gone."""
    crashes = 0
    for step in itertools.count(1):
        made = Machine(tmp_path / str(step))
        write(made.root, {} if before is None else {drop_in.PATH: before})
        whole = snapshot(made.root)
        power = Power(monkeypatch, step)
        try:
            with power:
                for name, value, survive in CHANGES:
                    with Journal(machine(made.root), made.journals) as journal:
                        make(journal, made.root, name, value, survive=survive, intent=Intent())
                revert(everything, made.root, made.journals)
        except Crash:
            crashes += 1
        revert(everything, made.root, made.journals)
        assert snapshot(made.root) == whole, f"crashed before call {step}"
        assert read(path_for(machine(made.root).key, made.journals)).host_in_force == ()
        if power.calls < step:
            break
    assert crashes > 100


@pytest.mark.parametrize("done", ["nothing", "live", "live and file"])
def test_a_crash_between_any_two_steps_is_settled_by_looking(made: Machine, done: str) -> None:
    before = snapshot(made.root)
    change = made.change("vm.swappiness", "5", survive=True)
    after = snapshot(made.root)
    with Journal(machine(made.root), made.journals) as journal:
        journal.write(replace(change, state=ChangeState.INTENDED, shown_after=""))
    if done != "live and file":
        (made.root / drop_in.PATH).unlink()
    if done == "nothing":
        write(made.root, {SWAPPINESS: "60\n"})
    else:
        assert made.text(SWAPPINESS) == after[SWAPPINESS].decode()
    made.undo()
    assert snapshot(made.root) == before
    assert [each.state for each in made.journaled()] == [ChangeState.REVERTED]


def test_a_pool_that_stopped_half_way_in_a_crash_is_put_back(made: Machine) -> None:
    change = made.change("vm.nr_hugepages", "3000")
    with Journal(machine(made.root), made.journals) as journal:
        journal.write(replace(change, state=ChangeState.INTENDED, shown_after=""))
    write(made.root, {"proc/sys/vm/nr_hugepages": "2944\n"})
    made.undo()
    assert made.text("proc/sys/vm/nr_hugepages") == "0\n"


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
    (made.root / drop_in.PATH).symlink_to("../other")
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
    monkeypatch.setattr("pgtop_tune.host.control.carriers", lambda directory, root: ("nvme0n1", "dm-9"))
    made.control = HostControl(lambda: ["/var/lib/postgresql"], root=made.root, directory=made.journals)
    assert made.setting("nvme0n1/scheduler").choices == ("none", "mq-deadline")
    change = made.change("nvme0n1/read_ahead_kb", "4096")
    assert (change.path, change.shown_after) == ("/sys/block/nvme0n1/queue/read_ahead_kb", "4096")
    assert [disk.name for disk in asyncio.run(made.control.disks())] == ["nvme0n1"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
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
