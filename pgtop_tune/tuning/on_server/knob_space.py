"""The knobs of a server and its machine as dimensions of a search: which of them, and the values that each may take;
and the values that a search never tries: more memory than the machine has, WAL that its disk or a recovery cannot take.
Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from msgspec import Struct

from pgtop_tune.advice.knobs.catalogue import BY_NAME, GROUPS, KNOBS
from pgtop_tune.advice.knobs.knob import Knob
from pgtop_tune.advice.knobs.system import BY_NAME as SETTINGS
from pgtop_tune.advice.knobs.system import GROUPS as SETTING_GROUPS
from pgtop_tune.advice.knobs.system import knob_of
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.units import MB, about, duration
from pgtop_tune.changes.start.next_start import ValuesAfter
from pgtop_tune.host.system_settings import ALONG
from pgtop_tune.metrics.memory_rule import MemoryUse, terms
from pgtop_tune.metrics.setting_risks import RISKS
from pgtop_tune.metrics.value_risks import RiskClass
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.machine import SystemSetting
from pgtop_tune.model.parameter_values import parse, show
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.tuning.plan import Dimension, KnobSpace, log_grid

# Settings of the operating system as dimensions of a search: which of them, and the values each may take. Pure.

MACHINE: Final = "machine"
"""The word for all settings of the operating system, in place of a group."""
_SETTINGS_TOLD_BY: Final = frozenset({"throughput", "latency"})
"""Panes of the settings that can reach an objective."""
_POOL: Final = "vm.nr_hugepages"
_NEEDED: Final = "shared_memory_size_in_huge_pages"
PARAMETERS: Final = (_NEEDED, "huge_pages")
"""Parameters of the server that tell whether a pool of huge pages pays."""
_DIRTY: Final = frozenset({"vm.dirty_bytes", "vm.dirty_background_bytes"})
_SHARE: Final = 0.4
"""The share of the memory that dirty pages, or a pool of huge pages, may take."""
_NEVER: Final[Mapping[str, str]] = {
    "vm.overcommit_memory": "it decides whether programs can start and does not affect speed",
    "vm.overcommit_ratio": "it decides whether programs can start and does not affect speed",
    "vm.overcommit_kbytes": "it decides whether programs can start and does not affect speed",
    "vm.min_free_kbytes": "too much of it makes the kernel kill programs",
    "hugepages/nr_hugepages": "such pages are hardly ever available except at boot",
}


MACHINE_KNOBS: Final = tuple(name for name in SETTINGS if name not in _NEVER)
MACHINE_GROUPS: Final = (MACHINE, *(group for group in SETTING_GROUPS if group != "memory"))
"""Groups of --group; "memory" are parameters of the server."""


def is_machine_group(name: str) -> bool:
    """Return whether --group NAME means settings of the machine."""
    return name in MACHINE_GROUPS


def is_machine_knob(name: str) -> bool:
    """Return whether --knobs NAME means a setting of the machine: "vm.swappiness", "vda/scheduler", "scheduler"."""
    knob = knob_of(name)
    return knob is not None and (name == knob.name or "/" in name)


def machine_space(
    names: Sequence[str],
    groups: Sequence[str],
    machine_settings: Sequence[SystemSetting] | Unavailable,
    parameters: Mapping[str, Parameter],
    ram_bytes: float | None,
    *,
    own_load: bool,
    allow_restart: bool,
) -> KnobSpace:
    """Return the dimensions of settings of a machine.

    Args:
        names, groups: Names and groups as typed; those of the server are left alone.
        machine_settings: All settings of the machine; why there is no way to them.
        parameters: The parameters of the server that `PARAMETERS` names.
        ram_bytes: The memory that the server may use; None where it is not known.
        own_load: The load is ours, and blocks can have one each.
    """
    names = [name for name in names if is_machine_knob(name)]
    groups = [group for group in groups if is_machine_group(group)]
    if isinstance(machine_settings, Unavailable):
        return KnobSpace((), tuple((name, machine_settings.detail) for name in (*names, *groups)))
    dimensions: list[Dimension] = []
    left_out: list[tuple[str, str]] = []
    settings = {setting.name: setting for setting in machine_settings}
    wanted_settings = {
        setting.name: knob
        for setting in machine_settings
        if (knob := knob_of(setting.name)) is not None
        and (setting.name in names or knob.name in names or _of_groups(knob, groups))
    }
    for setting in machine_settings:
        knob = wanted_settings.get(setting.name)
        if knob is None:
            continue
        pair = next((partner for partner in ALONG.get(setting.name, ()) if setting.name in ALONG.get(partner, ())), "")
        reason = _why_not_set(setting, knob, own_load=own_load)
        if (
            not reason
            and setting.live == "0"
            and pair in settings
            and (pair in wanted_settings or setting.name not in names)
        ):
            reason = f"{pair} is in force instead"
        levels, start = ((), 0) if reason else _settings_levels(setting, knob, ram_bytes)
        if setting.name == _POOL and not reason:
            reason, levels = _pool(setting, parameters, ram_bytes, allow_restart=allow_restart)
        if reason or len(levels) < 2:
            left_out.append((setting.name, reason or "it has one value"))
            continue
        dimensions.append(
            Dimension(
                name=setting.name,
                levels=levels,
                start=start,
                ordered=not setting.choices,
                restart=setting.name == _POOL,
                machine=True,
                group=knob.group,
            )
        )
    known_names = {
        *settings,
        *(knob.name for setting in machine_settings if (knob := knob_of(setting.name)) is not None),
    }
    left_out += [(name, "this machine does not have it") for name in names if name not in known_names]
    return KnobSpace(tuple(dimensions), tuple(left_out))


def _of_groups(knob: Knob, groups: Sequence[str]) -> bool:
    if knob.name in _NEVER or _SETTINGS_TOLD_BY.isdisjoint(knob.panes):
        return False
    return MACHINE in groups or knob.group in groups


def _why_not_set(setting: SystemSetting, knob: Knob, *, own_load: bool) -> str:
    if knob.name in _NEVER:
        return _NEVER[knob.name]
    if isinstance(setting.live, Unavailable):
        return setting.live.detail
    if not setting.writable:
        return f"{setting.path} cannot be written by this process: run this as root on the machine itself"
    if not own_load:
        return "each block needs its own load, but another program drives the load"
    return ""


def _settings_levels(setting: SystemSetting, knob: Knob, ram_bytes: float | None) -> tuple[tuple[str, ...], int]:
    """Return values as the kernel takes them, and the index of the one in force."""
    live = str(setting.live)
    if setting.choices:
        choices = [word for word in knob.steps if word in setting.choices] or list(setting.choices)
        choices = list(dict.fromkeys((*choices, live)))
        return (*choices,), choices.index(live)
    most = _SHARE * ram_bytes if ram_bytes is not None and setting.name in _DIRTY else None
    steps = {int(step) for step in knob.steps if most is None or int(step) <= most}
    if any(value == "0" for value, _ in knob.special):
        # 0 is no small amount there, it is another way.
        steps.discard(0)
    if not live.removeprefix("-").isdecimal():
        return (live,), 0
    numbers = sorted({*steps, int(live)})
    return tuple(str(number) for number in numbers), numbers.index(int(live))


def _pool(
    setting: SystemSetting, parameters: Mapping[str, Parameter], ram_bytes: float | None, *, allow_restart: bool
) -> tuple[str, tuple[str, ...]]:
    """Return why a pool for the shared memory is not tried, "" where it is; and its sizes without and with it."""
    needed, huge_pages = parameters.get(_NEEDED), parameters.get("huge_pages")
    if not allow_restart:
        return "the server allocates huge pages at start: pass --allow-restart", ()
    pages = int(needed.setting) if needed is not None and needed.setting.isdecimal() else 0
    if pages < 1:
        return "the server does not report how many huge pages it needs", ()
    if huge_pages is None or huge_pages.setting == "off":
        return "the server has huge_pages=off", ()
    live = int(str(setting.live))
    if live >= pages:
        return f"the pool already has {live} pages, the server needs {pages}", ()
    if ram_bytes is None or (live + pages) * 2.0 * 2**20 > _SHARE * ram_bytes:
        return f"{pages} pages take too much of the memory", ()
    return "", (str(live), str(live + pages))


_RELOADED: Final = frozenset({"user", "superuser", "sighup"})
_RESTART: Final = "postmaster"
"""Values of pg_settings.context."""
_GROUPS: Final = ("checkpoints", "wal", "commit", "background writer", "memory", "planner", "parallel", "I/O")
"""Without --knobs and --group: the knobs of these whose effect shows within minutes."""
_TOLD_BY: Final = frozenset({"throughput", "latency", "budget"})
"""Panes of the knobs that can reach an objective."""
_EACH_WAY: Final = 6


def wanted_knobs(names: Sequence[str], groups: Sequence[str]) -> tuple[Knob, ...]:
    """Return knobs of the server by name, or of groups; without either all whose effect shows within minutes.

    Names and groups of the machine are left to `machine_space`.

    Raises:
        UsageProblem: A name or a group that is none.
    """
    for group in groups:
        if group not in GROUPS and not is_machine_group(group):
            raise UsageProblem(f"no group of knobs is called {group!r}", _nearest(group, (*GROUPS, *MACHINE_GROUPS)))
    knobs = []
    for name in names:
        if is_machine_knob(name):
            continue
        knob = BY_NAME.get(name.lower())
        if knob is None:
            raise UsageProblem(f"{name} is not a searchable knob", _nearest(name, (*BY_NAME, *MACHINE_KNOBS)))
        knobs.append(knob)
    if names or groups:
        return tuple(dict.fromkeys((*knobs, *(knob for knob in KNOBS if knob.group in groups))))
    return tuple(knob for knob in KNOBS if knob.group in _GROUPS and not _TOLD_BY.isdisjoint(knob.panes))


def knob_space(
    knobs: Iterable[Knob],
    parameters: Mapping[str, Parameter],
    *,
    allow_restart: bool,
    by_name: bool,
) -> KnobSpace:
    """Return the dimensions of knobs on a server.

    Args:
        parameters: The parameters of the server, by name.
        by_name: Each of the knobs was named: what cannot be searched is said also where the server does not have it.
    """
    dimensions, left_out = [], []
    for knob in knobs:
        parameter = parameters.get(knob.name)
        if parameter is None:
            left_out += [(knob.name, "this server does not have it")] if by_name else []
            continue
        if reason := _why_not(knob, parameter, allow_restart=allow_restart):
            left_out.append((knob.name, reason))
            continue
        levels, start, ordered = _levels(knob, parameter)
        if len(levels) < 2:
            left_out.append((knob.name, "it has one value"))
            continue
        dimensions.append(
            Dimension(
                name=knob.name,
                levels=levels,
                start=start,
                ordered=ordered,
                restart=parameter.context == _RESTART,
                group=knob.group,
            )
        )
    return KnobSpace(tuple(dimensions), tuple(left_out))


def _why_not(knob: Knob, parameter: Parameter, *, allow_restart: bool) -> str:
    risks = RISKS.get(knob.name, ())
    if any(risk.loses_data or risk.kind is RiskClass.RUNS_CODE for risk in risks):
        return "it trades durability or runs code, so no search turns it: `pgtop-tune ab` judges its values"
    if parameter.context == _RESTART:
        return "" if allow_restart else "it takes a restart: pass --allow-restart"
    if parameter.context not in _RELOADED:
        return "it affects new sessions only"
    if parameter.source in ("command line", "override"):
        return f"its value comes from the {parameter.source}"
    return ""


def _levels(knob: Knob, parameter: Parameter) -> tuple[tuple[str, ...], int, bool]:
    """Return values as typed, the index of the one in force, and whether neighbours act alike."""
    if parameter.vartype in ("integer", "real"):
        texts, start = _numbers(knob, parameter)
        return (*texts,), start, True
    offered = ("off", "on") if parameter.vartype == "bool" else parameter.enumvals
    choices = [word for word in knob.steps if word in offered] or list(offered)
    if "pglz" in choices and "on" in choices and parameter.setting != "on":
        # The same value under another name.
        choices.remove("on")
    if parameter.setting not in choices:
        choices.insert(0, parameter.setting)
    return (*choices,), choices.index(parameter.setting), parameter.vartype == "bool"


def _numbers(knob: Knob, parameter: Parameter) -> tuple[list[str], int]:
    integer = parameter.vartype == "integer"
    now = parse(parameter.setting, parameter.unit, integer=integer)
    low = float(parameter.min_val) if parameter.min_val else -math.inf
    high = float(parameter.max_val) if parameter.max_val else math.inf
    if knob.steps:
        steps = {parse(step, parameter.unit, integer=integer) for step in knob.steps}
        numbers = sorted({now, *(step for step in steps if low <= step <= high)})
        if 0.0 in numbers and now != 0.0 and any(value == "0" for value, _ in knob.special):
            # 0 is no small amount there, it is another way: a search would take it for the step below the smallest.
            numbers.remove(0.0)
        numbers = [number for number in numbers if number >= 0.0 or number == now]
    elif now > 0.0:
        numbers, _ = log_grid(now, max(low, now / 2**_EACH_WAY), min(high, now * 2**_EACH_WAY), integer=integer)
    else:
        first = parse(knob.from_zero, parameter.unit, integer=integer) if knob.from_zero else 1.0
        doubled = (first * 2.0**step for step in range(_EACH_WAY))
        numbers = [now, *(number for number in doubled if low <= number <= high and number > now)]
    texts = [show(number, parameter.unit, integer=integer) for number in numbers]
    start = numbers.index(now)
    kept = dict.fromkeys(texts)
    return list(kept), list(kept).index(texts[start])


def _nearest(word: str, known_words: Iterable[str]) -> str:
    names = list(known_words)
    near = get_close_matches(word.lower(), names, 1)
    return f"did you mean {near[0]}?" if near else f"one of {', '.join(names[:12])}"


# The memory rule for a server with other values. Pure.

_BESIDE_BUFFERS: Final = 1.03
"""Shared memory by shared_buffers: descriptors and the mapping belong to them."""


def memory_after(major: int, now: ValuesAfter, then: ValuesAfter, clients: int, ram_bytes: float) -> MemoryUse:
    """Return the memory that the server takes with the values of `then`; shared memory grows with the buffers.

    Args:
        now: Nothing changed.
        clients: Sessions that may sort at once.
    """
    buffers = then.number("shared_buffers") or 0.0
    shared = now.number("shared_memory_size")
    if shared is not None:
        shared += (buffers - (now.number("shared_buffers") or 0.0)) * _BESIDE_BUFFERS
    maintenance = then.number("autovacuum_work_mem")
    if maintenance is None or maintenance < 0:
        maintenance = then.number("maintenance_work_mem")
    return MemoryUse(
        major=major,
        ram_bytes=ram_bytes,
        max_connections=clients,
        shared_buffers_bytes=buffers,
        shared_memory_bytes=shared,
        work_mem_bytes=then.number("work_mem") or 0.0,
        temp_buffers_bytes=then.number("temp_buffers") or 0.0,
        parallel_workers=int(then.number("max_parallel_workers") or 0),
        autovacuum_max_workers=int(then.number("autovacuum_max_workers") or 0),
        maintenance_work_mem_bytes=maintenance,
        hash_mem_multiplier=then.number("hash_mem_multiplier"),
    )


_MEMORY_SHARE: Final = 0.9
_WAL_SHARE: Final = 0.6
"""The share of pg_wal's disk that max_wal_size may take."""
REPLAY_BYTES_PER_S: Final = 100 * MB
"""The least that one startup process replays in a second, on disks that carry a load."""
RECOVERY_S: Final = 600.0
GUARDED: Final = (
    "max_connections", "max_wal_size", "shared_buffers", "shared_memory_size", "work_mem", "hash_mem_multiplier",
    "temp_buffers", "max_parallel_workers", "autovacuum_max_workers", "autovacuum_work_mem", "maintenance_work_mem",
)  # fmt: skip
"""Parameters that the limits are computed from."""


