"""Whose process serves us: looked at while the session lasts, for afterwards there is none."""

from __future__ import annotations

import time

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.host.process_files import local_postmaster
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.postgres.server.straight_way import whereabouts
from tests.support.servers import conninfo

DEADLINE_S = 60.0


async def test_the_process_that_serves_us_is_there_as_long_as_we_look(server: Throwaway) -> None:
    async with whereabouts(resolve(conninfo(server))) as found:
        assert found.data_directory == str(server.data_dir)
        # Time enough for a process to end that nobody is connected to any more.
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            assert local_postmaster(found.backend_pid, found.backend_start_ms) == server.postmaster_pid
    until = time.monotonic() + DEADLINE_S
    while not isinstance(local_postmaster(found.backend_pid, found.backend_start_ms), Unavailable):
        assert time.monotonic() < until
