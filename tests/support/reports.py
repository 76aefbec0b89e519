"""Made-up reports of the check, and a control that hands them out."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from msgspec.structs import replace

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.health.check import Check, CheckFinding, Evidence, Fix, Language, Severity, Unknown
from pgtop_tune.health.report import CheckResult, Report
from pgtop_tune.model.setup import MeasuredLimit

HOSTILE = "idx\x1b[31m"


def check_row(id_: str, group: str = "memory") -> Check:
    return Check(
        id_, group, f"title of {id_}", f"Why {id_} matters.", "page.html", (), lambda facts, limits: (), Severity.HIGH
    )


def sets(name: str, value: str, severity: Severity, says: str, remark: str = "") -> CheckFinding:
    """A finding that one parameter mends."""
    fix = Fix(f"ALTER SYSTEM SET {name} = '{value}';", f"ALTER SYSTEM RESET {name};", remark=remark,
                 parameter=(name, value))  # fmt: skip
    return CheckFinding(says, (Evidence(f"{name} is small", "pg_settings.setting"),), severity, fix)


def report(*results: CheckResult) -> Report:
    return Report(1_790_000_000_000, "bench@/run", "PostgreSQL 18.6", 18, results)


def typical() -> Report:
    """A little of everything; worst is not first in the order of the registry."""
    drop = Fix(f'DROP INDEX "{HOSTILE}";', "-- nothing to revert", Language.SQL, 'in database "bench"')
    return report(
        CheckResult(check_row("MEM-04"), (sets("work_mem", "8MB", Severity.WARNING, "sorts go to disk"),)),
        CheckResult(
            check_row("MEM-02"),
            (
                sets("shared_buffers", "4GB", Severity.HIGH, "shared_buffers is 0.5 % of the memory",
                     "takes effect with a restart"),
            ),
        ),
        CheckResult(check_row("WAL-01"), (sets("max_wal_size", "4GB", Severity.CRITICAL, "WAL is short"),)),
        CheckResult(check_row("IDX-01"), (CheckFinding(f"{HOSTILE} was never used", (), Severity.INFO, drop),)),
        CheckResult(check_row("KEY-01"), (CheckFinding("people have to decide", (), Severity.INFO),)),
        CheckResult(check_row("OS-01"), unknowns=(Unknown("the machine was not seen"),)),
        CheckResult(check_row("OS-02")),
    )  # fmt: skip


@dataclass
class ScriptedCheck:
    """A `CheckControl` that says what it is told to.

    Attributes:
        says: The report, or what it fails with.
        waits: Whether it holds its answer back until it may go.
        looks: How often it was asked.
        disturbs: What a measurement would disturb.
        measured: Whether each measurement was to be made anyway.
    """

    says: Report | PgtopError = field(default_factory=report)
    waits: bool = False
    looks: int = 0
    disturbs: tuple[str, ...] = ()
    measured: list[bool] = field(default_factory=list)

    async def measure(self, *, anyway: bool) -> Report | tuple[str, ...]:
        self.measured.append(anyway)
        if self.disturbs and not anyway:
            return self.disturbs
        if isinstance(self.says, PgtopError):
            raise self.says
        flushes = MeasuredLimit("wal-flushes", "the WAL device flushes 1940 times a second", 1940.0, "1/s", "ours")
        return replace(self.says, ceilings=(flushes,), not_measured=(("timer", "no pg_test_timing"),))

    async def check(self) -> Report:
        self.looks += 1
        while self.waits:
            await asyncio.sleep(0.01)
        if isinstance(self.says, PgtopError):
            raise self.says
        return self.says
