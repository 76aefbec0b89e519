"""The dialog that begins an experiment: what is staged as B against what is in force as A."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import count, duration
from pgtop_tune.metrics.load import under_way
from pgtop_tune.metrics.server import TPS
from pgtop_tune.model.bench import BenchRun
from pgtop_tune.runtime.engine import EngineClient
from pgtop_tune.runtime.experiment_control import (
    ArmValues,
    ExperimentControl,
    ExperimentPreview,
    ExperimentRequest,
    ExperimentState,
    ExperimentView,
)
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dialogs.dialog import AnswerKey, ConfirmDialog, Dialog, Paragraph
from pgtop_tune.tui.parameters.changes import Changes, ListScope
from pgtop_tune.tui.parameters.rows import SettingRow
from pgtop_tune.tui.parameters.staged_changes import Applying
from pgtop_tune.tui.scene.banners import experiment_line
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line, labelled, wrapped

# Details of an experiment: values, pairs, every figure, the trade; stop, copy, and B kept.

_OVER: Final = "{keep}y copy  Esc close"
_TABLE: Final = "figure "
"""How the table of `switchback.words.text` begins; a sentence and an empty line follow it."""
_COLUMN: Final = re.compile(r"\S+(?: \S+)*")
"""A heading of the table: two blanks stand between columns."""
_SHORTER: Final = ((" per transaction", "/tx"), ("budget ", ""))
_SHORT_HEADS: Final = {"B against A": "B to A"}
_FIRST_PAIR: Final = "The first pair of blocks is being measured; figures follow when it is complete."


def detail_lines(state: ExperimentState, cells: int, glyphs: Glyphs) -> list[Line]:
    """Return everything known of an experiment, lines of at most so many cells."""
    lines: list[Line] = [experiment_line(state, cells, glyphs, "", ""), ()]
    for paragraph in _narrowed((state.details or _FIRST_PAIR).split("\n"), cells):
        lines += wrapped(paragraph, cells, PLAIN) if paragraph else [()]
    return lines


def _narrowed(text: list[str], cells: int) -> list[str]:
    """Return the text with shorter words in its table, where that is wider than so many cells."""
    first = next((at for at, line in enumerate(text) if line.startswith(_TABLE)), None)
    if first is None or "" not in text[first:] or max(map(len, text[first:])) <= cells:
        return text
    last = text.index("", first) - 1
    begins = [heading.start() for heading in _COLUMN.finditer(text[first])]
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
        glyphs: Characters of the drawing.
        keep: Keeps a better B.
    """

    CELLS = 110
    KEYS = "s stop  y copy  Esc back"

    def __init__(
        self, experiments: ExperimentView, client: EngineClient, glyphs: Glyphs, keep: Callable[[], None]
    ) -> None:
        super().__init__("experiment", glyphs, low=True)
        self._experiments = experiments
        self._client = client
        self._keep = keep

    def content(self, cells: int) -> list[Line]:
        state = self._experiments.state()
        keep = "Y keep B  " if state.better else ""
        self.captions("experiment", self.KEYS if state.under_way else _OVER.format(keep=keep))
        return [*detail_lines(state, cells, self.glyphs), *self.foot(cells)]

    def frames_arrived(self, session: Session) -> None:
        self.repaint()

    async def pressed(self, key: str, character: str | None) -> bool:
        """Stop, copy, keep B, or scroll."""
        state = self._experiments.state()
        if key == "y":
            self.copy(state.details, "the result is in your terminal's clipboard")
        elif key == "s" and state.under_way:
            self._ask_to_stop()
        elif key == "Y" and state.better and not state.under_way:
            self._keep()
            self.dismiss(None)
        else:
            return self.scroll_key(key)
        return True

    def _ask_to_stop(self) -> None:
        where = self._experiments.state().where
        which, load = (f" ({where})", "") if where else ("", "; the load continues")
        question = (
            Paragraph(f"The experiment{which} ends without a verdict. The original values are restored{load}."),
        )
        choices = (AnswerKey(("y", "enter"), "stop it", True),)
        self.app.push_screen(ConfirmDialog("stop the experiment?", question, choices, self.glyphs), self._answered)

    def _answered(self, stop: bool | None) -> None:
        if stop:
            self.work(self._client.ask(self._experiments.stop()), "stopping")
            self.repaint()

    def action_close(self) -> None:
        """Close; a verdict that was read is not shown again."""
        state = self._experiments.state()
        self.dismiss(None if state.under_way else state)


