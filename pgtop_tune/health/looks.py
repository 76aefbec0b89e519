"""Several servers checked side by side, a few at a time, and their results in one table. Foreign text throughout."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.tables import Table, aligned_text
from pgtop_tune.health.check import Check, CheckFinding, Evidence, Severity
from pgtop_tune.health.formats.for_people import about
from pgtop_tune.health.formats.writers import indented, json_document
from pgtop_tune.health.project_file import AcceptedRisk, with_accepted
from pgtop_tune.health.report import SYSTEM_IDENTIFIER, CheckResult, Report

FORMAT: Final = "pgtop-tune-checks/1"
AT_ONCE: Final = 4
_WORST: Final = 100
_HEADS: Final = (
    "server",
    "PostgreSQL",
    *(severity.value for severity in reversed(Severity)),
    "accepted",
    "unknown",
    "worst",
)


class ServerResult(Struct, frozen=True):
    """One server.

    Attributes:
        name: Name as it was asked for: the service, or the connection without its password.
        report: None where it could not be checked.
        problem: Why it could not be checked.
    """

    name: str
    report: Report | None = None
    problem: PgtopError | None = None

    @property
    def words(self) -> str:
        """Return the worst finding, or why there is no report."""
        if self.report is None:
            reason = self.problem.message if self.problem else ""
            return f"not checked: {reason.removeprefix(f'{self.name}: ')}"
        worst = next(iter(self.report.findings), None)
        return "" if worst is None else f"{worst[0].id} {about(worst[1])}"


async def check_servers(
    names: Sequence[str], look: Callable[[str], Awaitable[Report]], report: Callable[[ServerResult], None]
) -> tuple[ServerResult, ...]:
    """Check servers, a few at a time; return results in the order of their names, failed ones too.

    Args:
        look: Checks the server of a name.
        report: Takes each result as it comes.
    """
    room = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> ServerResult:
        async with room:
            try:
                result = ServerResult(name, await look(name))
            except PgtopError as problem:
                result = ServerResult(name, problem=problem)
        report(result)
        return result

    return tuple(await asyncio.gather(*map(one, names)))


def _cells(result: ServerResult) -> tuple[str, ...]:
    report = result.report
    if report is None:
        return (one_line(result.name), "", *("-" for _ in _HEADS[2:-1]), one_line(result.words, _WORST))
    counts = [
        sum(1 for _, finding in report.findings if finding.severity is severity) for severity in reversed(Severity)
    ]
    unknown = sum(1 for checked in report.results if checked.unknowns)
    numbers = (*counts, len(report.accepted), unknown)
    version = report.server.removeprefix("PostgreSQL ")
    return (one_line(result.name), one_line(version), *map(str, numbers), one_line(result.words, _WORST))


def table_lines(results: Sequence[ServerResult]) -> list[str]:
    """Return a table with a row for each server."""
    numbers = frozenset(range(2, len(_HEADS) - 1))
    return aligned_text(Table(_HEADS, tuple(map(_cells, results)), numbers)).splitlines()


def servers_lines(results: Sequence[ServerResult]) -> list[str]:
    """Return the object of `servers_document`, indented, in ASCII."""
    return indented(servers_document(results))


def servers_document(results: Sequence[ServerResult]) -> dict[str, Any]:
    """Return one object with the report of each server, or why there is none."""
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


_SOURCE = "check --watch"


class _FindingInLooks(Struct):
    """A finding of some looks: the worst of them, the newest of those."""

    check: Check
    finding: CheckFinding
    looks: int = 0


class LookSeries:
    """Findings of the looks so far.

    Args:
        accept: Risks that the project has accepted; they hold for the findings of all looks together.

    Attributes:
        count: Looks.
        standing: Findings of the newest look that are not accepted.
    """

    def __init__(self, accept: Sequence[AcceptedRisk] = ()) -> None:
        self.count = 0
        self.standing = 0
        self._accept = tuple(accept)
        self._seen: dict[tuple[str, str], _FindingInLooks] = {}
        self._unknown: dict[str, int] = {}
        self._newest: Report | None = None
        self._before: frozenset[tuple[str, str]] = frozenset()
        self._missed: list[str] = []

    def of_another_server(self, report: Report) -> bool:
        """Return whether a report is of another server than the looks before."""
        before = {} if self._newest is None else dict(self._newest.identity)
        former, now = before.get(SYSTEM_IDENTIFIER), dict(report.identity).get(SYSTEM_IDENTIFIER)
        return bool(former and now and former != now)

    def miss(self, reason: str) -> None:
        """Note a look that did not see the server."""
        self._missed.append(reason)

    def take(self, report: Report) -> tuple[list[tuple[Check, CheckFinding]], list[tuple[Check, CheckFinding]]]:
        """Take a look, nothing accepted; return findings that are new, and those that only the look before had."""
        self.count += 1
        self._newest = report
        for check, finding in report.findings:
            entry = self._seen.setdefault((check.id, finding.subject), _FindingInLooks(check, finding))
            entry.looks += 1
            if finding.severity.rank >= entry.finding.severity.rank:
                entry.finding = finding
        for result in report.results:
            if result.unknowns:
                self._unknown[result.check.id] = self._unknown.get(result.check.id, 0) + 1
        now = {(check.id, finding.subject) for check, finding in with_accepted(report, self._accept).findings}
        self.standing = len(now)
        blind = {result.check.id for result in report.results if result.unknowns}
        # A finding that a look could not see is not gone.
        unseen = {key for key in self._before - now if key[0] in blind}
        new, ended = now - self._before, self._before - now - unseen
        self._before = frozenset(now | unseen)
        return [self._pair(key) for key in sorted(new)], [self._pair(key) for key in sorted(ended)]

    def _pair(self, key: tuple[str, str]) -> tuple[Check, CheckFinding]:
        return self._seen[key].check, self._seen[key].finding

    def together(self) -> Report:
        """Return the newest look with the findings of all; unknown are parts that no look could see.

        Raises:
            ValueError: There was none.
        """
        if self._newest is None:
            raise ValueError("the check never ran")
        results = tuple(map(self._result, self._newest.results))
        identity = (*self._newest.identity, ("runs", self._words))
        return with_accepted(replace(self._newest, results=results, identity=identity), self._accept)

    @property
    def _words(self) -> str:
        looks = "1 run" if self.count == 1 else f"{self.count} runs"
        if not self._missed:
            return looks
        more = f"{len(self._missed)} more did" if len(self._missed) > 1 else "1 more did"
        return f"{looks}; {more} not reach the server: {self._missed[-1]}"

    def _result(self, result: CheckResult) -> CheckResult:
        id_ = result.check.id
        entries = [entry for (check, _), entry in self._seen.items() if check == id_]
        findings = sorted(
            map(self._with_looks, entries),
            key=lambda finding: -finding.severity.rank,
        )
        unknowns = result.unknowns if self._unknown.get(id_, 0) == self.count else ()
        return replace(result, findings=tuple(findings), unknowns=unknowns)

    def _with_looks(self, entry: _FindingInLooks) -> CheckFinding:
        in_looks = f"found in {entry.looks} of {self.count} runs"
        says = entry.finding.says if entry.looks == self.count else f"{entry.finding.says} ({in_looks})"
        return replace(entry.finding, says=says, evidence=(*entry.finding.evidence, Evidence(in_looks, _SOURCE)))
