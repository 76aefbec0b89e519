"""Parameters whose value in force differs between two looks at pg_settings."""

from __future__ import annotations

from typing import Final

from pgtop_tune.model.postgres import Parameter, ParameterSample

_OF_A_TRANSACTION: Final = frozenset({"transaction_read_only", "transaction_isolation", "transaction_deferrable"})
"""Of one of ours."""
_DERIVED: Final = "internal"
"""Context of what nobody sets: it follows from others."""
_SHOWN: Final = 60


def parameter_pairs(before: ParameterSample, now: ParameterSample) -> list[tuple[Parameter, Parameter]]:
    """Each parameter that can be set and that both looks have, before and now."""
    known = {parameter.name: parameter for parameter in before.parameters}
    return [
        (known[parameter.name], parameter)
        for parameter in now.parameters
        if parameter.name in known and parameter.name not in _OF_A_TRANSACTION and parameter.context != _DERIVED
    ]


def changed_values(before: ParameterSample, now: ParameterSample) -> list[tuple[Parameter, Parameter]]:
    """Those of them that have another value."""
    return [(old, new) for old, new in parameter_pairs(before, now) if old.shown != new.shown]


def short_value(value: str) -> str:
    """The beginning of a long value; "''" for an empty one."""
    return f"{value[: _SHOWN - 1]}…" if len(value) > _SHOWN else value or "''"
