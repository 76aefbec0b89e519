"""Recommendations as text, JSON, scripts and files; and `advise --apply`, which makes one change set of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.advice.facts import Advice
from pgtop_tune.advice.plan import MemoryPlan
from pgtop_tune.advice.proposal import ACCOUNTING, POOL
from pgtop_tune.base.errors import ServerProblem, UsageProblem
from pgtop_tune.base.units import about
from pgtop_tune.changes.machine.one_change import commands
from pgtop_tune.changes.model.change import SYSTEM, WantedParameter, WantedSetting
from pgtop_tune.changes.selection import settings_in_order
from pgtop_tune.changes.statements import statement
from pgtop_tune.cli.changing import ChangeRequest, change
from pgtop_tune.cli.commands.parameters.request import AdviceFormat, AdviseRequest, ListRequest
from pgtop_tune.cli.connecting import can_ask, let_in
from pgtop_tune.cli.looking import Looked, look_closely
from pgtop_tune.cli.options import Format, for_seconds
from pgtop_tune.cli.output import say, tell, write_for_programs
from pgtop_tune.cli.parameter_rows import (
    GROUP,
    MachineRow,
    ParameterRow,
    as_json,
    machine_json,
    machine_rows,
    machine_table,
    rows_of,
    table,
)
from pgtop_tune.cli.signals import answer_to, run_until_signalled
from pgtop_tune.host.system_settings import is_sysctl
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.host_details import GROUP_MEMORY_MAX
from pgtop_tune.metrics.host_values import untold
from pgtop_tune.model.absence import Unavailable

_RESTART: Final = "postmaster"
_LIMITS: Final = frozenset({POOL, "vm.overcommit_ratio"})
_EMPTY: Final = "''"
_NOTHING: Final = "nothing: the server already has the advised starting values"
_HEAD: Final = (
    "Advised by pgtop-tune: a starting point, not measured on this server.",
    "It never contains values that can lose data.",
)


def text(rows: Sequence[ParameterRow]) -> list[str]:
    """A paragraph for each: what it is, what is advised, why, the bounds, what others say."""
    lines: list[str] = []
    for row in rows:
        assert row.advice is not None
        lines += ["", *_paragraph(row, row.advice)] if lines else _paragraph(row, row.advice)
    return lines or [_NOTHING]


def _paragraph(row: ParameterRow, advice: Advice) -> list[str]:
    parameter = row.parameter
    when = "  (with a restart)" if parameter.context == _RESTART else ""
    return [f"{parameter.name}: {parameter.shown or _EMPTY} → {advice.value or 'unchanged'}{when}", *_reasons(advice)]


def _reasons(advice: Advice) -> list[str]:
    lines = [f"  {advice.because}"]
    if advice.low or advice.high:
        lines.append(f"  try from {advice.low or '…'} to {advice.high or '…'}")
    if advice.opinions:
        lines.append("  others: " + " · ".join(f"{each.who} {each.value}" for each in advice.opinions))
    return lines


def as_array(rows: Sequence[ParameterRow]) -> list[str]:
    """One JSON array."""
    return json.dumps([as_json(row) for row in rows], ensure_ascii=False, indent=2).splitlines()


def script(rows: Sequence[ParameterRow]) -> list[str]:
    """ALTER SYSTEM for psql, reasons as comments, what needs a restart last."""
    lines = [f"-- {line}" for line in _HEAD]
    for row, advice, value in _with_values(rows):
        note = " Takes effect with a restart." if row.parameter.context == _RESTART else ""
        lines.append(f"-- {row.parameter.name} is {row.parameter.shown}. {advice.because}{note}")
        lines.append(f"{statement(row.parameter.name, value)};")
    return [*lines, "SELECT pg_reload_conf();"]


def configuration(rows: Sequence[ParameterRow]) -> list[str]:
    """A file to be included in postgresql.conf."""
    lines = [f"# {line}" for line in _HEAD]
    for row, advice, value in _with_values(rows):
        quoted = value.replace("'", "''")
        note = " Takes effect with a restart." if row.parameter.context == _RESTART else ""
        lines.append(f"# now {row.parameter.shown}. {advice.because}{note}")
        lines.append(f"{row.parameter.name} = '{quoted}'")
    return lines


def variables(rows: Sequence[ParameterRow]) -> list[str]:
    """Variables for Ansible: options of the server as roles for PostgreSQL take them."""
    lines = [f"# {line}" for line in _HEAD] + ["postgresql_global_config_options:"]
    for row, advice, value in _with_values(rows):
        note = " Takes effect with a restart." if row.parameter.context == _RESTART else ""
        lines.append(f"  # now {row.parameter.shown}. {advice.because}{note}")
        lines.append(f"  - option: {json.dumps(row.parameter.name)}")
        lines.append(f"    value: {json.dumps(value)}")
    return lines if len(lines) > len(_HEAD) + 1 else [*lines[:-1], "postgresql_global_config_options: []"]


def machine_variables(rows: Sequence[MachineRow]) -> list[str]:
    """Variables for Ansible: sysctls as a loop over `ansible.posix.sysctl` takes them."""
    lines = [f"# {line}" for line in _HEAD] + ["sysctl_settings:"]
    for row in in_order(rows):
        if row.advice is not None and row.differs and is_sysctl(row.setting.name):
            lines.append(f"  # now {row.live}. {row.advice.because}")
            lines.append(f"  - name: {json.dumps(row.setting.name)}")
            lines.append(f"    value: {json.dumps(row.advice.value)}")
    return lines if len(lines) > len(_HEAD) + 1 else [*lines[:-1], "sysctl_settings: []"]


def _with_values(rows: Sequence[ParameterRow]) -> list[tuple[ParameterRow, Advice, str]]:
    """Those with a value, what a reload changes first."""
    found = [
        (row, row.advice, row.advice.value) for row in rows if row.advice is not None and row.advice.value is not None
    ]
    return sorted(found, key=lambda each: each[0].parameter.context == _RESTART)


def in_order(rows: Sequence[MachineRow]) -> list[MachineRow]:
    """The rows in the order in which their values are safe to set, one after the other."""
    by_name = {row.setting.name: row for row in rows}
    wanted = [WantedSetting(row.setting.name, row.advised) for row in rows]
    return [by_name[each.name] for each in settings_in_order(wanted)]


def sysctl_lines(rows: Sequence[MachineRow]) -> list[str]:
    """A file for /etc/sysctl.d with what differs on this machine, reasons as comments."""
    lines = [f"# {line}" for line in _HEAD]
    for row in in_order(rows):
        if row.advice is not None and row.differs and is_sysctl(row.setting.name):
            lines += [f"# now {row.live}. {row.advice.because}", f"{row.setting.name} = {row.advice.value}"]
    return lines


def machine_text(rows: Sequence[MachineRow]) -> list[str]:
    """A paragraph for each, with the commands that make it so."""
    lines: list[str] = []
    for row in in_order(rows):
        assert row.advice is not None
        head = f"{row.setting.name}: {row.live} → {row.advice.value or 'unchanged'}"
        lines += [*([""] if lines else []), head, *_reasons(row.advice)]
        if row.differs and row.advice.value is not None:
            lines += [f"  {command}" for command in commands(row.setting.name, row.advice.value, survive=True)]
    return lines or ["nothing: the machine already has the advised starting values"]


def machine_array(rows: Sequence[MachineRow]) -> list[str]:
    """One JSON array."""
    return json.dumps([machine_json(row) for row in rows], ensure_ascii=False, indent=2).splitlines()


_MARKS: Final = {"text": "", "sql": "-- ", "conf": "# ", "sysctl": "# ", "ansible": "# "}


def facts_lines(looked: Looked, format: str) -> list[str]:
    """What the advice stands on, as the beginning of a text or as comments; JSON has none."""
    if format not in _MARKS:
        return []
    facts = looked.facts
    size = str(looked.data_bytes) if isinstance(looked.data_bytes, Unavailable) else about(looked.data_bytes)
    limits = untold(looked.interval.newest, GROUP_MEMORY_MAX.id)
    wal = "not seen under load" if facts.wal_bytes_per_s is None else f"{about(facts.wal_bytes_per_s)}/s"
    known = (
        f"PostgreSQL {facts.major}",
        f"memory {about(facts.ram_bytes) if facts.ram_bytes else 'unknown'}{' (limits unknown)' if limits else ''}",
        f"processors {facts.cores or 'unknown'}",
        f"disk {facts.disk or 'unknown (--disk)'}",
        f"data {size}",
        f"WAL {wal}",
    )
    lines = [f"for {', '.join(known)}", f"workload {facts.workload}: {looked.workload_because}"]
    lines += [f"left alone, {name}: {why}" for name, why in looked.proposal.refusals]
    plan = looked.proposal.plan
    if plan is not None and plan.use.max_connections != facts.max_connections:
        lines.append(
            f"work_mem is for max_connections {plan.use.max_connections}, not {facts.max_connections}: set both"
        )
    return [*(f"{_MARKS[format]}{line}" for line in lines), *([""] if format == "text" else [])]


WRITERS: Final[Mapping[str, Callable[[Sequence[ParameterRow]], list[str]]]] = MappingProxyType(
    {"text": text, "json": as_array, "sql": script, "conf": configuration, "ansible": variables}
)
"""What --format names, for parameters of the server."""
MACHINE_WRITERS: Final[Mapping[str, Callable[[Sequence[MachineRow]], list[str]]]] = MappingProxyType(
    {"text": machine_text, "json": machine_array, "sysctl": sysctl_lines, "ansible": machine_variables}
)
"""For settings of the machine."""


# `advise --apply`: the proposal beside what runs and what waits for a restart, a yes, and one change set of it.

_REASON = "advise --apply"


class MachineHalf(Struct, frozen=True):
    """The machine's half of a proposal; see `ChangeSet`."""

    settings: tuple[WantedSetting, ...] = ()
    settings_after: tuple[WantedSetting, ...] = ()

    @property
    def has_pool(self) -> bool:
        """Whether huge pages are reserved."""
        return any(each.name == POOL for each in self.settings)


