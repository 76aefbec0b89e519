"""Advice beside what a server has: whether it could take the value, and whether it has it already. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from pgtop_tune.advice.facts import Advice
from pgtop_tune.errors import UsageProblem
from pgtop_tune.model.parameter_values import parse, parse_bool
from pgtop_tune.model.postgres import Parameter

_NUMBERS: Final = frozenset({"integer", "real"})
_DERIVED: Final = frozenset({"default", "override"})
"""Sources of what the server has worked out by itself, such as wal_buffers from -1."""


def advice_for(parameter: Parameter, advised: Mapping[str, Advice]) -> Advice | None:
    """What is advised, without a value that this server was not built for, as lz4; None where nobody says anything."""
    advice = advised.get(parameter.name)
    if advice is None or advice.value is None or parameter.vartype != "enum" or advice.value in parameter.enumvals:
        return advice
    return replace(advice, value=None, because=f"{advice.because} This server was built without {advice.value}.")


def same(parameter: Parameter, value: str) -> bool:
    """Whether a value as typed is the one the server has, or will have after a restart: 1024MB is 1GB, yes is on."""
    setting = parameter.setting if parameter.pending is None else parameter.pending
    try:
        if parameter.vartype in _NUMBERS:
            integer = parameter.vartype == "integer"
            number = parse(value, parameter.unit, integer=integer)
            if number < 0 and parameter.source in _DERIVED and parameter.pending is None:
                return value == parameter.boot_val
            return number == parse(setting, parameter.unit, integer=integer)
        if parameter.vartype == "bool":
            return parse_bool(value) == parse_bool(setting)
    except UsageProblem:
        return False
    return value == setting
