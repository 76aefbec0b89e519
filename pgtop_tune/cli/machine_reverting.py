"""`pgtop-tune revert` for the operating system of this machine: which changes, and what came of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pgtop_tune.changes.model.change import ChangeState
from pgtop_tune.changes.model.revert_outcome import RevertOutcome
from pgtop_tune.changes.ordering import goes_before_server
from pgtop_tune.cli.output import say, tell
from pgtop_tune.cli.revert_words import sum_of
from pgtop_tune.errors import JournalProblem, PgtopError

if TYPE_CHECKING:
    from pgtop_tune.changes.model.change import ParameterChange
    from pgtop_tune.changes.model.machine_change import HostChange
    from pgtop_tune.changes.selection import Selection


def revert_machine(selection: Selection, directory: Path | None) -> None:
    """Takes the changes back and tells of each."""
    from pgtop_tune.changes.machine.control import revert

    say(sum_of(RevertOutcome(), revert(selection, directory=directory, each=_said)))


def is_of_machine_only(set_id: str, directory: Path | None) -> bool:
    """Whether a set is in force on this machine, and no journal has a server's half of it."""
    from pgtop_tune.changes.journal import journals, read

    texts = []
    for path in journals(directory):
        with suppress(JournalProblem):
            texts.append(read(path))
    of_machine = any(set_id in (each.set_id, each.id) for text in texts for each in text.host_in_force)
    return of_machine and not any(set_id in (each.set_id, each.id) for text in texts for each in text.in_force)


def tell_of_the_rest(directory: Path | None) -> None:
    """That settings of this machine are still in force, where some are."""
    from pgtop_tune.changes.journal import path_for, read
    from pgtop_tune.changes.machine.control import machine

    left = len(read(path_for(machine().key, directory)).host_in_force)
    if left:
        what = "a setting of this machine is" if left == 1 else f"{left} settings of this machine are"
        tell(f"{what} still changed: `pgtop-tune revert --machine`")


class MachineHalves:
    """The machine's halves of sets that are taken back on a server: pools of huge pages that get larger again go
    before, so that the server has them, all else after.

    Args:
        set_id: The set that was asked for; "" where the server's half says which.
        directory: Of the journals; paths.journal_dir() by default.
    """

    def __init__(self, set_id: str, directory: Path | None) -> None:
        self._ids = {set_id} - {""}
        self._directory = directory
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
        from pgtop_tune.changes.machine.control import revert

        def chosen(in_force: Sequence[HostChange]) -> Sequence[HostChange]:
            return [change for change in in_force if {change.set_id, change.id} & self._ids and wanted(change)]

        revert(chosen, directory=self._directory, each=self._taken_back)

    def _taken_back(self, change: HostChange) -> None:
        self._settled.append(change)
        _said(change)


def _said(change: HostChange) -> None:
    if change.state is ChangeState.SUPERSEDED:
        say(f"{change.name}: {change.message}")
        return
    note = f"  ({change.message})" if change.message else ""
    say(f"{change.name}: {change.value} → {change.shown_after}{note}")


def told(change: HostChange) -> str:
    """One change in force in a line, with the words to revert it by."""
    notes = (
        str(change.state),
        f"{datetime.fromtimestamp(change.at_ms / 1000):%Y-%m-%d %H:%M:%S}",
        f"by {change.by}" if change.by else "",
        f"also in {change.drop_in}" if change.drop_in else "",
        "" if change.kept else "on trial",
        change.reason,
        change.message,
        f"--machine --set {change.set_id or change.id}",
    )
    return f"{change.name}: {change.value_before} → {change.value}  ({'; '.join(filter(None, notes))})"
