"""The load dialog: choose, see the exact command line, start, stop; data sets, steps and results."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace
from textual import events

from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import clock, count, with_ms
from pgtop_tune.metrics.load import CLIENT_FAILED, CLIENT_LATENCY, CLIENT_TPS, UNDER_WAY, run_of, under_way
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchRun, LoadSpec, ProfileSummary, RunState
from pgtop_tune.runtime.engine import EngineClient
from pgtop_tune.runtime.load_control import DatasetFound, LoadControl, LoadState
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.dialogs.entry import ChoiceField, Form, FormDialog, NumberField, WordField
from pgtop_tune.tui.load.data_set_dialog import InitDialog, making_lines
from pgtop_tune.tui.load.results_dialog import ResultsDialog, step_table
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line, wrapped

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
        self.form = Form((self._axis, self._list, self._time, self._tidy), focus=1)

    def content(self, cells: int) -> list[Line]:
        """The form, how long it will take, and what was wrong with it."""
        lines = [*self.form.lines(self.glyphs), ()]
        try:
            seconds = int(self._time.number(1) or 0)
        except PgtopError as problem:
            return [*lines, *wrapped(str(problem), cells, "critical")]
        steps = len([word for word in self._list.text.text.split(",") if word.strip()])
        besides = ", and the time for housekeeping" if self._tidy.index == 0 else ""
        lines += wrapped(f"{self._spec.profile}: {steps} runs, {clock(steps * seconds)}{besides}", cells, "dim")
        return [*lines, *self.foot(cells)]

    def on_key(self, event: events.Key) -> None:
        """Typing, start."""
        axis = self._axis.value
        if self.form.press(event.key, event.character):
            self.say()
            if self._axis.value != axis and self._list.text.text == _LISTS[axis]:
                self._list.text.replace(_LISTS[self._axis.value])
        elif event.key == "s" and not self.busy:
            self.work(self._start(), "starting")
        else:
            return
        event.stop()
        self.repaint()

    async def _start(self) -> None:
        spec = replace(self._spec, duration_s=int(self._time.number(1) or 0), transactions=None)
        steps = f"{self._axis.value}={self._list.text.text.strip().strip(',')}"
        await self._client.ask(self._load.start_steps(spec, steps, tidy=self._tidy.index == 0))
        self.dismiss(True)


# The load as a small form: what keys do to it, the spec it stands for, and how it is drawn. Pure.

PROTOCOLS: Final = ("prepared", "extended", "simple")
_MEANS: Final = "mean latency of each statement (-r)"
_ERRORS: Final = (("end", "an error ends its client"), ("continue", "an error counts as failed (pgbench 19)"))
_STATEMENTS: Final = (("no", _MEANS), ("yes", _MEANS))


class LoadForm:
    """Fields of a load, and the data set its profile needs.

    Args:
        profiles: What can be run; may be empty while they are being asked for.
        spec: What the form starts with; what it has no field for stays as it is.

    Attributes:
        form: The fields as a form.
        datasets: As the database has them; empty until that is known.
    """

    def __init__(self, profiles: Sequence[ProfileSummary], spec: LoadSpec) -> None:
        self._profiles = {profile.name: profile for profile in profiles}
        self._base = spec
        self.datasets: tuple[DatasetFound, ...] = ()
        self.profile = ChoiceField("profile", tuple((each.name, each.title) for each in profiles))
        self.clients = NumberField("clients", "+ doubles, - halves")
        self.threads = NumberField("threads", "of pgbench", empty="as many as cores")
        self.duration = NumberField("time s", "", empty="until stopped")
        self.rate = NumberField("rate /s", "transactions per second", empty="unlimited", fractions=True)
        self.limit = NumberField("limit ms", "slower are counted; late are skipped", empty="none", fractions=True)
        self.protocol = ChoiceField("protocol", tuple((each, "") for each in PROTOCOLS))
        self.tries = NumberField("tries", "if serialization fails; 0 no limit", empty="once")
        self.errors = ChoiceField("errors", _ERRORS)
        self.statements = ChoiceField("statements", _STATEMENTS)
        self.form = Form(
            (
                self.profile, self.clients, self.threads, self.duration, self.rate, self.limit, self.protocol,
                self.tries, self.errors, self.statements,
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

    def spec(self) -> LoadSpec:
        """What the form says.

        Raises:
            UsageProblem: A field does not hold what it should.
        """
        duration, tries = self.duration.number(1), self.tries.number()
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
            transactions=self._base.transactions if duration is None else None,
        )

    @property
    def dataset(self) -> str:
        """The data set that the chosen profile needs; "" for none."""
        profile = self._profiles.get(self.profile.value)
        return "" if profile is None else profile.dataset

    def press(self, key: str, character: str | None) -> bool:
        """Moves between fields, or types into the one in focus.

        Returns:
            Whether the key meant something here.
        """
        before = self.profile.value
        taken = self.form.press(key, character)
        if taken and self.profile.value != before:
            self._suggest(self._profiles[self.profile.value])
        return taken

    def _suggest(self, profile: ProfileSummary) -> None:
        """Another profile brings its own idea of clients and protocol."""
        self.clients.fill(profile.clients)
        if profile.protocol in PROTOCOLS:
            self.protocol.choose(profile.protocol)

    def lines(self, glyphs: Glyphs) -> list[Line]:
        """One line per field, and below the profile what it runs on."""
        profile, *others = self.form.lines(glyphs)
        return [profile, *self._dataset_line(), *others]

    def _dataset_line(self) -> list[Line]:
        found = next((each for each in self.datasets if each.name == self.dataset), None)
        if found is None:
            return []
        return [(("  data set    ", "label"), ("  ", PLAIN), _dataset_words(found))]


def _dataset_words(found: DatasetFound) -> tuple[str, str]:
    what = one_line(found.found, 40)
    if not found.problem:
        return (f"{what} (found)", "good") if what else (f"needs the {found.name} data set: i creates it", "warning")
    problem = one_line(found.problem, 60)
    return f"{what}: {problem}: i creates it" if what else problem, "warning"


_START: Final = "s"
_FORM_KEYS: Final = "s start  Enter edit  i data set  n steps  {results}y copy  Esc back"
_TYPING_KEYS: Final = "Enter ok  Esc discard  s start"
_LONG: Final = ("making", "steps")
"""What is more than a run of pgbench."""
_SCROLLING: Final = ("pageup", "pagedown")
_ENDED: Final = {
    RunState.FINISHED: ("finished", "good"),
    RunState.STOPPED: ("stopped by the operator: the figures are partial", "warning"),
    RunState.FAILED: ("failed", "critical"),
}


def run_lines(session: Session, run: BenchRun, cells: int) -> list[Line]:
    """A run under way: elapsed, remaining, figures, command.

    Args:
        session: For the figures.
        run: The run.
        cells: Width.
    """
    now_ms = session.now.taken_at_ms if session.now is not None else run.started_ms
    elapsed_s = (now_ms - run.started_ms) / 1000.0
    left = "until stopped" if run.duration_s is None else f"{clock(run.duration_s - elapsed_s)} left"
    head: Line = ((f"{run.state} ", "good"), (run.profile, "strong"), (f"   {clock(elapsed_s)} elapsed, {left}", PLAIN))
    interval = session.interval
    if interval is None:
        return [head, *wrapped(run.command, cells)]
    tps, latency, failed = CLIENT_TPS(interval), CLIENT_LATENCY(interval), CLIENT_FAILED(interval)
    figures: Line = (
        ("tps ", "label"), (count(tps), "strong"), ("   mean ", "label"), (with_ms(latency), "strong"),
        ("   failed ", "label"), (count(failed), "critical" if failed else PLAIN),
    )  # fmt: skip
    return [head, figures, (), *wrapped(run.command, cells)]


def ended_lines(run: BenchRun, cells: int) -> list[Line]:
    """How a run ended, with pgbench's own words when it failed."""
    words, style = _ENDED.get(run.state, (str(run.state), PLAIN))
    if run.complete and run.state is RunState.STOPPED:
        words, style = "stopped by the operator", "good"
    status = f" (exit status {run.exit_status})" if run.exit_status else ""
    return [
        *wrapped(f"run {run.run}, {run.profile}: {words}{status}", cells, style),
        *wrapped(run.message if run.state is RunState.FAILED else "", cells, style),
    ]


