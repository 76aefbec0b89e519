"""A report for people: worst first, one line each; with details everything behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pgtop_tune.health.check import Check, Confidence, Finding, Severity
from pgtop_tune.health.report import Outcome, Report, documentation
from pgtop_tune.safe_text import one_line

_WIDTH: Final = max(len(severity) for severity in Severity)


def lines(report: Report, details: bool = False) -> list[str]:
    """The report.

    Args:
        report: What was found.
        details: Evidence, fix, undo, documentation and confidence of each finding; every unknown, every pass.
    """
    server = f" · {one_line(report.server)}" if report.server else ""
    found = [f"{one_line(report.target)}{server}"]
    for check, finding in report.findings:
        found.append(f"{finding.severity:<{_WIDTH}}  {check.id:<8}  {about(finding)}")
        if details:
            found += _details(check, finding, report.major)
    if details:
        found += [
            f"{'unknown':<{_WIDTH}}  {check.id:<8}  {check.title}: {one_line(unknown.reason)}"
            for check, unknown in report.unknowns
        ]
        found += [
            f"{'passed':<{_WIDTH}}  {result.check.id:<8}  {result.check.title}"
            for result in report.results
            if result.outcome is Outcome.PASSED
        ]
    found += [f"no longer found: {id_}  {one_line(said)}" for id_, said in report.gone]
    return [*found, summary(report, details)]


def summary(report: Report, details: bool = False) -> str:
    """The last line: how many of each."""
    counts = [(severity, sum(1 for _, each in report.findings if each.severity is severity)) for severity in Severity]
    said = ", ".join(f"{number} {severity}" for severity, number in reversed(counts) if number) or "nothing"
    unknown = sum(1 for result in report.results if result.unknowns)
    parts = [f"found: {said}", f"unknown: {unknown}", f"passed: {report.passed}"]
    if report.compared_with:
        parts.append(f"known from {one_line(report.compared_with)}: {report.known}, gone: {len(report.gone)}")
    more = "" if details or not (report.findings or unknown) else "   (-v says why, how to mend it and how to undo it)"
    return " · ".join(parts) + more


def about(finding: Finding) -> str:
    """What was found, in one line, with what it is about."""
    subject = f"{one_line(finding.subject)}: " if finding.subject and finding.subject not in finding.says else ""
    return f"{subject}{one_line(finding.says)}"


def _details(check: Check, finding: Finding, major: int | None) -> Iterator[str]:
    yield f"    why      {check.why}"
    for number, evidence in enumerate(finding.evidence):
        yield f"    {'' if number else 'evidence':<8} {one_line(evidence.says)}  [{one_line(evidence.source)}]"
    if finding.fix is not None:
        yield from _block("fix", finding.fix.do)
        yield from _block("undo", finding.fix.undo)
        if finding.fix.remark:
            yield f"    remark   {one_line(finding.fix.remark)}"
    if finding.confidence is not Confidence.HIGH:
        yield f"    sure     {finding.confidence}"
    yield f"    read     {documentation(check, major)}"


def _block(label: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines()):
        yield f"    {'' if number else label:<8} {one_line(line)}"
