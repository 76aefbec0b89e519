"""pgbench's own tables: their options, the room that they need, and pgbench -i with the progress of its steps.

Source: pgbench's documentation, initialisation options of 13 to 19. Progress of steps without output of their own:
pg_stat_progress_vacuum heap_blks_scanned and heap_blks_total; pg_stat_progress_create_index blocks_done and
blocks_total; the growth of pg_database_size() while one statement makes pgbench's rows. Free space: pg_settings
data_directory and max_wal_size, pg_database.dattablespace, pg_tablespace_location().
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import LoadProblem, PgtopError, ServerProblem
from pgtop_tune.base.foreign_answers import decodes
from pgtop_tune.base.units import size
from pgtop_tune.bench.argv import endpoint_words
from pgtop_tune.bench.locate import Pgbench
from pgtop_tune.bench.messages import BoundedText, LineSplitter, hint_for, last_words
from pgtop_tune.bench.places import RunDirectory, base_directory, sweep, unused_name
from pgtop_tune.bench.ports import LoadEndpoint, SqlSession, environment, safe_path, unlimited, with_settings
from pgtop_tune.process.guarded_program import GuardedAsync, start_guarded_async


class StepPace(Struct, frozen=True):
    """The speed of the step under way.

    Attributes:
        per_s: Rows or blocks since the step began, those there already left out; None before there is a second of it.
        remaining_s: At this pace; None where it cannot be said.
    """

    per_s: float | None = None
    remaining_s: float | None = None


class PaceMeter:
    """Takes progress as it comes and says the pace."""

    def __init__(self) -> None:
        self._of = ("", 0)
        self._first: tuple[float, int] | None = None

    def after(self, progress: InitialiseProgress, now_s: float) -> StepPace:
        """Return the pace with this progress.

        Args:
            now_s: On a monotonic clock.
        """
        if (progress.step, progress.total) != self._of:
            self._of, self._first = (progress.step, progress.total), (now_s, progress.done)
        if self._first is None or not progress.total:
            return StepPace()
        since_s, before = self._first
        elapsed_s, done_since = now_s - since_s, progress.done - before
        if elapsed_s < 1.0 or done_since <= 0:
            return StepPace()
        rate = done_since / elapsed_s
        return StepPace(rate, max(0.0, (progress.total - progress.done) / rate))


SERVER_SIDE: Final = "generating data (server-side)"
"""pgbench's words for step G."""
LOOK_EVERY_S: Final = 1.0
_ALMOST: Final = 0.99
"""An estimate never says that it is done."""

_SIZE: Final = "SELECT pg_database_size(current_database())"
_VACUUM: Final = (
    "SELECT heap_blks_scanned, heap_blks_total FROM pg_stat_progress_vacuum"
    " WHERE datname = current_database() ORDER BY heap_blks_total DESC LIMIT 1"
)
_INDEX: Final = (
    "SELECT blocks_done, blocks_total FROM pg_stat_progress_create_index"
    " WHERE datname = current_database() ORDER BY blocks_total DESC LIMIT 1"
)
_BLOCKS: Final = {
    "vacuuming": _VACUUM,
    "vacuum": _VACUUM,
    "creating primary keys": _INDEX,
    "primary keys": _INDEX,
    "indexes": _INDEX,
}
"""Steps in pgbench's words and in ours → the blocks done and all."""


class InitialiseProgress(Struct, frozen=True):
    """The progress of a step.

    Attributes:
        step: In pgbench's words, or ours: "generating data (client-side)", "vacuuming", …
        done: Of `unit`, made so far; 0 in other steps.
        total: There will be; 0 where nobody says.
        estimated: `done` is read off the size of the database.
        unit: rows, or blocks of a table that is gone through.
    """

    step: str
    done: int = 0
    total: int = 0
    estimated: bool = False
    unit: str = "rows"


Tell = Callable[[InitialiseProgress], None]


