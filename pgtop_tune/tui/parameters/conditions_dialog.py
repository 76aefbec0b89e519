"""The terms of a change set: scope, deadline, trip wires and reason."""

from __future__ import annotations

from typing import Final

from textual import events

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.changes.model.change import Reach
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.trip_wires import WATCHED
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.dialogs.form import ChoiceField, Form, NumberField, WordField
from pgtop_tune.tui.parameters.staged import Circumstances, Conditions, check_reach
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import Line, wrapped

# Trip wires that suit what is seen now: lines to begin with, to be changed by the operator. Pure.

OFF: Final = "off"
HARM: Final = "harm"
SLOWER: Final = "slower"
_TIMES: Final = 3.0
_MB: Final = 2**20
_LEAST_ROOM: Final = 2**30
_BY_NAME: Final = {watched.name: watched for watched in WATCHED}


def suggested(kind: str, interval: Interval | None) -> str:
    """Trip wires as one types them.

    Args:
        kind: HARM: transactions that fail, a disk that fills, a standby that falls behind. SLOWER: these, and a p99
            three times as high or a third of the throughput. OFF: none.
        interval: What is seen now; a number that cannot be said has no wire.
    """
    if kind == OFF or interval is None:
        return ""
    found = []
    if kind == SLOWER:
        p99, tps = _BY_NAME["p99"].value(interval), _BY_NAME["tps"].value(interval)
        found += [f"p99>{max(p99 * _TIMES, 1.0):.0f}ms"] if p99 else []
        found += [f"tps<{tps / _TIMES:.0f}"] if tps and tps >= _TIMES else []
    errors, free, lag = (_BY_NAME[name].value(interval) for name in ("errors", "free", "lag"))
    # Where transactions fail already, as serializable ones may, more of them is no news.
    found += ["errors>0"] if errors == 0 else []
    found += [f"free<{_typed(min(free / 2, _LEAST_ROOM))}"] if free else []
    found += [f"lag>{_typed(max(lag * _TIMES, _LEAST_ROOM))}"] if lag is not None else []
    return " ".join(found)


def _typed(size_bytes: float) -> str:
    whole = round(size_bytes / _MB)
    return f"{whole // 1024}GB" if whole % 1024 == 0 else f"{whole}MB"


_NARROWEST: Final = "narrowest"
_OWN: Final = "own"
_WIRES: Final = (
    (HARM, "failed transactions, a full disk, a lagging standby"),
    (SLOWER, "the same, and p99 or throughput three times as bad as now"),
    (OFF, "only the deadline"),
    (_OWN, "as typed below"),
)


class ConditionsDialog(Dialog[Conditions]):
    """Returns the terms, None on Escape.

    Args:
        before: What the form begins with.
        around: Whose sessions the narrower reaches are about.
        session: Trip wires are suggested from what it shows.
        glyphs: What it is drawn with.
    """

    CELLS = 100

    def __init__(self, before: Conditions, around: Circumstances, session: Session, glyphs: Glyphs) -> None:
        super().__init__("terms of a change", glyphs, keys="Enter ok  arrows, Tab choose  Esc back", low=True)
        self._around = around
        self._session = session
        self._reaches = _reaches(before, around)
        self._reach = ChoiceField("for", tuple((reach or _NARROWEST, words) for reach, _, words in self._reaches))
        chosen = [(reach, whose) for reach, whose, _ in self._reaches]
        wanted = (before.reach, before.whose)
        self._reach.index = chosen.index(wanted) if wanted in chosen else 0
        self._seconds = NumberField("deadline", "s, then it reverts", empty="confirmed at once")
        self._seconds.fill(before.keep_within_s)
        self._kind = ChoiceField("trip wires", _WIRES)
        self._wires = WordField("wires", "")
        self._wires.text.replace(before.wires)
        self._kind.choose(_OWN if before.wires else OFF)
        self._reason = WordField("reason", "for the journal")
        self._reason.text.replace(before.reason)
        fields = (self._reach, self._seconds, self._kind, self._wires, self._reason)
        self._form = Form(fields, letters_type=True)
        self._problem = ""

    def content(self, cells: int) -> list[Line]:
        """The form, what a trip wire can be tied to, what was wrong."""
        names = ", ".join(watched.name for watched in WATCHED)
        lines = [*self._form.lines(self.glyphs), ()]
        lines += wrapped(f"trip wires such as p99>50ms tps<1000, on: {names}", cells, "dim")
        return [*lines, *wrapped(self._problem, cells, "critical")] if self._problem else lines

    def frames_arrived(self, session: Session) -> None:
        """What suggestions are made from."""
        self._session = session

    def on_key(self, event: events.Key) -> None:
        """Typing, choosing, done."""
        kind, typed = self._kind.value, self._wires.text.text
        if event.key == "enter":
            self._done()
        elif self._form.press(event.key, event.character):
            self._problem = ""
            if self._kind.value != kind and self._kind.value != _OWN:
                self._wires.text.replace(suggested(self._kind.value, self._session.interval))
            elif self._wires.text.text != typed:
                self._kind.choose(_OWN)
        else:
            return
        event.stop()
        self.repaint()

    def on_paste(self, event: events.Paste) -> None:
        """Text from the terminal's clipboard."""
        event.stop()
        self._form.focused.paste(event.text)
        self.repaint()

    def _done(self) -> None:
        try:
            reach, whose, _ = self._reaches[self._reach.index]
            seconds = self._seconds.number(1)
            wires, reason = self._wires.text.text.strip(), self._reason.text.text.strip()
            conditions = Conditions(reach=reach, whose=whose, keep_within_s=seconds, wires=wires, reason=reason)
            conditions.trip_wires()
            check_reach(conditions, self._around)
        except PgtopError as problem:
            self._problem = str(problem)
        else:
            self.dismiss(conditions)


def _reaches(before: Conditions, around: Circumstances) -> list[tuple[Reach | None, str, str]]:
    """Reach, whose, and both in words: narrowest first; roles and databases are those of connected sessions."""
    found: list[tuple[Reach | None, str, str]] = [(None, "", "that shows the effect")]
    if around.can_load:
        found.append((Reach.LOAD, "", "sessions of the next load; nothing changes on the server"))
    for reach, own, seen, words in (
        (Reach.ROLE, around.role or "the role", around.roles, "new sessions of"),
        (Reach.DATABASE, around.database or "the database", around.databases, "new sessions in"),
    ):
        found.append((reach, "", f"{words} {own}"))
        others = dict.fromkeys((*([before.whose] if before.reach is reach else []), *seen))
        found += [(reach, name, f"{words} {name}") for name in others if name not in ("", own)]
    return [*found, (Reach.SYSTEM, "", "all sessions of the server")]
