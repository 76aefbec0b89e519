"""The statement that signals a session: run as it is shown."""

from __future__ import annotations

from typing import Final

from pgtop_tune.model.backend_action import BackendAct, BackendKey

_FUNCTIONS: Final = {BackendAct.CANCEL: "pg_cancel_backend", BackendAct.TERMINATE: "pg_terminate_backend"}


def signal_statement(act: BackendAct, backend: BackendKey) -> str:
    """The one statement that finds the session by pid and start and signals it; no row when it is another by now."""
    pid, started_ms = backend
    started = "NULL" if started_ms is None else f"{started_ms:d}"
    return (
        f"SELECT {_FUNCTIONS[act]}(pid) AS sent FROM pg_stat_activity"
        f" WHERE pid = {pid:d} AND (date_part('epoch', backend_start) * 1000)::bigint = {started}"
    )
