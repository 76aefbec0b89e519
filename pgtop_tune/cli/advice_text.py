"""Recommendations as text, JSON, an ALTER SYSTEM script, a configuration file and a file for sysctl.d."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pgtop_tune.cli.parameter_rows import Row, as_json

if TYPE_CHECKING:
    from pgtop_tune.cli.looking import Looked
    from pgtop_tune.tuning.advice.facts import Advice

_RESTART: Final = "postmaster"
_EMPTY: Final = "''"
_LAST: Final = "vm.overcommit_memory"
"""Strict accounting goes by vm.overcommit_ratio: that one first."""
_NOTHING: Final = "nothing: the server has what we would start from"
_HEAD: Final = (
    "Advised by pgtop-tune: a place to start from, not measured on this server.",
    "Values that can lose data are never among them.",
)


def text(rows: Sequence[Row]) -> list[str]:
    """A paragraph for each: what it is, what is advised, why, the bounds, what others say."""
    lines: list[str] = []
    for row in rows:
        assert row.advice is not None
        lines += ["", *_paragraph(row, row.advice)] if lines else _paragraph(row, row.advice)
    return lines or [_NOTHING]


def _paragraph(row: Row, advice: Advice) -> list[str]:
    parameter = row.parameter
    when = "  (with a restart)" if parameter.context == _RESTART else ""
    lines = [f"{parameter.name}: {parameter.shown or _EMPTY} → {advice.value or 'as it is'}{when}"]
    lines.append(f"  {advice.because}")
    if advice.low or advice.high:
        lines.append(f"  try from {advice.low or '…'} to {advice.high or '…'}")
    if advice.opinions:
        lines.append("  others: " + " · ".join(f"{each.who} {each.value}" for each in advice.opinions))
    return lines


def as_array(rows: Sequence[Row]) -> list[str]:
    """One JSON array."""
    return json.dumps([as_json(row) for row in rows], ensure_ascii=False, indent=2).splitlines()


def script(rows: Sequence[Row]) -> list[str]:
    """ALTER SYSTEM for psql, reasons as comments, what needs a restart last."""
    from pgtop_tune.postgres.scopes import statement

    lines = [f"-- {line}" for line in _HEAD]
    for row, advice, value in _with_values(rows):
        note = "; takes effect with a restart" if row.parameter.context == _RESTART else ""
        lines.append(f"-- {row.parameter.name} is {row.parameter.shown}. {advice.because}{note}")
        lines.append(f"{statement(row.parameter.name, value).as_string(None)};")
    return [*lines, "SELECT pg_reload_conf();"]


def configuration(rows: Sequence[Row]) -> list[str]:
    """A file to be included in postgresql.conf."""
    lines = [f"# {line}" for line in _HEAD]
    for row, advice, value in _with_values(rows):
        quoted = value.replace("'", "''")
        note = "; takes effect with a restart" if row.parameter.context == _RESTART else ""
        lines.append(f"# now {row.parameter.shown}. {advice.because}{note}")
        lines.append(f"{row.parameter.name} = '{quoted}'")
    return lines


def _with_values(rows: Sequence[Row]) -> list[tuple[Row, Advice, str]]:
    """Those with a value, what a reload changes first."""
    found = [
        (row, row.advice, row.advice.value) for row in rows if row.advice is not None and row.advice.value is not None
    ]
    return sorted(found, key=lambda each: each[0].parameter.context == _RESTART)


def sysctl_lines(looked: Looked) -> list[str]:
    """A file for /etc/sysctl.d with what differs on this machine, reasons as comments.

    Raises:
        UsageProblem: The server is on another machine.
    """
    from pgtop_tune.errors import UsageProblem
    from pgtop_tune.host.block_devices import ROOT
    from pgtop_tune.host.machine_facts import machine_facts
    from pgtop_tune.host.system_settings import is_sysctl, settings
    from pgtop_tune.metrics import sections
    from pgtop_tune.model.absence import Unavailable
    from pgtop_tune.tuning.advice.system_rules import advise_system, system_facts

    server = sections.server(looked.interval.newest)
    if isinstance(server, Unavailable) or not server.local:
        raise UsageProblem("the server runs on another machine", "ask for its sysctl file there")
    found = settings(ROOT, [disk.name for disk in looked.disks])
    facts = system_facts(looked.facts, machine_facts(ROOT), found, looked.disks)
    lines = [f"# {line}" for line in _HEAD]
    for setting in sorted(found, key=lambda each: each.name == _LAST):
        advice = advise_system(setting.name, facts) if is_sysctl(setting.name) else None
        if advice is not None and advice.value is not None and str(setting.live) != advice.value:
            lines += [f"# now {setting.live}. {advice.because}", f"{setting.name} = {advice.value}"]
    return lines


WRITERS: Final[Mapping[str, Callable[[Sequence[Row]], list[str]]]] = MappingProxyType(
    {"text": text, "json": as_array, "sql": script, "conf": configuration}
)
"""What --format names."""
