"""The report that is signed off: go or no-go, findings, accepted risks, limits, the proposal; one HTML file. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.tables import Table
from pgtop_tune.base.units import wall_moment
from pgtop_tune.compare.reports.report import Chapter
from pgtop_tune.compare.reports.sheets import Sheet
from pgtop_tune.compare.reports.written import html
from pgtop_tune.health.check import Finding, Language, Severity
from pgtop_tune.health.formats.for_people import (
    PROPOSAL_HEADS,
    about,
    ceiling,
    circumstances,
    details,
    proposal_cells,
    summary,
)
from pgtop_tune.health.report import CheckOutcome, Report
from pgtop_tune.model.absence import Unavailable

_LONGEST: Final = 300
_SHORT: Final = 100
_BELOW: Final = "commands of the shell, see below"
_SIGNED: Final = ("checked by", "accepted by", "date", "signature")


def html_lines(report: Report, fail_on: Severity | None, *, strict: bool) -> list[str]:
    """The file.

    Args:
        fail_on: From which severity on it is no-go; None for never.
        strict: What is unknown makes it no-go as well.
    """
    return html(f"Check of {one_line(report.target)}", tuple(_chapters(report, fail_on, strict))).splitlines()


def verdict(report: Report, fail_on: Severity | None, *, strict: bool) -> str:
    """The headline."""
    against = []
    if fail_on is not None and (found := report.at_least(fail_on)):
        plural = "s" if found != 1 else ""
        level = fail_on.value if fail_on is Severity.CRITICAL else f"{fail_on.value} or worse"
        against.append(f"{found} finding{plural}, {level}")
    unknown = sum(1 for result in report.results if result.unknowns)
    if strict and unknown:
        against.append(f"{unknown} unknown")
    if against:
        return f"NO-GO: {'; '.join(against)}"
    new = "new " if report.compared_with else ""
    what = "nothing counts against it" if fail_on is None else f"no {new}finding at {fail_on.value} or worse"
    besides = (
        (report.known, f"{report.known} known from {one_line(report.compared_with)}"),
        (len(report.accepted), f"{len(report.accepted)} accepted"),
        (unknown, f"{unknown} unknown"),
        (
            len(report.left_out),
            f"{len(report.left_out)} of {len(report.left_out) + len(report.results)} checks left out",
        ),
        *((1, f"with {name}") for name, _ in report.changed),
    )
    return "; ".join((f"GO: {what}", *(words for number, words in besides if number)))


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
            (each.finding.severity.value, check.id, about(each.finding), one_line(each.reason), str(each.until))
            for check, each in report.accepted
        ],
        notes=[f"{id_}: {one_line(why)}" for id_, why in report.lapsed],
    )
    yield from _listed(
        "Unknown",
        ("check", "why"),
        [(cause.ids, one_line(cause.reason)) for cause in report.unknown_causes],
    )
    limits = [ceiling(each) for each in report.ceilings]
    limits += [f"not {id_}: {one_line(why)}" for id_, why in report.not_measured]
    if limits:
        yield Chapter("Measured limits", (Sheet("", tuple(limits)),))
    if report.proposal is not None and not isinstance(report.proposal, Unavailable):
        rows = proposal_cells(report.proposal)
        notes = [*report.proposal.memory, *(f"{name}: {why}" for name, why in report.proposal.refused)]
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


def _fix(finding: Finding) -> str:
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
