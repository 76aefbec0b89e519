"""What was seen of commands that tell how far they are."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from pgtop_tune.model.recorded_as import Keyed


class ProgressRow(Struct, frozen=True):
    """One row of a pg_stat_progress_* view.

    Attributes:
        pid: Backend; each has one such command at most.
        command: "VACUUM", "ANALYZE", "CREATE INDEX CONCURRENTLY", "CLUSTER", "COPY FROM", "BASE BACKUP", …
        relation: Table, with index where there is one; the oid as text when it is of another database, "" without.
        phase: In the server's words; "" where the view has none.
        done, total: What the phase counts; None where it counts nothing, or does not know how much there is.
        unit: Of `done` and `total`: "blocks", "tuples", "bytes", "indexes", "lockers", "statistics"; "" without.
        steps_done, steps_total: The coarser count around it: partitions, child tables, tablespaces; None without.
        steps_unit: What these are.
        tuples: Rows processed so far (COPY, CREATE INDEX, CLUSTER), dead ones found (VACUUM); None without.
        memory_bytes: Dead tuples collected by VACUUM, as bytes of memory.
        memory_limit_bytes: When these are reached the indexes are vacuumed, and once more later.
        passes: Index vacuum cycles completed.
        delay_ms: Slept for the cost limit (18, with track_cost_delay_timing); None without.
    """

    pid: int
    command: str
    datname: str | None
    relation: str
    phase: str
    done: int | None
    total: int | None
    unit: str
    steps_done: int | None
    steps_total: int | None
    steps_unit: str
    tuples: int | None
    memory_bytes: int | None
    memory_limit_bytes: int | None
    passes: int | None
    delay_ms: float | None


class ProgressSample(Struct, frozen=True):
    """All pg_stat_progress_* views at one moment."""

    at_s: float
    commands: Annotated[tuple[ProgressRow, ...], Keyed("pid")]
