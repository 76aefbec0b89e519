"""Runs checks over facts. What a check needs and is not there makes it unknown, never passed; fixes fit the server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from pgtop_tune.base.secret import MASK
from pgtop_tune.base.units import about
from pgtop_tune.health import needs
from pgtop_tune.health.check import Check, CheckConfidence, CheckFinding, Evidence, Fix, Language, Limits, Unknown
from pgtop_tune.health.configured import at_next_start
from pgtop_tune.health.facts import Answers, CheckFacts, Missing, Question
from pgtop_tune.health.fixes import by_hand
from pgtop_tune.health.questions import CONFIGURED
from pgtop_tune.health.report import SYSTEM_IDENTIFIER, CheckResult, Report
from pgtop_tune.model.absence import Unavailable

# Fixes fit their server: a standby takes no statement that changes data, and ALTER SYSTEM may be switched
# off.
#
# Source: PostgreSQL documentation, "Hot Standby" (what is not accepted), allow_alter_system (17).

_ON_PRIMARY: Final = "run it on the primary: this server is a standby"
_CHANGES_DATA: Final = re.compile(
    r"(?!ALTER SYSTEM)(ALTER|ANALYZE|CREATE|DROP|GRANT|REINDEX|REVOKE|ROLLBACK|SET|VACUUM|\\password) "
)
_NAMED_IN_WORDS: Final = re.compile(
    r"\b(?:ALTER (?!SYSTEM)[A-Z]|CREATE [A-Z]|DROP [A-Z]|REINDEX [A-Z]|VACUUM\b|GRANT [a-z]|REVOKE [a-z])"
)
"""A statement in a sentence, with what follows the verb: a sentence may begin with "Create"."""
_ALTER_SYSTEM: Final = "ALTER SYSTEM "
_SWITCHED_OFF: Final = (
    "ALTER SYSTEM is disabled on this server (allow_alter_system): set {meant} where its configuration is managed."
)


def fitted(finding: CheckFinding, facts: CheckFacts) -> CheckFinding:
    """Return the finding with a fix that this server can carry out, or that says where."""
    if finding.fix is None:
        return finding
    return replace(finding, fix=_without_alter_system(_for_standby(_without_mask(finding.fix), facts), facts))


def _without_mask(fix: Fix) -> Fix:
    """Return the fix with a comment in place of an undo that would write the mask of a secret."""
    if MASK not in fix.undo:
        return fix
    mark = _COMMENTS.get(fix.language, "")
    undo = (f"{mark}{_NOTE_IT}" if MASK in line else line for line in fix.undo.splitlines())
    return replace(fix, undo="\n".join(undo))


def _for_standby(fix: Fix, facts: CheckFacts) -> Fix:
    """Return the fix with the remark that a standby's primary has to run it."""
    server = needs.SERVER.of(facts)
    if isinstance(server, Unavailable) or not server.in_recovery:
        return fix
    changes = {Language.SQL: _CHANGES_DATA.match, Language.WORDS: _NAMED_IN_WORDS.search}.get(fix.language)
    if changes is None or changes(fix.do) is None:
        return fix
    return replace(fix, remark="; ".join(filter(None, (_ON_PRIMARY, fix.remark))))


def _without_alter_system(fix: Fix, facts: CheckFacts) -> Fix:
    parameters = needs.PARAMETERS.of(facts)
    if not fix.do.startswith(_ALTER_SYSTEM) or isinstance(parameters, Unavailable):
        return fix
    switch = next((row for row in parameters.parameters if row.name == "allow_alter_system"), None)
    if switch is None or switch.setting != "off":
        return fix
    line = fix.do.splitlines()[0].removeprefix(f"{_ALTER_SYSTEM}SET ").rstrip(";")
    meant = " = ".join(fix.parameter) if fix.parameter else line
    return Fix(do=_SWITCHED_OFF.format(meant=meant), undo="", language=Language.WORDS, remark=fix.remark)


