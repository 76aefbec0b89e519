"""Arithmetic of parameter values: texts like "16GB" and "5min", and numbers in the server's unit.

Pure. The rules are those of guc.c: parse_int, parse_real, convert_to_base_unit, convert_int_from_base_unit,
convert_real_from_base_unit and ShowGUCOption (_ShowOption to 15).
"""

from __future__ import annotations

import math
import re
from typing import Final

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.model.postgres import Parameter

_MEMORY: Final = {"B": 1, "kB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
_TIME_US: Final = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_UNIT: Final = re.compile(r"(?P<count>\d*)(?P<name>[A-Za-z]+)")
_NUMBER: Final = re.compile(
    r"\s*(?P<number>[+-]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))\s*(?P<unit>[A-Za-z]*)\s*",
    re.ASCII,
)
_TRUE: Final = ("on", "true", "yes")
_FALSE: Final = ("off", "false", "no")
_NEARLY: Final = 1e-8
_LARGEST: Final = 1e300
"""Largest number: beyond it, the conversion to a smaller unit overflows. No parameter is near it."""


def message_levels(value: str) -> frozenset[str]:
    """Return the levels in log_min_messages: since 19 it may have one for each kind of process."""
    return frozenset(part.rpartition(":")[2].strip().lower() for part in value.split(","))


def parse(text: str, unit: str, *, integer: bool) -> float:
    """Parse a typed value to a number in the server's unit.

    Args:
        text: "16GB", "5min", "0.9", "1024", "0x400"; a number without a unit is in the unit of the server.
        unit: pg_settings.unit: "8kB", "ms", … or "".
        integer: Whether the parameter takes whole numbers only; then it is rounded as the server does.

    Raises:
        UsageProblem: The text is no number, or has a unit that this parameter does not accept.
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise UsageProblem(f"{text!r} is not a number", _example(unit))
    number = _plain(match["number"])
    if match["unit"]:
        number = _converted(number, match["unit"], unit, text)
    if not math.isfinite(number) or abs(number) > _LARGEST:
        raise UsageProblem(f"{text!r} is out of range", _example(unit))
    return float(round(number)) if integer else number


def show(value: float, unit: str, *, integer: bool) -> str:
    """Format a number in the server's unit as SHOW does: 1024 MB is "1GB", 1 ms is "1ms", 0.5 ms is "500us"."""
    if value <= 0 or not unit:
        return f"{value:.0f}" if integer else f"{value:g}"
    names, base = _family(unit)
    chosen, scaled = "", value
    for name, size in reversed(names.items()):
        chosen, multiplier = name, size / base
        scaled = value / multiplier
        fits = value % multiplier == 0 if integer else abs(round(scaled) / scaled - 1.0) <= _NEARLY
        if fits or (integer and multiplier <= 1.0):
            break
    return f"{round(scaled)}{chosen}" if integer else f"{scaled:g}{chosen}"


def unit_bytes(unit: str) -> int:
    """Return the bytes of a unit of sizes: 8192 for "8kB", 32768 for "32kB"; 1 for other units."""
    match = _UNIT.fullmatch(unit)
    return int(match["count"] or 1) * _MEMORY[match["name"]] if match and match["name"] in _MEMORY else 1


def parse_bool(text: str) -> str:
    """Return "on" or "off" for each spelling that the server accepts: on, true, yes, 1 and unambiguous beginnings.

    Raises:
        UsageProblem: The text is none of these.
    """
    word = text.strip().lower()
    for result, shortest_prefix, digit, names in (("on", "on", "1", _TRUE), ("off", "of", "0", _FALSE)):
        shortest_length = len(shortest_prefix)
        if word == digit or any(
            name.startswith(word) and word and (name[0] != "o" or len(word) >= shortest_length) for name in names
        ):
            return result
    raise UsageProblem(f"{text!r} is not a boolean: use on or off")


def _plain(number: str) -> float:
    """Convert like strtol with base 0, or strtod: a leading 0x is hexadecimal, a leading 0 octal."""
    body = number.lstrip("+-")
    sign = -1 if number.startswith("-") else 1
    if body[:2] in {"0x", "0X"}:
        return float(sign * int(body, 16))
    if len(body) > 1 and body[0] == "0" and body.isdigit() and set(body) <= set("01234567"):
        return float(sign * int(body, 8))
    return sign * float(body)


def _family(unit: str) -> tuple[dict[str, int], float]:
    """Return the display units of a parameter with this unit, ascending, and its size in the smallest unit."""
    match = _UNIT.fullmatch(unit)
    for names in (_MEMORY, _TIME_US):
        if match and match["name"] in names:
            return names, int(match["count"] or 1) * names[match["name"]]
    raise UsageProblem(f"unknown unit {unit!r}")


def _converted(number: float, typed: str, unit: str, text: str) -> float:
    """Convert to the server's unit; a fraction is rounded to the next smaller unit, as the server does."""
    names, base = _family(unit) if unit else ({}, 1.0)
    if typed not in names:
        raise UsageProblem(f"{text!r}: this parameter has no unit {typed}", _example(unit))
    value = number * names[typed] / base
    order = list(names)
    index = order.index(typed)
    if index == 0:
        return value
    smaller = names[order[index - 1]] / base
    return round(value / smaller) * smaller


def _example(unit: str) -> str:
    if not unit:
        return "use a number without a unit"
    names, _ = _family(unit)
    return f"use a number in {unit}, or with a unit: {', '.join(names)}"


# Checks of a typed value. Pure.


def has_own_value(parameter: Parameter) -> bool:
    """Return whether the value comes from the server itself: without a line in the files, a restart does not change it.

    The server reports a line that was added and removed without a restart as pending (guc.c).
    """
    return parameter.source in ("default", "override")


def without_blanks(parameter: Parameter, value: str) -> str:
    """Return a typed value without the blanks around it; for a parameter of type string they count."""
    return value if parameter.vartype == "string" else value.strip()


def check_value(parameter: Parameter, value: str) -> None:
    """Check a value: numbers with their unit and range, and booleans.

    Raises:
        UsageProblem: The server would refuse the value.
    """
    name = parameter.name
    try:
        if parameter.vartype == "bool":
            parse_bool(value)
        elif parameter.vartype in {"integer", "real"}:
            _check_range(parameter, parse(value, parameter.unit, integer=parameter.vartype == "integer"), value)
    except UsageProblem as problem:
        default = f"`pgtop-tune reset {name}` restores the default" if value.strip().lower() == "default" else ""
        raise UsageProblem(f"{name}: {problem.message}", default or problem.hint or _range(parameter)) from None


def _check_range(parameter: Parameter, number: float, value: str) -> None:
    low, high = parameter.min_val, parameter.max_val
    if (low and number < float(low)) or (high and number > float(high)):
        raise UsageProblem(f"{value!r} is out of range", _range(parameter))


def _range(parameter: Parameter) -> str:
    if not parameter.min_val:
        return ""
    unit = f" in units of {parameter.unit}" if parameter.unit else ""
    return f"range {parameter.min_val} to {parameter.max_val}{unit}; now {parameter.shown}"
