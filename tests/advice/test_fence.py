"""Which values are fenced, however they are written."""

from __future__ import annotations

import psycopg
import pytest

from pgtop_tune.advice.fence import check_load, loss_of
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.errors import UnsafeChange
from tests.support.servers import conninfo


@pytest.mark.parametrize("value", ["off", "OFF", " of ", "0", "false", "f", "no", "n"])
@pytest.mark.parametrize("name", ["fsync", "FSYNC", "full_page_writes", "synchronous_commit", "autovacuum"])
def test_off_is_fenced_in_every_spelling(name: str, value: str) -> None:
    assert loss_of(name, value)


@pytest.mark.parametrize("value", ["off", "0", "false", "no"])
def test_the_server_means_the_same_by_these_spellings(server: Throwaway, value: str) -> None:
    with psycopg.connect(conninfo(server)) as connection:
        connection.execute("SELECT set_config('synchronous_commit', %s, false)", (value,))
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("off",)


def test_safe_values_and_resets_are_not() -> None:
    for name, value in (
        ("fsync", "on"), ("fsync", None), ("synchronous_commit", "remote_write"), ("wal_level", "logical"),
        ("max_wal_size", "0"), ("zero_damaged_pages", "off"), ("some.extension", "off"),
    ):  # fmt: skip
        assert loss_of(name, value) == ""


def test_a_method_of_flushing_is_fenced_unless_it_is_the_servers_own() -> None:
    assert loss_of("wal_sync_method", "open_sync", "fdatasync")
    assert loss_of("wal_sync_method", "fdatasync", "fdatasync") == ""
    assert loss_of("zero_damaged_pages", "on")


def test_sessions_of_a_load_begin_with_nothing_that_can_lose_data_unless_that_may_be_unlocked() -> None:
    with pytest.raises(UnsafeChange, match="zero_damaged_pages = on can lose"):
        check_load((("work_mem", "64MB"), ("zero_damaged_pages", "on")), allow_unsafe=False)
    check_load((("zero_damaged_pages", "on"),), allow_unsafe=True)
    check_load((("synchronous_commit", "off"),), allow_unsafe=False)
    check_load((("work_mem", "64MB"),), allow_unsafe=False)
