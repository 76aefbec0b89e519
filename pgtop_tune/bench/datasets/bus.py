"""The bus company: cities, stations, buses, seats, routes, schedule, rides, tickets with a name and a JSON contact.

Every value follows from the number of its row and the seed by integer arithmetic (products of Lehmer generators, all
below 2^63), so the same seed and size give the same tables on every server version. Nothing is drawn with random().
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from string import Template
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.base.units import COUNTS, quantity

VERSION: Final = 1
"""Version of the tables and the arithmetic; another one makes other tables."""
TABLES: Final = ("cities", "stations", "buses", "seats", "routes", "schedule", "rides", "tickets")
OWN_TABLES: Final = ("dataset", "chunks")
SEATS: Final = 40
BLOCK_RIDES: Final = 64
BLOCK_TICKETS: Final = BLOCK_RIDES * SEATS
STRIDE: Final = 1013
"""Without a common divisor with BLOCK_TICKETS: it scatters the tickets of 64 rides, each seat once."""
CHUNK_TICKETS: Final = 40 * BLOCK_TICKETS
CITIES: Final = 50
STATIONS: Final = 3 * CITIES
YEAR_DAYS: Final = 366
MOST_TICKETS: Final = 10_000_000_000
LARGEST_SEED: Final = 2**31 - 1
TICKET_BYTES: Final = 138.2
"""Heap 106.6, primary key 22.5, index on the ride 7.1, the other tables 2; measured at six million tickets."""

_BYTES: Final = {f"{unit}{end}": value for unit, value in COUNTS.items() for end in "bB"}


class BusPlan(Struct, frozen=True):
    """The size and the options of the data set.

    Attributes:
        unlogged: Without WAL: quicker, and not representative.
    """

    tickets: int = 6_000_000
    seed: int = 1
    unlogged: bool = False
    foreign_keys: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.tickets <= MOST_TICKETS:
            raise LoadProblem(f"tickets must be from 1 to {MOST_TICKETS}")
        if not 0 <= self.seed <= LARGEST_SEED:
            raise LoadProblem(f"the seed must be from 0 to {LARGEST_SEED}")

    @property
    def chunks(self) -> int:
        """Return the number of parts in which the tickets are made."""
        return -(-self.tickets // CHUNK_TICKETS)

    def chunk(self, number: int) -> tuple[int, int]:
        """Return the first and last ticket of a part, counted from 0."""
        return number * CHUNK_TICKETS + 1, min((number + 1) * CHUNK_TICKETS, self.tickets)

    @property
    def estimated_bytes(self) -> int:
        """Return the bytes of tables and indexes when they are made."""
        return int(self.tickets * TICKET_BYTES) + 2**20


def table_sizes(tickets: int) -> dict[str, int]:
    """Return rows of each table, and `days`, the days with rides; for so many tickets.

    The names are those of the variables that scripts may use.
    """
    rides = -(-tickets // BLOCK_TICKETS) * BLOCK_RIDES
    schedules = max(1, -(-rides // YEAR_DAYS))
    return {
        "tickets": tickets,
        "rides": rides,
        "schedules": schedules,
        "days": -(-rides // schedules),
        "routes": max(20, schedules // 4),
        "buses": max(10, schedules // 2),
        "seats": SEATS,
        "stations": STATIONS,
        "cities": CITIES,
    }


def parse_size(text: str) -> int:
    """Return tickets for "6M" (six million tickets), "600000", or "0.6GB" (as many as take that room on disk).

    Raises:
        LoadProblem: It is none of these.
    """
    number, size_bytes = quantity(text, COUNTS), quantity(text, _BYTES)
    tickets = round((size_bytes or 0.0) / TICKET_BYTES if number is None else number)
    if not 1 <= tickets <= MOST_TICKETS:
        raise LoadProblem(
            f"{text!r} is not a size of the bus data set",
            f"pass a number of tickets (600000 or 6M, up to {MOST_TICKETS}) or disk space (600MB or 0.6GB)",
        )
    return tickets


def statements(name: str, plan: BusPlan, more: Mapping[str, int] | None = None) -> str:
    """Return the SQL of a step, its numbers put in.

    Args:
        name: File in `sql/`, without `bus_` and `.sql`.
        more: Further numbers it needs.
    """
    numbers = {
        **table_sizes(plan.tickets),
        "version": VERSION,
        "seed": plan.seed,
        "block_rides": BLOCK_RIDES,
        "block_tickets": BLOCK_TICKETS,
        "stride": STRIDE,
        "full_blocks": plan.tickets // BLOCK_TICKETS,
        "remainder": plan.tickets % BLOCK_TICKETS,
        **(more or {}),
    }
    options = {"unlogged": "UNLOGGED" if plan.unlogged else "", "is_unlogged": str(plan.unlogged).lower()}
    text = resources.files("pgtop_tune.bench.datasets").joinpath("sql", f"bus_{name}.sql").read_text("utf-8")
    return Template(text).substitute(options, **numbers)


def chunk_statements(plan: BusPlan, number: int) -> str:
    """Return the SQL that makes one part of the tickets and notes that it is there; one transaction."""
    first, last = plan.chunk(number)
    return statements("tickets", plan, {"first": first, "last": last, "chunk": number})
