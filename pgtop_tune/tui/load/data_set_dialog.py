"""The dialog that makes a data set: what one would mean, its progress, and the seconds of its steps."""

from __future__ import annotations

from typing import Final

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import count, size
from pgtop_tune.runtime.engine import EngineClient
from pgtop_tune.runtime.load_control import DataSetMade, LoadControl, MakingPlan, MakingPreview, MakingProgress
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dialogs.entry import ChoiceField, Form, FormDialog, WordField
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line, wrapped
from pgtop_tune.tui.widgets.phrase import lasting

SCROLLING: Final = ("pageup", "pagedown")

# A data set in the making, and what making one would mean. Pure.

_BAR: Final = 40
_FOUND: Final = 200


def making_lines(progress: MakingProgress | None, cells: int, glyphs: Glyphs) -> list[Line]:
    """Return the step under way, a bar where rows are counted, rate and remaining time."""
    if progress is None:
        return [((f"starting {glyphs.ellipsis}", "dim"),)]
    lines: list[Line] = [((progress.step, "strong"),)]
    if progress.total:
        share = min(max(progress.done / progress.total, 0.0), 1.0)
        bar = min(_BAR, max(cells - 6, 1))
        full = round(share * bar)
        done, todo = glyphs.full * full, glyphs.speck * (bar - full)
        lines.append(((done, "series-1"), (todo, "dim"), (f" {share:4.0%}", PLAIN)))
        lines += wrapped(_progress_words(progress), cells)
    return lines


def preview_lines(preview: MakingPreview, cells: int) -> list[Line]:
    """Return the room on disk, the tables that would be dropped, and a note."""
    if preview.available_bytes is None:
        free = f"free space is unknown: {preview.why}"
    else:
        free = f"{size(preview.available_bytes)} free"
    lines: list[Line] = []
    if preview.needed_bytes:
        lines += wrapped(f"the tables need about {size(preview.needed_bytes)} of disk; {free}", cells)
    lines += wrapped(one_line(preview.note, _FOUND), cells) if preview.note else []
    if preview.dropped:
        database, there = one_line(preview.database, 60), one_line(preview.dropped, _FOUND)
        lines += wrapped(f"the database {database} holds {there}, which will be dropped.", cells, "warning")
    return lines


def made_lines(data_set: DataSetMade, cells: int) -> list[Line]:
    """Return seconds of each step."""
    if not data_set.steps_s:
        return wrapped(f"{data_set.title}: existed already", cells, "good")
    rows = [*data_set.steps_s, ("total", data_set.total_s)]
    return [
        ((f"created: {data_set.title}", "good"),),
        *(((f"  {name:<24}", "label"), (f"{seconds:8.2f} s", PLAIN)) for name, seconds in rows),
    ]


def _progress_words(progress: MakingProgress) -> str:
    about = "about " if progress.estimated else ""
    parts = [f"{about}{count(progress.done)} of {count(progress.total)} {progress.unit}"]
    parts += [f"{count(progress.per_s)} {progress.unit}/s"] if progress.per_s is not None else []
    parts += [f"{lasting(progress.remaining_s)} left"] if progress.remaining_s is not None else []
    return ", ".join(parts)


_DATASETS: Final = (("pgbench", "pgbench's own tables"), ("bus", "a bus company: cities, rides, tickets"))
_SIZES: Final = {
    "pgbench": ("scale", "100,000 accounts and 16 MB each", "10"),
    "bus": ("size", "tickets (6M), or disk space (0.6GB)", "6M"),
}
"""Label, remark and first size of each."""
_AGREED: Final = "yes"
_LOOKING: Final = "searching for existing tables"
MAKING: Final = "making"


