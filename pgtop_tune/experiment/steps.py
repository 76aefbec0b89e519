"""A list of clients or rates that a load goes through, one run after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.errors import UsageProblem
from pgtop_tune.model.bench import LoadSpec

_MOST: Final = 100


class Steps(Struct, frozen=True):
    """What changes from run to run.

    Attributes:
        axis: "clients" or "rate".
        values: In the order in which they are run.
    """

    axis: str
    values: tuple[float, ...]

    def specs(self, spec: LoadSpec) -> tuple[LoadSpec, ...]:
        """The load at each step."""
        return tuple(_AXES[self.axis](spec, value) for value in self.values)


_AXES: Final[dict[str, Callable[[LoadSpec, float], LoadSpec]]] = {
    "clients": lambda spec, value: replace(spec, clients=int(value)),
    "rate": lambda spec, value: replace(spec, rate_per_s=value),
}


def parse_steps(text: str) -> Steps:
    """clients=1,2,4,8 or rate=100,200.

    Raises:
        UsageProblem: It is not of that form.
    """
    axis, equals, rest = text.partition("=")
    axis = axis.strip()
    if not equals or axis not in _AXES:
        raise UsageProblem(f"{text!r} is no list of steps", "write --steps clients=1,2,4,8 or --steps rate=100,200")
    try:
        values = tuple(float(word) for word in rest.split(","))
    except ValueError:
        raise UsageProblem(f"{rest!r} is no list of numbers", "separate them by commas: 1,2,4,8") from None
    whole = axis != "clients" or all(value == int(value) for value in values if value < 1e9)
    if not 1 <= len(values) <= _MOST or not whole or not all(0 < value < 1e9 for value in values):
        raise UsageProblem(f"{rest!r} are no steps", f"up to {_MOST} numbers above 0, clients whole ones")
    return Steps(axis, values)
