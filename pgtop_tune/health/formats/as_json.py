"""A report as one JSON object; its schema is `health/report.schema.json`."""

from __future__ import annotations

import json
from typing import Any, Final

from pgtop_tune import __version__
from pgtop_tune.health.check import Check, Finding, Fix, Severity
from pgtop_tune.health.report import CheckOutcome, Report, documentation

FORMAT: Final = "pgtop-tune-check/1"
"""First key of every report; the number rises when a reader of the former would misread it."""


def lines(report: Report) -> list[str]:
    """The object, indented."""
    return json.dumps(document(report), ensure_ascii=False, indent=2).splitlines()


def document(report: Report) -> dict[str, Any]:
    """The object; what is not there is null."""
    counts = {severity.value: 0 for severity in reversed(Severity)}
    for _, finding in report.findings:
        counts[finding.severity.value] += 1
    return {
        "format": FORMAT,
        "program": __version__,
        "at_ms": report.at_ms,
        "target": report.target,
        "server": report.server or None,
        "major": report.major,
        "summary": {
            "found": counts,
            "unknown": sum(1 for result in report.results if result.unknowns),
            "passed": report.passed,
            "known": report.known,
        },
        "findings": [_finding(check, finding, report.major) for check, finding in report.findings],
        "unknown": [
            {"check": check.id, "title": check.title, "reason": unknown.reason} for check, unknown in report.unknowns
        ],
        "passed": [result.check.id for result in report.results if result.outcome is CheckOutcome.PASSED],
        "compared_with": report.compared_with or None,
        "gone": [{"check": id_, "says": said} for id_, said in report.gone],
        "ceilings": [
            {"id": each.id, "says": each.says, "value": each.value, "unit": each.unit, "source": each.source}
            for each in report.ceilings
        ],
        "not_measured": [{"id": id_, "reason": reason} for id_, reason in report.not_measured],
    }


def _finding(check: Check, finding: Finding, major: int | None) -> dict[str, Any]:
    return {
        "check": check.id,
        "group": check.group,
        "title": check.title,
        "severity": finding.severity.value,
        "subject": finding.subject,
        "says": finding.says,
        "why": check.why,
        "evidence": [{"says": evidence.says, "source": evidence.source} for evidence in finding.evidence],
        "fix": None if finding.fix is None else _action(finding.fix),
        "confidence": finding.confidence.value,
        "documentation": documentation(check, major),
    }


def _action(action: Fix) -> dict[str, Any]:
    parameter = None if action.parameter is None else dict(zip(("name", "value"), action.parameter, strict=True))
    return {
        "do": action.do,
        "undo": action.undo,
        "language": action.language.value,
        "remark": action.remark,
        "parameter": parameter,
    }
