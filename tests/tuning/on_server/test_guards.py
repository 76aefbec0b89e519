"""What a search never tries."""

from __future__ import annotations

from typing import Any

import pytest

from pgtop_tune.tuning.on_server.knob_space import REPLAY_BYTES_PER_S, Guards
from tests.support.frames import parameter

GB = 2**30


def guards(**other: Any) -> Guards:
    parameters = [
        parameter("max_connections", "100", "100"),
        parameter("shared_buffers", "16384", "128MB", "8kB"),
        parameter("work_mem", "4096", "4MB", "kB"),
        parameter("temp_buffers", "1024", "8MB", "8kB"),
        parameter("max_parallel_workers", "8", "8"),
        parameter("autovacuum_max_workers", "3", "3"),
        parameter("autovacuum_work_mem", "-1", "-1", "kB"),
        parameter("maintenance_work_mem", "65536", "64MB", "kB"),
        parameter("max_wal_size", "1024", "1GB", "MB"),
    ]
    asked = {"ram_bytes": 8.0 * GB, "wal_room_bytes": 100.0 * GB, "recovery_s": 600.0} | other
    return Guards(major=18, parameters={each.name: each for each in parameters}, **asked)


def test_memory_that_the_machine_does_not_have_is_never_tried() -> None:
    # 108 sorts of work_mem × 2 (hash_mem_multiplier), beside 1 GB for the system, buffers and autovacuum.
    assert guards().allowed({"work_mem": "8MB"})
    assert not guards().allowed({"work_mem": "64MB"})
    assert "of 8.0 GB of memory" in guards().why_not({"work_mem": "64MB"}).replace("8 GB", "8.0 GB")


def test_two_values_that_fit_alone_are_refused_together() -> None:
    assert guards().allowed({"work_mem": "16MB"})
    assert guards().allowed({"shared_buffers": "4GB"})
    assert not guards().allowed({"work_mem": "16MB", "shared_buffers": "4GB"})


def test_less_than_what_is_set_is_allowed_on_a_machine_whose_memory_is_unknown_and_more_is_not() -> None:
    unknown = guards(ram_bytes=None)
    assert unknown.allowed({"work_mem": "2MB", "max_wal_size": "4GB"})
    assert unknown.why_not({"work_mem": "8MB"}) == "the memory of the machine is unknown"


@pytest.mark.parametrize(("room", "size", "allowed"), [(10.0, "5GB", True), (10.0, "7GB", False), (1.0, "512MB", True)])
def test_wal_stays_within_its_disk(room: float, size: str, allowed: bool) -> None:
    assert guards(wal_room_bytes=room * GB).allowed({"max_wal_size": size}) is allowed


def test_a_recovery_stays_within_its_bound() -> None:
    most_gb = 60 * REPLAY_BYTES_PER_S // GB
    assert guards(recovery_s=60.0).allowed({"max_wal_size": f"{most_gb}GB"})
    assert "a recovery could take" in guards(recovery_s=60.0).why_not({"max_wal_size": f"{most_gb + 1}GB"})
