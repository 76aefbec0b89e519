"""The composition root: the one place where sources, controls and sinks are put together.

Imported by commands when they run, never by `--help`: it brings the drivers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pgtop_tune import __version__
from pgtop_tune.advice.fence import check_load
from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.base.foreign_answers import decodes
from pgtop_tune.bench.ports import LoadEndpoint
from pgtop_tune.bench.runner import LoadPreparation, PgbenchRunner
from pgtop_tune.bench.ssh import SshPlace
from pgtop_tune.changes.machine.control import HostControl
from pgtop_tune.changes.restart.control import RestartService
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.changes.server.one_change import Rules
from pgtop_tune.changes.server.session_runner import own_sql_session
from pgtop_tune.changes.watchdogs import guard_set
from pgtop_tune.cli.live_options import LiveOptions
from pgtop_tune.cli.watching import Watching
from pgtop_tune.experiment.load_service import DataSetService, LoadService
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

# Bytes free where the server keeps its data, when the server is on this machine.


@decodes
async def free_bytes_for(sql_session: SqlSession) -> Callable[[str], int | str]:
    """What says the bytes available at a directory of the server's machine, or why they cannot be known."""
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
            found = namespace.statvfs(real)
        except OSError as problem:
            return f"{directory}: {problem.strerror}"
        return found.f_bavail * found.f_frsize

    return free_bytes


class LiveParts:
    """Everything that watches and changes one server.

    Args:
        conninfo: The server.
        options: Of the session.
        watching: What looks at it already; None makes it.
        reached: Where a session was made to which all loads go; None for that of `watching`.

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
        watching: Watching | None = None,
        reached: Reached | None = None,
    ) -> None:
        self._conninfo = conninfo
        self._reached = reached
        self._pgbench = None if options.load_from else options.pgbench
        self._watching = watching or Watching(conninfo, options)
        self.source = self._watching.source
        own = self._own = self._watching.own
        self.load = PgbenchRunner(
            endpoint_of(conninfo),
            pgbench=options.pgbench,
            load_place=SshPlace(options.load_from) if options.load_from else None,
        )
        self.load.fence = lambda spec: check_load(spec.settings, allow_unsafe=options.allow_unsafe)
        self.load.prepare = LoadPreparation(self.open_sql_session).complete
        self._watching.load.load = self.load
        self.parameters = PostgresControl(
            conninfo,
            own_sessions=own,
            directory=options.journal_directory,
            rules=Rules(fenced=True, allow_unsafe=options.allow_unsafe, tell=self._tell_of_others),
        )
        self.restart = RestartService(self.parameters, options.own_restart, self._moved)
        self.backends = PostgresBackends(conninfo, own)
        self.machine = HostControl(
            self._watching.host.directories, directory=options.journal_directory, guard=self._guard_machine_set
        )
        self.checks = CheckService(conninfo, options.poolers, options.host_source)

    def _guard_machine_set(self, set_id: str, until_ms: int | None, directory: Path | None) -> RevertWatchdog:
        """The same command as for parameters: of a set that has both, the server's part is taken back first."""
        return guard_set(self._conninfo, set_id, until_ms, directory)

    def _tell_of_others(self, message: str) -> None:
        self.source.note(Event(time.time_ns() // 1_000_000, EventKind.WARNING, message))

    def load_service(self, keeper: FrameKeeper) -> LoadService:
        """Load with its records, steps and data sets, for a screen.

        Args:
            keeper: A sink of the engine that runs the source.
        """
        datasets = DataSetService(self.load_endpoint, self.open_sql_session, free_bytes_for, self._pgbench)
        return LoadService(self.load, keeper, self.open_sql_session, datasets, self.load_endpoint)

    def experiment_service(self) -> SwitchbackService:
        """A against B by turns under the load that runs, for a screen."""
        facts = {"version": __version__, "server": self._conninfo.describe()}
        return SwitchbackService(self.parameters, self.source.note, self._switching, facts)

    def _switching(self, names: frozenset[str]) -> None:
        """An experiment switches these parameters; empty once it is over."""
        self.source.switching(names)
        self.watch_others(bool(names))

    def watch_others(self, on: bool = True) -> None:
        """Whether frames tell what other programs read and write: an experiment wants it. In the engine's loop."""
        self._watching.host.watch_storage_io(on)

    def other_experiments(self) -> OtherExperiments:
        """Experiments of other programs on this server, for a screen."""
        return OtherExperiments(self.source.note, self.source.switching)

    async def open_sql_session(self) -> PsycopgSession:
        """A session for housekeeping on the server that is watched; not counted among the others'.

        Raises:
            ConnectionProblem: Not there, or it does not let us in.
        """
        return await own_sql_session(self._of_load(), self._own)

    def load_endpoint(self) -> LoadEndpoint:
        """Return the endpoint of a load: the server of our session, of several hosts to no other.

        Raises:
            LoadProblem: There are several, and no session yet.
        """
        conninfo = self._of_load()
        if len(conninfo.endpoints) > 1:
            raise LoadProblem(
                f"{conninfo.describe()} is several hosts, and there is no session with any of them",
                "wait until the server answers, or name one host with -h",
            )
        return endpoint_of(conninfo)

    def _of_load(self) -> ConnInfo:
        reached = self._reached or self._watching.reached
        return self._conninfo if reached is None else self._conninfo.pinned(reached)

    def _moved(self, conninfo: ConnInfo) -> None:
        """A restart has led the server to another port or address: all go on there. In the engine's loop."""
        self.connect_as(conninfo)
        self._watching.connect_as(conninfo)

    def connect_as(self, conninfo: ConnInfo) -> None:
        """Goes on with a password that was typed, or at another place. In the engine's loop."""
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
        self.engine = Engine(self.source, (self.recorder,))


def endpoint_of(conninfo: ConnInfo) -> LoadEndpoint:
    """The server in pgbench's words; of several hosts the first, which is that of a session in `ConnInfo.pinned`."""
    conninfo = conninfo.only(conninfo.endpoints[0])
    return LoadEndpoint(
        host=conninfo.host,
        port=conninfo.port,
        user=conninfo.user,
        dbname=conninfo.dbname,
        password=conninfo.password,
        env=conninfo.for_pgbench(),
        keywords=conninfo.beside_variables(),
    )