class Guards(Struct, frozen=True, kw_only=True):
    """Limits of a server and its machine, as they were when a search began.

    Attributes:
        major: The server's major version.
        parameters: The parameters of `GUARDED` and of the search as they were, by name.
        ram_bytes: That the server may use; None where it is not known: no value that takes memory may rise.
        wal_room_bytes: Free on the disk of pg_wal and taken by pg_wal; None where it is not known.
        recovery_s: The longest time of a recovery.
    """

    major: int
    parameters: dict[str, Parameter]
    ram_bytes: float | None
    wal_room_bytes: float | None
    recovery_s: float = RECOVERY_S

    def allowed(self, values: Mapping[str, str]) -> bool:
        """Return whether these values may be tried together."""
        return not self.why_not(values)

    def why_not(self, values: Mapping[str, str]) -> str:
        """Return why these values may not be tried, with the arithmetic; "" where they may be."""
        now, then = ValuesAfter(self.parameters, {}), ValuesAfter(self.parameters, dict(values))
        return self._memory(now, then) or self._wal(now, then)

    def _memory(self, now: ValuesAfter, then: ValuesAfter) -> str:
        needed, before = self._asked_bytes(then), self._asked_bytes(now)
        if needed <= before:
            return ""
        if self.ram_bytes is None:
            return "the memory of the machine is unknown"
        if needed > _MEMORY_SHARE * self.ram_bytes:
            return f"sessions and server may ask for {about(needed)} of {about(self.ram_bytes)} of memory"
        return ""

    def _asked_bytes(self, values: ValuesAfter) -> float:
        clients = int(values.number("max_connections") or 0)
        use = memory_after(self.major, ValuesAfter(self.parameters, {}), values, clients, self.ram_bytes or 0.0)
        return sum(term.size_bytes for term in terms(use))

    def _wal(self, now: ValuesAfter, then: ValuesAfter) -> str:
        max_wal_bytes, before = then.number("max_wal_size") or 0.0, now.number("max_wal_size") or 0.0
        if max_wal_bytes <= before:
            return ""
        if self.wal_room_bytes is not None and max_wal_bytes > _WAL_SHARE * self.wal_room_bytes:
            return (
                f"max_wal_size {about(max_wal_bytes)}, but the disk of pg_wal has room for {about(self.wal_room_bytes)}"
            )
        if max_wal_bytes > self.recovery_s * REPLAY_BYTES_PER_S:
            return f"a recovery could take {duration(max_wal_bytes / REPLAY_BYTES_PER_S)}"
        return ""
