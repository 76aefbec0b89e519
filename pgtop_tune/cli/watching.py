"""What looks at one server: all that the first data on a screen needs, and nothing that only keys ask for."""

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

    from pgtop_tune.cli.live_options import LiveOptions
    from pgtop_tune.model.bench import BenchSample
    from pgtop_tune.model.events import Event
    from pgtop_tune.pooler.console import PoolerConsole


class LoadToCome:
    """pgbench as sampling knows it, before and after there is one. Implements `sampling.live.Load`.

    Attributes:
        load: What is asked; None as long as there is nothing to ask.
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


class Watching:
    """The source of a server's frames.

    Attributes:
        source: Frames of server, host and load.
        load: Where frames ask for the load.
        host: The machine.
        own: Our own sessions.
    """

    def __init__(self, conninfo: ConnInfo, options: LiveOptions) -> None:
        clock = SessionClock()
        own = self.own = OwnSessions()
        reader = self._reader = PostgresReader(conninfo, clock, own)
        meter = OwnCostMeter()
        caps = options.disk_caps
        host = HostSampler(
            host=host_of(clock, options.host_source, caps=caps),
            surely_local=conninfo.endpoints[0].is_socket,
            backend=self._our_backend,
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
                statements=own.statements,
                statement_ms=round(own.statement_ms, 2),
                terminal_bytes=options.terminal_bytes(),
            )

        def server(note: Callable[[Event], None]) -> PostgresSampler:
            return PostgresSampler(reader, clock, note, host.localise, options.waits_for_password)

        poolers = PoolerSampler(_consoles(options, clock), clock)
        self.host = host
        self.load = LoadToCome()
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

    def _our_backend(self) -> tuple[int, int | None]:
        capabilities = self._reader.capabilities
        return (
            (0, 0)
            if isinstance(capabilities, Unavailable)
            else (capabilities.backend_pid, capabilities.backend_start_ms)
        )

    @property
    def reached(self) -> Reached | None:
        """Return the address of our session; None without one."""
        return self._reader.reached

    @property
    def password_needed(self) -> bool:
        """Whether the server waits for a password, and we for somebody to type it."""
        return self.source.server is not None and self.source.server.password_needed

    def connect_as(self, conninfo: ConnInfo) -> None:
        """Tries again at once, with a password that was typed. In the engine's loop."""
        self._reader.conninfo = conninfo
        if self.source.server is not None:
            self.source.server.retry_now()


def _consoles(options: LiveOptions, clock: Callable[[], float]) -> list[PoolerConsole]:
    if not options.poolers:
        # They take psycopg, which nothing else here does.
        return []
    from pgtop_tune.pooler.console import PoolerConsole

    return [PoolerConsole(address, clock, APPLICATION_NAME) for address in options.poolers]
