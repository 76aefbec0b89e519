"""A report as JUnit XML: a suite for each group, a case for each check.

A case fails from the severity on that the exit status goes by; milder findings are its output. What is unknown is
skipped, with the reason. Source: the format as Jenkins and GitLab read it.
"""

from __future__ import annotations

from typing import Final
from xml.etree import ElementTree

from pgtop_tune.health.check import Severity, Unknown
from pgtop_tune.health.formats.text import about, details
from pgtop_tune.health.report import Report, Result
from pgtop_tune.safe_text import one_line

_NAME: Final = "pgtop-tune check"


def lines(report: Report, fail_on: Severity | None) -> list[str]:
    """The document.

    Args:
        report: What was found.
        fail_on: From which severity on a case fails; None for never.
    """
    root = ElementTree.Element("testsuites", name=_NAME)
    # The schema of Jenkins has "skipped" for a suite, not for all of them.
    totals = {"tests": 0, "failures": 0}
    for group in dict.fromkeys(result.check.group for result in report.results):
        results = [result for result in report.results if result.check.group == group]
        cases = [_case(result, fail_on, report.major) for result in results]
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


def _case(result: Result, fail_on: Severity | None, major: int | None) -> ElementTree.Element:
    check = result.check
    case = ElementTree.Element(
        "testcase", classname=f"pgtop-tune.{check.group.replace(' ', '-')}", name=f"{check.id} {check.title}"
    )
    failing = [each for each in result.findings if fail_on is not None and each.severity.rank >= fail_on.rank]
    if failing:
        said = "; ".join(about(finding) for finding in failing)
        failure = ElementTree.SubElement(case, "failure", type=str(result.severity), message=_legal(said))
        failure.text = _legal("\n".join(line for each in failing for line in details(check, each, major)))
    elif result.unknowns and not result.findings:
        ElementTree.SubElement(case, "skipped", message=_legal(_reasons(result.unknowns)))
    mild = [finding for finding in result.findings if finding not in failing]
    output = [f"{finding.severity}: {about(finding)}" for finding in mild]
    if result.findings:
        output += [f"unknown: {one_line(unknown.reason)}" for unknown in result.unknowns]
    if output:
        ElementTree.SubElement(case, "system-out").text = _legal("\n".join(output))
    return case


def _reasons(unknowns: tuple[Unknown, ...]) -> str:
    return "; ".join(one_line(unknown.reason) for unknown in unknowns)


def _legal(text: str) -> str:
    """Without what no XML document may hold."""
    return "".join(letter for letter in text if letter in "\n\t" or " " <= letter not in "￾￿")
