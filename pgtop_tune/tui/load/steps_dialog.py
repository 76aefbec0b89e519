"""Steps of a load: which, for how long each, and what is done before each."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace
from textual import events

from pgtop_tune.errors import PgtopError
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.runtime.engine import EngineClient
from pgtop_tune.runtime.load_control import LoadControl
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.dialogs.form import ChoiceField, Form, NumberField, WordField
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import Line, wrapped
from pgtop_tune.units import clock

_LISTS: Final = {"clients": "1,2,4,8,16,32,64", "rate": "100,200,400,800"}
_SECONDS: Final = 60
_TIDY: Final = (
    ("yes", "empty history, vacuum, checkpoint"),
    ("no", "each starts where the last one ended"),
)


class StepsDialog(Dialog[bool]):
    """Starts the steps; returns True once they have begun.

    Args:
        load: Runs them.
        client: The way to it.
        spec: What the steps have in common.
        glyphs: What it is drawn with.
    """

    CELLS = 90

    def __init__(self, load: LoadControl, client: EngineClient, spec: LoadSpec, glyphs: Glyphs) -> None:
        super().__init__("steps", glyphs, keys="s start  Enter edit  arrows, Tab choose  Esc back", low=True)
        self._load = load
        self._client = client
        self._spec = spec
        self._axis = ChoiceField("steps of", (("clients", ""), ("rate", "transactions per second")))
        self._list = WordField("list", "separated by commas, in this order")
        self._list.text.replace(_LISTS["clients"])
        self._time = NumberField("time s", "of each step")
        self._time.fill(spec.duration_s or _SECONDS)
        self._tidy = ChoiceField("tidy up", _TIDY)
        self._form = Form((self._axis, self._list, self._time, self._tidy), focus=1)
        self._problem = ""
        self._busy = ""

    def content(self, cells: int) -> list[Line]:
        """The form, how long it will take, and what was wrong with it."""
        lines = [*self._form.lines(self.glyphs), ()]
        try:
            seconds = int(self._time.number(1) or 0)
        except PgtopError as problem:
            return [*lines, *wrapped(str(problem), cells, "critical")]
        steps = len([word for word in self._list.text.text.split(",") if word.strip()])
        besides = ", and the time for housekeeping" if self._tidy.index == 0 else ""
        lines += wrapped(f"{self._spec.profile}: {steps} runs, {clock(steps * seconds)}{besides}", cells, "dim")
        lines += wrapped(self._problem, cells, "critical") if self._problem else []
        lines += [((f"{self._busy} {self.glyphs.ellipsis}", "dim"),)] if self._busy else []
        return lines

    def on_key(self, event: events.Key) -> None:
        """Typing, start."""
        axis = self._axis.value
        if self._form.press(event.key, event.character):
            self._problem = ""
            if self._axis.value != axis and self._list.text.text == _LISTS[axis]:
                self._list.text.replace(_LISTS[self._axis.value])
        elif event.key == "s" and not self._busy:
            self._busy, self._problem = "starting", ""
            self.run_worker(self._start(), group="steps")
        else:
            return
        event.stop()
        self.repaint()

    def on_paste(self, event: events.Paste) -> None:
        """A list from the terminal's clipboard."""
        event.stop()
        self._form.focused.paste(event.text)
        self.repaint()

    def action_close(self) -> None:
        """While a value is typed it takes that back; else it leaves."""
        if self._form.discard():
            self.repaint()
        else:
            self.dismiss(None)

    async def _start(self) -> None:
        try:
            seconds = int(self._time.number(1) or 0)
            spec = replace(self._spec, duration_s=seconds, transactions=None)
            steps = f"{self._axis.value}={self._list.text.text.strip().strip(',')}"
            await self._client.ask(self._load.start_steps(spec, steps, tidy=self._tidy.index == 0))
        except PgtopError as problem:
            self._busy, self._problem = "", str(problem)
            self.repaint()
        else:
            self.dismiss(True)
