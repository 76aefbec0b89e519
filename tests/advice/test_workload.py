"""What a server is used for is told from its counters, or not at all."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pgtop_tune.advice.gather import workload_seen
from pgtop_tune.model.machine import Workload
from pgtop_tune.model.postgres import DatabaseCounters

QUIET = DatabaseCounters(
    at_s=1.0, xact_commit=0, xact_rollback=0, blks_read=0, blks_hit=0, tup_returned=0, tup_fetched=0, tup_inserted=0,
    tup_updated=0, tup_deleted=0, conflicts=0, temp_files=0, temp_bytes=0, deadlocks=0, stats_reset_ms=None,
)  # fmt: skip


@pytest.mark.parametrize(
    ("rows_per_transaction", "written", "kind"),
    [(5, 4, Workload.OLTP), (5, 0, Workload.WEB), (2_000_000, 0, Workload.OLAP), (2_000_000, 3, Workload.MIXED)],
)
def test_a_kind_is_told_from_rows_read_and_the_share_that_is_written(
    rows_per_transaction: int, written: int, kind: Workload
) -> None:
    count = 20_000
    counters = replace(
        QUIET,
        xact_commit=count,
        tup_returned=rows_per_transaction * count,
        tup_fetched=4 * count,
        tup_updated=written * count,
    )
    seen = workload_seen(counters)
    assert seen is not None
    assert seen.workload is kind
    assert f"{written / (written + 4):.0%}" in seen.because


def test_a_server_that_has_done_nothing_but_answer_us_says_nothing() -> None:
    assert workload_seen(replace(QUIET, xact_commit=12_000, own_transactions=11_000)) is None
