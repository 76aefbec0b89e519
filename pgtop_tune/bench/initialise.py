"""pgbench -i: its tables, made and filled, with progress.

Of making rows on the server (step G), vacuum and keys pgbench says nothing; how far they are is asked of the server.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import Final

from msgspec import Struct

from pgtop_tune.bench.argv import endpoint_words
from pgtop_tune.bench.datasets.pgbench_tables import PgbenchShape, check_scale, heap_bytes
from pgtop_tune.bench.datasets.progress import InitialiseProgress, StepWatch
from pgtop_tune.bench.locate import Pgbench
from pgtop_tune.bench.messages import BoundedText, LineSplitter, hint_for, last_words
from pgtop_tune.bench.ports import LoadEndpoint, SqlSession, environment, safe_path, with_settings
from pgtop_tune.bench.run_directory import RunDirectory, base_directory, sweep, unused_name
from pgtop_tune.errors import LoadProblem
from pgtop_tune.process.guarded_program import GuardedAsync, start_guarded_async

_ACCOUNTS_PER_SCALE: Final = 100_000

_TUPLES: Final = re.compile(r"(\d{1,18}) of (\d{1,18}) tuples \(\d+%\)(?: of (\S+))? done")
_STEP: Final = re.compile(r"([a-z][a-z -]*(?: \([a-z-]+\))?)\.\.\.")
_DONE: Final = re.compile(r"done in (\d{1,18}\.\d+) s(?: \((.*)\))?\.")
_DONE_STEP: Final = re.compile(r"([a-z -]+) (\d{1,18}\.\d+) s")


class Initialised(Struct, frozen=True):
    """How long it took.

    Attributes:
        steps_s: (name, seconds) in the order done: "drop tables", "client-side generate", "primary keys", …
    """

    total_s: float
    steps_s: tuple[tuple[str, float], ...]


def parse_step(line: str, step: str) -> InitialiseProgress | None:
    """What a line of stderr says of the progress; None when nothing.

    Args:
        step: The step under way, for lines that only count rows.
    """
    tuples = _TUPLES.match(line)
    if tuples:
        return InitialiseProgress(step, int(tuples[1]), int(tuples[2]))
    began = _STEP.fullmatch(line)
    return InitialiseProgress(began[1]) if began else None


def parse_done(line: str) -> Initialised | None:
    """The last line, "done in 3.57 s (drop tables 0.00 s, …).", else None."""
    done = _DONE.fullmatch(line)
    if done is None:
        return None
    return Initialised(float(done[1]), tuple((m[1].strip(), float(m[2])) for m in _DONE_STEP.finditer(done[2] or "")))


_AS_USUAL: Final = PgbenchShape()


def initialise_argv(scale: int, pgbench: Pgbench, endpoint: LoadEndpoint, shape: PgbenchShape = _AS_USUAL) -> list[str]:
    """The command line; holds no password.

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
    hand: SqlSession | None = None,
) -> Initialised:
    """Makes pgbench's tables: 100,000 accounts, some 15 MB per unit of scale.

    When the task is cancelled, pgbench is ended before it returns, and has cancelled its statement.

    Args:
        shape: Steps, fill factor, partitions, …; as usual, tables that are there are dropped first.
        hand: Asks the server how far steps are of which pgbench says nothing; None: nobody asks.

    Raises:
        LoadProblem: It cannot be started or failed; has its own words and a hint.
    """
    argv = initialise_argv(scale, pgbench, endpoint, shape)
    if hand is not None:
        endpoint = with_settings(endpoint, await safe_path(hand))
    base = base_directory()
    await asyncio.to_thread(sweep, base)
    directory = RunDirectory(unused_name(base))
    try:
        passfile = directory.write_passfile(endpoint.password) if endpoint.password is not None else None
        guarded = await start_guarded_async(
            argv, signal="INT", remove=(directory.path,), env=environment(endpoint, pgbench, passfile)
        )
        try:
            watch = StepWatch(on_progress, hand, scale * _ACCOUNTS_PER_SCALE, heap_bytes(scale, shape.fillfactor))
            return await _follow(guarded, watch)
        finally:
            if guarded.returncode is None:
                await asyncio.shield(guarded.stop())
    except OSError as problem:
        raise LoadProblem(f"pgbench cannot be started: {problem}") from problem
    finally:
        directory.remove()


async def _follow(guarded: GuardedAsync, watch: StepWatch) -> Initialised:
    # pgbench -i writes nothing of interest there, but must not wait for us to read it.
    nothing = asyncio.create_task(guarded.stdout.read())
    said, result = BoundedText(), None
    try:
        async for line, progress in _lines(guarded.stderr):
            result = parse_done(line) or result
            if progress is not None:
                watch.tell(progress)
            elif not line.startswith("NOTICE:"):
                said.add(line)
        status = await guarded.wait()
    finally:
        nothing.cancel()
        await watch.end()
    if status or result is None:
        words = last_words(said.text()) or f"pgbench -i printed nothing; exit status {status}"
        raise LoadProblem(words, hint_for(words))
    return result


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[tuple[str, InitialiseProgress | None]]:
    """Each line of stderr, and what it says of the progress."""
    splitter, step = LineSplitter(), ""
    while data := await stream.read(2**16):
        for line in splitter.feed(data.replace(b"\r", b"\n")):
            progress = parse_step(line, step)
            step = progress.step if progress is not None else step
            yield line, progress