_NOTE_IT: Final = "Save the present value first: it holds a secret, which is not shown here."
_COMMENTS: Final = {Language.SQL: "-- ", Language.SHELL: "# ", Language.CONFIGURATION: "# "}
_LATER: Final = "at the next start"
_YOUNG_S: Final = 86_400.0
_SHOWN_REASONS: Final = 3
_OWN: Final = "check_"
"""Prefix of the names of queries of checks."""
_LOWER: Final[Mapping[CheckConfidence, CheckConfidence]] = MappingProxyType(
    {
        CheckConfidence.HIGH: CheckConfidence.MEDIUM,
        CheckConfidence.MEDIUM: CheckConfidence.LOW,
        CheckConfidence.LOW: CheckConfidence.LOW,
    }
)


def judge(
    checks: Sequence[Check], facts: CheckFacts, thresholds: Mapping[str, Limits] = MappingProxyType({})
) -> Report:
    """Return the report of the checks about the facts.

    Args:
        checks: Rows of the registry.
        facts: Facts of the server and its machine.
        thresholds: Check id → values that differ from the defaults.
    """
    server = needs.SERVER.of(facts)
    known_server = None if isinstance(server, Unavailable) else server
    young, later = _young(facts), at_next_start(facts)
    return Report(
        at_ms=facts.frames[-1].taken_at_ms,
        target=facts.described,
        server="" if known_server is None else f"PostgreSQL {known_server.version}",
        major=None if known_server is None else known_server.version_num // 10_000,
        results=tuple(_result(check, facts, later, thresholds.get(check.id, {}), young) for check in checks),
        ceilings=() if isinstance(facts.measured, Unavailable) else facts.measured.ceilings,
        not_measured=() if isinstance(facts.measured, Unavailable) else facts.measured.missing,
        identity=tuple(_identity(facts)),
    )


def _identity(facts: CheckFacts) -> Iterator[tuple[str, str]]:
    """Yield entries that tell the server and its machine from others."""
    server, host = needs.SERVER.of(facts), needs.HOST.of(facts)
    if not isinstance(server, Unavailable):
        yield SYSTEM_IDENTIFIER, server.system_identifier
        yield "role", "standby" if server.in_recovery else "primary"
        if server.pooled:
            yield "connection", "through a pooler: findings about sessions are about the pooler's"
    if not isinstance(host, Unavailable):
        group = needs.CGROUP.of(facts)
        usable = host.cpu_count if isinstance(group, Unavailable) else group.cpus_of(host.cpu_count)
        cpus = "1 CPU" if host.cpu_count == 1 else f"{host.cpu_count} CPUs"
        cpus += f", of which the server may use {usable}" if usable < host.cpu_count else ""
        system = f"Linux {host.kernel}" if host.kernel else ""
        parts = (host.hostname, system, cpus, f"{about(host.memory_bytes)} of memory")
        yield "machine", ", ".join(filter(None, parts))


def statistics_age_s(facts: CheckFacts) -> float | None:
    """Return the seconds since the youngest of the cumulative statistics began: a reset, or the start after a crash.

    None when it is not known. Source: stats_reset of pg_stat_database, pg_stat_wal and pg_stat_bgwriter or
    pg_stat_checkpointer; a crash sets them as well, a clean restart does not. pg_postmaster_start_time() where they
    were not seen.
    """
    server = needs.SERVER.of(facts)
    starts_ms = [
        section.stats_reset_ms
        for need in (needs.DATABASE, needs.WAL, needs.CHECKPOINTS)
        if not isinstance(section := need.of(facts), Unavailable) and section.stats_reset_ms is not None
    ]
    if not starts_ms and not isinstance(server, Unavailable):
        starts_ms.append(server.started_ms)
    return (facts.frames[-1].taken_at_ms - max(starts_ms)) / 1000 if starts_ms else None


def _young(facts: CheckFacts) -> bool:
    age_s = statistics_age_s(facts)
    return age_s is not None and age_s < _YOUNG_S


