"""A server of a major that nobody knows yet, on the screen: the header says so at every width."""

from __future__ import annotations

import re

import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.live_screen import NARROW, WIDE
from tests.support.servers import conninfo
from tests.tui.live.conftest import Watch


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (NARROW, "newer than supported, shown as 19"),
        ((239, WIDE[1]), "20 is newer than pgtop-tune supports: shown as 19"),
    ],
)
async def test_the_header_names_the_major_whose_figures_are_shown(
    newer_server: Throwaway, watch: Watch, size: tuple[int, int], said: str
) -> None:
    async with watch(conninfo(newer_server), size) as screen:
        await screen.shows(re.escape(said))
        await screen.turn_to("io", "io")
        await screen.shows("shown as 19", r"column s\.reuses does not exist")
        await screen.turn_to("io", "wal")
        await screen.shows(r"full-page bytes +[\d.]+ [kM]?B")
