"""The screen without a terminal: a source that follows a script, controls that remember, and waiting for conditions."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace
from textual.events import Paste
from textual.pilot import Pilot

from pgtop_tune.base.errors import PgtopError, ServerProblem
from pgtop_tune.changes.model.change import (
    SYSTEM,
    ChangeState,
    ParameterChange,
    Proof,
    Scope,
    ScopeKind,
    Terms,
    WantedParameter,
)
from pgtop_tune.model.backend_action import (
    BackendAct,
    BackendKey,
    BackendOutcome,
    BackendResult,
    PlanRisk,
    PreparedAct,
    PreparedKey,
    QueryPlan,
    StatementToPlan,
)
from pgtop_tune.model.bench import LoadLevel, LoadSpec, ProfileSummary
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.runtime.engine import Engine, Lazy
from pgtop_tune.runtime.load_control import (
    NO_CONDITIONS,
    DatasetFound,
    EndConditions,
    LoadChange,
    LoadState,
    MakingPlan,
    MakingPreview,
    SearchWish,
)
from pgtop_tune.runtime.ports import Landmark, RecordingState, Step, TransportState
from pgtop_tune.tui.app import PgtopApp
from pgtop_tune.tui.controls import Controls, ScreenOptions, Services
from pgtop_tune.tui.terminal.textual_private import drawn_rows
from tests.support.frames import frame
from tests.support.scripted_source import ScriptedSource

DEADLINE_S = 60.0


PROFILES = (
    ProfileSummary("tpcb-like", "TPC-B (sort of)", "five statements", 8, "prepared", "pgbench"),
    ProfileSummary("select-only", "reads by key", "one statement", 32, "simple", "pgbench"),
    ProfileSummary("ticket-read", "a ticket by key", "one statement", 32, "prepared", "bus"),
)


class ScriptedLoad:
    """A `LoadControl` that runs nothing."""

    def __init__(self, refuses: PgtopError | None = None) -> None:
        self.refuses = refuses
        self.standing = LoadState()
        self.found = (DatasetFound("pgbench", "scale 100"), DatasetFound("bus"))
        self.means = MakingPreview("scale 10", 160_000_000, 10_000_000_000, database="bench")
        self.steps: list[tuple[LoadSpec, str, bool]] = []
        self.made: list[tuple[MakingPlan, bool]] = []
        self.started: list[LoadSpec] = []
        self.ends = NO_CONDITIONS
        self.searches: list[tuple[LoadSpec, SearchWish]] = []
        self.previewed: list[LoadSpec] = []
        self.stops = 0
        self.changes: list[LoadChange] = []

    def state(self) -> LoadState:
        return self.standing

    async def profiles(self) -> tuple[ProfileSummary, ...]:
        return PROFILES

    async def datasets(self) -> tuple[DatasetFound, ...]:
        return self.found

    async def start_steps(self, spec: LoadSpec, steps: str, *, tidy: bool, ends: EndConditions = NO_CONDITIONS) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.ends = ends
        self.steps.append((spec, steps, tidy))

    async def look_at_search(self, spec: LoadSpec, wish: SearchWish) -> str:
        if self.refuses is not None:
            raise self.refuses
        return "expected time: 12m"

    async def start_search(self, spec: LoadSpec, wish: SearchWish) -> None:
        self.searches.append((spec, wish))

    async def look(self, plan: MakingPlan) -> MakingPreview:
        return self.means

    async def make(self, plan: MakingPlan, *, replace: bool) -> None:
        self.made.append((plan, replace))

    async def preview(self, spec: LoadSpec) -> str:
        self.previewed.append(spec)
        time_option = "" if spec.duration_s is None else f" -T {spec.duration_s}"
        return f"pgbench -n -b {spec.profile} -c {spec.clients} -M {spec.protocol}{time_option}"

    async def start(self, spec: LoadSpec, ends: EndConditions = NO_CONDITIONS) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.ends = ends
        self.started.append(spec)

    async def change(self, change: LoadChange) -> LoadLevel:
        self.changes.append(change)
        return LoadLevel(10)

    async def stop(self) -> None:
        self.stops += 1


def parameter(name: str, setting: str, shown: str, **other: object) -> Parameter:
    """A row of pg_settings."""
    values: dict[str, object] = {
        "name": name, "setting": setting, "shown": shown, "unit": "", "category": "", "short_desc": "",
        "context": "sighup", "vartype": "integer", "source": "default", "min_val": "", "max_val": "", "enumvals": (),
        "boot_val": setting, "reset_val": setting, "sourcefile": "", "pending_restart": False,
    }  # fmt: skip
    return Parameter(**(values | other))  # type: ignore[arg-type]


@dataclass
class ScriptedParameters:
    """A `ChangeControl` with a server of a few parameters."""

    refuses: str = ""
    journal: list[ParameterChange] = field(default_factory=list)
    reverted: list[tuple[str, str]] = field(default_factory=list)
    """Set and reason."""
    terms: Terms = field(default_factory=Terms)
    rows: dict[str, Parameter] = field(
        default_factory=lambda: {
            row.name: row
            for row in (
                parameter("max_wal_size", "1024", "1GB", unit="MB", min_val="2", max_val="2147483647"),
                parameter(
                    "synchronous_commit", "on", "on", vartype="enum", context="user",
                    enumvals=("local", "remote_write", "remote_apply", "on", "off"),
                ),
                parameter("shared_buffers", "16384", "128MB", unit="8kB", min_val="16", max_val="1073741823",
                          context="postmaster"),
                parameter("work_mem", "4096", "4MB", unit="kB", min_val="64", max_val="2147483647", context="user"),
            )
        }
    )  # fmt: skip
    _undone: list[tuple[ParameterChange, ...]] = field(default_factory=list)
    _made: int = 0

    async def list(self, names: tuple[str, ...]) -> tuple[Parameter, ...]:
        return tuple(self.rows[name] for name in names if name in self.rows)

    def statement(self, name: str, value: str | None, scope: Scope = SYSTEM) -> str:
        what = f"RESET {name}" if value is None else f"SET {name} = '{value}'"
        if scope.kind is not ScopeKind.SYSTEM:
            return f"ALTER {scope.kind.name} {scope.role or scope.database} {what};"
        return f"ALTER SYSTEM {what}; SELECT pg_reload_conf();"

    async def apply(self, name: str, value: str | None) -> ParameterChange:
        return (await self.apply_set((WantedParameter(name, value),), Terms()))[0]

    async def apply_set(
        self, wanted: Sequence[WantedParameter], terms: Terms, *_: object
    ) -> tuple[ParameterChange, ...]:
        if self.refuses:
            raise ServerProblem(self.refuses)
        self.terms = terms
        self._made += 1
        until_ms = None if terms.keep_within_s is None else int((time.time() + terms.keep_within_s) * 1000)
        made = []
        for each in wanted:
            before = self.rows[each.name]
            after = each.value if each.value is not None else "1GB"
            self.rows[each.name] = replace(before, setting=after, shown=after)
            made.append(
                ParameterChange(
                    f"c{self._made}-{each.name}", 0, each.name, each.value, before.shown, None, "default",
                    ChangeState.APPLIED, after, scope=each.scope, set_id=terms.set_id or f"s{self._made}",
                    kept=until_ms is None, until_ms=until_ms, reason=terms.reason,
                )
            )  # fmt: skip
        self.journal += made
        return tuple(made)

    async def begin_deadline(self, set_id: str, within_s: float) -> None: ...

    async def lost(self, set_id: str) -> None: ...

    async def keep(self, set_id: str) -> tuple[ParameterChange, ...]:
        kept = [replace(each, kept=True, until_ms=None) for each in self.journal if each.set_id == set_id]
        self.journal = [next((one for one in kept if one.id == each.id), each) for each in self.journal]
        return tuple(kept)

    async def revert_set(self, set_id: str, why: str = "", *_: object) -> tuple[ParameterChange, ...]:
        self.reverted.append((set_id, why))
        return self._taken_back([each for each in self.journal if set_id in (each.set_id, each.id)])

    def _taken_back(self, changes: Sequence[ParameterChange]) -> tuple[ParameterChange, ...]:
        back = []
        for change in reversed(changes):
            self.journal.remove(change)
            before = change.shown_before
            self.rows[change.name] = replace(self.rows[change.name], setting=before, shown=before)
            back.append(replace(change, state=ChangeState.REVERTED, shown_after=before))
        return tuple(back)

    async def prove(self, changes: Sequence[ParameterChange]) -> tuple[Proof, ...]:
        return ()

    async def undo_these(self, ids: Sequence[str]) -> tuple[ParameterChange, ...]:
        undone = self._taken_back([each for each in self.journal if each.id in ids])
        self._undone.append(undone)
        return undone

    async def redo(self) -> tuple[ParameterChange, ...]:
        if not self._undone:
            return ()
        back = self._undone.pop()
        return await self.apply_set(
            [WantedParameter(each.name, each.value, each.scope) for each in reversed(back)], Terms()
        )

    async def any_in_force(self) -> bool:
        return bool(self.journal)

    async def in_force(self) -> tuple[ParameterChange, ...]:
        return tuple(self.journal)


class ScriptedRecording:
    """A `RecordingControl` that writes nothing."""

    def __init__(self, refuses: PgtopError | None = None) -> None:
        self.refuses = refuses
        self._path: str | None = None

    def start(self, path: str | None = None) -> RecordingState:
        if self.refuses is not None:
            raise self.refuses
        self._path = path or "made-up.jsonl.gz"
        return self.state()

    def stop(self) -> RecordingState:
        self._path = None
        return self.state()

    def state(self) -> RecordingState:
        return RecordingState(self._path)


class ScriptedBackends:
    """A `BackendControl` of a server where everything can be signalled, and every query has one plan."""

    def __init__(
        self,
        refuses: PgtopError | None = None,
        outcomes: dict[int, BackendOutcome] | None = None,
        risk: PlanRisk | None = None,
    ) -> None:
        self.refuses = refuses
        self.risk = risk
        self.outcomes = outcomes or {}
        self.signalled: list[tuple[BackendAct, BackendKey]] = []
        self.explained: list[tuple[BackendKey, str]] = []
        self.planned: list[StatementToPlan] = []
        self.ended: list[tuple[PreparedAct, PreparedKey]] = []

    def statement(self, act: BackendAct, backend: BackendKey) -> str:
        return f"SELECT pg_{act}_backend({backend[0]}) WHERE backend_start = {backend[1]};"

    async def signal(self, act: BackendAct, backends: Sequence[BackendKey]) -> tuple[BackendResult, ...]:
        if self.refuses is not None:
            raise self.refuses
        self.signalled += [(act, backend) for backend in backends]
        results = []
        for backend in backends:
            outcome = self.outcomes.get(backend[0], BackendOutcome.DONE)
            detail = "GRANT pg_signal_backend TO bench" if outcome is BackendOutcome.NOT_PERMITTED else ""
            results.append(BackendResult(backend, outcome, detail))
        return tuple(results)

    async def end_prepared(self, act: PreparedAct, transaction: PreparedKey) -> tuple[BackendOutcome, str]:
        self.ended.append((act, transaction))
        return BackendOutcome.DONE, ""

    async def explain(self, backend: BackendKey, seen: str, agreed: PlanRisk | None = None) -> QueryPlan | PlanRisk:
        if self.refuses is not None:
            raise self.refuses
        if self.risk is not None and agreed != self.risk:
            return self.risk
        self.explained.append((backend, seen))
        return self._plan(seen)

    async def plan_statement(self, statement: StatementToPlan, agreed: PlanRisk | None = None) -> QueryPlan | PlanRisk:
        self.planned.append(statement)
        return self._plan(statement.query)

    def _plan(self, seen: str) -> QueryPlan:
        return QueryPlan(
            lines=("Seq Scan on [t]", "  Filter: \x1b[31m"),
            statement=f"EXPLAIN {seen}",
            database="bench",
            user="app",
            session_role="app",
            generic=False,
        )


class ScriptedTransport:
    """A `Transport` that remembers what it was told."""

    def __init__(self) -> None:
        self.paused, self.speed, self.steps = False, 1.0, 0
        self.jumped: list[float] = []
        self.landmarks: dict[Landmark, float] = {}

    def state(self) -> TransportState:
        return TransportState(self.paused, self.speed, 30.0, 120.0, at_end=False)

    def pause(self, paused: bool) -> None:
        self.paused = paused

    def set_speed(self, speed: float) -> None:
        self.speed = speed

    def step(self, frames: int) -> None:
        self.steps += frames

    def jump(self, elapsed_s: float) -> None:
        self.jumped.append(elapsed_s)

    async def find(self, landmark: Landmark) -> float | None:
        return self.landmarks.get(landmark)


def frames(count: int, **other: object) -> list[Frame]:
    """The first seconds of the made-up session."""
    return [frame(second, **other) for second in range(count)]  # type: ignore[arg-type]


@dataclass
class Rig:
    """A running screen."""

    app: PgtopApp
    pilot: Pilot[int]
    source: ScriptedSource
    controls: Controls

    def text(self) -> str:
        """What stands on the visible screen, as plain text."""
        return screen_text(self.app)

    async def until(self, condition: Callable[[], object]) -> None:
        """Waits until it is so; fails with the screen's text when it never is."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"never came true; the screen says:\n{self.text()}"
            await self.pilot.pause(0.01)

    async def sees(self, words: str) -> None:
        """Waits until these words stand on the screen."""
        await self.until(lambda: words in self.text())

    async def press(self, *keys: str) -> None:
        """Presses keys one after the other."""
        await self.pilot.press(*keys)

    def paste(self, text: str) -> None:
        """Text from the terminal's clipboard, to whatever is on top."""
        self.app.screen.post_message(Paste(text))

    async def type(self, text: str) -> None:
        """Types text letter by letter."""
        await self.pilot.press(*("space" if letter == " " else letter for letter in text))


