"""Parameters as commands list them: knobs of the catalogue with what the server has and what is advised. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.advice.facts import OUT_OF_REACH, Advice
from pgtop_tune.advice.knobs.catalogue import GROUPS, KNOBS
from pgtop_tune.advice.knobs.knob import Knob
from pgtop_tune.advice.proposal import (
    advice_for,
    advised_value,
    differs,
    is_changed,
    listed_parameters,
    listed_settings,
)
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli.looking import Looked
from pgtop_tune.host.sysctl_files import DEFAULTS
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.machine import SystemSetting
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.model.setup import MachineSetup

# Settings of the operating system as commands list them: live, after a reboot, and what is advised.

GROUP: Final = "os"
"""What --group calls them."""
_KERNEL: Final = "the kernel's default"


class MachineRow(Struct, frozen=True):
    """A setting that this kernel has, its knob, and what is advised."""

    setting: SystemSetting
    knob: Knob
    advice: Advice | None

    @property
    def live(self) -> str:
        """Value now; rows of settings that cannot be read are not made."""
        return str(self.setting.live)

    @property
    def boot(self) -> str | None:
        """What the machine starts with; None where that is not known."""
        return self.setting.after_reboot.value or DEFAULTS.get(self.setting.name)

    @property
    def boot_place(self) -> str:
        """Where that is set: file and line, the kernel, or what may set it and is not looked into; "" when unknown."""
        after = self.setting.after_reboot
        if after.assignments:
            last = after.assignments[-1]
            return f"{last.file}:{last.line}"
        perhaps = f"perhaps {', '.join(after.not_read)}" if after.not_read else ""
        return "; ".join(filter(None, (_KERNEL if self.boot is not None else "", perhaps)))

    @property
    def changed(self) -> bool:
        """Whether it is other than what the machine starts with, as far as that is known."""
        return self.boot is not None and self.boot != self.live

    @property
    def advised(self) -> str:
        """The advised value; "" where there is none."""
        return advised_value(self.advice)

    @property
    def differs(self) -> bool:
        """Whether a value is advised, and it is another one than this machine has."""
        return self.advised not in ("", self.live)


def machine_rows(looked: Looked, *, with_server: bool = False, with_restart: bool = False) -> tuple[MachineRow, ...]:
    """The settings of the machine that the server runs on, in the order of the kernel's documentation.

    Args:
        looked: What was seen.
        with_server: The server's half of what is advised is made as well.
        with_restart: And the server restarted.

    Raises:
        UsageProblem: The server is on another machine, or its settings are in no file.
    """
    if isinstance(looked.machine, Unavailable):
        hint = "ask for its settings there" if looked.machine.reason is Reason.NOT_LOCAL else ""
        raise UsageProblem(str(looked.machine), hint)
    proposal = looked.proposal
    advised = (
        proposal.settings if with_restart else proposal.without_restart() if with_server else proposal.machine_half()
    )
    return tuple(
        MachineRow(setting, knob, advised.get(setting.name))
        for knob, setting in listed_settings(looked.machine.settings)
    )


def settings_of(setup: MachineSetup | None) -> dict[str, str]:
    """Values of a machine by name, as a frame has them; empty where it was not seen."""
    if setup is None:
        return {}
    queues = {
        f"{disk.name}/{name}": str(value)
        for disk in setup.disks
        for name, value in (
            ("scheduler", disk.scheduler or None),
            ("read_ahead_kb", disk.read_ahead_kb),
            ("nr_requests", disk.nr_requests),
        )
        if value is not None
    }
    return {**{each.name: each.value for each in setup.settings}, **queues}


def settings_differing(a: Mapping[str, str], b: Mapping[str, str]) -> tuple[ParameterDifference, ...]:
    """Settings of two machines that differ; none where one of them was not seen."""
    if not a or not b:
        return ()
    return tuple(
        ParameterDifference(name=name, a=a.get(name), b=b.get(name), context=GROUP, of_the_place=False)
        for name in dict.fromkeys((*a, *b))
        if a.get(name) != b.get(name)
    )


def machine_table(rows: Sequence[MachineRow]) -> list[str]:
    """Lines of `parameters --group os`."""
    cells = [
        (
            row.setting.name,
            row.live,
            row.boot or NONE,
            row.advised or NONE,
            "live" if row.setting.writable else "as root",
            row.boot_place or NONE,
        )
        for row in rows
    ]
    return in_columns(("setting", "value", "at boot", "advice", "change", "set at boot by"), cells)


def machine_json(row: MachineRow) -> dict[str, Any]:
    """A row as the JSON of `parameters` and `advise` has it; what is not there is null."""
    after = row.setting.after_reboot
    return {
        "name": row.setting.name,
        "group": row.knob.group,
        "path": row.setting.path,
        "value": row.live,
        "choices": list(row.setting.choices),
        "at_boot": row.boot,
        "set_at_boot": [{"value": each.value, "file": each.file, "line": each.line} for each in after.assignments],
        "not_looked_into": list(after.not_read),
        "changed": row.changed,
        "writable": row.setting.writable,
        "why": row.knob.why,
        "trades": row.knob.trades,
        "moves_with": list(row.knob.moves_with),
        "advice": None if row.advice is None else advice_json(row.advice, row.differs),
    }


NONE: Final = "-"
_PLACES: Final = {knob.name: place for place, knob in enumerate(KNOBS)}
_OF_THE_PLACE: Final = frozenset(
    {
        "cluster_name",
        "config_file",
        "data_directory",
        "external_pid_file",
        "hba_file",
        "ident_file",
        "listen_addresses",
        "port",
        "unix_socket_directories",
    }
)


class ParameterRow(Struct, frozen=True):
    """A knob, what the server has, and what is advised."""

    knob: Knob
    parameter: Parameter
    advice: Advice | None

    @property
    def changed(self) -> bool:
        """Whether it is other than the server's default, or will be after a restart."""
        return is_changed(self.parameter)

    @property
    def advised(self) -> str:
        """The advised value; "" where there is none."""
        return advised_value(self.advice)

    @property
    def differs(self) -> bool:
        """Whether a value is advised, and it is another one than the server has or will have after a restart."""
        return differs(self.parameter, self.advice)

    @property
    def out_of_reach(self) -> bool:
        """Whether another value is advised than ALTER SYSTEM could give this session."""
        return self.advice is not None and not self.advised and self.parameter.source in OUT_OF_REACH


