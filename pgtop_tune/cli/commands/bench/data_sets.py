"""`bench init`: recognise a data set, ask before replacing it, check the disk, create the tables, report each step."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any, Final

from msgspec import Struct
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.base.safe_text import printable
from pgtop_tune.base.tables import Table, aligned_text
from pgtop_tune.base.units import about, age, count
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
    Tell,
    estimated_bytes,
    initialise,
    initialise_argv,
    look_for_room,
)
from pgtop_tune.bench.datasets.recognise import BusFacts, PgbenchFacts, recognise_bus, recognise_pgbench
from pgtop_tune.bench.locate import Pgbench, find_pgbench
from pgtop_tune.cli.commands.bench import Dataset, InitRequest
from pgtop_tune.cli.connections import ConnectionWords, opened
from pgtop_tune.cli.exit_codes import Terminated
from pgtop_tune.cli.options import TableFormat
from pgtop_tune.cli.output import can_ask, say, tell, write_for_programs
from pgtop_tune.cli.signals import run_until_signalled
from pgtop_tune.cli.wiring import endpoint_of, free_bytes_for
from pgtop_tune.model.run_result import INIT_FORMAT
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.sql_session import open_sql_session

# Progress on stderr: a bar on a terminal, lines elsewhere.

LINE_EVERY_S: Final = 5.0


def progress_words(progress: InitialiseProgress, pace: StepPace) -> str:
    """Return rows, pace and time left, as in "1.20M of 6.00M rows, 310k rows/s, 15 s left"; "" without a count."""
    if not progress.total:
        return ""
    about = "about " if progress.estimated else ""
    parts = [f"{about}{count(progress.done)} of {count(progress.total)} {progress.unit}"]
    parts += [f"{count(pace.per_s)} {progress.unit}/s"] if pace.per_s is not None else []
    parts += [f"{_seconds(pace.remaining_s)} left"] if pace.remaining_s is not None else []
    return ", ".join(parts)


@contextmanager
def progress_shown() -> Iterator[Tell]:
    """Yield a function that shows progress."""
    if not sys.stderr.isatty():
        yield _ProgressLines()
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
            bar.update(
                task, completed=progress.done, total=progress.total or None, words=progress_words(progress, pace)
            )

        yield show


class _ProgressLines:
    """Prints each new step, and the progress of a long one every few seconds."""

    def __init__(self) -> None:
        self._meter = PaceMeter()
        self._step = ""
        self._printed_s = 0.0

    def __call__(self, progress: InitialiseProgress) -> None:
        now_s = time.monotonic()
        pace = self._meter.after(progress, now_s)
        if progress.step != self._step:
            self._step, self._printed_s = progress.step, now_s
            tell(progress.step)
        elif now_s - self._printed_s >= LINE_EVERY_S and progress.total:
            self._printed_s = now_s
            tell(f"{progress.step}: {progress_words(progress, pace)}")


def _seconds(value: float) -> str:
    text = age(value)
    return text if text[-1].isalpha() else f"{text} s"


# Seconds of each step as text, JSON or Markdown.

_HEAD: Final = "init step, s"


class CreatedDataSet(Struct, frozen=True):
    """A data set that was created.

    Attributes:
        title: Head of its column: "scale 5".
        facts: Further keys of the JSON object.
        steps_s: (name, seconds) in the order done.
        notes: Doubts about the figures.
    """

    dataset: str
    title: str
    facts: Mapping[str, Any]
    steps_s: tuple[tuple[str, float], ...]
    total_s: float
    notes: tuple[str, ...] = ()


def make_data_set(request: InitRequest) -> None:
    """Create the data set, and print the seconds of each step.

    Raises:
        PgtopError: An option belongs to the other data set, or the data set cannot be created.
    """
    request.check()
    if request.format is not TableFormat.TEXT:
        write_for_programs()
    create = create_pgbench_tables if request.dataset is Dataset.PGBENCH else create_bus_tables
    created = create(request)
    for line in step_lines(created, request.format) if created is not None else ():
        say(line)


def _say_plan(plan_text: str, existing: PgbenchFacts | BusFacts | None) -> None:
    """Print what --dry-run leaves undone."""
    say(plan_text)
    if existing is not None:
        say(f"the database has a data set already: {existing.describe()}")


def step_lines(created: CreatedDataSet, format: TableFormat) -> list[str]:
    """Return the seconds of each step as lines."""
    if format is TableFormat.JSON:
        answer = {
            "format": INIT_FORMAT,
            "dataset": created.dataset,
            "title": created.title,
            **created.facts,
            "steps_s": {name: round(seconds, 3) for name, seconds in created.steps_s},
            "total_s": round(created.total_s, 3),
            "notes": created.notes,
        }
        return [json.dumps(answer, ensure_ascii=False)]
    rows = [(name, f"{seconds:.2f}") for name, seconds in (*created.steps_s, ("total", created.total_s))]
    if format is TableFormat.MARKDOWN:
        table = [(_HEAD, created.title), *rows]
        head, *body = (f"| {name} | {cell} |" for name, cell in table)
        return [head, "|---|---:|", *body, *(f"\nNote: {note}." for note in created.notes)]
    table_text = aligned_text(Table((_HEAD, f"{created.title:>8}"), tuple(rows), frozenset({1})))
    return [table_text, *(f"note: {note}" for note in created.notes)]


_UNLOGGED: Final = "unlogged tables write no WAL: results do not apply to tables that survive a crash"
_MOST_JOBS: Final = 4


def create_pgbench_tables(request: InitRequest) -> CreatedDataSet | None:
    """Create pgbench's own tables with pgbench -i; with --dry-run, return None.

    Raises:
        PgtopError: The operator keeps an existing data set, the disk is too small, or pgbench fails.
    """
    scale = 1 if request.scale is None else request.scale
    shape = PgbenchShape(
        steps=request.steps.replace(" ", "") or DEFAULT_STEPS,
        fillfactor=request.fillfactor,
        partitions=request.partitions or 0,
        partition_method=request.partition_method,
        foreign_keys=request.foreign_keys,
        unlogged=request.unlogged,
        tablespace=request.tablespace,
        index_tablespace=request.index_tablespace,
    )
    shape.words()
    conninfo, existing, room = run_until_signalled(
        _pgbench_facts(request.connection, estimated_bytes(scale, shape), shape)
    )
    endpoint = endpoint_of(conninfo)
    pgbench = find_pgbench(request.pgbench, over_tls=endpoint.over_tls)
    argv = initialise_argv(scale, pgbench, endpoint, shape)
    if request.dry_run:
        _say_plan(f"scale {scale}, about {about(estimated_bytes(scale, shape))}: {shell_quoted(argv)}", existing)
        return None
    if existing is not None and shape.destroys and not existing.empty:
        may_replace(conninfo.dbname, "pgbench's tables", existing.describe(), force=request.force)
    notes = _room_notes(room, request)
    with _telling_state("pgbench's tables may be empty or incomplete: `bench init` recreates them"):
        done = run_until_signalled(_run_pgbench(conninfo, scale, shape, pgbench))
    facts = {
        "scale": scale,
        "rows": scale * 100_000 if shape.generates else 0,
        "command": shell_quoted(argv),
        "pgbench_version": pgbench.version,
        "unlogged": shape.unlogged,
    }
    notes += (_UNLOGGED,) if shape.unlogged else ()
    return CreatedDataSet(
        dataset="pgbench", title=f"scale {scale}", facts=facts, steps_s=done.steps_s, total_s=done.total_s, notes=notes
    )


def create_bus_tables(request: InitRequest) -> CreatedDataSet | None:
    """Create the bus company's tables, or resume their creation; with --dry-run, return None.

    Raises:
        PgtopError: As `create_pgbench_tables`.
    """
    plan = BusPlan(
        tickets=parse_size(request.size or "6M"),
        seed=1 if request.seed is None else request.seed,
        unlogged=request.unlogged,
        foreign_keys=request.foreign_keys,
    )
    jobs = request.jobs or min(_MOST_JOBS, os.cpu_count() or 1)
    conninfo, existing, room = run_until_signalled(_bus_facts(request.connection, plan))
    if request.dry_run:
        _say_plan(f"{count(plan.tickets)} tickets, about {about(plan.estimated_bytes)}", existing)
        return None
    anew = existing is not None and (request.force or not existing.is_of(plan))
    notes: tuple[str, ...] = ()
    if existing is not None and not anew and existing.fulfils(plan):
        done = Initialised(0.0, ())
        notes += ("the data set already exists; --force recreates it",)
    else:
        if existing is not None and anew and not existing.empty:
            may_replace(conninfo.dbname, "a bus data set", existing.describe(), force=request.force)
        elif existing is not None and not anew:
            tell(f"resuming the existing data set: {existing.describe()}")
        notes += _room_notes(room, request)
        again = "the same command without --force" if request.force else "the same command"
        with _telling_state(f"the tables created so far are kept: {again} resumes"):
            done = run_until_signalled(_run_bus(conninfo, plan, anew, jobs))
    facts = {"tickets": plan.tickets, "seed": plan.seed, "version": VERSION, "unlogged": plan.unlogged}
    notes += (_UNLOGGED,) if plan.unlogged else ()
    return CreatedDataSet(
        dataset="bus",
        title=f"{count(plan.tickets)} tickets",
        facts=facts,
        steps_s=done.steps_s,
        total_s=done.total_s,
        notes=notes,
    )


@contextmanager
def _telling_state(state: str) -> Iterator[None]:
    """Tell the state of the tables after a signal, or after a failure without a hint."""
    try:
        yield
    except Terminated:
        tell(f"stopped; {state}")
        raise
    except LoadProblem as problem:
        raise problem if problem.hint else LoadProblem(problem.message, state) from None


def may_replace(database: str, tables: str, size: str, *, force: bool, ask: Callable[[str], str] | None = None) -> None:
    """Ask whether a data set may be replaced.

    Args:
        size: The existing tables in one line.
        force: The command line has given the answer.
        ask: Shows a question and returns the answer; None asks on the terminal.

    Raises:
        LoadProblem: It may not, or there is no terminal to ask on.
    """
    if force:
        return
    message = f"the database {database} contains {tables}: {size}"
    if ask is None and not can_ask():
        raise LoadProblem(message, "pass --force to replace them, or another database with -d")
    tell(message)
    answer = (ask or _answer)(f"They will be dropped. Type the name of the database to continue [{database}]: ")
    if answer != database:
        raise LoadProblem("not confirmed; nothing was changed")


def _answer(question: str) -> str:
    print(printable(question), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().rstrip("\n")


def _room_notes(room: Room | None, request: InitRequest) -> tuple[str, ...]:
    if room is None or request.skip_space_check:
        return ()
    note = room.check()
    if note:
        tell(note)
    return (note,) if note else ()


async def _pgbench_facts(
    connection: ConnectionWords, estimated_bytes: int, shape: PgbenchShape
) -> tuple[ConnInfo, PgbenchFacts | None, Room]:
    async with opened(connection) as (sql_session, conninfo):
        facts = await recognise_pgbench(sql_session)
        freed = facts.size_bytes if facts is not None and "d" in shape.steps else 0
        free_bytes = await free_bytes_for(sql_session)
        room = await look_for_room(sql_session, estimated_bytes, freed, free_bytes, shape.tablespace)
        return conninfo.pinned(sql_session.reached), facts, room


async def _bus_facts(connection: ConnectionWords, plan: BusPlan) -> tuple[ConnInfo, BusFacts | None, Room]:
    async with opened(connection) as (sql_session, conninfo):
        facts = await recognise_bus(sql_session)
        freed = facts.size_bytes if facts is not None else 0
        room = await look_for_room(sql_session, plan.estimated_bytes, freed, await free_bytes_for(sql_session))
        return conninfo.pinned(sql_session.reached), facts, room


async def _run_pgbench(conninfo: ConnInfo, scale: int, shape: PgbenchShape, pgbench: Pgbench) -> Initialised:
    async with aclosing(await open_sql_session(conninfo)) as sql_session:
        with progress_shown() as show:
            return await initialise(endpoint_of(conninfo), scale, pgbench, show, shape, sql_session)


async def _run_bus(conninfo: ConnInfo, plan: BusPlan, anew: bool, jobs: int) -> Initialised:
    with progress_shown() as show:
        return await make_bus(lambda: open_sql_session(conninfo), plan, anew=anew, jobs=jobs, tell=show)
