"""Changes of a made-up machine that end half-way: a full disk, a crash before any step, somebody who may not."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import HostProblem, JournalProblem
from pgtop_tune.changes.journal import Journal, path_for, read
from pgtop_tune.changes.machine.control import machine, revert_settings
from pgtop_tune.changes.machine.one_change import Intent, make
from pgtop_tune.changes.model.change import ChangeState, HostChange, Terms
from pgtop_tune.changes.selection import everything
from pgtop_tune.host import sysctl_files
from tests.host.made_machine import SWAPPINESS, Machine, let_others_enter
from tests.host.test_setting_sets import ORDERED
from tests.support.machine_tree import snapshot, write

WRITE = os.write


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


@pytest.mark.root
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
    # Root follows no journal of another's.
    for path in (made.journals, *made.journals.iterdir()):
        os.chown(path, 0, 0)
    assert [each.state for each in made.journaled()] == [ChangeState.APPLIED]
    made.undo()
    assert made.text(SWAPPINESS) == "60\n"


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
        write(made.root, {} if before is None else {sysctl_files.PATH: before})
        whole = snapshot(made.root)
        power = Power(monkeypatch, step)
        try:
            with power:
                for name, value, survive in CHANGES:
                    with Journal(machine(made.root), made.journals) as journal:
                        make(journal, made.root, name, value, survive=survive, intent=Intent())
                revert_settings(everything, made.root, made.journals)
        except Crash:
            crashes += 1
        revert_settings(everything, made.root, made.journals)
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
        (made.root / sysctl_files.PATH).unlink()
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
