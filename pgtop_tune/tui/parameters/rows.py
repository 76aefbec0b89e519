"""The staged changes as one set: scope of each part, order, names to type for confirmation, drawing. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.advice.facts import Advice
from pgtop_tune.advice.knobs.knob import Knob, next_value
from pgtop_tune.advice.proposal import advised_value, differs, is_changed, same
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.units import byte_rate, count, with_ms
from pgtop_tune.changes.model.change import (
    SYSTEM,
    Reach,
    ReachChoice,
    Scope,
    ScopeKind,
    WantedParameter,
    WantedSetting,
    narrowest,
    of_reach,
)
from pgtop_tune.changes.model.change_set import Change
from pgtop_tune.changes.selection import parameters_in_order
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.load import CLIENT_TPS, P50, P99
from pgtop_tune.metrics.server import TPS, WAL_BYTES, client_backends
from pgtop_tune.metrics.setting_risks import risk_of
from pgtop_tune.metrics.trip_wires import TripWire, trip_wire
from pgtop_tune.metrics.value_risks import ValueRisk
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import estimate_mark
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.machine import SystemSetting
from pgtop_tune.model.parameter_values import check_value, parse, show, without_blanks
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.runtime.session import Session, newest_latency
from pgtop_tune.tui.widgets.lines import Glyphs, Line, wrapped
from pgtop_tune.tui.widgets.phrase import lasting
from pgtop_tune.tui.widgets.text_field import TextField

# The list of parameters: its rows, the visible ones, the cursor, staged and typed values. Pure.

LIVE: Final = "live"
RESTART: Final = "restart"
_WHEN: Final = {
    "internal": "fixed", "postmaster": RESTART, "backend": "session", "superuser-backend": "session",
}  # fmt: skip
_OF_MACHINE: Final = "live*"
_UNBOUNDED: Final = ("2147483647", "1.79769e+308")
"""pg_settings.max_val of parameters that are bounded by their type alone."""


class Staged(Struct, frozen=True):
    """A value that waits to be applied; None as the value resets the parameter."""

    value: str | None

    def __str__(self) -> str:
        return "reset" if self.value is None else self.value or "''"


class SettingRow(Struct, frozen=True):
    """A parameter beside its knob.

    Attributes:
        parameter: As the server has it; a setting of the machine is put into the same form (`of_machine`).
        advice: Where to start; None where nobody says anything, or nothing is known yet.
        setting: The setting of the machine it stands for; None for a parameter of the server.
        change: The newest change in force that the journal has of it.
        next_load: The value that sessions of the next load begin with; None when it is nothing of its own.
    """

    parameter: Parameter
    knob: Knob
    advice: Advice | None = None
    staged: Staged | None = None
    setting: SystemSetting | None = None
    change: Change | None = None
    next_load: str | None = None

    @property
    def name(self) -> str:
        """Name of the parameter or the setting."""
        return self.parameter.name

    @property
    def group(self) -> str:
        """Heading it stands under."""
        return self.knob.group if self.setting is None else f"machine: {self.knob.group}"

    @property
    def when(self) -> str:
        """Time at which a change takes effect: live, restart, session (a new one), or live* for one of the machine."""
        return _OF_MACHINE if self.setting is not None else _WHEN.get(self.parameter.context, LIVE)

    @property
    def advised(self) -> str:
        """The advised value, "" where there is none or the server has it."""
        return advised_value(self.advice) if differs(self.parameter, self.advice) else ""

    @property
    def changed(self) -> bool:
        """Return whether it is other than the server's own default, or will be after a restart."""
        return self.setting is None and is_changed(self.parameter)

    @property
    def risk(self) -> ValueRisk | None:
        """The risk of the staged value; None where it is safe."""
        return None if self.staged is None else self.risk_of(self.staged.value)

    def risk_of(self, value: str | None) -> ValueRisk | None:
        """Return the risk of a value of this row; None where it is safe."""
        return None if self.setting is not None else risk_of(self.name, value, self.parameter)

    @property
    def warning(self) -> str:
        """Warning to read before the staged value is applied; that of the parameter while nothing is staged."""
        return self.knob.warning if self.staged is None else self.knob.warning_of(self.staged.value)

    @property
    def risk_now(self) -> ValueRisk | None:
        """The risk of the present value, where the screen warns of it; else None."""
        risk = self.risk_of(self.parameter.setting)
        return risk if risk is not None and risk.announced else None

    def stepped(self, direction: int) -> Staged | None:
        """Return one step up or down from what is staged, or from the present value; None when it leads back to that.

        Raises:
            UsageProblem: The staged text, or the present value, is nothing that steps can start from.
        """
        parameter = self.parameter
        if self.staged is not None and self.staged.value is not None:
            parameter = replace(parameter, setting=self.staged.value)
        return self.meaning(Staged(next_value(parameter, self.knob, direction)))

    def towards(self, direction: str) -> Staged | None:
        """Return the advised value where it lies in that direction, else one step; None where there is neither.

        Args:
            direction: "raise", "lower" or "set", as a finding says it.

        Raises:
            UsageProblem: The present value is nothing that steps can start from.
        """
        advised = Staged(self.advised) if self.advised else None
        if direction == "set" or self.parameter.vartype not in ("integer", "real"):
            return advised
        sign, parameter = (1 if direction == "raise" else -1), self.parameter
        if advised is not None:
            integer = parameter.vartype == "integer"
            now, then = (parse(value, parameter.unit, integer=integer) for value in (parameter.setting, self.advised))
            if sign * (then - now) > 0:
                return advised
        return self.stepped(sign)

    def meaning(self, staged: Staged) -> Staged | None:
        """Return the staged value; None for the value that is in force already."""
        return None if staged.value is not None and same(self.parameter, staged.value) else staged

    def matches(self, text: str) -> bool:
        """Return whether every word stands in its name, its group or what can be said of it in a word."""
        haystack = f"{self.name} {self.group} {self.when} {self.parameter.shown}"
        haystack += " staged" if self.staged is not None else ""
        haystack += " changed" if self.changed or self.change is not None else ""
        haystack += " advised" if self.advised else ""
        return all(word in haystack.lower() for word in text.lower().split())


