"""The report of all checks, and the port through which a screen runs them."""

from __future__ import annotations

import re
from datetime import date
from enum import StrEnum
from typing import Final, Protocol

from msgspec import Struct

from pgtop_tune.health.check import Check, CheckFinding, Severity, Unknown
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.postgres import NEWEST_MAJOR
from pgtop_tune.model.setup import MeasuredLimit

SYSTEM_IDENTIFIER: Final = "system identifier"
"""Name in a report's identity."""


class CheckOutcome(StrEnum):
    """Outcome of a check."""

    FOUND = "found"
    UNKNOWN = "unknown"
    PASSED = "passed"


class Accepted(Struct, frozen=True):
    """A finding that the project has signed for.

    Attributes:
        reason: The project's. Foreign text.
        until: The last day.
    """

    finding: CheckFinding
    reason: str
    until: date


class CheckResult(Struct, frozen=True):
    """One check.

    Attributes:
        findings: Worst first.
        unknowns: Parts that it could not see, also beside findings.
        n_known: Findings that are left out because a former check had them: it has not passed.
        accepted: Findings that the project has signed for: it has not passed either.
    """

    check: Check
    findings: tuple[CheckFinding, ...] = ()
    unknowns: tuple[Unknown, ...] = ()
    n_known: int = 0
    accepted: tuple[Accepted, ...] = ()

    @property
    def outcome(self) -> CheckOutcome:
        """Return FOUND with a finding, also one known before or accepted, UNKNOWN with an unseen part, else PASSED."""
        if self.findings or self.n_known or self.accepted:
            return CheckOutcome.FOUND
        return CheckOutcome.UNKNOWN if self.unknowns else CheckOutcome.PASSED

    @property
    def severity(self) -> Severity | None:
        """Return the severity of the worst finding."""
        return max((finding.severity for finding in self.findings), key=lambda severity: severity.rank, default=None)


class UnknownCause(Struct, frozen=True):
    """Cause that keeps checks unknown: a missing right, a closed database, young counters.

    Attributes:
        checks: Checks that are unknown, in the order of the registry.
        reason: Of the first of them; the others' differ in numbers, or in what the same right would open.
    """

    checks: tuple[Check, ...]
    reason: str

    @property
    def short(self) -> str:
        """Return the check's id, or how many checks."""
        return self.checks[0].id if len(self.checks) == 1 else f"{len(self.checks)} checks"

    @property
    def ids(self) -> str:
        """Return the ids of the checks: "WAL-01, WAL-02"."""
        return ", ".join(check.id for check in self.checks)


_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?(?:\s?(?:ms|s|min|h|d)\b)?")
_RIGHT: Final = re.compile(r"GRANT .*")


def _cause(reason: str) -> str:
    """Return the same text for reasons with one remedy."""
    right = _RIGHT.search(reason)
    return _NUMBER.sub("#", reason) if right is None else right[0]


class ProposedRow(Struct, frozen=True):
    """A value that is proposed and not in force.

    Attributes:
        now: Value in force.
        pending: Value in force after a restart, if nothing else changes; "" where that is the same.
        because: One sentence.
        restart: Whether it takes effect only with a restart of the server.
        of_machine: Whether it is a setting of the machine.
        others: (who, value) of known calculators for this machine.
    """

    name: str
    now: str
    pending: str
    proposed: str
    because: str
    restart: bool
    of_machine: bool
    others: tuple[tuple[str, str], ...] = ()


class ProposedValues(Struct, frozen=True):
    """All proposed values, the machine's first.

    Attributes:
        rows: Empty where everything is as it is proposed.
        memory: The memory rule with the proposed values, line by line; empty where the memory is not known.
        refused: (name, why) of what the machine cannot carry.
    """

    rows: tuple[ProposedRow, ...]
    memory: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()


