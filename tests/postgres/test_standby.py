"""A server in recovery: every section comes from it as well."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.postgres.reader import PostgresReader
from tests.postgres.conftest import place


@pytest.mark.parametrize("major", [14, 18])
async def test_every_section_comes_from_a_standby(make_server: Callable[..., Throwaway], major: int) -> None:
    server = make_server(major)
    # A standby without a primary: it has nothing to replay, and answers all the same.
    (Path(str(server.data_dir)) / "standby.signal").touch()
    server.restart()
    reader = PostgresReader(place(server), time.monotonic)
    assert (await reader.connect()).in_recovery
    assert not isinstance(await reader.facts(), Unavailable)
    assert not isinstance(await reader.waits(50), Unavailable)
    for section in (
        sections.database, sections.checkpoints, sections.statements, sections.parameters, sections.statement_counters,
        sections.statement_texts, sections.databases, sections.slru, sections.archiver,
    ):  # fmt: skip
        assert not isinstance(await reader.read(section), Unavailable)
    assert isinstance(await reader.read(sections.io), Unavailable) == (major < 16)
    files = await reader.read(sections.wal_files)
    assert not isinstance(files, Unavailable)
    assert (files.segments > 0, files.recycled) == (True, None)
    wal = await reader.read(sections.wal)
    assert not isinstance(wal, Unavailable)
    assert wal.lsn_bytes
    activity = await reader.read(sections.activity)
    assert not isinstance(activity, Unavailable)
    assert "startup" in {backend.backend_type for backend in activity.backends}
    await reader.aclose()
