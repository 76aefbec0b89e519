"""The composition root: the one place where sources, controls and sinks are put together.

Imported by commands when they run, never by `--help`: it brings the drivers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from pgtop_tune import __version__
from pgtop_tune.advice.fence import check_load
from pgtop_tune.base.errors import ConnectionProblem, LoadProblem
from pgtop_tune.base.foreign_answers import decodes
from pgtop_tune.bench.datasets.pgbench_tables import look_for_room
from pgtop_tune.bench.ports import LoadEndpoint
from pgtop_tune.bench.runner import LoadPreparation, PgbenchRunner
from pgtop_tune.bench.ssh import SshPlace
from pgtop_tune.changes.machine.control import HostControl
from pgtop_tune.changes.restart.control import RestartService
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.changes.server.one_change import Rules
from pgtop_tune.changes.server.session_runner import own_sql_session
from pgtop_tune.changes.watchdogs import guard_set
from pgtop_tune.cli.connections import with_inherited_password
from pgtop_tune.cli.log import event_logs
from pgtop_tune.cli.options import LiveOptions
from pgtop_tune.cli.server_source import ServerSource
from pgtop_tune.experiment.load_service import DataSetService, LoadService
from pgtop_tune.experiment.path import LoadTarget, parse_endpoint
from pgtop_tune.experiment.screen_experiments import OtherExperiments, SwitchbackService
from pgtop_tune.health.service import CheckService
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.postgres.server.conninfo import ConnInfo, Reached
from pgtop_tune.postgres.statements.backend_control import PostgresBackends
from pgtop_tune.process.revert_watchdog import RevertWatchdog
from pgtop_tune.recording.recorder import Recorder
from pgtop_tune.runtime.engine import Engine
from pgtop_tune.runtime.run_frames import FrameKeeper

if TYPE_CHECKING:
    from pgtop_tune.bench.ports import SqlSession
    from pgtop_tune.postgres.server.sql_session import PsycopgSession


@decodes
async def free_bytes_for(sql_session: SqlSession) -> Callable[[str], int | str]:
    """Return a function from a directory of the server to its free bytes, or to the reason why they are unknown."""
    from pgtop_tune.host.block_devices import ROOT
    from pgtop_tune.host.process_files import local_postmaster
    from pgtop_tune.postgres.queries import OLDEST_MAJOR, sql
    from pgtop_tune.process.mount_namespace import namespace_of

    [(pid, started_ms, _)] = await sql_session.rows(sql("own_backend", OLDEST_MAJOR))
    postmaster = local_postmaster(int(str(pid)), int(str(started_ms)))

    def free_bytes(directory: str) -> int | str:
        if isinstance(postmaster, Unavailable):
            return "the server runs on another machine, or in a container"
        namespace = namespace_of(postmaster, ROOT)
        real = namespace.real_path(directory)
        if real is None:
            return f"{directory} is not readable"
        try:
            file_system = namespace.statvfs(real)
        except OSError as problem:
            return f"{directory}: {problem.strerror}"
        return file_system.f_bavail * file_system.f_frsize

    return free_bytes


async def available_bytes(sql_session: SqlSession) -> int | None:
    """Return the free bytes where the server keeps its data; None where they are unknown."""
    return (await look_for_room(sql_session, 1, 0, await free_bytes_for(sql_session))).available_bytes


class LiveParts:
    """Everything that watches and changes one server.

    Args:
        server_source: The source that samples it already; None makes one.
        reached: Address of the session that loads follow; None for that of `server_source`.

    Attributes:
        source: Frames of server, host and load.
        load: pgbench.
        parameters: ALTER SYSTEM.
        restart: Changes that take a restart of the server.
        backends: Cancel, terminate, EXPLAIN.
        machine: Settings of the operating system, where the server runs on this machine.
        checks: The check before production.
    """

    def __init__(
        self,
        conninfo: ConnInfo,
        options: LiveOptions,
        server_source: ServerSource | None = None,
        reached: Reached | None = None,
    ) -> None:
        self._conninfo = conninfo
        self._reached = reached
        self._pgbench = None if options.load_from else options.pgbench
        self._server_source = server_source or ServerSource(conninfo, options)
        self.source = self._server_source.source
        own_sessions = self._own_sessions = self._server_source.own_sessions
        self.load = PgbenchRunner(
            endpoint_of(conninfo),
            pgbench=options.pgbench,
            load_places=tuple(map(SshPlace, options.load_from)),
        )
        self.load.fence = lambda spec: check_load(spec.settings, allow_unsafe=options.allow_unsafe)
        self.load.prepare = LoadPreparation(self.open_sql_session).complete
        self._server_source.load.load = self.load
        self.parameters = PostgresControl(
            conninfo,
            own_sessions=own_sessions,
            directory=options.journal_directory,
            rules=Rules(fenced=True, allow_unsafe=options.allow_unsafe, tell=self._tell_of_others),
        )
        self.restart = RestartService(self.parameters, options.own_restart, self._moved)
        self.backends = PostgresBackends(conninfo, own_sessions)
        self.machine = HostControl(
            self._server_source.host.directories, directory=options.journal_directory, guard=self._guard_machine_set
        )
        self.checks = CheckService(conninfo, options.poolers, options.host_source)

    def _guard_machine_set(self, set_id: str, until_ms: int | None, directory: Path | None) -> RevertWatchdog:
        # The same command as for parameters: it reverts the server's half of a set first.
        return guard_set(self._conninfo, set_id, until_ms, directory)

    def _tell_of_others(self, message: str) -> None:
        self.source.note(Event(time.time_ns() // 1_000_000, EventKind.WARNING, message))

    def load_service(self, keeper: FrameKeeper) -> LoadService:
        """Return the load with its records, steps and data sets, for a screen.

        Args:
            keeper: A sink of the engine that runs the source.
        """
        datasets = DataSetService(self.load_endpoint, self.open_sql_session, free_bytes_for, self._pgbench)
        return LoadService(self.load, keeper, self.open_sql_session, datasets, self.load_endpoint)

    def experiment_service(self) -> SwitchbackService:
        """Return the experiments under the load that runs, for a screen."""
        facts = {"version": __version__, "server": self._conninfo.describe()}
        return SwitchbackService(self.parameters, self.source.note, self._note_switching, facts)

    def _note_switching(self, names: frozenset[str]) -> None:
        """Note the parameters that an experiment switches; empty after its end."""
        self.source.switching(names)
        self.watch_others(bool(names))

    def watch_others(self, on: bool = True) -> None:
        """Have frames hold what other programs read and write, for an experiment. In the engine's loop."""
        self._server_source.host.watch_storage_io(on)

    def other_experiments(self) -> OtherExperiments:
        """Return the experiments of other programs on this server, for a screen."""
        return OtherExperiments(self.source.note, self.source.switching)

    async def open_sql_session(self) -> PsycopgSession:
        """Open a session for housekeeping, counted as one of ours.

        Raises:
            ConnectionProblem: The server is not there, or refuses the login.
        """
        return await own_sql_session(self._load_conninfo(), self._own_sessions)

    async def open_following_session(self) -> PsycopgSession:
        """Open a session as `open_sql_session`, on the server that a new client of the load would reach now."""
        return await own_sql_session(self._conninfo, self._own_sessions)

    def load_endpoint(self) -> LoadEndpoint:
        """Return the endpoint of a load: of several hosts, that of our session.

        Raises:
            LoadProblem: There are several hosts, and no session yet.
        """
        conninfo = self._load_conninfo()
        if len(conninfo.endpoints) > 1:
            raise LoadProblem(
                f"{conninfo.describe()} names several hosts, and none of them is connected",
                "wait until the server answers, or name one host with -h",
            )
        return endpoint_of(conninfo)

    def _load_conninfo(self) -> ConnInfo:
        reached = self._reached or self._server_source.reached
        return self._conninfo if reached is None else self._conninfo.pinned(reached)

    def _moved(self, conninfo: ConnInfo) -> None:
        """Follow the server to the port or address that it has after a restart. In the engine's loop."""
        self.connect_as(conninfo)
        self._server_source.connect_as(conninfo)

    def connect_as(self, conninfo: ConnInfo) -> None:
        """Go on with a typed password, or at another address. In the engine's loop."""
        self._conninfo = conninfo
        self._reached = None
        self.parameters.conninfo = conninfo
        self.backends.conninfo = conninfo
        self.checks.conninfo = conninfo
        self.load.endpoint = endpoint_of(conninfo)


