"""Rows of `parameters` and `advise`: knobs of the catalogue with their values and the advice. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.advice.facts import OUT_OF_REACH, Advice
from pgtop_tune.advice.knobs.catalogue import GROUPS, KNOBS
from pgtop_tune.advice.knobs.knob import Knob
from pgtop_tune.advice.proposal import (
    OTHERS,
    advice_for,
    advised_value,
    differs,
    is_changed,
    listed_parameters,
    listed_settings,
)
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.tables import Table
from pgtop_tune.cli.assignments import instead
from pgtop_tune.cli.connections import PLACES, ConnectionOptions, with_places
from pgtop_tune.cli.snapshot import AdviceBasis
from pgtop_tune.host.sysctl_files import DEFAULTS
from pgtop_tune.metrics.setting_risks import RISKS
from pgtop_tune.metrics.value_risks import SAFE
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.machine import SystemSetting
from pgtop_tune.model.postgres import Parameter

_MAGIC: Final = frozenset("*?[")
GROUP: Final = "os"
"""Name of the settings of the operating system for --group."""
_KERNEL: Final = "the kernel's default"


class MachineRow(Struct, frozen=True):
    """A setting of this kernel, its knob, and the advice."""

    setting: SystemSetting
    knob: Knob
    advice: Advice | None

    @property
    def live(self) -> str:
        """Return the value now; settings that cannot be read have no row."""
        return str(self.setting.live)

    @property
    def boot(self) -> str | None:
        """Return the value at boot; None where it is unknown."""
        return self.setting.after_reboot.value or DEFAULTS.get(self.setting.name)

    @property
    def boot_place(self) -> str:
        """Return the source of the boot value: a line of a file, the kernel, or files not read; "" if unknown."""
        after = self.setting.after_reboot
        if after.assignments:
            last = after.assignments[-1]
            return f"{last.file}:{last.line}"
        perhaps = f"perhaps {', '.join(after.not_read)}" if after.not_read else ""
        return "; ".join(filter(None, (_KERNEL if self.boot is not None else "", perhaps)))

    @property
    def changed(self) -> bool:
        """Return True where the value differs from a known boot value."""
        return self.boot is not None and self.boot != self.live

    @property
    def advised(self) -> str:
        """Return the advised value; "" without one."""
        return advised_value(self.advice)

    @property
    def differs(self) -> bool:
        """Return True where another value is advised than this machine has."""
        return self.advised not in ("", self.live)


def machine_rows(
    basis: AdviceBasis, *, with_server: bool = False, with_restart: bool = False
) -> tuple[MachineRow, ...]:
    """Return the settings of the server's machine, in the order of the kernel's documentation.

    Args:
        with_server: The server's half of the advice is made as well.
        with_restart: The server is restarted, too.

    Raises:
        UsageProblem: The server is on another machine, or its settings are in no file.
    """
    if isinstance(basis.machine, Unavailable):
        hint = "run this command on that machine" if basis.machine.reason is Reason.NOT_LOCAL else ""
        raise UsageProblem(str(basis.machine), hint)
    proposal = basis.proposal
    advised = (
        proposal.settings if with_restart else proposal.without_restart() if with_server else proposal.machine_half()
    )
    return tuple(
        MachineRow(setting, knob, advised.get(setting.name))
        for knob, setting in listed_settings(basis.machine.settings)
    )


def machine_table(rows: Sequence[MachineRow]) -> Table:
    """Return the table of `parameters --group os`."""
    cells = tuple(
        (
            row.setting.name,
            row.live,
            row.boot or NONE,
            row.advised or NONE,
            "live" if row.setting.writable else "as root",
            row.boot_place or NONE,
        )
        for row in rows
    )
    return Table(("setting", "value", "at boot", "advice", "change", "set at boot by"), cells)


def machine_json(row: MachineRow) -> dict[str, Any]:
    """Return a row as the JSON of `parameters` and `advise` has it; an absent value is null."""
    after = row.setting.after_reboot
    return {
        "name": row.setting.name,
        "group": row.knob.group,
        "path": row.setting.path,
        "value": row.live,
        "choices": list(row.setting.choices),
        "at_boot": row.boot,
        "set_at_boot": [{"value": line.value, "file": line.file, "line": line.line} for line in after.assignments],
        "not_basis_into": list(after.not_read),
        "changed": row.changed,
        "writable": row.setting.writable,
        "why": row.knob.why,
        "trades": row.knob.trades,
        "moves_with": list(row.knob.moves_with),
        "advice": None if row.advice is None else advice_json(row.advice, row.differs),
    }


NONE: Final = "-"


class ParameterRow(Struct, frozen=True):
    """A knob, the server's parameter, and the advice."""

    knob: Knob
    parameter: Parameter
    advice: Advice | None

    @property
    def changed(self) -> bool:
        """Return True where the value differs from the server's default, or will after a restart."""
        return is_changed(self.parameter)

    @property
    def advised(self) -> str:
        """Return the advised value; "" without one."""
        return advised_value(self.advice)

    @property
    def differs(self) -> bool:
        """Return True where another value is advised than the server has, or will have after a restart."""
        return differs(self.parameter, self.advice)

    @property
    def out_of_reach(self) -> bool:
        """Return True where ALTER SYSTEM could not give this session the advised value."""
        return self.advice is not None and not self.advised and self.parameter.source in OUT_OF_REACH


