"""What `check` does for one server: looks, measures where that is asked for, and looks again for a while."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Final

import typer
from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem, UsageProblem
from pgtop_tune.base.units import wall_clock
from pgtop_tune.changes.confirm.orphans import leave_watchdogs
from pgtop_tune.changes.machine.control import HostControl
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.cli.connecting import ConnectionWords
from pgtop_tune.cli.live_options import pooler_addresses
from pgtop_tune.cli.looking import let_in
from pgtop_tune.cli.output import complain, tell
from pgtop_tune.health.against import former_check, is_recording, only_new, recorded_facts
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.formats.for_people import about
from pgtop_tune.health.gather import gather
from pgtop_tune.health.looking import Wanted
from pgtop_tune.health.measure import LIMIT_S, busy, keep, measure
from pgtop_tune.health.project_file import ProjectWishes
from pgtop_tune.health.report import Report
from pgtop_tune.health.told import Told
from pgtop_tune.health.watching import Looks
from pgtop_tune.host.source_names import HostSource
from pgtop_tune.postgres.server.conninfo import ConnInfo

_EVERY_S: Final = 30.0


def checked(
    words: ConnectionWords,
    wishes: ProjectWishes,
    against: Path | None,
    pooler: list[str] | None,
    host_source: HostSource,
    *,
    measure: bool,
    yes: bool,
    told: Told,
) -> Report:
    """The report.

    Raises:
        UsageProblem: The choice of checks, a threshold, the file or a pooler is wrong.
        RecordingProblem: The recording cannot be read.
        ConnectionProblem: The server is not there or does not let us in.
    """
    poolers = pooler_addresses(pooler)
    wanted = Wanted.of(wishes, proposes=not wishes.select, told=told)
    if against is not None and is_recording(against):
        return wanted.judged(recorded_facts(against))
    former = None if against is None else former_check(against)

    async def both(conninfo: ConnInfo) -> CheckFacts:
        facts = await gather(conninfo, wanted.checks, poolers=poolers, host_source=host_source)
        control = PostgresControl(conninfo)
        await leave_watchdogs(control, HostControl(), None, tell)
        await control.aclose()
        return facts

    def look(conninfo: ConnInfo) -> CheckFacts:
        facts = asyncio.run(both(conninfo))
        return _measured(conninfo, facts, yes) if measure else facts

    facts = let_in(words, look)
    report = wanted.judged(facts)
    return report if former is None else only_new(report, former, wanted.near(facts))


def watched(
    words: ConnectionWords,
    wishes: ProjectWishes,
    pooler: list[str] | None,
    host_source: HostSource,
    *,
    for_s: float,
    told: Told,
) -> Report:
    """What several looks have found.

    Raises:
        UsageProblem: As `checked`.
        ConnectionProblem: The server was not there at the first look.
    """
    wanted, poolers = Wanted.of(wishes, proposes=not wishes.select, told=told), pooler_addresses(pooler)
    looks, started_s = Looks(wanted.accept), time.monotonic()

    async def look(conninfo: ConnInfo) -> None:
        facts = await gather(conninfo, wanted.checks, poolers=poolers, host_source=host_source)
        report, first = wanted.found(facts), not looks.count
        if not first and looks.of_another_server(report):
            raise ConnectionProblem(f"another server answers at {report.target}")
        for kind, found in zip(("new", "gone"), looks.take(report), strict=True):
            for check, finding in () if first else found:
                tell(f"{wall_clock(report.at_ms)}  {kind}  {finding.severity}  {check.id}  {about(finding)}")
        tell(f"{wall_clock(report.at_ms)}  look {looks.count}: {looks.standing} findings")

    async def watched(conninfo: ConnInfo) -> None:
        while True:
            began_s = time.monotonic()
            try:
                await look(conninfo)
            except ConnectionProblem as problem:
                if not looks.count:
                    raise
                looks.miss(problem.message)
                tell(f"{wall_clock(int(time.time() * 1000))}  the server was not seen: {problem.message}")
            pause_s = until_next_look_s(began_s, started_s + for_s, time.monotonic())
            if pause_s is None:
                return
            await asyncio.sleep(pause_s)

    try:
        let_in(words, lambda conninfo: asyncio.run(watched(conninfo)))
    except KeyboardInterrupt:
        if not looks.count:
            raise
    return looks.together()


def until_next_look_s(began_s: float, end_s: float, now_s: float) -> float | None:
    """How long to wait after a look that began at `began_s`; the last look is at the end. None after it."""
    return None if now_s >= end_s else min(max(began_s + _EVERY_S - now_s, 0.0), end_s - now_s)


def _measured(conninfo: ConnInfo, facts: CheckFacts, yes: bool) -> CheckFacts:
    """The facts with what was measured.

    Raises:
        UsageProblem: The server is busy, and nobody says that it may be measured all the same.
    """
    disturbs = busy(facts)
    if disturbs and not yes:
        said = f"the server is busy: {'; '.join(disturbs)}"
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UsageProblem(said, "--yes measures anyway")
        tell(said)
        if not typer.confirm("Measure it anyway?", err=True):
            raise UsageProblem("not measured", "without --measure nothing is written")
    tell(f"measuring, up to {LIMIT_S:.0f} s")
    measured = asyncio.run(measure(conninfo, facts))
    try:
        keep(facts, measured)
    except UsageProblem as problem:
        complain(problem)
    return replace(facts, measured=measured)
