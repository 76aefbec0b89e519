"""Parameters and recommendations in all formats, and `advise --apply`, which makes one change set of the advice."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from pgtop_tune.advice.facts import Advice
from pgtop_tune.advice.plan import MemoryPlan
from pgtop_tune.advice.proposal import ACCOUNTING, POOL
from pgtop_tune.base.errors import NoSuchDatabase, ServerProblem, UsageProblem
from pgtop_tune.base.units import about
from pgtop_tune.changes.machine.one_change import commands
from pgtop_tune.changes.model.change import SYSTEM, WantedParameter, WantedSetting
from pgtop_tune.changes.selection import settings_in_order
from pgtop_tune.changes.statements import statement
from pgtop_tune.cli.assignments import instead
from pgtop_tune.cli.commands.parameters import AdviceFormat, AdviseRequest, ParametersRequest
from pgtop_tune.cli.options import for_seconds
from pgtop_tune.cli.output import say, say_list, tell, write_for_programs
from pgtop_tune.cli.parameter_changes import ChangeRequest, make_change, require_yes_to
from pgtop_tune.cli.parameter_rows import (
    GROUP,
    MachineRow,
    ParameterRow,
    known_names,
    machine_json,
    machine_rows,
    machine_table,
    matching_rows,
    names_and_connection,
    no_parameter,
    parameter_json,
    parameter_rows,
    parameter_table,
)
from pgtop_tune.cli.snapshot import AdviceBasis, advice_basis
from pgtop_tune.host.system_settings import is_sysctl
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.host_details import GROUP_MEMORY_MAX
from pgtop_tune.metrics.host_values import untold
from pgtop_tune.model.absence import Unavailable

_RESTART: Final = "postmaster"
_LIMITS: Final = frozenset({POOL, "vm.overcommit_ratio"})
_EMPTY: Final = "''"
_HEAD: Final = (
    "Advised by pgtop-tune: a starting point, not measured on this server.",
    "No advised value can lose data.",
)


def advice_text(rows: Sequence[ParameterRow]) -> list[str]:
    """Return a paragraph for each row: parameter, advised value, reason, bounds, results of calculators."""
    lines: list[str] = []
    for row in rows:
        assert row.advice is not None
        parameter = row.parameter
        when = "  (with a restart)" if parameter.context == _RESTART else ""
        head = f"{parameter.name}: {parameter.shown or _EMPTY} → {row.advice.value or 'unchanged'}{when}"
        lines += [*([""] if lines else []), head, *_reasons(row.advice)]
    return lines or ["nothing to change: the server already has the advised starting values"]


def _reasons(advice: Advice) -> list[str]:
    lines = [f"  {advice.because}"]
    if advice.low or advice.high:
        lines.append(f"  try from {advice.low or '…'} to {advice.high or '…'}")
    if advice.opinions:
        lines.append("  others: " + " · ".join(f"{opinion.who} {opinion.value}" for opinion in advice.opinions))
    return lines


def advice_array(rows: Sequence[ParameterRow]) -> list[str]:
    """Return one JSON array."""
    return json.dumps([parameter_json(row) for row in rows], ensure_ascii=False, indent=2).splitlines()


def script(rows: Sequence[ParameterRow]) -> list[str]:
    """Return ALTER SYSTEM statements for psql, reasons as comments, parameters that need a restart last."""
    lines = [f"-- {line}" for line in _HEAD]
    for row, reason, value in _with_values(rows):
        lines.append(f"-- {row.parameter.name} is {row.parameter.shown}. {reason}")
        lines.append(f"{statement(row.parameter.name, value)};")
    return [*lines, "SELECT pg_reload_conf();"]


def configuration(rows: Sequence[ParameterRow]) -> list[str]:
    """Return the lines of a file for postgresql.conf to include, reasons as comments."""
    lines = [f"# {line}" for line in _HEAD]
    for row, reason, value in _with_values(rows):
        quoted = value.replace("'", "''")
        lines.append(f"# now {row.parameter.shown}. {reason}")
        lines.append(f"{row.parameter.name} = '{quoted}'")
    return lines


def variables(rows: Sequence[ParameterRow]) -> list[str]:
    """Return variables for Ansible: options of the server as roles for PostgreSQL take them."""
    options = [
        (f"now {row.parameter.shown}. {reason}", row.parameter.name, value) for row, reason, value in _with_values(rows)
    ]
    return _ansible("postgresql_global_config_options", "option", options)


def machine_variables(rows: Sequence[MachineRow]) -> list[str]:
    """Return variables for Ansible: sysctls as a loop over `ansible.posix.sysctl` takes them."""
    return _ansible("sysctl_settings", "name", _sysctls(rows))


def _ansible(variable: str, key: str, options: Sequence[tuple[str, str, str]]) -> list[str]:
    head = [f"# {line}" for line in _HEAD]
    if not options:
        return [*head, f"{variable}: []"]
    lines = [*head, f"{variable}:"]
    for comment, name, value in options:
        lines += [f"  # {comment}", f"  - {key}: {json.dumps(name)}", f"    value: {json.dumps(value)}"]
    return lines


def _with_values(rows: Sequence[ParameterRow]) -> list[tuple[ParameterRow, str, str]]:
    """Return (row, reason, value) of each row with an advised value; parameters that need a restart come last."""
    advised = []
    for row in sorted(rows, key=lambda row: row.parameter.context == _RESTART):
        if row.advice is not None and row.advice.value is not None:
            note = " Takes effect with a restart." if row.parameter.context == _RESTART else ""
            advised.append((row, f"{row.advice.because}{note}", row.advice.value))
    return advised


def _sysctls(rows: Sequence[MachineRow]) -> list[tuple[str, str, str]]:
    """Return comment, name and value of the sysctls that differ, in a safe order."""
    return [
        (f"now {row.live}. {row.advice.because}", row.setting.name, row.advised)
        for row in safely_ordered(rows)
        if row.advice is not None and row.differs and is_sysctl(row.setting.name)
    ]


def safely_ordered(rows: Sequence[MachineRow]) -> list[MachineRow]:
    """Return the rows in the order in which their values are safe to set."""
    by_name = {row.setting.name: row for row in rows}
    settings = [WantedSetting(row.setting.name, row.advised) for row in rows]
    return [by_name[setting.name] for setting in settings_in_order(settings)]


def sysctl_lines(rows: Sequence[MachineRow]) -> list[str]:
    """Return a file for /etc/sysctl.d with the settings that differ on this machine, reasons as comments."""
    lines = [f"# {line}" for line in _HEAD]
    for comment, name, value in _sysctls(rows):
        lines += [f"# {comment}", f"{name} = {value}"]
    return lines


def machine_text(rows: Sequence[MachineRow]) -> list[str]:
    """Return a paragraph for each row, with the commands that set it."""
    lines: list[str] = []
    for row in safely_ordered(rows):
        assert row.advice is not None
        head = f"{row.setting.name}: {row.live} → {row.advice.value or 'unchanged'}"
        lines += [*([""] if lines else []), head, *_reasons(row.advice)]
        if row.differs and row.advice.value is not None:
            lines += [f"  {command}" for command in commands(row.setting.name, row.advice.value, survive=True)]
    return lines or ["nothing to change: the machine already has the advised starting values"]


def machine_array(rows: Sequence[MachineRow]) -> list[str]:
    """Return one JSON array."""
    return json.dumps([machine_json(row) for row in rows], ensure_ascii=False, indent=2).splitlines()


_MARKS: Final = {"text": "", "sql": "-- ", "conf": "# ", "sysctl": "# ", "ansible": "# "}


def facts_lines(basis: AdviceBasis, format: str) -> list[str]:
    """Return the facts behind the advice, as the beginning of a text or as comments; JSON has none."""
    if format not in _MARKS:
        return []
    facts = basis.facts
    size = str(basis.data_bytes) if isinstance(basis.data_bytes, Unavailable) else about(basis.data_bytes)
    limits = untold(basis.interval.newest, GROUP_MEMORY_MAX.id)
    wal = "not measured under load" if facts.wal_bytes_per_s is None else f"{about(facts.wal_bytes_per_s)}/s"
    facts_words = (
        f"PostgreSQL {facts.major}",
        f"memory {about(facts.ram_bytes) if facts.ram_bytes else 'unknown'}{' (limits unknown)' if limits else ''}",
        f"processors {facts.cores or 'unknown'}",
        f"disk {facts.disk or 'unknown (--disk)'}",
        f"data {size}",
        f"WAL {wal}",
    )
    lines = [f"for {', '.join(facts_words)}", f"workload {facts.workload}: {basis.workload_because}"]
    lines += [f"{name} is left unchanged: {reason}" for name, reason in basis.proposal.refusals]
    plan = basis.proposal.plan
    if plan is not None and plan.use.max_connections != facts.max_connections:
        lines.append(
            f"work_mem assumes max_connections {plan.use.max_connections}, not {facts.max_connections}: set both"
        )
    return [*(f"{_MARKS[format]}{line}" for line in lines), *([""] if format == "text" else [])]


WRITERS: Final[Mapping[str, Callable[[Sequence[ParameterRow]], list[str]]]] = MappingProxyType(
    {"text": advice_text, "json": advice_array, "sql": script, "conf": configuration, "ansible": variables}
)
"""Writers of --format for parameters of the server."""
MACHINE_WRITERS: Final[Mapping[str, Callable[[Sequence[MachineRow]], list[str]]]] = MappingProxyType(
    {"text": machine_text, "json": machine_array, "sysctl": sysctl_lines, "ansible": machine_variables}
)
"""Writers of --format for settings of the machine."""


# `advise --apply`: the proposal beside the present values, a confirmation, and one change set.


class MachineHalf(Struct, frozen=True):
    """The machine's half of a proposal.

    Attributes:
        settings: Settings to make before the server's half.
        settings_after: Settings to make after it and its restart; see `ChangeSet`.
    """

    settings: tuple[WantedSetting, ...] = ()
    settings_after: tuple[WantedSetting, ...] = ()

    @property
    def has_pool(self) -> bool:
        """Return True where huge pages are reserved."""
        return any(setting.name == POOL for setting in self.settings)


def settings_to_make(rows: Sequence[MachineRow], plan: MemoryPlan | None, *, lasting: bool) -> MachineHalf:
    """Return the machine's half; print the commands of settings that this process cannot make.

    One sysctl that cannot be made leaves all settings out.

    Args:
        plan: Memory plan of the proposal. Strict overcommit accounting pauses where the plan requires it.
        lasting: The half survives a reboot: sysctls by our file of sysctl.d, other settings by a printed command.
    """
    writable, left_out = list[MachineRow](), list[MachineRow]()
    for row in safely_ordered([row for row in rows if row.differs]):
        (writable if row.setting.writable else left_out).append(row)
    if any(is_sysctl(row.setting.name) for row in left_out):
        writable, left_out = [], [*writable, *left_out]
    if left_out:
        tell("not part of the change set; run as root, in this order:")
    for row in left_out:
        for command in commands(row.setting.name, row.advised, survive=True):
            tell(f"  {command}")
    until_boot = [row for row in writable if lasting and not is_sysctl(row.setting.name)]
    if until_boot:
        tell("live only; to keep it after a reboot, run as root:")
    for row in until_boot:
        tell(f"  {commands(row.setting.name, row.advised, survive=True)[-1]}")
    settings = tuple(WantedSetting(row.setting.name, row.advised, until_boot=row in until_boot) for row in writable)
    names = {setting.name for setting in settings}
    if plan is not None and plan.strict_pauses and ACCOUNTING not in names and names & _LIMITS:
        return MachineHalf((WantedSetting(ACCOUNTING, "0"), *settings), (WantedSetting(ACCOUNTING, "2"),))
    return MachineHalf(settings)


def advised_with(half: MachineHalf, basis: AdviceBasis) -> Mapping[str, Advice]:
    """Return the advice for the server; huge_pages is advised on only where the half reserves huge pages."""
    return basis.proposal.parameters if half.has_pool else basis.proposal.server_half()


def apply(request: AdviseRequest, basis: AdviceBasis, rows: Sequence[ParameterRow], half: MachineHalf) -> int:
    """Show the difference, ask, make the change set with the machine's half first, and return the exit status.

    Args:
        rows: Parameters with their advice.

    Raises:
        ServerProblem: The machine cannot carry the sessions, or the operator does not say yes; nothing is changed.
        UsageProblem: There is no terminal to ask on, or the request leaves a part out that another needs.
    """
    proposal, plan, for_s = basis.proposal, basis.proposal.plan, for_seconds(request.for_how_long)
    if plan is not None and plan.refused:
        raise ServerProblem(
            f"memory is too small for the connections: {plan.refused}", "put a pooler in front of the server first"
        )
    for name, reason in proposal.refusals:
        tell(f"{name} is left unchanged: {reason}")
    different = [row for row in rows if row.differs]
    for name, advice in proposal.without_restart().items():
        if advice.value is None and proposal.settings[name].value is not None and not (request.restart and different):
            tell(f"{name} waits for a restart: {advice.because}")
    names, max_connections = {row.parameter.name for row in different}, basis.facts.max_connections
    alone = "work_mem" in names and "max_connections" not in names
    if alone and plan is not None and plan.use.max_connections != max_connections:
        raise UsageProblem(
            f"work_mem is advised for max_connections {plan.use.max_connections}, not {max_connections}",
            "leave --group out, or apply --group connections first",
        )
    if isinstance(basis.machine, Unavailable):
        tell(f"{basis.machine}: only parameters of the server are applied")
    if not different and not half.settings:
        tell("nothing to change: the server has the advised values")
        if basis.facts.pending:
            tell(f"{', '.join(basis.facts.pending)} wait for a restart: `pgtop-tune set --restart` applies them")
        return 0
    live = basis.facts.machine.live if basis.facts.machine is not None else {}
    for setting in half.settings:
        say(f"{setting.name}: {live.get(setting.name, '?')} → {setting.value}")
    for row in different:
        waits = f" (waits for a restart: {row.parameter.pending})" if row.parameter.pending is not None else ""
        say(f"{row.parameter.name}: {row.parameter.shown}{waits} → {row.advised}")
    for setting in half.settings_after:
        say(f"{setting.name}: {setting.value} again after the restart")
    require_yes_to(len(different) + len(half.settings), yes=request.dry_run or request.yes)
    change_request = ChangeRequest(
        parameters=tuple(WantedParameter(row.parameter.name, row.advised, SYSTEM) for row in different),
        for_s=for_s,
        reason="advise --apply",
        dry_run=request.dry_run,
        settings=half.settings,
        settings_after=half.settings_after,
        persist=bool(half.settings) and for_s is None,
        restart=request.restart and bool(different),
        yes=request.yes,
    )
    return make_change(request.connection, change_request)


def say_parameters(request: ParametersRequest) -> None:
    """Print the parameters, or the settings of the machine.

    Raises:
        ConnectionProblem: The server is not there, or refuses the login.
        UsageProblem: There is no such group.
    """
    patterns, connection = names_and_connection(request.names or [], request.connection)
    if patterns and request.group:
        raise UsageProblem(f"--group and {patterns[0]} contradict each other", "pass one of them")
    try:
        basis = advice_basis(connection, 0.0, request.profile, request.disk)
    except NoSuchDatabase:
        if not (word := connection.target):
            raise
        raise UsageProblem(
            f"there is no parameter and no database {word!r}", instead(word, sorted(known_names()))
        ) from None
    if request.group.lower() == GROUP:
        settings = [row for row in machine_rows(basis) if row.changed or not request.changed]
        table, objects = machine_table(settings), [machine_json(row) for row in settings]
    else:
        rows = [
            row
            for row in _rows(basis, request.group, basis.proposal.server_half(), patterns)
            if row.changed or not request.changed
        ]
        if patterns and not rows and not request.changed:
            raise no_parameter(patterns)
        table, objects = parameter_table(rows), [parameter_json(row) for row in rows]
    say_list(request.format, objects, table)


def run_advise(request: AdviseRequest) -> int:
    """Print what is advised, or apply it; return the exit status.

    Raises:
        ConnectionProblem: The server is not there, or refuses the login.
        UsageProblem: Options do not go together.
    """
    of_machine = request.group.lower() == GROUP or (request.format is AdviceFormat.SYSCTL and not request.group)
    if request.format.value not in (MACHINE_WRITERS if of_machine else WRITERS):
        raise UsageProblem(
            f"--format {request.format.value} and --group {request.group} cannot be combined",
            f"use sysctl with --group {GROUP}; sql and conf with parameters of the server",
        )
    has_apply_option = request.for_how_long or request.restart or request.yes or request.dry_run
    if not request.apply and has_apply_option:
        raise UsageProblem("--for, --restart, --yes and --dry-run need --apply", "add --apply, or leave them out")
    if request.apply and request.format is not AdviceFormat.TEXT:
        raise UsageProblem("--apply only prints text", "leave --format out")
    basis = advice_basis(request.connection, request.seconds, request.profile, request.disk)
    if request.apply:
        return _applied(request, basis)
    if of_machine:
        settings = [
            row for row in machine_rows(basis) if row.differs or (request.everything and row.advice is not None)
        ]
        lines = MACHINE_WRITERS[request.format.value](settings)
    else:
        advised = basis.proposal.server_half()
        rows = [
            row
            for row in _rows(basis, request.group, advised)
            if row.differs or row.out_of_reach or (request.everything and row.advice is not None)
        ]
        lines = WRITERS[request.format.value](rows)
    if request.format is not AdviceFormat.TEXT:
        write_for_programs()
    for line in (*facts_lines(basis, request.format.value), *lines):
        say(line)
    return 0


def _applied(request: AdviseRequest, basis: AdviceBasis) -> int:
    """Apply both halves, or the half that --group names; for a server elsewhere, the server's half alone."""
    group, for_s = request.group, for_seconds(request.for_how_long)
    of_machine, of_server = group.lower() in ("", GROUP), group.lower() != GROUP
    with_machine = of_machine and (not isinstance(basis.machine, Unavailable) or not of_server)
    # Only a restart of the server frees its memory.
    differing = _rows(basis, group, basis.proposal.parameters) if of_server else ()
    restarts = request.restart and any(row.differs for row in differing)
    listed = machine_rows(basis, with_server=of_server, with_restart=restarts) if with_machine else ()
    half = settings_to_make(listed, basis.proposal.plan, lasting=for_s is None)
    rows = _rows(basis, group, advised_with(half, basis)) if of_server else ()
    return apply(request, basis, rows, half)


def _rows(
    basis: AdviceBasis, group: str, advised: Mapping[str, Advice], patterns: Sequence[str] = ()
) -> tuple[ParameterRow, ...]:
    sample = basis.interval.now(sections.parameters)
    parameters = () if sample is None else sample.parameters
    return matching_rows(parameters, advised, patterns) if patterns else parameter_rows(parameters, advised, group)