def of_machine(setting: SystemSetting) -> Parameter:
    """Return a setting of the machine in the form of a parameter: words where the kernel lists them, else a number."""
    live = "" if isinstance(setting.live, Unavailable) else setting.live
    vartype = "enum" if setting.choices else "integer" if live.lstrip("-").isdigit() else "string"
    return Parameter(
        name=setting.name,
        setting=live,
        shown=live or "?",
        unit="",
        category="",
        short_desc="",
        context="machine",
        vartype=vartype,
        source="kernel",
        min_val="",
        max_val="",
        enumvals=setting.choices,
        boot_val="",
        reset_val="",
        sourcefile="",
        pending_restart=False,
    )


def range_of(parameter: Parameter) -> str:
    """Return the values that the server accepts: "30s .. 1d", "64kB or more", "off on local …"."""
    if parameter.enumvals:
        return " ".join(parameter.enumvals)
    if parameter.vartype == "bool":
        return "off on"
    if not parameter.min_val or not parameter.max_val:
        return ""
    integer, ends = parameter.vartype == "integer", (parameter.min_val, parameter.max_val)
    try:
        least, most = (show(float(end), parameter.unit, integer=integer) for end in ends)
    except (ValueError, UsageProblem):
        return f"{parameter.min_val} .. {parameter.max_val} {parameter.unit}".rstrip()
    return f"{least} or more" if parameter.max_val in _UNBOUNDED else f"{least} .. {most}"


def words_of(row: SettingRow) -> tuple[str, ...]:
    """Return the values to choose from; empty where a value is typed."""
    if row.parameter.vartype == "bool":
        return ("on", "off")
    offered = row.parameter.enumvals
    steps = tuple(word for word in row.knob.steps if word in offered)
    return (*steps, *(word for word in offered if word not in steps))


def default_of(parameter: Parameter) -> str:
    """Return the server's own default, as SHOW would print it."""
    if parameter.vartype not in ("integer", "real"):
        return parameter.boot_val
    try:
        return show(float(parameter.boot_val), parameter.unit, integer=parameter.vartype == "integer")
    except (ValueError, UsageProblem):
        return parameter.boot_val