class LoadDialog(Dialog[LoadSpec]):
    """Returns the spec last typed, so that the next dialog begins with it.

    Closes by itself once the load it started reports progress; stays open when pgbench fails.

    Args:
        load: pgbench.
        client: The way to it.
        session: What is known.
        spec: What the form begins with.
    """

    CELLS = 96
    SHOWS_LOAD = True

    def __init__(
        self, load: LoadControl, client: EngineClient, session: Session, spec: LoadSpec, glyphs: Glyphs
    ) -> None:
        super().__init__("load", glyphs, low=True)
        self._load = load
        self._client = client
        self._session = session
        self._spec = spec
        self._form: LoadForm | None = None
        self._command = ""
        self._started_after: int | None = None
        self._seen = False

    def on_mount(self) -> None:
        """Asks what can be run."""
        self.work(self._open(), "loading profiles")

    async def _open(self) -> None:
        self._form = LoadForm(await self._client.ask(self._load.profiles()), self._spec)
        self._preview()
        self._look()

    def _look(self) -> None:
        self.run_worker(self._ask_datasets(), group="datasets", exclusive=True)

    async def _ask_datasets(self) -> None:
        """What cannot be asked now is said when a load is started."""
        with contextlib.suppress(PgtopError):
            datasets = await self._client.ask(self._load.datasets())
            if self._form is not None:
                self._form.datasets = datasets
        self.repaint()

    def content(self, cells: int) -> list[Line]:
        """What is under way, or the form with the command line it stands for."""
        run, state = under_way(self._session.now), self._load.state()
        if state.doing in _LONG:
            lines = self._long_lines(state, run, cells)
        elif run is not None:
            self.captions("load", "x stop  y copy command  Esc back")
            lines = run_lines(self._session, run, cells)
        else:
            lines = self._form_lines(state, cells)
        return [*lines, *self.foot(cells)]

    def _form_lines(self, state: LoadState, cells: int) -> list[Line]:
        results = "r result  " if _has_results(state) else ""
        typing = self._form is not None and self._form.form.typing
        self.captions("load", _TYPING_KEYS if typing else _FORM_KEYS.format(results=results))
        ended = run_of(self._session.now)
        lines: list[Line] = [*ended_lines(ended, cells), ()] if ended is not None else []
        if self._form is not None:
            lines += [*self._form.lines(self.glyphs), (), *wrapped(self._command, cells, "strong")]
        return lines

    def _long_lines(self, state: LoadState, run: BenchRun | None, cells: int) -> list[Line]:
        """A data set in the making, or steps: which, how it goes, and those that are done."""
        self.captions("load", "x stop  Esc back")
        lines: list[Line] = [((state.title, "strong"), (f"   {state.detail}" if state.detail else "", "dim")), ()]
        if state.doing == "making":
            return [*lines, *making_lines(state.making, cells, self.glyphs)]
        lines += [*run_lines(self._session, run, cells), ()] if run is not None else []
        if state.series is not None and state.series.results:
            lines += step_table(state.series, cells, self.glyphs)
        return lines

    def frames_arrived(self, session: Session) -> None:
        """The run goes on, begins or ends."""
        self._session = session
        frame = session.now
        run = run_of(frame)
        if self._seen != (self._load.state().doing == "making"):
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
            self._spec = spec
            self.work(self._ask_preview(spec), group="preview")

    def _typed_spec(self) -> LoadSpec | None:
        """What the form says; None, and why, where a field does not hold what it should."""
        assert self._form is not None
        try:
            return self._form.spec()
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
        await self._client.ask(self._load.start(spec))
        self._started_after = run.run if run is not None else 0
        self.busy = "started, waiting for the first second"

    def on_key(self, event: events.Key) -> None:
        """Typing, start, stop, copy."""
        run, state = under_way(self._session.now), self._load.state()
        if event.key == "y":
            command = run.command if run is not None else self._command
            self.copy(command, "the command line is in your clipboard")
        elif run is not None or state.doing in _LONG:
            if event.key != "x" or self.busy:
                return
            self.work(self._client.ask(self._load.stop()), "stopping")
        elif event.key == "r" and state.series is not None and _has_results(state):
            self.app.push_screen(ResultsDialog(state.series, self.glyphs))
        elif event.key in _SCROLLING:
            self.scroll_key(event.key)
        elif self._form is None or self.busy:
            return
        elif event.key in _FURTHER:
            _FURTHER[event.key](self, self._form)
        elif event.key == _START:
            self._begin()
        elif self._form.press(event.key, event.character):
            self._preview()
        else:
            return
        event.stop()
        self.repaint()

    def ask_for_dataset(self, form: LoadForm) -> None:
        """Opens what makes a data set; afterwards the form knows what is there."""

        def closed(result: None) -> None:
            self._preview()
            self._look()

        self.app.push_screen(InitDialog(self._load, self._client, form.dataset, self.glyphs), closed)

    def ask_for_steps(self, form: LoadForm) -> None:
        """Opens what starts steps."""
        spec = self._typed_spec()
        if spec is None:
            return

        def closed(begun: bool | None) -> None:
            if begun:
                self._leave()

        self.app.push_screen(StepsDialog(self._load, self._client, spec, self.glyphs), closed)

    def _begin(self) -> None:
        spec = self._typed_spec()
        if spec is not None:
            self.work(self._start(spec), "starting")

    def on_paste(self, event: events.Paste) -> None:
        """A number from the terminal's clipboard."""
        event.stop()
        if self._form is not None:
            self._form.form.focused.paste(event.text)
            self._preview()
            self.repaint()

    def action_close(self) -> None:
        """While a value is typed it takes that back; else it leaves, with what was typed before."""
        if self._form is not None and self._form.form.discard():
            self._preview()
            self.repaint()
            return
        self._leave()

    def _leave(self) -> None:
        self.dismiss(self._spec)


def _has_results(state: LoadState) -> bool:
    return state.series is not None and state.series.over and bool(state.series.results)


_FURTHER: Final[dict[str, Callable[[LoadDialog, LoadForm], None]]] = {
    "i": LoadDialog.ask_for_dataset,
    "n": LoadDialog.ask_for_steps,
}
"""Keys of the form that lead on."""
