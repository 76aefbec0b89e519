"""Base backups as backup tools know them: whether there is a full one of this server, and how old it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pgtop_tune.base.units import duration
from pgtop_tune.health import needs
from pgtop_tune.health.check import Check, Evidence, Finding, Limits, Severity, Threshold, Unknown
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import words
from pgtop_tune.health.rules import now_ms
from pgtop_tune.model.machine import BackupCatalogue, ToolBackup

_DAY_S: Final = 86_400
_TOOLS: Final = "pgBackRest, Barman, WAL-G"


def _catalogues(facts: CheckFacts, limits: Limits) -> Iterator[Finding | Unknown]:
    tools = facts.have(needs.BACKUP_TOOLS)
    if not tools.installed:
        yield Finding(
            severity=Severity.INFO,
            says="no backup tool is found on this machine: nothing here tells when the last base backup was taken",
            evidence=(Evidence(f"looked for {_TOOLS}", "PATH"),),
            fix=words("Where another machine takes the backups, its tool tells; else take backups with one of them."),
            subject="tools",
        )
        return
    for tool, why in tools.problems:
        yield Unknown(f"{tool}: {why}")
    ours = facts.have(needs.SERVER).system_identifier
    untold = [each for each in tools.catalogues if not each.system_identifiers]
    if len(untold) > 1:
        yield Unknown(
            f"{untold[0].tool} has {', '.join(each.name for each in untold)}, and does not tell which is this server"
        )
        return
    mine = [each for each in tools.catalogues if not each.system_identifiers or ours in each.system_identifiers]
    if not mine:
        if not tools.problems:
            yield _none(facts, tools.installed)
        return
    for catalogue in mine:
        yield from _judged(facts, catalogue, limits)


def _none(facts: CheckFacts, installed: tuple[str, ...]) -> Finding:
    ours = facts.have(needs.SERVER).system_identifier
    return Finding(
        severity=Severity.HIGH,
        says=f"{' and '.join(installed)} {'has' if len(installed) == 1 else 'have'} no backup of this server",
        evidence=(Evidence(f"no system identifier {ours}", "the tool's catalogue"),),
        fix=words("Configure the tool for this server, and take a full backup."),
        subject="none",
    )


def _judged(facts: CheckFacts, catalogue: BackupCatalogue, limits: Limits) -> Iterator[Finding]:
    called = f"{catalogue.tool} {catalogue.name}".rstrip()
    ended = [each for each in catalogue.backups if each.ended_ms is not None]
    good = [each for each in ended if each.full and not each.failed]
    newest = max(catalogue.backups, key=_when, default=None)
    if newest is not None and newest.failed:
        yield Finding(
            severity=Severity.HIGH,
            says=f"{called}: the newest backup, {newest.label}, is no good: {newest.failed}",
            evidence=(Evidence(f"{newest.label}: {newest.failed}", f"catalogue of {catalogue.tool}"),),
            fix=words("The tool's log has the cause; take a full backup."),
            subject=f"{called} failed",
        )
    if not good:
        yield Finding(
            severity=Severity.HIGH,
            says=f"{called}: there is no full backup that ended well",
            evidence=(Evidence(f"{len(catalogue.backups)} backups", f"catalogue of {catalogue.tool}"),),
            fix=words("Take a full backup."),
            subject=called,
        )
        return
    last = max(good, key=_when)
    age_s = (now_ms(facts) - (last.ended_ms or 0)) / 1000
    if age_s > limits["days"] * _DAY_S:
        yield Finding(
            severity=Severity.HIGH if age_s > limits["high"] * _DAY_S else Severity.WARNING,
            says=f"{called}: the last full backup, {last.label}, ended {duration(age_s)} ago",
            evidence=(Evidence(f"{last.label}, {age_s:.0f} s ago", f"catalogue of {catalogue.tool}"),),
            fix=words("Take a full backup, and find out why none was taken."),
            subject=called,
        )


def _when(backup: ToolBackup) -> int:
    """One that has not ended is the newest."""
    return 2**63 if backup.ended_ms is None else backup.ended_ms


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="BAK-02",
        group="backups",
        title="backups of backup tools",
        why="A tool that is installed is not yet a backup, and an old full backup makes a restore long or impossible.",
        severity=Severity.HIGH,
        page="continuous-archiving.html#BACKUP-BASE-BACKUP",
        needs=(needs.SERVER, needs.BACKUP_TOOLS),
        look=_catalogues,
        thresholds=(
            Threshold("days", 8, "d", "an older full backup is a warning"),
            Threshold("high", 32, "d", "an older full backup is a high finding"),
        ),
    ),
)
