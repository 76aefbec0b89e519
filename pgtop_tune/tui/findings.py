"""The bottleneck in full: who, the evidence, the deeds with their keys and effects, the other findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len

from pgtop_tune.base.units import wall_clock
from pgtop_tune.diagnosis.finding import Diagnosis, Finding, FindingKind
from pgtop_tune.diagnosis.rule import plural
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.deeds import DeedRow, Deeds
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.scene.banners import FINDING_STYLES
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line, ellipsized, hanging, labelled, wrap, wrapped
from pgtop_tune.tui.widgets.phrase import head

if TYPE_CHECKING:
    from pgtop_tune.diagnosis.diagnosing import Diagnoser
    from pgtop_tune.tui.app_context import AppContext
    from pgtop_tune.tui.time_travel import TimeTravel

# What binds at the moment shown, kept steady frame by frame, and the keys that act on it.


class Findings:
    """Diagnosis of the newest frame, and of another moment that is shown.

    Args:
        context: The application.
        time_travel: The moment shown.
        deeds: Makes rows of the deeds of a finding.
    """

    def __init__(self, context: AppContext, time_travel: TimeTravel, deeds: Deeds) -> None:
        self._context = context
        self._time_travel = time_travel
        self._deeds = deeds
        self._live: Diagnoser | None = None
        self._past: Diagnoser | None = None

    def begin(self) -> None:
        """Load the rules: the first picture does not wait for them."""
        from pgtop_tune.diagnosis.diagnosing import Diagnoser

        live = self._context.live
        self._live, self._past = Diagnoser(), Diagnoser()
        live.watch = self._live.look
        if live.interval is not None:
            self._live.look_through(live.interval)

    def diagnose(self, session: Session) -> Diagnosis | None:
        """Return what binds at the newest frame of a session: of a moment of the past what was said then.

        None before `begin`, before the first frame, and while what leads up to it is being read.
        """
        if self._live is None or self._past is None or session.interval is None:
            return None
        diagnosis = self._live.said_of(session.interval.newest)
        if diagnosis is not None or session.incomplete:
            return diagnosis
        return self._past.look(session.interval)

    @property
    def shown(self) -> Diagnosis | None:
        """Diagnosis of the moment shown."""
        return self.diagnose(self._time_travel.shown)

    @property
    def first_deed(self) -> DeedRow | None:
        """The first deed of the first finding that can be done now; None without one."""
        diagnosis = self.shown
        return None if diagnosis is None else self._deeds.first(diagnosis.first)

    def open(self) -> None:
        """Open the dialog with all findings."""
        dialog = FindingsDialog(self._time_travel.shown, self.diagnose, self._deeds, self._context.glyphs)
        self._context.app.push_screen(dialog)

    def act(self) -> None:
        """Do the first deed of the first finding, after its question; without one, open the dialog."""
        deed = self.first_deed
        if deed is None or deed.act is None:
            self.open()
        else:
            deed.act()


_LABEL_CELLS: Final = 30
_KEY_CELLS: Final = 8
_LEAST_EFFECT: Final = 20
_LABEL_SHARE: Final = 0.55
"""Part of a row that a deed gets at most; its effect has the rest."""
_MOST_NAMED: Final = 12
"""Rules that are named one by one."""
_FRAME_ROWS: Final = 2
_MOVES: Final = {"up": -1, "k": -1, "down": 1, "j": 1}
_KEYS: Final = "up, down choose  Enter do  y copy  Esc close"


class FindingsDialog(Dialog[None]):
    """Follows the moment shown. The cursor goes over the deeds of a finding, then over the other findings.

    Args:
        session: The session that is shown.
        diagnose: Returns the diagnosis of that moment.
        deeds: Makes rows of the deeds of a finding.
        glyphs: Characters of the drawing.
    """

    CELLS = 110
    LIVE = False

    def __init__(
        self, session: Session, diagnose: Callable[[Session], Diagnosis | None], deeds: Deeds, glyphs: Glyphs
    ) -> None:
        super().__init__("bottleneck", glyphs, keys=_KEYS)
        self._diagnose, self._deeds = diagnose, deeds
        self._chosen = ""
        self._skipped = False
        self._at = 0
        self._cursor_line = 0
        self._take(diagnose(session))

    def _take(self, diagnosis: Diagnosis | None) -> None:
        self._shown = diagnosis
        chosen = self.chosen
        self._deed_rows: Sequence[DeedRow] = () if chosen is None else self._deeds.rows(chosen)
        self._at = min(self._at, max(len(self._deed_rows) + len(self._others) - 1, 0))

    @property
    def _findings(self) -> Sequence[Finding]:
        return () if self._shown is None else self._shown.findings

    @property
    def chosen(self) -> Finding | None:
        """The finding in full: the first until another is chosen, or when the chosen one has gone."""
        findings = self._findings
        return next(
            (finding for finding in findings if finding.rule == self._chosen), findings[0] if findings else None
        )

    @property
    def _others(self) -> Sequence[Finding]:
        chosen = self.chosen
        return [finding for finding in self._findings if finding is not chosen]

    def content(self, cells: int) -> list[Line]:
        """Return the chosen finding: its sentence, why, what to do; then the further. Where there is no room for all,
        the deeds come before the evidence.
        """
        chosen = self.chosen
        if self._shown is None or chosen is None:
            return [((f"looking {self.glyphs.ellipsis}", "dim"),)]
        since = (
            "" if chosen.kind is FindingKind.NOTE else f" {self.glyphs.separator} since {wall_clock(chosen.since_ms)}"
        )
        self.captions(f"bottleneck{since}", _KEYS)
        settles = self._shown.settling
        settling = wrapped(f"settling: {settles}", cells, "dim") if settles and settles not in chosen.sentence else []
        top = [*settling, *_styled(self.glyphs.bullet, chosen, cells)]
        evidence, below = _evidence(chosen, cells), self._other_lines(cells)
        deeds = self._deed_lines(cells, len(self._deed_rows))
        room = self.app.size.height - _FRAME_ROWS
        evidence_first = len(top) + len(evidence) + len(deeds) + len(self._others) <= room
        middle = [*evidence, *deeds] if evidence_first else [*deeds, *evidence]
        lines = [*top, *middle, *below]
        pointed = [number for number, line in enumerate(lines) if line and line[0][1] == "cursor"]
        self._cursor_line = pointed[0] if pointed else 0
        return lines

    def _deed_lines(self, cells: int, count: int) -> list[Line]:
        why_none = self._deeds.why_none
        if not count:
            return []
        title: Line = (("do", "title"), (f"  {why_none}", "warning")) if why_none else (("do", "title"),)
        room = cells - _KEY_CELLS
        widest = max(cell_len(row.label) for row in self._deed_rows)
        label_cells = max(min(widest, int(room * _LABEL_SHARE), room - _LEAST_EFFECT), 1)
        lines = [head(title, cells, self.glyphs)]
        for number, row in enumerate(self._deed_rows):
            lines += self._deed_line(row, label_cells, room - label_cells - 2, pointed=number == self._at)
        return lines

    def _deed_line(self, row: DeedRow, label_cells: int, effect_cells: int, *, pointed: bool) -> list[Line]:
        style, lines = PLAIN if row.act is not None else "dim", list[Line]()
        pairs = zip_longest(wrap(row.label, label_cells), wrap(row.effect, max(effect_cells, 1)), fillvalue="")
        for number, (label, effect) in enumerate(pairs):
            sign = self.glyphs.pointer if pointed and not number else " "
            key = row.key if not number else ""
            lines.append(
                (
                    (f"{sign} ", "cursor" if pointed and not number else PLAIN),
                    (key, "key"),
                    (" " * (_KEY_CELLS - 2 - cell_len(key)), PLAIN),
                    (label + " " * (label_cells - cell_len(label) + 2), "strong" if pointed else style),
                    (effect, "dim" if row.act is None else "label"),
                )
            )
        return lines

    def _other_lines(self, cells: int) -> list[Line]:
        further, lines = self._others, list[Line]()
        if further:
            lines.append(head((("also", "title"),), cells, self.glyphs))
        for number, finding in enumerate(further, len(self._deed_rows)):
            pointed = number == self._at
            text = next((form for form in finding.forms if cell_len(form) <= cells - 2), finding.short)
            text = ellipsized(text, cells - 2, self.glyphs.ellipsis).rstrip()
            sign = self.glyphs.pointer if pointed else " "
            lines.append(((f"{sign} ", "cursor" if pointed else PLAIN), (text, "strong" if pointed else PLAIN)))
        skipped = () if self._shown is None else self._shown.not_looked_at
        count = sum(len(row.rules) for row in skipped)
        if count and not self._skipped:
            lines.append(((f"  {plural(count, 'rule')} skipped: ", "dim"), ("i", "key"), (" shows which", "dim")))
        for row in skipped if self._skipped else ():
            which = ", ".join(row.rules) if len(row.rules) <= _MOST_NAMED else plural(len(row.rules), "rule")
            lines += wrapped(f"skipped: {which} ({row.reason})", cells, "dim")
        return lines

    def frames_arrived(self, session: Session) -> None:
        self._take(self._diagnose(session))
        self.repaint()

    async def pressed(self, key: str, character: str | None) -> bool:
        """Move the cursor, do its deed or open its finding, or do the deed of a key."""
        count, named = len(self._deed_rows) + len(self._others), {key, character}
        row = next((row for row in self._deed_rows if named.intersection(row.keys)), None)
        copied = row if row is not None and row.sql else self._under_cursor
        if key in _MOVES and count:
            self._at = min(max(self._at + _MOVES[key], 0), count - 1)
            self._show_cursor()
        elif key == "enter":
            self._do(self._under_cursor)
        elif key == "y" and copied is not None and copied.sql:
            self._deeds.copy(copied.sql)
        elif row is not None:
            self._do(row)
        elif key == "f" and self._deed_rows:
            self._do(next((row for row in self._deed_rows if row.act is not None), None))
        elif key == "i":
            self._skipped = not self._skipped
        elif key == "w":
            self.dismiss(None)
        else:
            return self.scroll_key(key)
        return True

    @property
    def _under_cursor(self) -> DeedRow | None:
        return self._deed_rows[self._at] if self._at < len(self._deed_rows) else None

    def _do(self, row: DeedRow | None) -> None:
        """Do a deed, or open the finding under the cursor."""
        if row is not None:
            if row.act is not None:
                self.dismiss(None)
                row.act()
            return
        further = self._others
        if self._at - len(self._deed_rows) < len(further):
            self._chosen, self._at = further[self._at - len(self._deed_rows)].rule, 0
            self._take(self._shown)
            self.show_from(0)
        elif not further:
            self.dismiss(None)

    def _show_cursor(self) -> None:
        self.repaint()
        room = self.app.size.height - _FRAME_ROWS
        if not self.top <= self._cursor_line < self.top + room:
            self.show_from(self._cursor_line - room // 2)


def _styled(sign: str, finding: Finding, cells: int) -> list[Line]:
    style = FINDING_STYLES[finding.kind]
    return [tuple((text, style) for text, _ in line) for line in hanging(f"{sign} {finding.sentence}", cells)]


def _evidence(finding: Finding, cells: int) -> list[Line]:
    lines: list[Line] = []
    for label, value in (*finding.evidence, *([("next step", finding.next_step)] if finding.next_step else [])):
        lines += [((" ", PLAIN), (" ", PLAIN), *line) for line in labelled(label, value, cells - 2, "", _LABEL_CELLS)]
    return lines
