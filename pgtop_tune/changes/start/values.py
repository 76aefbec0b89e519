"""Values of parameters after a restart: requested now, written already, or unchanged. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.changes.model.change import WantedParameter
from pgtop_tune.changes.model.restart import PendingParameter
from pgtop_tune.model.parameter_values import parse, unit_bytes
from pgtop_tune.model.postgres import Parameter

AT_START: Final = frozenset({"command line", "environment variable"})
"""Sources that win over every file, also after a restart; pending_restart is shown all the same (guc.c)."""


class ValuesAfter(Struct, frozen=True):
    """Values after a restart.

    Attributes:
        now: Parameters as they are, by name.
        texts: Values that will be others, by name, as typed or written.
    """

    now: Mapping[str, Parameter]
    texts: Mapping[str, str]

    def text(self, name: str) -> str | None:
        """Return the value after the restart; None for a parameter that the server does not have."""
        if name in self.texts:
            return self.texts[name]
        return self.now[name].shown if name in self.now else None

    def number(self, name: str) -> float | None:
        """Return the value after the restart in bytes, or in the parameter's unit where it is no size; None where
        unknown."""
        text = self.text(name)
        return None if text is None else self._number(name, text)

    def number_now(self, name: str) -> float | None:
        """Return the number now, in the same units."""
        return self._number(name, self.now[name].setting) if name in self.now else None

    def _number(self, name: str, text: str) -> float | None:
        parameter = self.now.get(name)
        if parameter is None:
            return None
        try:
            return parse(text, parameter.unit, integer=False) * unit_bytes(parameter.unit)
        except UsageProblem:
            return None


def values_after(
    now: Mapping[str, Parameter], pending: Sequence[PendingParameter], requested: Sequence[WantedParameter]
) -> ValuesAfter:
    """Return the values of parameters after a restart.

    Args:
        now: As they are, by name.
        pending: What waits already.
        requested: What is about to be written; a RESET brings the server's own default back. What the server was
            started with wins over it.
    """
    texts = {parameter.name: parameter.after for parameter in pending if parameter.after}
    for request in requested:
        known_name = next((name for name in now if name.lower() == request.name.lower()), request.name)
        if known_name in now and now[known_name].source in AT_START:
            continue
        default = now[known_name].boot_val if known_name in now else None
        value = default if request.value is None else request.value
        if value is not None:
            texts[known_name] = value
    return ValuesAfter(now, texts)
