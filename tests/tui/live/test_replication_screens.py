"""A standby that falls behind, slots that keep WAL and a subscriber, on the screens of all three servers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from tests.support.crowd import Crowd
from tests.support.live_screen import DEADLINE_S, WIDE
from tests.support.servers import conninfo
from tests.support.standby import standby_of
from tests.tui.live.conftest import Watch

WRITING = """DO $$ BEGIN LOOP
    UPDATE orders SET words = repeat('y', 200) WHERE id <= 500; COMMIT; PERFORM pg_sleep(0.3);
END LOOP; END $$"""


@dataclass(frozen=True)
class Cascade:
    """Connection strings: of the one that writes, of its paused standby, of a subscriber to one of its tables."""

    primary: str
    standby: str
    subscriber: str


@pytest.fixture(params=[pytest.param(14, marks=pytest.mark.long), 18], ids=lambda major: f"pg{major}")
def cascade(
    request: pytest.FixtureRequest, make_server: Callable[..., Throwaway], server: Throwaway
) -> Iterator[Cascade]:
    """Replay on the standby stands still while the primary writes on; nobody reads the slot "forgotten"."""
    # On a disk, where its path leaves room in 80 columns for the rest of the standby's line.
    primary = make_server(request.param, wal_level="logical", fsync="on")
    standby = standby_of(primary, make_server, "kept", server.binaries)
    subscriber = make_server(request.param)
    found = Cascade(conninfo(primary), conninfo(standby), conninfo(subscriber))
    with (
        psycopg.connect(found.primary, autocommit=True) as source,
        psycopg.connect(found.subscriber, autocommit=True) as target,
        psycopg.connect(found.standby, autocommit=True) as paused,
    ):
        for side in (source, target):
            side.execute("CREATE TABLE orders (id int PRIMARY KEY, words text)")
        source.execute("CREATE PUBLICATION sold FOR TABLE orders")
        source.execute("SELECT pg_create_physical_replication_slot('forgotten', true)")
        target.execute(f"CREATE SUBSCRIPTION bought CONNECTION '{found.primary}' PUBLICATION sold".encode())
        until = time.monotonic() + DEADLINE_S
        # Before it has replayed the end of a transaction there is no telling how old what it shows is.
        while paused.execute("SELECT pg_last_xact_replay_timestamp() IS NULL").fetchone() == (True,):
            assert time.monotonic() < until, "the standby has replayed no transaction"
        paused.execute("SELECT pg_wal_replay_pause()")
        source.execute("INSERT INTO orders SELECT i, repeat('x', 200) FROM generate_series(1, 20000) i")
        yield found
        paused.execute("SELECT pg_wal_replay_resume()")
        target.execute("DROP SUBSCRIPTION bought")


async def test_each_server_shows_its_side_of_the_replication(cascade: Cascade, watch: Watch) -> None:
    async with watch(cascade.primary) as screen:
        await screen.turn_to("repl")
        # The most behind comes first. What the standby has not replayed is what the subscriber has long had.
        await screen.shows(
            r"^ senders 2 · slots 3 · (most WAL retained [\d.]+ MB|vacuum held back [1-9])",
            r"^ +PID application .*state +sync +behind▼",
            r"^ +\d+ \S+ .*streaming +async +[4-9]\.\d+ MB",
            r"^ +\d+ bought .*streaming +async +0 ",
        )
        await screen.turn_to("repl", "slots")
        screen.read_again(sections.slots)
        # The standby has all WAL on its disk and has only not replayed it: its slot keeps nothing.
        used = r"^ (?:kept|bought) +in use +[\d.]+K? "
        await screen.shows(r"^ forgotten +inactive +[\d.]+ MB ", used, used)
        writing = Crowd(cascade.primary)
        try:
            writing.waits(writing.session(autocommit=True), WRITING)
            screen.read_again(sections.slots)
            await screen.resize(WIDE)
            await screen.shows(
                r"^ slot +state +retained?▼ +grows/s wal .* type +db +PID ",
                r"^ forgotten +inactive +[\d.]+ MB +[\d.]+ [kM]B reserved .* physical - +- ",
            )
            await screen.shows(r"^ bought +in use .* reserved .* logical +postgres +\d+ ")
            await screen.shows(r"^ kept +in use .* reserved .* physical - +\d+ ")
            await screen.turn_to("repl", "senders")
            await screen.shows(
                r"^ +PID application +state +sync +behind▼ replay ms write ms flush ms +unsent unflushd unreplayd",
                r"^ +\d+ \S+ +streaming +async +[\d.]+ MB .* [\d.]+ MB ",
            )
        finally:
            writing.close()
    async with watch(cascade.standby) as screen:
        await screen.turn_to("repl")
        await screen.shows(r"^ standby streaming.* · replay paused · behind \d")
        await screen.resize(WIDE)
        (line,) = await screen.shows(r"replay paused · behind \d.*not replayed ([\d.]+) MB")
        assert float(line[1]) > 4
    async with watch(cascade.subscriber) as screen:
        await screen.turn_to("repl", "subscriptions")
        await screen.shows(r"^ bought +apply +\S+ +\S+ ")
        await screen.resize(WIDE)
        await screen.shows(r"^ bought +apply +\S+ +\S+ +(- +-|0 +0) +(?:-|0) +\d+ - ")
