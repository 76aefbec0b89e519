"""The formats of --format, and the writers of those for other programs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final
from xml.etree import ElementTree

from msgspec import Struct

from pgtop_tune import __version__
from pgtop_tune.health.check import Check, Finding, Fix, Severity, Unknown
from pgtop_tune.health.formats.for_people import about, accepted_words, details, markdown_lines, text_lines
from pgtop_tune.health.formats.script import script_lines
from pgtop_tune.health.proposing import ProposedValues
from pgtop_tune.health.report import CheckOutcome, Report, Result, documentation
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.safe_text import one_line

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


# A report as JUnit XML: a suite for each group, a case for each check.
#
# A case fails from the severity on that the exit status goes by; milder findings are its output. What is unknown is
# skipped, with the reason; where it fails a pipeline as well, it fails. Source: the format as Jenkins and GitLab read
# it.

_NAME: Final = "pgtop-tune check"


def junit_lines(report: Report, fail_on: Severity | None, *, strict: bool = False) -> list[str]:
    """The document.

    Args:
        report: What was found.
        fail_on: From which severity on a case fails; None for never.
        strict: What is unknown fails as well.
    """
    root = ElementTree.Element("testsuites", name=_NAME)
    # The schema of Jenkins has "skipped" for a suite, not for all of them.
    totals = {"tests": 0, "failures": 0}
    for group in dict.fromkeys(result.check.group for result in report.results):
        results = [result for result in report.results if result.check.group == group]
        cases = [_case(result, report, fail_on, strict=strict) for result in results]
        counts = {
            "tests": len(cases),
            "failures": sum(1 for case in cases if case.find("failure") is not None),
            "skipped": sum(1 for case in cases if case.find("skipped") is not None),
        }
        totals = {name: total + counts[name] for name, total in totals.items()}
        words = {name: str(number) for name, number in counts.items()}
        suite = ElementTree.SubElement(root, "testsuite", {"name": group, "errors": "0", **words})
        suite.extend(cases)
    root.attrib.update({name: str(number) for name, number in totals.items()}, errors="0")
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return ['<?xml version="1.0" encoding="UTF-8"?>', *text.splitlines()]


def _case(result: Result, report: Report, fail_on: Severity | None, *, strict: bool) -> ElementTree.Element:
    check, major = result.check, report.major
    case = ElementTree.Element(
        "testcase", classname=f"pgtop-tune.{check.group.replace(' ', '-')}", name=f"{check.id} {check.title}"
    )
    failing = [each for each in result.findings if fail_on is not None and each.severity.rank >= fail_on.rank]
    open_ = _reasons(result.unknowns) if strict else ""
    if failing or open_:
        said = "; ".join(filter(None, (*map(about, failing), open_)))
        kind = str(result.severity) if failing else CheckOutcome.UNKNOWN.value
        failure = ElementTree.SubElement(case, "failure", type=kind, message=_legal(said))
        failure.text = _legal("\n".join(line for each in failing for line in details(check, each, major)))
    elif result.unknowns and not result.findings and not result.accepted:
        ElementTree.SubElement(case, "skipped", message=_legal(_reasons(result.unknowns)))
    mild = [finding for finding in result.findings if finding not in failing]
    output = [f"{finding.severity}: {about(finding)}" for finding in mild]
    output += [f"accepted: {accepted_words(each)}" for each in result.accepted]
    output += [f"no longer accepted: {one_line(why)}" for id_, why in report.lapsed if id_ == check.id]
    if result.findings or result.accepted:
        output += [f"unknown: {one_line(unknown.reason)}" for unknown in result.unknowns]
    if output:
        ElementTree.SubElement(case, "system-out").text = _legal("\n".join(output))
    return case


def _reasons(unknowns: tuple[Unknown, ...]) -> str:
    return "; ".join(one_line(unknown.reason) for unknown in unknowns)


def _legal(text: str) -> str:
    """Without what no XML document may hold."""
    return "".join(letter for letter in text if letter in "\n\t" or " " <= letter not in "￾￿")


# A report as SARIF 2.1.0, the format of code scanners.
#
# A finding is a result of kind "fail"; what is unknown one of kind "open"; a pass one of kind "pass". A server has
# no
# source files: results have logical locations (database and object). Source: OASIS SARIF 2.1.0, sections 3.27,
# 3.33.

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: Final[Mapping[Severity, str]] = MappingProxyType(
    {Severity.INFO: "note", Severity.WARNING: "warning", Severity.HIGH: "error", Severity.CRITICAL: "error"}
)
_NONE: Final = "none"


def sarif_lines(report: Report) -> list[str]:
    """The log, indented."""
    return _json_lines(sarif_document(report))


def sarif_document(report: Report) -> dict[str, Any]:
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
                "invocations": [
                    {
                        "executionSuccessful": True,
                        "toolConfigurationNotifications": [
                            {
                                "level": "warning",
                                "message": {"text": why},
                                "associatedRule": {"id": id_, "index": places[id_]},
                            }
                            for id_, why in report.lapsed
                        ],
                    }
                ],
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
    for check, accepted in report.accepted:
        finding = accepted.finding
        justification = f"{accepted.reason} (until {accepted.until})"
        yield {
            **_head(check, places, "fail", _LEVELS[finding.severity], about(finding)),
            "locations": _locations(report.target, finding.subject),
            "partialFingerprints": {"finding/v1": _fingerprint(report.target, check, finding)},
            "properties": _properties(finding),
            "suppressions": [{"kind": "external", "justification": justification}],
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
        "junit": lambda report, wish: junit_lines(report, wish.fail_on, strict=wish.strict),
        "script": lambda report, wish: script_lines(report, wish.fail_on),
        "html": _html,
        "openmetrics": _openmetrics,
        "sarif": lambda report, wish: sarif_lines(report),
    }
)
"""Format → the lines of a report."""
