"""Advice beside what a server has: whether it could take the value, and whether it has it already. Pure."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from pgtop_tune.advice.advise import advise
from pgtop_tune.advice.facts import Advice, Facts
from pgtop_tune.errors import UsageProblem
from pgtop_tune.model.parameter_values import parse, parse_bool
from pgtop_tune.model.postgres import Parameter

_NUMBERS: Final = frozenset({"integer", "real"})


def advice_for(parameter: Parameter, facts: Facts) -> Advice | None:
    """What is advised, without a value that this server was not built for, as lz4; None where nobody says anything."""
    advice = advise(parameter.name, facts)
    if advice is None or advice.value is None or parameter.vartype != "enum" or advice.value in parameter.enumvals:
        return advice
    return replace(advice, value=None, because=f"{advice.because} This server was built without {advice.value}.")


def same(parameter: Parameter, value: str) -> bool:
    """Whether a value as typed is the one the server has: 1024MB is 1GB, yes is on."""
    try:
        if parameter.vartype in _NUMBERS:
            number = parse(value, parameter.unit, integer=parameter.vartype == "integer")
            return number == parse(parameter.setting, parameter.unit, integer=parameter.vartype == "integer")
        if parameter.vartype == "bool":
            return parse_bool(value) == parameter.setting
    except UsageProblem:
        return False
    return value == parameter.setting
