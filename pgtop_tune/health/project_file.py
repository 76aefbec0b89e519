"""A project's configuration of the check: `pgtop-tune.toml` in the working directory.

[check]
select = ["MEM", "disks"]
ignore = ["OS-07"]
fail_on = "high"

[check.thresholds]
MEM-01 = 95
SLOT-01 = "2GB"
"MEM-01.high" = 120

[[check.accept]]
check = "DISK-07"
subject = "*"
reason = "one disk until the new server is here"
until = 2027-01-31
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.paths import NotOurs, content_of
from pgtop_tune.base.toml_text import NotToml, tables_of, toml_source
from pgtop_tune.health.check import CheckFinding
from pgtop_tune.health.report import Accepted, CheckResult, Report

FILE_NAME: Final = "pgtop-tune.toml"
_TABLE: Final = "check"
_WORDS: Final = ("info", "warning", "high", "critical", "never")


class ProjectWishes(Struct, frozen=True):
    """Contents of the file; options on the command line win.

    Attributes:
        select, ignore: Values of --select and --ignore.
        fail_on: Value of --fail-on; "" where the file has none.
        thresholds: As --threshold: "MEM-01=95".
        accept: Findings that the project has signed for.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    fail_on: str = ""
    thresholds: tuple[str, ...] = ()
    accept: tuple[AcceptedRisk, ...] = ()


def project_wishes(path: Path | None = None) -> ProjectWishes:
    """Read the project's file; return empty wishes where there is none.

    Args:
        path: Another file than the one in this directory; it has to be there.

    Raises:
        UsageProblem: It cannot be read, says something it cannot mean, or was found here and others could have written
            it; names every mistake.
    """
    file = path or Path(FILE_NAME)
    try:
        parsed = tables_of(toml_source(content_of(file, own_by="" if path else f"name it: --config {FILE_NAME}")))
    except NotOurs as refused:
        raise UsageProblem(str(refused), refused.hint) from None
    except FileNotFoundError:
        if path is None:
            return ProjectWishes()
        raise UsageProblem(f"{file} does not exist", "--config takes the path of a file") from None
    except OSError as problem:
        raise UsageProblem(f"{file} cannot be read: {problem.strerror}", "check its name and permissions") from None
    except NotToml as problem:
        raise UsageProblem(f"{file} is not TOML: {problem}") from None
    table = parsed.get(_TABLE, {})
    mistakes = [f"unknown table or key {name!r}" for name in parsed if name != _TABLE]
    if isinstance(table, dict):
        mistakes += [f"unknown key {name!r} in [check]" for name in table if name not in _KEYS]
        mistakes += [
            f"{name}: {expectation}"
            for name, expectation in _KEYS.items()
            if name in table and not _FITS[name](table[name])
        ]
    else:
        mistakes.append("check must be a table")
    if isinstance(table, dict) and _tables(table.get("accept", [])):
        mistakes += [
            f"[[check.accept]] number {number}: {reason}"
            for number, entry in enumerate(table.get("accept", []), start=1)
            if (reason := _not_an_acceptance(entry))
        ]
    if mistakes:
        raise UsageProblem(f"{file}: {'; '.join(mistakes)}", f"[check] takes {', '.join(_KEYS)}")
    check_table: Mapping[str, Any] = table
    return ProjectWishes(
        select=tuple(check_table.get("select", ())),
        ignore=tuple(check_table.get("ignore", ())),
        fail_on=check_table.get("fail_on", ""),
        thresholds=tuple(f"{name}={value}" for name, value in check_table.get("thresholds", {}).items()),
        accept=tuple(
            AcceptedRisk(
                check=entry["check"].strip().upper(),
                subject=entry.get("subject", "*"),
                reason=entry["reason"].strip(),
                until=entry["until"],
            )
            for entry in check_table.get("accept", ())
        ),
    )


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _numbers(value: object) -> bool:
    return isinstance(value, dict) and all(_number(item) for item in value.values())


def _number(value: object) -> bool:
    """Return whether a value is a number, or a text that begins as one: "2GB"."""
    return type(value) in (int, float) or (isinstance(value, str) and value[:1].isdecimal())


_ACCEPT: Final = ("check", "subject", "reason", "until")


