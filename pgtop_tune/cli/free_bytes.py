"""Bytes free where the server keeps its data, when the server is on this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pgtop_tune.base.foreign_answers import decodes

if TYPE_CHECKING:
    from pgtop_tune.bench.ports import SqlSession


@decodes
async def free_bytes_for(sql_session: SqlSession) -> Callable[[str], int | str]:
    """What says the bytes available at a directory of the server's machine, or why they cannot be known."""
    from pgtop_tune.host.block_devices import ROOT
    from pgtop_tune.host.locality import local_postmaster
    from pgtop_tune.model.absence import Unavailable
    from pgtop_tune.postgres.queries import OLDEST_MAJOR, sql
    from pgtop_tune.process.mount_namespace import namespace_of

    [(pid, started_ms, _)] = await sql_session.rows(sql("own_backend", OLDEST_MAJOR))
    postmaster = local_postmaster(int(str(pid)), int(str(started_ms)))

    def free_bytes(directory: str) -> int | str:
        if isinstance(postmaster, Unavailable):
            return "the server runs on another machine, or in a container"
        namespace = namespace_of(postmaster, ROOT)
        real = namespace.real_path(directory)
        if real is None:
            return f"{directory} is not readable"
        try:
            found = namespace.statvfs(real)
        except OSError as problem:
            return f"{directory}: {problem.strerror}"
        return found.f_bavail * found.f_frsize

    return free_bytes
