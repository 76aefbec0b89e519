"""Settings of the operating system as commands list them: live, after a reboot, and what is advised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from pgtop_tune.advice.facts import Advice
from pgtop_tune.advice.knobs.knob import Knob
from pgtop_tune.advice.listing import advised_value, listed_settings
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli.parameter_rows import NONE, ParameterDifference, advice_json, in_columns
from pgtop_tune.host.sysctl_files import DEFAULTS
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.machine import SystemSetting
from pgtop_tune.model.setup import MachineSetup

if TYPE_CHECKING:
    from pgtop_tune.cli.looking import Looked

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


def table(rows: Sequence[MachineRow]) -> list[str]:
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


def as_json(row: MachineRow) -> dict[str, Any]:
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
