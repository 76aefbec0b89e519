"""Several looks of a check at one server, as one report: what only load shows is in some of them. Pure."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.health.check import Check, Evidence, Finding
from pgtop_tune.health.report import Report, Result

_SOURCE = "check --watch"


class _Seen(Struct):
    """A finding of some looks: the worst of them, the newest of those."""

    check: Check
    finding: Finding
    looks: int = 0


class Looks:
    """What the looks have found so far.

    Attributes:
        count: Looks.
    """

    def __init__(self) -> None:
        self.count = 0
        self._seen: dict[tuple[str, str], _Seen] = {}
        self._unknown: dict[str, int] = {}
        self._newest: Report | None = None
        self._before: frozenset[tuple[str, str]] = frozenset()

    def take(self, report: Report) -> tuple[list[tuple[Check, Finding]], list[tuple[Check, Finding]]]:
        """One look; findings that the look before did not have, and those that it had alone."""
        self.count += 1
        self._newest = report
        now: set[tuple[str, str]] = set()
        for check, finding in report.findings:
            key = check.id, finding.subject
            now.add(key)
            seen = self._seen.setdefault(key, _Seen(check, finding))
            seen.looks += 1
            if finding.severity.rank >= seen.finding.severity.rank:
                seen.finding = finding
        for result in report.results:
            if result.unknowns:
                self._unknown[result.check.id] = self._unknown.get(result.check.id, 0) + 1
        new, gone = now - self._before, self._before - now
        self._before = frozenset(now)
        return [self._pair(key) for key in sorted(new)], [self._pair(key) for key in sorted(gone)]

    def _pair(self, key: tuple[str, str]) -> tuple[Check, Finding]:
        return self._seen[key].check, self._seen[key].finding

    def together(self) -> Report:
        """The newest look with the findings of all; unknown is what each look could not see.

        Raises:
            ValueError: There was none.
        """
        if self._newest is None:
            raise ValueError("no look was taken")
        return replace(self._newest, results=tuple(map(self._result, self._newest.results)))

    def _result(self, result: Result) -> Result:
        id_ = result.check.id
        found = [seen for (check, _), seen in self._seen.items() if check == id_]
        findings = sorted(
            (replace(seen.finding, evidence=(*seen.finding.evidence, self._evidence(seen))) for seen in found),
            key=lambda finding: -finding.severity.rank,
        )
        unknowns = result.unknowns if self._unknown.get(id_, 0) == self.count else ()
        return replace(result, findings=tuple(findings), unknowns=unknowns)

    def _evidence(self, seen: _Seen) -> Evidence:
        return Evidence(f"seen in {seen.looks} of {self.count} looks", _SOURCE)
