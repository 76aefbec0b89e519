"""Risks of values of settings: their classes, and the conditions on values that rows of the table are made of."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.model.parameter_values import parse, parse_bool
from pgtop_tune.model.postgres import Parameter


class RiskClass(StrEnum):
    """The harm that a value can do, which tuning must not do unasked."""

    LOSES_ON_CRASH = "loses data on a crash"
    LOSES_AT_ONCE = "loses data at once"
    RUNS_CODE = "runs code"
    LOCKS_OUT = "can lock out or hang"
    UNKNOWN = "unknown"


LOSSES: Final = frozenset({RiskClass.LOSES_ON_CRASH, RiskClass.LOSES_AT_ONCE})

_VERBS: Final = {
    RiskClass.LOSES_ON_CRASH: "can lose",
    RiskClass.LOSES_AT_ONCE: "can lose",
    RiskClass.RUNS_CODE: "runs code",
    RiskClass.LOCKS_OUT: "can lock out or hang",
    RiskClass.UNKNOWN: "is not known to this version",
}

_Applies = Callable[[str, "Parameter | None"], bool]


class Condition(Struct, frozen=True):
    """A condition on values of a setting.

    Attributes:
        values: The values, for people: "off", "below 1s".
        applies: Whether a value is one of them: the value as pg_settings would have it, and the parameter where it is
            known.
    """

    values: str
    applies: _Applies


class ValueRisk(Struct, frozen=True, kw_only=True):
    """A risk of some values of one setting.

    Attributes:
        name: The setting.
        kind: Its class.
        condition: On the values.
        reason: One clause: of a loss, what can be lost; of the others, why.
        tried_with_deadline: Whether a deadline is enough to try it: the value ends by itself, the revert needs nothing
            that the value takes away, and no consistency is lost meanwhile.
        announced: Whether the screen warns of it while it is in force; else only a change to it is asked for.
    """

    name: str
    kind: RiskClass
    condition: Condition
    reason: str
    tried_with_deadline: bool = False
    announced: bool = True

    @property
    def values(self) -> str:
        """The values that it is about, for people."""
        return self.condition.values

    @property
    def loses_data(self) -> bool:
        """Return whether it is one of the two classes of losses."""
        return self.kind in LOSSES

    def locked(self, *, ends: bool) -> bool:
        """Return whether the operator has to unlock the value by its name.

        Args:
            ends: Whether the value goes by itself: at a deadline unless confirmed, or with the sessions of a load.
        """
        return not (ends and self.tried_with_deadline)

    @property
    def verb(self) -> str:
        """The class as a verb: "can lose", "runs code"."""
        return _VERBS[self.kind]

    @property
    def words(self) -> str:
        """The verb and the reason: "can lose acknowledged commits", "runs code: a command of the server's account"."""
        return f"{self.verb}{'' if self.loses_data else ':'} {self.reason}"


def one_of(*values: str) -> Condition:
    """Return the condition of words, in any case and in every spelling of on and off."""
    return Condition(" or ".join(values), lambda value, parameter: _plain(value).lower() in values)


def below(limit: str, unit: str = "", *, above: float = float("-inf")) -> Condition:
    """Return the condition of `above` < value < `limit`, as typed; `above` and `unit` in the unit of pg_settings."""
    upper = parse(limit, unit, integer=False)

    def applies(value: str, parameter: Parameter | None) -> bool:
        number = _number(value, parameter, unit)
        return number is None or above < number < upper

    return Condition(f"below {limit}", applies)


def above(limit: str, unit: str = "") -> Condition:
    """Return the condition of value > `limit`, as typed; `unit` is that of pg_settings."""
    lower = parse(limit, unit, integer=False)

    def applies(value: str, parameter: Parameter | None) -> bool:
        number = _number(value, parameter, unit)
        return number is None or number > lower

    return Condition(f"above {limit}", applies)


def when_new(condition: Condition) -> Condition:
    """Return a condition for values that are not in force already."""
    return Condition(
        condition.values,
        lambda value, parameter: condition.applies(value, parameter) and not _in_force(value, parameter),
    )


def matching(pattern: str, values: str) -> Condition:
    """Return the condition of a pattern that a value contains, in any case."""
    compiled = re.compile(pattern, re.IGNORECASE)
    return Condition(values, lambda value, parameter: compiled.search(value) is not None)


def _plain(value: str) -> str:
    """Return on or off for what the server takes as such, for enums too (guc_tables.c); other values as they are."""
    try:
        return parse_bool(value)
    except UsageProblem:
        return value


def _number(value: str, parameter: Parameter | None, unit: str = "") -> float | None:
    try:
        return parse(value, unit if parameter is None else parameter.unit, integer=False)
    except UsageProblem:
        return None


def _is_same(value: str, setting: str | None, parameter: Parameter) -> bool:
    if parameter.vartype in ("integer", "real"):
        return setting is not None and _number(value, parameter) == _number(setting, parameter)
    return _plain(value) == _plain(setting or "")


def _in_force(value: str, parameter: Parameter | None) -> bool:
    return parameter is not None and _is_same(value, parameter.setting, parameter)


def _not_default(value: str, parameter: Parameter | None) -> bool:
    return parameter is None or not _is_same(value, parameter.boot_val, parameter)


def _is_empty(value: str, parameter: Parameter | None) -> bool:
    return value in ("", "''", '""')


def _does_nothing(value: str, parameter: Parameter | None) -> bool:
    """Return whether a command succeeds without an effect: `true`, `/bin/true`, `:`, `exit 0`, `cd .`, `REM`."""
    pieces = value.split()
    return bool(pieces) and pieces[0].rpartition("/")[2] in ("true", ":", "exit", "cd", "echo", "REM", "rem", "#")


def _is_lower(value: str, parameter: Parameter | None) -> bool:
    if parameter is None:
        return True
    number, present = _number(value, parameter), _number(parameter.setting, parameter)
    return number is None or present is None or number < present


def _another_encoding(value: str, parameter: Parameter | None) -> bool:
    return re.sub("[^a-z0-9]", "", value.lower()) not in ("utf8", "unicode", "sqlascii")


ON: Final = one_of("on")
OFF: Final = one_of("off")
EMPTY: Final = Condition("empty", _is_empty)
NOT_EMPTY: Final = Condition("any that is not empty", lambda value, parameter: not _is_empty(value, parameter))
ANY: Final = Condition("any value", lambda value, parameter: True)
OTHER: Final = Condition("any other value than the default", _not_default)
NEW: Final = Condition("any other value than that in force", lambda value, parameter: not _in_force(value, parameter))
LOWER: Final = Condition("below that in force", _is_lower)
NO_COMMAND: Final = Condition("a command that does nothing", _does_nothing)
OUTSIDE: Final = matching(r"^/|(^|/)\.\.(/|$)", "a path outside the data directory")
NO_LOG_NAME: Final = Condition(
    "a name that does not end in .log",
    lambda value, parameter: "/" in value or not value.endswith((".log", ".csv", ".json")),
)
ANOTHER_ENCODING: Final = Condition("any other than UTF8", _another_encoding)
