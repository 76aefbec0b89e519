"""Details of an experiment: values, pairs, every figure, the trade; stop, copy, and B kept."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Final

from textual import events

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.runtime.engine import EngineClient
from pgtop_tune.runtime.experiment_control import ExperimentState, ExperimentView
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dialogs.confirm import AnswerKey, ConfirmDialog, Paragraph
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.experiment.line import experiment_line
from pgtop_tune.tui.terminal.clipboard import copy
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line, wrapped

_RUNNING: Final = "s stop  y copy  Esc back"
_OVER: Final = "{keep}y copy  Esc put aside"
_TABLE: Final = "figure "
"""How the table of `switchback.words.text` begins; a sentence and an empty line follow it."""
_COLUMN: Final = re.compile(r"\S+(?: \S+)*")
"""A heading of the table: two blanks stand between columns."""
_SHORTER: Final = ((" per transaction", "/tx"), ("budget ", ""))
_SHORT_HEADS: Final = {"B against A": "B to A"}
_FIRST_PAIR: Final = "The first pair of blocks is being measured; figures follow when it is complete."


def detail_lines(state: ExperimentState, cells: int, glyphs: Glyphs) -> list[Line]:
    """What is known of an experiment, lines of at most so many cells."""
    lines: list[Line] = [experiment_line(state, cells, glyphs, "", ""), ()]
    for paragraph in _narrowed((state.details or _FIRST_PAIR).split("\n"), cells):
        lines += wrapped(paragraph, cells, PLAIN) if paragraph else [()]
    return lines


def _narrowed(text: list[str], cells: int) -> list[str]:
    """The text with shorter words in its table, where that is wider than so many cells."""
    first = next((at for at, line in enumerate(text) if line.startswith(_TABLE)), None)
    if first is None or "" not in text[first:] or max(map(len, text[first:])) <= cells:
        return text
    last = text.index("", first) - 1
    begins = [found.start() for found in _COLUMN.finditer(text[first])]
    rows = [[line[at:until].strip() for at, until in pairwise([*begins, None])] for line in text[first:last]]
    for row in rows:
        for long, short in _SHORTER:
            row[0] = row[0].replace(long, short)
    rows[0] = [_SHORT_HEADS.get(head, head) for head in rows[0]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return [*text[:first], *lines, *text[last:]]


class ProgressDialog(Dialog[ExperimentState]):
    """Returns an experiment that is over: its verdict has been read.

    Args:
        experiments: Of this screen, or of other programs.
        client: The way to it.
        glyphs: What it is drawn with.
        keep: Keeps a better B.
    """

    CELLS = 110

    def __init__(
        self, experiments: ExperimentView, client: EngineClient, glyphs: Glyphs, keep: Callable[[], None]
    ) -> None:
        super().__init__("experiment", glyphs, keys=_RUNNING, low=True)
        self._experiments = experiments
        self._client = client
        self._keep = keep
        self._said = ""

    def content(self, cells: int) -> list[Line]:
        """See `detail_lines`."""
        state = self._experiments.state()
        keep = "Y keep B  " if state.better else ""
        self.captions("experiment", _RUNNING if state.under_way else _OVER.format(keep=keep))
        lines = detail_lines(state, cells, self.glyphs)
        return [*lines, *wrapped(self._said, cells, "warning")] if self._said else lines

    def frames_arrived(self, session: Session) -> None:
        """It goes on."""
        self.repaint()

    def on_key(self, event: events.Key) -> None:
        """Stop, copy, keep, scroll."""
        state = self._experiments.state()
        if event.key == "y":
            self.app.notify(copy(self.app, state.details, "the result is in your terminal's clipboard"), markup=False)
        elif event.key == "s" and state.under_way:
            self._ask_to_stop()
        elif event.key == "Y" and state.better and not state.under_way:
            self._keep()
            self.dismiss(None)
        elif not self.scroll_key(event.key):
            return
        event.stop()
        self.repaint()

    def _ask_to_stop(self) -> None:
        where = self._experiments.state().where
        which, load = (f" ({where})", "") if where else ("", "; the load goes on")
        said = (Paragraph(f"The experiment{which} ends without a verdict. Everything is put back{load}."),)
        choices = (AnswerKey(("y", "enter"), "stop it", True),)
        self.app.push_screen(ConfirmDialog("stop the experiment?", said, choices, self.glyphs), self._answered)

    def _answered(self, stop: bool | None) -> None:
        if stop:
            self._said = "stopping"
            self.run_worker(self._stop(), group="stop")
            self.repaint()

    async def _stop(self) -> None:
        self._said = ""
        try:
            await self._client.ask(self._experiments.stop())
        except PgtopError as problem:
            self._said = str(problem)
        self.repaint()

    def action_close(self) -> None:
        """A verdict that was read is put aside."""
        state = self._experiments.state()
        self.dismiss(None if state.under_way else state)