class Report(Struct, frozen=True):
    """All checks of one look.

    Attributes:
        at_ms: When, milliseconds since the epoch.
        target: The server, without secrets. Foreign text.
        server: "PostgreSQL 18.6"; "" when it is not known. Foreign text.
        major: Major version of the server; None when it is not known.
        results: Checks in the order of the registry.
        compared_with: Source of the former findings when only new ones are in the results; "" otherwise.
        n_known: Findings left out because a former check had them.
        gone_findings: (check id, what it said) of a former check's findings that are no more.
        lapsed: (check id, why) of acceptances that are over, or cover nothing. Foreign text.
        left_out: Ids of checks that were not made, because of --select or --ignore.
        changed: (what, how) of what else differs from the check without options: limits, words about the machine.
        identity: (name, value) of what tells this server and its machine from others. Foreign text.
        proposal: Values that fit together; why there are none; None where it is not asked for.
        ceilings: Measured limits; empty without --measure.
        not_measured: (what, why not) of what could not be. Foreign text.
    """

    at_ms: int
    target: str
    server: str
    major: int | None
    results: tuple[CheckResult, ...]
    compared_with: str = ""
    n_known: int = 0
    gone_findings: tuple[tuple[str, str], ...] = ()
    lapsed: tuple[tuple[str, str], ...] = ()
    ceilings: tuple[MeasuredLimit, ...] = ()
    not_measured: tuple[tuple[str, str], ...] = ()
    left_out: tuple[str, ...] = ()
    changed: tuple[tuple[str, str], ...] = ()
    identity: tuple[tuple[str, str], ...] = ()
    proposal: ProposedValues | Unavailable | None = None

    @property
    def findings(self) -> tuple[tuple[Check, CheckFinding], ...]:
        """Return all findings, worst first, those of one severity in the order of the registry."""
        pairs = [(result.check, finding) for result in self.results for finding in result.findings]
        return tuple(sorted(pairs, key=lambda pair: -pair[1].severity.rank))

    @property
    def unknowns(self) -> tuple[tuple[Check, Unknown], ...]:
        """Return all unknown parts, in the order of the registry."""
        return tuple((result.check, unknown) for result in self.results for unknown in result.unknowns)

    @property
    def unknown_causes(self) -> tuple[UnknownCause, ...]:
        """Return the causes of unknown parts, those that concern the most checks first."""
        by_cause: dict[str, list[tuple[Check, Unknown]]] = {}
        for check, unknown in self.unknowns:
            by_cause.setdefault(_cause(unknown.cause or unknown.reason), []).append((check, unknown))
        causes = []
        for pairs in by_cause.values():
            first, parts = pairs[0][1], {unknown.reason.removesuffix(unknown.cause) for _, unknown in pairs}
            # One cause may hide several parts of the facts; they are not named one by one.
            reason = first.reason if len(parts) == 1 else first.cause or first.reason
            causes.append(UnknownCause(tuple(dict.fromkeys(check for check, _ in pairs)), reason))
        return tuple(sorted(causes, key=lambda cause: -len(cause.checks)))

    @property
    def accepted(self) -> tuple[tuple[Check, Accepted], ...]:
        """Return all accepted findings, worst first."""
        pairs = [(result.check, risk) for result in self.results for risk in result.accepted]
        return tuple(sorted(pairs, key=lambda pair: -pair[1].finding.severity.rank))

    @property
    def passed(self) -> int:
        """Return the number of checks that looked and found nothing."""
        return sum(1 for result in self.results if result.outcome is CheckOutcome.PASSED)

    def at_least(self, severity: Severity) -> int:
        """Return the number of findings of a severity and above."""
        return sum(1 for _, finding in self.findings if finding.severity.rank >= severity.rank)

    def fails(self, severity: Severity | None, *, strict: bool) -> bool:
        """Return whether the exit status is 1: findings from a severity on (None: never); strict: unknowns too."""
        return bool((severity is not None and self.at_least(severity)) or (strict and self.unknowns))


def documentation(check: Check, major: int | None) -> str:
    """Return the address of PostgreSQL's documentation for a check; "devel" for a major newer than we know."""
    version = "current" if major is None else "devel" if major > NEWEST_MAJOR else str(major)
    return f"https://www.postgresql.org/docs/{version}/{check.page}"


# The check as the screen runs it.


class CheckControl(Protocol):
    """Called in the engine's loop, as the other controls."""

    async def check(self) -> Report:
        """Look at the server and its machine once, change nothing; takes seconds.

        Raises:
            UsageProblem: The project's file says something it cannot mean.
            ConnectionProblem: The server is not there or does not let us in.
        """
        ...

    async def measure(self, *, anyway: bool) -> Report | tuple[str, ...]:
        """Check, and measure the most that the server can do; takes up to 20 s more and writes a little.

        Args:
            anyway: Also where the server is busy.

        Returns:
            The report; or what a measurement would disturb, when it is busy. Raises as `check`, UsageProblem also where
            what was measured cannot be kept.
        """
        ...
