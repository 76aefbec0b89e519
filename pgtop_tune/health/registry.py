"""All checks, in the order of the reference, and choosing among them."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Final

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.health.check import Check, Limits, Threshold
from pgtop_tune.health.checks import (
    access,
    archiving,
    buffers,
    checkpoints,
    configuration,
    connections,
    disks,
    durability,
    huge_pages,
    hygiene,
    indexes,
    kernel,
    memory,
    observability,
    planner,
    processes,
    replication,
    schema,
    security,
    server_values,
    slots,
    vacuum,
)

_MODULES: Final = (
    memory, huge_pages, kernel, processes, disks, durability, archiving, checkpoints, slots, buffers, connections,
    vacuum, planner, indexes, replication, observability, security, configuration, hygiene, server_values, schema,
    access,
)  # fmt: skip
CHECKS: Final[tuple[Check, ...]] = tuple(check for module in _MODULES for check in module.CHECKS)
"""Every row; ids are unique."""


_NUMBER: Final = re.compile(r"\s*([-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*([A-Za-z%]*)\s*\Z")
_UNITS: Final[Mapping[str, Mapping[str, float]]] = {
    "bytes": {"B": 1.0, "kB": 1024.0, "MB": 1024.0**2, "GB": 1024.0**3, "TB": 1024.0**4},
    "s": {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0},
    "%": {"%": 1.0},
}
"""Units of a threshold → those it may be given in, as in postgresql.conf."""


def chosen(select: Sequence[str], ignore: Sequence[str]) -> tuple[Check, ...]:
    """Return the checks a user means, in the order of the registry.

    Args:
        select: Ids ("MEM-01"), beginnings of ids ("MEM") or groups ("memory"), also several in one, separated by
            commas; empty is all.
        ignore: The same, taken away.

    Raises:
        UsageProblem: A word means no check, or none is left.
    """
    if select and not _listed(select):
        raise UsageProblem("no check is selected", "--select MEM-01 selects one check, MEM or memory several")
    selected = {check.id for word in _listed(select) for check in _named_checks(word)} or {check.id for check in CHECKS}
    unwanted = {check.id for word in _listed(ignore) for check in _named_checks(word)}
    checks = tuple(check for check in CHECKS if check.id in selected - unwanted)
    if not checks:
        raise UsageProblem("no check is left", "select more, or ignore fewer")
    return checks


def thresholds(assignments: Sequence[str]) -> Mapping[str, Limits]:
    """Return values given for thresholds, by check id.

    Args:
        assignments: "MEM-01=95" for a check's first threshold, "MEM-01.high=120" for another; "SLOT-01=2GB" and
            "TXN-02=10min" with the server's units. Also several in one, separated by commas.

    Raises:
        UsageProblem: There is no such check or threshold, or the value is no number.
    """
    values: dict[str, dict[str, float]] = {}
    for assignment in _listed(assignments):
        name_path, equals, word = assignment.partition("=")
        id_, _, name = name_path.strip().partition(".")
        check = by_id(id_)
        names = [threshold.name for threshold in check.thresholds]
        if not names:
            raise UsageProblem(f"{check.id} has no thresholds")
        if name and name not in names:
            raise UsageProblem(f"{check.id} has no threshold {name!r}", f"it has {', '.join(names)}")
        threshold = check.thresholds[names.index(name) if name else 0]
        value = _number(word, threshold.unit) if equals else None
        if value is None:
            raise UsageProblem(
                f"--threshold {assignment}: {_expected_value(threshold.unit)} is missing",
                f"as {check.id}.{threshold.name}={limit_words(threshold)}",
            )
        values.setdefault(check.id, {})[threshold.name] = value
    return values


def _listed(texts: Sequence[str]) -> list[str]:
    return [part.strip() for word in texts for part in word.split(",") if part.strip()]


def _number(word: str, unit: str) -> float | None:
    """Return a value in a threshold's own unit; None for text that is no number, or whose unit does not fit."""
    written = _NUMBER.match(word)
    if written is None:
        return None
    factor = {"": 1.0, **_UNITS.get(unit.partition("/")[0], {})}.get(written[2])
    return None if factor is None else float(written[1]) * factor


def catalogue(checks: Sequence[Check]) -> list[str]:
    """Return a line for each check: id, worst severity, title and group, then its thresholds as they are given."""
    width = max((len(f"{check.title} ({check.group})") for check in checks), default=0)
    return [
        f"{check.id:<9} {check.severity.value:<8} {f'{check.title} ({check.group})':<{width}}  "
        + ", ".join(f"{threshold.name}={limit_words(threshold)}" for threshold in check.thresholds)
        for check in checks
    ]


def limit_words(threshold: Threshold, value: float | None = None) -> str:
    """Return a value, or the default, in the largest unit in which it is whole, as it may be typed."""
    number = threshold.default if value is None else value
    factors = _UNITS.get(threshold.unit.partition("/")[0], {})
    fitting = [(factor, unit) for unit, factor in factors.items() if _is_whole(number / factor)]
    base = next(((factor, unit) for unit, factor in factors.items() if factor == 1.0), (1.0, ""))
    factor, unit = max(fitting, default=base)
    return f"{number / factor:g}{unit}"


def _is_whole(value: float) -> bool:
    return value >= 1 and math.isclose(value, round(value))


def _expected_value(unit: str) -> str:
    factors = _UNITS.get(unit.partition("/")[0])
    return "a number" if factors is None else f"a number, or one with {', '.join(factors)}"


def _named_checks(word: str) -> list[Check]:
    lower = word.strip().lower()
    meant = [
        check
        for check in CHECKS
        if lower in (check.id.lower(), check.id.partition("-")[0].lower(), check.group.lower())
    ]
    if not meant:
        raise _no_check(word)
    return meant


def by_id(word: str) -> Check:
    """Return the check of an id, in any case.

    Raises:
        UsageProblem: There is none; with the nearest.
    """
    for check in CHECKS:
        if check.id.lower() == word.strip().lower():
            return check
    raise _no_check(word)


def _no_check(word: str) -> UsageProblem:
    candidates = [candidate for check in CHECKS for candidate in (check.id, check.group)]
    near = difflib.get_close_matches(word.upper(), candidates, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}? " if near else ""
    return UsageProblem(f"there is no check {word!r}", f"{hint}`check --list` lists them")
