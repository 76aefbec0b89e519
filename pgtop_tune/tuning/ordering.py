"""In which order the changes of a set are made, so that no moment in between is worse than before and after. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pgtop_tune.errors import UsageProblem
from pgtop_tune.model.change import Wanted
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.tuning.stepping import parse

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


def in_order(wanted: Sequence[Wanted], current: Mapping[str, Parameter]) -> tuple[Wanted, ...]:
    """The changes in the order they are to be made; what no rule is about keeps its place among the others.

    Args:
        wanted: As asked for.
        current: Parameters of the server, by name.
    """
    names = {each.name.lower(): each for each in wanted}
    first: dict[str, set[str]] = {name: set() for name in names}
    for inner, outer in WITHIN:
        if inner in names and outer in names:
            before, after = (outer, inner) if _raised(names[outer], current.get(outer)) else (inner, outer)
            first[after].add(before)
    left = list(wanted)
    done: list[Wanted] = []
    while left:
        open_names = {each.name.lower() for each in left}
        ready = next((each for each in left if not first[each.name.lower()] & open_names), left[0])
        left.remove(ready)
        done.append(ready)
    return tuple(done)


def _raised(wanted: Wanted, current: Parameter | None) -> bool:
    """Whether a parameter gets more than it has; so where that cannot be said."""
    if current is None:
        return True
    try:
        value = current.boot_val if wanted.value is None else wanted.value
        number = parse(value, current.unit, integer=current.vartype == "integer")
        return number >= parse(current.setting, current.unit, integer=current.vartype == "integer")
    except UsageProblem:
        return True
