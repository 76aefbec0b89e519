"""Settings of the operating system as dimensions of a search: which of them, and the values each may take. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pgtop_tune.advice.knobs.knob import Knob
from pgtop_tune.advice.knobs.system import BY_NAME, GROUPS, knob_of
from pgtop_tune.host.system_settings import ALONG
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.machine import SystemSetting
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.tuning.space import Dimension, KnobSpace

MACHINE: Final = "machine"
"""In place of a group: all settings of the operating system."""
_TOLD_BY: Final = frozenset({"throughput", "latency"})
"""Panes of the settings that can reach an objective."""
_POOL: Final = "vm.nr_hugepages"
_NEEDED: Final = "shared_memory_size_in_huge_pages"
PARAMETERS: Final = (_NEEDED, "huge_pages")
"""Of the server, which say whether a pool of huge pages pays."""
_DIRTY: Final = frozenset({"vm.dirty_bytes", "vm.dirty_background_bytes"})
_SHARE: Final = 0.4
"""Of the memory, that dirty pages, or a pool of huge pages, may take."""
_NEVER: Final[Mapping[str, str]] = {
    "vm.overcommit_memory": "it decides whether programs can start, and is no matter of speed",
    "vm.overcommit_ratio": "it decides whether programs can start, and is no matter of speed",
    "vm.overcommit_kbytes": "it decides whether programs can start, and is no matter of speed",
    "vm.min_free_kbytes": "too much of it makes the kernel kill programs",
    "hugepages/nr_hugepages": "such pages are hardly to be had but at boot",
}


MACHINE_KNOBS: Final = tuple(name for name in BY_NAME if name not in _NEVER)
MACHINE_GROUPS: Final = (MACHINE, *(group for group in GROUPS if group != "memory"))
"""Groups of --group; "memory" are parameters of the server."""


def is_machine_group(name: str) -> bool:
    """Whether --group NAME means settings of the machine."""
    return name in MACHINE_GROUPS


def is_machine_knob(name: str) -> bool:
    """Whether --knobs NAME means a setting of the machine: "vm.swappiness", "vda/scheduler", "scheduler"."""
    knob = knob_of(name)
    return knob is not None and (name == knob.name or "/" in name)


def machine_space(
    names: Sequence[str],
    groups: Sequence[str],
    found: Sequence[SystemSetting] | Unavailable,
    parameters: Mapping[str, Parameter],
    ram_bytes: float | None,
    *,
    own_load: bool,
    allow_restart: bool,
) -> KnobSpace:
    """Their dimensions on a machine.

    Args:
        names, groups: As typed; those of the server are left alone.
        found: All settings of the machine; why there is no way to them.
        parameters: Of the server, by name: `PARAMETERS`.
        ram_bytes: That the server may use; None where it is not known.
        own_load: The load is ours, and blocks can have one each.
    """
    names = [name for name in names if is_machine_knob(name)]
    groups = [group for group in groups if is_machine_group(group)]
    if isinstance(found, Unavailable):
        return KnobSpace((), tuple((words, found.detail) for words in (*names, *groups)))
    dimensions: list[Dimension] = []
    left_out: list[tuple[str, str]] = []
    settings = {each.name: each for each in found}
    wanted = {
        each.name: knob
        for each in found
        if (knob := knob_of(each.name)) is not None
        and (each.name in names or knob.name in names or _of_groups(knob, groups))
    }
    for each in found:
        knob = wanted.get(each.name)
        if knob is None:
            continue
        pair = next((other for other in ALONG.get(each.name, ()) if each.name in ALONG.get(other, ())), "")
        why = _why_not(each, knob, own_load=own_load)
        if not why and each.live == "0" and pair in settings and (pair in wanted or each.name not in names):
            why = f"{pair} is in force instead"
        levels, start = ((), 0) if why else _levels(each, knob, ram_bytes)
        if each.name == _POOL and not why:
            why, levels = _pool(each, parameters, ram_bytes, allow_restart=allow_restart)
        if why or len(levels) < 2:
            left_out.append((each.name, why or "it has one value"))
            continue
        dimensions.append(
            Dimension(
                name=each.name,
                levels=levels,
                start=start,
                ordered=not each.choices,
                restart=each.name == _POOL,
                machine=True,
                group=knob.group,
            )
        )
    known = {*settings, *(knob.name for each in found if (knob := knob_of(each.name)) is not None)}
    left_out += [(name, "this machine does not have it") for name in names if name not in known]
    return KnobSpace(tuple(dimensions), tuple(left_out))


def _of_groups(knob: Knob, groups: Sequence[str]) -> bool:
    if knob.name in _NEVER or _TOLD_BY.isdisjoint(knob.panes):
        return False
    return MACHINE in groups or knob.group in groups


def _why_not(found: SystemSetting, knob: Knob, *, own_load: bool) -> str:
    if knob.name in _NEVER:
        return _NEVER[knob.name]
    if isinstance(found.live, Unavailable):
        return found.live.detail
    if not found.writable:
        return f"{found.path} cannot be written by this process: run this as root on the machine itself"
    if not own_load:
        return "its blocks need a load of their own, and another program drives the load"
    return ""


def _levels(found: SystemSetting, knob: Knob, ram_bytes: float | None) -> tuple[tuple[str, ...], int]:
    """Values as the kernel takes them, and the index of the one in force."""
    live = str(found.live)
    if found.choices:
        words = [word for word in knob.steps if word in found.choices] or list(found.choices)
        words = list(dict.fromkeys((*words, live)))
        return (*words,), words.index(live)
    most = _SHARE * ram_bytes if ram_bytes is not None and found.name in _DIRTY else None
    steps = {int(step) for step in knob.steps if most is None or int(step) <= most}
    if any(value == "0" for value, _ in knob.special):
        # 0 is no small amount there, it is another way.
        steps.discard(0)
    if not live.removeprefix("-").isdecimal():
        return (live,), 0
    numbers = sorted({*steps, int(live)})
    return tuple(str(number) for number in numbers), numbers.index(int(live))


def _pool(
    found: SystemSetting, parameters: Mapping[str, Parameter], ram_bytes: float | None, *, allow_restart: bool
) -> tuple[str, tuple[str, ...]]:
    """Why a pool for the shared memory is not tried, "" where it is; without and with it."""
    needed, huge_pages = parameters.get(_NEEDED), parameters.get("huge_pages")
    if not allow_restart:
        return "the server takes huge pages when it starts: --allow-restart", ()
    pages = int(needed.setting) if needed is not None and needed.setting.isdecimal() else 0
    if pages < 1:
        return "the server does not say how many it needs", ()
    if huge_pages is None or huge_pages.setting == "off":
        return "the server has huge_pages=off", ()
    live = int(str(found.live))
    if live >= pages:
        return f"the pool has {live} pages, and the server needs {pages}", ()
    if ram_bytes is None or (live + pages) * 2.0 * 2**20 > _SHARE * ram_bytes:
        return f"{pages} pages are too much of the memory", ()
    return "", (str(live), str(live + pages))
