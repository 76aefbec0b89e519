"""What stands in the way of a run through a pooler is said before it starts, with the numbers."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pgtop_tune.experiment.path import PathFacts, PathLimit, limits, pool_mode, pooler_at
from pgtop_tune.host.open_files import EphemeralPorts, OpenFiles
from pgtop_tune.model.absence import NOT_YET
from pgtop_tune.model.pooler import PGBOUNCER, ConsoleSample, PoolerSettings
from tests.support.pooler_frames import bouncer, cat, database, pool, poolers


def through(console: ConsoleSample | None, **other: object) -> PathFacts:
    """A hundred clients of a database and user the pooler knows."""
    facts = PathFacts(100, "simple", "bench", "bench", console, unreserved=97)
    return replace(facts, **other)  # type: ignore[arg-type]


def only(facts: PathFacts) -> PathLimit:
    (found,) = limits(facts)
    return found


def settled(**settings: object) -> ConsoleSample:
    """A PgBouncer with one small pool, transaction pooling, and these settings."""
    values: dict[str, object] = {"pool_mode": "transaction", "max_client_conn": 1000, "default_pool_size": 20}
    one = database("bench", reserve_pool_size=0)
    return bouncer(
        1, settings=PoolerSettings(**(values | settings)), pools=(), counters=(), databases=(one,), clients=0,  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_run_that_fits_meets_nothing() -> None:
    assert limits(through(settled())) == ()
    assert limits(PathFacts(100, "prepared")) == (), "of a path without a pooler nothing is known here"


@pytest.mark.parametrize(
    ("mode", "most", "refused"),
    [
        ("transaction", None, True),
        ("transaction", 0, True),
        ("statement", None, True),
        ("transaction", 200, False),
        ("session", None, False),
    ],
)
def test_prepared_statements_need_a_pooler_that_follows_them(mode: str, most: int | None, refused: bool) -> None:
    found = limits(through(settled(pool_mode=mode, max_prepared_statements=most), protocol="prepared"))
    assert [(limit.id, limit.refuses) for limit in found] == ([("prepared-pooling", True)] if refused else [])
    if refused:
        assert mode in found[0].reason
        assert "1.21" in found[0].advice
    assert limits(through(settled(pool_mode=mode, max_prepared_statements=most), protocol="extended")) == ()


def test_of_a_pgcat_it_is_not_known_so_that_it_is_said_and_not_refused() -> None:
    found = only(through(cat(1), user="app", protocol="prepared"))
    assert (found.id, found.refuses) == ("prepared-pooling", False)
    keeps = replace(cat(1), settings=PoolerSettings(prepare_cache_size=7))
    assert limits(through(keeps, user="app", protocol="prepared")) == ()


def test_the_mode_of_the_pool_goes_before_that_of_the_database_and_that_before_the_general_one() -> None:
    console = bouncer(1, pools=(pool("bench", "bench", pool_mode="session"),))
    assert pool_mode(console, "bench", "bench") == "session"
    console = bouncer(1, pools=(), databases=(database("bench", pool_mode="statement"),))
    assert pool_mode(console, "bench", "bench") == "statement"
    assert pool_mode(bouncer(1, pools=(), databases=()), "bench", "bench") == "transaction"


@pytest.mark.parametrize(
    ("there", "clients", "fits"), [(0, 1000, True), (0, 1001, False), (950, 50, True), (951, 50, False)]
)
def test_clients_that_are_there_already_take_room(there: int, clients: int, fits: bool) -> None:
    found = limits(through(replace(settled(), clients=there), clients=clients))
    assert [limit.id for limit in found] == ([] if fits else ["pooler-clients"])
    if not fits:
        # Those that are there may leave.
        assert found[0].refuses == (clients > 1000)
        assert "max_client_conn of PgBouncer is 1000" in found[0].reason
        assert found[0].reason.endswith(f"which leaves {1000 - there}")


def test_pools_that_may_open_more_than_the_server_has_are_named_with_both_sums() -> None:
    assert limits(through(settled(), unreserved=20)) == ()
    found = only(through(settled(), unreserved=19))
    assert (found.id, found.refuses) == ("pool-sizes", False)
    assert "may open 20 connections to 10.0.0.5:5432" in found.reason
    assert "19 unreserved" in found.reason
    assert limits(through(settled(), unreserved=None)) == ()


@pytest.mark.parametrize(
    ("name", "soft", "needed"),
    [
        ("pgbouncer", 135, 100 + 20 + 16),
        ("haproxy", 215, 2 * 100 + 16),
        ("postgres", 57, 58),
        ("pgbouncer", 136, None),
        ("haproxy", 216, None),
        ("postgres", 58, None),
        ("pgbouncer", None, None),
        ("nginx", 10, None),
    ],
)
def test_every_process_of_the_path_must_be_allowed_its_files(name: str, soft: int | None, needed: int | None) -> None:
    found = limits(through(settled(), processes=(OpenFiles(77, name, soft, None, 9),)))
    assert [limit.id for limit in found] == ([] if needed is None else ["open-files"])
    if needed is not None:
        assert f"need {needed} open files in {name} (process 77), its limit is {soft}" in found[0].reason


WIDE, NARROW = EphemeralPorts(28_232, 0), EphemeralPorts(99, 2)


def connecting(ports: EphemeralPorts | None = WIDE, **other: object) -> PathFacts:
    return replace(PathFacts(100, "simple"), **({"tcp": True, "connects": True, "ports": ports} | other))


@pytest.mark.parametrize(
    ("facts", "allowed"),
    [
        (connecting(), "allow 471 transactions per second"),
        (connecting(seconds=20), "allow 1412 transactions per second"),
        (connecting(seconds=3), ""),
        (connecting(rate_per_s=400.0), ""),
        (connecting(rate_per_s=500.0), "stays blocked for 60 s in pgbench"),
        (connecting(EphemeralPorts(28_232, 2)), "stays blocked for 60 s"),
        (connecting(EphemeralPorts(28_232, 2), loopback=True), ""),
        (connecting(EphemeralPorts(28_232, 1)), ""),
        (connecting(EphemeralPorts(99, 1), clients=9), "allow 99 transactions per second"),
        (connecting(connects=False), ""),
        (connecting(NARROW, connects=False), "100 clients need a port each in pgbench"),
        (connecting(NARROW, connects=False, tcp=False), ""),
        (
            connecting(NARROW, connects=False, tcp=False, processes=(OpenFiles(77, "haproxy", None, None, 9),)),
            "100 clients need a port each in haproxy",
        ),
        (connecting(None), ""),
    ],
)
def test_ports_of_this_machine_are_counted_for_clients_and_for_a_connection_per_transaction(
    facts: PathFacts, allowed: str
) -> None:
    found = limits(facts)
    assert [limit.id for limit in found] == (["ephemeral-ports"] if allowed else [])
    assert all(allowed in limit.reason for limit in found)
    # Of a proxy, a part of the connections may go another way.
    assert all(limit.refuses == (facts.tcp and not facts.connects) for limit in found)


@pytest.mark.parametrize(
    ("threads", "backlog", "tcp", "words"),
    [
        (64, 128, False, ""),
        (129, 128, False, "further ones are refused"),
        (129, 128, True, "further ones come a second late"),
        (129, None, False, ""),
    ],
)
def test_threads_that_connect_at_once_wait_in_the_backlog_of_the_socket(
    threads: int, backlog: int | None, tcp: bool, words: str
) -> None:
    found = limits(PathFacts(500, "simple", tcp=tcp, threads=threads, backlog=backlog))
    assert [(limit.id, limit.refuses) for limit in found] == ([("listen-backlog", False)] if words else [])
    assert all(limit.reason.endswith(words) for limit in found)


def test_the_pooler_of_an_endpoint_is_the_one_of_its_name_else_the_one_that_listens_there() -> None:
    sample = poolers(1, one=bouncer(1), two=bouncer(1))
    assert pooler_at(sample, "two", "10.9.9.9", 8432) is sample.poolers[1]
    assert pooler_at(sample, "two", "127.0.0.1", 6432) is sample.poolers[1], "the name goes before the place"
    assert pooler_at(sample, "other", "localhost", 6432) is sample.poolers[0]
    assert pooler_at(sample, "other", "127.0.0.1", 643) is None
    assert pooler_at(NOT_YET, "one", "127.0.0.1", 6432) is None
    assert sample.poolers[0].console.kind == PGBOUNCER  # type: ignore[union-attr]
