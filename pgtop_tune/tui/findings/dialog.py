"""What binds now, in full: every finding with its evidence and the next step, and what could not be looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from textual import events

from pgtop_tune.base.units import wall_clock
from pgtop_tune.diagnosis.finding import Advice, Diagnosis, Finding, FindingKind, ParameterAdvice
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.findings.line import STYLES
from pgtop_tune.tui.pages.registry import NAMES, PAGES
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line, hanging, labelled, wrapped

_LABEL_CELLS: Final = 38
_MOST_NAMED: Final = 12
"""Rules that are named one by one."""
_TITLES: Final = dict(NAMES)
_IDS: Final = {row.key: row.id for row in PAGES}


class FindingsDialog(Dialog[None]):
    """Follows the moment shown.

    Args:
        session: What the screen shows.
        diagnose: What binds at that moment.
        step: The next step of an advice; None where it cannot be taken.
        glyphs: What it is drawn with.
    """

    CELLS = 110
    LIVE = False

    def __init__(
        self,
        session: Session,
        diagnose: Callable[[Session], Diagnosis | None],
        step: Callable[[Advice], Callable[[], None] | None],
        glyphs: Glyphs,
    ) -> None:
        super().__init__("what binds now", glyphs)
        self._session, self._diagnose, self._step = session, diagnose, step
        self._chosen = ""
        self._shown: Diagnosis | None = diagnose(session)

    @property
    def _findings(self) -> Sequence[Finding]:
        return () if self._shown is None else self._shown.findings

    @property
    def chosen(self) -> Finding | None:
        """The finding under the cursor; the first until another is chosen, or when the chosen one has gone."""
        found = self._findings
        return next((each for each in found if each.rule == self._chosen), found[0] if found else None)

    def content(self, cells: int) -> list[Line]:
        """The findings, the chosen one opened."""
        self._caption_keys()
        if self._shown is None:
            return [((f"looking {self.glyphs.ellipsis}", "dim"),)]
        lines: list[Line] = wrapped(f"settling: {self._shown.settling}", cells, "dim") if self._shown.settling else []
        for each in self._findings:
            opened = each is self.chosen
            sign = self.glyphs.pointer if opened else " "
            lines += hanging(f"{sign} {each.sentence}", cells) if not opened else _styled(sign, each, cells)
            if opened:
                lines += [*_evidence(each, cells), ()]
        for row in self._shown.not_looked_at:
            which = ", ".join(row.rules) if len(row.rules) <= _MOST_NAMED else f"{len(row.rules)} rules"
            lines += wrapped(f"not looked at: {which} ({row.reason})", cells, "dim")
        return lines

    def _caption_keys(self) -> None:
        chosen = self.chosen
        words = [] if chosen is None else [f"{chosen.page} {_TITLES.get(chosen.page, '')}"]
        if chosen is not None and chosen.advice is not None and self._step(chosen.advice) is not None:
            words.insert(0, f"Enter {_words(chosen.advice)}")
        if len(self._findings) > 1:
            words.append("up, down choose")
        self.captions("what binds now", "  ".join([*words, "Esc close"]))

    def frames_arrived(self, session: Session) -> None:
        """Another moment."""
        self._session, self._shown = session, self._diagnose(session)
        self.repaint()

    async def on_key(self, event: events.Key) -> None:
        """Choosing, the page of the evidence, the next step."""
        chosen, found = self.chosen, self._findings
        if event.key in ("up", "k", "down", "j") and chosen is not None:
            event.stop()
            at = found.index(chosen) + (1 if event.key in ("down", "j") else -1)
            self._chosen = found[min(max(at, 0), len(found) - 1)].rule
            self.repaint()
        elif event.key == "enter":
            event.stop()
            step = None if chosen is None or chosen.advice is None else self._step(chosen.advice)
            self.dismiss(None)
            if step is not None:
                step()
        elif event.character in _IDS:
            event.stop()
            self.dismiss(None)
            await self.app.run_action(f"app.look_at('{_IDS[event.character]}')")
        elif self.scroll_key(event.key):
            event.stop()


def _words(advice: Advice) -> str:
    if isinstance(advice, ParameterAdvice):
        return f"stage {advice.name}"
    return f"look at session {advice.backend[0]}"


def _styled(sign: str, finding: Finding, cells: int) -> list[Line]:
    style = STYLES[finding.kind]
    return [tuple((text, style) for text, _ in line) for line in hanging(f"{sign} {finding.sentence}", cells)]


def _evidence(finding: Finding, cells: int) -> list[Line]:
    lines: list[Line] = []
    for label, value in finding.evidence:
        lines += [((" ", PLAIN), (" ", PLAIN), *line) for line in labelled(label, value, cells - 2, "", _LABEL_CELLS)]
    rows = [("since", wall_clock(finding.since_ms))] if finding.kind is not FindingKind.NOTE else []
    rows += [("next step", finding.next_step)] if finding.next_step else []
    for label, value in rows:
        lines += [((" ", PLAIN), (" ", PLAIN), *line) for line in labelled(label, value, cells - 2, "", _LABEL_CELLS)]
    return lines
