"""A report for people: worst first, one line each; with details everything behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pgtop_tune.health.check import Check, Confidence, Finding, Severity
from pgtop_tune.health.report import Outcome, Report, documentation
from pgtop_tune.model.ceilings import Ceiling
from pgtop_tune.safe_text import one_line

_WIDTH: Final = max(len(severity) for severity in Severity)
_ID: Final = 8


def lines(report: Report, everything: bool = False) -> list[str]:
    """The report.

    Args:
        report: What was found.
        everything: Evidence, fix, undo, documentation and confidence of each finding; every unknown, every pass.
    """
    server = f" · {one_line(report.server)}" if report.server else ""
    found = [f"{one_line(report.target)}{server}"]
    for check, finding in report.findings:
        found.append(_row(finding.severity, check.id, about(finding)))
        if everything:
            found += [f"    {line}" for line in details(check, finding, report.major)]
    if everything:
        found += [_row("unknown", check.id, f"{check.title}: {each.reason}") for check, each in report.unknowns]
        found += [
            _row("passed", result.check.id, result.check.title)
            for result in report.results
            if result.outcome is Outcome.PASSED
        ]
    found += [_row("gone", id_, said) for id_, said in report.gone]
    found += [_row("measured", "", ceiling(each)) for each in report.ceilings]
    found += [_row("measured", "", f"not {id_}: {why}") for id_, why in report.not_measured]
    return [*found, summary(report, everything)]


def summary(report: Report, everything: bool = False) -> str:
    """The last line: how many of each."""
    counts = [(severity, sum(1 for _, each in report.findings if each.severity is severity)) for severity in Severity]
    said = ", ".join(f"{number} {severity}" for severity, number in reversed(counts) if number) or "nothing"
    unknown = sum(1 for result in report.results if result.unknowns)
    new = " new" if report.compared_with else ""
    parts = [f"found{new}: {said}", f"unknown: {unknown}", f"passed: {report.passed}"]
    if report.compared_with:
        parts.append(f"known from {one_line(report.compared_with)}: {report.known}, gone: {len(report.gone)}")
    more = "" if everything or not (report.findings or unknown) else "   (-v says why, how to mend and how to undo it)"
    return " · ".join(parts) + more


def about(finding: Finding) -> str:
    """What was found, in one line, with what it is about."""
    subject = f"{one_line(finding.subject)}: " if finding.subject and finding.subject not in finding.says else ""
    return f"{subject}{one_line(finding.says)}"


def ceiling(measured: Ceiling) -> str:
    """What was measured, in one line."""
    return f"{one_line(measured.says)} ({one_line(measured.source)})"


def details(check: Check, finding: Finding, major: int | None) -> Iterator[str]:
    """What stands behind a finding, a line for each."""
    yield f"why      {check.why}"
    for number, evidence in enumerate(finding.evidence):
        yield f"{'' if number else 'evidence':<8} {one_line(evidence.says)}  [{one_line(evidence.source)}]"
    if finding.fix is not None:
        yield from _block("fix", finding.fix.do)
        yield from _block("undo", finding.fix.undo)
        if finding.fix.remark:
            yield f"remark   {one_line(finding.fix.remark)}"
    if finding.confidence is not Confidence.HIGH:
        yield f"sure     {finding.confidence}"
    yield f"read     {documentation(check, major)}"


def _row(kind: str, id_: str, words: str) -> str:
    return f"{kind:<{_WIDTH}}  {id_:<{_ID}}  {one_line(words)}"


def _block(label: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines()):
        yield f"{'' if number else label:<8} {one_line(line)}"
