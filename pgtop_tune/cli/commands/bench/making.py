"""What `bench init` does: looks at what is there, asks before it is replaced, checks the disk, makes, tells the
progress and the seconds of each step.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.base.safe_text import printable
from pgtop_tune.base.units import age, count
from pgtop_tune.bench.argv import shell_quoted
from pgtop_tune.bench.datasets.bus import VERSION, BusPlan, parse_size
from pgtop_tune.bench.datasets.bus_make import make_bus
from pgtop_tune.bench.datasets.pgbench_tables import (
    DEFAULT_STEPS,
    Initialised,
    InitialiseProgress,
    PaceMeter,
    PgbenchShape,
    Room,
    StepPace,
    estimated_bytes,
    initialise,
    initialise_argv,
    look_for_room,
)
from pgtop_tune.bench.datasets.recognise import BusFacts, PgbenchFacts, recognise_bus, recognise_pgbench
from pgtop_tune.bench.locate import Pgbench, find_pgbench
from pgtop_tune.cli.commands.bench.request import Dataset, InitRequest
from pgtop_tune.cli.connecting import ConnectionWords, can_ask, opened
from pgtop_tune.cli.exit_codes import Terminated
from pgtop_tune.cli.options import TableFormat
from pgtop_tune.cli.output import say, tell, write_for_programs
from pgtop_tune.cli.signals import run_until_signalled
from pgtop_tune.cli.wiring import endpoint_of, free_bytes_for
from pgtop_tune.model.run_result import INIT_FORMAT
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.sql_session import open_sql_session

# How far the making of a data set is, on stderr: a bar on a terminal, lines elsewhere.

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


# The seconds of each step in which a data set was made, as text, JSON or Markdown.

_HEAD: Final = "init step, s"
_TOTAL: Final = "total"


class StepsMade(Struct, frozen=True):
    """What came of it.

    Attributes:
        title: What was made, as the head of a column: "scale 5".
        facts: Further keys of the JSON object.
        steps_s: (name, seconds) in the order done.
        notes: What a reader of the figures must know.
    """

    dataset: str
    title: str
    facts: Mapping[str, Any]
    steps_s: tuple[tuple[str, float], ...]
    total_s: float
    notes: tuple[str, ...] = ()


def make_data_set(request: InitRequest) -> None:
    """Make the data set, and print the seconds of each step. Raises as `pgbench_making` and `bus_making`."""
    if request.format is not TableFormat.TEXT:
        write_for_programs()
    making = pgbench_making if request.dataset is Dataset.PGBENCH else bus_making
    for line in written(making(request), request.format):
        say(line)


def written(made: StepsMade, format: TableFormat) -> list[str]:
    """Lines for stdout."""
    return _WRITERS[format](made)


def _text(made: StepsMade) -> list[str]:
    rows = [*made.steps_s, (_TOTAL, made.total_s)]
    left = max(len(_HEAD), *(len(name) for name, _ in rows))
    right = max(len(made.title), 8)
    return [
        f"{_HEAD:<{left}}  {made.title:>{right}}",
        *(f"{name:<{left}}  {seconds:>{right}.2f}" for name, seconds in rows),
        *(f"note: {note}" for note in made.notes),
    ]


def _markdown(made: StepsMade) -> list[str]:
    rows = [*made.steps_s, (_TOTAL, made.total_s)]
    return [
        f"| {_HEAD} | {made.title} |",
        "|---|---:|",
        *(f"| {name} | {seconds:.2f} |" for name, seconds in rows),
        *(f"\nNote: {note}." for note in made.notes),
    ]


def _json(made: StepsMade) -> list[str]:
    told = {
        "format": INIT_FORMAT,
        "dataset": made.dataset,
        "title": made.title,
        **made.facts,
        "steps_s": {name: round(seconds, 3) for name, seconds in made.steps_s},
        "total_s": round(made.total_s, 3),
        "notes": list(made.notes),
    }
    return [json.dumps(told, ensure_ascii=False)]


_WRITERS: Final[Mapping[TableFormat, Callable[[StepsMade], list[str]]]] = {
    TableFormat.TEXT: _text,
    TableFormat.MARKDOWN: _markdown,
    TableFormat.JSON: _json,
}


_UNLOGGED: Final = "unlogged tables write no WAL: not representative of tables that survive a crash"
_MOST_JOBS: Final = 4


def pgbench_making(given: InitRequest) -> StepsMade:
    """pgbench's own tables, by pgbench -i."""
    scale = 1 if given.scale is None else given.scale
    shape = PgbenchShape(
        steps=given.steps.replace(" ", "") or DEFAULT_STEPS,
        fillfactor=given.fillfactor,
        partitions=given.partitions or 0,
        partition_method=given.partition_method,
        foreign_keys=given.foreign_keys,
        unlogged=given.unlogged,
        tablespace=given.tablespace,
        index_tablespace=given.index_tablespace,
    )
    shape.words()
    conninfo, found, room = run_until_signalled(_pgbench_found(given.connection, estimated_bytes(scale, shape), shape))
    endpoint = endpoint_of(conninfo)
    pgbench = find_pgbench(given.pgbench, over_tls=endpoint.over_tls)
    argv = initialise_argv(scale, pgbench, endpoint, shape)
    if found is not None and shape.destroys and not found.empty:
        may_replace(conninfo.dbname, "pgbench's tables", found.describe(), force=given.force)
    notes = _room_notes(room, given)
    with _telling_what_is_left("pgbench's tables may be empty or incomplete now: bench init recreates them"):
        done = run_until_signalled(_make_pgbench(conninfo, scale, shape, pgbench))
    facts = {
        "scale": scale,
        "rows": scale * 100_000 if shape.generates else 0,
        "command": shell_quoted(argv),
        "pgbench_version": pgbench.version,
        "unlogged": shape.unlogged,
    }
    notes += (_UNLOGGED,) if shape.unlogged else ()
    return StepsMade(
        dataset="pgbench", title=f"scale {scale}", facts=facts, steps_s=done.steps_s, total_s=done.total_s, notes=notes
    )


