"""What the kernel starts with where no file and no command line says otherwise.

Sources: mm/vmscan.c (vm_swappiness, node_reclaim_mode), mm/page-writeback.c, mm/util.c (sysctl_overcommit_*),
mm/hugetlb.c, mm/khugepaged.c. What depends on the machine or on how the kernel was built is not among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pgtop_tune.host.drop_in import PATH
from pgtop_tune.model.system_setting import SystemSetting

DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "vm.nr_hugepages": "0",
        "vm.swappiness": "60",
        "vm.dirty_background_bytes": "0",
        "vm.dirty_background_ratio": "10",
        "vm.dirty_bytes": "0",
        "vm.dirty_ratio": "20",
        "vm.dirty_expire_centisecs": "3000",
        "vm.dirty_writeback_centisecs": "500",
        "vm.overcommit_memory": "0",
        "vm.overcommit_ratio": "50",
        "vm.overcommit_kbytes": "0",
        "vm.zone_reclaim_mode": "0",
    }
)


def starts_with(setting: SystemSetting) -> str | None:
    """What the machine would start with if our file of sysctl.d were not there; None where that is not known."""
    others = [each.value for each in setting.after_reboot.assignments if each.file != f"/{PATH}"]
    return others[-1] if others else DEFAULTS.get(setting.name)
