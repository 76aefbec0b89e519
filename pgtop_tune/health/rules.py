"""Rules that several checks share: parameters with another value than advised, values of roles and databases."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.advice.facts import CLOCK, OUT_OF_REACH, Advice, AdviceFacts, Machine, live_settings
from pgtop_tune.advice.gather import Beside, facts_of
from pgtop_tune.advice.proposal import advice_for, propose, same
from pgtop_tune.base.sql_quoting import Sql, composed, identifier, quoted
from pgtop_tune.base.units import duration
from pgtop_tune.changes.statements import typed
from pgtop_tune.health import needs
from pgtop_tune.health.check import (
    CheckConfidence,
    CheckFinding,
    Evidence,
    Findings,
    Fix,
    Language,
    Limits,
    Look,
    Severity,
    Unknown,
)
from pgtop_tune.health.configured import row_with_value
from pgtop_tune.health.facts import CheckFacts, Missing
from pgtop_tune.health.fixes import by_hand, set_parameter, sysctl
from pgtop_tune.health.needs import is_of_session
from pgtop_tune.health.questions import SCOPED
from pgtop_tune.metrics.active_sessions import hidden_sessions
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.postgres import Parameter

SETTING: Final = "pg_settings.setting"
_OFF: Final = frozenset({"0", "of", "off", "n", "no", "f", "fa", "fal", "fals", "false"})
"""Texts that the server reads as off, beginnings of the words included. Source: parse_bool in bool.c."""
NOTHING_TO_UNDO: Final = "-- nothing to revert"
COUNTED_SINCE: Final = "stats_reset"
"""Source of the evidence that a finding stays until counters are reset, whatever is set."""
SHORTEST_S: Final = 600.0
"""Younger counters tell of how the server was set up, not of its load."""
ON_STANDBY: Final = "this server is a standby: check its primary"


def first_few(texts: Iterable[str], most: int, separator: str = ", ") -> str:
    """Return the first texts in one line, with " …" where there are more."""
    listed = list(texts)
    return separator.join(listed[:most]) + (" …" if len(listed) > most else "")


def as_shown(facts: CheckFacts, *names: str) -> Evidence:
    """Return parameters as SHOW prints them, as evidence.

    Raises:
        Missing: The server does not show one of them.
    """
    parameters = needs.parameters(facts)
    return Evidence(", ".join(f"{name} {parameters.shown(name)}" for name in names), SETTING)


def value_is(
    name: str, bad: Collection[str], better: str, severity: Severity, says: str, fixed: Fix | None = None
) -> Look:
    """Return a look that finds a parameter with one of these values.

    Args:
        name: Name of the parameter.
        bad: pg_settings.setting.
        better: Value of the fix; as typed.
        severity: Severity of the finding.
        says: Sentence of the finding; {value} stands for the value.
        fixed: Fix for a parameter that no statement sets.
    """

    def look(facts: CheckFacts, limits: Limits) -> Findings:
        row = needs.parameters(facts).row(name)
        if row.setting in bad:
            fix = fixed or advised_or(facts, name, better)
            yield CheckFinding(
                severity=severity,
                says=says.format(value=row.shown),
                evidence=(as_shown(facts, name),),
                fix=fix,
                subject=name,
            )

    return look


def value_finding(
    facts: CheckFacts,
    row: Parameter,
    says: str,
    fix: Fix,
    *,
    severity: Severity = Severity.WARNING,
    beside: Sequence[str] = (),
    subject: str | None = None,
) -> CheckFinding:
    """Return the finding that a parameter has this value.

    Args:
        facts: Facts of the check.
        row: The parameter.
        says: The consequence.
        fix: Its fix.
        severity: Severity of the finding.
        beside: Further parameters of the evidence.
        subject: None for the parameter's name.
    """
    return CheckFinding(
        severity=severity,
        says=f"{row.name} is {row.shown}: {says}",
        evidence=(as_shown(facts, row.name, *beside),),
        fix=fix,
        subject=row.name if subject is None else subject,
    )


def now_ms(facts: CheckFacts) -> int:
    """Return the server's clock at the look, ours where it is not known. Milliseconds since the epoch."""
    activity = needs.ACTIVITY.of(facts)
    return facts.frames[-1].taken_at_ms if isinstance(activity, Unavailable) else activity.now_ms


def counted_s(facts: CheckFacts, reset_ms: int | None) -> float:
    """Return the seconds that counters have counted: since their reset, else since there are statistics. At least one.

    Counters outlive a clean restart, and begin anew after a crash; then pg_stat_wal, pg_stat_bgwriter and pg_stat_io
    have that moment as their reset.

    Raises:
        Missing: The server was not seen.
    """
    since_ms = _began_ms(facts) if reset_ms is None else reset_ms
    return max((now_ms(facts) - since_ms) / 1000, 1.0)


