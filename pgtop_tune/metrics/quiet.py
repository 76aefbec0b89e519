"""Whether a server is quiet enough to begin a measurement, and what keeps it from being so."""

from __future__ import annotations

from typing import Final

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.host import DISK_BUSY
from pgtop_tune.metrics.server import client_backends
from pgtop_tune.model.postgres import Activity, Backend

DISK_BUSY_BELOW: Final = 20.0
AUTOVACUUM: Final = "autovacuum worker"
ACTIVE: Final = ("active", "fastpath function call")
SILENT: Final = ("the server does not answer",)
_PREFIX: Final = "autovacuum: "


def unrest(interval: Interval) -> tuple[str, ...]:
    """What is going on, one phrase each; empty when it is quiet. Sessions of ours do not count. Foreign text.

    Source: pg_stat_activity for active sessions and autovacuum workers, /proc/diskstats for the server's disks, of
    which none may be busy for more than 20 % of the time since the frame before.
    """
    activity = interval.now(sections.activity)
    if activity is None:
        return SILENT
    return (*_sessions(activity), *_workers(activity), *_disks(interval))


def vacuumed_table(worker: Backend) -> str:
    """The table an autovacuum worker is at, without its schema; "" when it is between two."""
    words = (worker.query or "").removeprefix(_PREFIX).split(" (")[0].split()
    return words[-1].rsplit(".", 1)[-1] if len(words) > 1 else ""


def _sessions(activity: Activity) -> list[str]:
    busy = [backend for backend in client_backends(activity) if backend.state in ACTIVE]
    if not busy:
        return []
    names = ", ".join(dict.fromkeys(backend.application_name or backend.usename or "?" for backend in busy))
    return [f"{len(busy)} other active session{'s' if len(busy) > 1 else ''} ({names})"]


def _workers(activity: Activity) -> list[str]:
    return [
        f"autovacuum of {vacuumed_table(backend) or 'a table'}"
        for backend in activity.backends
        if backend.backend_type == AUTOVACUUM
    ]


def _disks(interval: Interval) -> list[str]:
    disks = interval.now(sections.disks)
    busy = DISK_BUSY(interval)
    ours = [] if disks is None else [disk.name for disk in disks.disks if disk.roles]
    return [f"disk {name} {busy[name]:.0f} % busy" for name in ours if name in busy and busy[name] >= DISK_BUSY_BELOW]
