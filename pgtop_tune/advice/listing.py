"""Which parameters and settings are listed, in which order, and when one counts as changed: for commands and screen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from pgtop_tune.advice.facts import Advice
from pgtop_tune.advice.knobs.knob import Knob
from pgtop_tune.advice.knobs.system import knob_of
from pgtop_tune.advice.proposal import same
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.machine import SystemSetting
from pgtop_tune.model.postgres import Parameter

OTHERS: Final = "other parameters"
"""The group of those that are no knobs: nobody tunes them, and their values suit no server."""
_DERIVED: Final = "override"
"""Source of what the server has worked out by itself, such as wal_buffers from -1."""


_NOTHING: Final[Mapping[str, Advice]] = MappingProxyType({})


def listed_parameters(
    knobs: Sequence[Knob], parameters: Iterable[Parameter], advised: Mapping[str, Advice] = _NOTHING
) -> list[tuple[Knob, Parameter]]:
    """The knobs this server has, in the order of the catalogue, and other parameters for which a value is advised."""
    has = {parameter.name: parameter for parameter in parameters}
    names = {knob.name for knob in knobs}
    others = [
        Knob(name=name, group=OTHERS, why=advice.because, trades="", panes=())
        for name, advice in advised.items()
        if name not in names and advice.value is not None
    ]
    return [(knob, has[knob.name]) for knob in (*knobs, *others) if knob.name in has]


def listed_settings(settings: Iterable[SystemSetting]) -> list[tuple[Knob, SystemSetting]]:
    """The settings that this kernel has and lets us read, in the kernel's order."""
    return [
        (knob, setting)
        for setting in settings
        if not isinstance(setting.live, Unavailable) and (knob := knob_of(setting.name)) is not None
    ]


def is_changed(parameter: Parameter) -> bool:
    """Whether it is other than the server's default, or will be after a restart."""
    return parameter.pending_restart or (parameter.setting != parameter.boot_val and parameter.source != _DERIVED)


def advised_value(advice: Advice | None) -> str:
    """The advised value; "" where there is none."""
    return (advice.value if advice is not None else None) or ""


def differs(parameter: Parameter, advice: Advice | None) -> bool:
    """Whether a value is advised, and it is another one than the server has or will have after a restart."""
    value = advised_value(advice)
    return bool(value) and not same(parameter, value)
