"""All checks, in the order of the reference, and choosing among them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Final

from pgtop_tune.errors import UsageProblem
from pgtop_tune.health.check import Check, Limits
from pgtop_tune.health.checks import (
    archiving,
    buffers,
    checkpoints,
    configuration,
    connections,
    cpu,
    disks,
    durability,
    huge_pages,
    hygiene,
    indexes,
    kernel,
    keys,
    memory,
    observing,
    planner,
    processes,
    replication,
    security,
    slots,
    tables,
    transactions,
    vacuum,
)

CHECKS: Final[tuple[Check, ...]] = (
    *memory.CHECKS,
    *huge_pages.CHECKS,
    *kernel.CHECKS,
    *processes.CHECKS,
    *cpu.CHECKS,
    *disks.CHECKS,
    *durability.CHECKS,
    *archiving.CHECKS,
    *checkpoints.CHECKS,
    *slots.CHECKS,
    *buffers.CHECKS,
    *connections.CHECKS,
    *transactions.CHECKS,
    *vacuum.CHECKS,
    *tables.CHECKS,
    *planner.CHECKS,
    *indexes.CHECKS,
    *keys.CHECKS,
    *replication.CHECKS,
    *observing.CHECKS,
    *security.CHECKS,
    *configuration.CHECKS,
    *hygiene.CHECKS,
)
"""Every row; ids are unique."""


def chosen(select: Sequence[str], ignore: Sequence[str]) -> tuple[Check, ...]:
    """The checks a user means, in the order of the registry.

    Args:
        select: Ids ("MEM-01"), beginnings of ids ("MEM") or groups ("memory"); empty is all.
        ignore: The same, taken away.

    Raises:
        UsageProblem: A word means no check, or none is left.
    """
    wanted = {check.id for word in select for check in _meant(word)} if select else {check.id for check in CHECKS}
    unwanted = {check.id for word in ignore for check in _meant(word)}
    found = tuple(check for check in CHECKS if check.id in wanted - unwanted)
    if not found:
        raise UsageProblem("no check is left", "select more, or ignore less")
    return found


def thresholds(assignments: Sequence[str]) -> Mapping[str, Limits]:
    """Values given for thresholds, by check id.

    Args:
        assignments: "MEM-01=95" for a check's first threshold, "MEM-01.high=120" for another.

    Raises:
        UsageProblem: There is no such check or threshold, or the value is no number.
    """
    found: dict[str, dict[str, float]] = {}
    for assignment in assignments:
        place, equals, word = assignment.partition("=")
        id_, _, name = place.strip().partition(".")
        check = _by_id(id_)
        names = [threshold.name for threshold in check.thresholds]
        if not names:
            raise UsageProblem(f"{check.id} has no thresholds")
        if name and name not in names:
            raise UsageProblem(f"{check.id} has no threshold {name!r}", f"it has {', '.join(names)}")
        try:
            value = float(word)
        except ValueError:
            value = float("nan")
        if not equals or value != value:
            raise UsageProblem(f"--threshold {assignment}: a number is missing", f"as {check.id}.{names[0]}=80")
        found.setdefault(check.id, {})[name or names[0]] = value
    return found


def _meant(word: str) -> list[Check]:
    lower = word.strip().lower()
    found = [
        check
        for check in CHECKS
        if lower in (check.id.lower(), check.id.partition("-")[0].lower(), check.group.lower())
    ]
    if not found:
        raise _no_check(word)
    return found


def _by_id(word: str) -> Check:
    found = next((check for check in CHECKS if check.id.lower() == word.strip().lower()), None)
    if found is None:
        raise _no_check(word)
    return found


def _no_check(word: str) -> UsageProblem:
    known = [each for check in CHECKS for each in (check.id, check.group)]
    near = difflib.get_close_matches(word.upper(), known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}? " if near else ""
    return UsageProblem(f"there is no check {word!r}", f"{hint}docs/reference/checks.md has them all")
