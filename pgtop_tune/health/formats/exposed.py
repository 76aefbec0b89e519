"""A report as OpenMetrics, for a textfile collector: a sample for each finding, with the check's id. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pgtop_tune.export.exported import Exported, ExportedPoint, MetricKind
from pgtop_tune.export.openmetrics import END, Syntax, distinct, head, line
from pgtop_tune.health.report import Report


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
    "check_finding", "A finding of the check, accepted ones apart.", ("target", "check", "severity", "subject")
)
_ACCEPTED: Final = _family(
    "check_accepted",
    "A finding that the project has signed for.",
    ("target", "check", "severity", "subject", "until", "reason"),
)
_LAPSED: Final = _family(
    "check_acceptance_lapsed", "An acceptance that is over, or covers nothing.", ("target", "check", "says")
)
_OUTCOME: Final = _family(
    "check_outcome", "How a check ended: 1 for its outcome, found, unknown or passed.", ("target", "check", "outcome")
)
_TIME: Final = _family("check_time_seconds", "When the server was checked, since the epoch.", ("target",), "s")


def openmetrics_lines(report: Report) -> list[str]:
    """The page."""
    target = report.target
    found = [
        ExportedPoint((target, check.id, finding.severity.value, finding.subject), 1.0)
        for check, finding in report.findings
    ]
    accepted = [
        ExportedPoint(
            (
                target,
                check.id,
                each.finding.severity.value,
                each.finding.subject,
                each.until.isoformat(),
                each.reason,
            ),
            1.0,
        )
        for check, each in report.accepted
    ]
    lapsed = [ExportedPoint((target, id_, why), 1.0) for id_, why in report.lapsed]
    outcomes = [ExportedPoint((target, each.check.id, each.outcome.value), 1.0) for each in report.results]
    time = [ExportedPoint((target,), report.at_ms / 1000.0)]
    families = ((_FINDING, found), (_ACCEPTED, accepted), (_LAPSED, lapsed), (_OUTCOME, outcomes), (_TIME, time))
    return [text.rstrip("\n") for row, points in families for text in _written(row, points)] + [END.rstrip("\n")]


def _written(row: Exported, points: list[ExportedPoint]) -> Iterator[str]:
    if points:
        yield from head(row, Syntax.OPENMETRICS).splitlines()
        for point in distinct(points):
            yield line(row, point)
