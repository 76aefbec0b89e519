"""The machine's halves of sets that are reverted, by whichever program; the order around the server's halves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.changes.journal import read_all
from pgtop_tune.changes.model.change import HostChange, ParameterChange
from pgtop_tune.changes.ports import MachineControl
from pgtop_tune.changes.selection import goes_before_server


def is_of_machine_only(set_id: str, directory: Path | None, copies: Iterable[bytes] = ()) -> bool:
    """Whether a set is in force on this machine, and no journal has a server's half of it.

    Args:
        set_id: Of the set.
        directory: Of the journals; paths.journal_dir() by default.
        copies: Lines of sets, for those that no journal has any more.
    """
    found = read_all(directory)
    texts = [*found.texts.values(), *(text for _, text in found.lost(copies))]
    of_machine = any(set_id in (each.set_id, each.id) for text in texts for each in text.host_in_force)
    return of_machine and not any(set_id in (each.set_id, each.id) for text in texts for each in text.in_force)


class MachineHalves:
    """The machine's halves of sets that are reverted, around the server's halves: pools of huge pages that get larger
    again first, all else afterwards.

    Args:
        machine: The door to it; None where there is none.
        set_ids: Known so far, in the order they were made.
        why: For the journal.
        told: Takes each change that is reverted.

    Attributes:
        settled: What is reverted.
    """

    def __init__(
        self,
        machine: MachineControl | None,
        set_ids: Sequence[str],
        why: str = "",
        told: Callable[[HostChange], None] = lambda change: None,
    ) -> None:
        self._machine = machine
        self._ids = list(set_ids)
        self._why = why
        self._told = told
        self.settled: list[HostChange] = []

    async def before(self, changes: Sequence[ParameterChange] = ()) -> None:
        """The server's halves are about to be reverted; they are also when this fails.

        Args:
            changes: The server's halves, where they say which sets are meant.
        """
        self._ids += [each for each in dict.fromkeys(change.set_id for change in changes) if each not in self._ids]
        with suppress(PgtopError):
            # Tried again, and told, afterwards.
            await self._revert(goes_before_server)

    async def after(self) -> Sequence[HostChange]:
        """Reverts the rest; all of them, with those before.

        Raises:
            HostProblem: We may not, or the kernel refuses one; the others are reverted.
            JournalProblem: The journal cannot be read or written, or another process is writing it.
        """
        await self._revert(lambda change: True)
        return self.settled

    async def _revert(self, wanted: Callable[[HostChange], bool]) -> None:
        problems: list[PgtopError] = []
        for set_id in filter(None, reversed(self._ids if self._machine is not None else ())):
            assert self._machine is not None
            try:
                await self._machine.revert_set(set_id, self._why, wanted, self._reverted)
            except Exception as problem:
                problems.append(told_as_problem(problem))
        if problems:
            raise problems[0]

    def _reverted(self, change: HostChange) -> None:
        self.settled.append(change)
        self._told(change)


def told_as_problem(failure: Exception) -> PgtopError:
    """A failure as it is told while changes are reverted: one that nobody foresaw does not keep the rest either."""
    if isinstance(failure, PgtopError):
        return failure
    return PgtopError(f"{type(failure).__name__}: {failure}", "this should not happen: please report it")
