"""What the list of parameters is about, and what of it outlives the dialog."""

from __future__ import annotations

from msgspec import Struct, field

from pgtop_tune.advice.knobs.knob import Knob
from pgtop_tune.changes.ports import RestartControl
from pgtop_tune.tui.engine_client import EngineClient
from pgtop_tune.tui.parameters.staged import Conditions


class PanelScope(Struct):
    """One for each session.

    Attributes:
        knobs: The catalogue, in order.
        can_load: Whether a load can be started from here.
        allow_unsafe: Whether values that can lose data may be unlocked.
        hands: The way to the controls below.
        restart: Changes that take a restart; None where there is no door to them.
        next_load: What sessions of the next load begin with, by name.
        conditions: On which terms sets are made; None before anybody has chosen.
    """

    knobs: tuple[Knob, ...]
    can_load: bool = False
    allow_unsafe: bool = False
    hands: EngineClient | None = None
    restart: RestartControl | None = None
    next_load: dict[str, str] = field(default_factory=dict)
    conditions: Conditions | None = None
