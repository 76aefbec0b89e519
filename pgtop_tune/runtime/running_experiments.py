"""Experiments that run on a server, as their programs announce them: a small file each in the state directory.

Screens show the experiments of other programs by these files, and a change of a parameter under experiment is refused
by them. A file counts as long as its process lives, so a killed program leaves nothing that must be put right.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.paths import NotOurs, private, read_own, replacing, running_experiments_dir
from pgtop_tune.base.safe_text import one_line, printable_lines
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.process.process_key import ProcessKey, own_key
from pgtop_tune.runtime.experiment_control import ArmValues, ExperimentState

if TYPE_CHECKING:
    from pgtop_tune.model.frame import Frame
    from pgtop_tune.model.instance import Instance
    from pgtop_tune.runtime.ports import Step

DETACHED: Final = "PGTOP_TUNE_DETACHED"
"""Environment variable with the name of a detached run."""
_EVERY_S: Final = 2.0
_LOOK_S: Final = 0.5
_LARGEST_BYTES: Final = 128 * 1024
_MOST_FILES: Final = 32
_MOST_VALUES: Final = 16
_ENDED_S: Final = 600.0
"""Seconds for which the file of an ended experiment stays, for screens that watch it."""
_WORD: Final = 80
_DETAILS: Final = 20_000
_LONGEST_S: Final = 1e7
_MOST_PAIRS: Final = 100_000
_REFUSED: Final = "did not begin"
"""The ending of an experiment that was refused before it began."""
_CLOCK_MS: Final = 2
"""Tolerance: the sampler rounds the start of the server, the operator's session truncates it."""


class ServerKey(Struct, frozen=True):
    """Identity of a running server.

    Attributes:
        system_identifier: "" where the role may not see it.
        started_ms: pg_postmaster_start_time, milliseconds since the epoch.
    """

    system_identifier: str
    started_ms: int

    def is_same(self, server: ServerKey) -> bool:
        """Return whether both are one postmaster."""
        identifiers = {self.system_identifier, server.system_identifier} - {""}
        return len(identifiers) < 2 and abs(self.started_ms - server.started_ms) <= _CLOCK_MS


def server_of(frame: Frame) -> ServerKey | None:
    """Return the server of a frame; None where the frame does not say."""
    facts = sections.server(frame)
    return None if isinstance(facts, Unavailable) else ServerKey(facts.system_identifier, facts.started_ms)


def server_of_instance(instance: Instance) -> ServerKey:
    """Return the server of the operator's session."""
    return ServerKey(instance.system_identifier, instance.started_us // 1000)


class RunningExperiment(Struct, frozen=True, kw_only=True):
    """An experiment as its program announces it.

    Attributes:
        program: As typed: "ab", "tune", "experiment run"; "screen" for one of a screen.
        detached: Name of the detached run; "" where a terminal holds it.
        key: The process.
        server: The server that it runs on.
        parameters: Names that it switches on this server.
        began_ms: Time of the announcement, milliseconds since the epoch: a screen makes one after the other.
        written_ms: Time of `state`, milliseconds since the epoch.
    """

    program: str
    detached: str
    key: ProcessKey
    server: ServerKey
    parameters: tuple[str, ...]
    began_ms: int
    written_ms: int
    state: ExperimentState

    @property
    def words(self) -> str:
        """The experiment's program: "ab, process 4711"."""
        return f"{self.program}, process {self.key.pid}"

    @property
    def hint(self) -> str:
        """The command or key that stops the experiment."""
        if self.detached:
            return f"stop it with `pgtop-tune experiment stop {self.detached}`, or on a screen"
        return "stop it on that screen" if self.program == "screen" else "stop it with Ctrl-C in its terminal"


def running_experiments() -> tuple[RunningExperiment, ...]:
    """Return the experiments that programs of this user have announced, oldest first; a file that cannot be read is
    left out. Blocking."""
    try:
        with os.scandir(running_experiments_dir()) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith(".json"))
    except OSError:
        return ()
    return tuple(
        experiment
        for name in names[-_MOST_FILES:]
        if (experiment := _read(running_experiments_dir() / name)) is not None
    )


def running_on(server: ServerKey) -> tuple[RunningExperiment, ...]:
    """Return the experiments under way on a server. Blocking."""
    return tuple(
        experiment
        for experiment in running_experiments()
        if experiment.state.under_way and experiment.server.is_same(server) and experiment.key.lives
    )


def check_alone(server: ServerKey) -> None:
    """Make sure that no experiment of another program runs on a server: two would measure each other.

    Raises:
        UsageProblem: One runs.
    """
    own_process = own_key()
    running = next((experiment for experiment in running_on(server) if experiment.key != own_process), None)
    if running is not None:
        raise UsageProblem(f"another experiment runs on this server ({running.words})", running.hint)


async def until_alone(server: ServerKey, within_s: float) -> None:
    """Wait for an experiment that may just be ending, such as that of a killed worker. Raises as `check_alone`."""
    deadline_s = time.monotonic() + within_s
    while True:
        try:
            check_alone(server)
            return
        except UsageProblem:
            if time.monotonic() > deadline_s:
                raise
        await asyncio.sleep(_LOOK_S)


