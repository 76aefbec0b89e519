"""One look of the check over a live session: gathers, measures where that is asked for, and judges."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Self

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.health.accepting import AcceptedRisk, with_accepted
from pgtop_tune.health.check import Check, Limits, Threshold
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.gather import gather
from pgtop_tune.health.judge import judge
from pgtop_tune.health.measure import busy, keep, measure
from pgtop_tune.health.project_file import ProjectWishes, project_wishes
from pgtop_tune.health.proposing import proposed_values
from pgtop_tune.health.registry import CHECKS, by_id, chosen, limit_words, thresholds
from pgtop_tune.health.report import Report
from pgtop_tune.health.told import NOTHING_TOLD, Told
from pgtop_tune.host.source_names import HostSource
from pgtop_tune.model.pooler import PoolerAddress
from pgtop_tune.postgres.server.conninfo import ConnInfo

_BESIDE: Final = 0.1
"""Of a limit."""


class Wanted(Struct, frozen=True):
    """What is to be checked, and how.

    Attributes:
        limits: Of the checks, by id.
        accept: What the project has signed for.
        proposes: Whether the report ends with a proposal.
        told: What is said of a machine that cannot be seen.
    """

    checks: tuple[Check, ...]
    limits: Mapping[str, Limits]
    accept: tuple[AcceptedRisk, ...] = ()
    proposes: bool = False
    told: Told = NOTHING_TOLD

    @classmethod
    def of(cls, wishes: ProjectWishes, *, proposes: bool = False, told: Told = NOTHING_TOLD) -> Self:
        """Of a project's wishes, with what the command line has changed of them.

        Raises:
            UsageProblem: The choice of checks, a threshold, or the check of an acceptance is wrong.
        """
        for risk in wishes.accept:
            by_id(risk.check)
        return cls(chosen(wishes.select, wishes.ignore), thresholds(wishes.thresholds), wishes.accept, proposes, told)

    @classmethod
    def by_project(cls) -> Self:
        """As the file in the working directory has it. Raises as `of`."""
        return cls.of(project_wishes())

    def judged(self, facts: CheckFacts) -> Report:
        """The report."""
        return with_accepted(self.found(facts), self.accept)

    def found(self, facts: CheckFacts) -> Report:
        """The report, with what is accepted still among the findings."""
        changed = tuple(self._changed(facts))
        facts = self.told.of(facts)
        made = {check.id for check in self.checks}
        report = replace(
            judge(self.checks, facts, self.limits),
            left_out=tuple(check.id for check in CHECKS if check.id not in made),
            changed=changed,
        )
        if not self.proposes:
            return report
        standing = with_accepted(report, self.accept).findings
        return replace(report, proposal=proposed_values(facts, standing))

    def _changed(self, facts: CheckFacts) -> Iterator[tuple[str, str]]:
        """What makes it another check than the one without options, besides the choice of checks."""
        limits = [
            f"{check.id}.{each.name} is {limit_words(each, self._limit(check, each))} ({limit_words(each)})"
            for check in self.checks
            for each in check.thresholds
            if self._limit(check, each) != each.default
        ]
        if limits:
            yield "changed limits", ", ".join(limits)
        if words := self.told.words(facts):
            yield "the operator's words on the machine", words

    def near(self, facts: CheckFacts) -> frozenset[tuple[str, str]]:
        """(check id, subject) of what would be found if each limit were a tenth lower, or a tenth higher."""
        found: set[tuple[str, str]] = set()
        checks = [check for check in self.checks if check.thresholds]
        for factor in (1.0 - _BESIDE, 1.0 + _BESIDE):
            limits = {
                check.id: {each.name: factor * self._limit(check, each) for each in check.thresholds}
                for check in checks
            }
            report = judge(checks, self.told.of(facts), limits)
            found |= {(check.id, finding.subject) for check, finding in report.findings}
        return frozenset(found)

    def _limit(self, check: Check, threshold: Threshold) -> float:
        return self.limits.get(check.id, {}).get(threshold.name, threshold.default)


class Looking(Struct, frozen=True):
    """See `CheckControl`; checks as `pgtop-tune check` does without options, with what the project wishes.

    Attributes:
        conninfo: The server.
        poolers: Admin consoles to look at.
        host_source: Where numbers of this machine come from.
    """

    conninfo: ConnInfo
    poolers: Sequence[PoolerAddress]
    host_source: HostSource

    async def check(self) -> Report:
        """See `CheckControl.check`."""
        wanted = await asyncio.to_thread(Wanted.by_project)
        return await asyncio.to_thread(wanted.judged, await self._gathered(wanted))

    async def measure(self, *, anyway: bool) -> Report | tuple[str, ...]:
        """See `CheckControl.measure`."""
        wanted = await asyncio.to_thread(Wanted.by_project)
        facts = await self._gathered(wanted)
        disturbs = busy(facts)
        if disturbs and not anyway:
            return disturbs
        measured = await measure(self.conninfo, facts)
        await asyncio.to_thread(keep, facts, measured)
        # Frames are sampled in the caller's loop: it is judged beside it.
        return await asyncio.to_thread(wanted.judged, replace(facts, measured=measured))

    async def _gathered(self, wanted: Wanted) -> CheckFacts:
        return await gather(self.conninfo, wanted.checks, poolers=self.poolers, host_source=self.host_source)
