"""What the operator says of a server whose machine cannot be seen, as a managed one. Pure."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.units import about
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import HostFacts, HostSample
from pgtop_tune.model.machine import DiskKind, Workload

_SOURCE = "as the operator says"


class Told(Struct, frozen=True):
    """What is said; None where nothing is.

    Attributes:
        memory_bytes, cpus: Of the server's machine; both or neither.
    """

    memory_bytes: int | None = None
    cpus: int | None = None
    disk: DiskKind | None = None
    workload: Workload | None = None

    def words(self, facts: CheckFacts) -> str:
        """What of it counts for these facts, in one line; "" where nothing does."""
        known = self.memory_bytes is None or not isinstance(sections.machine(facts.frames[-1]), Unavailable)
        machine = () if known else (f"{about(self.memory_bytes or 0)} of memory", f"{self.cpus} CPUs")
        disk = () if self.disk is None else (f"the data lie on {self.disk.value}",)
        workload = () if self.workload is None else (f"the load is {self.workload.value}",)
        return ", ".join((*machine, *disk, *workload))

    def of(self, facts: CheckFacts) -> CheckFacts:
        """The facts with it: memory and CPUs only where the machine was not seen."""
        found = replace(facts, disk=self.disk, workload=self.workload)
        if self.memory_bytes is None or self.cpus is None:
            return found
        said = HostFacts(
            hostname="",
            kernel="",
            source=_SOURCE,
            boot_id="",
            cpu_count=self.cpus,
            ticks_per_s=100,
            page_size_bytes=4096,
            memory_bytes=self.memory_bytes,
        )
        return replace(found, frames=tuple(_with(frame, said) for frame in facts.frames))


NOTHING_TOLD = Told()


def _with(frame: Frame, said: HostFacts) -> Frame:
    if isinstance(frame.host, Unavailable):
        return replace(frame, host=HostSample(facts=said))
    if isinstance(frame.host.facts, Unavailable):
        return replace(frame, host=replace(frame.host, facts=said))
    return frame
