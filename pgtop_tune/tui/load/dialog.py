"""The load dialog: choose, see the exact command line, start, stop; data sets, steps, searches and results."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from textual import events

from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import clock, count, with_ms
from pgtop_tune.experiment.load_words import conditions_meaning, phases_meaning, split_conditions
from pgtop_tune.metrics.load import CLIENT_FAILED, CLIENT_LATENCY, CLIENT_TPS, UNDER_WAY, run_of, under_way
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchRun, LoadLevel, LoadSpec, ProfileSummary, RunState
from pgtop_tune.runtime.engine import EngineClient
from pgtop_tune.runtime.load_control import (
    NO_CONDITIONS,
    DatasetFound,
    EndConditions,
    LoadControl,
    LoadState,
    SearchWish,
)
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.dialogs.entry import ChoiceField, Form, NumberField, WordField
from pgtop_tune.tui.load.data_set_dialog import MAKING, SCROLLING, InitDialog, making_lines
from pgtop_tune.tui.load.results_dialog import ResultsDialog, search_progress, step_table
from pgtop_tune.tui.load.series_dialogs import SearchDialog, StepsDialog
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line, wrapped

# The load as a small form: what keys do to it, the spec it stands for, and how it is drawn. Pure.

PROTOCOLS: Final = ("prepared", "extended", "simple")
_MEANS: Final = "mean latency of each statement (-r)"
_ERRORS: Final = (("end", "an error ends its client"), ("continue", "an error counts as failed (pgbench 19)"))
_STATEMENTS: Final = (("no", _MEANS), ("yes", _MEANS))
_PHASES: Final = "ramp 8..64 over 5m, hold 10m at 500/s"
_ABORT: Final = "p99 > 50ms for 10s, tps < 100 for 30s"
_OVERLOAD: Final = (
    ("end the load", "when its rate is too high"),
    ("only say so", "the load goes on when its rate is too high"),
)


class LoadEntries(Struct, frozen=True):
    """Entries of the form, with which the next one begins.

    Attributes:
        spec: The load.
        ends: Reasons to end it before its time.
        search: The last search for its highest rate.
    """

    spec: LoadSpec
    ends: EndConditions = NO_CONDITIONS
    search: SearchWish = SearchWish(objective="p99 < 20ms")


class LoadForm:
    """Fields of a load, and the data set its profile needs.

    Args:
        profiles: What can be run; may be empty while they are being asked for.
        spec: What the form starts with; what it has no field for stays as it is.
        ends: Reasons to end the load before its time, at the start.

    Attributes:
        form: The fields as a form.
        datasets: As the database has them; empty until that is known.
    """

    def __init__(self, profiles: Sequence[ProfileSummary], spec: LoadSpec, ends: EndConditions = NO_CONDITIONS) -> None:
        self._profiles = {profile.name: profile for profile in profiles}
        self._base = spec
        self.datasets: tuple[DatasetFound, ...] = ()
        self.profile = ChoiceField("profile", tuple((profile.name, profile.title) for profile in profiles))
        self.clients = NumberField("clients", "+ doubles, - halves")
        self.threads = NumberField("threads", "of pgbench", empty="as many as cores")
        self.duration = NumberField("time s", "", empty="until stopped")
        self.rate = NumberField("rate /s", "transactions per second", empty="unlimited", fractions=True)
        self.limit = NumberField("limit ms", "counts slower, skips late ones", empty="none", fractions=True)
        self.protocol = ChoiceField("protocol", tuple((name, "") for name in PROTOCOLS))
        self.tries = NumberField("tries", "serialization failures; 0: no limit", empty="once")
        self.errors = ChoiceField("errors", _ERRORS)
        self.statements = ChoiceField("statements", _STATEMENTS)
        self.phases = WordField("phases", _PHASES, empty="none", meaning=self._phases_meaning)
        self.abort_if = WordField("abort if", _ABORT, empty="never", meaning=conditions_meaning)
        self.overload = ChoiceField("overload", _OVERLOAD)
        self.form = Form(
            (
                self.profile, self.clients, self.threads, self.duration, self.rate, self.limit, self.protocol,
                self.tries, self.errors, self.statements, self.phases, self.abort_if, self.overload,
            )
        )  # fmt: skip
        self.profile.choose(spec.profile)
        self.clients.fill(spec.clients)
        self.threads.fill(spec.threads or None)
        self.duration.fill(spec.duration_s)
        self.rate.fill(spec.rate_per_s)
        self.limit.fill(spec.latency_limit_ms)
        self.protocol.choose(spec.protocol)
        self.tries.fill(spec.max_tries)
        self.errors.index = int(spec.continue_on_error)
        self.statements.index = int(spec.per_statement)
        self.phases.text.replace(spec.phases)
        self.abort_if.text.replace(", ".join(ends.abort_if))
        self.overload.index = int(not ends.stops)

    def spec(self) -> LoadSpec:
        """Return the load that the form describes.

        Raises:
            UsageProblem: A field does not hold what it should.
        """
        phases = self.phases.text.text.strip()
        duration, tries = None if phases else self.duration.number(1), self.tries.number()
        return replace(
            self._base,
            profile=self.profile.value,
            clients=int(self.clients.number(1) or 1),
            threads=int(self.threads.number() or 0),
            duration_s=None if duration is None else int(duration),
            rate_per_s=self.rate.number(),
            latency_limit_ms=self.limit.number(),
            protocol=self.protocol.value,
            max_tries=None if tries is None else int(tries),
            continue_on_error=bool(self.errors.index),
            per_statement=bool(self.statements.index),
            transactions=self._base.transactions if duration is None and not phases else None,
            phases=phases,
        )

    def ends(self) -> EndConditions:
        """Return the reasons to end the load before its time."""
        return EndConditions(split_conditions(self.abort_if.text.text), stops=not self.overload.index)

    def _phases_meaning(self, text: str) -> str:
        """Return the meaning of phases. Raises UsageProblem of wrong ones."""
        return phases_meaning(text, LoadLevel(int(self.clients.number(1) or 1), self.rate.number()))

    @property
    def dataset(self) -> str:
        """The data set that the chosen profile needs; "" for none."""
        profile = self._profiles.get(self.profile.value)
        return "" if profile is None else profile.dataset

    def press(self, key: str, character: str | None) -> bool:
        """Move between fields, or type into the one in focus.

        Returns:
            Whether the key meant something here.
        """
        before = self.profile.value
        handled = self.form.press(key, character)
        if handled and self.profile.value != before:
            self._suggest(self._profiles[self.profile.value])
        return handled

    def _suggest(self, profile: ProfileSummary) -> None:
        """Fill in the clients and the protocol that the profile suggests."""
        self.clients.fill(profile.clients)
        if profile.protocol in PROTOCOLS:
            self.protocol.choose(profile.protocol)

    def lines(self, glyphs: Glyphs, cells: int = 0) -> list[Line]:
        """Return a line per field, below the profile what it runs on, and below words what they mean."""
        self.duration.remark = "no effect: phases have their times" if self.phases.text.text.strip() else ""
        profile, *fields = self.form.lines(glyphs, cells)
        return [profile, *self._dataset_line(), *fields]

    def _dataset_line(self) -> list[Line]:
        data_set = next((candidate for candidate in self.datasets if candidate.name == self.dataset), None)
        if data_set is None:
            return []
        return [(("  data set    ", "label"), ("  ", PLAIN), _dataset_words(data_set))]


def _dataset_words(data_set: DatasetFound) -> tuple[str, str]:
    content = one_line(data_set.found, 40)
    if not data_set.problem:
        return (
            (f"{content} (found)", "good")
            if content
            else (f"needs the {data_set.name} data set: i creates it", "warning")
        )
    problem = one_line(data_set.problem, 60)
    return f"{content}: {problem}: i creates it" if content else problem, "warning"


_START: Final = "s"
_WORD_KEYS: Final = "Enter ok  Esc discard"
_TYPING_KEYS: Final = f"{_WORD_KEYS}  s start"
_LONG: Final = (MAKING, "steps", "search")
"""Kinds of work that take longer than a run of pgbench."""
_ENDED: Final = {
    RunState.FINISHED: ("finished", "good"),
    RunState.STOPPED: ("stopped by the operator: the results are partial", "warning"),
    RunState.FAILED: ("failed", "critical"),
}


def run_lines(session: Session, run: BenchRun, cells: int, *, command: bool = True) -> list[Line]:
    """Return a run under way: elapsed, remaining, figures, command.

    Args:
        session: For the figures.
        run: The run.
        cells: Width.
        command: Whether its command line is shown.
    """
    now_ms = session.now.taken_at_ms if session.now is not None else run.started_ms
    elapsed_s = (now_ms - run.started_ms) / 1000.0
    remaining = "until stopped" if run.duration_s is None else f"{clock(run.duration_s - elapsed_s)} left"
    level = "paused" if run.paused else LoadLevel(run.clients, run.rate_per_s).words
    head: Line = (
        (f"{run.state} ", "good"),
        (one_line(run.load_name, 60), "strong"),
        (f" {level}   {clock(elapsed_s)} elapsed, {remaining}", PLAIN),
    )
    phase: list[Line] = [(("phase ", "label"), (run.spans[-1].phase, PLAIN))] if run.spans else []
    argv = [(), *wrapped(run.command, cells)] if command else []
    interval = session.interval
    if interval is None:
        return [head, *phase, *argv]
    tps, latency, failed = CLIENT_TPS(interval), CLIENT_LATENCY(interval), CLIENT_FAILED(interval)
    figures: Line = (
        ("tps ", "label"), (count(tps), "strong"), ("   mean ", "label"), (with_ms(latency), "strong"),
        ("   failed ", "label"), (count(failed), "critical" if failed else PLAIN),
    )  # fmt: skip
    return [head, *phase, figures, *argv]


def ended_lines(run: BenchRun, cells: int) -> list[Line]:
    """Return how a run ended, with pgbench's own words when it failed, and the reason when it ended early."""
    text, style = _ENDED.get(run.state, (str(run.state), PLAIN))
    if run.complete and run.state is RunState.STOPPED:
        text, style = "stopped by the operator", "good"
    status = f" (exit status {run.exit_status})" if run.exit_status else ""
    load = f"run {run.run}, {one_line(run.load_name, 60)}"
    if run.ended_for:
        return wrapped(f"{load} ended early: {run.ended_for}: {run.message}", cells, "critical")
    return [*wrapped(f"{load}: {text}{status}", cells, style), *wrapped(run.message, cells, style)]