class Announcement:
    """The file of an experiment of this program. A sink of the engine; written in a thread, at most every other second.

    Args:
        program: See `RunningExperiment`.
        parameters: See `RunningExperiment`.
        state: Returns the newest state. Thread-safe.
        server: The server that it runs on; None takes it from frames.
    """

    def __init__(
        self,
        program: str,
        parameters: Sequence[str],
        state: Callable[[], ExperimentState],
        server: ServerKey | None = None,
    ) -> None:
        self._program: Final = program
        self._parameters = tuple(parameters)
        self._state: Final = state
        self._server = server
        self._began_ms: Final = _now_ms()
        self._path: Final = running_experiments_dir() / f"{self._began_ms}-{os.getpid()}.json"
        self._lock: Final = threading.Lock()
        self._due_s = 0.0
        self._begun = self._ended = False

    def begin(self) -> None:
        """Write the file now, or with the first frame that says which server it is. Blocking.

        Raises:
            UsageProblem: Another experiment runs on this server.
        """
        if self._server is not None:
            check_alone(self._server)
        self._begun = True
        self._write()

    def switches(self, parameters: Sequence[str]) -> None:
        """Set the parameters that the experiment switches, where they are known late. In the engine's loop."""
        self._parameters = tuple(parameters)
        self._due_s = 0.0
        self.tick()

    def accept(self, step: Step) -> None:
        if step.frames and (server := server_of(step.frames[-1])) is not None:
            # The experiment may have restarted the server.
            self._server = server
        self.tick()

    def close(self) -> None:
        """Do nothing: `end` writes the last state."""

    def tick(self) -> None:
        """Write the newest state where that is due. In the engine's loop."""
        now_s = time.monotonic()
        if self._begun and not self._ended and now_s >= self._due_s:
            self._due_s = now_s + _EVERY_S
            asyncio.get_running_loop().run_in_executor(None, self._write)

    def end(self) -> None:
        """Write the last state. Blocking."""
        if self._begun and not self._ended:
            self._ended = True
            self._write(last=True)

    def _write(self, *, last: bool = False) -> None:
        with self._lock:
            if self._server is None or (self._ended and not last):
                return
            state = self._state()
            state = replace(state, details=state.details[:_DETAILS], under_way=not last)
            if last:
                state = replace(state, arm="", ending=state.ending or _REFUSED)
            announced = RunningExperiment(
                program=self._program,
                detached=os.environ.get(DETACHED, ""),
                key=own_key(),
                server=self._server,
                parameters=self._parameters,
                began_ms=self._began_ms,
                written_ms=_now_ms(),
                state=state,
            )
            try:
                if not self._path.exists():
                    _sweep(private(self._path.parent))
                with replacing(self._path) as file:
                    file.write(msgspec.json.encode(announced))
            except OSError:
                # The experiment goes on without being shown.
                return


def _sweep(directory: Path) -> None:
    """Remove files of experiments that have ended, and those that nobody can read."""
    for path in directory.glob("*.json"):
        experiment = _read(path)
        lives = experiment is not None and experiment.state.under_way and experiment.key.lives
        if not lives and time.time() - path.lstat().st_mtime > _ENDED_S:
            path.unlink(missing_ok=True)


def _read(path: Path) -> RunningExperiment | None:
    try:
        if path.lstat().st_size > _LARGEST_BYTES:
            return None
        experiment = msgspec.json.decode(read_own(path), type=RunningExperiment)
    except (OSError, NotOurs, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return replace(
        experiment,
        program=one_line(experiment.program, _WORD),
        detached=one_line(experiment.detached, _WORD),
        state=_sound(experiment.state),
    )


def _sound(state: ExperimentState) -> ExperimentState:
    """Return a state that can be drawn, whatever the file holds."""
    values = tuple(
        ArmValues(one_line(parameter.name, _WORD), one_line(parameter.a, _WORD), one_line(parameter.b, _WORD))
        for parameter in state.values[:_MOST_VALUES]
    )
    return replace(
        state,
        **{field: one_line(getattr(state, field), _WORD) for field in ("kind", "phase", "figure", "ending")},
        **{field: _within(getattr(state, field), 0, _MOST_PAIRS) for field in ("pair", "of", "counted")},
        **{field: float(_within(getattr(state, field), 0, _LONGEST_S)) for field in ("elapsed_s", "remaining_s")},
        **{field: _share(getattr(state, field)) for field in ("effect", "low", "high")},
        values=values,
        arm=state.arm if state.arm in ("A", "B") else "",
        problem=one_line(state.problem, _DETAILS),
        details="\n".join(printable_lines(state.details, _DETAILS)),
    )


def _within(value: float, least: float, most: float) -> int:
    return round(min(max(value, least), most)) if isfinite(value) else round(least)


def _share(value: float | None) -> float | None:
    return None if value is None or not isfinite(value) else min(max(value, -1.0), 99.0)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