def source_of(parameter: Parameter) -> str:
    """Return the source of the value, as pg_settings has it."""
    where = parameter.sourcefile or parameter.source
    return f"{where}; another value waits for a restart" if parameter.pending_restart else where


# The list itself: which rows are in view, the cursor, what is staged, a value or a filter being typed. Pure.


class SettingTable:
    """Rows in the order of the catalogue.

    Args:
        staged: Rows with a value that was staged when the list was open last.

    Attributes:
        rows: All of them, also those that the filter hides.
        editing: The value being typed in the selected row.
        filtering: The filter being typed.
    """

    def __init__(self, staged: tuple[SettingRow, ...] = ()) -> None:
        self.rows: tuple[SettingRow, ...] = staged
        self.editing: TextField | None = None
        self.filtering: TextField | None = None
        self._filter = ""
        self._at = ""

    def load(self, rows: Sequence[SettingRow]) -> None:
        """Take fresh rows; what is staged stays staged, unless the server has it by now."""
        staged = {row.name: row.staged for row in self.rows if row.staged is not None}
        self.rows = tuple(
            replace(row, staged=row.meaning(staged[row.name])) if row.name in staged else row for row in rows
        )
        if not self._at and self.rows:
            self._at = self.rows[0].name

    @property
    def filter(self) -> str:
        """The filter in force."""
        return self._filter

    @property
    def view(self) -> tuple[SettingRow, ...]:
        """The rows that the filter shows."""
        if not self._filter:
            return self.rows
        return tuple(row for row in self.rows if row.matches(self._filter))

    @property
    def cursor(self) -> int:
        """Place of the selected row in the view; 0 where it is hidden."""
        names = [row.name for row in self.view]
        return names.index(self._at) if self._at in names else 0

    @property
    def selected(self) -> SettingRow | None:
        """The row under the cursor."""
        view = self.view
        return view[self.cursor] if view else None

    @property
    def staged(self) -> tuple[SettingRow, ...]:
        """Every row with a value that waits, also hidden ones."""
        return tuple(row for row in self.rows if row.staged is not None)

    def move(self, by: int) -> None:
        """Move the cursor, stopping at the ends."""
        view = self.view
        if view:
            self._at = view[min(max(self.cursor + by, 0), len(view) - 1)].name

    def select(self, name: str) -> None:
        """Move the cursor to that row."""
        self._at = name

    def turn_group(self, by: int) -> None:
        """Move the cursor to the first row of the next or the previous group, round and round."""
        view, here = self.view, self.selected
        if here is None:
            return
        groups = list(dict.fromkeys(row.group for row in view))
        next_group = groups[(groups.index(here.group) + by) % len(groups)]
        self._at = next(row.name for row in view if row.group == next_group)

    def narrow(self, text: str) -> None:
        """Set another filter; the cursor stays on its row where that fits, else goes to a name that begins with the
        text.
        """
        self._filter = text.strip()
        here = self.selected
        named = next((row for row in self.view if self._filter and row.name.startswith(self._filter.lower())), None)
        if named is not None and here is not None and not here.name.startswith(self._filter.lower()):
            here = named
        if here is not None:
            self._at = here.name

    def stage(self, staged: Staged | None) -> None:
        """Put a value beside the selected row; the value it has already takes it away."""
        row = self.selected
        if row is not None:
            meant = None if staged is None else row.meaning(staged)
            self._replace(row, replace(row, staged=meant))

    def step(self, direction: int) -> None:
        """Step up or down.

        Raises:
            UsageProblem: See `PanelRow.stepped`.
        """
        row = self.selected
        if row is not None:
            self._replace(row, replace(row, staged=row.stepped(direction)))

    def forget(self, names: Sequence[str]) -> None:
        """Take away what was staged for parameters: it has been applied."""
        self.rows = tuple(replace(row, staged=None) if row.name in names else row for row in self.rows)

    def edit(self) -> None:
        """Begin typing, from the staged value or the present one."""
        row = self.selected
        if row is not None:
            staged = row.staged.value if row.staged is not None else None
            self.editing = TextField(row.parameter.shown if staged is None else staged)
            self.editing.select()

    def end_edit(self, *, keep: bool) -> None:
        """End typing; what was typed is staged when it is kept.

        Raises:
            UsageProblem: The server would refuse it; typing goes on.
        """
        field, row = self.editing, self.selected
        if keep and field is not None and row is not None:
            typed = without_blanks(row.parameter, field.text) if field.text.strip() else ""
            if typed:
                check_value(row.parameter, typed)
            self.stage(Staged(typed) if typed else None)
        self.editing = None

    def _replace(self, old: SettingRow, new: SettingRow) -> None:
        self.rows = tuple(new if row is old else row for row in self.rows)


