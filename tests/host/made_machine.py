"""A machine made up in a directory, and a control of its settings."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from pgtop_tune.changes.journal import Journal, path_for, read
from pgtop_tune.changes.machine.control import HostControl, machine, revert_settings
from pgtop_tune.changes.machine.one_change import Intent, make
from pgtop_tune.changes.model.change import HostChange, Terms, WantedSetting
from pgtop_tune.changes.model.pending_set import NO_DEADLINE
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.machine import SystemSetting
from tests.support.machine_tree import USUAL, write
from tests.support.undoing import undo_setting

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

    def pending(self, name: str, value: str, until_ms: int, set_id: str = "") -> HostChange:
        """As a process that is gone has left it."""
        with Journal(machine(self.root), self.journals) as journal:
            intent = Intent(set_id=set_id, by="t@h, 1", deadline={**NO_DEADLINE, "until_ms": until_ms})
            return make(journal, self.root, name, value, survive=False, intent=intent)

    def undo(self) -> HostChange | None:
        return asyncio.run(undo_setting(self.control))

    def undo_only(self, change: HostChange) -> HostChange:
        return revert_settings(
            lambda all_of_it: [each for each in all_of_it if each.id == change.id], self.root, self.journals
        )[0]

    def setting(self, name: str) -> SystemSetting:
        found = asyncio.run(self.control.settings())
        assert not isinstance(found, Unavailable)
        return next(each for each in found if each.name == name)

    def journaled(self) -> tuple[HostChange, ...]:
        return read(path_for(machine(self.root).key, self.journals)).host_changes

    def text(self, path: str) -> str:
        return (self.root / path).read_text()


def let_others_enter(directory: Path) -> None:
    for path in (directory, *directory.parents):
        if path.stat().st_uid == 0 and str(path).startswith(f"{tempfile.gettempdir()}/"):
            path.chmod(0o755)
