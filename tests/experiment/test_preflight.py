"""What is said before a run starts: whether its clients will find room, with numbers."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pgtop_tune.experiment.preflight import connection_room, file_room
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.postgres import Activity, ParameterSample
from tests.support.frames import EPOCH_MS, PARAMETERS, backend, facts, frame, parameter, postgres_sample


def looks(*, superuser: bool = False, may_use_reserved: bool = False, **settings: str) -> Interval:
    """max_connections 100, two sessions of others and one of ours."""
    rows = (*PARAMETERS, *(parameter(name, value, value) for name, value in settings.items()))
    activity = Activity(0.0, EPOCH_MS, (backend(1, EPOCH_MS), backend(2, EPOCH_MS)), own_backends=1)
    sample = postgres_sample(
        0,
        activity=activity,
        parameters=ParameterSample(0.0, rows),
        server=replace(facts(superuser=superuser), may_use_reserved=may_use_reserved),
    )
    return Interval((frame(0, postgres=sample),))


@pytest.mark.parametrize(
    ("clients", "superuser", "leaves"),
    [(94, False, None), (95, False, 94), (97, True, None), (98, True, 97), (600, False, 94)],
)
def test_reserved_slots_and_sessions_that_are_there_count(clients: int, superuser: bool, leaves: int | None) -> None:
    interval = looks(superuser=superuser, superuser_reserved_connections="3", reserved_connections="0")
    words = connection_room(interval, clients)
    assert (words == "") == (leaves is None)
    assert leaves is None or words.endswith(f"which leaves {leaves}")


@pytest.mark.parametrize(("member", "leaves"), [(False, "67"), (True, "94")])
def test_a_member_of_pg_use_reserved_connections_has_what_is_reserved(member: bool, leaves: str) -> None:
    interval = looks(may_use_reserved=member, superuser_reserved_connections="3", reserved_connections="27")
    assert connection_room(interval, 600).endswith(f"which leaves {leaves}")


def test_the_words_have_the_numbers() -> None:
    words = connection_room(looks(superuser_reserved_connections="3"), 600)
    assert words.startswith("600 clients will not fit: max_connections is 100, 3 of them reserved, and 3 sessions are")


def test_sessions_that_may_end_before_do_not_count_for_what_is_impossible() -> None:
    interval = looks(superuser_reserved_connections="3")
    assert connection_room(interval, 97)
    assert connection_room(interval, 97, alone=True) == ""
    refused = connection_room(interval, 98, alone=True)
    assert refused == "98 clients will not fit: max_connections is 100, 3 of them reserved"


def test_of_a_server_that_does_not_answer_nothing_is_said() -> None:
    silent = replace(frame(0), postgres=Unavailable(Reason.NO_ANSWER))
    assert connection_room(Interval((silent,)), 600) == ""


def test_open_files() -> None:
    assert file_room(1024, 1020) == ""
    assert file_room(-1, 5000) == ""
    assert file_room(1024, 1021).startswith("1021 clients need 1025 open files, but pgbench may open only 1024")
    assert file_room(1024, 1014, threads=8)
    assert not file_room(1024, 1014)
