"""The dialogs that start several runs: the steps of a load, and the search for its highest rate."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from pgtop_tune.base import units
from pgtop_tune.base.errors import PgtopError
from pgtop_tune.base.units import clock
from pgtop_tune.experiment.load_words import objective_meaning
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.runtime.engine import EngineClient
from pgtop_tune.runtime.load_control import EndConditions, LoadControl, SearchWish
from pgtop_tune.tui.dialogs.entry import ChoiceField, Form, FormDialog, NumberField, WordField
from pgtop_tune.tui.widgets.lines import Glyphs, Line, wrapped

# Steps of a load: which, for how long each, and what is done before each.

_LISTS: Final = {"clients": "1,2,4,8,16,32,64", "rate": "100,200,400,800"}
_SECONDS: Final = 60
_TIDY: Final = (
    ("yes", "empty history, vacuum, checkpoint"),
    ("no", "each starts where the last one ended"),
)


class StepsDialog(FormDialog[bool]):
    """Starts the steps; returns True once they have begun.

    Args:
        load: Runs them.
        client: The way to it.
        spec: The load that the steps have in common.
        ends: Reasons to end a step before its time.
        glyphs: Characters of the drawing.
    """

    CELLS = 90
    KEYS = "s start  Enter edit  arrows, Tab choose  Esc back"

    def __init__(
        self, load: LoadControl, client: EngineClient, spec: LoadSpec, ends: EndConditions, glyphs: Glyphs
    ) -> None:
        super().__init__("steps", glyphs, low=True)
        self._ends = ends
        self._load = load
        self._client = client
        self._spec = spec
        self._axis = ChoiceField("steps of", (("clients", ""), ("rate", "transactions per second")))
        self._list = WordField("list", "separated by commas, in this order")
        self._list.text.replace(_LISTS["clients"])
        self._time = NumberField("time s", "of each step")
        self._time.fill(spec.duration_s or _SECONDS)
        self._tidy = ChoiceField("tidy up", _TIDY)
        self.form = Form((self._axis, self._list, self._time, self._tidy), focus=1)

    def content(self, cells: int) -> list[Line]:
        """Return the form, how long it will take, and what was wrong with it."""
        lines = [*self.form.lines(self.glyphs), ()]
        try:
            seconds = int(self._time.number(1) or 0)
        except PgtopError as problem:
            return [*lines, *wrapped(str(problem), cells, "critical")]
        steps = len([word for word in self._list.text.text.split(",") if word.strip()])
        besides = " plus the time to tidy up" if self._tidy.index == 0 else ""
        lines += wrapped(f"{self._spec.profile}: {steps} runs, {clock(steps * seconds)}{besides}", cells, "dim")
        return [*lines, *self.foot(cells)]

    async def pressed(self, key: str, character: str | None) -> bool:
        """Type, or start the steps."""
        axis = self._axis.value
        if self.form.press(key, character):
            self.say()
            if self._axis.value != axis and self._list.text.text == _LISTS[axis]:
                self._list.text.replace(_LISTS[self._axis.value])
        elif key == "s" and not self.busy:
            self.work(self._start(), "starting")
        else:
            return False
        return True

    async def _start(self) -> None:
        spec = replace(self._spec, duration_s=int(self._time.number(1) or 0), transactions=None, phases="")
        steps = f"{self._axis.value}={self._list.text.text.strip().strip(',')}"
        await self._client.ask(self._load.start_steps(spec, steps, tidy=self._tidy.index == 0, ends=self._ends))
        self.dismiss(True)


# The search for the highest rate that keeps an objective.

_BEGIN: Final = (("anew", ""), ("continue", "the newest search, of the same load and objective"))
_LATEST: Final = "last"


class SearchDialog(FormDialog[SearchWish]):
    """Starts a search for the highest rate; returns what was asked for once it has begun.

    Args:
        load: Makes the runs.
        client: The way to it.
        spec: The load of the runs.
        wish: The search that the form begins with.
        glyphs: Characters of the drawing.
    """

    CELLS = 90
    KEYS = "s start  Enter edit  arrows, Tab choose  Esc back"

    def __init__(
        self, load: LoadControl, client: EngineClient, spec: LoadSpec, wish: SearchWish, glyphs: Glyphs
    ) -> None:
        super().__init__("search for the highest rate", glyphs, low=True)
        self._load = load
        self._client = client
        self._spec = spec
        self._objective = WordField("objective", "several are joined with and", meaning=objective_meaning)
        self._first = NumberField("first rate", "per second", empty="measured first", fractions=True)
        self._confirm = NumberField("confirm s", "each run that confirms", empty="60, or a checkpoint")
        self._budget = NumberField("at most min", "", empty="no limit", fractions=True)
        self._begin = ChoiceField("begin", _BEGIN)
        self._objective.text.replace(wish.objective)
        self._first.fill(wish.first_rate or spec.rate_per_s)
        self._confirm.fill(wish.confirm_s)
        self._budget.fill(None if wish.budget_s is None else wish.budget_s / 60.0)
        self.form = Form((self._objective, self._first, self._confirm, self._budget, self._begin))
        self._time = ""
        self._asked: SearchWish | None = None

    def on_mount(self) -> None:
        """Ask how long it would take."""
        self.changed()

    def content(self, cells: int) -> list[Line]:
        """Return the form, how long it will take, and what was wrong with it."""
        load = f"{self._spec.profile or 'scripts'}, {units.counted(self._spec.clients, 'client')}"
        lines = [*self.form.lines(self.glyphs, cells), ()]
        lines += wrapped(f"{load}: {self._time}" if self._time else load, cells, "dim")
        return [*lines, *self.foot(cells)]

    def _wish(self) -> SearchWish:
        """Return the search that the form describes. Raises UsageProblem for a field with a wrong value."""
        confirm_s, minutes = self._confirm.number(1), self._budget.number()
        return SearchWish(
            objective=self._objective.text.text.strip(),
            first_rate=self._first.number(0.1),
            confirm_s=None if confirm_s is None else int(confirm_s),
            budget_s=None if minutes is None else 60.0 * minutes,
            resume=_LATEST if self._begin.index else "",
        )

    def changed(self) -> None:
        """Ask how long the search would take, once the form describes another one."""
        try:
            wish = self._wish()
        except PgtopError as problem:
            self._time, self._asked = "", None
            self.say(str(problem))
            return
        self.say()
        if self.form.wrong is not None:
            self._time, self._asked = "", None
        elif wish != self._asked:
            self._time, self._asked = "", wish
            self.work(self._look(wish), group="look")

    async def _look(self, wish: SearchWish) -> None:
        self._time = await self._client.ask(self._load.look_at_search(self._spec, wish))

    async def pressed(self, key: str, character: str | None) -> bool:
        """Type, or start the search."""
        if self.form.press(key, character):
            self.changed()
        elif key == "s" and not self.busy:
            if self.form.wrong is None:
                self.work(self._start(), "starting")
            else:
                self.form.go_to(self.form.wrong)
        else:
            return False
        return True

    async def _start(self) -> None:
        wish = self._wish()
        await self._client.ask(self._load.start_search(self._spec, wish))
        self.dismiss(replace(wish, resume=""))
