"""The durability fence: the values that can lose data, and the loss. Pure; `changes` receives it from its caller."""

from __future__ import annotations

from collections.abc import Sequence

from pgtop_tune.advice.knobs.catalogue import BY_NAME
from pgtop_tune.errors import UnsafeChange, UsageProblem
from pgtop_tune.metrics.durability import needs_unlocking
from pgtop_tune.model.parameter_values import parse_bool


def loss_of(name: str, value: str | None, default: str | None = None) -> str:
    """What a value can lose, one clause; "" when it loses nothing.

    Args:
        name: Parameter, in any case.
        value: As typed; None resets it, which is never fenced.
        default: The server's own default (pg_settings.boot_val), for parameters where any other value is a risk.
    """
    knob = BY_NAME.get(name.lower())
    if knob is None or value is None:
        return ""
    meant = _word(value)
    for unsafe, loss in knob.unsafe:
        if meant == unsafe or (unsafe == "*" and meant != default):
            return loss
    return ""


def check_load(settings: Sequence[tuple[str, str]], *, allow_unsafe: bool) -> None:
    """Makes sure that sessions of a load begin with nothing that can lose data, unless that may be unlocked or tried.

    Args:
        settings: LoadSpec.settings.
        allow_unsafe: It may; whoever asks for the load has had the names typed.

    Raises:
        UnsafeChange: One can.
    """
    for name, value in settings:
        loss = loss_of(name, value)
        if loss and needs_unlocking(name, ends=True) and not allow_unsafe:
            raise UnsafeChange(
                f"{name} = {value} can lose {loss}",
                "pass --allow-unsafe to unlock it; nothing was started",
            )


def _word(value: str) -> str:
    """The server takes 0, no, false and their beginnings for off, for enums that know off as well (guc_tables.c)."""
    text = value.strip().lower()
    try:
        return parse_bool(text)
    except UsageProblem:
        return text
