"""What was seen of those who keep old rows from being removed: transactions open or prepared."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from pgtop_tune.model.recorded_as import Keyed


class OpenTransaction(Struct, frozen=True):
    """A backend with a transaction id or a snapshot: pg_stat_activity.backend_xid, backend_xmin.

    Attributes:
        pid: Backend; more of it is in the activity section.
        backend_type: "walsender" for the feedback of a standby.
        xid: Its own transaction id; None when it has written nothing.
        xmin: Oldest transaction its snapshot can see as running; None between statements of READ COMMITTED.
        is_vacuum: A plain VACUUM, which holds nothing back.
    """

    pid: int
    datname: str | None
    usename: str | None
    backend_type: str | None
    state: str | None
    xact_start_ms: int | None
    xid: int | None
    xmin: int | None
    is_vacuum: bool


class PreparedTransaction(Struct, frozen=True):
    """One row of pg_prepared_xacts."""

    gid: str
    xid: int
    owner: str
    database: str
    prepared_ms: int


class HorizonSample(Struct, frozen=True):
    """The oldest open transactions and all prepared ones, read every few seconds.

    Attributes:
        now_ms: clock_timestamp() of the server.
        next_xid: What ages are counted from.
        open: The oldest, at most twenty.
        n_open: How many there are in all.
        prepared: By gid.
    """

    at_s: float
    now_ms: int
    next_xid: int
    n_open: int
    open: Annotated[tuple[OpenTransaction, ...], Keyed("pid")]
    prepared: Annotated[tuple[PreparedTransaction, ...], Keyed("gid")] = ()
