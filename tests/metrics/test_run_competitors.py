"""Others beside the load: sessions, transactions and autovacuum that compete with it, and a server that sees none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tests.metrics.test_run_validity import USUAL, activity, counters, found
from tests.support.frames import EPOCH_MS, backend
from tests.support.run_frames import FACTS, SECONDS, TPS, server


def worker(query: str) -> Callable[[int], dict[str, object]]:
    return lambda second: activity(
        second, backend(9, EPOCH_MS, backend_type="autovacuum worker", application_name="", state="active", query=query)
    )


def test_sessions_of_others_compete_idle_ones_and_the_load_s_do_not() -> None:
    other = found(postgres=lambda second: activity(second, backend(7, EPOCH_MS, application_name="shop")))
    assert "1.0 active sessions of others on average (shop)" in other["COMPETING-ACTIVITY"].reason
    assert set(found(postgres=lambda second: activity(second, backend(7, EPOCH_MS)))) == USUAL
    idle = lambda second: activity(second, backend(7, EPOCH_MS, application_name="shop", state="idle"))  # noqa: E731
    assert set(found(postgres=idle)) == USUAL


def test_behind_a_pooler_that_renames_sessions_nobody_is_accused() -> None:
    def renamed(second: int) -> dict[str, object]:
        sample = server(second)
        waits = replace(sample.waits, counts=())  # type: ignore[type-var]
        return activity(second, backend(7, EPOCH_MS, application_name="pooler")) | {"waits": waits}

    assert set(found(replace(FACTS, direct=False), postgres=renamed)) == USUAL


def test_transactions_beyond_the_client_s_compete() -> None:
    busy = found(postgres=lambda second: counters(second, xact_commit=1200 * second))
    assert dict(busy["COMPETING-ACTIVITY"].numbers)["foreign_tps"] == pytest.approx(200, rel=0.05)
    assert set(found(postgres=lambda second: counters(second, xact_commit=1020 * second))) == USUAL


def test_what_the_server_does_to_let_a_client_in_and_tries_again_is_not_somebody_else_s() -> None:
    thrice = lambda second: counters(second, xact_commit=3 * TPS * second)  # noqa: E731
    assert "COMPETING-ACTIVITY" in found(postgres=thrice)
    connecting: dict[str, object] = {"connect_per_transaction": True, "protocol": "prepared"}
    assert "COMPETING-ACTIVITY" not in found(postgres=thrice, run=connecting)
    assert "COMPETING-ACTIVITY" in found(postgres=thrice, run=connecting | {"protocol": "simple"})
    assert "COMPETING-ACTIVITY" not in found(postgres=thrice, lines={"retries": 2 * TPS})
    more = lambda second: counters(second, xact_commit=4 * TPS * second)  # noqa: E731
    assert "COMPETING-ACTIVITY" in found(postgres=more, run=connecting)


def test_a_server_that_sees_nothing_of_the_load_is_another_one() -> None:
    assert "OTHER-SERVER" in found(postgres=lambda second: counters(second, xact_commit=3 * second))


def test_autovacuum_counts_on_the_tables_of_the_load() -> None:
    doubt = found(postgres=worker("autovacuum: VACUUM ANALYZE public.pgbench_accounts (to prevent wraparound)"))
    assert f"pgbench_accounts in {SECONDS} of {SECONDS} looks" in doubt["AUTOVACUUM"].reason
    assert set(found(postgres=worker("autovacuum: ANALYZE public.orders"))) == USUAL