class LiveSession(LiveParts):
    """The parts with an engine and a recorder, for commands without a screen.

    Attributes:
        recorder: Writes frames when it is started.
        engine: Runs the source, feeds the recorder.
    """

    def __init__(self, conninfo: ConnInfo, options: LiveOptions, reached: Reached | None = None) -> None:
        super().__init__(conninfo, options, reached=reached)
        self.recorder = Recorder(
            conninfo.describe(), options.interval_s, query_text=options.query_text, rotation=options.rotation
        )
        self.engine = Engine(self.source, (self.recorder, *event_logs()))


def endpoint_of(conninfo: ConnInfo) -> LoadEndpoint:
    """Return the server as pgbench takes it: the first of several hosts, in `ConnInfo.pinned` that of the session."""
    return following_endpoint(conninfo.only(conninfo.endpoints[0]))


def following_endpoint(conninfo: ConnInfo) -> LoadEndpoint:
    """Return all hosts of the connection as pgbench takes them: each new client tries them in their order."""
    passwords = {endpoint.password and endpoint.password.reveal() for endpoint in conninfo.endpoints}
    return LoadEndpoint(
        host=conninfo.host,
        port=conninfo.port,
        user=conninfo.user,
        dbname=conninfo.dbname,
        # A password of one host is for no other: .pgpass has each.
        password=conninfo.password if len(passwords) == 1 else None,
        env=conninfo.for_pgbench(),
        keywords=conninfo.beside_variables(),
        further=tuple((endpoint.host, endpoint.port) for endpoint in conninfo.endpoints[1:]),
    )


