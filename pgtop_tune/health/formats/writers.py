"""The formats of --format, and the writers of those for other programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct

from pgtop_tune import __version__
from pgtop_tune.health.check import Check, Finding, Fix, Severity
from pgtop_tune.health.formats.for_people import markdown_lines, text_lines
from pgtop_tune.health.formats.script import script_lines
from pgtop_tune.health.proposing import ProposedValues
from pgtop_tune.health.report import CheckOutcome, Report, documentation
from pgtop_tune.model.absence import Unavailable

# A report as one JSON object; its schema is `health/report.schema.json`.

FORMAT: Final = "pgtop-tune-check/1"
"""First key of every report; the number rises when a reader of the former would misread it."""


def json_lines(report: Report) -> list[str]:
    """The object, indented."""
    return _json_lines(json_document(report))


def _json_lines(document: Mapping[str, Any]) -> list[str]:
    # In ASCII: names stay exactly as they are, and a terminal obeys none of them.
    return json.dumps(document, ensure_ascii=True, indent=2).splitlines()


def json_document(report: Report) -> dict[str, Any]:
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
            "accepted": len(report.accepted),
        },
        "findings": [_finding(check, finding, report.major) for check, finding in report.findings],
        "unknown": [
            {"check": check.id, "title": check.title, "reason": unknown.reason} for check, unknown in report.unknowns
        ],
        "accepted": [
            {
                "finding": _finding(check, each.finding, report.major),
                "reason": each.reason,
                "until": each.until.isoformat(),
            }
            for check, each in report.accepted
        ],
        "lapsed": [{"check": id_, "says": said} for id_, said in report.lapsed],
        "passed": [result.check.id for result in report.results if result.outcome is CheckOutcome.PASSED],
        "compared_with": report.compared_with or None,
        "gone": [{"check": id_, "says": said} for id_, said in report.gone],
        "ceilings": [
            {"id": each.id, "says": each.says, "value": each.value, "unit": each.unit, "source": each.source}
            for each in report.ceilings
        ],
        "not_measured": [{"id": id_, "reason": reason} for id_, reason in report.not_measured],
        "left_out": list(report.left_out),
        "changed": dict(report.changed),
        "identity": dict(report.identity),
        "proposal": _proposal(report.proposal),
    }


def _proposal(found: ProposedValues | Unavailable | None) -> dict[str, Any] | None:
    if found is None or isinstance(found, Unavailable):
        return None
    return {
        "values": [
            {
                "name": row.name,
                "now": row.now,
                "pending": row.pending or None,
                "proposed": row.proposed,
                "because": row.because,
                "restart": row.restart,
                "of_machine": row.of_machine,
                "others": dict(row.others),
            }
            for row in found.rows
        ],
        "memory": list(found.memory),
        "refused": [{"name": name, "reason": why} for name, why in found.refused],
    }


def _finding(check: Check, finding: Finding, major: int | None) -> dict[str, Any]:
    return {
        "check": check.id,
        "group": check.group,
        "title": check.title,
        "severity": finding.severity.value,
        "subject": finding.subject,
        "objects": [] if finding.objects is None else list(finding.objects.names),
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


class Wish(Struct, frozen=True):
    """How a report is wanted.

    Attributes:
        details: Everything behind each finding, unknowns and passes (text).
        fail_on: From which severity on a pipeline fails; None for never.
        width: Cells of the terminal it is read in (text); None where it is no terminal.
        strict: What is unknown fails a pipeline as well.
    """

    details: bool
    fail_on: Severity | None
    width: int | None = None
    strict: bool = False


def _html(report: Report, wish: Wish) -> list[str]:
    # Its parts are those of comparisons, which a screen does without.
    from pgtop_tune.health.formats.signed import html_lines

    return html_lines(report, wish.fail_on, strict=wish.strict)


def _openmetrics(report: Report, wish: Wish) -> list[str]:
    from pgtop_tune.health.formats.exposed import openmetrics_lines

    return openmetrics_lines(report)


WRITERS: Final[Mapping[str, Callable[[Report, Wish], list[str]]]] = MappingProxyType(
    {
        "text": lambda report, wish: text_lines(report, wish.details, wish.width),
        "json": lambda report, wish: json_lines(report),
        "markdown": lambda report, wish: markdown_lines(report),
        "script": lambda report, wish: script_lines(report, wish.fail_on),
        "html": _html,
        "openmetrics": _openmetrics,
    }
)
"""Format → the lines of a report."""
