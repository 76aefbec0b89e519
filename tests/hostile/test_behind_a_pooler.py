"""Behind PgBouncer in transaction mode: everything works, and whoever shares its sessions notices nothing of us."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psycopg
import pytest

from pgtop_tune.base.errors import ConnectionProblem
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.gather import gather
from pgtop_tune.health.judge import judge
from pgtop_tune.health.registry import chosen
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.server import TPS
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.backend_action import BackendAct, BackendOutcome
from pgtop_tune.model.frame import Frame
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.postgres.statements.backend_control import PostgresBackends
from tests.hostile.bouncer import Bouncer, program
from tests.postgres.statements.test_backend_control import agreed_plan
from tests.sampling.test_live_source import answered, counted, watching
from tests.support.undoing import undo

POOL: Final = 3
ABSENT: Final = {"server_log", "lock_counters"}
"""Behind a pooler no log is read, and lock counters came with 19."""
Client = psycopg.Connection[tuple[object, ...]]


@pytest.fixture(scope="module")
def bouncer(server: Throwaway) -> Iterator[Bouncer]:
    """PgBouncer in transaction mode before the shared server, with few sessions for everybody."""
    if program() is None:
        pytest.skip("PgBouncer is not installed")
    with Bouncer(server, size=POOL) as bouncer:
        yield bouncer


@pytest.fixture
def pooled(bouncer: Bouncer, database: str) -> str:
    """Connection string of a new database, by way of PgBouncer."""
    return bouncer.conninfo(resolve(database).dbname)


@pytest.fixture
def clients(pooled: str) -> Iterator[list[Client]]:
    """As many clients as the pool has sessions: working at once they take them all."""
    made = [psycopg.connect(pooled, autocommit=True, prepare_threshold=None) for _ in range(POOL)]
    yield made
    for client in made:
        client.close()


SETTINGS = (
    "default_transaction_read_only", "statement_timeout", "lock_timeout", "jit", "idle_session_timeout",
    "idle_in_transaction_session_timeout", "client_encoding",
)  # fmt: skip


def settings_of_the_pool(clients: list[Client]) -> set[tuple[object, ...]]:
    """What every session of the pool has, each looked at by another client at the same time."""
    query = "SELECT " + ", ".join(f"current_setting('{name}')" for name in SETTINGS)
    found = set()
    for client in clients:
        client.execute("BEGIN")
        found.add(client.execute(query.encode()).fetchone())
    for client in clients:
        client.execute("COMMIT")
    return {row for row in found if row is not None}


def absent(frame: Frame) -> set[str]:
    """The sections that a frame does not have."""
    sample = frame.postgres
    return {name for name in sample.__struct_fields__ if isinstance(getattr(sample, name), Unavailable)}


async def test_every_section_is_there_and_nobody_inherits_our_settings(pooled: str, clients: list[Client]) -> None:
    before = settings_of_the_pool(clients)
    assert len(before) == 1
    async with watching(pooled) as watcher:
        await watcher.until(answered)
        for _ in range(12):
            for client in clients:
                client.execute("SELECT 1")
            last = watcher.frames[-1].sequence
            await watcher.until(lambda frame, last=last: frame.sequence > last and answered(frame))
        frame = await watcher.until(lambda frame: answered(frame) and absent(frame) == ABSENT)
        assert frame.postgres.server.pooled
        shown = [backend for frame in watcher.frames if answered(frame) for backend in frame.postgres.activity.backends]
        assert not [backend for backend in shown if (backend.application_name or "").startswith("pgtop-tune")]
        assert settings_of_the_pool(clients) == before


async def test_a_check_sees_the_database_and_leaves_nothing_in_the_pool(pooled: str, clients: list[Client]) -> None:
    before = settings_of_the_pool(clients)
    checks = chosen(["IDX", "TAB"], [])
    report = judge(checks, await gather(resolve(pooled), checks))
    assert report.major == 18
    for client in clients:
        client.execute("SELECT 1")
    assert settings_of_the_pool(clients) == before


async def test_our_own_transactions_are_not_the_load(pooled: str) -> None:
    async with watching(pooled, 0.5) as watcher:
        first = await watcher.until(answered)

        def window_of_frames() -> list[Frame]:
            return [frame for frame in watcher.frames if frame.sequence > first.sequence and counted(frame)]

        await watcher.until(lambda _: len(window_of_frames()) >= 8)
        window = window_of_frames()
        rate = TPS(Interval((window[0], window[-1])))
        ours = window[-1].postgres.database.own_transactions - window[0].postgres.database.own_transactions
        assert ours > 30
        assert rate is not None
        assert rate < 4.0


async def test_a_parameter_is_changed_and_undone(pooled: str, clients: list[Client], tmp_path: Path) -> None:
    before = settings_of_the_pool(clients)
    control = PostgresControl(resolve(pooled), directory=tmp_path)
    for number in range(4):
        for client in clients:
            client.execute("SELECT 1")
        change = await control.apply("work_mem", f"{5 + number}MB")
        assert (change.shown_after, change.message) == (f"{5 + number}MB", "")
    for _ in range(4):
        await undo(control)
    assert await control.in_force() == ()
    assert [parameter.shown for parameter in await control.list(("work_mem",))] == ["4MB"]
    await control.aclose()
    assert settings_of_the_pool(clients) == before


async def test_sessions_are_explained_and_cancelled(database: str, pooled: str, clients: list[Client]) -> None:
    before = settings_of_the_pool(clients)
    backends = PostgresBackends(resolve(pooled))
    with psycopg.connect(database, autocommit=True) as victim:
        query = "SELECT count(*) FROM pg_class"
        victim.execute(query.encode())
        row = victim.execute(
            "SELECT pid, (date_part('epoch', backend_start) * 1000)::bigint FROM pg_stat_activity"
            " WHERE pid = pg_backend_pid()"
        ).fetchone()
        assert row is not None
        plan = await agreed_plan(backends, (row[0], row[1]), query)
        assert "Aggregate" in plan.lines[0]
        results = await backends.signal(BackendAct.CANCEL, [(row[0], row[1] + 1), (row[0], row[1])])
        assert [result.outcome for result in results] == [BackendOutcome.GONE, BackendOutcome.DONE]
    assert settings_of_the_pool(clients) == before


async def test_options_a_pooler_refuses_are_told_with_the_way_out(bouncer: Bouncer, tmp_path: Path) -> None:
    target = resolve(f"{bouncer.conninfo()} options='-c work_mem=8MB'")
    control = PostgresControl(target, directory=tmp_path)
    with pytest.raises(ConnectionProblem, match="unsupported startup parameter") as refused:
        await control.list(("work_mem",))
    assert "ignore_startup_parameters" in refused.value.hint
    async with watching(f"{bouncer.conninfo()} options='-c work_mem=8MB'") as watcher:
        away = await watcher.until(lambda frame: "startup parameter" in str(frame.postgres))
        assert isinstance(away.postgres, Unavailable)
