"""In which order settings of the machine are changed, among themselves and beside parameters of the server. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pgtop_tune.model.system_setting import WantedSetting
from pgtop_tune.tuning.knobs.system import POOL, row_of

_STRICT: Final = "2"
_POOLS: Final = frozenset({"vm.nr_hugepages", POOL})
_LIMITS: Final = frozenset({"vm.overcommit_ratio", "vm.overcommit_kbytes"})


def settings_in_order(wanted: Sequence[WantedSetting]) -> tuple[WantedSetting, ...]:
    """The changes in the order they are to be made: strict accounting is left first and entered last, and its limit is
    set before huge pages are taken out of what it counts."""
    return tuple(sorted(wanted, key=_place))


def gives_memory_up(wanted: Sequence[WantedSetting], live: Mapping[str, str]) -> bool:
    """Whether a pool of huge pages gets smaller: then the server's half of the set comes first.

    Args:
        wanted: The machine's half.
        live: Values now, by name.
    """
    return any(
        row_of(each.name) in _POOLS
        and each.value.isdecimal()
        and live.get(each.name, "").isdecimal()
        and int(each.value) < int(live[each.name])
        for each in wanted
    )


def _place(each: WantedSetting) -> int:
    if each.name == "vm.overcommit_memory":
        return 3 if each.value.strip() == _STRICT else 0
    return 1 if each.name in _LIMITS else 2
