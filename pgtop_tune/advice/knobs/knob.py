"""A knob: a parameter with its purpose, steps, cost and next value."""

from __future__ import annotations

import math

from msgspec import Struct

from pgtop_tune.model.parameter_values import parse, show
from pgtop_tune.model.postgres import Parameter


class Knob(Struct, frozen=True):
    """One row of the parameter screen: what pg_settings does not know.

    Attributes:
        name: Parameter of the server.
        group: Heading it stands under.
        why: One sentence: when turning it helps.
        trades: Price of the gain.
        panes: Names of panes that show the effect.
        steps: Values in rising order, as typed; those that a server does not take are left out there.
            Empty: each step doubles or halves.
        from_zero: Value after 0, -1 and other values that mean "off", where steps double.
        warning: One sentence that must be read before applying; "" when there is none.
        of_values: The same of single values, where one sentence does not fit all: (value, sentence); others need none.
        special: Values that are not a quantity, and what they mean: ("0", "switched off").
        moves_with: Parameters to look at when this one changes.
    """

    name: str
    group: str
    why: str
    trades: str
    panes: tuple[str, ...]
    steps: tuple[str, ...] = ()
    from_zero: str = ""
    warning: str = ""
    of_values: tuple[tuple[str, str], ...] = ()
    special: tuple[tuple[str, str], ...] = ()
    moves_with: tuple[str, ...] = ()

    def warning_of(self, value: str | None) -> str:
        """Return the sentence that must be read before this value is applied; None is a reset."""
        return dict(self.of_values).get(value or "", "") if self.of_values else self.warning


# The next value of a parameter, a step up or down. Pure.


def next_value(parameter: Parameter, knob: Knob, direction: int) -> str:
    """Return the value one step up (direction > 0) or down, as typed; the present one at the end of the range."""
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
    doubled = now * 2 if direction > 0 else now / 2
    return float(math.floor(doubled)) if integer else doubled


def _next_word(parameter: Parameter, knob: Knob, direction: int) -> str:
    offered = ("off", "on") if parameter.vartype == "bool" else parameter.enumvals
    choices = [word for word in knob.steps if word in offered] or list(offered)
    if parameter.vartype == "enum" and "pglz" in choices and "on" in choices:
        choices.remove("on")
    if not choices:
        return parameter.shown
    if parameter.setting not in choices:
        return choices[0] if direction > 0 else choices[-1]
    index = choices.index(parameter.setting) + (1 if direction > 0 else -1)
    return choices[min(max(index, 0), len(choices) - 1)]
