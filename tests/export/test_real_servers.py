"""Pages of real servers: of every major, of a primary and its standby."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from pgtop_tune.cli.headless import run_beside
from pgtop_tune.cli.options import LiveOptions
from pgtop_tune.cli.wiring import LiveSession
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.export.endpoint import Exposition
from pgtop_tune.export.openmetrics import Syntax
from pgtop_tune.postgres.server.conninfo import resolve
from tests.export.pages import families, values
from tests.support.servers import Servers, conninfo
from tests.support.standby import standby_of

DEADLINE_S = 60.0
COUNTED = (
    ("pgtop_stat_database_xact_commit_total", 14),
    ("pgtop_stat_wal_wal_bytes_total", 14),
    ("pgtop_stat_checkpointer_num_timed_total", 14),
    ("pgtop_stat_bgwriter_buffers_alloc_total", 14),
    ("pgtop_stat_slru_blks_hit_total", 14),
    ("pgtop_stat_archiver_failed_total", 14),
    ("pgtop_stat_io_reads_total", 16),
    ("pgtop_stat_checkpointer_num_done_total", 18),
)
"""Counters, and the major from which on there is one."""


async def scraped(server: Throwaway, until: str) -> str:
    """The page of a server, once a name stands in it."""
    session = LiveSession(resolve(conninfo(server)), LiveOptions(interval_s=0.3))
    exposition, found = Exposition(0.3), []
    session.engine.attach(exposition)

    async def looked() -> None:
        async with asyncio.timeout(DEADLINE_S):
            while until not in (page := exposition.page(Syntax.OPENMETRICS)):
                await asyncio.sleep(0.1)
        found.append(page)

    await run_beside(session.engine, looked)
    return found[0]


@pytest.mark.long
async def test_a_page_is_valid_and_has_what_the_major_counts(all_servers: Throwaway) -> None:
    page = await scraped(all_servers, "pgtop_server_transactions_per_second ")
    found = values(page)
    (server,) = families(page)["pgtop_server"].samples
    major = all_servers.binaries.major
    assert server.labels["version"].startswith(str(major))
    names = {name for name, _ in found}
    assert [name for name, first in COUNTED if (name in names) != (major >= first)] == []
    refused = {labels for name, labels in found if name == "pgtop_unavailable"}
    assert ((("reason", "not supported"), ("section", "postgres.io")) in refused) == (major < 16)


@pytest.mark.long
async def test_a_primary_tells_of_its_standby_and_the_standby_of_itself(
    make_server: Callable[..., Throwaway], servers: Servers
) -> None:
    primary = make_server()
    standby = standby_of(primary, make_server, "slot_one", servers.binaries(18))
    page = await scraped(primary, "pgtop_replication_behind_bytes")
    (sender,) = families(page)["pgtop_replication_behind_bytes"].samples
    assert sender.labels["application_name"]
    found = values(page)
    slot = (("slot_name", "slot_one"), ("slot_type", "physical"))
    assert found["pgtop_slot_active", slot] == 1
    assert found["pgtop_slot_retained_bytes", slot] >= 0
    assert found["pgtop_server_in_recovery", ()] == 0
    found = values(await scraped(standby, "pgtop_standby_unreplayed_bytes"))
    assert found["pgtop_server_in_recovery", ()] == 1
    assert found["pgtop_standby_unreplayed_bytes", ()] >= 0
