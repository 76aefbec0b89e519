"""The composition root: the one place where sources, controls and sinks are put together.

Imported by commands when they run, never by `--help`: it brings the drivers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pgtop_tune.bench.endpoint import Endpoint
from pgtop_tune.bench.places.ssh import SshPlace
from pgtop_tune.bench.preparation import LoadPreparation
from pgtop_tune.bench.runner import PgbenchRunner
from pgtop_tune.cli.commands.bench.disk import free_bytes_for
from pgtop_tune.cli.live_options import LiveOptions
from pgtop_tune.experiment.dataset_desk import DatasetDesk
from pgtop_tune.experiment.frame_keeper import FrameKeeper
from pgtop_tune.experiment.load_desk import LoadDesk
from pgtop_tune.host.control import HostControl
from pgtop_tune.host.local import LocalHost
from pgtop_tune.host.own_cost import OwnCostMeter
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.events import Event
from pgtop_tune.model.frame import Footprint
from pgtop_tune.pooler.console import PoolerConsole
from pgtop_tune.postgres.backend_control import PostgresBackends
from pgtop_tune.postgres.conninfo import APPLICATION_NAME, ConnInfo
from pgtop_tune.postgres.control import PostgresControl, Rules
from pgtop_tune.postgres.own_sessions import OwnSessions
from pgtop_tune.postgres.reader import PostgresReader
from pgtop_tune.postgres.revert_guard import guard_set
from pgtop_tune.postgres.sql_hand import PsycopgHand, open_hand
from pgtop_tune.recording.recorder import Recorder
from pgtop_tune.sampling.clock import SessionClock
from pgtop_tune.sampling.host_sampler import HostSampler
from pgtop_tune.sampling.live import LiveSource
from pgtop_tune.sampling.pooler_sampler import PoolerSampler
from pgtop_tune.sampling.postgres_sampler import PostgresSampler
from pgtop_tune.secret import Secret
from pgtop_tune.session.engine import Engine
from pgtop_tune.tuning.fence import loss_of
from pgtop_tune.tuning.ordering import in_order
from pgtop_tune.tuning.restart.desk import RestartDesk
from pgtop_tune.tuning.restart.place import note_place
from pgtop_tune.watchman import Watchman


class LiveParts:
    """Everything that watches and changes one server.

    Attributes:
        source: Frames of server, host and load.
        load: pgbench.
        parameters: ALTER SYSTEM.
        restart: Changes that take a restart of the server.
        backends: Cancel, terminate, EXPLAIN.
        machine: Settings of the operating system, where the server runs on this machine.
    """

    def __init__(self, conninfo: ConnInfo, options: LiveOptions) -> None:
        self._conninfo = conninfo
        self._pgbench = None if options.load_from else options.pgbench
        clock = SessionClock()
        own = self._own = OwnSessions()
        self._reader = PostgresReader(conninfo, clock, own)
        meter = OwnCostMeter()
        caps = options.disk_caps
        here = LocalHost(clock, caps=caps)
        host = HostSampler(here, conninfo.endpoints[0].is_socket, self._our_backend, self._reader, clock, caps)

        def footprint() -> Footprint:
            cost = meter.read()
            return Footprint(
                clock(),
                round(cost.cpu_s, 4),
                cost.rss_bytes,
                own.statements,
                round(own.statement_ms, 2),
                options.terminal_bytes(),
            )

        def server(note: Callable[[Event], None]) -> PostgresSampler:
            return PostgresSampler(self._reader, clock, note, host.localise, options.waits_for_password)

        self.load = PgbenchRunner(
            endpoint_of(conninfo),
            pgbench=options.pgbench,
            place=SshPlace(options.load_from) if options.load_from else None,
        )
        self.load.prepare = LoadPreparation(self.open_hand).complete
        self.parameters = PostgresControl(
            conninfo,
            own=own,
            directory=options.journal_directory,
            rules=Rules(loss_of, in_order, options.allow_unsafe, note_place),
        )
        self.restart = RestartDesk(self.parameters, options.own_restart)
        self.backends = PostgresBackends(conninfo, own)
        self.machine = HostControl(host.directories, directory=options.journal_directory, guard=self._guard_machine_set)
        consoles = [PoolerConsole(address, clock, APPLICATION_NAME) for address in options.poolers]
        poolers = PoolerSampler(consoles, clock)
        self.source = LiveSource(clock, host, server, self.load, footprint, options.interval_s, poolers)

    def _our_backend(self) -> tuple[int, int]:
        capabilities = self._reader.capabilities
        return (
            (0, 0)
            if isinstance(capabilities, Unavailable)
            else (capabilities.backend_pid, capabilities.backend_start_ms)
        )

    def _guard_machine_set(self, set_id: str, until_ms: int, directory: Path | None) -> Watchman:
        """The same command as for parameters: of a set that has both, the server's part is taken back first."""
        return guard_set(self._conninfo, set_id, until_ms, directory)

    def load_desk(self, keeper: FrameKeeper) -> LoadDesk:
        """Load with its records, steps and data sets, for a screen.

        Args:
            keeper: A sink of the engine that runs the source.
        """
        datasets = DatasetDesk(lambda: self.load.endpoint, self.open_hand, free_bytes_for, self._pgbench)
        return LoadDesk(self.load, keeper, self.open_hand, datasets, str(self._conninfo.endpoints[0]))

    async def open_hand(self) -> PsycopgHand:
        """A session for housekeeping on the server that is watched; not counted among the others'.

        Raises:
            ConnectionProblem: Not there, or it does not let us in.
        """
        return await open_hand(self._conninfo, self._own)

    @property
    def password_needed(self) -> bool:
        """Whether the server waits for a password, and we for somebody to type it."""
        return self.source.server is not None and self.source.server.password_needed

    def authenticate(self, password: Secret) -> None:
        """Goes on with a password that was typed. In the engine's loop."""
        conninfo = self._conninfo = self._conninfo.with_password(password)
        self._reader.conninfo = conninfo
        self.parameters.conninfo = conninfo
        self.backends.conninfo = conninfo
        self.load.endpoint = endpoint_of(conninfo)
        if self.source.server is not None:
            self.source.server.retry_now()


class LiveSession(LiveParts):
    """The parts with an engine and a recorder, for commands without a screen.

    Attributes:
        recorder: Writes frames when it is started.
        engine: Runs the source, feeds the recorder.
    """

    def __init__(self, conninfo: ConnInfo, options: LiveOptions) -> None:
        super().__init__(conninfo, options)
        self.recorder = Recorder(conninfo.describe(), options.interval_s)
        self.engine = Engine(self.source, (self.recorder,))


def endpoint_of(conninfo: ConnInfo) -> Endpoint:
    """The server in pgbench's words."""
    return Endpoint(
        conninfo.host, conninfo.port, conninfo.user, conninfo.dbname, conninfo.password, conninfo.for_pgbench()
    )
