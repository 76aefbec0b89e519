"""Readings of old transactions: what each of them waited for, summed by their length."""

from __future__ import annotations

from math import floor, log2
from typing import Annotated, Final

from msgspec import Struct

from pgtop_tune.model.recorded_as import WIDE

_CLASSES_AN_OCTAVE: Final = 4


def length_class(age_ms: float) -> int:
    """Class of a length: four classes to each doubling, 0 from 1 ms on."""
    return max(floor(_CLASSES_AN_OCTAVE * log2(max(age_ms, 1.0))), 0)


def class_edge_ms(length: int) -> float:
    """Lower edge of a class; the upper one is that of the next class."""
    return float(2.0 ** (length / _CLASSES_AN_OCTAVE))


class OldTransaction(Struct, frozen=True, gc=False):
    """What one look saw of a transaction that was older than the floor.

    Attributes:
        xact_start_ms: pg_stat_activity.xact_start; with the pid it names the transaction.
        age_ms: Age at the look.
        wait_event_type: Class, "CPU" without a wait event, "Client" while idle in transaction.
        wait_event: Event, "" for CPU, "turn" while idle in transaction.
        query_id: Of the statement under way; None while idle in transaction, or where the server has none.
        of_load: The session calls itself pgbench.
    """

    pid: int
    xact_start_ms: int
    age_ms: float
    wait_event_type: str
    wait_event: str
    query_id: int | None
    of_load: bool


class Blocker(Struct, frozen=True, gc=False):
    """A session at whose lock another one waits.

    Attributes:
        pid: 0 for a prepared transaction.
        does: First word of its statement, or "idle in transaction"; "" where this role may not see it.
    """

    pid: int
    does: str


class TailRow(Struct, frozen=True, gc=False):
    """Transactions of one length that had one wait.

    Attributes:
        length: Class of the greatest age that looks saw, see `length_class`.
        open: The transactions were still open at the last look of the frame.
        wait_event_type: As of `OldTransaction`.
        wait_event: As of `OldTransaction`.
        transactions: Sum of the shares of their looks that these waits had: a transaction counts 1 over all its rows.
        looks: Looks that saw them in this wait.
        query_id: Of the waiting statement.
        root_pid: Session at the root of the queue for a lock; 0 for a prepared transaction, None where it is not known
            or where several are meant.
        root: What that session did: the first word of its statement, or "idle in transaction"; "" where unknown.
        of_load: The sessions call themselves pgbench.
    """

    length: int
    open: bool
    wait_event_type: str
    wait_event: str
    transactions: float
    looks: int
    query_id: Annotated[int | None, WIDE] = None
    root_pid: int | None = None
    root: str = ""
    of_load: bool = False


class TailSample(Struct, frozen=True, gc=False):
    """Transactions older than a floor: those that ended since the previous frame, and those that are open.

    Attributes:
        looks: Looks since the previous frame; the first one of a connection is none.
        every_ms: Mean time between these and the look before each.
        floor_ms: Younger transactions were not followed.
        one_in: Every session was followed, or one in so many; rows are counted up to all.
        rows: Bounded; where there are more, they lose roots and statements first.
    """

    at_s: float
    looks: int
    every_ms: float
    floor_ms: float
    one_in: int
    rows: tuple[TailRow, ...] = ()
