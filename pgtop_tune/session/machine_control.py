"""Settings of the operating system in the operator's hand, where the server runs on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pgtop_tune.host.block_queue import Disk
    from pgtop_tune.host.machine_facts import MachineFacts
    from pgtop_tune.model.absence import Unavailable
    from pgtop_tune.model.change import Terms
    from pgtop_tune.model.system_setting import HostChange, SystemSetting, WantedSetting


class MachineControl(Protocol):
    """What there is to set in the kernel, several of them as one, on trial if wanted; every call is journaled before
    it acts. The journal is that of the machine, whatever servers run on it."""

    async def settings(self) -> tuple[SystemSetting, ...] | Unavailable:
        """Every setting with its live value, its value after a reboot, and whether this process may change it.

        Returns:
            NOT_LOCAL where the server runs on another machine, NOT_YET before it has answered.
        """
        ...

    async def facts(self) -> MachineFacts:
        """What advice on these settings stands on; for `tuning.advice.system_rules.system_facts`."""
        ...

    async def disks(self) -> tuple[Disk, ...]:
        """The disks under the server's directories; likewise."""
        ...

    def commands(self, name: str, value: str, *, survive: bool = False) -> tuple[str, ...]:
        """What to paste into a shell where this process may not change it itself, and for the screen."""
        ...

    async def apply(self, name: str, value: str, *, survive: bool = False) -> HostChange:
        """A set of one. Raises as `apply_set`."""
        ...

    async def apply_set(
        self, wanted: Sequence[WantedSetting], terms: Terms, *, survive: bool = False
    ) -> tuple[HostChange, ...]:
        """Makes several changes as one, in the order given; all or nothing.

        On trial it is taken back when its time is over, when the program ends, and when it is killed.

        Args:
            wanted: What is to be set.
            terms: Whether it has to be kept, why it is made, and the set it belongs to.
            survive: Put into our file of sysctl.d as well.

        Raises:
            UsageProblem: No such setting here, a value it does not take, or one that no file can keep.
            HostProblem: We may not (the hint has the command), or the kernel refuses; nothing is changed.
            JournalProblem: The journal could not be written; nothing is changed.
        """
        ...

    async def keep(self, set_id: str) -> tuple[HostChange, ...]:
        """A set on trial stays; empty when it is not in force (any more)."""
        ...

    async def revert_set(self, set_id: str, why: str = "") -> tuple[HostChange, ...]:
        """Takes a set back, last change first; empty when it is not in force (any more)."""
        ...

    async def revert_overdue(self) -> tuple[HostChange, ...]:
        """Takes back what nobody kept in time, also of processes that are gone."""
        ...

    async def undo(self) -> HostChange | None:
        """Reverts the last change that is still in force, with its set; None when there is none."""
        ...

    async def undo_all(self) -> tuple[HostChange, ...]:
        """Reverts all changes still in force, last first."""
        ...

    async def in_force(self) -> tuple[HostChange, ...]:
        """Changes that the journal holds as made and not reverted, oldest first."""
        ...
