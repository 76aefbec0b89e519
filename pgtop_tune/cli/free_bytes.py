"""Bytes free where the server keeps its data, when the server is on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from pgtop_tune.foreign_answers import decodes

if TYPE_CHECKING:
    from pgtop_tune.bench.ports import SqlSession


@decodes
async def free_bytes_for(sql_session: SqlSession) -> Callable[[str], int | str]:
    """What says the bytes available at a directory of the server's machine, or why they cannot be known."""
    from pgtop_tune.host.locality import local_postmaster
    from pgtop_tune.model.absence import Unavailable
    from pgtop_tune.postgres.queries import OLDEST_MAJOR, sql

    [(pid, started_ms, _)] = await sql_session.rows(sql("own_backend", OLDEST_MAJOR))
    postmaster = local_postmaster(int(str(pid)), int(str(started_ms)))

    def free_bytes(directory: str) -> int | str:
        if isinstance(postmaster, Unavailable):
            return "the server runs on another machine, or in a container"
        try:
            found = os.statvfs(f"/proc/{postmaster}/root{directory}" if os.geteuid() == 0 else directory)
        except OSError as problem:
            return f"{directory}: {problem.strerror}"
        return found.f_bavail * found.f_frsize

    return free_bytes
