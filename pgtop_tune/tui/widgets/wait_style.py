"""One colour per wait class, the same in every pane."""

from __future__ import annotations

from typing import Final

from pgtop_tune.model.waits import QUEUE

_STYLES: Final = {
    "CPU": "cpu",
    QUEUE: "cpu-queue",
    "IO": "wait-io",
    "Lock": "wait-lock",
    "LWLock": "wait-lwlock",
    "Client": "wait-client",
    "IPC": "wait-ipc",
    "BufferPin": "wait-ipc",
    "Buffer": "wait-ipc",
    "background": "dim",
    "pacing": "dim",
    "io worker": "dim",
}


def wait_style(wait_event_type: str) -> str:
    """Style of a class of pg_stat_activity.wait_event_type, of "CPU", its queue, or of what is not active."""
    return _STYLES.get(wait_event_type, "wait-other")
