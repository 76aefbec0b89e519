"""A report for people: worst first, one line each, with details everything behind it; as text and as Markdown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Final

from pgtop_tune.base.safe_text import one_line, printable
from pgtop_tune.base.tables import Table, aligned_text
from pgtop_tune.health.check import Check, CheckConfidence, CheckFinding, Fix, Language, Severity
from pgtop_tune.health.report import Accepted, CheckOutcome, ProposedValues, Report, UnknownCause, documentation
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.setup import MeasuredLimit

_WIDTH: Final = max(len(severity) for severity in Severity)
_ID: Final = 8
_LABEL: Final = 8
_MARGIN: Final = 4
_NARROWEST: Final = 40
_AT_ONCE: Final = ("connection", "runs")
"""Entries of the identity that a reader has to know before the findings."""


def text_lines(report: Report, everything: bool = False, width: int | None = None) -> list[str]:
    """Return the report as text.

    Args:
        report: The report.
        everything: Evidence, fix, undo, documentation and confidence of each finding; every unknown, every pass.
        width: Cells of a terminal that longer lines are broken for; commands and addresses stay whole, to be copied.
            None breaks nothing.
    """
    server = f" · {one_line(report.server)}" if report.server else ""
    lines = [f"{one_line(report.target)}{server}"]
    lines += circumstances(report) if everything else [one_line(text) for _, text in _urgent_entries(report)]
    for check, finding in report.findings:
        lines += _row(finding.severity, check.id, about(finding), width)
        if everything:
            narrow = None if width is None else width - _MARGIN
            lines += [f"{' ' * _MARGIN}{line}" for line in details(check, finding, report.major, narrow)]
    for check, accepted in report.accepted:
        lines += _row("accepted", check.id, accepted_words(accepted), width)
    for id_, reason in report.lapsed:
        lines += _row("accepted", id_, f"no longer: {reason}", width)
    if everything:
        for cause in report.unknown_causes:
            lines += _row("unknown", cause.short, cause_words(cause), width)
        for result in report.results:
            if result.outcome is CheckOutcome.PASSED:
                lines += _row("passed", result.check.id, result.check.title, width)
    for id_, sentence in report.gone_findings:
        lines += _row("gone", id_, sentence, width)
    for limit in report.ceilings:
        lines += _row("measured", "", ceiling(limit), width)
    for id_, reason in report.not_measured:
        lines += _row("measured", "", f"not {id_}: {reason}", width)
    lines += _proposal_lines(report, everything, width)
    return [*lines, *_broken(summary(report, everything), 0, width)]


def _urgent_entries(report: Report) -> list[tuple[str, str]]:
    return [entry for entry in report.identity if entry[0] in _AT_ONCE]


def circumstances(report: Report) -> list[str]:
    """Return the server, and the choices that differ from the check without options; a line each."""
    check_ids = tuple(result.check.id for result in report.results)
    few = len(check_ids) < len(report.left_out)
    left_out = [("checks run", ", ".join(check_ids)) if few else ("checks left out", ", ".join(report.left_out))]
    rows = (*report.identity, *(left_out if report.left_out else ()), *report.changed)
    return [f"{name}: {one_line(text)}" for name, text in rows]


PROPOSAL_HEADS: Final = ("name", "now", "pending", "proposed", "others", "because")
_OTHERS: Final = PROPOSAL_HEADS.index("others")
_ADVISE: Final = "`pgtop-tune advise --apply` sets them, `--format conf|sql|sysctl|ansible` writes them"


def proposal_cells(proposed: ProposedValues) -> list[tuple[str, ...]]:
    """Return a row for each value, the machine's first; a value that takes a restart is marked."""
    return [
        (
            one_line(row.name),
            one_line(row.now) or "''",
            one_line(row.pending),
            f"{one_line(row.proposed)}{' (restart)' if row.restart else ''}",
            ", ".join(f"{calculator} {value}" for calculator, value in row.others),
            one_line(row.because),
        )
        for row in proposed.rows
    ]