class StepWatch:
    """Passes progress on, and adds to it what the server says.

    Args:
        tell: Told of both.
        sql_session: A session that nobody else uses; None adds nothing.
        rows: There will be after step G.
        rows_bytes: They will take.
    """

    def __init__(self, tell: Tell, sql_session: SqlSession | None, rows: int = 0, rows_bytes: int = 1) -> None:
        self._tell = tell
        self._sql_session = sql_session
        self._rows = rows
        self._rows_bytes = rows_bytes
        self._looking: asyncio.Task[None] | None = None

    def tell(self, progress: InitialiseProgress) -> None:
        """Take progress of the maker; begin to ask the server when the step has no progress of its own."""
        if self._looking is not None:
            self._looking.cancel()
        self._tell(progress)
        if self._sql_session is None:
            return
        if progress.step == SERVER_SIDE:
            self._looking = asyncio.create_task(self._growth(self._sql_session))
        elif progress.step in _BLOCKS:
            self._looking = asyncio.create_task(self._blocks(self._sql_session, progress.step))

    async def end(self) -> None:
        """Ask no more; a question under way is over when this returns."""
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking

    @decodes
    async def _growth(self, sql_session: SqlSession) -> None:
        # Progress is a courtesy: a server that refuses to say its size refuses nothing else.
        with contextlib.suppress(PgtopError):
            [(before,)] = await sql_session.rows(_SIZE)
            while True:
                await asyncio.sleep(LOOK_EVERY_S)
                [(now,)] = await sql_session.rows(_SIZE)
                share = max(0.0, (int(str(now)) - int(str(before))) / self._rows_bytes)
                done = int(min(share, _ALMOST) * self._rows)
                self._tell(InitialiseProgress(SERVER_SIDE, done, self._rows, estimated=True))

    @decodes
    async def _blocks(self, sql_session: SqlSession, step: str) -> None:
        with contextlib.suppress(PgtopError):
            while True:
                await asyncio.sleep(LOOK_EVERY_S)
                for done, total in await sql_session.rows(_BLOCKS[step]):
                    self._tell(InitialiseProgress(step, int(str(done)), int(str(total)), unit="blocks"))


SPARE: Final = 1.1
"""For what an estimate does not know: sorting, free space maps, other tables that grow."""

_DIRECTORY: Final = """
SELECT coalesce(nullif(pg_tablespace_location(coalesce(
           (SELECT oid FROM pg_tablespace WHERE spcname = nullif(%s::text, '')),
           (SELECT dattablespace FROM pg_database WHERE datname = current_database()))), ''),
       current_setting('data_directory')),
       (SELECT setting::bigint * 1024 * 1024 FROM pg_settings WHERE name = 'max_wal_size')
"""


class Room(Struct, frozen=True):
    """The disk space that a data set needs, and the space that is free.

    Attributes:
        needed_bytes: Data, with what WAL may take until a checkpoint frees it.
        available_bytes: None when it cannot be said; `reason` says why.
    """

    needed_bytes: int
    available_bytes: int | None
    reason: str = ""

    def check(self) -> str:
        """Return a note for the operator before the start; "" when there is nothing to say.

        Raises:
            LoadProblem: It will not fit.
        """
        if not self.needed_bytes:
            return ""
        if self.available_bytes is None:
            return f"needs about {size(self.needed_bytes)} of disk space; free space is unknown: {self.reason}"
        if self.available_bytes < self.needed_bytes:
            raise LoadProblem(
                f"needs about {size(self.needed_bytes)} of disk space, but only {size(self.available_bytes)} is free",
                "choose a smaller data set, free some space, or pass --skip-space-check",
            )
        return ""


@decodes
async def look_for_room(
    sql_session: SqlSession,
    estimated_bytes: int,
    freed_bytes: int,
    free_bytes: Callable[[str], int | str],
    tablespace: str = "",
) -> Room:
    """Compare an estimate with the file system of the data.

    Args:
        freed_bytes: Bytes of the data set that will be dropped first.
        free_bytes: Bytes available at a directory of the server's machine, or why that cannot be said.
        tablespace: Where the tables are to be; "" for the database's own.
    """
    try:
        [(directory, max_wal_bytes)] = await sql_session.rows(_DIRECTORY, [tablespace])
    except ServerProblem:
        return Room(int(estimated_bytes * SPARE), None, "this role may not see the server's data directory")
    # WAL of a tablespace lies elsewhere; counted all the same, it errs on the safe side.
    wal_bytes = min(estimated_bytes, int(str(max_wal_bytes)))
    needed = max(0, int((estimated_bytes + wal_bytes) * SPARE) - freed_bytes)
    free = free_bytes(str(directory))
    return Room(needed, free) if isinstance(free, int) else Room(needed, None, free)


STEPS: Final = {
    "d": "drop tables",
    "t": "create tables",
    "g": "client-side generate",
    "G": "server-side generate",
    "v": "vacuum",
    "p": "primary keys",
    "f": "foreign keys",
}
"""Letters of -I, and pgbench's names of the steps in its last line."""
DEFAULT_STEPS: Final = "dtgvp"
PARTITION_METHODS: Final = ("range", "hash")
LARGEST_SCALE: Final = 1_000_000

_LETTERS: Final = re.compile(rf"[{''.join(STEPS)} ]+")
_DESTROYING: Final = frozenset("dgG")
_USUAL_BLOCK_BYTES: Final = 8192
_BLOCK_HEADER_BYTES: Final = 24
_ACCOUNT: Final = 132
"""Header 24, three integers, 85 for filler, aligned to 128; 4 for the line pointer."""
_INDEX_BYTES_PER_SCALE: Final = 2_260_000


