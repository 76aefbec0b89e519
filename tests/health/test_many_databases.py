"""A thousand databases: those that refuse are counted with the reason, the time is bounded, dropped ones are no matter.

Making and removing them takes minutes, and 8 GB of disk.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health import gather as gathering
from pgtop_tune.health.facts import Answers
from pgtop_tune.health.gather import gather
from pgtop_tune.health.judge import judge
from pgtop_tune.health.registry import CHECKS
from tests.postgres.conftest import place
from tests.support.servers import conninfo

pytestmark = pytest.mark.long

NAMES = [f"many_{number:04}" for number in range(1000)]
CLOSED = NAMES[7::20]
DROPPED = [name for name in NAMES[-40:-1] if name not in CLOSED]
BUSY = NAMES[-1]
DEADLINE_S = 60.0
QUICK_COPIES = {"autovacuum": "off", "full_page_writes": "off", "checkpoint_timeout": "1h", "max_wal_size": "16GB"}


@pytest.fixture
def crowded(make_server: Callable[..., Throwaway]) -> Throwaway:
    """A server with all of them; one has worked."""
    server = make_server(18, **QUICK_COPIES)
    with psycopg.connect(conninfo(server), autocommit=True) as admin:
        for name in NAMES:
            closed = "ALLOW_CONNECTIONS false" if name in CLOSED else ""
            admin.execute(f"CREATE DATABASE {name} TEMPLATE template0 STRATEGY file_copy {closed}")
    with psycopg.connect(conninfo(server, BUSY), autocommit=True) as worker:
        for _ in range(200):
            worker.execute("SELECT 1")
    return server


def test_a_thousand_databases(crowded: Throwaway, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = [check for check in CHECKS if check.id == "IDX-01"]

    def looked() -> tuple[Answers[object], list[str]]:
        facts = asyncio.run(gather(place(crowded), checks))
        (answer,) = facts.answers.values()
        assert isinstance(answer, Answers)
        (result,) = judge(checks, facts).results
        return answer, [unknown.reason for unknown in result.unknowns]

    monkeypatch.setattr(gathering, "DATABASES_S", 1.0)
    in_a_second, (why,) = looked()
    late = {each.database for each in in_a_second.refused if each.reason == "not queried within 1 s"}
    assert {"postgres", BUSY} <= set(in_a_second.databases)
    assert {*in_a_second.databases, *late, *CLOSED} == {"postgres", *NAMES}
    first = min(late)
    assert why == (
        f"{len(late) + len(CLOSED)} databases were not seen: {first} and {len(late) - 1} more: "
        "not queried within 1 s; many_0007 and 49 more: does not allow connections (datallowconn)"
    )

    monkeypatch.setattr(gathering, "DATABASES_S", 3600.0)
    dropping = threading.Thread(target=_drop, args=(crowded,))
    dropping.start()
    whole, (why,) = looked()
    dropping.join()
    assert {*NAMES, "postgres"} - {*CLOSED, *DROPPED} <= set(whole.databases)
    assert why == "50 databases were not seen: many_0007 and 49 more: does not allow connections (datallowconn)"


def _drop(server: Throwaway) -> None:
    """Once the check has begun with the first."""
    until = time.monotonic() + DEADLINE_S
    with psycopg.connect(conninfo(server), autocommit=True) as admin:
        while admin.execute("SELECT 1 FROM pg_stat_activity WHERE datname LIKE 'many%'").fetchone() is None:
            assert time.monotonic() < until
        for name in DROPPED:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