def bus_making(given: InitRequest) -> StepsMade:
    """The bus company's tables; what an earlier making left is gone on with."""
    plan = BusPlan(
        tickets=parse_size(given.size or "6M"),
        seed=1 if given.seed is None else given.seed,
        unlogged=given.unlogged,
        foreign_keys=given.foreign_keys,
    )
    jobs = given.jobs or min(_MOST_JOBS, os.cpu_count() or 1)
    conninfo, found, room = run_until_signalled(_bus_found(given.connection, plan))
    anew = found is not None and (given.force or not found.is_of(plan))
    notes: tuple[str, ...] = ()
    if found is not None and not anew and found.fulfils(plan):
        done = Initialised(0.0, ())
        notes += ("it exists already; --force recreates it",)
    else:
        if found is not None and anew and not found.empty:
            may_replace(conninfo.dbname, "a bus data set", found.describe(), force=given.force)
        elif found is not None and not anew:
            tell(f"resuming the existing data set: {found.describe()}")
        notes += _room_notes(room, given)
        again = "the same command without --force" if given.force else "the same command"
        with _telling_what_is_left(f"the tables made so far stay: {again} resumes"):
            done = run_until_signalled(_make_bus(conninfo, plan, anew, jobs))
    facts = {"tickets": plan.tickets, "seed": plan.seed, "version": VERSION, "unlogged": plan.unlogged}
    notes += (_UNLOGGED,) if plan.unlogged else ()
    return StepsMade(
        dataset="bus",
        title=f"{count(plan.tickets)} tickets",
        facts=facts,
        steps_s=done.steps_s,
        total_s=done.total_s,
        notes=notes,
    )


@contextlib.contextmanager
def _telling_what_is_left(words: str) -> Iterator[None]:
    """A making that was cut off, or failed without advice, says how it stands with the tables."""
    try:
        yield
    except Terminated:
        tell(f"stopped; {words}")
        raise
    except LoadProblem as problem:
        raise problem if problem.hint else LoadProblem(problem.message, words) from None


def may_replace(database: str, what: str, found: str, *, force: bool, ask: Callable[[str], str] | None = None) -> None:
    """Asks whether what is there may go.

    Args:
        found: What it is, in one line.
        force: The answer was given on the command line.
        ask: Shows a question and gives the answer; None asks on the terminal.

    Raises:
        LoadProblem: It may not, or there is nobody to ask.
    """
    if force:
        return
    if ask is None and not can_ask():
        raise LoadProblem(
            f"the database {database} holds {what}: {found}",
            "--force replaces them; another database (-d) leaves them alone",
        )
    tell(f"the database {database} holds {what}: {found}")
    answer = (ask or _asked)(f"They will be dropped. Type the name of the database to continue [{database}]: ")
    if answer != database:
        raise LoadProblem("not confirmed; nothing was changed")


def _asked(question: str) -> str:
    print(printable(question), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().rstrip("\n")


def _room_notes(room: Room | None, given: InitRequest) -> tuple[str, ...]:
    if room is None or given.skip_space_check:
        return ()
    note = room.check()
    if note:
        tell(note)
    return (note,) if note else ()


async def _pgbench_found(
    words: ConnectionWords, estimated_bytes: int, shape: PgbenchShape
) -> tuple[ConnInfo, PgbenchFacts | None, Room]:
    async with opened(words) as (sql_session, conninfo):
        found = await recognise_pgbench(sql_session)
        freed = found.size_bytes if found is not None and "d" in shape.steps else 0
        free_bytes = await free_bytes_for(sql_session)
        room = await look_for_room(sql_session, estimated_bytes, freed, free_bytes, shape.tablespace)
        return conninfo.pinned(sql_session.reached), found, room


async def _bus_found(words: ConnectionWords, plan: BusPlan) -> tuple[ConnInfo, BusFacts | None, Room]:
    async with opened(words) as (sql_session, conninfo):
        found = await recognise_bus(sql_session)
        there = found.size_bytes if found is not None else 0
        free_bytes = await free_bytes_for(sql_session)
        room = await look_for_room(sql_session, plan.estimated_bytes, there, free_bytes)
        return conninfo.pinned(sql_session.reached), found, room


async def _make_pgbench(conninfo: ConnInfo, scale: int, shape: PgbenchShape, pgbench: Pgbench) -> Initialised:
    sql_session = await open_sql_session(conninfo)

    try:
        with shown() as tell_progress:
            return await initialise(endpoint_of(conninfo), scale, pgbench, tell_progress, shape, sql_session)
    finally:
        await sql_session.aclose()


async def _make_bus(conninfo: ConnInfo, plan: BusPlan, anew: bool, jobs: int) -> Initialised:
    with shown() as tell_progress:
        return await make_bus(lambda: open_sql_session(conninfo), plan, anew=anew, jobs=jobs, tell=tell_progress)
