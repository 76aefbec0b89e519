"""Rules that several checks share: a parameter with another value than advised, values of single roles and
databases."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.advice.facts import CLOCK, OUT_OF_REACH, AdviceFacts, Machine, live_values
from pgtop_tune.advice.gather import Beside, facts_of
from pgtop_tune.advice.proposal import advice_for, propose, same
from pgtop_tune.base.sql_quoting import Sql, composed, identifier, quoted
from pgtop_tune.base.units import duration
from pgtop_tune.changes.statements import typed
from pgtop_tune.health import needs
from pgtop_tune.health.check import Confidence, Evidence, Finding, Fix, Language, Limits, Severity, Unknown
from pgtop_tune.health.configured import is_of_session, with_value
from pgtop_tune.health.facts import CheckFacts, Missing
from pgtop_tune.health.fixes import set_parameter, sysctl, words
from pgtop_tune.health.questions import SCOPED
from pgtop_tune.metrics.active_sessions import hidden_sessions
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.postgres import Parameter

Look = Callable[[CheckFacts, Limits], Iterable[Finding | Unknown]]

SETTING: Final = "pg_settings.setting"
_OFF: Final = frozenset({"0", "of", "off", "n", "no", "f", "fa", "fal", "fals", "false"})
"""What the server takes for off: beginnings of the words will do. Source: parse_bool in bool.c."""
NOTHING_TO_UNDO: Final = "-- nothing to revert"
COUNTED_SINCE: Final = "stats_reset"
"""Source of the evidence that a finding stays until counters are reset, whatever is set."""
SHORTEST_S: Final = 600.0
"""Younger counters tell of how the server was set up, not of its load."""
ON_STANDBY: Final = "this server is a standby: check its primary"


def setting(facts: CheckFacts, *names: str) -> Evidence:
    """Parameters as SHOW prints them, as evidence.

    Raises:
        Missing: The server does not show one of them.
    """
    known = needs.parameters(facts)
    return Evidence(", ".join(f"{name} {known.shown(name)}" for name in names), SETTING)


def value_is(
    name: str, bad: Collection[str], better: str, severity: Severity, says: str, fixed: Fix | None = None
) -> Look:
    """Finds a parameter that has one of these values.

    Args:
        name: Of the parameter.
        bad: pg_settings.setting.
        better: What the fix sets; as typed.
        severity: Of the finding.
        says: What it says; {value} stands for the value.
        fixed: What to do where it cannot be set.
    """

    def look(facts: CheckFacts, limits: Limits) -> Iterator[Finding]:
        row = needs.parameters(facts).row(name)
        if row.setting in bad:
            fix = fixed or advised_or(facts, name, better)
            yield Finding(
                severity=severity,
                says=says.format(value=row.shown),
                evidence=(setting(facts, name),),
                fix=fix,
                subject=name,
            )

    return look


def now_ms(facts: CheckFacts) -> int:
    """The server's clock when it was looked at; ours where it did not tell. Milliseconds since the epoch."""
    activity = needs.ACTIVITY.of(facts)
    return facts.frames[-1].taken_at_ms if isinstance(activity, Unavailable) else activity.now_ms


