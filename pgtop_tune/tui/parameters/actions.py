"""The keys for parameters: the list, undo, redo and confirm; and the message about a reverted set."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.changes.model.change import HostChange
from pgtop_tune.changes.model.change_set import Change
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.tui.scene.banners import change_text
from pgtop_tune.tui.widgets.phrase import lasting

if TYPE_CHECKING:
    from textual.timer import Timer

    from pgtop_tune.changes.confirm.pending_sets import Pending
    from pgtop_tune.diagnosis.finding import Deed
    from pgtop_tune.tui.app_context import AppContext
    from pgtop_tune.tui.controls import Services
    from pgtop_tune.tui.parameters.changes import Changes, ListScope

# What the screen says at its start of changes that earlier sessions left in force. Pure.

_MOST: Final = 4


def left_words(changes: Sequence[Change], current: Mapping[str, Parameter], now_ms: int) -> str:
    """Return the newest changes first, with their author and age, and the values that others have set since; "" without
    any.

    Args:
        changes: Everything in force, oldest first; what is pending confirmation has a line of its own.
        current: The parameters as they are, by name.
        now_ms: Milliseconds since the epoch.
    """
    kept = [change for change in reversed(changes) if change.kept]
    if not kept:
        return ""
    named = [
        f"{one_line(change_text(change), 80)} ({_who(change)}, {_ago(change, now_ms)} ago)" for change in kept[:_MOST]
    ]
    more = f" and {len(kept) - _MOST} more" if len(kept) > _MOST else ""
    text = f"in force from earlier: {', '.join(named)}{more}"
    since = [f"{change.name} is {one_line(now, 40)} now" for change in kept if (now := _other(change, current))]
    return text + (f"; set by others since: {', '.join(since[:_MOST])}" if since else "")


def _who(change: Change) -> str:
    return one_line(change.by.rpartition(",")[0] or change.by or "us", 60)


def _ago(change: Change, now_ms: int) -> str:
    return lasting(max(now_ms - change.at_ms, 0) / 1000.0)


def _other(change: Change, current: Mapping[str, Parameter]) -> str:
    """Return the present value where it is another one than the change brought."""
    parameter = None if isinstance(change, HostChange) or change.message else current.get(change.name)
    return "" if parameter is None or parameter.shown == change.shown_after else parameter.shown


_START_S: Final = 20.0
"""A message of the start stands longer: it may be read late."""
_COUNT_S: Final = 1.0
"""The countdown of a pending change set continues even if frames are rare."""


class ParameterActions:
    """Changes of parameters from the screen.

    Args:
        context: The application.

    Attributes:
        changes: Changes made from here; None where there is no door to them, and until it is made.
    """

    def __init__(self, context: AppContext) -> None:
        self._context = context
        self.changes: Changes | None = None
        self._looked_at_left = False
        self._countdown: Timer | None = None
        context.controls.services.when_made(self._take_services)

    def _take_services(self, services: Services) -> None:
        if services.parameters is None:
            return
        from pgtop_tune.changes.change_sets import ChangeSets, Undo
        from pgtop_tune.changes.confirm.pending_sets import PendingSets
        from pgtop_tune.tui.parameters.changes import Changes

        engine = self._context.controls.engine
        sets = ChangeSets(services.parameters, services.machine, services.restart)
        pending = PendingSets(sets, engine.note, adoptions=services.adoptions)
        engine.attach(pending)
        undo = Undo(services.parameters, services.machine, sets)
        self.changes = Changes(
            services.parameters, self._context.client, pending, undo, services.machine, services.load
        )

    async def _tell_left(self, changes: Changes) -> None:
        """Tell, at the start, which of our changes are in force, and which values others have set since."""
        with contextlib.suppress(PgtopError):
            changes_left = await changes.left()
            names = tuple(dict.fromkeys(change.name for change in changes_left))
            if not names:
                return
            current = {parameter.name: parameter for parameter in await changes.list(names)}
            message = left_words(changes_left, current, time.time_ns() // 1_000_000)
            if message:
                keys = self._context.with_keys("{parameters} lists, {undo-all} undoes them.")
                self._context.tell(f"{message}. {keys}", timeout_s=_START_S)

    @cached_property
    def panel(self) -> ListScope:
        """State that outlives the list of parameters; made once the services are there."""
        from pgtop_tune.tui.parameters.changes import ListScope

        services = self._context.services
        return ListScope(
            knobs=tuple(self._context.controls.knobs()),
            can_load=services.load is not None,
            allow_unsafe=self._context.options.allow_unsafe,
            client=self._context.client,
            restart=services.restart,
        )

    def open(self, services: Services, advice: Deed | None = None) -> None:
        """Open the list, at what a finding wants to try."""
        from pgtop_tune.tui.parameters.dialog import ParameterDialog

        if self.changes is not None:
            if advice is not None:
                self._list(advice)
            dialog = ParameterDialog(self.changes, self.panel, self._context.live, self._context.glyphs, advice)
            self._context.app.push_screen(dialog)

    def _list(self, deed: Deed) -> None:
        """List a parameter that only a finding names, with its words."""
        from pgtop_tune.advice.knobs.knob import Knob

        if all(knob.name != deed.target for knob in self.panel.knobs):
            knob = Knob(deed.target, "bottleneck", f"{deed.effect}.", "", ())
            self.panel.knobs = (knob, *self.panel.knobs)

    async def stage(self, deed: Deed) -> str:
        """Stage the value that a finding wants to try, without the list; the reason why not, "" when it is staged.

        Raises:
            PgtopError: The server does not answer.
        """
        from pgtop_tune.tui.parameters.dialog import staged_by

        if self.changes is None:
            return "parameters cannot be changed here"
        return await staged_by(deed, self.changes, self.panel, self._context.live)

    def open_at(self, services: Services, name: str) -> None:
        """Open the list, narrowed to one parameter."""
        from pgtop_tune.tui.parameters.dialog import ParameterDialog

        if self.changes is not None:
            dialog = ParameterDialog(self.changes, self.panel, self._context.live, self._context.glyphs)
            dialog.narrow(name)
            self._context.app.push_screen(dialog)

    def check(self, services: Services) -> None:
        """Open the check of the server, which looks at once; what it finds is changed here."""
        from pgtop_tune.tui.parameters.check_dialog import CheckDialog

        if services.checks is not None:
            dialog = CheckDialog(
                control=services.checks,
                client=self._context.client,
                changes=self.changes,
                scope=self.panel,
                session=self._context.live,
                glyphs=self._context.glyphs,
            )
            self._context.app.push_screen(dialog)

    def undo(self, services: Services, everything: bool = False) -> None:
        """Undo the last set of changes, or all of them, after a question."""
        from pgtop_tune.tui.parameters.staged_changes import undo_asked

        if self.changes is not None:
            work = undo_asked(self._context.app, self.changes, self._context.glyphs, everything=everything)
            self._context.run_telling(work, "undo")

    def redo(self, services: Services) -> None:
        """Make again what was undone last."""
        from pgtop_tune.tui.parameters.staged_changes import redo_said

        if self.changes is not None:
            self._context.run_telling(redo_said(self.changes), "undo")

    def keep(self, services: Services) -> None:
        """Keep the set that is pending."""
        from pgtop_tune.tui.parameters.staged_changes import keep_said

        if self.changes is not None:
            self._context.run_telling(keep_said(self.changes), "undo")

    @property
    def pending(self) -> Pending | None:
        """The set that goes back unless it is confirmed."""
        return None if self.changes is None else self.changes.pending

    def begin(self) -> None:
        """Let the countdown of a pending set run. Called once the application is mounted."""
        self._countdown = self._context.app.set_interval(_COUNT_S, self.count_down, pause=True)
        self._count_or_not()

    def _count_or_not(self) -> None:
        """Run the countdown only while a set is pending, or where frames come less often than each second."""
        interval = self._context.controls.interval
        if self._countdown is None:
            return
        if self.pending is None and interval is not None and interval.interval_s <= _COUNT_S:
            self._countdown.pause()
        else:
            self._countdown.resume()

    def look(self) -> None:
        """Tell of a set that has gone back by itself, with the reason. After each frame, and each second."""
        self._count_or_not()
        if self.changes is not None and not self._looked_at_left:
            self._looked_at_left = True
            self._context.app.run_worker(self._tell_left(self.changes), group="left")
        ended = None if self.changes is None else self.changes.taken_back()
        if ended is not None:
            self._context.tell(f"reverted, {ended.why}: {'; '.join(map(change_text, ended.changes))}", "warning")
            self._context.repaint()

    def count_down(self) -> None:
        """Draw the seconds of a pending set where frames are rare."""
        if self.pending is not None:
            self._context.repaint()
        self.look()
