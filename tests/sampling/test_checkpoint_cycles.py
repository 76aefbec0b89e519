"""Full pages of checkpoint cycles: remembered across minutes, forgotten across resets, and seen on a real server."""

from __future__ import annotations

import asyncio

import psycopg
from msgspec.structs import replace

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.checkpoints import FULL_PAGES_OF_CYCLE, FULL_PAGES_SINCE
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import CheckpointCounters, CheckpointCycle, WalCounters
from pgtop_tune.sampling.postgres_sampler import CheckpointCycles
from tests.sampling.test_live_source import answered, watching
from tests.support.servers import conninfo

WAL = WalCounters(0.0, 0, 0, 0, 0, 0, None)
COUNTERS = CheckpointCounters(0.0, 0, 0, 0.0, 0.0, 0, 0, 0, 0, 0, None, None, None)


def look(cycles: CheckpointCycles, second: int, begun: int, full_pages: int) -> CheckpointCycle:
    found = cycles.seen(
        replace(COUNTERS, at_s=float(second), timed=begun), replace(WAL, at_s=float(second), wal_fpi=full_pages)
    )
    assert isinstance(found, CheckpointCycle)
    return found


def test_a_cycle_counts_from_the_look_before_a_checkpoint_began_to_the_one_before_the_next() -> None:
    cycles = CheckpointCycles()
    assert look(cycles, 0, 3, 1000).full_pages_at_begin is None
    assert look(cycles, 1, 4, 1100) == CheckpointCycle(1.0, 1000, None)
    for second in range(2, 400):
        assert look(cycles, second, 4, 1100 + second) == CheckpointCycle(float(second), 1000, None)
    assert look(cycles, 400, 5, 9000) == CheckpointCycle(400.0, 1499, 1000)


def test_two_checkpoints_between_two_looks_leave_the_cycle_unknown() -> None:
    cycles = CheckpointCycles()
    look(cycles, 0, 3, 1000)
    look(cycles, 1, 4, 1100)
    assert look(cycles, 2, 6, 1200) == CheckpointCycle(2.0, 1100, None)


def test_a_reset_or_an_absence_begins_anew() -> None:
    cycles = CheckpointCycles()
    look(cycles, 0, 3, 1000)
    look(cycles, 1, 4, 1100)
    assert look(cycles, 2, 4, 5).full_pages_at_begin is None
    look(cycles, 3, 5, 10)
    absent = Unavailable(Reason.TOO_SLOW)
    assert cycles.seen(replace(COUNTERS, at_s=4.0), absent) is absent
    assert look(cycles, 5, 9, 10).full_pages_at_begin is None


async def test_a_real_server_tells_what_a_checkpoint_costs_in_full_pages(fresh_server: Throwaway) -> None:
    target = conninfo(fresh_server)
    with psycopg.connect(target, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE t WITH (fillfactor = 80) AS"
            " SELECT n, repeat('x', 90) AS filler FROM generate_series(1, 40000) n"
        )
        pages = connection.execute("SELECT pg_relation_size('t') / 8192").fetchone()
        assert pages is not None
        connection.execute("CHECKPOINT")
        async with watching(target, 0.25) as watcher:
            await watcher.until(answered)
            for _ in range(3):
                before = await watcher.more(2)
                counters, wal = before.now(sections.checkpoints), before.now(sections.wal)
                assert counters is not None
                assert wal is not None
                await asyncio.to_thread(connection.execute, "UPDATE t SET filler = upper(filler) WHERE n % 20 = 0")
                await asyncio.to_thread(connection.execute, "SELECT pg_stat_force_next_flush()")
                wanted = wal.wal_fpi + pages[0] * 19 // 20

                def is_counted(frame: Frame, wanted: int = wanted) -> bool:
                    now = sections.wal(frame)
                    return not isinstance(now, Unavailable) and now.wal_fpi >= wanted

                # What a session wrote is counted a second later or so, by then perhaps in the next cycle.
                await watcher.until(is_counted)
                await asyncio.to_thread(connection.execute, "CHECKPOINT")
                begun = counters.timed + counters.requested

                def has_begun(frame: Frame, begun: int = begun) -> bool:
                    now = sections.checkpoints(frame)
                    return not isinstance(now, Unavailable) and now.timed + now.requested > begun

                await watcher.until(has_begun)
            interval = await watcher.more(2)
            of_cycle, since = FULL_PAGES_OF_CYCLE(interval), FULL_PAGES_SINCE(interval)
            assert of_cycle is not None
            # Nearly every page of the table is changed once in each cycle, and hardly anything else.
            assert 0.95 * pages[0] <= of_cycle <= 1.6 * pages[0] + 100
            assert since is not None
            assert since < pages[0] / 2