def settings_to_make(rows: Sequence[MachineRow], plan: MemoryPlan | None, *, lasting: bool) -> MachineHalf:
    """The machine's half; none at all where a part of it cannot be made, which the commands to paste are shown for.

    Args:
        rows: With what is advised.
        plan: Of the proposal; where it says so, strict accounting pauses while the half is made.
        lasting: They are to survive a reboot, which our file of sysctl.d sees to for sysctls; for others the command
            is shown.
    """
    made, left = list[MachineRow](), list[MachineRow]()
    for row in in_order([row for row in rows if row.differs]):
        (made if row.setting.writable else left).append(row)
    if any(is_sysctl(row.setting.name) for row in left):
        made, left = [], [*made, *left]
    if left:
        tell("not part of the change set; as root, in this order:")
    for row in left:
        for command in commands(row.setting.name, row.advised, survive=True):
            tell(f"  {command}")
    until_boot = [row for row in made if lasting and not is_sysctl(row.setting.name)]
    if until_boot:
        tell("live only; to have it after a reboot, as root:")
    for row in until_boot:
        tell(f"  {commands(row.setting.name, row.advised, survive=True)[-1]}")
    settings = tuple(WantedSetting(row.setting.name, row.advised, until_boot=row in until_boot) for row in made)
    names = {each.name for each in settings}
    if plan is not None and plan.strict_pauses and ACCOUNTING not in names and names & _LIMITS:
        return MachineHalf((WantedSetting(ACCOUNTING, "0"), *settings), (WantedSetting(ACCOUNTING, "2"),))
    return MachineHalf(settings)


