"""Recommendations as text, JSON, an ALTER SYSTEM script, a configuration file and a file for sysctl.d."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pgtop_tune.changes.model.change import WantedSetting
from pgtop_tune.changes.ordering import settings_in_order
from pgtop_tune.cli.machine_rows import MachineRow
from pgtop_tune.cli.machine_rows import as_json as machine_json
from pgtop_tune.cli.parameter_rows import ParameterRow, as_json
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.units import about

if TYPE_CHECKING:
    from pgtop_tune.advice.facts import Advice
    from pgtop_tune.cli.looking import Looked

_RESTART: Final = "postmaster"
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
    from pgtop_tune.changes.server.statements import statement

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
    from pgtop_tune.host.system_settings import is_sysctl

    lines = [f"# {line}" for line in _HEAD]
    for row in in_order(rows):
        if row.advice is not None and row.differs and is_sysctl(row.setting.name):
            lines += [f"# now {row.live}. {row.advice.because}", f"{row.setting.name} = {row.advice.value}"]
    return lines


def machine_text(rows: Sequence[MachineRow]) -> list[str]:
    """A paragraph for each, with the commands that make it so."""
    from pgtop_tune.changes.machine.paste import commands

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


_MARKS: Final = {"text": "", "sql": "-- ", "conf": "# ", "sysctl": "# "}


def facts_lines(looked: Looked, format: str) -> list[str]:
    """What the advice stands on, as the beginning of a text or as comments; JSON has none."""
    if format not in _MARKS:
        return []
    facts = looked.facts
    size = str(looked.data_bytes) if isinstance(looked.data_bytes, Unavailable) else about(looked.data_bytes)
    wal = "not seen under load" if facts.wal_bytes_per_s is None else f"{about(facts.wal_bytes_per_s)}/s"
    known = (
        f"PostgreSQL {facts.major}",
        f"memory {about(facts.ram_bytes) if facts.ram_bytes else 'unknown'}",
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
    {"text": text, "json": as_array, "sql": script, "conf": configuration}
)
"""What --format names, for parameters of the server."""
MACHINE_WRITERS: Final[Mapping[str, Callable[[Sequence[MachineRow]], list[str]]]] = MappingProxyType(
    {"text": machine_text, "json": machine_array, "sysctl": sysctl_lines}
)
"""For settings of the machine."""
