"""The parts that the caller of the screen provides: the engine, the controls and services of the session, display
options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct, field

from pgtop_tune.model.frame import Frame
from pgtop_tune.runtime.engine import Lazy
from pgtop_tune.tui.actions import Need

if TYPE_CHECKING:
    from pathlib import Path

    from pgtop_tune.advice.knobs.knob import Knob
    from pgtop_tune.base.secret import Secret
    from pgtop_tune.changes.model.change import HostChange, ParameterChange
    from pgtop_tune.changes.ports import AdoptionControl, ChangeControl, MachineControl, RestartControl
    from pgtop_tune.compare.overlay.curves import OverlaySource
    from pgtop_tune.health.report import CheckControl
    from pgtop_tune.model.bench import LoadSpec
    from pgtop_tune.runtime.engine import Engine
    from pgtop_tune.runtime.experiment_control import ExperimentControl, ExperimentView
    from pgtop_tune.runtime.load_control import LoadControl
    from pgtop_tune.runtime.ports import BackendControl, FramesFrom, RecordingControl, Transport


class PastSource(Struct, frozen=True):
    """Frames that were kept, as something to play.

    Attributes:
        engine: Not started; hands over what comes after, or instead of, the frames that are shown.
        transport: Moves through them; paused at first.
    """

    engine: Engine
    transport: Transport


OpenPast = Callable[[Sequence["Frame"]], PastSource | None]
"""Given the frames that are shown, newest last; None as long as nothing is kept."""


class IntervalControl(Protocol):
    """The interval at which a live source samples. Thread-safe, but for `burst`."""

    @property
    def interval_s(self) -> float:
        """Seconds between two frames."""
        ...

    def set_interval(self, interval_s: float) -> None:
        """Take effect with the next tick."""
        ...

    async def burst(self) -> float:
        """Look at waits more often for a while; how many seconds. In the engine's loop."""
        ...


class TerminalTally:
    """Bytes written to the terminal so far; followed by the screen, read by the sampler in another thread."""

    def __init__(self) -> None:
        self._read: Callable[[], int] | None = None

    def follow(self, read: Callable[[], int]) -> None:
        """Read the tally with this function from now on."""
        self._read = read

    def __call__(self) -> int:
        """Return bytes so far; 0 before there is a screen."""
        return 0 if self._read is None else self._read()


class Services(Struct, frozen=True, kw_only=True):
    """Services that change, load or ask the server for the operator. None where the session does not have one.

    Attributes:
        backends: Sessions of the server: cancel, terminate, EXPLAIN.
        machine: Settings of the operating system under the server.
        restart: Changes that take a restart of the server.
        checks: The check before production.
        experiments: A against B by turns in one run.
        other_experiments: Those of other programs on this server.
        adoptions: Change sets that this session took over from programs that are gone.
    """

    load: LoadControl | None = None
    parameters: ChangeControl | None = None
    backends: BackendControl | None = None
    machine: MachineControl | None = None
    restart: RestartControl | None = None
    checks: CheckControl | None = None
    experiments: ExperimentControl | None = None
    other_experiments: ExperimentView | None = None
    adoptions: AdoptionControl | None = None

    def has(self) -> frozenset[Need]:
        """Return the needs of actions that these services meet."""
        present = {
            Need.LOAD: self.load is not None,
            Need.PARAMETERS: self.parameters is not None,
            Need.BACKENDS: self.backends is not None,
            Need.CHECK: self.checks is not None,
            Need.EXPERIMENT: self.experiments is not None and self.parameters is not None,
        }
        return frozenset(need for need, there in present.items() if there)


_SERVED: Final = frozenset({Need.LOAD, Need.PARAMETERS, Need.BACKENDS, Need.CHECK, Need.EXPERIMENT})


class Controls(Struct, frozen=True):
    """Everything that an operator can reach from the screen. None where the session does not have it.

    Attributes:
        engine: Not started yet, but perhaps prepared; the screen starts it.
        services: Services that are not made yet are taken to be complete.
        knobs: Gives the parameters offered in the parameter dialog, in this order: a key asks for them.
        on_password: Takes the password the operator types; called in the engine's loop.
        password_needed: Whether the server waits for one now. Thread-safe.
        frames: Frames that have been, for marked windows.
        overlays: Earlier runs that may stand under the charts.
        tally: Where the sampler reads how many bytes the screen has written.
        past: Opens what was kept of a live session.
    """

    engine: Engine
    services: Lazy[Services] = field(default_factory=lambda: Lazy.ready(Services()))
    recording: RecordingControl | None = None
    transport: Transport | None = None
    interval: IntervalControl | None = None
    knobs: Callable[[], Sequence[Knob]] = tuple
    on_password: Callable[[Secret], None] | None = None
    password_needed: Callable[[], bool] | None = None
    frames: FramesFrom | None = None
    past: OpenPast | None = None
    overlays: OverlaySource | None = None
    tally: TerminalTally = field(default_factory=TerminalTally)

    def has(self) -> frozenset[Need]:
        """Return the needs of actions that this session meets."""
        present = {
            Need.LIVE: self.transport is None,
            Need.TRANSPORT: self.transport is not None or self.past is not None,
            Need.INTERVAL: self.interval is not None,
            Need.RECORDING: self.recording is not None,
            Need.PASSWORD: self.on_password is not None,
            Need.OVERLAYS: self.overlays is not None,
            Need.FRAMES: self.frames is not None,
        }
        served = _SERVED if self.services.made is None else self.services.made.has()
        return served.union(need for need, there in present.items() if there)


class ScreenOptions(Struct, frozen=True):
    """Looks and keys of the screen.

    Attributes:
        theme: Name of a theme; "" takes the default, or "mono" where NO_COLOR is set.
        ascii: Draw without characters beyond ASCII.
        mouse: Let Textual capture the mouse; then the terminal's own selection needs Shift.
        keymap: Action id → keys, separated by commas; checked by `actions.check_keymap`.
        target: The server that is watched, for the header and the password dialog: "bench@db1:5432".
        allow_unsafe: Values that can lose data may be unlocked.
        throwaway: The server ends with the screen: nothing that was changed on it is left behind.
        overlay: An earlier run that stands under the charts from the start.
        start_load: A load to start as soon as the engine runs; also what the load dialog begins with.
    """

    theme: str = ""
    ascii: bool = False
    mouse: bool = False
    keymap: Mapping[str, str] = {}
    target: str = ""
    start_load: LoadSpec | None = None
    throwaway: bool = False
    allow_unsafe: bool = False
    overlay: Path | None = None


class ScreenOutcome(Struct, frozen=True):
    """State that the screen leaves behind, for the last words on the normal screen.

    Attributes:
        recording: Path of the recording, None when nothing was recorded.
        in_force: Changes of parameters that were made and not undone, oldest first.
        exit_status: 0; 1 after a crash or a lost server; 128 + signal number when a signal ended it.
        on_machine: Settings of the operating system that this session has changed and not undone.
    """

    recording: str | None = None
    in_force: tuple[ParameterChange, ...] = ()
    exit_status: int = 0
    on_machine: tuple[HostChange, ...] = ()