def screen_text(app: PgtopApp) -> str:
    """The visible screen as plain text."""
    return "\n".join(strip.text for strip in drawn_rows(app.screen))


def wire(engine: Engine, **controls: object) -> Controls:
    """Controls of a screen, with services that are ready unless others are handed in."""
    services = {name: controls.pop(name) for name in Services.__struct_fields__ if name in controls}
    ready = Lazy.ready(Services(**services))  # type: ignore[arg-type]
    knobs = controls.pop("knobs", ())
    return Controls(engine, knobs=lambda: knobs, **({"services": ready} | controls))  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def running_screen(
    source: ScriptedSource | None = None,
    *,
    size: tuple[int, int] = (120, 40),
    options: ScreenOptions | None = None,
    waits_for_frames: bool = True,
    **controls: object,
) -> AsyncIterator[Rig]:
    """A screen on a scripted source, with a real engine in its own thread; stopped at the end."""
    if source is None:
        source = ScriptedSource([Step(tuple(frames(5)), restart=True)])
    wired = wire(Engine(source), **controls)
    app = PgtopApp(wired, options or ScreenOptions())
    # What is told stays: a test that comes late finds it, too.
    notify = app.notify
    app.notify = lambda message, **more: notify(message, **(more | {"timeout": 600.0}))  # type: ignore[method-assign]
    try:
        async with app.run_test(size=size, notifications=True) as pilot:
            rig = Rig(app, pilot, source, wired)
            if waits_for_frames:
                await rig.until(lambda: app.context.live.now is not None)
                await pilot.pause()
            yield rig
    finally:
        assert wired.engine.stop(), "the engine did not stop"