def advised_with(half: MachineHalf, looked: Looked) -> Mapping[str, Advice]:
    """Advice for the server beside the machine's half that is made: huge_pages is on only with the pages."""
    if half.has_pool:
        return looked.proposal.parameters
    return looked.proposal.server_half()


def apply(request: AdviseRequest, looked: Looked, rows: Sequence[ParameterRow], half: MachineHalf) -> int:
    """Shows the difference, asks, and makes the change set, the machine's half first.

    Args:
        looked: What was seen of the server.
        rows: Parameters with what is advised.
        half: The machine's.

    Returns:
        The exit status.

    Raises:
        ServerProblem: The machine cannot carry the sessions there are, or nobody says yes; nothing is changed.
        UsageProblem: There is nobody to ask, or a part is asked for that is not safe without another.
    """
    proposal, for_s = looked.proposal, for_seconds(request.for_how_long)
    plan = proposal.plan
    if plan is not None and plan.refused:
        raise ServerProblem(f"the memory rule cannot hold: {plan.refused}", "put a pooler in front first")
    for name, why in looked.proposal.refusals:
        tell(f"left alone, {name}: {why}")
    different = [row for row in rows if row.differs]
    for name, advice in proposal.without_restart().items():
        if advice.value is None and proposal.settings[name].value is not None and not (request.restart and different):
            tell(f"{name} waits for a restart: {advice.because}")
    names, now = {row.parameter.name for row in different}, looked.facts.max_connections
    alone = "work_mem" in names and "max_connections" not in names
    if alone and plan is not None and plan.use.max_connections != now:
        raise UsageProblem(
            f"work_mem is advised for max_connections {plan.use.max_connections}, not {now}",
            "leave --group out, or apply --group connections first",
        )
    if isinstance(looked.machine, Unavailable):
        tell(f"{looked.machine}: only the server's half of the proposal is made here")
    if not different and not half.settings:
        tell("nothing to change: the server has the advised values")
        if looked.facts.pending:
            tell(f"{', '.join(looked.facts.pending)} wait for a restart: `pgtop-tune set --restart` applies them")
        return 0
    live = looked.facts.machine.live if looked.facts.machine is not None else {}
    for each in half.settings:
        say(f"{each.name}: {live.get(each.name, '?')} → {each.value}")
    for row in different:
        waits = f" (waits for a restart: {row.parameter.pending})" if row.parameter.pending is not None else ""
        say(f"{row.parameter.name}: {row.parameter.shown}{waits} → {row.advised}")
    for each in half.settings_after:
        say(f"{each.name}: again {each.value}, after the restart")
    if not request.dry_run and not request.yes:
        _ask(len(different) + len(half.settings))
    asked = ChangeRequest(
        wanted=tuple(WantedParameter(row.parameter.name, row.advised, SYSTEM) for row in different),
        for_s=for_s,
        reason=_REASON,
        dry_run=request.dry_run,
        settings=half.settings,
        settings_after=half.settings_after,
        persist=bool(half.settings) and for_s is None,
        restart=request.restart and bool(different),
        yes=request.yes,
    )
    return let_in(request.words, lambda conninfo: run_until_signalled(change(conninfo, asked)))


