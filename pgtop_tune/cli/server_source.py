"""The source of one server's frames: the first data of a screen need it; it imports nothing that only keys need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgtop_tune.host.choice import host_of
from pgtop_tune.host.process_files import OwnCostMeter
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.frame import Footprint
from pgtop_tune.postgres.reader import PostgresReader
from pgtop_tune.postgres.server.conninfo import APPLICATION_NAME, ConnInfo, Reached
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.sampling.host_sampler import HostSampler
from pgtop_tune.sampling.live import LiveSource, Load
from pgtop_tune.sampling.measured_limits import MeasuredLimits
from pgtop_tune.sampling.pooler_sampler import PoolerSampler
from pgtop_tune.sampling.postgres_sampler import PostgresSampler, SessionClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgtop_tune.cli.options import LiveOptions
    from pgtop_tune.model.bench import BenchSample
    from pgtop_tune.model.events import Event
    from pgtop_tune.pooler.console import PoolerConsole


class PossibleLoad:
    """pgbench as `sampling.live.Load`, before and after there is one.

    Attributes:
        load: The load; None before there is one.
    """

    def __init__(self) -> None:
        self.load: Load | None = None

    def sample(self, at_s: float) -> BenchSample | Unavailable:
        """See `Load.sample`."""
        return Unavailable(Reason.NO_LOAD) if self.load is None else self.load.sample(at_s)

    async def aclose(self) -> None:
        """See `Load.aclose`."""
        if self.load is not None:
            await self.load.aclose()


class ServerSource:
    """A server with its machine and its load, sampled into frames.

    Attributes:
        source: Frames of server, host and load.
        load: The load that frames sample.
        own_sessions: Sessions of this program, left out of figures.
    """

    def __init__(self, conninfo: ConnInfo, options: LiveOptions) -> None:
        clock = SessionClock()
        own_sessions = self.own_sessions = OwnSessions()
        reader = self._reader = PostgresReader(conninfo, clock, own_sessions)
        meter = OwnCostMeter()
        caps = options.disk_caps
        host = HostSampler(
            host=host_of(clock, options.host_source, caps=caps),
            surely_local=conninfo.endpoints[0].is_socket,
            backend=reader.own_backend,
            server=reader,
            clock=clock,
            caps=caps,
            wished=options.host_source,
        )

        def footprint() -> Footprint:
            cost = meter.read()
            return Footprint(
                at_s=clock(),
                cpu_s=round(cost.cpu_s, 4),
                rss_bytes=cost.rss_bytes,
                statements=own_sessions.statements,
                statement_ms=round(own_sessions.statement_ms, 2),
                terminal_bytes=options.terminal_bytes(),
            )

        def server(note: Callable[[Event], None]) -> PostgresSampler:
            return PostgresSampler(reader, clock, note, host.localise, options.waits_for_password)

        poolers = PoolerSampler(_consoles(options, clock), clock)
        self.host = host
        self.load = PossibleLoad()
        ceilings = MeasuredLimits(clock, options.ceilings)
        self.source = LiveSource(
            clock=clock,
            host=host,
            server=server,
            load=self.load,
            footprint=footprint,
            interval_s=options.interval_s,
            poolers=poolers,
            ceilings=ceilings,
        )

    @property
    def reached(self) -> Reached | None:
        """Return the address of our session; None without one."""
        return self._reader.reached

    @property
    def password_needed(self) -> bool:
        """Return True while the server waits for a password that the operator has to type."""
        return self.source.server is not None and self.source.server.password_needed

    def connect_as(self, conninfo: ConnInfo) -> None:
        """Connect at once with another connection, such as one with a typed password. In the engine's loop."""
        self._reader.conninfo = conninfo
        if self.source.server is not None:
            self.source.server.retry_now()


def _consoles(options: LiveOptions, clock: Callable[[], float]) -> list[PoolerConsole]:
    if not options.poolers:
        # Consoles import psycopg, which nothing else here needs.
        return []
    from pgtop_tune.pooler.console import PoolerConsole

    return [PoolerConsole(address, clock, APPLICATION_NAME) for address in options.poolers]
