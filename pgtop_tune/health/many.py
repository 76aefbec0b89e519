"""Several servers checked side by side, a few at a time, and their results in one table. Foreign text throughout."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.health.check import Severity
from pgtop_tune.health.formats.for_people import about
from pgtop_tune.health.formats.writers import json_document
from pgtop_tune.health.report import Report

FORMAT: Final = "pgtop-tune-checks/1"
AT_ONCE: Final = 4
_WORST: Final = 100
_HEADS: Final = ("server", "PostgreSQL", *(severity.value for severity in reversed(Severity)), "accepted", "unknown")


class ServerResult(Struct, frozen=True):
    """One server.

    Attributes:
        name: As it was asked for: the service, or the connection without its password.
        report: None where it could not be checked.
        problem: Why not.
    """

    name: str
    report: Report | None = None
    problem: PgtopError | None = None

    @property
    def words(self) -> str:
        """The worst finding, or why there is no report."""
        if self.report is None:
            why = self.problem.message if self.problem else ""
            return f"not checked: {why.removeprefix(f'{self.name}: ')}"
        worst = next(iter(self.report.findings), None)
        return "" if worst is None else f"{worst[0].id} {about(worst[1])}"


async def check_servers(
    names: Sequence[str], look: Callable[[str], Awaitable[Report]], told: Callable[[ServerResult], None]
) -> tuple[ServerResult, ...]:
    """Every one of them, in the order of their names; one that cannot be checked is a result as well.

    Args:
        look: Checks the server of a name.
        told: Takes each result as it comes.
    """
    room = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> ServerResult:
        async with room:
            try:
                result = ServerResult(name, await look(name))
            except PgtopError as problem:
                result = ServerResult(name, problem=problem)
        told(result)
        return result

    return tuple(await asyncio.gather(*map(one, names)))


def _cells(result: ServerResult) -> tuple[str, ...]:
    report = result.report
    if report is None:
        return (one_line(result.name), "", *("-" for _ in _HEADS[2:]), one_line(result.words, _WORST))
    counts = [sum(1 for _, each in report.findings if each.severity is severity) for severity in reversed(Severity)]
    unknown = sum(1 for each in report.results if each.unknowns)
    numbers = (*counts, len(report.accepted), unknown)
    version = report.server.removeprefix("PostgreSQL ")
    return (one_line(result.name), one_line(version), *map(str, numbers), one_line(result.words, _WORST))


def table_lines(results: Sequence[ServerResult]) -> list[str]:
    """A row for each server."""
    rows = [(*_HEADS, "worst"), *map(_cells, results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    words = {0, 1}
    return [
        "  ".join(
            (
                *(
                    cell.ljust(width) if column in words else cell.rjust(width)
                    for column, (cell, width) in enumerate(zip(row, widths, strict=False))
                ),
                row[-1],
            )
        ).rstrip()
        for row in rows
    ]


def servers_lines(results: Sequence[ServerResult]) -> list[str]:
    """The object of `servers_document`, indented, in ASCII."""
    return json.dumps(servers_document(results), ensure_ascii=True, indent=2).splitlines()


def servers_document(results: Sequence[ServerResult]) -> dict[str, Any]:
    """One object with the report of each, or why there is none."""
    return {
        "format": FORMAT,
        "servers": [
            {
                "name": result.name,
                "problem": None if result.problem is None else result.problem.message,
                "report": None if result.report is None else json_document(result.report),
            }
            for result in results
        ],
    }
