"""Settings of a machine as dimensions of a search: what is tried, and what is left alone with which reason."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pgtop_tune.changes.machine.one_change import kernel_value
from pgtop_tune.host.system_settings import settings
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.machine import SystemSetting
from pgtop_tune.tuning.on_server.knob_space import machine_space, wanted_knobs
from pgtop_tune.tuning.plan import KnobSpace
from tests.support.plans import parameter, setting

GB = 2.0**30
SETTINGS = (
    setting("vm.swappiness", "60"),
    setting("vm.dirty_ratio", "20"),
    setting("vm.dirty_bytes", "0"),
    setting("vm.overcommit_memory", "0"),
    setting("vm.nr_hugepages", "0"),
    replace(setting("vda/scheduler", "bfq"), choices=("none", "mq-deadline", "bfq")),
    replace(setting("transparent_hugepage/enabled", "madvise"), choices=("always", "madvise", "never")),
)
PARAMETERS = {
    "shared_memory_size_in_huge_pages": parameter("shared_memory_size_in_huge_pages", "600"),
    "huge_pages": parameter("huge_pages", "try"),
}


def found(
    *names: str, groups: Sequence[str] = (), settings: Sequence[SystemSetting] = SETTINGS, **other: Any
) -> KnobSpace:
    given: dict[str, Any] = {"ram_bytes": 16 * GB, "own_load": True, "allow_restart": False, **other}
    ram_bytes = given.pop("ram_bytes")
    return machine_space(names, groups, settings, PARAMETERS, ram_bytes, **given)


def test_the_value_in_force_is_the_start_and_zero_that_means_something_else_is_no_level() -> None:
    (swappiness,) = found("vm.swappiness").dimensions
    assert swappiness.levels[swappiness.start] == "60"
    assert "0" not in swappiness.levels
    assert swappiness.machine
    assert not swappiness.restart
    (of_none,) = found("vm.swappiness", settings=[setting("vm.swappiness", "0")]).dimensions
    assert of_none.levels[of_none.start] == "0"


def test_of_a_pair_the_one_in_force_is_searched_and_the_other_where_it_is_named() -> None:
    group = found(groups=["dirty pages"])
    assert [each.name for each in group.dimensions] == ["vm.dirty_ratio"]
    assert ("vm.dirty_bytes", "vm.dirty_ratio is in force instead") in group.left_out
    (named,) = found("vm.dirty_bytes", ram_bytes=2 * GB).dimensions
    assert named.levels[named.start] == "0"
    assert max(map(int, named.levels)) <= 0.4 * 2 * GB


def test_both_of_a_pair_are_no_search() -> None:
    both = found("vm.dirty_bytes", "vm.dirty_ratio")
    assert [each.name for each in both.dimensions] == ["vm.dirty_ratio"]
    assert both.left_out == (("vm.dirty_bytes", "vm.dirty_ratio is in force instead"),)


def test_words_of_the_kernel_are_levels_without_an_order_and_a_bare_name_is_every_disk() -> None:
    (scheduler,) = found("scheduler").dimensions
    assert scheduler.name == "vda/scheduler"
    assert scheduler.levels == ("none", "mq-deadline", "bfq")
    assert not scheduler.ordered


def test_a_pool_of_huge_pages_takes_a_restart_and_holds_what_the_server_needs() -> None:
    assert "--allow-restart" in found("vm.nr_hugepages").left_out[0][1]
    (pool,) = found("vm.nr_hugepages", allow_restart=True).dimensions
    assert pool.levels == ("0", "600")
    assert pool.restart
    assert "too much" in found("vm.nr_hugepages", allow_restart=True, ram_bytes=2 * GB).left_out[0][1]


def test_where_it_may_not_be_written_or_the_load_is_foreign_or_it_decides_over_life_the_reason_is_said() -> None:
    closed = [setting("vm.swappiness", "60", writable=False)]
    assert "run this as root" in found("vm.swappiness", settings=closed).left_out[0][1]
    assert "another program drives" in found("vm.swappiness", own_load=False).left_out[0][1]
    assert "whether programs can start" in found("vm.overcommit_memory").left_out[0][1]
    assert found("vda/nr_requests").left_out == (("vda/nr_requests", "this machine does not have it"),)
    elsewhere = machine_space(
        ["vm.swappiness"],
        [],
        Unavailable("remote", "the server is on db7"),
        {},
        None,
        own_load=True,
        allow_restart=False,
    )
    assert elsewhere.left_out == (("vm.swappiness", "the server is on db7"),)


def test_names_of_the_machine_ask_for_no_parameters_and_the_server_keeps_its_group_memory() -> None:
    assert wanted_knobs(["vm.swappiness"], []) == ()
    assert wanted_knobs([], ["machine"]) == ()
    assert any(knob.name == "work_mem" for knob in wanted_knobs([], ["memory"]))


@pytest.mark.skipif(not Path("/proc/sys/vm").is_dir(), reason="no /proc/sys")
def test_the_kernel_takes_every_value_of_this_machine() -> None:
    here = {each.name: each for each in settings(Path("/"))}
    writable = [replace(each, writable=True) for each in here.values()]
    space = found(groups=["machine"], settings=writable)
    assert space.dimensions
    for dimension in space.dimensions:
        assert dimension.levels[dimension.start] == here[dimension.name].live
        for level in dimension.levels:
            kernel_value(here[dimension.name], level)
