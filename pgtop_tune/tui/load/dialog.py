"""The load dialog: choose, see the exact command line, start, stop; data sets, steps and results."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace
from textual import events

from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import clock, count, size, with_ms
from pgtop_tune.metrics.load import CLIENT_FAILED, CLIENT_LATENCY, CLIENT_TPS, UNDER_WAY, run_of, under_way
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchRun, LoadSpec, ProfileSummary, RunState
from pgtop_tune.runtime.engine import EngineClient
from pgtop_tune.runtime.load_control import (
    DatasetFound,
    DataSetMade,
    LoadControl,
    LoadState,
    MakingPlan,
    MakingPreview,
    MakingProgress,
)
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.dialogs.entry import ChoiceField, Form, FormDialog, NumberField, WordField
from pgtop_tune.tui.load.results_dialog import ResultsDialog, step_table
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line, wrapped
from pgtop_tune.tui.widgets.phrase import lasting

_SCROLLING: Final = ("pageup", "pagedown")

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
_MAKING: Final = "making"


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
        if state.doing == _MAKING:
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
        if self._load.state().doing == _MAKING:
            if key != "x" or self.busy:
                return False
            self.work(self._client.ask(self._load.stop()), "stopping")
        elif key in _SCROLLING:
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
        glyphs: Characters of the drawing.
    """

    CELLS = 90
    KEYS = "s start  Enter edit  arrows, Tab choose  Esc back"

    def __init__(self, load: LoadControl, client: EngineClient, spec: LoadSpec, glyphs: Glyphs) -> None:
        super().__init__("steps", glyphs, low=True)
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
        """Return the load that the form describes.

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

    def lines(self, glyphs: Glyphs) -> list[Line]:
        """Return one line per field, and below the profile what it runs on."""
        profile, *fields = self.form.lines(glyphs)
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
_TYPING_KEYS: Final = "Enter ok  Esc discard  s start"
_LONG: Final = ("making", "steps")
"""Kinds of work that take longer than a run of pgbench."""
_ENDED: Final = {
    RunState.FINISHED: ("finished", "good"),
    RunState.STOPPED: ("stopped by the operator: the results are partial", "warning"),
    RunState.FAILED: ("failed", "critical"),
}


def run_lines(session: Session, run: BenchRun, cells: int) -> list[Line]:
    """Return a run under way: elapsed, remaining, figures, command.

    Args:
        session: For the figures.
        run: The run.
        cells: Width.
    """
    now_ms = session.now.taken_at_ms if session.now is not None else run.started_ms
    elapsed_s = (now_ms - run.started_ms) / 1000.0
    remaining = "until stopped" if run.duration_s is None else f"{clock(run.duration_s - elapsed_s)} left"
    head: Line = (
        (f"{run.state} ", "good"),
        (one_line(run.load_name, 60), "strong"),
        (f"   {clock(elapsed_s)} elapsed, {remaining}", PLAIN),
    )
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
    """Return how a run ended, with pgbench's own words when it failed."""
    text, style = _ENDED.get(run.state, (str(run.state), PLAIN))
    if run.complete and run.state is RunState.STOPPED:
        text, style = "stopped by the operator", "good"
    if run.ended_for:
        text, style = f"ended early: {run.ended_for}", "critical"
    status = f" (exit status {run.exit_status})" if run.exit_status else ""
    return [
        *wrapped(f"run {run.run}, {one_line(run.load_name, 60)}: {text}{status}", cells, style),
        *wrapped(run.message, cells, style),
    ]


class LoadDialog(Dialog[LoadSpec]):
    """Returns the spec last typed, so that the next dialog begins with it.

    Closes by itself once the load it started reports progress; stays open when pgbench fails.

    Args:
        load: pgbench.
        client: The way to it.
        session: The session that is shown.
        spec: The load that the form begins with.
    """

    CELLS = 96
    KEYS = "s start  Enter edit  i data set  n steps  r result  y copy  Esc back"
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
        """Ask what can be run."""
        self.work(self._open(), "loading profiles")

    async def _open(self) -> None:
        self._form = LoadForm(await self._client.ask(self._load.profiles()), self._spec)
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
        else:
            lines = self._form_lines(state, cells)
        return [*lines, *self.foot(cells)]

    def _form_lines(self, state: LoadState, cells: int) -> list[Line]:
        keys = self.KEYS if _has_results(state) else self.KEYS.replace("r result  ", "")
        typing = self._form is not None and self._form.form.typing
        self.captions("load", _TYPING_KEYS if typing else keys)
        ended = run_of(self._session.now)
        lines: list[Line] = [*ended_lines(ended, cells), ()] if ended is not None else []
        if self._form is not None:
            lines += [*self._form.lines(self.glyphs), (), *wrapped(self._command, cells, "strong")]
        return lines

    def _long_lines(self, state: LoadState, run: BenchRun | None, cells: int) -> list[Line]:
        """Return a data set in the making, or steps: which, how it goes, and those that are done."""
        self.captions("load", "x stop  Esc back")
        lines: list[Line] = [((state.title, "strong"), (f"   {state.detail}" if state.detail else "", "dim")), ()]
        if state.doing == "making":
            return [*lines, *making_lines(state.making, cells, self.glyphs)]
        lines += [*run_lines(self._session, run, cells), ()] if run is not None else []
        if state.series is not None and state.series.results:
            lines += step_table(state.series, cells, self.glyphs)
        return lines

    def frames_arrived(self, session: Session) -> None:
        """Follow the run; close once it reports progress."""
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
        """Return the load that the form describes; None, and say why, where a field has a wrong value."""
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

    async def pressed(self, key: str, character: str | None) -> bool:
        """Type, start, stop, copy, or open what leads on."""
        run, state = under_way(self._session.now), self._load.state()
        if key == "y":
            command = run.command if run is not None else self._command
            self.copy(command, "the command line is in your clipboard")
        elif run is not None or state.doing in _LONG:
            if key != "x" or self.busy:
                return False
            self.work(self._client.ask(self._load.stop()), "stopping")
        elif key == "r" and state.series is not None and _has_results(state):
            self.app.push_screen(ResultsDialog(state.series, self.glyphs))
        elif key in _SCROLLING:
            self.scroll_key(key)
        elif self._form is None or self.busy:
            return False
        elif key in _FURTHER:
            _FURTHER[key](self, self._form)
        elif key == _START:
            self._begin()
        elif self._form.press(key, character):
            self._preview()
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

        self.app.push_screen(StepsDialog(self._load, self._client, spec, self.glyphs), closed)

    def _begin(self) -> None:
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
        self.dismiss(self._spec)


def _has_results(state: LoadState) -> bool:
    return state.series is not None and state.series.over and bool(state.series.results)


_FURTHER: Final[dict[str, Callable[[LoadDialog, LoadForm], None]]] = {
    "i": LoadDialog.ask_for_dataset,
    "n": LoadDialog.ask_for_steps,
}
"""Keys of the form that lead on."""
