"""The next value of a parameter, a step up or down. Pure."""

from __future__ import annotations

import math

from pgtop_tune.advice.knobs.knob import Knob
from pgtop_tune.model.parameter_values import parse, show
from pgtop_tune.model.postgres import Parameter


def next_value(parameter: Parameter, knob: Knob, direction: int) -> str:
    """The value one step up (direction > 0) or down, as one types it; the present one at the end of the range."""
    if parameter.vartype in {"enum", "bool", "string"}:
        return _next_word(parameter, knob, direction)
    integer = parameter.vartype == "integer"
    now = parse(parameter.setting, parameter.unit, integer=integer)
    low = float(parameter.min_val) if parameter.min_val else -math.inf
    high = float(parameter.max_val) if parameter.max_val else math.inf
    numbers = [parse(step, parameter.unit, integer=integer) for step in knob.steps]
    if not numbers:
        numbers = [_doubled(now, parameter, knob, direction, integer=integer)]
    up = direction > 0
    allowed = sorted({min(max(number, low), high) for number in numbers}, reverse=not up)
    following = next((number for number in allowed if (number > now if up else number < now)), now)
    return show(following, parameter.unit, integer=integer)


def _doubled(now: float, parameter: Parameter, knob: Knob, direction: int, *, integer: bool) -> float:
    if now <= 0:
        start = parse(knob.from_zero, parameter.unit, integer=integer) if knob.from_zero else 1.0
        return start if direction > 0 else now
    wanted = now * 2 if direction > 0 else now / 2
    return float(math.floor(wanted)) if integer else wanted


def _next_word(parameter: Parameter, knob: Knob, direction: int) -> str:
    offered = ("off", "on") if parameter.vartype == "bool" else parameter.enumvals
    words = [word for word in knob.steps if word in offered] or list(offered)
    if parameter.vartype == "enum" and "pglz" in words and "on" in words:
        words.remove("on")
    if not words:
        return parameter.shown
    if parameter.setting not in words:
        return words[0] if direction > 0 else words[-1]
    place = words.index(parameter.setting) + (1 if direction > 0 else -1)
    return words[min(max(place, 0), len(words) - 1)]