def _proposal_lines(report: Report, everything: bool, width: int | None) -> Iterator[str]:
    """Yield the proposal as a table between two empty lines; with everything, also values of calculators."""
    proposed = report.proposal
    if proposed is None or isinstance(proposed, Unavailable):
        return
    if not proposed.rows:
        yield "proposal: all proposed values are in force"
        return
    columns = [column for column in range(len(PROPOSAL_HEADS)) if everything or column != _OTHERS]
    heads, *cells = (tuple(row[column] for column in columns) for row in (PROPOSAL_HEADS, *proposal_cells(proposed)))
    lines = aligned_text(Table(heads, tuple(cells))).splitlines()
    yield ""
    yield from _broken(f"proposal, values that fit together: {_ADVISE}", 2, width)
    for line in lines:
        yield from _broken(f"  {line}", 2 + lines[0].rindex(heads[-1]), width)
    for line in (*proposed.memory, *(f"{name}: {reason}" for name, reason in proposed.refused)):
        yield from _broken(f"  {one_line(line)}", 4, width)
    yield ""


def summary(report: Report, everything: bool = False) -> str:
    """Return the last line: the number of each."""
    counts = [
        (severity, sum(1 for _, finding in report.findings if finding.severity is severity)) for severity in Severity
    ]
    counted = ", ".join(_counted(severity, number) for severity, number in reversed(counts) if number) or "nothing"
    unknown = sum(1 for result in report.results if result.unknowns)
    new = " new" if report.compared_with else ""
    parts = [f"found{new}: {counted}", f"unknown: {unknown}", f"passed: {report.passed}"]
    if report.accepted:
        parts.insert(1, f"accepted: {len(report.accepted)}")
    if report.left_out:
        parts.append(f"left out: {len(report.left_out)}")
    if report.compared_with:
        parts.append(
            f"known from {one_line(report.compared_with)}: {report.n_known}, gone: {len(report.gone_findings)}"
        )
    more = "" if everything or not (report.findings or unknown) else "   (-v shows reason, fix and undo)"
    return " · ".join(parts) + more


def _counted(severity: Severity, number: int) -> str:
    return f"{number} {severity}{'s' if severity is Severity.WARNING and number != 1 else ''}"


def about(finding: CheckFinding) -> str:
    """Return a finding in one line, with its subject."""
    subject = f"{one_line(finding.subject)}: " if finding.subject and finding.subject not in finding.says else ""
    return f"{subject}{one_line(finding.says)}"


def cause_words(cause: UnknownCause) -> str:
    """Return the cause that keeps checks unknown, in one line."""
    if len(cause.checks) == 1:
        return f"{cause.checks[0].title}: {one_line(cause.reason)}"
    return f"{one_line(cause.reason)} ({cause.ids})"


def accepted_words(accepted: Accepted) -> str:
    """Return a finding that the project has accepted, in one line."""
    sentence = f"{accepted.finding.severity}, {about(accepted.finding)}"
    return f"{sentence} · {one_line(accepted.reason)}, until {accepted.until}"


def ceiling(measured: MeasuredLimit) -> str:
    """Return a measured limit in one line."""
    return f"{one_line(measured.says)} ({one_line(measured.source)})"


def details(check: Check, finding: CheckFinding, major: int | None, width: int | None = None) -> Iterator[str]:
    """Yield the reason, evidence and fix of a finding.

    Args:
        check: The check.
        finding: Its finding.
        major: Major version of the server.
        width: As for `lines`.
    """
    yield from _told("why", check.why, width)
    for number, evidence in enumerate(finding.evidence):
        yield from _told("" if number else "evidence", f"{evidence.says}  [{evidence.source}]", width)
    if finding.fix is not None:
        broken = width if finding.fix.language is Language.WORDS else None
        for label, text in (("fix", finding.fix.do), ("undo", finding.fix.undo)):
            for number, line in enumerate(text.splitlines()):
                # Blanks in a quoted name count: only unsafe characters of a command change.
                yield from _broken(f"{'' if number else label:<{_LABEL}} {printable(line)}", _LABEL + 1, broken)
        if finding.fix.remark:
            yield from _told("remark", finding.fix.remark, width)
    if finding.confidence is not CheckConfidence.HIGH:
        yield from _told("sure", finding.confidence, width)
    yield from _told("read", documentation(check, major), None)


def _row(kind: str, id_: str, text: str, width: int | None) -> list[str]:
    return _broken(f"{kind:<{_WIDTH}}  {id_:<{_ID}}  {one_line(text)}", _WIDTH + _ID + 4, width)


def _told(label: str, text: str, width: int | None) -> list[str]:
    return _broken(f"{label:<{_LABEL}} {one_line(text)}", _LABEL + 1, width)


def _broken(line: str, indent: int, width: int | None) -> list[str]:
    """Return a line in parts, the words below each other; a word that is longer than the width stays whole."""
    if width is None or len(line) <= max(width, _NARROWEST):
        return [line]
    return textwrap.wrap(
        line,
        max(width, _NARROWEST),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    )