class PgbenchShape(Struct, frozen=True):
    """Options of pgbench -i besides the scale.

    Attributes:
        steps: Letters of `STEPS`, in the order wanted; blanks count for nothing.
        fillfactor: Of accounts, tellers and branches, 10 to 100; None leaves it to pgbench (100).
        partitions: Of pgbench_accounts; 0 for none.
        partition_method: range or hash; "" leaves it to pgbench (range).
        unlogged: Without WAL: quicker, and not representative.
        tablespace: "" for the database's own.
    """

    steps: str = DEFAULT_STEPS
    fillfactor: int | None = None
    partitions: int = 0
    partition_method: str = ""
    foreign_keys: bool = False
    unlogged: bool = False
    tablespace: str = ""
    index_tablespace: str = ""

    @property
    def destroys(self) -> bool:
        """Return whether existing tables would be dropped or emptied."""
        return bool(_DESTROYING & set(self.steps))

    @property
    def generates(self) -> bool:
        """Return whether rows are made."""
        return bool({"g", "G"} & set(self.steps))

    def words(self) -> list[str]:
        """Return options for the command line.

        Raises:
            LoadProblem: One that pgbench would refuse.
        """
        for is_wrong, message in _REFUSALS:
            if is_wrong(self):
                raise LoadProblem(message)
        options = [f"--init-steps={self.steps.replace(' ', '')}"] if self.steps != DEFAULT_STEPS else []
        options += [f"--fillfactor={self.fillfactor}"] if self.fillfactor is not None else []
        options += [f"--partitions={self.partitions}"] if self.partitions else []
        options += [f"--partition-method={self.partition_method}"] if self.partition_method else []
        options += ["--foreign-keys"] if self.foreign_keys else []
        options += ["--unlogged-tables"] if self.unlogged else []
        options += [f"--tablespace={self.tablespace}"] if self.tablespace else []
        options += [f"--index-tablespace={self.index_tablespace}"] if self.index_tablespace else []
        return options


_REFUSALS: Final[tuple[tuple[Callable[[PgbenchShape], object], str], ...]] = (
    (
        lambda shape: not _LETTERS.fullmatch(shape.steps),
        "steps are letters from "
        + "".join(STEPS)
        + ": "
        + ", ".join(f"{letter} {name}" for letter, name in STEPS.items()),
    ),
    (
        lambda shape: shape.fillfactor is not None and not 10 <= shape.fillfactor <= 100,
        "the fill factor must be from 10 to 100",
    ),
    (lambda shape: not 0 <= shape.partitions <= 100_000, "partitions must be from 0 (none) to 100000"),
    (
        lambda shape: shape.partition_method not in ("", *PARTITION_METHODS),
        f"the partition method is one of {', '.join(PARTITION_METHODS)}",
    ),
    (
        lambda shape: shape.partition_method and not shape.partitions,
        "a partition method needs a number of partitions (--partitions)",
    ),
)


def check_scale(scale: int) -> None:
    """Refuse a scale that pgbench would refuse.

    Raises:
        LoadProblem: Names the range.
    """
    if not 1 <= scale <= LARGEST_SCALE:
        raise LoadProblem(f"the scale must be from 1 to {LARGEST_SCALE}")