def parameter_rows(
    parameters: Sequence[Parameter], advised: Mapping[str, Advice], group: str = ""
) -> tuple[ParameterRow, ...]:
    """Return the knobs of a server, in the order of the catalogue.

    Args:
        advised: Advice by parameter.
        group: Only knobs of this group; "" means all.

    Raises:
        UsageProblem: There is no such group.
    """
    groups = {name.lower(): name for name in GROUPS}
    if group and group.lower() not in groups:
        near = difflib.get_close_matches(group.lower(), groups, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageProblem(f"no group {group!r}", f"{hint}groups: {', '.join(GROUPS)}, os")
    return tuple(
        ParameterRow(knob, parameter, advice_for(parameter, advised))
        for knob, parameter in listed_parameters(KNOBS, parameters, advised)
        if not group or knob.group.lower() == group.lower()
    )


def matching_rows(
    parameters: Sequence[Parameter], advised: Mapping[str, Advice], patterns: Sequence[str]
) -> tuple[ParameterRow, ...]:
    """Return the parameters of a server that have one of the names, or match one of the patterns, by name."""
    knobs = {knob.name: knob for knob in KNOBS}
    return tuple(
        ParameterRow(
            knobs.get(parameter.name) or Knob(name=parameter.name, group=OTHERS, why="", trades="", panes=()),
            parameter,
            advice_for(parameter, advised),
        )
        for parameter in sorted(parameters, key=lambda parameter: parameter.name.lower())
        if is_named(parameter, patterns)
    )


def known_names() -> frozenset[str]:
    """Return the parameters of PostgreSQL 14 to 19 and of its contrib modules, in lower case."""
    return SAFE | RISKS.keys() | {knob.name.lower() for knob in KNOBS}


def names_and_connection(
    typed_words: Sequence[str], connection: ConnectionOptions
) -> tuple[list[str], ConnectionOptions]:
    """Return the words that name parameters or match names, and the connection with the others: a database and a user.

    Raises:
        UsageProblem: There are more of the others.
    """
    if connection.database:
        return list(typed_words), connection
    names = known_names()
    patterns = [word for word in typed_words if word.lower() in names or _MAGIC.intersection(word)]
    places = [word for word in typed_words if word not in patterns]
    if len(places) > len(PLACES):
        raise UsageProblem(f"there is no parameter {places[-1]!r}", instead(places[-1], sorted(names)))
    return patterns, with_places(connection, places)


def is_named(parameter: Parameter, patterns: Sequence[str]) -> bool:
    """Return whether a parameter has one of the names, or matches one of the patterns."""
    return any(fnmatchcase(parameter.name.lower(), pattern.lower()) for pattern in patterns)


def no_parameter(patterns: Sequence[str]) -> UsageProblem:
    """Return the problem of names that this server does not have."""
    return UsageProblem(
        f"the server has no parameter {' or '.join(patterns)}", instead(patterns[0], sorted(known_names()))
    )


def parameter_json(row: ParameterRow) -> dict[str, Any]:
    """Return a row as the JSON of `parameters` and `advise` has it; an absent value is null."""
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
    """Return advice as JSON; `differs` says that the present value is another one."""
    return {
        "value": advice.value,
        "differs": differs,
        "because": advice.because,
        "low": advice.low or None,
        "high": advice.high or None,
        "opinions": {opinion.who: opinion.value for opinion in advice.opinions},
    }


def parameter_table(rows: Sequence[ParameterRow]) -> Table:
    """Return the table of `parameters`, group by group."""
    cells = tuple(
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
    )
    return Table(("parameter", "value", "unit", "context", "pending", "advice", "source"), cells)
