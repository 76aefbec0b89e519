"""What the door to the server is handed: the durability fence, and how to write down where the server is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from pgtop_tune.changes.journal import Journal
from pgtop_tune.changes.model.change import Terms, Wanted
from pgtop_tune.errors import UnsafeChange
from pgtop_tune.model.postgres import Parameter

if TYPE_CHECKING:
    from pgtop_tune.changes.server.operator_session import OperatorSession


class Rules(Struct, frozen=True):
    """Rules that `cli/wiring` hands in.

    Attributes:
        loss: What a value can lose, "" for nothing: of name, value, and the server's own default.
        allow_unsafe: Whether values that can lose data may be unlocked at all.
        note_place: Writes down where the server is and how it is started; called before anything is written that
            takes a restart, so that the way back is known when the server does not come up.
    """

    loss: Callable[[str, str | None, str | None], str] = lambda name, value, default: ""
    allow_unsafe: bool = False
    note_place: Callable[[OperatorSession, Journal], None] = lambda session, journal: None


def losses(rules: Rules, wanted: Sequence[Wanted], terms: Terms, current: Mapping[str, Parameter]) -> dict[str, str]:
    """What each value can lose, by name.

    Args:
        rules: The fence.
        wanted: The changes of a set.
        terms: Say which names the operator has unlocked.
        current: The parameters as they are, by name in lower case.

    Raises:
        UnsafeChange: A value can lose data and is not unlocked.
    """
    found: dict[str, str] = {}
    for each in wanted:
        known = current.get(each.name.lower())
        loss = rules.loss(each.name, each.value, known.boot_val if known is not None else None)
        if not loss:
            continue
        if not rules.allow_unsafe:
            raise UnsafeChange(
                f"{each.name} = {each.value} can lose {loss}", "pass --allow-unsafe to unlock it; nothing was changed"
            )
        if each.name not in terms.confirmed:
            raise UnsafeChange(
                f"{each.name} = {each.value} can lose {loss}", f"type {each.name} to unlock it; nothing was changed"
            )
        found[known.name if known is not None else each.name] = loss
    return found