_MINUTES: Final = (3, 5, 10, 20, 30, 60, 120)
_USUAL: Final = _MINUTES.index(10)
_LEAST_TPS: Final = 5.0
"""Transactions a second of others from which on the server has a load to be measured."""
_NAME_CELLS: Final = 30
_VALUE_CELLS: Final = 18
_LABEL_CELLS: Final = 8
_NOTHING: Final = "Nothing is staged. Press p, stage a value with + or -, close with Esc, and open this dialog again."
_OF_MACHINE: Final = "is a setting of the machine: `pgtop-tune ab NAME=A,B` compares it under its own load"
_RESET: Final = "a reset cannot be compared: stage the value itself"


class LoadFound(Struct, frozen=True):
    """The load that an experiment would be made under.

    Attributes:
        text: Which it is.
        style: Style of the text.
        usable: Whether an experiment can begin.
        run: One of ours; None for somebody else's.
    """

    text: str
    style: str = PLAIN
    usable: bool = True
    run: BenchRun | None = None


def load_found(session: Session, busy: str, for_s: float) -> LoadFound:
    """Return the load that runs on the server now.

    Args:
        session: Its newest frame is now.
        busy: Steps of a load, or a data set in the making; "" for none.
        for_s: How long the experiment may take.
    """
    if busy:
        return LoadFound(f"{busy}: wait until it has ended", "warning", usable=False)
    run = under_way(session.now)
    if run is not None and session.now is not None:
        text = f"{one_line(run.load_name, 30)}, {run.clients} clients, running"
        if run.duration_s is None:
            return LoadFound(f"{text} until stopped", run=run)
        left_s = run.duration_s - (session.now.taken_at_ms - run.started_ms) / 1000.0
        text += f", {duration(max(left_s, 0.0))} left"
        if left_s < for_s:
            return LoadFound(f"{text}: the experiment ends with it", "warning", run=run)
        return LoadFound(text, run=run)
    tps = None if session.interval is None else TPS(session.interval)
    if tps is not None and tps >= _LEAST_TPS:
        return LoadFound(f"server TPS, {count(tps)} now: another program drives the load")
    return LoadFound("none: b starts one", "warning", usable=False)


def noise_words(preview: ExperimentPreview, for_s: float, *, of_this_screen: bool) -> str:
    """Return how much pairs of blocks differ here, and the difference that is seen within the time."""
    if preview.pair_sd is None:
        hint = ": pgtop-tune experiment noise measures it" if of_this_screen else ""
        return f"not known for this machine and load{hint}"
    text = f"pairs differ by {_percent(preview.pair_sd)} on this machine and load; "
    within = [(share, seconds) for share, seconds in preview.seen_after_s if seconds <= for_s]
    if within:
        share, seconds = within[0]
        return f"{text}a difference of {_percent(share)} shows in about {duration(seconds)}"
    share, seconds = (preview.seen_after_s or ((0.0, 0.0),))[-1]
    return text + (
        f"even {_percent(share)} takes {duration(seconds)}" if seconds else "differences below 10 % do not show"
    )


def _percent(share: float) -> str:
    return f"{100.0 * share:.1f}".removesuffix(".0") + " %"


def value_lines(values: Sequence[ArmValues], cells: int) -> list[Line]:
    """Return a table of what is compared; what cannot be compared says why."""
    head: Line = (
        ("parameter".ljust(_NAME_CELLS), "title"),
        ("A, in force".ljust(_VALUE_CELLS), "arm-a"),
        ("B, staged", "arm-b"),
    )
    lines: list[Line] = []
    for value in values:
        name = one_line(value.name, _NAME_CELLS - 1).ljust(_NAME_CELLS)
        if value.refused:
            lines += labelled(name.rstrip(), value.refused, cells, label_cells=_NAME_CELLS)
        else:
            a, b = one_line(value.a, _VALUE_CELLS - 1), one_line(value.b, cells - _NAME_CELLS - _VALUE_CELLS)
            lines.append(((name, PLAIN), (a.ljust(_VALUE_CELLS), "strong"), (b, "strong")))
    return [head, *lines]