KEEP_WITHIN_S: Final = 60.0
_NAMES_AT_MOST: Final = 8
"""Roles or databases to choose from; the command line takes any."""


class ChangeConditions(Struct, frozen=True):
    """Terms on which sets are made, as the operator chose them.

    Attributes:
        reach: For whom, as narrow as each parameter allows; None is the narrowest that shows the effect.
        whose: The role or the database of such a reach; "" for that of our own connection. Foreign text.
        keep_within_s: Taken back after so many seconds unless kept; None keeps it at once.
        wires: Trip wires as typed, separated by blanks or commas.
        reason: The reason, for the journal.
    """

    reach: Reach | None = None
    whose: str = ""
    keep_within_s: float | None = KEEP_WITHIN_S
    wires: str = ""
    reason: str = ""

    def trip_wires(self) -> tuple[TripWire, ...]:
        """Return the trip wires.

        Raises:
            UsageProblem: One of them is none.
        """
        return tuple(trip_wire(word) for word in self.wires.replace(",", " ").split())


class Circumstances(Struct, frozen=True):
    """Facts that decide which reach shows an effect.

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
    """Staged changes, by what is done with them.

    Attributes:
        live: For the server, in the order they are made.
        next_load: Name and value for the sessions of the next load; nothing is changed on the server.
        restart: Rows that wait for a restart.
        machine: Rows of the operating system.
        connected: Effect on sessions that are connected already, one clause each.
    """

    live: tuple[WantedParameter, ...] = ()
    next_load: tuple[tuple[str, str | None], ...] = ()
    restart: tuple[SettingRow, ...] = ()
    machine: tuple[SettingRow, ...] = ()
    connected: tuple[str, ...] = ()

    @property
    def changes_now(self) -> bool:
        """Return whether anything changes without a restart and without another load."""
        return bool(self.live or self.machine)

    @property
    def settings(self) -> tuple[WantedSetting, ...]:
        """The settings of the operating system with their staged values."""
        return tuple(
            WantedSetting(row.name, row.staged.value)
            for row in self.machine
            if row.staged is not None and row.staged.value is not None
        )

    @property
    def needs_root(self) -> bool:
        """Return whether this process may not write one of the settings."""
        return any(row.setting is not None and not row.setting.writable for row in self.machine)


def circumstances(frame: Frame | None, *, can_load: bool) -> Circumstances:
    """Return the circumstances that a frame shows."""
    server = None if frame is None else sections.server(frame)
    if frame is None or server is None or isinstance(server, Unavailable):
        return Circumstances(can_load=can_load)
    activity = sections.activity(frame)
    if isinstance(activity, Unavailable):
        return Circumstances(connected=True, can_load=can_load, role=server.user, database=server.database)
    sessions = client_backends(activity)
    roles, databases = (
        _commonest(session.usename for session in sessions),
        _commonest(session.datname for session in sessions),
    )
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


def staged_changes(staged: Sequence[SettingRow], conditions: ChangeConditions, around: Circumstances) -> StagedChanges:
    """Return what is to be done with the rows that are staged.

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
        live=parameters_in_order(live, {row.name.lower(): row.parameter for row in staged}),
        next_load=tuple(next_load),
        restart=tuple(row for row in staged if row.setting is None and row.when == RESTART),
        machine=tuple(row for row in staged if row.setting is not None),
        connected=tuple(connected),
    )


