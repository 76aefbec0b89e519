"""The choices of a check: rows, limits, accepted risks, and the operator's words on a hidden machine. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Self

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.units import about
from pgtop_tune.health.check import Check, Limits, Threshold
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.judge import judge
from pgtop_tune.health.project_file import AcceptedRisk, ProjectWishes, project_wishes, with_accepted
from pgtop_tune.health.proposals import proposed_values
from pgtop_tune.health.registry import CHECKS, by_id, chosen, limit_words, thresholds
from pgtop_tune.health.report import Report
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import HostFacts, HostSample
from pgtop_tune.model.machine import DiskKind, Workload

_SOURCE = "as the operator says"


class OperatorClaims(Struct, frozen=True):
    """Claims of the operator; None where there is none.

    Attributes:
        memory_bytes, cpus: Memory and CPUs of the server's machine; both or neither.
    """

    memory_bytes: int | None = None
    cpus: int | None = None
    disk: DiskKind | None = None
    workload: Workload | None = None

    def words(self, facts: CheckFacts) -> str:
        """Return the claims that count for these facts, in one line; "" without any."""
        is_needless = self.memory_bytes is None or not isinstance(sections.machine(facts.frames[-1]), Unavailable)
        machine = () if is_needless else (f"{about(self.memory_bytes or 0)} of memory", f"{self.cpus} CPUs")
        disk = () if self.disk is None else (f"data on {self.disk.value}",)
        workload = () if self.workload is None else (f"workload {self.workload.value}",)
        return ", ".join((*machine, *disk, *workload))

    def of(self, facts: CheckFacts) -> CheckFacts:
        """Return the facts with the claims: memory and CPUs only where the machine was not seen."""
        changed = replace(facts, disk=self.disk, workload=self.workload)
        if self.memory_bytes is None or self.cpus is None:
            return changed
        host_facts = HostFacts(
            hostname="",
            kernel="",
            source=_SOURCE,
            boot_id="",
            cpu_count=self.cpus,
            ticks_per_s=100,
            page_size_bytes=4096,
            memory_bytes=self.memory_bytes,
        )
        return replace(changed, frames=tuple(_with(frame, host_facts) for frame in facts.frames))


NOTHING_TOLD = OperatorClaims()


def _with(frame: Frame, host_facts: HostFacts) -> Frame:
    if isinstance(frame.host, Unavailable):
        return replace(frame, host=HostSample(facts=host_facts))
    if isinstance(frame.host.facts, Unavailable):
        return replace(frame, host=replace(frame.host, facts=host_facts))
    return frame


_NEAR_SHARE: Final = 0.1
"""Share of a limit by which a value still stands beside it."""


class CheckSetup(Struct, frozen=True):
    """Choices of a check.

    Attributes:
        limits: Limits of the checks, by id.
        accept: Risks that the project has accepted.
        proposes: Whether the report ends with a proposal.
        told: Claims about a machine that cannot be seen.
    """

    checks: tuple[Check, ...]
    limits: Mapping[str, Limits]
    accept: tuple[AcceptedRisk, ...] = ()
    proposes: bool = False
    told: OperatorClaims = NOTHING_TOLD

    @classmethod
    def of(cls, wishes: ProjectWishes, *, proposes: bool = False, told: OperatorClaims = NOTHING_TOLD) -> Self:
        """Return the choices of a project, with those of the command line.

        Raises:
            UsageProblem: The choice of checks, a threshold, or the check of an acceptance is wrong.
        """
        for risk in wishes.accept:
            by_id(risk.check)
        return cls(chosen(wishes.select, wishes.ignore), thresholds(wishes.thresholds), wishes.accept, proposes, told)

    @classmethod
    def by_project(cls) -> Self:
        """Return the choices of the file in the working directory. Raises as `of`."""
        return cls.of(project_wishes())

    def judged(self, facts: CheckFacts) -> Report:
        """Return the report with accepted findings apart."""
        return with_accepted(self.found(facts), self.accept)

    def found(self, facts: CheckFacts) -> Report:
        """Return the report with accepted findings among the others."""
        changed = tuple(self._changed(facts))
        facts = self.told.of(facts)
        check_ids = {check.id for check in self.checks}
        report = replace(
            judge(self.checks, facts, self.limits),
            left_out=tuple(check.id for check in CHECKS if check.id not in check_ids),
            changed=changed,
        )
        if not self.proposes:
            return report
        standing = with_accepted(report, self.accept).findings
        return replace(report, proposal=proposed_values(facts, standing))

    def _changed(self, facts: CheckFacts) -> Iterator[tuple[str, str]]:
        """Yield the choices, besides those of checks, that differ from the check without options."""
        limits = [
            f"{check.id}.{threshold.name} is {limit_words(threshold, value)} ({limit_words(threshold)})"
            for check in self.checks
            for threshold in check.thresholds
            if (value := self._limit(check, threshold)) != threshold.default
        ]
        if limits:
            yield "changed limits", ", ".join(limits)
        if text := self.told.words(facts):
            yield "the operator's words on the machine", text

    def near(self, facts: CheckFacts) -> frozenset[tuple[str, str]]:
        """Return (check id, subject) of each finding with limits a tenth lower, or a tenth higher."""
        keys: set[tuple[str, str]] = set()
        checks = [check for check in self.checks if check.thresholds]
        for factor in (1.0 - _NEAR_SHARE, 1.0 + _NEAR_SHARE):
            limits = {
                check.id: {threshold.name: factor * self._limit(check, threshold) for threshold in check.thresholds}
                for check in checks
            }
            report = judge(checks, self.told.of(facts), limits)
            keys |= {(check.id, finding.subject) for check, finding in report.findings}
        return frozenset(keys)

    def _limit(self, check: Check, threshold: Threshold) -> float:
        return self.limits.get(check.id, {}).get(threshold.name, threshold.default)