class LoadDialog(Dialog[LoadEntries]):
    """Returns the entries last typed, so that the next dialog begins with it.

    Closes by itself once the load it started reports progress; stays open when pgbench fails.

    Args:
        load: pgbench.
        client: The way to it.
        session: The session that is shown.
        entries: The entries that the form begins with.
    """

    CELLS = 96
    KEYS = "s start  Enter edit  i data  n steps  o search  r result  y copy  Esc back"
    SHOWS_LOAD = True

    def __init__(
        self, load: LoadControl, client: EngineClient, session: Session, entries: LoadEntries, glyphs: Glyphs
    ) -> None:
        super().__init__("load", glyphs, low=True)
        self._load = load
        self._client = client
        self._session = session
        self._entries = entries
        self._form: LoadForm | None = None
        self._command = ""
        self._started_after: int | None = None
        self._seen = False
        self._focused_row = 0

    def on_mount(self) -> None:
        """Ask what can be run."""
        self.work(self._open(), "loading profiles")

    async def _open(self) -> None:
        profiles = await self._client.ask(self._load.profiles())
        self._form = LoadForm(profiles, self._entries.spec, self._entries.ends)
        self._preview()
        self._look()

    def _look(self) -> None:
        self.run_worker(self._ask_datasets(), group="datasets", exclusive=True)

    async def _ask_datasets(self) -> None:
        """Ask for the data sets; a problem is shown when a load is started."""
        with contextlib.suppress(PgtopError):
            datasets = await self._client.ask(self._load.datasets())
            if self._form is not None:
                self._form.datasets = datasets
        self.repaint()

    def content(self, cells: int) -> list[Line]:
        """Return what is under way, or the form with its command line."""
        run, state = under_way(self._session.now), self._load.state()
        if state.doing in _LONG:
            lines = self._long_lines(state, run, cells)
        elif run is not None:
            self.captions("load", "x stop  y copy command  Esc back")
            lines = run_lines(self._session, run, cells)
            lines += wrapped(state.overload, cells, "warning") if state.overload else []
        else:
            lines = self._form_lines(state, cells)
        return [*lines, *self.foot(cells)]

    def _form_lines(self, state: LoadState, cells: int) -> list[Line]:
        keys = self.KEYS if _has_results(state) else self.KEYS.replace("r result  ", "")
        if self._form is not None and self._form.form.typing:
            keys = _WORD_KEYS if isinstance(self._form.form.focused, WordField) else _TYPING_KEYS
        self.captions("load", keys)
        ended = run_of(self._session.now)
        lines: list[Line] = [*ended_lines(ended, cells), ()] if ended is not None else []
        if state.series is not None and state.series.search is not None and state.series.problem:
            lines = [*wrapped(f"the search ended: {state.series.problem}", cells, "warning"), ()]
        if self._form is not None:
            fields = self._form.lines(self.glyphs, cells)
            pointed = (row for row, line in enumerate(fields) if line[0] == (f"{self.glyphs.pointer} ", "key"))
            self._focused_row = len(lines) + next(pointed, 0)
            lines += [*fields, (), *wrapped(self._command, cells, "strong")]
        return lines

    def _long_lines(self, state: LoadState, run: BenchRun | None, cells: int) -> list[Line]:
        """Return a data set in the making, or steps: which, how it goes, and those that are done."""
        self.captions("load", "x stop  y copy command  Esc back" if run is not None else "x stop  Esc back")
        lines: list[Line] = [((state.title, "strong"), (f"   {state.detail}" if state.detail else "", "dim")), ()]
        if state.doing == MAKING:
            return [*lines, *making_lines(state.making, cells, self.glyphs)]
        search = None if state.series is None else state.series.search
        if search is not None:
            run_part = [] if run is None else run_lines(self._session, run, cells, command=False)
            return search_progress(search, run_part, _now_ms(self._session), cells, self.rows, self.glyphs)
        lines += [*run_lines(self._session, run, cells), ()] if run is not None else []
        if state.series is not None and state.series.results:
            lines += step_table(state.series, cells, self.glyphs)
        return lines

    def frames_arrived(self, session: Session) -> None:
        """Follow the run; close once it reports progress."""
        self._session = session
        frame = session.now
        run = run_of(frame)
        if self._seen != (self._load.state().doing == MAKING):
            self._seen = not self._seen
            self._look()
        if self._started_after is not None and run is not None and run.run > self._started_after:
            if frame is not None and not isinstance(frame.bench, Unavailable) and frame.bench.progress:
                self._leave()
                return
            self.busy = "" if run.state not in UNDER_WAY else self.busy
        self.repaint()

    def _preview(self) -> None:
        if self._form is None:
            return
        self.say()
        spec = self._typed_spec()
        if spec is None:
            self._command = ""
        else:
            self.work(self._ask_preview(spec), group="preview")

    def _typed_spec(self) -> LoadSpec | None:
        """Return the load that the form describes, and keep it; None, and say why, where a field has a wrong value."""
        assert self._form is not None
        if self._form.form.wrong is not None:
            return None
        try:
            self._entries = replace(self._entries, spec=self._form.spec(), ends=self._form.ends())
            return self._entries.spec
        except UsageProblem as problem:
            self.say(str(problem))
            return None

    async def _ask_preview(self, spec: LoadSpec) -> None:
        try:
            self._command = await self._client.ask(self._load.preview(spec))
        except PgtopError:
            self._command = ""
            raise

    async def _start(self, spec: LoadSpec) -> None:
        run = run_of(self._session.now)
        await self._client.ask(self._load.start(spec, self._entries.ends))
        self._started_after = run.run if run is not None else 0
        self.busy = "started, waiting for the first second"

    async def pressed(self, key: str, character: str | None) -> bool:
        """Type, start, stop, copy, or open what leads on."""
        run, state = under_way(self._session.now), self._load.state()
        form = None if run is not None or state.doing in _LONG or self.busy else self._form
        if form is not None and form.form.typing and form.press(key, character):
            # Every letter, also one that is a key of the dialog.
            self._preview()
        elif key == "y":
            command = run.command if run is not None else self._command
            self.copy(command, "the command line is in your clipboard")
        elif run is not None or state.doing in _LONG:
            if key != "x" or self.busy:
                return False
            self.work(self._client.ask(self._load.stop()), "stopping")
        elif key == "r" and state.series is not None and _has_results(state):
            self.app.push_screen(ResultsDialog(state.series, self.glyphs))
        elif key in SCROLLING:
            self.scroll_key(key)
        elif form is None:
            return False
        elif key in _FURTHER:
            _FURTHER[key](self, form)
        elif key == _START:
            self._begin()
        elif form.press(key, character):
            self._preview()
            self.repaint()
            if not self.top <= self._focused_row < self.top + self.rows - 1:
                self.show_from(self._focused_row - self.rows // 2)
        else:
            return False
        return True

    def ask_for_dataset(self, form: LoadForm) -> None:
        """Open what makes a data set; afterwards the form knows what is there."""

        def closed(result: None) -> None:
            self._preview()
            self._look()

        self.app.push_screen(InitDialog(self._load, self._client, form.dataset, self.glyphs), closed)

    def ask_for_steps(self, form: LoadForm) -> None:
        """Open what starts steps."""
        spec = self._typed_spec()
        if spec is None:
            return

        def closed(begun: bool | None) -> None:
            if begun:
                self._leave()

        steps = StepsDialog(self._load, self._client, spec, self._entries.ends, self.glyphs)
        self.app.push_screen(steps, closed)

    def ask_for_search(self, form: LoadForm) -> None:
        """Open what starts a search for the highest rate."""
        spec = self._typed_spec()
        if spec is None:
            return

        def closed(begun: SearchWish | None) -> None:
            if begun is not None:
                self._entries = replace(self._entries, search=begun)
                self._leave()

        search = SearchDialog(self._load, self._client, spec, self._entries.search, self.glyphs)
        self.app.push_screen(search, closed)

    def _begin(self) -> None:
        assert self._form is not None
        if self._form.form.wrong is not None:
            self._form.form.go_to(self._form.form.wrong)
        spec = self._typed_spec()
        if spec is not None:
            self.work(self._start(spec), "starting")

    def on_paste(self, event: events.Paste) -> None:
        """Paste a number from the terminal's clipboard."""
        event.stop()
        if self._form is not None:
            self._form.form.focused.paste(event.text)
            self._preview()
            self.repaint()

    def action_close(self) -> None:
        """Discard the value that is being typed; without one, leave with the load typed before."""
        if self._form is not None and self._form.form.discard():
            self._preview()
            self.repaint()
            return
        self._leave()

    def _leave(self) -> None:
        self.dismiss(self._entries)


def _has_results(state: LoadState) -> bool:
    series = state.series
    return series is not None and series.over and bool(series.results or series.search)


def _now_ms(session: Session) -> float:
    return time.time() * 1000.0 if session.now is None else session.now.taken_at_ms


_FURTHER: Final[dict[str, Callable[[LoadDialog, LoadForm], None]]] = {
    "i": LoadDialog.ask_for_dataset,
    "n": LoadDialog.ask_for_steps,
    "o": LoadDialog.ask_for_search,
}
"""Keys of the form that lead on."""
