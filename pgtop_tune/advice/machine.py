"""Settings of a machine with what is advised for each. Pure."""

from __future__ import annotations

from msgspec import Struct

from pgtop_tune.advice.facts import Advice, Facts
from pgtop_tune.advice.rules.system import advise_system, system_facts
from pgtop_tune.host.block_queue import Disk
from pgtop_tune.host.machine_facts import MachineFacts
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


def advise_machine(look: MachineLook, server: Facts) -> dict[str, Advice]:
    """Advice by name of the setting, where there is any.

    Args:
        look: At the machine.
        server: Facts about the server on it.
    """
    facts = system_facts(server, look.facts, look.settings, look.disks)
    found = ((each.name, advise_system(each.name, facts)) for each in look.settings)
    return {name: advice for name, advice in found if advice is not None}