def counted_s(facts: CheckFacts, reset_ms: int | None) -> float:
    """Seconds that counters have counted: since their reset, else since there are statistics. At least one.

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
    """When counters have counted for so short a time that they say nothing of the load; None when not."""
    if seconds >= least_s:
        return None
    return Unknown(f"the counters are {duration(seconds)} old: too young for a result")


def counted(seconds: float, reset: str) -> Evidence:
    """For how long a counter has counted, and that the finding stays.

    Args:
        seconds: As `counted_s`.
        reset: The statement's function that resets it: "pg_stat_reset_shared('wal')".
    """
    return Evidence(f"counted for {duration(seconds)}: the finding stays until {reset}", COUNTED_SINCE)


def on_standby(facts: CheckFacts) -> bool:
    """pg_is_in_recovery(). Raises Missing when the server was not seen."""
    return facts.have(needs.SERVER).in_recovery


def advice_facts(facts: CheckFacts) -> AdviceFacts | None:
    """What advice is derived from; None when the server was not seen."""
    known = facts_of(facts.interval, Beside(machine=_machine(facts), disk=facts.disk, workload=facts.workload))
    measured = None if isinstance(facts.measured, Unavailable) else facts.measured.value(CLOCK)
    return known if known is None or measured is None else replace(known, clock_ns=measured)


def _machine(facts: CheckFacts) -> Machine | None:
    seen = needs.MACHINE.of(facts)
    if isinstance(seen, Unavailable):
        return None
    return Machine(
        huge_page_bytes=seen.huge_page_bytes,
        numa_nodes=seen.numa_nodes,
        live=live_values(seen.settings),
        disks=seen.queues,
    )


def advised(facts: CheckFacts, name: str) -> Fix:
    """Sets a parameter to what `advise` and the parameter screen have for it; words where the server has that.

    Raises:
        Missing: The server does not show it.
    """
    row, known = needs.parameters(facts).row(name), advice_facts(facts)
    advice = None if known is None else advice_for(row, propose(known).server_half())
    if advice is None or advice.value is None:
        return words(f"{name}: {'no value is advised' if advice is None else advice.because}")
    if same(row, advice.value):
        waits = "waits for a restart" if row.pending is not None else "is the advised value"
        return words(f"{name} {advice.value} {waits}. {advice.because}")
    return set_parameter(row, advice.value)


def advised_or(facts: CheckFacts, name: str, value: str) -> Fix:
    """The same; this value where nothing is advised for these facts."""
    row, known = needs.parameters(facts).row(name), advice_facts(facts)
    advice = None if known is None else advice_for(row, propose(known).server_half())
    nothing = advice is None or (advice.value is None and row.source not in OUT_OF_REACH)
    return set_parameter(row, value) if nothing else advised(facts, name)


def is_advised(facts: CheckFacts, row: Parameter) -> bool:
    """Whether a parameter has the value that is advised for this server."""
    known = advice_facts(facts)
    advice = None if known is None else advice_for(row, propose(known).server_half())
    return advice is not None and advice.value is not None and same(row, advice.value)


def advised_setting(facts: CheckFacts, *names: str, remark: str = "", lasting: bool = False) -> Fix:
    """Sets settings of the machine to what is advised for them; words where there is nothing to set.

    Args:
        facts: What checks stand on.
        names: Settings, in the order in which they are safe to set.
        remark: What else is to be known.
        lasting: Also where the machine has the value now: a reboot would take it away.
    """
    known = advice_facts(facts)
    proposed = {} if known is None else propose(known).machine_half()
    made: list[Fix] = []
    because = "The machine is not visible from here."
    for name in names:
        advice = proposed.get(name)
        live = "" if known is None or known.machine is None else known.machine.live.get(name, "")
        because = because if advice is None else advice.because
        if advice is not None and advice.value is not None and (lasting or advice.value != live):
            made.append(sysctl(name, advice.value, live, remark))
    last = proposed.get(names[-1])
    if not made or last is None or last.value is None:
        return words(f"{names[-1]}: {because}")
    if len(made) == 1:
        return made[0]
    undo = "\n".join(each.undo for each in reversed(made))
    # The screen stages one setting for a finding, and the last of several is not safe without those before it.
    return Fix(do="\n".join(each.do for each in made), undo=undo, language=Language.SHELL, remark=made[-1].remark)


def hidden(facts: CheckFacts) -> Iterator[Unknown]:
    """One, when this role may not look into sessions of others."""
    why = hidden_sessions(facts.frames[-1])
    if why is not None:
        yield Unknown(str(why))


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
        """Whether a switch is off, however that is written: the catalogue has it as it was typed."""
        return self.value.lower() in _OFF

    @property
    def where(self) -> str:
        """ "role app in database shop"; foreign text."""
        if self.role is None and self.database is None:
            return "all roles"
        parts = (("role", self.role), ("in database" if self.role else "database", self.database))
        return " ".join(f"{word} {name}" for word, name in parts if name is not None)

    @property
    def fix(self) -> Fix:
        """Takes it away, and puts it back."""
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
    """Where roles and databases have one of these parameters for their own.

    Raises:
        Missing: pg_db_role_setting was not read.
    """
    for _, row in facts.have(SCOPED):
        for assignment in row.settings:
            name, _, value = assignment.partition("=")
            if name in names:
                yield Scoped(database=row.database, role=row.role, name=name, value=value)


def scoped_finding(found: Scoped, severity: Severity, says: str) -> Finding:
    """That a role or a database has such a parameter; `says` is the consequence."""
    return Finding(
        severity=severity,
        says=f"{found.name} is {found.value} for {found.where}: {says}",
        evidence=(Evidence(f"{found.name}={found.value}", "pg_db_role_setting.setconfig"),),
        fix=found.fix,
        confidence=Confidence.HIGH,
        subject=f"{found.where} {found.name}",
    )


def also_scoped(look: Look, *names: str) -> Look:
    """A look that also finds what it finds of the server where a role or a database has another value for its own.

    Args:
        look: Of the server; a finding about a parameter has a fix of that parameter.
        names: The parameters that a session can have for its own.
    """

    def both(facts: CheckFacts, limits: Limits) -> Iterator[Finding | Unknown]:
        hidden: Missing | None = None
        try:
            yield from look(facts, limits)
        except Missing as problem:
            hidden = problem
        rows = {row.name: row for row in facts.have(needs.PARAMETERS).parameters}
        for found in scoped(facts, names):
            row = rows.get(found.name)
            if row is None:
                continue
            other = with_value(row, found.value, row.source)
            if other.setting == row.setting and not is_of_session(row):
                continue
            for said in look(_with(facts, replace(other, source="configuration file")), limits):
                if (
                    isinstance(said, Finding)
                    and said.fix is not None
                    and found.name in ((said.fix.parameter or ("",))[0], said.subject)
                ):
                    yield scoped_finding(found, said.severity, said.says.partition(": ")[2] or said.says)
        if hidden is not None:
            raise hidden

    return both


def _with(facts: CheckFacts, row: Parameter) -> CheckFacts:
    """Facts with another row of pg_settings."""
    newest = facts.frames[-1]
    sample = newest.postgres
    if isinstance(sample, Unavailable) or isinstance(sample.parameters, Unavailable):
        return facts
    rows = tuple(row if each.name == row.name else each for each in sample.parameters.parameters)
    changed = replace(sample, parameters=replace(sample.parameters, parameters=rows))
    return replace(facts, frames=(*facts.frames[:-1], replace(newest, postgres=changed)))


def in_database(database: str, do: str, undo: str = NOTHING_TO_UNDO, remark: str = "") -> Fix:
    """SQL that is to be run in one database, which the remark names."""
    return Fix(
        do=do,
        undo=undo,
        language=Language.SQL,
        remark=f"in database {quoted(database)}" + (f"; {remark}" if remark else ""),
    )
