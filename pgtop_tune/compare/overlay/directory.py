"""Earlier recordings and records of runs as baseline overlays: only their curves are kept, whatever their length."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pgtop_tune.base.errors import PgtopError

if TYPE_CHECKING:
    from pgtop_tune.compare.overlay.curves import OverlayCurves, OverlayEntry

MOST_LISTED: Final = 40
ENDINGS: Final = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".json")


class OverlayDirectory:
    """Implements `OverlaySource`.

    Args:
        directory: Where recordings are.
        without: Says which file is being shown or written.
    """

    def __init__(self, directory: Path, without: Callable[[], Path | None]) -> None:
        self._directory = directory
        self._without = without

    def newest(self) -> Sequence[Path]:
        """See `OverlaySource.newest`."""
        found: list[tuple[float, Path]] = []
        shown = self._without()
        without = None if shown is None else shown.resolve()
        # A directory that is not there holds nothing; a file may go while it is looked at, or cannot be.
        with suppress(OSError):
            for path in self._directory.iterdir():
                with suppress(OSError):
                    if path.name.endswith(ENDINGS) and path.is_file() and path.resolve() != without:
                        found.append((path.stat().st_mtime, path))
        return [path for _, path in sorted(found, reverse=True)[:MOST_LISTED]]

    def check(self, path: Path) -> None:
        """Looks whether a file can be a baseline, without reading all of it.

        Raises:
            RecordingProblem: It is neither a recording nor a record of runs, or cannot be read.
        """
        from pgtop_tune.compare.overlay.reading import described

        described(path)

    def entry(self, path: Path) -> OverlayEntry:
        """See `OverlaySource.entry`."""
        from pgtop_tune.compare.overlay.curves import OverlayEntry
        from pgtop_tune.compare.overlay.reading import described

        try:
            return described(path)
        except PgtopError as problem:
            # The list has the name in a column of its own.
            return OverlayEntry(path, 0, problem=problem.message.removeprefix(f"{path}: "))

    def read(self, path: Path) -> Generator[OverlayCurves, None, None]:
        """See `OverlaySource.read`."""
        from pgtop_tune.compare.overlay.reading import baseline_of

        yield from baseline_of(path, _name(path))


def _name(path: Path) -> str:
    return next((path.name[: -len(ending)] for ending in reversed(ENDINGS) if path.name.endswith(ending)), path.name)