def _began_ms(facts: CheckFacts) -> int:
    resets = [
        section.stats_reset_ms
        for need in (needs.WAL, needs.CHECKPOINTS, needs.IO)
        if not isinstance(section := need.of(facts), Unavailable) and section.stats_reset_ms is not None
    ]
    return min([facts.have(needs.SERVER).started_ms, *resets])


def too_young(seconds: float, least_s: float = SHORTEST_S) -> Unknown | None:
    """Return an unknown part where counters are too young to show the load; else None."""
    if seconds >= least_s:
        return None
    return Unknown(f"the counters are {duration(seconds)} old: too young for a result")


def counted(seconds: float, reset: str) -> Evidence:
    """Return evidence of the time that a counter covers, and that the finding stays until a reset.

    Args:
        seconds: As `counted_s`.
        reset: The statement's function that resets it: "pg_stat_reset_shared('wal')".
    """
    return Evidence(f"counted for {duration(seconds)}: the finding remains until {reset}", COUNTED_SINCE)


def on_standby(facts: CheckFacts) -> bool:
    """Return pg_is_in_recovery(). Raises Missing when the server was not seen."""
    return facts.have(needs.SERVER).in_recovery


def advice_facts(facts: CheckFacts) -> AdviceFacts | None:
    """Return the facts that advice is derived from; None when the server was not seen."""
    server = facts_of(facts.interval, Beside(machine=_machine(facts), disk=facts.disk, workload=facts.workload))
    measured = None if isinstance(facts.measured, Unavailable) else facts.measured.value(CLOCK)
    return server if server is None or measured is None else replace(server, clock_ns=measured)


def _machine(facts: CheckFacts) -> Machine | None:
    details = needs.MACHINE.of(facts)
    if isinstance(details, Unavailable):
        return None
    return Machine(
        huge_page_bytes=details.huge_page_bytes,
        numa_nodes=details.numa_nodes,
        live=live_settings(details.settings),
        disks=details.queues,
    )


def _advice(facts: CheckFacts, row: Parameter) -> Advice | None:
    server = advice_facts(facts)
    return None if server is None else advice_for(row, propose(server).server_half())


def advised(facts: CheckFacts, name: str) -> Fix:
    """Return the fix that sets a parameter to its advised value; words where the server has that.

    Raises:
        Missing: The server does not show it.
    """
    row = needs.parameters(facts).row(name)
    advice = _advice(facts, row)
    if advice is None or advice.value is None:
        return by_hand(f"{name}: {'no value is advised' if advice is None else advice.because}")
    if same(row, advice.value):
        waits = "waits for a restart" if row.pending is not None else "is the advised value"
        return by_hand(f"{name} {advice.value} {waits}. {advice.because}")
    return set_parameter(row, advice.value)


def advised_or(facts: CheckFacts, name: str, value: str) -> Fix:
    """Return the fix of `advised`; to this value where nothing is advised for these facts."""
    row = needs.parameters(facts).row(name)
    advice = _advice(facts, row)
    nothing = advice is None or (advice.value is None and row.source not in OUT_OF_REACH)
    return set_parameter(row, value) if nothing else advised(facts, name)


def is_advised(facts: CheckFacts, row: Parameter) -> bool:
    """Return whether a parameter has the value that is advised for this server."""
    advice = _advice(facts, row)
    return advice is not None and advice.value is not None and same(row, advice.value)


def advised_setting(facts: CheckFacts, *names: str, remark: str = "", lasting: bool = False) -> Fix:
    """Return the fix that sets settings of the machine to their advised values; words where there is nothing to set.

    Args:
        facts: Facts of the check.
        names: Settings, in the order in which they are safe to set.
        remark: Further remark.
        lasting: Also where the machine has the value now: a reboot would take it away.
    """
    server = advice_facts(facts)
    proposed = {} if server is None else propose(server).machine_half()
    fixes: list[Fix] = []
    because = "The machine is not visible from here."
    for name in names:
        advice = proposed.get(name)
        live = "" if server is None or server.machine is None else server.machine.live.get(name, "")
        because = because if advice is None else advice.because
        if advice is not None and advice.value is not None and (lasting or advice.value != live):
            fixes.append(sysctl(name, advice.value, live, remark))
    last = proposed.get(names[-1])
    if not fixes or last is None or last.value is None:
        return by_hand(f"{names[-1]}: {because}")
    if len(fixes) == 1:
        return fixes[0]
    undo = "\n".join(fix.undo for fix in reversed(fixes))
    # A finding stages one setting on the screen; the last of several is unsafe without the others.
    return Fix(do="\n".join(fix.do for fix in fixes), undo=undo, language=Language.SHELL, remark=fixes[-1].remark)


def hidden(facts: CheckFacts) -> Iterator[Unknown]:
    """Yield an unknown part when this role may not look into sessions of others."""
    reason = hidden_sessions(facts.frames[-1])
    if reason is not None:
        yield Unknown(str(reason))


