"""What was seen of those who keep old rows from being removed: transactions open or prepared."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class OpenTransaction:
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


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """One row of pg_prepared_xacts."""

    gid: str
    xid: int
    owner: str
    database: str
    prepared_ms: int


@dataclass(frozen=True, slots=True)
class HorizonSample:
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
    open: tuple[OpenTransaction, ...] = field(metadata={"key": "pid"})
    prepared: tuple[PreparedTransaction, ...] = field(default=(), metadata={"key": "gid"})