# The targets of a load: the server that is watched, once it answers, or endpoints as typed.


async def targets(
    endpoints: Sequence[str],
    sql_session: PsycopgSession,
    conninfo: ConnInfo,
    *,
    from_here: bool,
    follows: bool = False,
) -> tuple[LoadTarget, ...]:
    """Return the endpoints; without any, the watched server.

    Args:
        endpoints: Endpoints as typed: NAME=HOST:PORT/DATABASE, or NAME=postgresql://…
        sql_session: A session on the watched server.
        conninfo: Connection of that session; endpoints take from it what they leave out, but for its secrets.
        from_here: pgbench runs on this machine. Elsewhere, this machine's own addresses mean another server.
        follows: Clients follow the server to another of the hosts, or to another address of its name.

    Raises:
        UsageProblem: A word is no endpoint.
    """
    # Their driver is none that watching needs.
    from pgtop_tune.postgres.server.other_address import resolve_other
    from pgtop_tune.postgres.server.straight_way import Way, way_of

    watched = conninfo.pinned(sql_session.reached)
    if not endpoints and follows:
        return (LoadTarget(",".join(map(str, conninfo.endpoints)), following_endpoint(conninfo)),)
    if not endpoints:
        return (LoadTarget(str(watched.endpoints[0]), endpoint_of(watched if from_here else _from_there(watched))),)
    load_targets = []
    for text in endpoints:
        typed = parse_endpoint(text)
        target = with_inherited_password(await asyncio.to_thread(resolve_other, typed.address, watched))
        is_seen = from_here or not _of_this_machine(target)
        path = await way_of(target, sql_session) if is_seen else Way(None, straight=False)
        target = target.only(target.endpoints[0]) if path.reached is None else target.pinned(path.reached)
        endpoint = endpoint_of(target if from_here else _from_there(target))
        is_elsewhere = path.elsewhere and from_here
        load_targets.append(
            LoadTarget(
                name=typed.name,
                endpoint=endpoint,
                direct=path.straight,
                elsewhere=is_elsewhere,
                refusal=path.refusal,
            )
        )
    return tuple(load_targets)


def _from_there(conninfo: ConnInfo) -> ConnInfo:
    """Return the connection from another machine, where a name of our loopback has another address."""
    endpoint = conninfo.endpoints[0]
    if _is_loopback(endpoint.hostaddr) and not (endpoint.host == "localhost" or _is_loopback(endpoint.host)):
        return replace(conninfo, endpoints=(replace(endpoint, hostaddr=""),))
    return conninfo


def _of_this_machine(conninfo: ConnInfo) -> bool:
    endpoint = conninfo.endpoints[0]
    return endpoint.is_socket or endpoint.host == "localhost" or _is_loopback(endpoint.address)


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


_FIRST_ANSWER_S: Final = 30.0


async def first_answer(session: LiveSession, keeper: FrameKeeper) -> None:
    """Wait for the server, whose numbers judge the runs. Raises ConnectionProblem where it does not answer."""
    from pgtop_tune.experiment.load_run import shows_server

    if not await keeper.until(shows_server, _FIRST_ANSWER_S):
        server = session.source.server
        raise ConnectionProblem("the server does not answer", "" if server is None else server.why)
