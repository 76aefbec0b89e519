"""Accepted risks: findings that the project has signed for, with a reason and until a day. Pure.

They are counted and shown, and no pipeline fails for them. After the day the finding counts again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.health.check import Finding
from pgtop_tune.health.report import Accepted, Report, Result


class AcceptedRisk(Struct, frozen=True):
    """An entry of the project's file.

    Attributes:
        check: Id: "DISK-07".
        subject: Pattern of what a finding is about, or one of its objects: "bench public.*"; "*" matches
            every finding of the check.
        reason: Why it is accepted.
        until: The last day.
    """

    check: str
    subject: str
    reason: str
    until: date

    def covers(self, check: str, finding: Finding) -> bool:
        """Whether it is about all of this finding, whatever the day."""
        return self.check == check and fnmatchcase(finding.subject, self.subject)

    def covers_some(self, check: str, finding: Finding) -> tuple[str, ...]:
        """The single objects of this finding that it is about, whatever the day."""
        if self.check != check or finding.objects is None:
            return ()
        return tuple(name for name in finding.objects.names if fnmatchcase(name, self.subject))


def with_accepted(report: Report, risks: Sequence[AcceptedRisk]) -> Report:
    """The report with what is accepted apart from what is found; entries that are over, or cover nothing, are told."""
    today = datetime.fromtimestamp(report.at_ms / 1000.0).astimezone().date()
    results = tuple(_divided(result, [risk for risk in risks if risk.until >= today]) for result in report.results)
    found = [(result.check.id, finding) for result in report.results for finding in result.findings]
    # A check that did not see everything may have missed the finding.
    saw_all = {result.check.id for result in report.results if not result.unknowns}
    lapsed = []
    for risk in risks:
        covers = any(risk.covers(check, finding) or risk.covers_some(check, finding) for check, finding in found)
        if covers and risk.until < today:
            lapsed.append((risk.check, f"accepted until {risk.until}, which is over: {risk.reason}"))
        elif not covers and risk.check in saw_all:
            about = "" if risk.subject == "*" else f" of {risk.subject!r}"
            lapsed.append((risk.check, f"the acceptance{about} covers nothing: take it out of the file"))
    return replace(report, results=results, lapsed=tuple(lapsed))


def _divided(result: Result, risks: Sequence[AcceptedRisk]) -> Result:
    findings: list[Finding] = []
    accepted: list[Accepted] = []
    for finding in result.findings:
        risk = next((each for each in risks if each.covers(result.check.id, finding)), None)
        if risk is not None:
            accepted.append(Accepted(finding, risk.reason, risk.until))
            continue
        parts, rest = _by_object(result.check.id, finding, risks)
        accepted += parts
        findings += [] if rest is None else [rest]
    return replace(result, findings=tuple(findings), accepted=tuple(accepted))


def _by_object(check: str, finding: Finding, risks: Sequence[AcceptedRisk]) -> tuple[list[Accepted], Finding | None]:
    """What is accepted of a finding about several objects, and the finding about the others; None without others."""
    of_risk = {risk: risk.covers_some(check, finding) for risk in reversed(risks)}
    by_name = {name: risk for risk, names in of_risk.items() for name in names}
    objects = finding.objects
    if objects is None or not by_name:
        return [], finding
    parts = [
        Accepted(objects.about([name for name, mine in by_name.items() if mine is risk], 0), risk.reason, risk.until)
        for risk in risks
        if risk in by_name.values()
    ]
    others = [name for name in objects.names if name not in by_name]
    if not others and not objects.unlisted:
        return parts, None
    rest, whole = objects.about(others, objects.unlisted), len(objects.names) + objects.unlisted
    says = f"{rest.says}; {len(by_name)} of {whole} accepted"
    # It stays the same finding for a later check.
    return parts, replace(rest, says=says, subject=finding.subject)
