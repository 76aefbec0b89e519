"""The staged changes as one set: scope of each part, order, names to type for confirmation, drawing. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.units import count, size, with_ms
from pgtop_tune.changes.model.change import (
    SYSTEM,
    Reach,
    ReachChoice,
    Scope,
    ScopeKind,
    WantedParameter,
    narrowest,
    of_reach,
)
from pgtop_tune.changes.selection import in_order
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.load import CLIENT_TPS, P50, P99
from pgtop_tune.metrics.server import TPS, WAL_BYTES, client_backends
from pgtop_tune.metrics.trip_wires import TripWire, trip_wire
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import estimate_mark
from pgtop_tune.model.frame import Frame
from pgtop_tune.runtime.session import Session, newest_latency
from pgtop_tune.tui.parameters.row import RESTART, SettingRow
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import Line, wrapped
from pgtop_tune.tui.widgets.phrase import lasting

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


class StagedChanges(Struct, frozen=True):
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
    restart: tuple[SettingRow, ...] = ()
    machine: tuple[SettingRow, ...] = ()
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


def staged_changes(staged: Sequence[SettingRow], conditions: Conditions, around: Circumstances) -> StagedChanges:
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
    return StagedChanges(
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


# What is staged as one set, below the list: its SQL, for whom, what waits; and the figures it is made for. Pure.

_SQL_LINES: Final = 3


def set_lines(
    wanted: StagedChanges, sql: Sequence[str] | None, conditions: Conditions, cells: int, glyphs: Glyphs, *, roomy: bool
) -> list[Line]:
    """The exact SQL of the whole set, for whom it is, and what waits.

    Args:
        wanted: What is staged.
        sql: Its statements; None while they are being composed.
        conditions: The operator's.
        cells: Width.
        glyphs: Characters.
        roomy: Whether there is room for what becomes of sessions already connected.
    """
    lines: list[Line] = []
    if sql is not None and (wanted.live or wanted.machine):
        lines += wrapped(_applied(sql), cells, "strong")
        if not fits(sql, cells):
            lines = [*lines[: _SQL_LINES - 1], ((f"{glyphs.ellipsis} a shows all of it", "dim"),)]
        lines += wrapped(pending_words(conditions), cells, "dim")
    if any(row.setting is not None and not row.setting.writable for row in wanted.machine):
        lines += wrapped(
            "this process may not change the machine: a shows the commands to run as root", cells, "warning"
        )
    if wanted.next_load:
        options = " ".join(f"-c {name}={value}" for name, value in wanted.next_load if value is not None)
        without = " and ".join(name for name, value in wanted.next_load if value is None)
        begins = ", ".join(filter(None, (options and f"with {options}", without and f"without {without}")))
        words = f"apply: the next load begins {begins}; nothing changes on the server"
        lines += wrapped(words, cells, "" if wanted.live else "strong")
    if roomy:
        lines += [line for words in wanted.connected for line in wrapped(words, cells, "dim")]
    if wanted.restart:
        names = ", ".join(row.name for row in wanted.restart)
        lines += wrapped(f"waits for a restart (A): {names}", cells, "warning")
    return lines


def fits(sql: Sequence[str], cells: int) -> bool:
    """Whether all of the SQL is shown below the list."""
    return len(wrapped(_applied(sql), cells)) <= _SQL_LINES


def _applied(sql: Sequence[str]) -> str:
    *first, last = (each.rstrip().removesuffix(";") for each in sql)
    return f"apply: {''.join(f'{each}; ' for each in first)}{last}{';' if sql[-1].endswith(';') else ''}"


def pending_words(conditions: Conditions) -> str:
    """The deadline of a pending change set, and its trip wires."""
    if conditions.keep_within_s is None:
        return "confirmed at once, without a deadline"
    wires = f", or at once at {conditions.wires}" if conditions.wires else ""
    return f"auto-revert after {conditions.keep_within_s:g} s{wires}"


def figures_line(session: Session) -> Line:
    """The numbers a change is made for, as they are now."""
    interval, newest = session.interval, session.once(newest_latency)
    if interval is None:
        return (("waiting for the first frame", "dim"),)
    client = CLIENT_TPS(interval)
    tps = TPS(interval) if client is None else client
    figures: list[tuple[str, str]] = [("now  ", "label"), ("tps ", "label"), (count(tps).ljust(7), "strong")]
    if newest.stalled_s is not None:
        figures.append((f"no transaction has ended for {lasting(newest.stalled_s)}   ", "critical"))
    elif newest.second is not None:
        for quantile in (P50, P99):
            value_ms = newest.second.at(quantile)
            mark = estimate_mark(value_ms, newest.second.span_counted_below_ms)
            figures += [(f"{quantile.title} ", "label"), ((mark + with_ms(value_ms)).ljust(10), "strong")]
    return (*figures, ("WAL ", "label"), (f"{size(WAL_BYTES(interval))}B/s", "strong"))
