"""What a knob is: a parameter, why one turns it, in which steps, and what it costs."""

from __future__ import annotations

from msgspec import Struct


class Knob(Struct, frozen=True):
    """One row of the parameter screen: what pg_settings does not know.

    Attributes:
        name: Parameter of the server.
        group: Heading it stands under.
        why: One sentence: when turning it helps.
        trades: What is given for it.
        panes: Where the effect shows: names of panes.
        steps: Values in rising order, as typed; those that a server does not take are left out there.
            Empty: each step doubles or halves.
        from_zero: Where doubling goes from 0, -1 and other values that mean "off".
        warning: One sentence that must be read before applying; "" when there is none.
        special: Values that are not a quantity, and what they mean: ("0", "switched off").
        moves_with: Parameters to look at when this one changes.
        unsafe: Values that can lose data, and what is lost: locked until somebody unlocks them. The value "*" is any
            value but the server's default.
    """

    name: str
    group: str
    why: str
    trades: str
    panes: tuple[str, ...]
    steps: tuple[str, ...] = ()
    from_zero: str = ""
    warning: str = ""
    special: tuple[tuple[str, str], ...] = ()
    moves_with: tuple[str, ...] = ()
    unsafe: tuple[tuple[str, str], ...] = ()
