"""Which disk was the limit of a run."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from pgtop_tune.experiment.plan.run import bound_by
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import DiskSample
from tests.support.frames import frame
from tests.support.host_frames import capped_disks, full_host


def frames(seconds: range, look: Callable[[int], DiskSample]) -> list[Frame]:
    return [frame(second, host=replace(full_host(second), disks=look(second))) for second in seconds]


def with_values(second: int, **values: object) -> DiskSample:
    sample = capped_disks(second)
    return replace(sample, disks=tuple(replace(disk, **values) for disk in sample.disks))  # type: ignore[arg-type]


def given_cap(second: int, iops: float) -> DiskSample:
    return with_values(second, cap_iops=iops, busy_ms=500 * second)


def test_a_disk_at_its_given_cap_is_named_with_it() -> None:
    assert bound_by(frames(range(12, 30), lambda second: given_cap(second, 6_000.0))) == (
        "the data and wal disk vda: 6000 IOPS in 100 % of the run"
    )


def test_a_disk_below_its_given_cap_is_not() -> None:
    assert bound_by(frames(range(12, 30), lambda second: given_cap(second, 12_000.0))) == ""


def test_a_disk_that_is_busy_all_the_time_is_named_where_no_cap_is_known() -> None:
    words = bound_by(frames(range(12, 30), capped_disks))
    assert words.startswith("the data and wal disk vda: ")


def test_a_disk_that_rests_is_not() -> None:
    assert bound_by(frames(range(12, 30), lambda second: with_values(second, busy_ms=400 * second))) == ""


def test_a_disk_that_holds_nothing_of_the_server_is_not() -> None:
    assert bound_by(frames(range(12, 30), lambda second: with_values(second, roles=()))) == ""


def test_one_look_says_nothing() -> None:
    assert bound_by(frames(range(12, 13), capped_disks)) == ""
    assert bound_by([]) == ""
