"""Selects changes of a journal, and orders the changes of a set. Pure.

The same functions serve changes of the server and of its machine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.changes.model.change import HostChange, ParameterChange, WantedParameter, WantedSetting
from pgtop_tune.changes.model.change_set import Change
from pgtop_tune.changes.model.pending_set import deadline_ms
from pgtop_tune.model.parameter_values import parse
from pgtop_tune.model.postgres import Parameter

C = TypeVar("C", ParameterChange, HostChange, Change)


class Selection(Protocol):
    """A function that selects from the changes in force, oldest first."""

    def __call__(self, in_force: Sequence[C], /) -> Sequence[C]:
        """Return the selected changes, in the same order."""
        ...


def everything(in_force: Sequence[C], /) -> Sequence[C]:
    """Select all changes."""
    return in_force


def last(in_force: Sequence[C], /) -> Sequence[C]:
    """Select the last change, with the set it belongs to."""
    return whole_sets(in_force, in_force[-1:])


def of_set(set_id: str) -> Selection:
    """Return the selection of a set, or of a single change, by its id."""

    def selected(in_force: Sequence[C], /) -> Sequence[C]:
        return [change for change in in_force if set_id in (change.set_id, change.id)]

    return selected


def named(names: Sequence[str]) -> Selection:
    """Return the selection of some parameters or settings, whatever sets they belong to."""

    def selected(in_force: Sequence[C], /) -> Sequence[C]:
        return [change for change in in_force if change.name in names]

    return selected


def since(moment_ms: int) -> Selection:
    """Return the selection of changes made after a moment, milliseconds since the epoch."""

    def selected(in_force: Sequence[C], /) -> Sequence[C]:
        return [change for change in in_force if change.at_ms > moment_ms]

    return selected


def of_sets(set_ids: Collection[str]) -> Selection:
    """Return the selection of some change sets."""

    def selected(in_force: Sequence[C], /) -> Sequence[C]:
        return [change for change in in_force if (change.set_key) in set_ids]

    return selected


def overdue(now_ms: int) -> Selection:
    """Return the selection of pending changes whose deadline has passed."""

    def selected(in_force: Sequence[C], /) -> Sequence[C]:
        return [
            change
            for change in in_force
            if not change.kept and (until_ms := deadline_ms(change)) is not None and until_ms < now_ms
        ]

    return selected


def whole_sets(in_force: Sequence[C], chosen: Sequence[C]) -> Sequence[C]:
    """Return some changes and all that belong to the same sets."""
    ids: Final = {change.id for change in chosen}
    sets: Final = {change.set_id for change in chosen if change.set_id}
    return [change for change in in_force if change.id in ids or change.set_id in sets]


# The order in which the changes of a set are made, so that no moment in between is worse than before and after. Pure.

_ACCOUNTING: Final = "vm.overcommit_memory"
_STRICT: Final = "2"
_LIMITS: Final = frozenset({"vm.overcommit_ratio", "vm.overcommit_kbytes"})


def settings_in_order(requested: Sequence[WantedSetting]) -> tuple[WantedSetting, ...]:
    """Return the changes in the order they are to be made: strict accounting is left first and entered last, and its
    limit is set before huge pages are taken out of what it counts."""
    return tuple(sorted(requested, key=_place))


def around_server(
    requested: Sequence[WantedSetting], live: Mapping[str, str], *, restarts: bool
) -> tuple[tuple[WantedSetting, ...], tuple[WantedSetting, ...]]:
    """Return the changes made before the server's half of a set, and those made after it: strict accounting begins once
    the server has given its old memory back, and a pool of huge pages gets smaller after a half that waits for another
    restart.

    Args:
        requested: Requested settings of the machine.
        live: Values now, by name.
        restarts: Whether the server's half restarts it: with `huge_pages = try` the server would take the pages of a
            pool that gets smaller afterwards.
    """
    ordered = settings_in_order(requested)
    after = [
        request
        for request in ordered
        if _enters_strict(request) or (not restarts and _is_less(request.name, request.value, live.get(request.name)))
    ]
    return tuple(request for request in ordered if request not in after), tuple(after)


def goes_before_server(change: HostChange) -> bool:
    """Return whether a change of the machine is reverted before the server's half: a pool of huge pages gets larger
    again, or strict accounting ends, which may be why the old server would not start."""
    ends_strict = change.name == _ACCOUNTING and change.value == _STRICT != change.value_before
    return ends_strict or _is_less(change.name, change.value, change.value_before)


def goes_before_restart(change: HostChange) -> bool:
    """Return whether a change of the machine is reverted once the server's old values are written, before a start with
    them: what goes before the server's half, and a pool of huge pages that gets smaller again, which
    `huge_pages = try` would take."""
    return goes_before_server(change) or _is_less(change.name, change.value_before, change.value)


def _enters_strict(request: WantedSetting) -> bool:
    return request.name == _ACCOUNTING and request.value.strip() == _STRICT


def _is_less(name: str, value: str, before: str | None) -> bool:
    """Return whether a pool of huge pages gets smaller."""
    is_pool = name == "vm.nr_hugepages" or name.startswith("hugepages-")
    is_known = before is not None and before.isdecimal() and value.isdecimal()
    return is_pool and is_known and int(value) < int(before or 0)


def _place(request: WantedSetting) -> int:
    if request.name == _ACCOUNTING:
        return 3 if _enters_strict(request) else 0
    return 1 if request.name in _LIMITS else 2


WITHIN: Final[tuple[tuple[str, str], ...]] = (
    ("min_wal_size", "max_wal_size"),
    ("autovacuum_max_workers", "autovacuum_worker_slots"),
    ("max_parallel_workers", "max_worker_processes"),
    ("max_parallel_workers_per_gather", "max_parallel_workers"),
    ("max_parallel_maintenance_workers", "max_parallel_workers"),
    ("superuser_reserved_connections", "max_connections"),
    ("reserved_connections", "max_connections"),
    ("io_combine_limit", "io_max_combine_limit"),
    ("autovacuum_work_mem", "maintenance_work_mem"),
    ("work_mem", "shared_buffers"),
)
"""The first is meant to stay within the second: room is made before it is used, and given up after it was left."""


def parameters_in_order(
    requested: Sequence[WantedParameter], current: Mapping[str, Parameter]
) -> tuple[WantedParameter, ...]:
    """Return the changes in the order they are to be made; a parameter without a rule keeps its place.

    Args:
        requested: As asked for.
        current: Parameters of the server, by name.
    """
    names = {request.name.lower(): request for request in requested}
    first: dict[str, set[str]] = {name: set() for name in names}
    for inner, outer in WITHIN:
        if inner in names and outer in names:
            before, after = (outer, inner) if _raised(names[outer], current.get(outer)) else (inner, outer)
            first[after].add(before)
    remaining = list(requested)
    done: list[WantedParameter] = []
    while remaining:
        open_names = {request.name.lower() for request in remaining}
        ready = next((request for request in remaining if not first[request.name.lower()] & open_names), remaining[0])
        remaining.remove(ready)
        done.append(ready)
    return tuple(done)


def _raised(request: WantedParameter, current: Parameter | None) -> bool:
    """Return whether a parameter gets more than it has; true where that is unknown."""
    if current is None:
        return True
    try:
        value = current.boot_val if request.value is None else request.value
        number = parse(value, current.unit, integer=current.vartype == "integer")
        return number >= parse(current.setting, current.unit, integer=current.vartype == "integer")
    except UsageProblem:
        return True
