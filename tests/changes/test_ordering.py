"""The order of the changes of a set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.advice.knobs.catalogue import BY_NAME
from pgtop_tune.changes.model.change import WantedParameter
from pgtop_tune.changes.selection import WITHIN, parameters_in_order
from tests.support.screens import parameter

NOW = {
    "min_wal_size": parameter("min_wal_size", "80", "80MB", unit="MB"),
    "max_wal_size": parameter("max_wal_size", "1024", "1GB", unit="MB"),
}


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ([("min_wal_size", "2GB"), ("work_mem", "8MB"), ("max_wal_size", "4GB")],
         ["work_mem", "max_wal_size", "min_wal_size"]),
        ([("max_wal_size", "512MB"), ("min_wal_size", "64MB")], ["min_wal_size", "max_wal_size"]),
        ([("max_wal_size", "lots"), ("min_wal_size", "64MB")], ["max_wal_size", "min_wal_size"]),
        ([("b", "1"), ("a", "2")], ["b", "a"]),
    ],
)  # fmt: skip
def test_room_is_made_before_it_is_used_and_given_up_after_it_was_left(
    wanted: list[tuple[str, str]], names: list[str]
) -> None:
    assert [each.name for each in parameters_in_order([WantedParameter(*each) for each in wanted], NOW)] == names


@given(st.permutations([name for row in WITHIN for name in row]).map(lambda names: list(dict.fromkeys(names))))
def test_no_change_is_lost_or_made_twice(names: list[str]) -> None:
    ordered = parameters_in_order([WantedParameter(name, "1") for name in names], {})
    assert sorted(each.name for each in ordered) == sorted(names)


def test_the_rules_are_about_parameters_of_the_catalogue() -> None:
    assert {name for row in WITHIN for name in row} <= set(BY_NAME)
