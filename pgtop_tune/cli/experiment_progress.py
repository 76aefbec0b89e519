"""An experiment on the command line: its lines while it runs, and its record after each pair."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from pgtop_tune.cli.output import tell
from pgtop_tune.errors import RecordingProblem
from pgtop_tune.experiment.switchback.record import RecordFile
from pgtop_tune.runtime.running_experiments import Announcement


class _State(Protocol):
    @property
    def pairs(self) -> Sequence[object]: ...


_S = TypeVar("_S", bound=_State)


class Progress(Generic[_S]):
    """Takes states: says what is new, and keeps the record after each pair.

    Args:
        lines: Makes lines of what is new in a state.
        record: Makes the record, as JSON has it.
        file: Where it is kept.
        shown: Takes each state as screens show it.
        announcement: Tells the screens that watch the server.
        quiet: No lines.
    """

    def __init__(
        self,
        lines: Callable[[_S], Iterable[str]],
        record: Callable[[_S], dict[str, Any]],
        file: RecordFile,
        shown: Callable[[_S], object],
        announcement: Announcement,
        *,
        quiet: bool,
    ) -> None:
        self._lines: Final = lines
        self._record: Final = record
        self._file: Final = file
        self._shown: Final = shown
        self._announcement: Final = announcement
        self._quiet: Final = quiet
        self._pairs = 0

    def __call__(self, state: _S) -> None:
        self._shown(state)
        self._announcement.tick()
        if not self._quiet:
            for line in self._lines(state):
                tell(line)
        if len(state.pairs) > self._pairs:
            self._pairs = len(state.pairs)
            self._write(state)

    def keep(self, state: _S) -> None:
        """The whole record, and where it is."""
        if self._write(state):
            tell(f"record: {self._file.path}")

    def _write(self, state: _S) -> bool:
        try:
            self._file.write(self._record(state))
        except RecordingProblem as problem:
            tell(f"not saved: {problem.message}")
            return False
        return True
