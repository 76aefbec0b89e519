"""A data set from the screen: which and how large, what that means, a typed yes where something goes, progress."""

from __future__ import annotations

from typing import Final

from textual import events

from pgtop_tune.errors import PgtopError
from pgtop_tune.runtime.load_control import LoadControl, MakingPlan, MakingPreview
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.dialogs.form import ChoiceField, Form, WordField
from pgtop_tune.tui.engine_client import EngineClient
from pgtop_tune.tui.load.making_drawing import made_lines, making_lines, preview_lines
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import Line
from pgtop_tune.tui.widgets.wrapping import wrapped

_DATASETS: Final = (("pgbench", "pgbench's own tables"), ("bus", "a bus company: cities, rides, tickets"))
_SIZES: Final = {
    "pgbench": ("scale", "100,000 accounts and 16 MB each", "10"),
    "bus": ("size", "tickets (6M), or disk space (0.6GB)", "6M"),
}
"""Label, remark and first size of each."""
_SCROLLING: Final = ("pageup", "pagedown")
_AGREED: Final = "yes"
_LOOKING: Final = "looking for existing tables"
_MAKING: Final = "making"


class InitDialog(Dialog[None]):
    """Makes a data set; may be closed meanwhile, the dashboard's first line goes on telling.

    Args:
        load: Makes it.
        client: The way to it.
        dataset: What is offered first; "" for the first of all.
        glyphs: What it is drawn with.
    """

    CELLS = 90

    def __init__(self, load: LoadControl, client: EngineClient, dataset: str, glyphs: Glyphs) -> None:
        super().__init__("data set", glyphs, low=True)
        self._load = load
        self._client = client
        self._dataset = ChoiceField("data set", _DATASETS)
        self._dataset.choose(dataset)
        self._amount = WordField("", "")
        self._agree = WordField("drop it?", f"type {_AGREED}, and Enter")
        self._form = Form((self._dataset, self._amount), focus=1)
        self._preview: MakingPreview | None = None
        self._problem = ""
        self._busy = ""
        self._began = False
        self._under_way = False
        self._eager = False
        self._suggest()

    def on_mount(self) -> None:
        """Asks what it would mean."""
        super().on_mount()
        self._look()

    @property
    def _plan(self) -> MakingPlan:
        return MakingPlan(self._dataset.value, self._amount.text.text.strip())

    def content(self, cells: int) -> list[Line]:
        """The making under way, or the form with what it would mean."""
        state = self._load.state()
        if state.doing == _MAKING:
            self.captions(f"making {state.title}", "x stop  Esc dashboard")
            return [*making_lines(state.making, cells, self.glyphs), *self._said(cells)]
        self.captions("data set", "Enter create  arrows, Tab choose  Esc back")
        lines: list[Line] = []
        if self._began and state.made is not None:
            lines += [*made_lines(state.made, cells), ()]
        elif self._began and state.problem:
            lines += [*wrapped(state.problem, cells, "critical"), ()]
        lines += [*self._form.lines(self.glyphs), ()]
        lines += preview_lines(self._preview, cells) if self._preview is not None else []
        return [*lines, *self._said(cells)]

    def _said(self, cells: int) -> list[Line]:
        lines = wrapped(self._problem, cells, "critical") if self._problem else []
        return lines + ([((f"{self._busy} {self.glyphs.ellipsis}", "dim"),)] if self._busy else [])

    def frames_arrived(self, session: Session) -> None:
        """It goes on, or has ended."""
        if self._under_way and not self._load.state().doing:
            self._under_way = False
            self._look()
        self.repaint()

    def _suggest(self) -> None:
        self._amount.label, self._amount.remark, usual = _SIZES[self._dataset.value]
        self._amount.text.replace(usual)

    def _look(self) -> None:
        self._busy, self._problem, self._preview, self._eager = _LOOKING, "", None, False
        self.run_worker(self._ask(self._plan), group="look", exclusive=True)

    async def _ask(self, plan: MakingPlan) -> None:
        try:
            preview = await self._client.ask(self._load.look(plan))
        except PgtopError as problem:
            self._show(None, str(problem))
        else:
            self._show(preview, "")

    def _show(self, preview: MakingPreview | None, problem: str) -> None:
        self._preview, self._problem, self._busy = preview, problem, ""
        lost = preview is not None and bool(preview.dropped)
        self._form.fields = (self._dataset, self._amount, *([self._agree] if lost else []))
        if self._eager and preview is not None:
            self._enter()
        self._eager = False
        self.repaint()

    def on_key(self, event: events.Key) -> None:
        """Typing, making, stopping."""
        if self._load.state().doing == _MAKING:
            if event.key != "x" or self._busy:
                return
            self._busy = "stopping"
            self.run_worker(self._stop(), group="making")
        elif event.key == "enter":
            self._enter()
        elif event.key in _SCROLLING:
            self.scroll_key(event.key)
        else:
            before, dataset = self._plan, self._dataset.value
            if not self._form.press(event.key, event.character):
                return
            if self._dataset.value != dataset:
                self._suggest()
            if self._plan != before:
                self._look()
        event.stop()
        self.repaint()

    def on_paste(self, event: events.Paste) -> None:
        """A size from the terminal's clipboard."""
        event.stop()
        if self._form.focused is self._amount:
            self._amount.paste(event.text)
            self._look()
            self.repaint()

    def _enter(self) -> None:
        preview = self._preview
        # Enter pressed while the server is asked counts once it has answered.
        self._eager = self._busy == _LOOKING
        if preview is None or self._busy:
            return
        agreed = self._agree.text.text.strip().lower() == _AGREED
        if preview.dropped and not agreed:
            self._form.focus = 2
            self._problem = f"existing tables are dropped only when you type {_AGREED}"
            return
        self._busy, self._problem = "starting", ""
        self._agree.text.replace("")
        self.run_worker(self._make(self._plan, agreed), group="making")

    async def _make(self, plan: MakingPlan, agreed: bool) -> None:
        try:
            await self._client.ask(self._load.make(plan, replace=agreed))
        except PgtopError as problem:
            self._problem = str(problem)
        else:
            self._began = self._under_way = True
            self._preview = None
        self._form.focus = 1
        self._busy = ""
        self.repaint()

    async def _stop(self) -> None:
        try:
            await self._client.ask(self._load.stop())
        except PgtopError as problem:
            self._problem = str(problem)
        self._busy = ""
        self.repaint()
