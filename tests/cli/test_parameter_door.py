"""The door to the server's parameters as the command line puts it together."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgtop_tune.base.errors import UnsafeChange
from pgtop_tune.changes.model.change import Terms, WantedParameter
from pgtop_tune.cli.options import LiveOptions
from pgtop_tune.cli.wiring import LiveParts
from pgtop_tune.cluster.throwaway import Throwaway
from tests.postgres.conftest import place


async def test_the_fence_and_the_order_are_held_at_the_door(server: Throwaway, tmp_path: Path) -> None:
    parts = LiveParts(place(server), LiveOptions(1.0, journal_directory=tmp_path))
    with pytest.raises(UnsafeChange, match="can lose"):
        await parts.parameters.apply("full_page_writes", "off")
    made = await parts.parameters.apply_set(
        [WantedParameter("min_wal_size", "2GB"), WantedParameter("max_wal_size", "4GB")], Terms(keep_within_s=600.0)
    )
    assert [change.name for change in made] == ["max_wal_size", "min_wal_size"]
    await parts.parameters.aclose()
    assert await parts.parameters.in_force() == ()
    await parts.parameters.aclose()
    await parts.source.aclose()
