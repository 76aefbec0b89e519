"""Temporary files that exist now, and the sessions that made them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.backend_action import BackendKey
from pgtop_tune.model.postgres import Backend
from pgtop_tune.model.relations import TempFiles
from pgtop_tune.safe_text import one_line
from pgtop_tune.tui.pages.page import PageTable, number, rows_of, word
from pgtop_tune.units import count, size

_TEXT: Final = 500


class Maker(Struct, frozen=True):
    """A process with temporary files.

    Attributes:
        files: What it made.
        backend: Its session; None where it was not seen.
    """

    files: TempFiles
    backend: Backend | None


def makers(interval: Interval) -> list[Maker]:
    """Processes with temporary files; empty without the section."""
    sample, activity = interval.now(sections.temp_files), interval.now(sections.activity)
    backends = {} if activity is None else {backend.pid: backend for backend in activity.backends}
    return [] if sample is None else [Maker(files, backends.get(files.pid)) for files in sample.processes]


def _of_backend(name: str) -> Callable[[Any], str]:
    return lambda row: "" if row.backend is None else one_line(getattr(row.backend, name) or "", _TEXT)


def _key(row: Any) -> BackendKey | None:
    backend = row.backend
    return None if backend is None else (backend.pid, backend.backend_start_ms)


_COLUMNS: Final = (
    number("pid", "PID", 7, lambda row: row.files.pid, lambda value: f"{value or 0:.0f}",
           "Process that made the files.", "pg_ls_tmpdir().name"),
    number("files", "files", 7, lambda row: row.files.files, count, "Temporary files that exist now.",
           "pg_ls_tmpdir()"),
    number("bytes", "size", 8, lambda row: row.files.bytes, size, "Their size.", "pg_ls_tmpdir().size"),
    word("user", "user", 10, _of_backend("usename"), "Role of the session.", "pg_stat_activity.usename"),
    word("database", "db", 10, _of_backend("datname"), "Database it is connected to.", "pg_stat_activity.datname"),
    word("query", "query", 20, _of_backend("query"), "Statement of the session, or the last one if it is not active.",
         "pg_stat_activity.query", elastic=True),
)  # fmt: skip

TEMP_FILES: Final = PageTable(
    id="temp-files",
    title="temp files",
    columns=_COLUMNS,
    rows=rows_of(sections.temp_files, makers),
    key_of=lambda row: row.files.pid,
    backend_of=_key,
    copied=_of_backend("query"),
    sort="bytes",
    empty="no temporary files now",
)