def _result(
    check: Check,
    facts: CheckFacts,
    later: tuple[CheckFacts, Mapping[str, str]] | None,
    changed: Limits,
    young: bool,
) -> CheckResult:
    missing = [(need.name, part) for need in check.needs if isinstance(part := need.of(facts), Unavailable)]
    if missing:
        return CheckResult(check, unknowns=(_unknown(*missing[0]),))
    limits = {threshold.name: threshold.default for threshold in check.thresholds} | dict(changed)
    findings: list[CheckFinding] = []
    unknowns: list[Unknown] = []
    try:
        for outcome in check.look(facts, limits):
            if isinstance(outcome, Unknown):
                unknowns.append(outcome)
            else:
                findings.append(outcome)
    except Missing as problem:
        unknowns.append(_unknown(problem.need, problem.reason))
    if later is not None:
        findings += tuple(_only_later(check, *later, limits, findings))
    unknowns += _refusals(check, facts)
    findings = [finding.made(lambda unfitted: fitted(unfitted, facts)) for finding in findings]
    if young and check.counts:
        findings = [finding.made(_less_certain) for finding in findings]
    findings.sort(key=lambda finding: -finding.severity.rank)
    return CheckResult(check, tuple(findings), tuple(unknowns))


def _only_later(
    check: Check, facts: CheckFacts, next_texts: Mapping[str, str], limits: Limits, findings: Sequence[CheckFinding]
) -> Iterator[CheckFinding]:
    """Yield the findings that the values of the next start bring, or make more severe than those of now."""
    ranks = dict(sorted((finding.subject, finding.severity.rank) for finding in findings))
    evidence = tuple(Evidence(f"{name} = {text} {_LATER}", CONFIGURED.source) for name, text in next_texts.items())

    def at_start(finding: CheckFinding) -> CheckFinding:
        return replace(
            finding,
            says=f"{_LATER}: {finding.says}",
            evidence=(*finding.evidence, *evidence),
            fix=by_hand(f"Before the next start, set {', '.join(next_texts)} to other values, or back."),
            subject=f"{finding.subject} {_LATER}".strip() if finding.subject in ranks else finding.subject,
        )

    with suppress(Missing):
        for outcome in check.look(facts, limits):
            if isinstance(outcome, CheckFinding) and outcome.severity.rank > ranks.get(outcome.subject, -1):
                yield outcome.made(at_start)


def _less_certain(finding: CheckFinding) -> CheckFinding:
    return replace(finding, confidence=_LOWER[finding.confidence])


def _unknown(need: str, reason: Unavailable) -> Unknown:
    return Unknown(f"{need.removeprefix(_OWN).replace('_', ' ')}: {reason}", cause=str(reason))


def _refusals(check: Check, facts: CheckFacts) -> list[Unknown]:
    """Return the databases that a check of every database did not see."""
    refused = {
        refusal.database: refusal.reason
        for need in check.needs
        if isinstance(need, Question) and isinstance(answer := need.of(facts), Answers)
        for refusal in answer.refused
    }
    if not refused:
        return []
    alike: dict[str, list[str]] = {}
    for database, reason in refused.items():
        # The server's message may contain the database's name.
        alike.setdefault(re.sub(rf"(?<!\w){re.escape(database)}(?!\w)", "", reason), []).append(database)
    reasons = sorted(alike.values(), key=len, reverse=True)
    listed = [f"{_several(names)}: {refused[names[0]]}" for names in reasons[:_SHOWN_REASONS]]
    n_others = sum(map(len, reasons[_SHOWN_REASONS:]))
    more = f"; {n_others} for other reasons" if n_others else ""
    plural = "databases were" if len(refused) > 1 else "database was"
    return [Unknown(f"{len(refused)} {plural} not seen: {'; '.join(listed)}{more}")]


def _several(names: Sequence[str]) -> str:
    """Return the first name, and how many others there are."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
