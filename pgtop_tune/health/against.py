"""Reads the file of --against: findings of an earlier check, or the first and last frames of a recording.

A recording has no answers of databases and no settings of the machine; checks that need them are unknown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import RecordingProblem, UsageProblem
from pgtop_tune.base.paths import content_of, opened
from pgtop_tune.health.check import Severity
from pgtop_tune.health.facts import NOT_IN_RECORDING, CheckFacts
from pgtop_tune.health.formats.writers import FORMAT
from pgtop_tune.health.report import SYSTEM_IDENTIFIER, CheckResult, Report
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.setup import Measured, MeasuredLimit
from pgtop_tune.recording.compression import packing_of
from pgtop_tune.recording.format import FORMAT as RECORDING

_T = TypeVar("_T")
_LONGEST: Final = 64 * 1024 * 1024
_HEAD: Final = 64 * 1024
_LIMIT_KEYS: Final = ("id", "says", "value", "unit", "source")


class Former(Struct, frozen=True):
    """Findings of a former check.

    Attributes:
        name: Name of the file. Foreign text.
        target, system_identifier: Address and identifier of the server; "" where the report does not say. Foreign text.
        findings: (check id, subject) → severity and what it said. Foreign text.
        unknown: Ids of checks that could not see something then.
    """

    name: str
    findings: Mapping[tuple[str, str], tuple[Severity, str]]
    unknown: frozenset[str] = frozenset()
    target: str = ""
    system_identifier: str = ""

    def named_for(self, report: Report) -> str:
        """Return the name of the file, with its server where that is another one than the report's."""
        now = dict(report.identity).get(SYSTEM_IDENTIFIER, "")
        another = self.system_identifier and now and self.system_identifier != now
        return f"{self.name}, a check of another server ({self.target})" if another else self.name


def is_recording(path: Path) -> bool:
    """Return whether a file is a recording, or packed as recordings are; every other file is taken for a report.

    Raises:
        UsageProblem: The report cannot be read.
    """
    try:
        with opened(path) as file:
            head = file.read(_HEAD)
    except OSError as problem:
        raise UsageProblem(
            f"{path} cannot be read: {problem.strerror}", "--against takes a report or a recording"
        ) from None
    if packing_of(head) is not None:
        return True
    first = head.split(b"\n", 1)[0]
    return RECORDING.encode() in first and FORMAT.encode() not in first


def read_former_check(path: Path) -> Former:
    """Return the findings of a report that `--format json` has written.

    Raises:
        UsageProblem: The file is no such report.
    """

    def read(document: Mapping[str, Any]) -> Former:
        return Former(
            name=str(path),
            findings={
                (finding["check"], finding["subject"]): (Severity(finding["severity"]), str(finding["says"]))
                for finding in document["findings"]
            },
            unknown=frozenset(str(unknown["check"]) for unknown in document["unknown"]),
            target=str(document["target"]),
            system_identifier=str(document.get("identity", {}).get(SYSTEM_IDENTIFIER, "")),
        )

    return _read(path, read, "neither a report nor a recording", "write one with `check --format json > FILE`")


def read_measured_limits(path: Path) -> Measured:
    """Return the limits that `check --measure --format json` has written.

    Raises:
        UsageProblem: The file is no such report, or nothing was measured in it.
    """
    hint = "write one with `check --measure --format json > FILE`"

    def read(document: Mapping[str, Any]) -> tuple[tuple[MeasuredLimit, ...], Any]:
        rows = (MeasuredLimit(*(row[name] for name in _LIMIT_KEYS)) for row in document["ceilings"])
        return tuple(rows), document["at_ms"]

    rows, at_ms = _read(path, read, "not a report", hint)
    if not rows or not all(type(row.value) in (int, float) for row in rows) or type(at_ms) is not int:
        raise UsageProblem(f"{path} contains no measured limits", hint)
    return Measured(rows, at_ms=at_ms)


def _read(path: Path, read: Callable[[Mapping[str, Any]], _T], otherwise: str, hint: str) -> _T:
    """Return what a function reads from a report.

    Args:
        otherwise: Words for a file that the function cannot read: "not a report".
        hint: Command that makes such a file.

    Raises:
        UsageProblem: The file cannot be read, or is no report.
    """
    try:
        document = json.loads(content_of(path, _LONGEST))
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']!r}, not {FORMAT!r}")
        return read(document)
    except OSError as problem:
        raise UsageProblem(f"{path} cannot be read: {problem.strerror}", "check its name and permissions") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise UsageProblem(f"{path} is {otherwise}: {_why(problem)}", hint) from None


def _why(problem: Exception) -> str:
    """Return why parsed bytes are no report, without the words of Python."""
    if isinstance(problem, UnicodeDecodeError):
        return "it is not text"
    return str(problem) if isinstance(problem, ValueError) else "it lacks the fields of a report"


def only_new(report: Report, former: Former, near: Set[tuple[str, str]] = frozenset()) -> Report:
    """Return the report without findings that the former check had at the same severity or a worse one.

    Its findings that have disappeared are `gone_findings`, unless their check is unknown now.

    Args:
        near: (check id, subject) of values just beside a limit: a finding that comes and goes there is not gone.
    """
    results: list[CheckResult] = []
    n_known = 0
    there: set[tuple[str, str]] = set()
    complete: set[str] = set()
    for result in report.results:
        there |= {(result.check.id, finding.subject) for finding in result.findings}
        there |= {(result.check.id, accepted.finding.subject) for accepted in result.accepted}
        if not result.unknowns:
            complete.add(result.check.id)
        new = tuple(
            finding
            for finding in result.findings
            if (before := former.findings.get((result.check.id, finding.subject))) is None
            or before[0].rank < finding.severity.rank
        )
        n_known += len(result.findings) - len(new)
        results.append(replace(result, findings=new, n_known=len(result.findings) - len(new)))
    missing = {
        key: sentence for key, (_, sentence) in former.findings.items() if key not in there and key[0] in complete
    }
    gone_findings = tuple((id_, sentence) for (id_, subject), sentence in missing.items() if (id_, subject) not in near)
    still = len(missing) - len(gone_findings)
    return replace(
        report,
        results=tuple(results),
        compared_with=former.named_for(report),
        n_known=n_known + still,
        gone_findings=gone_findings,
    )


def recorded_facts(path: Path) -> CheckFacts:
    """Return the facts of a recording: its first frame with the server, and its last.

    Raises:
        RecordingProblem: It cannot be read, or never saw the server.
    """
    from pgtop_tune.recording.reader import RecordingReader

    reader = RecordingReader(path)
    first: Frame | None = None
    last: Frame | None = None
    reason = "it has no frames"
    try:
        for _, frame in reader.frames():
            sample = sections.parameters(frame)
            if isinstance(sample, Unavailable):
                reason = str(sample)
            else:
                first, last = first or frame, frame
        target = reader.header.target
    finally:
        reader.close()
    if first is None or last is None:
        raise RecordingProblem(f"{path} contains no parameters: {reason}")
    frames = (first,) if first is last else (first, last)
    return CheckFacts(
        frames,
        NOT_IN_RECORDING,
        unanswered=NOT_IN_RECORDING,
        measured=NOT_IN_RECORDING,
        described=f"{target} in {path}",
    )
