"""What was seen of a machine, as advice wants it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from pgtop_tune.advice.facts import Machine
from pgtop_tune.host.block_queue import Disk
from pgtop_tune.host.machine_facts import MachineFacts
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.system_setting import SystemSetting


class MachineLook(Struct, frozen=True):
    """What a `MachineControl` says at one moment.

    Attributes:
        settings: What there is to set.
        facts: Of the machine.
        disks: Under the server's directories.
    """

    settings: tuple[SystemSetting, ...]
    facts: MachineFacts
    disks: tuple[Disk, ...]


def machine_of(look: MachineLook) -> Machine:
    """The machine; what it has committed and its pools are in frames (`gather.facts_of`)."""
    return Machine(
        ram_bytes=look.facts.ram_bytes,
        swap_bytes=look.facts.swap_bytes,
        huge_page_bytes=look.facts.huge_page_bytes,
        numa_nodes=look.facts.numa_nodes,
        live=live_values(look.settings),
        disks=look.disks,
    )


def live_values(settings: Iterable[SystemSetting]) -> dict[str, str]:
    """Values now, by name, of settings that can be read."""
    return {each.name: each.live for each in settings if not isinstance(each.live, Unavailable)}
