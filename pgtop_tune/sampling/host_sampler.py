"""Sampler of the machine that the server runs on, and of no other: here, or through the server's own /proc over SQL."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem
from pgtop_tune.host.block_devices import DiskCap, server_directories
from pgtop_tune.host.choice import Host
from pgtop_tune.host.source_names import HostSource
from pgtop_tune.model.absence import NOT_YET, Reason, Unavailable
from pgtop_tune.model.host import HostSample, ProcessSample
from pgtop_tune.model.machine import NOWHERE_ELSE, ServerPlaces
from pgtop_tune.model.postgres import Backend, PostgresSample, ServerFacts
from pgtop_tune.model.waits import LOAD_APPLICATION

if TYPE_CHECKING:
    from pgtop_tune.host.over_sql import SqlHost
    from pgtop_tune.host.storage_io import StorageIoMeter

_T = TypeVar("_T")

_ALL_IO_BELOW: Final = 100
"""Number of processes up to which the I/O of all is read each tick; above, only that of the busy ones."""
_PLACES_EVERY_S: Final = 60.0
_PGBENCH_EVERY_S: Final = 5.0
"""Least time between two searches for the pgbench of another program, which reads all processes of the machine."""
_PGBENCH_AGAIN_S: Final = 30.0
"""Time after which a search is repeated for the same sessions: behind a pooler they outlive a pgbench."""
_SQL_COST: Final = 20.0
"""Over SQL a look takes no more than a twentieth of the time, like every section of the server."""
_STALE_S: Final = 5.0


_FEW: Final = 200
"""Number of processes up to which all are read with each frame; more are a crowd."""
_READ_PER_S: Final = 100
"""Processes of a crowd that are read each second: three hundred every third second. All took a fifth of our CPU."""
_LONGEST_S: Final = 4.0
"""Longest use of a look at a crowd: the windows of `budget` and `client_bound`, 10 s, need several looks."""
_AFTER_FIRST_PICTURE_S: Final = 0.2
"""Delay of the first look at a crowd, which would hold up the first picture; there are no rates before the second."""
_EARLY: Final = 0.9
"""Share of the time after which a look is due: a frame may come a little early."""


class ServerEye(Protocol):
    """The server, as far as the sampler of its machine asks it; fits `postgres.reader.PostgresReader`."""

    async def places(self) -> ServerPlaces | Unavailable: ...

    async def server_files(self, paths: Sequence[str]) -> list[bytes | None] | Unavailable: ...


def _good_for_s(processes: int) -> float:
    """Return how long a look at so many processes is used; 0 as long as they are few."""
    return 0.0 if processes <= _FEW else _EARLY * min(processes / _READ_PER_S, _LONGEST_S)


class HostSampler:
    """The sampler of the server's machine; it decides from where the machine is seen, and which processes are counted.

    Args:
        host: This machine.
        surely_local: The endpoint is a Unix socket, so the server is here: samples begin before it answers.
        backend: Gives pid and start (epoch ms) of the backend that serves our connection.
        server: The server, asked for its directories, and for /proc where it runs on another machine.
        clock: Seconds on the session's monotonic clock.
        caps: Limits of disks that the operator states.
        wished: The operator's choice of the source. With psutil, a server that is surely here is not asked for its
            /proc, even where its processes cannot be seen.
    """

    def __init__(
        self,
        host: Host,
        surely_local: bool,
        backend: Callable[[], tuple[int, int | None]],
        server: ServerEye,
        clock: Callable[[], float],
        caps: Sequence[DiskCap] = (),
        wished: HostSource = HostSource.AUTO,
    ) -> None:
        self._host = host
        self._surely_local = surely_local
        self._wished = wished
        self._backend = backend
        self._server = server
        self._clock = clock
        self._caps = caps
        self._idle: dict[int, Backend] = {}
        self._backends: tuple[Backend, ...] = ()
        self._io_pids: set[int] = set()
        self._processes: ProcessSample | Unavailable = NOT_YET
        self._processes_due_s = 0.0
        self._sql_task: asyncio.Task[HostSample | Unavailable] | None = None
        self._sql_seen: HostSample | Unavailable = NOT_YET
        self._sql_seen_s = self._sql_due_s = 0.0
        self._remote = False
        self._absent: Unavailable | None = None if surely_local else NOT_YET
        self._elsewhere: Unavailable | None = NOT_YET
        self._postmaster_pid: int | None = None
        self._directory: str | None = None
        self._places: ServerPlaces = NOWHERE_ELSE
        self._places_due_s = 0.0
        self._places_task: asyncio.Task[None] | None = None
        self._answers_again = False
        self._silent: frozenset[str] = frozenset()
        self._pgbench: tuple[int, ...] = ()
        self._pgbench_due_s = self._pgbench_again_s = 0.0
        self._pgbench_sessions: frozenset[int] = frozenset()
        self._storage_io: StorageIoMeter | None = None

    def watch_storage_io(self, on: bool) -> None:
        """Switch the storage I/O of other programs on or off; it opens a file of each. In the engine's loop."""
        if on != (self._storage_io is not None):
            from pgtop_tune.host.storage_io import StorageIoMeter

            self._storage_io = StorageIoMeter(self._clock) if on else None

    @cached_property
    def _over_sql(self) -> SqlHost:
        """The source for a server that is not here."""
        from pgtop_tune.host.over_sql import SqlHost

        return SqlHost(self._clock, self._server.server_files, self._caps)

    def directories(self) -> tuple[str, ...] | Unavailable:
        """Return the directories of data and WAL of a server of this machine; NOT_LOCAL or NOT_YET for another. Thread-
        safe."""
        if self._elsewhere is not None:
            return self._elsewhere
        return tuple(server_directories(self._directory).values()) if self._directory else ()

    def refresh(self) -> None:
        """Read the processes with the next tick, however many they are."""
        self._processes_due_s = 0.0

    async def localise(self, facts: ServerFacts) -> ServerFacts:
        """Return the facts with `local` and `postmaster_pid` filled in; the next samples use the same answer."""
        pid, start_ms = self._backend()
        places = await self._server.places()
        self._places = NOWHERE_ELSE if isinstance(places, Unavailable) else places
        self._places_due_s = self._clock() + _PLACES_EVERY_S
        postmaster = self._host.postmaster(pid, start_ms)
        if isinstance(postmaster, Unavailable):
            unseen = self._surely_local and self._host.sees_without_processes
            if not unseen or self._wished is not HostSource.PSUTIL:
                await self._go_over_sql(facts, postmaster)
            if not unseen or self._remote:
                return replace(facts, local=False, postmaster_pid=None)
        postmaster_pid = None if isinstance(postmaster, Unavailable) else postmaster
        self._remote, self._absent, self._postmaster_pid, self._elsewhere = False, None, postmaster_pid, None
        self._directory = facts.data_directory or (
            None if postmaster_pid is None else self._host.working_directory(postmaster_pid)
        )
        if postmaster_pid is not None:
            self._host.set_server(postmaster_pid)
        await asyncio.to_thread(self._host.set_directories, self._directory, self._places)
        self._processes, self._processes_due_s = NOT_YET, self._clock() + _AFTER_FIRST_PICTURE_S
        self._pgbench_due_s = self._pgbench_again_s = self._processes_due_s
        return replace(facts, local=True, postmaster_pid=postmaster_pid)

    async def _go_over_sql(self, facts: ServerFacts, elsewhere: Unavailable) -> None:
        from pgtop_tune.host.over_sql import grants

        self._postmaster_pid, self._sql_seen, self._elsewhere = None, NOT_YET, elsewhere
        facts_over_sql = await self._over_sql.open(facts.data_directory, self._places)
        self._remote = not isinstance(facts_over_sql, Unavailable)
        self._absent = None
        if isinstance(facts_over_sql, Unavailable):
            remedy = grants(facts.user) if facts_over_sql.reason is Reason.NO_PERMISSION else str(facts_over_sql)
            self._absent = Unavailable(elsewhere.reason, f"{remedy}. {elsewhere}")

    async def look(
        self,
        postgres: PostgresSample | Unavailable,
        pgbench: Iterable[int],
        patience_s: float,
        poolers: Collection[int] = (),
    ) -> HostSample | Unavailable:
        """Return a sample of the machine.

        Args:
            postgres: The server of the same tick, for the pids of its processes.
            pgbench: Pids of pgbench, which runs here wherever the server does.
            patience_s: Seconds to wait for a look over SQL.
            poolers: Pids of poolers on the way of the load, which run here, too.
        """
        sample = await self._look(postgres, pgbench, poolers, patience_s)
        if isinstance(sample, Unavailable) or isinstance(sample.processes, Unavailable) or not poolers:
            return sample
        rows = sample.processes.threads
        return replace(
            sample,
            processes=replace(
                sample.processes,
                threads=tuple(row for row in rows if row.pid not in poolers),
                poolers=tuple(row for row in rows if row.pid in poolers),
            ),
        )

    async def _look(
        self,
        postgres: PostgresSample | Unavailable,
        pgbench: Iterable[int],
        poolers: Collection[int],
        patience_s: float,
    ) -> HostSample | Unavailable:
        if self._absent is not None:
            return self._absent
        self._keep_places()
        pgbench_pids = tuple(pgbench)
        backends, answered = self._known_backends(postgres)
        reads_all_io = len(backends) <= _ALL_IO_BELOW
        io_pids = {backend.pid for backend in backends if reads_all_io or backend.state != "idle"}
        if self._remote:
            if isinstance(postgres, Unavailable):
                return postgres
            pids = [backend.pid for backend in backends if backend.pid in io_pids]
            return await self._look_over_sql(pids, io_pids, (*pgbench_pids, *poolers), patience_s)
        pgbench_pids = pgbench_pids or self._pgbench_of_others(backends)
        pids = [os.getpid(), *pgbench_pids, *(backend.pid for backend in backends)]
        if self._postmaster_pid is not None:
            pids.append(self._postmaster_pid)
        if answered and len(pids) > _FEW and self._clock() < self._processes_due_s:
            return self._finished(self._host.sample(pids, processes=self._processes), pids)
        resting = self._resting(backends) if answered else ()
        # A process that is idle by now is read once more, for its last I/O.
        with_io, self._io_pids = io_pids | self._io_pids, io_pids
        thread_pids = (*pgbench_pids, *poolers)
        sample = self._host.sample(pids, {*with_io, *pgbench_pids, os.getpid()}, thread_pids, resting)
        if not answered:
            sample = replace(sample, processes=self._without_strangers(sample.processes, backends))
        self._processes, self._processes_due_s = sample.processes, self._clock() + _good_for_s(len(pids))
        return self._finished(sample, pids)

    def _known_backends(self, postgres: PostgresSample | Unavailable) -> tuple[tuple[Backend, ...], bool]:
        """Return the backends of the tick and True; while the server does not answer, the last known ones and False.

        Backends work meanwhile. A sample without them would count their CPU time as that of other programs.
        """
        activity = postgres if isinstance(postgres, Unavailable) else postgres.activity
        if isinstance(activity, Unavailable):
            return self._backends, False
        self._backends = activity.backends
        return self._backends, True

    def _without_strangers(
        self, processes: ProcessSample | Unavailable, backends: Iterable[Backend]
    ) -> ProcessSample | Unavailable:
        """Return the processes without new ones that have the pid of a backend that has ended meanwhile."""
        if isinstance(processes, Unavailable):
            return processes
        before = () if isinstance(self._processes, Unavailable) else self._processes.processes
        known_processes, backend_pids = (
            {(process.pid, process.start_ticks) for process in before},
            {process.pid for process in backends},
        )
        same = tuple(
            process
            for process in processes.processes
            if process.pid not in backend_pids or (process.pid, process.start_ticks) in known_processes
        )
        return replace(processes, processes=same)

    def _finished(self, sample: HostSample, own_pids: Collection[int]) -> HostSample:
        mounts = sample.file_systems
        silent = frozenset() if isinstance(mounts, Unavailable) else frozenset(mounts.unanswered)
        if self._silent - silent:
            # Directories on a mount could not be found as long as it did not answer.
            self._places_due_s, self._answers_again = self._clock(), True
        self._silent = silent
        if self._storage_io is None:
            return sample
        return replace(sample, storage_io=self._storage_io.latest(own_pids, self._postmaster_pid))

    def _pgbench_of_others(self, backends: tuple[Backend, ...]) -> tuple[int, ...]:
        """Return the pids of pgbench started by another program; search again when the sessions of that name change."""
        if not any(backend.application_name == LOAD_APPLICATION for backend in backends):
            return ()
        now_s = self._clock()
        if now_s >= self._pgbench_due_s:
            self._pgbench_due_s = now_s + _PGBENCH_EVERY_S
            sessions = frozenset(backend.pid for backend in backends if backend.application_name == LOAD_APPLICATION)
            if sessions != self._pgbench_sessions or now_s >= self._pgbench_again_s:
                self._pgbench_sessions, self._pgbench_again_s = sessions, now_s + _PGBENCH_AGAIN_S
                self._pgbench = self._host.pgbench_processes({backend.pid for backend in backends})
        return self._pgbench

    def _resting(self, backends: tuple[Backend, ...]) -> set[int]:
        """Return the sessions that were idle at the look before and have been since: the reader returns the same
        object."""
        idle, self._idle = self._idle, {id(backend): backend for backend in backends if backend.state == "idle"}
        return {backend.pid for key, backend in self._idle.items() if key in idle}

    def close(self) -> None:
        """Cancel pending looks and close the files kept open."""
        for task in (self._sql_task, self._places_task):
            if task is not None:
                task.cancel()
        self._host.close()

    async def _look_over_sql(
        self, pids: Sequence[int], io_pids: Collection[int], loads: Sequence[int], patience_s: float
    ) -> HostSample | Unavailable:
        """Return the newest look; one that takes longer than the patience is shown a tick later, with its own time."""
        if self._sql_task is None and self._clock() >= self._sql_due_s:
            self._sql_task = asyncio.create_task(self._one_look(pids, io_pids, loads))
        if self._sql_task is not None:
            done, _ = await asyncio.wait((self._sql_task,), timeout=patience_s)
            if done:
                self._sql_seen, self._sql_task = self._sql_task.result(), None
                self._sql_seen_s = self._clock()
        late_s = self._clock() - self._sql_seen_s
        if self._sql_task is not None and late_s > _STALE_S:
            return Unavailable(Reason.NO_ANSWER, f"the server has not returned its /proc for {late_s:.0f} s")
        return self._sql_seen

    async def _one_look(
        self, pids: Sequence[int], io_pids: Collection[int], loads: Sequence[int]
    ) -> HostSample | Unavailable:
        started_s = self._clock()
        threads = self._host.threads(loads)
        sample = await _unless_gone(self._over_sql.sample(pids, io_pids, threads))
        self._sql_due_s = started_s + (self._clock() - started_s) * _SQL_COST
        return sample

    def _keep_places(self) -> None:
        """Ask for tablespaces once a minute, and look at them when they have changed or a mount answers again."""
        if self._clock() >= self._places_due_s and (self._places_task is None or self._places_task.done()):
            self._places_due_s = self._clock() + _PLACES_EVERY_S
            self._places_task = asyncio.create_task(self._renew_places())

    async def _renew_places(self) -> None:
        again, self._answers_again = self._answers_again, False
        places = await _unless_gone(self._server.places())
        if isinstance(places, Unavailable):
            places = self._places
        if again or places != self._places:
            self._places = places
            if not self._remote:
                await asyncio.to_thread(self._host.set_directories, self._directory, places)


async def _unless_gone(answer: Awaitable[_T | Unavailable]) -> _T | Unavailable:
    """Return the answer; the server's sampler reports a lost connection."""
    try:
        return await answer
    except ConnectionProblem as problem:
        return Unavailable(Reason.NO_ANSWER, problem.message)
