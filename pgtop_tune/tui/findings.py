"""The bottleneck in full: every finding with its evidence and the next step, and the rules that were skipped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from pgtop_tune.base.units import wall_clock
from pgtop_tune.diagnosis.finding import Advice, Diagnosis, Finding, FindingKind, ParameterAdvice
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.actions import NAMES, PAGES
from pgtop_tune.tui.dashboard.session_details import session_dialog
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.scene.banners import FINDING_STYLES
from pgtop_tune.tui.scene.scene import SceneScreen
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line, hanging, labelled, wrapped

if TYPE_CHECKING:
    from pgtop_tune.diagnosis.diagnosing import Diagnoser
    from pgtop_tune.model.backend_action import BackendKey
    from pgtop_tune.tui.app_context import AppContext
    from pgtop_tune.tui.parameters.actions import ParameterActions
    from pgtop_tune.tui.time_travel import TimeTravel

# The bottleneck at the moment shown, kept steady frame by frame, and the key that opens the list of findings.


class Findings:
    """Diagnosis of the newest frame, and of another moment that is shown.

    Args:
        context: The application.
        time_travel: The moment shown.
        parameters: Where a parameter is staged.
    """

    def __init__(self, context: AppContext, time_travel: TimeTravel, parameters: ParameterActions) -> None:
        self._context = context
        self._time_travel = time_travel
        self._parameters = parameters
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
        """Return the findings at the newest frame of a session; in the past those that were shown at that moment.

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

    def open(self) -> None:
        """Open the dialog with all findings."""

        dialog = FindingsDialog(self._time_travel.shown, self.diagnose, self._step, self._context.glyphs)
        self._context.app.push_screen(dialog)

    def _step(self, advice: Advice) -> Callable[[], None] | None:
        """Return what Enter does; None where it cannot be done, as in the past and in a replay."""

        if not isinstance(advice, ParameterAdvice):
            return partial(self._show_session, advice.backend)
        if self._time_travel.in_past or all(knob.name != advice.name for knob in self._context.controls.knobs()):
            return None
        return partial(self._context.served(self._parameters.open), advice)

    def _show_session(self, key: BackendKey) -> None:
        screen, session = self._context.app.screen, self._time_travel.shown
        keys = screen.keys_for(key) if isinstance(screen, SceneScreen) else ()
        self._context.app.push_screen(session_dialog(session, key, self._context.glyphs, keys))


_LABEL_CELLS: Final = 38
_MOST_NAMED: Final = 12
"""Rules that are named one by one."""
_TITLES: Final = dict(NAMES)
_IDS: Final = {row.key: row.id for row in PAGES}


class FindingsDialog(Dialog[None]):
    """Follows the moment shown.

    Args:
        session: The session that is shown.
        diagnose: Returns the diagnosis of that moment.
        step: The next step of an advice; None where it cannot be taken.
        glyphs: Characters of the drawing.
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
        super().__init__("bottleneck", glyphs)
        self._session, self._diagnose, self._step = session, diagnose, step
        self._chosen = ""
        self._shown: Diagnosis | None = diagnose(session)

    @property
    def _findings(self) -> Sequence[Finding]:
        return () if self._shown is None else self._shown.findings

    @property
    def chosen(self) -> Finding | None:
        """The finding under the cursor; the first until another is chosen, or when the chosen one has gone."""
        findings = self._findings
        return next(
            (finding for finding in findings if finding.rule == self._chosen), findings[0] if findings else None
        )

    def content(self, cells: int) -> list[Line]:
        """Return the findings, the chosen one opened."""
        self._caption_keys()
        if self._shown is None:
            return [((f"diagnosing {self.glyphs.ellipsis}", "dim"),)]
        lines: list[Line] = wrapped(f"settling: {self._shown.settling}", cells, "dim") if self._shown.settling else []
        for finding in self._findings:
            opened = finding is self.chosen
            sign = self.glyphs.pointer if opened else " "
            lines += hanging(f"{sign} {finding.sentence}", cells) if not opened else _styled(sign, finding, cells)
            if opened:
                lines += [*_evidence(finding, cells), ()]
        for row in self._shown.not_looked_at:
            which = ", ".join(row.rules) if len(row.rules) <= _MOST_NAMED else f"{len(row.rules)} rules"
            lines += wrapped(f"skipped: {which} ({row.reason})", cells, "dim")
        return lines

    def _caption_keys(self) -> None:
        chosen = self.chosen
        captions = [] if chosen is None else [f"{chosen.page} {_TITLES.get(chosen.page, '')}"]
        if chosen is not None and chosen.advice is not None and self._step(chosen.advice) is not None:
            captions.insert(0, f"Enter {_words(chosen.advice)}")
        if len(self._findings) > 1:
            captions.append("up, down choose")
        self.captions("bottleneck", "  ".join([*captions, "Esc close"]))

    def frames_arrived(self, session: Session) -> None:
        self._session, self._shown = session, self._diagnose(session)
        self.repaint()

    async def pressed(self, key: str, character: str | None) -> bool:
        """Choose a finding, open the page of its evidence, or take its next step."""
        chosen, findings = self.chosen, self._findings
        if key in ("up", "k", "down", "j") and chosen is not None:
            at = findings.index(chosen) + (1 if key in ("down", "j") else -1)
            self._chosen = findings[min(max(at, 0), len(findings) - 1)].rule
        elif key == "enter":
            step = None if chosen is None or chosen.advice is None else self._step(chosen.advice)
            self.dismiss(None)
            if step is not None:
                step()
        elif character in _IDS:
            self.dismiss(None)
            await self.app.run_action(f"app.look_at('{_IDS[character]}')")
        else:
            return self.scroll_key(key)
        return True


def _words(advice: Advice) -> str:
    if isinstance(advice, ParameterAdvice):
        return f"stage {advice.name}"
    return f"open session {advice.backend[0]}"


def _styled(sign: str, finding: Finding, cells: int) -> list[Line]:
    style = FINDING_STYLES[finding.kind]
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
