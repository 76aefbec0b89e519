"""A report as Markdown, for a ticket or a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pgtop_tune.health.check import Check, Finding, Fix, Language
from pgtop_tune.health.formats.text import about, ceiling, summary
from pgtop_tune.health.report import CheckOutcome, Report, documentation
from pgtop_tune.safe_text import one_line, printable

_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>#|~&!])")
_FENCES: Final = {Language.SQL: "sql", Language.SHELL: "sh", Language.CONFIGURATION: "ini"}
_TICKS: Final = re.compile(r"`+")


def lines(report: Report) -> list[str]:
    """The whole report, worst first."""
    server = f", {_plain(report.server)}" if report.server else ""
    found = [f"# Check of {_plain(report.target)}{server}", "", _plain(summary(report, everything=True))]
    if report.findings:
        found += ["", "| severity | check | found |", "|---|---|---|"]
        found += [
            f"| {finding.severity} | {check.id} | {_plain(about(finding))} |" for check, finding in report.findings
        ]
    for check, finding in report.findings:
        found += ["", *_section(check, finding, report.major)]
    found += _listed(
        "Unknown", [f"{check.id} {_plain(check.title)}: {_plain(each.reason)}" for check, each in report.unknowns]
    )
    passed = [result.check.id for result in report.results if result.outcome is CheckOutcome.PASSED]
    found += _listed("Passed", [", ".join(passed)] if passed else [])
    found += _listed("No longer found", [f"{id_} {_plain(said)}" for id_, said in report.gone])
    measured = [_plain(ceiling(each)) for each in report.ceilings]
    return [*found, *_listed("Measured", measured + [f"{id_}: {_plain(why)}" for id_, why in report.not_measured])]


def _section(check: Check, finding: Finding, major: int | None) -> Iterator[str]:
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
    """Foreign text on one line, so that nothing in it is taken for Markdown or HTML."""
    return _SPECIAL.sub(r"\\\1", one_line(text))