def rows_of(
    parameters: Sequence[Parameter], advised: Mapping[str, Advice], group: str = ""
) -> tuple[ParameterRow, ...]:
    """The knobs this server has, in the order of the catalogue.

    Args:
        parameters: Of the server.
        advised: Advice by parameter.
        group: Only of this group; "" is all.

    Raises:
        UsageProblem: There is no such group.
    """
    groups = {each.lower(): each for each in GROUPS}
    if group and group.lower() not in groups:
        near = difflib.get_close_matches(group.lower(), groups, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageProblem(f"there is no group {group!r}", f"{hint}groups: {', '.join(GROUPS)}, os")
    return tuple(
        ParameterRow(knob, parameter, advice_for(parameter, advised))
        for knob, parameter in listed_parameters(KNOBS, parameters, advised)
        if not group or knob.group.lower() == group.lower()
    )


def as_json(row: ParameterRow) -> dict[str, Any]:
    """A row as the JSON of `parameters` and `advise` has it; what is not there is null."""
    parameter, advice = row.parameter, row.advice
    return {
        "name": parameter.name,
        "group": row.knob.group,
        "value": parameter.shown,
        "setting": parameter.setting,
        "unit": parameter.unit or None,
        "default": parameter.boot_val,
        "changed": row.changed,
        "context": parameter.context,
        "source": parameter.source,
        "source_file": parameter.sourcefile or None,
        "pending_restart": parameter.pending_restart,
        "pending": parameter.pending,
        "why": row.knob.why,
        "trades": row.knob.trades,
        "moves_with": list(row.knob.moves_with),
        "advice": None if advice is None else advice_json(advice, row.differs),
    }


def advice_json(advice: Advice, differs: bool) -> dict[str, Any]:
    """Advice, and whether it is another value than there is."""
    return {
        "value": advice.value,
        "differs": differs,
        "because": advice.because,
        "low": advice.low or None,
        "high": advice.high or None,
        "opinions": {opinion.who: opinion.value for opinion in advice.opinions},
    }


def table(rows: Sequence[ParameterRow]) -> list[str]:
    """Lines of `parameters`, group by group."""
    cells = [
        (
            row.parameter.name,
            row.parameter.shown or "''",
            row.parameter.unit or NONE,
            row.parameter.context,
            row.parameter.pending or ("restart" if row.parameter.pending_restart else NONE),
            row.advised or NONE,
            row.parameter.sourcefile or row.parameter.source,
        )
        for row in rows
    ]
    head = ("parameter", "value", "unit", "context", "pending", "advice", "source")
    return in_columns(head, cells)


def in_columns(head: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    """A heading and rows below each other, two spaces apart."""
    widths = [max(len(row[column]) for row in (head, *cells)) for column in range(len(head))]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in (head, *cells)
    ]


class ParameterDifference(Struct, frozen=True):
    """A parameter, or a setting of the machine, that is not the same on two sides.

    Attributes:
        a, b: As SHOW or the kernel's file has them; None where a side does not have it or may not see it.
        context: pg_settings.context; "os" for a setting of the machine.
        of_the_place: Whether it names a directory, a file or an address, which differ between any two servers.
    """

    name: str
    a: str | None
    b: str | None
    context: str
    of_the_place: bool

    @property
    def one_sided(self) -> bool:
        """Whether only one side has it: another major, another library, another role."""
        return self.a is None or self.b is None


def differing(a: Mapping[str, Parameter], b: Mapping[str, Parameter]) -> tuple[ParameterDifference, ...]:
    """Parameters that differ, knobs of the catalogue first, then by name."""
    found = []
    for name in sorted({*a, *b}, key=lambda name: (_PLACES.get(name, len(_PLACES)), name)):
        left, right = a.get(name), b.get(name)
        either = left or right
        if either is None or (left is not None and right is not None and left.shown == right.shown):
            continue
        found.append(
            ParameterDifference(
                name=name,
                a=None if left is None else left.shown,
                b=None if right is None else right.shown,
                context=either.context,
                of_the_place=name in _OF_THE_PLACE,
            )
        )
    return tuple(found)