class Scoped(Struct, frozen=True):
    """A parameter that a role or a database has for its own.

    Attributes:
        database, role: None for all.
    """

    database: str | None
    role: str | None
    name: str
    value: str

    @property
    def is_off(self) -> bool:
        """Return whether a switch is off, however that is written: the catalogue has it as it was typed."""
        return self.value.lower() in _OFF

    @property
    def where(self) -> str:
        """Return "role app in database shop"; foreign text."""
        if self.role is None and self.database is None:
            return "all roles"
        parts = (("role", self.role), ("in database" if self.role else "database", self.database))
        return " ".join(f"{word} {name}" for word, name in parts if name is not None)

    @property
    def fix(self) -> Fix:
        """Return the fix that resets the value, and its undo."""
        scope, arguments = self._scope()
        parameter = identifier(*self.name.split("."))
        return Fix(
            composed(f"ALTER {scope} RESET {{parameter}};", parameter=parameter, **arguments),
            composed(
                f"ALTER {scope} SET {{parameter}} = {{value}};",
                parameter=parameter,
                value=typed(self.name, self.value),
                **arguments,
            ),
            remark="for new sessions",
        )

    def _scope(self) -> tuple[str, dict[str, Sql]]:
        if self.role is None and self.database is None:
            return "ROLE ALL", {}
        if self.role is None:
            return "DATABASE {database}", {"database": identifier(self.database or "")}
        if self.database is None:
            return "ROLE {role}", {"role": identifier(self.role)}
        return "ROLE {role} IN DATABASE {database}", {
            "role": identifier(self.role),
            "database": identifier(self.database),
        }


def scoped(facts: CheckFacts, names: Collection[str]) -> Iterator[Scoped]:
    """Yield values that roles and databases have for these parameters.

    Raises:
        Missing: pg_db_role_setting was not read.
    """
    for _, row in facts.have(SCOPED):
        for assignment in row.settings:
            name, _, value = assignment.partition("=")
            if name in names:
                yield Scoped(database=row.database, role=row.role, name=name, value=value)


def scoped_finding(assignment: Scoped, severity: Severity, says: str) -> CheckFinding:
    """Return the finding that a role or a database has such a value; `says` is the consequence."""
    return CheckFinding(
        severity=severity,
        says=f"{assignment.name} is {assignment.value} for {assignment.where}: {says}",
        evidence=(Evidence(f"{assignment.name}={assignment.value}", "pg_db_role_setting.setconfig"),),
        fix=assignment.fix,
        confidence=CheckConfidence.HIGH,
        subject=f"{assignment.where} {assignment.name}",
    )


def also_scoped(look: Look, *names: str) -> Look:
    """Return a look that also judges the values that roles and databases have for their own.

    Args:
        look: Of the server; a finding about a parameter has a fix of that parameter.
        names: The parameters that a session can have for its own.
    """

    def both(facts: CheckFacts, limits: Limits) -> Findings:
        hidden: Missing | None = None
        try:
            yield from look(facts, limits)
        except Missing as problem:
            hidden = problem
        rows = {row.name: row for row in facts.have(needs.PARAMETERS).parameters}
        for assignment in scoped(facts, names):
            row = rows.get(assignment.name)
            if row is None:
                continue
            changed_row = row_with_value(row, assignment.value, row.source)
            if changed_row.setting == row.setting and not is_of_session(row):
                continue
            for outcome in look(_with(facts, replace(changed_row, source="configuration file")), limits):
                if (
                    isinstance(outcome, CheckFinding)
                    and outcome.fix is not None
                    and assignment.name in ((outcome.fix.parameter or ("",))[0], outcome.subject)
                ):
                    yield scoped_finding(assignment, outcome.severity, outcome.says.partition(": ")[2] or outcome.says)
        if hidden is not None:
            raise hidden

    return both


def _with(facts: CheckFacts, row: Parameter) -> CheckFacts:
    """Return facts with another row of pg_settings."""
    newest = facts.frames[-1]
    sample = newest.postgres
    if isinstance(sample, Unavailable) or isinstance(sample.parameters, Unavailable):
        return facts
    rows = tuple(row if shown_row.name == row.name else shown_row for shown_row in sample.parameters.parameters)
    changed = replace(sample, parameters=replace(sample.parameters, parameters=rows))
    return replace(facts, frames=(*facts.frames[:-1], replace(newest, postgres=changed)))


def in_database(database: str, do: str, undo: str = NOTHING_TO_UNDO, remark: str = "") -> Fix:
    """Return SQL to be run in one database, which the remark names."""
    return Fix(
        do=do,
        undo=undo,
        language=Language.SQL,
        remark=f"in database {quoted(database)}" + (f"; {remark}" if remark else ""),
    )
