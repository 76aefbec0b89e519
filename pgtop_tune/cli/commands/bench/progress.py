"""How far the making of a data set is, on stderr: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from pgtop_tune.cli.output import tell
from pgtop_tune.units import age, count

if TYPE_CHECKING:
    from pgtop_tune.bench.datasets.progress import InitialiseProgress, StepPace

LINE_EVERY_S: Final = 5.0

Tell = Callable[["InitialiseProgress"], None]


def words(progress: InitialiseProgress, pace: StepPace) -> str:
    """ "1.20M of 6.00M rows, 310k rows/s, 15 s left"; "" where nothing is counted."""
    if not progress.total:
        return ""
    about = "about " if progress.estimated else ""
    parts = [f"{about}{count(progress.done)} of {count(progress.total)} {progress.unit}"]
    parts += [f"{count(pace.per_s)} {progress.unit}/s"] if pace.per_s is not None else []
    parts += [f"{_seconds(pace.remaining_s)} left"] if pace.remaining_s is not None else []
    return ", ".join(parts)


@contextlib.contextmanager
def shown() -> Iterator[Tell]:
    """Gives what takes the progress as it comes."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from pgtop_tune.bench.datasets.progress import PaceMeter

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[words]}", markup=False),
        TimeElapsedColumn(),
    )
    meter = PaceMeter()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None, words="")

        def show(progress: InitialiseProgress) -> None:
            pace = meter.after(progress, time.monotonic())
            if progress.step != bar.tasks[0].description:
                bar.reset(task, description=progress.step, total=None)
            bar.update(task, completed=progress.done, total=progress.total or None, words=words(progress, pace))

        yield show


class _Lines:
    """Each new step as a line, and where a long one stands every few seconds."""

    def __init__(self) -> None:
        from pgtop_tune.bench.datasets.progress import PaceMeter

        self._meter = PaceMeter()
        self._step = ""
        self._told_s = 0.0

    def __call__(self, progress: InitialiseProgress) -> None:
        now_s = time.monotonic()
        pace = self._meter.after(progress, now_s)
        if progress.step != self._step:
            self._step, self._told_s = progress.step, now_s
            tell(progress.step)
        elif now_s - self._told_s >= LINE_EVERY_S and progress.total:
            self._told_s = now_s
            tell(f"{progress.step}: {words(progress, pace)}")


def _seconds(value: float) -> str:
    text = age(value)
    return text if text[-1].isalpha() else f"{text} s"