def reach_of(context: str, reach: Reach | None, around: Circumstances) -> ReachChoice | None:
    """Return for whom a parameter is changed; None where it cannot be.

    Without a wish: the sessions of the next load where nobody is connected whose sessions would show the effect
    sooner, else the whole server, the only one that reaches sessions already connected.

    Args:
        context: pg_settings.context.
        reach: The operator's choice; the whole server where the parameter cannot be had for less.
        around: See `Circumstances`.
    """
    if reach is None:
        return narrowest(context, can_load=around.can_load, connected=bool(around.connected))
    return of_reach(context, reach) or of_reach(context, Reach.SYSTEM)


def check_reach(conditions: ChangeConditions, around: Circumstances) -> None:
    """Check that the role or database of the chosen reach is known.

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


def _scope(reach: Reach, conditions: ChangeConditions, around: Circumstances) -> Scope:
    if reach is Reach.ROLE:
        return Scope(ScopeKind.ROLE, role=conditions.whose or around.role)
    if reach is Reach.DATABASE:
        return Scope(ScopeKind.DATABASE, database=conditions.whose or around.database)
    return SYSTEM


# What is staged as one set, below the list: its SQL, for whom, what waits; and the figures it is made for. Pure.

_SQL_LINES: Final = 3


def set_lines(
    staged_set: StagedChanges,
    sql: Sequence[str] | None,
    conditions: ChangeConditions,
    cells: int,
    glyphs: Glyphs,
    *,
    roomy: bool,
) -> list[Line]:
    """Return the exact SQL of the whole set, for whom it is, and what waits.

    Args:
        staged_set: The staged changes.
        sql: Its statements; None while they are being composed.
        conditions: The operator's.
        cells: Width.
        glyphs: Characters.
        roomy: Whether there is room for what becomes of sessions already connected.
    """
    lines: list[Line] = []
    if sql is not None and staged_set.changes_now:
        lines += wrapped(_applied(sql), cells, "strong")
        if not fits(sql, cells):
            lines = [*lines[: _SQL_LINES - 1], ((f"{glyphs.ellipsis} a shows it all", "dim"),)]
        lines += wrapped(pending_words(conditions), cells, "dim")
    if staged_set.needs_root:
        lines += wrapped(
            "this process may not change the machine: a shows the commands to run as root", cells, "warning"
        )
    if staged_set.next_load:
        options = " ".join(f"-c {name}={value}" for name, value in staged_set.next_load if value is not None)
        without = " and ".join(name for name, value in staged_set.next_load if value is None)
        begins = ", ".join(filter(None, (options and f"with {options}", without and f"without {without}")))
        text = f"apply: the next load begins {begins}; the server is not changed"
        lines += wrapped(text, cells, "" if staged_set.live else "strong")
    if roomy:
        lines += [line for text in staged_set.connected for line in wrapped(text, cells, "dim")]
    if staged_set.restart:
        names = ", ".join(row.name for row in staged_set.restart)
        lines += wrapped(f"waits for a restart (A): {names}", cells, "warning")
    return lines


def fits(sql: Sequence[str], cells: int) -> bool:
    """Return whether all of the SQL is shown below the list."""
    return len(wrapped(_applied(sql), cells)) <= _SQL_LINES


def _applied(sql: Sequence[str]) -> str:
    *first, last = (statement.rstrip().removesuffix(";") for statement in sql)
    return f"apply: {''.join(f'{statement}; ' for statement in first)}{last}{';' if sql[-1].endswith(';') else ''}"


def pending_words(conditions: ChangeConditions) -> str:
    """Return the deadline of a pending change set, and its trip wires."""
    if conditions.keep_within_s is None:
        return "confirmed at once, without a deadline"
    wires = f", or at once if {conditions.wires}" if conditions.wires else ""
    return f"reverts after {conditions.keep_within_s:g} s unless confirmed (Y){wires}"


def figures_line(session: Session) -> Line:
    """Return the numbers a change is made for, as they are now."""
    interval, newest = session.interval, session.once(newest_latency)
    if interval is None:
        return (("waiting for the first sample", "dim"),)
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
    return (*figures, ("WAL ", "label"), (byte_rate(WAL_BYTES(interval)), "strong"))