# A report as Markdown, for a ticket or a pull request.

_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>#|~&!])")
_FENCES: Final = {Language.SQL: "sql", Language.SHELL: "sh", Language.CONFIGURATION: "ini"}
_TICKS: Final = re.compile(r"`+")


def markdown_lines(report: Report) -> list[str]:
    """Return the whole report as Markdown, worst first."""
    server = f", {_plain(report.server)}" if report.server else ""
    lines = [f"# Check of {_plain(report.target)}{server}", "", _plain(summary(report, everything=True))]
    lines += ["", *(f"- {_plain(line)}" for line in circumstances(report))]
    if report.findings:
        lines += ["", "| severity | check | found |", "|---|---|---|"]
        lines += [
            f"| {finding.severity} | {check.id} | {_plain(about(finding))} |" for check, finding in report.findings
        ]
    for check, finding in report.findings:
        lines += ["", *_section(check, finding, report.major)]
    if report.accepted:
        lines += ["", "## Accepted risks", ""]
        lines += ["| severity | check | found | accepted because | until |", "|---|---|---|---|---|"]
        for check, risk in report.accepted:
            cells = f"{_plain(about(risk.finding))} | {_plain(risk.reason)} | {risk.until}"
            lines.append(f"| {risk.finding.severity} | {check.id} | {cells} |")
    lines += _listed("Acceptances no longer valid", [f"{id_}: {_plain(reason)}" for id_, reason in report.lapsed])
    lines += _listed("Unknown", [f"{cause.short} {_plain(cause_words(cause))}" for cause in report.unknown_causes])
    passed = [result.check.id for result in report.results if result.outcome is CheckOutcome.PASSED]
    lines += _listed("Passed", [", ".join(passed)] if passed else [])
    lines += _listed("No longer found", [f"{id_} {_plain(sentence)}" for id_, sentence in report.gone_findings])
    lines += _proposed(report)
    measured = [_plain(ceiling(limit)) for limit in report.ceilings]
    return [
        *lines,
        *_listed("Measured", measured + [f"{id_}: {_plain(reason)}" for id_, reason in report.not_measured]),
    ]


def _proposed(report: Report) -> list[str]:
    proposal = report.proposal
    if proposal is None or isinstance(proposal, Unavailable) or not proposal.rows:
        return []
    rows = [f"| {' | '.join(map(_plain, cells))} |" for cells in proposal_cells(proposal)]
    heads = [f"| {' | '.join(PROPOSAL_HEADS)} |", "|---|---|---|---|---|---|"]
    memory = ["", *(f"- {_plain(line)}" for line in proposal.memory)]
    return ["", "## Proposal", "", *heads, *rows, *memory]


def _section(check: Check, finding: CheckFinding, major: int | None) -> Iterator[str]:
    yield f"## {check.id}: {_plain(about(finding))}"
    yield ""
    yield f"{_plain(check.why)} Severity {finding.severity}, confidence {finding.confidence}."
    yield ""
    for evidence in finding.evidence:
        yield f"- {_plain(evidence.says)} ({_plain(evidence.source)})"
    if finding.fix is not None:
        yield from _commands("Fix", finding.fix, finding.fix.do)
        yield from _commands("Undo", finding.fix, finding.fix.undo)
    yield ""
    yield f"[PostgreSQL's documentation]({documentation(check, major)})"


def _commands(label: str, action: Fix, text: str) -> Iterator[str]:
    if not text:
        return
    remark = f" ({_plain(action.remark)})" if action.remark and label == "Fix" else ""
    yield ""
    if action.language is Language.WORDS:
        yield f"{label}: {_plain(text)}"
        return
    # A fence must be longer than any run of backticks inside: names are foreign text.
    fence = "`" * max(3, 1 + max((len(run) for run in _TICKS.findall(text)), default=0))
    yield f"{label}{remark}:"
    yield ""
    yield f"{fence}{_FENCES[action.language]}"
    yield from (printable(line) for line in text.splitlines())
    yield fence


def _listed(heading: str, items: list[str]) -> list[str]:
    return ["", f"## {heading}", "", *(f"- {item}" for item in items)] if items else []


def _plain(text: str) -> str:
    """Return foreign text on one line, so that nothing in it is taken for Markdown or HTML."""
    return _SPECIAL.sub(r"\\\1", one_line(text))