def heap_bytes(scale: int, fillfactor: int | None = None, block_bytes: int = _USUAL_BLOCK_BYTES) -> int:
    """Return bytes of pgbench_accounts without indexes: 61 rows a block of 8 kB at fill factor 100."""
    free = block_bytes * (100 - (fillfactor or 100)) // 100
    rows_per_block = max(1, (block_bytes - _BLOCK_HEADER_BYTES - free) // _ACCOUNT)
    return -(-scale * 100_000 // rows_per_block) * block_bytes


def estimated_bytes(scale: int, shape: PgbenchShape) -> int:
    """Return bytes of all tables and indexes when they are made: some 15.6 MB per unit of scale."""
    if not shape.generates:
        return 0
    index = _INDEX_BYTES_PER_SCALE * scale if "p" in shape.steps else 0
    return heap_bytes(scale, shape.fillfactor) + index + 200 * 1024


# pgbench -i: its tables, made and filled, with progress.
#
# Of making rows on the server (step G), vacuum and keys pgbench says nothing; how far they are is asked of the
# server.

_ACCOUNTS_PER_SCALE: Final = 100_000

_TUPLES: Final = re.compile(r"(\d{1,18}) of (\d{1,18}) tuples \(\d+%\)(?: of (\S+))? done")
_STEP: Final = re.compile(r"([a-z][a-z -]*(?: \([a-z-]+\))?)\.\.\.")
_DONE: Final = re.compile(r"done in (\d{1,18}\.\d+) s(?: \((.*)\))?\.")
_DONE_STEP: Final = re.compile(r"([a-z -]+) (\d{1,18}\.\d+) s")


class Initialised(Struct, frozen=True):
    """The duration of an initialisation.

    Attributes:
        steps_s: (name, seconds) in the order done: "drop tables", "client-side generate", "primary keys", …
    """

    total_s: float
    steps_s: tuple[tuple[str, float], ...]


def parse_step(line: str, step: str) -> InitialiseProgress | None:
    """Read progress from a line of stderr; None where the line has none.

    Args:
        step: The step under way, for lines that only count rows.
    """
    tuples = _TUPLES.match(line)
    if tuples:
        return InitialiseProgress(step, int(tuples[1]), int(tuples[2]))
    began = _STEP.fullmatch(line)
    return InitialiseProgress(began[1]) if began else None


def parse_done(line: str) -> Initialised | None:
    """Return the last line, "done in 3.57 s (drop tables 0.00 s, …).", else None."""
    done = _DONE.fullmatch(line)
    if done is None:
        return None
    return Initialised(float(done[1]), tuple((m[1].strip(), float(m[2])) for m in _DONE_STEP.finditer(done[2] or "")))


_AS_USUAL: Final = PgbenchShape()


def initialise_argv(scale: int, pgbench: Pgbench, endpoint: LoadEndpoint, shape: PgbenchShape = _AS_USUAL) -> list[str]:
    """Return the command line; holds no password.

    Raises:
        LoadProblem: A scale or an option that pgbench would refuse.
    """
    check_scale(scale)
    return [str(pgbench.path), "-i", "-s", str(scale), *shape.words(), *endpoint_words(endpoint)]


async def initialise(
    endpoint: LoadEndpoint,
    scale: int,
    pgbench: Pgbench,
    on_progress: Callable[[InitialiseProgress], None] = lambda progress: None,
    shape: PgbenchShape = _AS_USUAL,
    sql_session: SqlSession | None = None,
) -> Initialised:
    """Make pgbench's tables: 100,000 accounts, some 15 MB per unit of scale.

    When the task is cancelled, pgbench is ended before it returns, and has cancelled its statement.

    Args:
        shape: Steps, fill factor, partitions, …; as usual, tables that are there are dropped first.
        sql_session: Asks the server how far steps are of which pgbench says nothing; None: nobody asks.

    Raises:
        LoadProblem: It cannot be started or failed; has its own words and a hint.
    """
    argv = initialise_argv(scale, pgbench, endpoint, shape)
    if sql_session is not None:
        endpoint = with_settings(endpoint, (*await safe_path(sql_session), *await unlimited(sql_session)))
    base = base_directory()
    await asyncio.to_thread(sweep, base)
    directory = RunDirectory(unused_name(base))
    try:
        passfile = directory.write_passfile(endpoint.password) if endpoint.password is not None else None
        guarded = await start_guarded_async(
            argv, signal="INT", remove=(directory.path,), env=environment(endpoint, pgbench, passfile)
        )
        try:
            heap = heap_bytes(scale, shape.fillfactor, await _block_bytes(sql_session))
            watch = StepWatch(on_progress, sql_session, scale * _ACCOUNTS_PER_SCALE, heap)
            return await _follow(guarded, watch)
        finally:
            if guarded.returncode is None:
                await asyncio.shield(guarded.stop())
    except OSError as problem:
        raise LoadProblem(f"pgbench cannot be started: {problem}") from problem
    finally:
        directory.remove()


async def _block_bytes(sql_session: SqlSession | None) -> int:
    if sql_session is None:
        return _USUAL_BLOCK_BYTES
    [(size,)] = await sql_session.rows("SELECT current_setting('block_size')::int")
    return int(str(size))


async def _follow(guarded: GuardedAsync, watch: StepWatch) -> Initialised:
    # pgbench -i writes nothing of interest there, but must not wait for us to read it.
    nothing = asyncio.create_task(guarded.stdout.read())
    output, result = BoundedText(), None
    try:
        async for line, progress in _lines(guarded.stderr):
            result = parse_done(line) or result
            if progress is not None:
                watch.tell(progress)
            elif not line.startswith("NOTICE:"):
                output.add(line)
        status = await guarded.wait()
    finally:
        nothing.cancel()
        await watch.end()
    if status or result is None:
        message = last_words(output.text()) or f"pgbench -i printed nothing; exit status {status}"
        raise LoadProblem(message, hint_for(message))
    return result


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[tuple[str, InitialiseProgress | None]]:
    """Yield each line of stderr, and what it says of the progress."""
    splitter, step = LineSplitter(), ""
    while data := await stream.read(2**16):
        for line in splitter.feed(data.replace(b"\r", b"\n")):
            progress = parse_step(line, step)
            step = progress.step if progress is not None else step
            yield line, progress
