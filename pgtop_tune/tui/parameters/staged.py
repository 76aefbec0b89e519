"""What is staged as one set: for whom each part is, in which order it is made, and what must be typed first. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.changes.model.change import SYSTEM, Scope, ScopeKind, WantedParameter
from pgtop_tune.changes.ordering import in_order
from pgtop_tune.changes.reach import Reach, ReachChoice, narrowest, of_reach
from pgtop_tune.errors import UsageProblem
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.server import client_backends
from pgtop_tune.metrics.trip_wires import TripWire, trip_wire
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.tui.parameters.row import RESTART, PanelRow

KEEP_WITHIN_S: Final = 60.0
_NAMES_AT_MOST: Final = 8
"""Roles or databases to choose from; the command line takes any."""


class Conditions(Struct, frozen=True):
    """On which terms sets are made, as the operator chose them.

    Attributes:
        reach: For whom, as narrow as each parameter allows; None is the narrowest that shows the effect.
        whose: The role or the database of such a reach; "" for that of our own connection. Foreign text.
        keep_within_s: Taken back after so many seconds unless kept; None keeps it at once.
        wires: Trip wires as typed, separated by blanks or commas.
        reason: For the journal.
    """

    reach: Reach | None = None
    whose: str = ""
    keep_within_s: float | None = KEEP_WITHIN_S
    wires: str = ""
    reason: str = ""

    def trip_wires(self) -> tuple[TripWire, ...]:
        """The trip wires.

        Raises:
            UsageProblem: One of them is none.
        """
        return tuple(trip_wire(word) for word in self.wires.replace(",", " ").split())


class Circumstances(Struct, frozen=True):
    """What decides which reach shows an effect.

    Attributes:
        connected: Sessions of others, or of a load of ours, are connected.
        can_load: A load can be started from here.
        role, database: Of our own connection; "" where not known.
        roles, databases: Of the sessions that are connected, those of most sessions first.
    """

    connected: bool = True
    can_load: bool = False
    role: str = ""
    database: str = ""
    roles: tuple[str, ...] = ()
    databases: tuple[str, ...] = ()


class OneSet(Struct, frozen=True):
    """What is staged, by what is done with it.

    Attributes:
        live: For the server, in the order they are made.
        next_load: Name and value for the sessions of the next load; nothing is changed on the server.
        restart: Rows that wait for a restart.
        machine: Rows of the operating system.
        connected: What becomes of sessions that are connected already, one clause each.
    """

    live: tuple[WantedParameter, ...] = ()
    next_load: tuple[tuple[str, str | None], ...] = ()
    restart: tuple[PanelRow, ...] = ()
    machine: tuple[PanelRow, ...] = ()
    connected: tuple[str, ...] = ()


def circumstances(frame: Frame | None, *, can_load: bool) -> Circumstances:
    """As a frame shows them."""
    server = None if frame is None else sections.server(frame)
    if frame is None or server is None or isinstance(server, Unavailable):
        return Circumstances(can_load=can_load)
    activity = sections.activity(frame)
    if isinstance(activity, Unavailable):
        return Circumstances(connected=True, can_load=can_load, role=server.user, database=server.database)
    sessions = client_backends(activity)
    roles, databases = _commonest(each.usename for each in sessions), _commonest(each.datname for each in sessions)
    return Circumstances(
        connected=bool(sessions),
        can_load=can_load,
        role=server.user,
        database=server.database,
        roles=roles,
        databases=databases,
    )


def _commonest(names: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(name for name, _ in Counter(filter(None, names)).most_common(_NAMES_AT_MOST))


def one_set(staged: Sequence[PanelRow], conditions: Conditions, around: Circumstances) -> OneSet:
    """What is to be done with the rows that are staged.

    Args:
        staged: Every row with a staged value.
        conditions: The operator's.
        around: For the reach that nobody chose.
    """
    live: list[WantedParameter] = []
    next_load: list[tuple[str, str | None]] = []
    connected: dict[str, None] = {}
    for row in staged:
        if row.setting is not None or row.when == RESTART or row.staged is None:
            continue
        choice = reach_of(row.parameter.context, conditions.reach, around)
        if choice is None:
            continue
        connected[choice.connected] = None
        if choice.reach is Reach.LOAD:
            next_load.append((row.name, row.staged.value))
        else:
            live.append(WantedParameter(row.name, row.staged.value, _scope(choice.reach, conditions, around)))
    return OneSet(
        live=in_order(live, {row.name.lower(): row.parameter for row in staged}),
        next_load=tuple(next_load),
        restart=tuple(row for row in staged if row.setting is None and row.when == RESTART),
        machine=tuple(row for row in staged if row.setting is not None),
        connected=tuple(connected),
    )


def reach_of(context: str, wanted: Reach | None, around: Circumstances) -> ReachChoice | None:
    """For whom a parameter is changed; None where it cannot be.

    Without a wish: the sessions of the next load where nobody is connected whose sessions would show the effect
    sooner, else the whole server, the only one that reaches sessions already connected.

    Args:
        context: pg_settings.context.
        wanted: The operator's choice; the whole server where the parameter cannot be had for less.
        around: See `Circumstances`.
    """
    if wanted is None:
        return narrowest(context, can_load=around.can_load, connected=bool(around.connected))
    return of_reach(context, wanted) or of_reach(context, Reach.SYSTEM)


def check_reach(conditions: Conditions, around: Circumstances) -> None:
    """Whether the chosen reach has a name.

    Raises:
        UsageProblem: It is not known whose sessions it would be.
    """
    names = {
        Reach.ROLE: conditions.whose or around.role,
        Reach.DATABASE: conditions.whose or around.database,
        Reach.LOAD: around.can_load,
    }
    if conditions.reach is not None and not names.get(conditions.reach, True):
        raise UsageProblem(f"{conditions.reach}: choose one", "wait until the server has answered")


def _scope(reach: Reach, conditions: Conditions, around: Circumstances) -> Scope:
    if reach is Reach.ROLE:
        return Scope(ScopeKind.ROLE, role=conditions.whose or around.role)
    if reach is Reach.DATABASE:
        return Scope(ScopeKind.DATABASE, database=conditions.whose or around.database)
    return SYSTEM