def _tables(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _not_an_acceptance(entry: Mapping[str, Any]) -> str:
    """Return why an entry is no acceptance; "" where it is one. It takes a reason and a last day."""
    if unknown := [name for name in entry if name not in _ACCEPT]:
        return f"unknown key {unknown[0]!r}; allowed are {', '.join(_ACCEPT)}"
    for name in ("check", "reason"):
        if not isinstance(entry.get(name), str) or not entry[name].strip():
            return f"{name} is missing"
    if not isinstance(entry.get("subject", "*"), str):
        return "subject: expected a quoted pattern"
    until = entry.get("until")
    # In Python a datetime is a date, too.
    return (
        ""
        if isinstance(until, date) and not isinstance(until, datetime)
        else "until: expected a day such as 2027-01-31"
    )


_KEYS: Final[Mapping[str, str]] = {
    "select": "expected a list of quoted checks",
    "ignore": "expected a list of quoted checks",
    "fail_on": f"expected one of {', '.join(_WORDS)}",
    "thresholds": 'expected a table of ID = number or "2GB", IDs with a dot in quotes ("MEM-01.high" = 120)',
    "accept": "expected tables [[check.accept]] with check, reason, until",
}
_FITS: Final[Mapping[str, Any]] = {
    "select": _texts,
    "ignore": _texts,
    "fail_on": lambda value: value in _WORDS,
    "thresholds": _numbers,
    "accept": _tables,
}


class AcceptedRisk(Struct, frozen=True):
    """An entry of the project's file.

    Attributes:
        check: Id: "DISK-07".
        subject: Pattern of what a finding is about, or one of its objects: "bench public.*"; "*" matches
            every finding of the check.
        reason: Why it is accepted.
        until: The last day.
    """

    check: str
    subject: str
    reason: str
    until: date

    def covers(self, check: str, finding: CheckFinding) -> bool:
        """Return whether the entry covers all of this finding, whatever the day."""
        return self.check == check and fnmatchcase(finding.subject, self.subject)

    def covers_some(self, check: str, finding: CheckFinding) -> tuple[str, ...]:
        """Return the single objects of this finding that the entry covers, whatever the day."""
        if self.check != check or finding.objects is None:
            return ()
        return tuple(name for name in finding.objects.names if fnmatchcase(name, self.subject))


def with_accepted(report: Report, risks: Sequence[AcceptedRisk]) -> Report:
    """Return the report with accepted findings apart; it lists entries that have ended or cover nothing."""
    today = datetime.fromtimestamp(report.at_ms / 1000.0).astimezone().date()
    results = tuple(_divided(result, [risk for risk in risks if risk.until >= today]) for result in report.results)
    pairs = [(result.check.id, finding) for result in report.results for finding in result.findings]
    # A check with unknown parts may have missed the finding.
    saw_all = {result.check.id for result in report.results if not result.unknowns}
    lapsed = []
    for risk in risks:
        covers = any(risk.covers(check, finding) or risk.covers_some(check, finding) for check, finding in pairs)
        if covers and risk.until < today:
            lapsed.append((risk.check, f"accepted only until {risk.until}: {risk.reason}"))
        elif not covers and risk.check in saw_all:
            about = "" if risk.subject == "*" else f" of {risk.subject!r}"
            lapsed.append((risk.check, f"the acceptance{about} covers no finding: remove it from the file"))
    return replace(report, results=results, lapsed=tuple(lapsed))


def _divided(result: CheckResult, risks: Sequence[AcceptedRisk]) -> CheckResult:
    findings: list[CheckFinding] = []
    accepted: list[Accepted] = []
    for finding in result.findings:
        risk = next((candidate for candidate in risks if candidate.covers(result.check.id, finding)), None)
        if risk is not None:
            accepted.append(Accepted(finding, risk.reason, risk.until))
            continue
        parts, remaining = _by_object(result.check.id, finding, risks)
        accepted += parts
        findings += [] if remaining is None else [remaining]
    return replace(result, findings=tuple(findings), accepted=tuple(accepted))


def _by_object(
    check: str, finding: CheckFinding, risks: Sequence[AcceptedRisk]
) -> tuple[list[Accepted], CheckFinding | None]:
    """Return the accepted parts of a finding about several objects, and the finding about the others, if any."""
    of_risk = {risk: risk.covers_some(check, finding) for risk in reversed(risks)}
    by_name = {name: risk for risk, names in of_risk.items() for name in names}
    objects = finding.objects
    if objects is None or not by_name:
        return [], finding
    parts = [
        Accepted(
            objects.about([name for name, of_name in by_name.items() if of_name is risk], 0), risk.reason, risk.until
        )
        for risk in risks
        if risk in by_name.values()
    ]
    other_names = [name for name in objects.names if name not in by_name]
    if not other_names and not objects.unlisted:
        return parts, None
    remaining, number = objects.about(other_names, objects.unlisted), len(objects.names) + objects.unlisted
    says = f"{remaining.says}; {len(by_name)} of {number} accepted"
    # The subject keeps it the same finding for a later check.
    return parts, replace(remaining, says=says, subject=finding.subject)
