"""Limits as other sessions have them, read by one that has none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgtop_tune.base.errors import ConnectionProblem
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.model.postgres import ParameterSample
from pgtop_tune.postgres.server.own_sessions import as_set, of_major, options
from tests.postgres.conftest import place
from tests.postgres.reading import reading
from tests.support.frames import parameter
from tests.support.processes import eventually
from tests.support.servers import conninfo

ATTEMPTS = 100


@pytest.mark.parametrize(
    ("reset_val", "shown"),
    [("0", "0"), ("1", "1ms"), ("1500", "1500ms"), ("60000", "1min"), ("7200000", "2h"), ("86400000", "1d")],
)
def test_a_limit_is_shown_as_the_server_shows_it(reset_val: str, shown: str) -> None:
    row = parameter("statement_timeout", "0", "0", "ms")
    row = type(row)(**{name: getattr(row, name) for name in row.__slots__} | {"reset_val": reset_val})
    assert as_set(row, None, from_start=False).shown == shown


@pytest.mark.parametrize(
    ("text", "shown"), [("1ms", "1ms"), ("90s", "90s"), ("0.5min", "30s"), ("1000", "1s"), ("odd", "0")]
)
def test_lifted_from_the_start_the_file_says_what_is_set(text: str, shown: str) -> None:
    found = as_set(parameter("lock_timeout", "0", "0", "ms"), (text, "/a/b.conf:3"), from_start=True)
    assert (found.shown, found.source, found.sourcefile) == (shown, "configuration file", "/a/b.conf:3")


def test_only_limits_that_a_major_has_are_lifted() -> None:
    assert "transaction_timeout" not in options(of_major(16))
    assert "-c transaction_timeout=0" in options(of_major(17))


@pytest.mark.parametrize("major", [17, 18])
async def test_a_low_limit_of_transactions_is_shown_as_it_is_set(
    major: int, make_server: Callable[..., Throwaway]
) -> None:
    server = make_server(major)
    for where, limit, source in (
        ("SYSTEM", "900ms", "configuration file"),
        ("SYSTEM", "1ms", "configuration file"),
        ("DATABASE postgres", "900ms", "database"),
        ("ROLE postgres", "1ms", "user"),
    ):
        with unlimited(server) as root:
            loaded = root.execute("SELECT pg_conf_load_time()").fetchall()
            root.execute(f"ALTER {where} SET transaction_timeout = '{limit}'".encode())
            root.execute("SELECT pg_reload_conf()")
        assert eventually(lambda before=loaded: loaded_at(server) != before)
        sample = await parameters_of(server)
        (found,) = [row for row in sample.parameters if row.name == "transaction_timeout"]
        assert (found.shown, found.source) == (limit, source)


async def parameters_of(server: Throwaway) -> ParameterSample:
    """A limit of 1 ms ends some sessions before they can lift it."""
    for _ in range(ATTEMPTS):
        with contextlib.suppress(ConnectionProblem):
            async with reading(place(server)) as reader:
                sample = await reader.read(sections.parameters)
                assert isinstance(sample, ParameterSample)
                return sample
    raise AssertionError("every session was ended")


def unlimited(server: Throwaway) -> psycopg.Connection[Any]:
    for _ in range(ATTEMPTS):
        with contextlib.suppress(psycopg.OperationalError):
            return psycopg.connect(conninfo(server), options="-c transaction_timeout=0", autocommit=True)
    raise AssertionError("every session was ended")


def loaded_at(server: Throwaway) -> list[Any]:
    with unlimited(server) as other:
        return other.execute("SELECT pg_conf_load_time()").fetchall()
