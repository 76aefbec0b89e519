"""The frame: all readings of one tick, raw, with two clocks."""

from __future__ import annotations

from msgspec import Struct

from pgtop_tune.model.absence import NOT_RECORDED, Unavailable
from pgtop_tune.model.bench import BenchSample
from pgtop_tune.model.events import Event
from pgtop_tune.model.host import HostSample
from pgtop_tune.model.pooler import PoolerSample
from pgtop_tune.model.postgres import PostgresSample
from pgtop_tune.model.setup import Measured


class Footprint(Struct, frozen=True, gc=False):
    """Cost of watching: our own CPU time, and the server's time for our statements."""

    at_s: float
    cpu_s: float
    """CPU seconds of this process, user and system, since it started."""
    rss_bytes: int
    statements: int
    """Statements sent to the server since the start."""
    statement_ms: float
    """Wall time spent waiting for their answers."""
    terminal_bytes: int = 0
    """Bytes written to the terminal since the start; 0 without a screen."""


class Frame(Struct, frozen=True, gc=False):
    """All readings of one tick.

    Attributes:
        sequence: 0, 1, 2 … within a session; a missing number is a late tick that was skipped.
        taken_at_ms: Milliseconds since the epoch, this machine's wall clock (may step).
        elapsed_s: Seconds since the session began, monotonic. Sections carry their own `at_s` on the same clock.
        host: The server's machine, or the reason why its section is missing.
        postgres: The server, or the reason why it does not answer.
        bench: pgbench of ours, or Unavailable(NO_LOAD).
        footprint: Our own cost.
        events: Events since the previous frame.
        pooler: The poolers that the operator named, or Unavailable(NO_POOLER).
        ceilings: Limits of the server, measured earlier.
        interval_s: Seconds between frames that were asked for; None in recordings of older versions.
    """

    sequence: int
    taken_at_ms: int
    elapsed_s: float
    host: HostSample | Unavailable = NOT_RECORDED
    postgres: PostgresSample | Unavailable = NOT_RECORDED
    bench: BenchSample | Unavailable = NOT_RECORDED
    footprint: Footprint | Unavailable = NOT_RECORDED
    events: tuple[Event, ...] = ()
    pooler: PoolerSample | Unavailable = NOT_RECORDED
    ceilings: Measured | Unavailable = NOT_RECORDED
    interval_s: float | None = None
