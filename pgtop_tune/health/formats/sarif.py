"""A report as SARIF 2.1.0, the format of code scanners.

A finding is a result of kind "fail"; what is unknown one of kind "open"; a pass one of kind "pass". A server has no
source files: results have logical locations (database and object). Source: OASIS SARIF 2.1.0, sections 3.27, 3.33.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from pgtop_tune import __version__
from pgtop_tune.health.check import Check, Finding, Severity
from pgtop_tune.health.formats.text import about
from pgtop_tune.health.report import CheckOutcome, Report, documentation

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: Final[Mapping[Severity, str]] = MappingProxyType(
    {Severity.INFO: "note", Severity.WARNING: "warning", Severity.HIGH: "error", Severity.CRITICAL: "error"}
)
_NONE: Final = "none"


def lines(report: Report) -> list[str]:
    """The log, indented."""
    return json.dumps(document(report), ensure_ascii=False, indent=2).splitlines()


def document(report: Report) -> dict[str, Any]:
    """The log: one run with all checks as rules."""
    checks = [result.check for result in report.results]
    places = {check.id: place for place, check in enumerate(checks)}
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "pgtop-tune",
                        "semanticVersion": __version__,
                        "rules": [_rule(check, report.major) for check in checks],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "invocations": [{"executionSuccessful": True}],
                "properties": {"target": report.target, "server": report.server},
                "results": [*_results(report, places)],
            }
        ],
    }


def _rule(check: Check, major: int | None) -> dict[str, Any]:
    return {
        "id": check.id,
        "name": "".join(word.capitalize() for word in check.title.split()),
        "shortDescription": {"text": check.title},
        "fullDescription": {"text": check.why},
        "helpUri": documentation(check, major),
        "defaultConfiguration": {"level": _LEVELS[check.severity]},
        "properties": {"tags": [check.group]},
    }


def _results(report: Report, places: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    for check, finding in report.findings:
        yield {
            **_head(check, places, "fail", _LEVELS[finding.severity], about(finding)),
            "locations": _locations(report.target, finding.subject),
            "partialFingerprints": {"finding/v1": _fingerprint(report.target, check, finding)},
            "properties": _properties(finding),
        }
    for check, unknown in report.unknowns:
        yield {
            **_head(check, places, "open", _NONE, f"{check.title}: {unknown.reason}"),
            "locations": _locations(report.target, ""),
        }
    for result in report.results:
        if result.outcome is CheckOutcome.PASSED:
            yield {
                **_head(result.check, places, "pass", _NONE, result.check.title),
                "locations": _locations(report.target, ""),
            }


def _head(check: Check, places: Mapping[str, int], kind: str, level: str, text: str) -> dict[str, Any]:
    return {
        "ruleId": check.id,
        "ruleIndex": places[check.id],
        "kind": kind,
        "level": level,
        "message": {"text": text},
    }


def _locations(target: str, subject: str) -> list[dict[str, Any]]:
    name = f"{target} {subject}".strip()
    return [{"logicalLocations": [{"fullyQualifiedName": name, "kind": "resource"}]}]


def _fingerprint(target: str, check: Check, finding: Finding) -> str:
    """The same for the same finding of a later run, whatever its numbers are."""
    return hashlib.sha256("\0".join((target, check.id, finding.subject)).encode("utf-8", "replace")).hexdigest()


def _properties(finding: Finding) -> dict[str, Any]:
    fix = finding.fix
    return {
        "severity": finding.severity.value,
        "confidence": finding.confidence.value,
        "evidence": [f"{evidence.says} ({evidence.source})" for evidence in finding.evidence],
        "fix": None if fix is None else fix.do,
        "undo": None if fix is None else fix.undo,
    }