class StartDialog(Dialog[ExperimentRequest]):
    """Returns what was begun.

    Args:
        experiments: The service.
        changes: The operator's hand on parameters, for values that have to be unlocked.
        scope: Has the staged values.
        client: The way to the service.
        session: For the load.
        busy: Steps of a load, or a data set in the making; "" for none.
        glyphs: Characters of the drawing.
        ways: Keys that open what an experiment needs.
    """

    CELLS = 100
    KEYS = "Enter start  + - time  p parameters  b load  Esc back"

    def __init__(
        self,
        *,
        experiments: ExperimentControl,
        changes: Changes,
        scope: ListScope,
        client: EngineClient,
        session: Session,
        busy: Callable[[], str],
        glyphs: Glyphs,
        ways: Mapping[str, Callable[[], None]],
    ) -> None:
        super().__init__("experiment: A against B in alternating blocks", glyphs, low=True)
        self._experiments = experiments
        self._changes = changes
        self._scope = scope
        self._client = client
        self._session = session
        self._load_busy = busy
        self._ways = ways
        self._minutes = _USUAL
        self._asked: tuple[object, ...] = ()
        self._preview: ExperimentPreview | None = None

    @property
    def _for_s(self) -> float:
        return 60.0 * _MINUTES[self._minutes]

    @property
    def _load(self) -> LoadFound:
        return load_found(self._session, self._load_busy(), self._for_s)

    @property
    def _live(self) -> list[tuple[SettingRow, str]]:
        """Staged values of the server's parameters."""
        return [
            (row, row.staged.value)
            for row in self._scope.staged
            if row.setting is None and row.staged is not None and row.staged.value is not None
        ]

    @property
    def _not_asked(self) -> list[ArmValues]:
        """Staged changes that are no value of a parameter."""
        refused = []
        for row in self._scope.staged:
            if row.setting is not None:
                refused.append(ArmValues(row.name, "", str(row.staged), _OF_MACHINE))
            elif row.staged is not None and row.staged.value is None:
                refused.append(ArmValues(row.name, "", "reset", _RESET))
        return refused

    def on_mount(self) -> None:
        """Ask for the values in force."""
        self._ask_anew()

    def on_screen_resume(self) -> None:
        """Ask again: a value may have been staged, or a load begun."""
        self._ask_anew()

    def _ask_anew(self) -> None:
        """Ask what an experiment would be about, where that is another one than before."""
        load, values = self._load, tuple((row.name, value) for row, value in self._live)
        subject = (values, None if load.run is None else load.run.run, load.usable)
        if subject != self._asked:
            self._asked = subject
            self.say()
            self.work(self._ask(values, load.run), group="look")

    async def _ask(self, values: tuple[tuple[str, str], ...], run: BenchRun | None) -> None:
        self._preview = await self._client.ask(self._experiments.look(values, run))

    def content(self, cells: int) -> list[Line]:
        """Return the values, the load, the time and the noise."""
        waits = bool(self._live) and self._preview is None
        values = [*(self._preview.values if self._preview is not None else ()), *self._not_asked]
        load, lines = self._load, value_lines(values, cells) if values else wrapped(_NOTHING, cells, "warning")
        if waits and not values:
            lines = [((f"querying the server {self.glyphs.ellipsis}", "dim"),)]
        lines.append(())
        lines += labelled("load", load.text, cells, load.style, _LABEL_CELLS)
        minutes = f"at most {_MINUTES[self._minutes]} min; + longer, - shorter"
        lines += labelled("time", minutes, cells, PLAIN, _LABEL_CELLS)
        if self._preview is not None:
            lines += labelled(
                "noise",
                noise_words(self._preview, self._for_s, of_this_screen=load.run is not None),
                cells,
                PLAIN,
                _LABEL_CELLS,
            )
            if score := self._preview.score:
                lines += labelled("score", score, cells, PLAIN, _LABEL_CELLS)
        lines += [(), *wrapped("Every switch is journaled; the original values are restored.", cells, "dim")]
        return [*lines, *self.foot(cells)]

    def frames_arrived(self, session: Session) -> None:
        """Ask again where a load has begun or ended."""
        self._session = session
        self._ask_anew()
        self.repaint()

    async def pressed(self, key: str, character: str | None) -> bool:
        """Choose the time, start, or open what is missing."""
        if key in ("plus", "minus", "right", "left"):
            by = 1 if key in ("plus", "right") else -1
            self._minutes = min(max(self._minutes + by, 0), len(_MINUTES) - 1)
        elif key == "enter" and not self.busy:
            self._begin()
        elif key in self._ways:
            self._ways[key]()
        else:
            return self.scroll_key(key)
        return True

    def _begin(self) -> None:
        load = self._load
        if self._live and self._preview is None:
            self.say("the server has not answered yet: press Enter again")
            return
        names = {value.name for value in (self._preview.values if self._preview else ()) if not value.refused}
        if not names:
            self.say("no staged value can be compared during a load")
        elif not load.usable:
            self.say("an experiment needs a load: b starts one")
        else:
            self.work(self._start([(row, b) for row, b in self._live if row.name in names], load), "starting")

    async def _start(self, values: Sequence[tuple[SettingRow, str]], load: LoadFound) -> None:
        applying = Applying(self.app, self._changes, self._scope, self.glyphs)
        confirmed = await applying.unlock([row for row, _ in values], ends=True)
        if confirmed is not None:
            chosen = tuple((row.name, value) for row, value in values)
            request = ExperimentRequest(chosen, load.run, self._for_s, confirmed)
            await self._client.ask(self._experiments.start(request))
            self.dismiss(request)
