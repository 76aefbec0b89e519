"""Settings of the machine in an order that leaves no moment worse than before and after."""

from __future__ import annotations

import pytest

from pgtop_tune.changes.model.change import WantedSetting
from pgtop_tune.changes.selection import around_server, settings_in_order


def in_order(*words: str) -> list[str]:
    return [f"{each.name}={each.value}" for each in settings_in_order([_wanted(word) for word in words])]


def _wanted(word: str) -> WantedSetting:
    name, _, value = word.partition("=")
    return WantedSetting(name, value)


def test_strict_accounting_is_entered_last_and_its_limit_set_before_huge_pages_are_taken() -> None:
    assert in_order("vm.overcommit_memory=2", "vm.nr_hugepages=2130", "vm.overcommit_ratio=90") == [
        "vm.overcommit_ratio=90", "vm.nr_hugepages=2130", "vm.overcommit_memory=2",
    ]  # fmt: skip


def test_strict_accounting_is_left_first() -> None:
    assert (
        in_order("vm.overcommit_ratio=50", "vm.swappiness=1", "vm.overcommit_memory=0")[0] == "vm.overcommit_memory=0"
    )


@pytest.mark.parametrize(
    ("word", "is_after"),
    [
        ("vm.nr_hugepages=0", True),
        ("vm.nr_hugepages=2130", False),
        ("hugepages-1048576kB/nr_hugepages=3", True),
        ("vm.swappiness=1", False),
        ("vm.nr_hugepages=many", False),
        ("vm.overcommit_memory=2", True),
        ("vm.overcommit_memory=0", False),
    ],
)
@pytest.mark.parametrize("restarts", [False, True])
def test_pools_get_smaller_before_a_restart_and_strict_accounting_begins_after_the_server_has_given_its_memory_back(
    word: str, is_after: bool, restarts: bool
) -> None:
    is_after = is_after and (word == "vm.overcommit_memory=2" or not restarts)
    live = {"vm.nr_hugepages": "100", "hugepages-1048576kB/nr_hugepages": "4", "vm.swappiness": "60"}
    setting, ratio = _wanted(word), _wanted("vm.overcommit_ratio=90")
    expected = ((ratio,), (setting,)) if is_after else (tuple(settings_in_order([ratio, setting])), ())
    assert around_server([setting, ratio], live, restarts=restarts) == expected
