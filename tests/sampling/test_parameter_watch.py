"""Changes of parameters reach the tape from the server, whoever made them."""

from __future__ import annotations

import psycopg
import pytest
from msgspec.structs import replace

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.events import EventKind
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import Parameter, ParameterSample
from pgtop_tune.sampling.happenings import ParameterWatch
from tests.sampling.test_live_source import answered, watching
from tests.support.frames import frame, parameter, postgres_sample
from tests.support.servers import conninfo


def seen(second: int, *parameters: Parameter) -> Frame:
    return frame(second, postgres=postgres_sample(second, parameters=ParameterSample(float(second), parameters)))


def texts(watch: ParameterWatch, frame: Frame) -> list[str]:
    return [event.text for event in watch.events(frame)]


ROWS = (parameter("max_wal_size", "1024", "1GB", "MB"), parameter("work_mem", "4096", "4MB", "kB"))


def test_each_change_is_told_once() -> None:
    watch = ParameterWatch()
    changed = (replace(ROWS[0], shown="16GB"), ROWS[1])
    assert texts(watch, seen(0, *ROWS)) == []
    after = seen(1, *changed)
    assert texts(watch, after) == ["max_wal_size 1GB→16GB"]
    assert texts(watch, after) == []
    assert texts(watch, seen(2, *changed)) == []


def test_what_a_restart_brought_is_told_after_the_outage() -> None:
    watch = ParameterWatch()
    texts(watch, seen(0, *ROWS))
    assert texts(watch, frame(1, postgres=Unavailable(Reason.NO_ANSWER))) == []
    assert texts(watch, seen(2, ROWS[0], replace(ROWS[1], shown="64MB"))) == ["work_mem 4MB→64MB"]


def test_a_change_that_waits_for_a_restart_is_told_when_it_begins_to_wait() -> None:
    watch = ParameterWatch()
    waiting = (replace(ROWS[0], pending_restart=True), ROWS[1])
    texts(watch, seen(0, *ROWS))
    assert texts(watch, seen(1, *waiting)) == ["max_wal_size waits for a restart"]
    assert texts(watch, seen(2, *waiting)) == []
    assert texts(watch, seen(3, *ROWS)) == []


def test_a_parameter_of_an_extension_that_came_or_went_is_no_change() -> None:
    watch = ParameterWatch()
    texts(watch, seen(0, *ROWS))
    assert texts(watch, seen(1, *ROWS, parameter("pg_stat_statements.max", "5000", "5000"))) == []
    assert texts(watch, seen(2, *ROWS)) == []


def test_another_server_is_one_tick_not_hundreds() -> None:
    watch = ParameterWatch()
    many = [parameter(f"p{number}", "1", "1") for number in range(40)]
    texts(watch, seen(0, *many))
    (event,) = watch.events(seen(1, *(replace(each, shown="2") for each in many)))
    assert event.text == "40 parameters changed"
    assert "p39 1→2" in event.detail


def test_a_long_value_is_cut_in_the_tick_and_whole_in_the_detail() -> None:
    watch = ParameterWatch()
    texts(watch, seen(0, *ROWS))
    (event,) = watch.events(seen(1, replace(ROWS[0], shown="x" * 5_000), ROWS[1]))
    assert len(event.text) < 100
    assert "x" * 5_000 in event.detail


@pytest.fixture
def altered(fresh_server: Throwaway) -> psycopg.Connection[tuple[object, ...]]:
    """Somebody else's session on a server of the test's own."""
    return psycopg.connect(conninfo(fresh_server), autocommit=True)


async def test_a_change_by_another_session_is_on_the_tape_within_a_few_ticks(
    fresh_server: Throwaway, altered: psycopg.Connection[tuple[object, ...]]
) -> None:
    async with watching(conninfo(fresh_server)) as watcher:
        await watcher.until(answered)
        altered.execute("ALTER SYSTEM SET work_mem = '64MB'")
        altered.execute("ALTER SYSTEM SET shared_buffers = '48MB'")
        altered.execute("SELECT pg_reload_conf()")
        await watcher.until(lambda frame: len(watcher.events(EventKind.PARAMETER)) >= 2)
        await watcher.more(3)
        assert sorted(watcher.events(EventKind.PARAMETER)) == [
            "shared_buffers waits for a restart",
            "work_mem 4MB→64MB",
        ]
        altered.close()


async def test_a_change_at_a_restart_is_on_the_tape(fresh_server: Throwaway) -> None:
    async with watching(conninfo(fresh_server)) as watcher:
        await watcher.until(answered)
        with psycopg.connect(conninfo(fresh_server), autocommit=True) as other:
            other.execute("ALTER SYSTEM SET max_locks_per_transaction = 80")
        fresh_server.restart()
        await watcher.until(lambda frame: bool(watcher.events(EventKind.PARAMETER)))
        assert watcher.events(EventKind.PARAMETER) == ["max_locks_per_transaction 64→80"]


def test_switches_of_an_experiment_are_no_changes_until_a_look_after_it() -> None:
    watch = ParameterWatch()
    switched = replace(ROWS[0], shown="2GB")
    texts(watch, seen(0, *ROWS))
    watch.switching(frozenset({"max_wal_size"}))
    assert texts(watch, seen(5, switched, replace(ROWS[1], shown="64MB"))) == ["work_mem 4MB→64MB"]
    watch.switched(7.0)
    assert texts(watch, seen(10, ROWS[0])) == []
    assert texts(watch, seen(15, switched)) == ["max_wal_size 1GB→2GB"]
