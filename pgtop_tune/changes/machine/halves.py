"""The machine's halves of sets, reverted by the journal without the program that made them. Blocking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from pgtop_tune.changes.journal import journals, read
from pgtop_tune.changes.machine.control import revert
from pgtop_tune.changes.model.change import HostChange, ParameterChange
from pgtop_tune.changes.selection import goes_before_server
from pgtop_tune.errors import JournalProblem, PgtopError


def is_of_machine_only(set_id: str, directory: Path | None) -> bool:
    """Whether a set is in force on this machine, and no journal has a server's half of it."""
    texts = []
    for path in journals(directory):
        with suppress(JournalProblem):
            texts.append(read(path))
    of_machine = any(set_id in (each.set_id, each.id) for text in texts for each in text.host_in_force)
    return of_machine and not any(set_id in (each.set_id, each.id) for text in texts for each in text.in_force)


class MachineHalves:
    """The machine's halves of sets that are reverted on a server without the program that made them, in the order of
    `ChangeSets.revert`: pools of huge pages that get larger again first, all else after the server's halves.

    Args:
        set_id: The set that was asked for; "" where the server's half says which.
        directory: Of the journals; paths.journal_dir() by default.
        told: Takes each change that is reverted.
    """

    def __init__(self, set_id: str, directory: Path | None, told: Callable[[HostChange], None]) -> None:
        self._ids = {set_id} - {""}
        self._directory = directory
        self._told = told
        self._settled: list[HostChange] = []

    def before(self, changes: Sequence[ParameterChange]) -> None:
        """The server's half is known, and about to be taken back; it is also when this fails."""
        self._ids |= {change.set_id for change in changes} - {""}
        try:
            self._revert(goes_before_server)
        except PgtopError:
            # Tried again, and told, afterwards.
            pass

    def after(self) -> Sequence[HostChange]:
        """Takes the rest back; all of them, with those before.

        Raises:
            HostProblem: We may not, or the kernel refuses.
            JournalProblem: The journal cannot be read or written, or another process is writing it.
        """
        self._revert(lambda change: True)
        return self._settled

    def _revert(self, wanted: Callable[[HostChange], bool]) -> None:
        def chosen(in_force: Sequence[HostChange]) -> Sequence[HostChange]:
            return [change for change in in_force if {change.set_id, change.id} & self._ids and wanted(change)]

        revert(chosen, directory=self._directory, each=self._taken_back)

    def _taken_back(self, change: HostChange) -> None:
        self._settled.append(change)
        self._told(change)