class InitDialog(FormDialog[None]):
    """Makes a data set; may be closed meanwhile, the dashboard's first line goes on telling.

    Args:
        load: Makes it.
        client: The way to it.
        dataset: What is offered first; "" for the first of all.
        glyphs: Characters of the drawing.
    """

    CELLS = 90
    KEYS = "s create  Enter edit  arrows, Tab choose  Esc back"

    def __init__(self, load: LoadControl, client: EngineClient, dataset: str, glyphs: Glyphs) -> None:
        super().__init__("data set", glyphs, low=True)
        self._load = load
        self._client = client
        self._dataset = ChoiceField("data set", _DATASETS)
        self._dataset.choose(dataset)
        self._amount = WordField("", "")
        self._agree = WordField("drop it?", f"type {_AGREED}, and Enter")
        self.form = Form((self._dataset, self._amount), focus=1)
        self._preview: MakingPreview | None = None
        self._began = False
        self._under_way = False
        self._eager = False
        self._suggest()
        self._looked_at = self._plan
        self.form.go_to(1)

    def on_mount(self) -> None:
        """Ask what it would mean."""
        self._look()

    @property
    def _plan(self) -> MakingPlan:
        return MakingPlan(self._dataset.value, self._amount.text.text.strip())

    def content(self, cells: int) -> list[Line]:
        """Return the making under way, or the form with what it would mean."""
        state = self._load.state()
        if state.doing == MAKING:
            self.captions(f"making {state.title}", "x stop  Esc dashboard")
            return [*making_lines(state.making, cells, self.glyphs), *self.foot(cells)]
        self.captions("data set", self.KEYS)
        lines: list[Line] = []
        if self._began and state.made is not None:
            lines += [*made_lines(state.made, cells), ()]
        elif self._began and state.problem:
            lines += [*wrapped(state.problem, cells, "critical"), ()]
        lines += [*self.form.lines(self.glyphs), ()]
        lines += preview_lines(self._preview, cells) if self._preview is not None else []
        return [*lines, *self.foot(cells)]

    def frames_arrived(self, session: Session) -> None:
        """Draw progress; ask again once the data set is made."""
        if self._under_way and not self._load.state().doing:
            self._under_way = False
            self._look()
        self.repaint()

    def _suggest(self) -> None:
        self._amount.label, self._amount.remark, usual = _SIZES[self._dataset.value]
        self._amount.text.replace(usual)

    def _look(self) -> None:
        self._preview, self._eager, self._looked_at = None, False, self._plan
        self.work(self._ask(self._plan), _LOOKING, "look")

    async def _ask(self, plan: MakingPlan) -> None:
        self.form.fields = (self._dataset, self._amount)
        self._preview = await self._client.ask(self._load.look(plan))
        self.form.fields = (self._dataset, self._amount, *([self._agree] if self._preview.dropped else []))
        self.busy = ""
        if self._eager:
            self._create()

    async def pressed(self, key: str, character: str | None) -> bool:
        """Type, make the data set, or stop."""
        if self._load.state().doing == MAKING:
            if key != "x" or self.busy:
                return False
            self.work(self._client.ask(self._load.stop()), "stopping")
        elif key in SCROLLING:
            self.scroll_key(key)
        else:
            dataset = self._dataset.value
            agreeing = self.form.typing and self.form.focused is self._agree
            if self.form.press(key, character):
                if agreeing and key == "enter":
                    self._create()
            elif key == "s":
                self._create()
            else:
                return False
            if self._dataset.value != dataset:
                self._suggest()
            self.changed()
        return True

    def paste(self, text: str) -> None:
        """Paste a size; the yes to a loss is typed."""
        if self.form.focused is not self._agree:
            super().paste(text)

    def changed(self) -> None:
        """Ask what another plan would mean."""
        if self._plan != self._looked_at:
            self._look()

    def _create(self) -> None:
        preview = self._preview
        # A key pressed while the server is asked counts once it has answered.
        self._eager = self.busy == _LOOKING
        if preview is None or self.busy:
            return
        agreed = self._agree.text.text.strip().lower() == _AGREED
        if preview.dropped and not agreed:
            self.form.go_to(2)
            self.form.type()
            self.say(f"existing tables are dropped only when you type {_AGREED}")
            return
        self._agree.text.replace("")
        self.form.go_to(1)
        self.work(self._make(self._plan, agreed), "starting")

    async def _make(self, plan: MakingPlan, agreed: bool) -> None:
        await self._client.ask(self._load.make(plan, replace=agreed))
        self._began = self._under_way = True
        self._preview = None
