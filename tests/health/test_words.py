"""Numbers in what checks say have their unit, and the digits that somebody would say."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pgtop_tune.base.units import duration, share, share_of
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.questions import TableState
from pgtop_tune.health.registry import CHECKS
from tests.support.frames import MIB
from tests.support.health_facts import found, spoilt
from tests.support.relation_frames import slot
from tests.support.server_conditions import sequence
from tests.support.server_facts import NOW_MS, checkpoints, slots, spoiled, wal

SMALL = TableState(1, 0, "shop", "branches", MIB, 10, 10, 0, 62_682, False, None, None, 10, 1, True)


def said(id_: str, facts: CheckFacts) -> str:
    (finding,) = found(next(each for each in CHECKS if each.id == id_), facts)
    return finding.says


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.0, "0 %"), (0.012, "less than 0.1 %"), (0.531, "0.5 %"), (38.2, "38 %"), (99.96, "100 %"), (130.0, "130 %")],
)
def test_a_share_has_the_digits_that_somebody_would_say(value: float, words: str) -> None:
    assert share(value) == words


def test_a_share_that_is_many_times_the_whole_is_said_so() -> None:
    assert share_of(999.0, "its 10 rows") == "999 % of its 10 rows"
    assert share_of(626_820.0, "its 10 rows") == "6268 times its 10 rows"


@pytest.mark.parametrize(("seconds", "words"), [(0.6, "0.60 s"), (4.1, "4.1 s"), (59.0, "59 s"), (192.0, "3m12s")])
def test_a_duration_always_has_a_unit(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_small_table_that_changed_a_lot_is_not_told_in_millions_of_per_cent() -> None:
    assert "6268 times its 10 rows" in said("TAB-04", spoiled(answers={"check_tables": (SMALL,)}))


def test_counters_of_a_minute_have_a_unit() -> None:
    reset = {"stats_reset_ms": NOW_MS - 59_000}
    sections = {"wal": wal(**reset), "checkpoints": checkpoints(**reset)}
    assert "59 s old" in said("CFG-06", spoiled(postgres=sections))


def test_a_rate_is_not_in_powers_of_ten() -> None:
    assert "were full 180 times a second" in said(
        "WAL-06", spoiled(postgres={"wal": wal(wal_buffers_full=155_520_000)})
    )


def test_a_share_of_the_memory_has_one_digit_behind_the_point() -> None:
    assert said("MEM-02", spoilt({"shared_buffers": "87MB"})) == "shared_buffers is 0.5 % of the memory"


@pytest.mark.parametrize(("names", "words"), [("a", "the only slot may"), ("ab", "any of 2 slots may")])
def test_one_slot_is_not_any_of_one(names: str, words: str) -> None:
    facts = spoiled({"max_slot_wal_keep_size": "-1"}, postgres=slots(*map(slot, names)))
    assert words in said("SLOT-03", facts)


def test_a_sequence_without_a_column_is_told_by_its_own_range() -> None:
    of_column = sequence(800)
    free = replace(of_column, table_schema=None, table_name=None, column_name=None)
    for state, end in ((of_column, "the range of orders.id"), (free, "its range")):
        facts = spoiled(answers={"check_sequences": (state,)})
        assert said("KEY-01", facts) == f"sequence bench: shop.orders_id_seq is at 80 % of {end}"