def _ask(number: int) -> None:
    if not can_ask():
        raise UsageProblem(f"{number} changes need a confirmation", "pass --yes without a terminal")
    if answer_to(f"apply these {number} changes? [y/N] ").lower() not in ("y", "yes"):
        raise ServerProblem("nothing was changed")


def say_parameters(request: ListRequest) -> None:
    """Print the parameters, or the settings of the machine.

    Raises:
        ConnectionProblem: The server is not there or does not let us in.
        UsageProblem: There is no such group.
    """
    lines: list[str]
    objects: list[dict[str, Any]]
    looked = look_closely(request.words, 0.0, request.profile, request.disk)
    if request.group.lower() == GROUP:
        settings = [row for row in machine_rows(looked) if row.changed or not request.changed]
        lines, objects = machine_table(settings), [machine_json(row) for row in settings]
    else:
        rows = [
            row
            for row in _rows(looked, request.group, looked.proposal.server_half())
            if row.changed or not request.changed
        ]
        lines, objects = table(rows), [as_json(row) for row in rows]
    if request.format is Format.JSON:
        write_for_programs()
        lines = json.dumps(objects, ensure_ascii=False, indent=2).splitlines()
    for line in lines:
        say(line)


def run_advise(request: AdviseRequest) -> int:
    """Print what is advised, or apply it; return the exit status.

    Raises:
        ConnectionProblem: The server is not there or does not let us in.
        UsageProblem: Options that do not go together.
    """
    of_machine = request.group.lower() == GROUP or (request.format is AdviceFormat.SYSCTL and not request.group)
    if request.format.value not in (MACHINE_WRITERS if of_machine else WRITERS):
        raise UsageProblem(
            f"--format {request.format.value} and --group {request.group} do not go together",
            f"sysctl is for --group {GROUP}; sql and conf are for parameters of the server",
        )
    is_applied = request.for_how_long or request.restart or request.yes or request.dry_run
    if not request.apply and is_applied:
        raise UsageProblem("--for, --restart, --yes and --dry-run are for --apply", "add --apply, or leave them out")
    if request.apply and request.format is not AdviceFormat.TEXT:
        raise UsageProblem("--apply writes no other format", "leave --format out")
    looked = look_closely(request.words, request.seconds, request.profile, request.disk)
    if request.apply:
        return _applied(request, looked)
    if of_machine:
        settings = [
            row for row in machine_rows(looked) if row.differs or (request.everything and row.advice is not None)
        ]
        lines = MACHINE_WRITERS[request.format.value](settings)
    else:
        advised = looked.proposal.server_half()
        rows = [
            row
            for row in _rows(looked, request.group, advised)
            if row.differs or row.out_of_reach or (request.everything and row.advice is not None)
        ]
        lines = WRITERS[request.format.value](rows)
    if request.format is not AdviceFormat.TEXT:
        write_for_programs()
    for line in (*facts_lines(looked, request.format.value), *lines):
        say(line)
    return 0


def _applied(request: AdviseRequest, looked: Looked) -> int:
    """Both halves, or that of the group; without the server's machine its half alone."""
    group, for_s = request.group, for_seconds(request.for_how_long)
    of_machine, of_server = group.lower() in ("", GROUP), group.lower() != GROUP
    with_machine = of_machine and (not isinstance(looked.machine, Unavailable) or not of_server)
    # Only what takes a restart of the server gives memory back.
    differing = _rows(looked, group, looked.proposal.parameters) if of_server else ()
    restarts = request.restart and any(row.differs for row in differing)
    listed = machine_rows(looked, with_server=of_server, with_restart=restarts) if with_machine else ()
    half = settings_to_make(listed, looked.proposal.plan, lasting=for_s is None)
    rows = _rows(looked, group, advised_with(half, looked)) if of_server else ()
    return apply(request, looked, rows, half)


def _rows(looked: Looked, group: str, advised: Mapping[str, Advice]) -> tuple[ParameterRow, ...]:
    sample = looked.interval.now(sections.parameters)
    return rows_of(() if sample is None else sample.parameters, advised, group)
