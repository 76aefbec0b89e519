"""The formats of --format, and the writers of those for other programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict

from pgtop_tune import __version__
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.tables import Table
from pgtop_tune.base.units import wall_moment
from pgtop_tune.compare.reports.report import Chapter
from pgtop_tune.compare.reports.sheets import Sheet
from pgtop_tune.compare.reports.written import report_html
from pgtop_tune.export.exported import Exported, ExportedPoint, MetricKind
from pgtop_tune.export.openmetrics import END, Syntax, distinct, head, line
from pgtop_tune.health.check import Check, CheckFinding, Fix, Language, Severity
from pgtop_tune.health.formats.for_people import (
    PROPOSAL_HEADS,
    about,
    ceiling,
    circumstances,
    details,
    markdown_lines,
    proposal_cells,
    summary,
    text_lines,
)
from pgtop_tune.health.formats.script import script_lines
from pgtop_tune.health.report import CheckOutcome, ProposedValues, Report, documentation
from pgtop_tune.model.absence import Unavailable

# A report as one JSON object; its schema is `health/report.schema.json`.

FORMAT: Final = "pgtop-tune-check/1"
"""First key of every report; the number rises when a reader of the former would misread it."""


def json_lines(report: Report) -> list[str]:
    """Return the report as indented JSON."""
    return indented(json_document(report))


def indented(document: Mapping[str, Any]) -> list[str]:
    """Return the lines of a JSON document."""
    # ASCII keeps names exactly as they are, and no terminal obeys them.
    return json.dumps(document, ensure_ascii=True, indent=2).splitlines()


def json_document(report: Report) -> dict[str, Any]:
    """Return the JSON object; a missing value is null."""
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
            "known": report.n_known,
            "accepted": len(report.accepted),
        },
        "findings": [_finding(check, finding, report.major) for check, finding in report.findings],
        "unknown": [
            {"check": check.id, "title": check.title, "reason": unknown.reason} for check, unknown in report.unknowns
        ],
        "accepted": [
            {
                "finding": _finding(check, risk.finding, report.major),
                "reason": risk.reason,
                "until": risk.until.isoformat(),
            }
            for check, risk in report.accepted
        ],
        "lapsed": [{"check": id_, "says": sentence} for id_, sentence in report.lapsed],
        "passed": [result.check.id for result in report.results if result.outcome is CheckOutcome.PASSED],
        "compared_with": report.compared_with or None,
        "gone": [{"check": id_, "says": sentence} for id_, sentence in report.gone_findings],
        "ceilings": [asdict(limit) for limit in report.ceilings],
        "not_measured": [{"id": id_, "reason": reason} for id_, reason in report.not_measured],
        "left_out": list(report.left_out),
        "changed": dict(report.changed),
        "identity": dict(report.identity),
        "proposal": _proposal(report.proposal),
    }


def _proposal(proposed: ProposedValues | Unavailable | None) -> dict[str, Any] | None:
    if proposed is None or isinstance(proposed, Unavailable):
        return None
    return {
        "values": [asdict(row) | {"pending": row.pending or None, "others": dict(row.others)} for row in proposed.rows],
        "memory": list(proposed.memory),
        "refused": [{"name": name, "reason": reason} for name, reason in proposed.refused],
    }


def _finding(check: Check, finding: CheckFinding, major: int | None) -> dict[str, Any]:
    return {
        "check": check.id,
        "group": check.group,
        "title": check.title,
        "severity": finding.severity.value,
        "subject": finding.subject,
        "objects": [] if finding.objects is None else list(finding.objects.names),
        "says": finding.says,
        "why": check.why,
        "evidence": [asdict(evidence) for evidence in finding.evidence],
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


class ReportOptions(Struct, frozen=True):
    """Options of a report's writer.

    Attributes:
        details: Everything behind each finding, unknowns and passes (text).
        fail_on: Severity from which on a pipeline fails; None for never.
        width: Cells of the terminal it is read in (text); None where it is no terminal.
        strict: Unknown checks fail a pipeline as well.
    """

    details: bool
    fail_on: Severity | None
    width: int | None = None
    strict: bool = False


_LONGEST: Final = 300
_SHORT: Final = 100
_BELOW: Final = "shell commands, see below"
_SIGNED: Final = ("checked by", "accepted by", "date", "signature")


def html_lines(report: Report, fail_on: Severity | None, *, strict: bool) -> list[str]:
    """Return the HTML file.

    Args:
        fail_on: Severity from which on the verdict is no-go; None for never.
        strict: Unknown checks make it no-go as well.
    """
    return report_html(f"Check of {one_line(report.target)}", tuple(_chapters(report, fail_on, strict))).splitlines()


def verdict(report: Report, fail_on: Severity | None, *, strict: bool) -> str:
    """Return the headline."""
    against = []
    if fail_on is not None and (n_findings := report.at_least(fail_on)):
        plural = "s" if n_findings != 1 else ""
        level = fail_on.value if fail_on is Severity.CRITICAL else f"{fail_on.value} or worse"
        against.append(f"{n_findings} finding{plural}, {level}")
    unknown = sum(1 for result in report.results if result.unknowns)
    if strict and unknown:
        against.append(f"{unknown} unknown")
    if against:
        return f"NO-GO: {'; '.join(against)}"
    new = "new " if report.compared_with else ""
    outcome = "findings do not count" if fail_on is None else f"no {new}finding at {fail_on.value} or worse"
    besides = (
        (report.n_known, f"{report.n_known} known from {one_line(report.compared_with)}"),
        (len(report.accepted), f"{len(report.accepted)} accepted"),
        (unknown, f"{unknown} unknown"),
        (
            len(report.left_out),
            f"{len(report.left_out)} of {len(report.left_out) + len(report.results)} checks left out",
        ),
        *((1, f"with {name}") for name, _ in report.changed),
    )
    return "; ".join((f"GO: {outcome}", *(text for number, text in besides if number)))


def _chapters(report: Report, fail_on: Severity | None, strict: bool) -> Iterator[Chapter]:
    head = (wall_moment(report.at_ms), one_line(report.server), *circumstances(report), summary(report, True))
    yield Chapter(verdict(report, fail_on, strict=strict), (Sheet("", tuple(filter(None, head))),))
    yield from _listed(
        "Findings",
        ("severity", "check", "found", "fix"),
        [(finding.severity.value, check.id, about(finding), _fix(finding)) for check, finding in report.findings],
    )
    yield from _listed(
        "Accepted risks",
        ("severity", "check", "found", "accepted because", "until"),
        [
            (risk.finding.severity.value, check.id, about(risk.finding), one_line(risk.reason), str(risk.until))
            for check, risk in report.accepted
        ],
        notes=[f"{id_}: {one_line(reason)}" for id_, reason in report.lapsed],
    )
    yield from _listed(
        "Unknown",
        ("check", "why"),
        [(cause.ids, one_line(cause.reason)) for cause in report.unknown_causes],
    )
    limits = [ceiling(limit) for limit in report.ceilings]
    limits += [f"not {id_}: {one_line(reason)}" for id_, reason in report.not_measured]
    if limits:
        yield Chapter("Measured limits", (Sheet("", tuple(limits)),))
    if report.proposal is not None and not isinstance(report.proposal, Unavailable):
        rows = proposal_cells(report.proposal)
        notes = [*report.proposal.memory, *(f"{name}: {reason}" for name, reason in report.proposal.refused)]
        yield from _listed("Proposal", PROPOSAL_HEADS, rows, notes=notes)
    sheets = [
        Sheet(f"{check.id}: {about(finding)}", tuple(map(one_line, details(check, finding, report.major))))
        for check, finding in report.findings
    ]
    if sheets:
        yield Chapter("Evidence, fix and undo of each finding", tuple(sheets), folded=True)
    passed = [result.check.id for result in report.results if result.outcome is CheckOutcome.PASSED]
    if passed:
        yield Chapter(f"Passed: {len(passed)} checks", (Sheet("", (", ".join(passed),)),), folded=True)
    table = Table(("", ""), tuple((name, "") for name in _SIGNED), frozenset())
    yield Chapter("Signed", (Sheet("", table=table),))


def _fix(finding: CheckFinding) -> str:
    if finding.fix is None:
        return ""
    do = one_line(finding.fix.do, _LONGEST)
    return _BELOW if finding.fix.language is Language.SHELL and len(do) > _SHORT else do


def _listed(
    heading: str, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]], notes: Sequence[str] = ()
) -> Iterator[Chapter]:
    if rows or notes:
        table = Table(heads, tuple(rows), frozenset()) if rows else None
        yield Chapter(heading, (Sheet("", table=table, notes=tuple(notes)),))


def _family(name: str, help: str, labels: tuple[str, ...], unit: str = "") -> Exported:
    return Exported(
        id=name,
        kind=MetricKind.GAUGE,
        unit=unit,
        help=help,
        read=lambda interval: (),
        labels=labels,
        name=f"pgtop_{name}",
    )


_FINDING: Final = _family(
    "check_finding", "A finding of the check that is not accepted.", ("target", "check", "severity", "subject")
)
_ACCEPTED: Final = _family(
    "check_accepted",
    "A finding that the project has accepted.",
    ("target", "check", "severity", "subject", "until", "reason"),
)
_LAPSED: Final = _family(
    "check_acceptance_lapsed", "An acceptance that has expired, or covers no finding.", ("target", "check", "says")
)
_OUTCOME: Final = _family(
    "check_outcome", "Outcome of a check: 1 for its outcome, found, unknown or passed.", ("target", "check", "outcome")
)
_TIME: Final = _family("check_time_seconds", "Time of the check, since the epoch.", ("target",), "s")


def openmetrics_lines(report: Report) -> list[str]:
    """Return the page of OpenMetrics."""
    target = report.target
    findings = [
        ExportedPoint((target, check.id, finding.severity.value, finding.subject), 1.0)
        for check, finding in report.findings
    ]
    accepted = [
        ExportedPoint(
            (
                target,
                check.id,
                risk.finding.severity.value,
                risk.finding.subject,
                risk.until.isoformat(),
                risk.reason,
            ),
            1.0,
        )
        for check, risk in report.accepted
    ]
    lapsed = [ExportedPoint((target, id_, reason), 1.0) for id_, reason in report.lapsed]
    outcomes = [ExportedPoint((target, result.check.id, result.outcome.value), 1.0) for result in report.results]
    time = [ExportedPoint((target,), report.at_ms / 1000.0)]
    families = ((_FINDING, findings), (_ACCEPTED, accepted), (_LAPSED, lapsed), (_OUTCOME, outcomes), (_TIME, time))
    return [text.rstrip("\n") for row, points in families for text in _written(row, points)] + [END.rstrip("\n")]


def _written(row: Exported, points: list[ExportedPoint]) -> Iterator[str]:
    if points:
        yield from head(row, Syntax.OPENMETRICS).splitlines()
        for point in distinct(points):
            yield line(row, point)


WRITERS: Final[Mapping[str, Callable[[Report, ReportOptions], list[str]]]] = MappingProxyType(
    {
        "text": lambda report, wish: text_lines(report, wish.details, wish.width),
        "json": lambda report, wish: json_lines(report),
        "markdown": lambda report, wish: markdown_lines(report),
        "script": lambda report, wish: script_lines(report, wish.fail_on),
        "html": lambda report, wish: html_lines(report, wish.fail_on, strict=wish.strict),
        "openmetrics": lambda report, wish: openmetrics_lines(report),
    }
)
"""Format → the lines of a report."""
