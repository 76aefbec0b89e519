"""Statements of two windows or of runs: what got slower is named, and a mix that drifts is no effect."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pgtop_tune.compare.comparison import compare
from pgtop_tune.compare.figure_rows import TOO_SHORT
from pgtop_tune.compare.reports.sheets import sheets, statement_sheet
from pgtop_tune.compare.reports.written import comparison_json, sheets_text
from pgtop_tune.compare.sides.from_recording import read_recording
from pgtop_tune.compare.sides.material import (
    MOST_LOOKS,
    ComparedRun,
    Gathered,
    LoadKey,
    StatementsSeen,
    mean_ms,
    summed,
)
from pgtop_tune.compare.statement_rows import StatementComparison, compare_statements
from pgtop_tune.model.postgres import StatementTotals
from tests.support.frames import frame, postgres_sample
from tests.support.sides import frames, recorded, with_statements
from tests.support.statement_frames import HOSTILE, sample, statement, texts

WORDS = {1: "SELECT count(*) FROM items", 2: "SELECT filler FROM items WHERE id = $1"}
Statements = dict[int, tuple[int, float]]
"""By query id: calls in a second, and milliseconds of each."""


def seen(
    statements: Statements, seed: str, *, seconds: int = 60, drift: float = 0.0, words: dict[int, str] | None = None
) -> StatementsSeen:
    """A window read from frames; the first statement's calls grow by `drift` until its end."""
    chance, found = random.Random(seed), StatementsSeen()
    counted = dict.fromkeys(statements, (0, 0))
    for second in range(seconds):
        for place, (queryid, (calls, ms)) in enumerate(statements.items()):
            more = round(calls * (1.0 + drift * second / seconds * (place == 0)))
            us = round(1000.0 * more * ms * chance.gauss(1.0, 0.02))
            counted[queryid] = counted[queryid][0] + more, counted[queryid][1] + us
        rows = [statement(queryid, calls=calls, exec_us=us) for queryid, (calls, us) in counted.items()]
        given = {
            "statement_counters": sample(float(second), float(second - 1) if second else None, rows),
            "statement_texts": texts(float(second), words or {queryid: f"SELECT {queryid}" for queryid in statements}),
        }
        found.take(frame(second, postgres=postgres_sample(second, **given)))
    return found


def run_of(statements: StatementsSeen, seconds: float = 60.0) -> ComparedRun:
    return ComparedRun(0, LoadKey(), Gathered(), seconds=seconds, statements=statements)


def windows(a: StatementsSeen, b: StatementsSeen) -> StatementComparison | None:
    sides = [run_of(a)], [run_of(b)]
    return compare_statements(*sides, comparable=True, decisive=True, repeated=False, windows=True)


def compared(a: StatementsSeen, b: StatementsSeen) -> StatementComparison:
    found = windows(a, b)
    assert found is not None
    return found


def test_a_mix_that_drifts_is_no_effect() -> None:
    a = seen({1: (100, 1.0), 2: (10, 50.0)}, "a")
    b = seen({1: (100, 1.0), 2: (30, 50.0)}, "b", drift=2.0)
    found = compared(a, b)
    assert found.same_mix is not None
    assert found.same_mix.relative == pytest.approx(0.0, abs=0.02)
    assert found.verdict not in ("better", "worse")
    assert {row.verdict for row in found.rows} <= {"no difference distinguishable", "undecided"}


def test_a_statement_that_gets_slower_is_found_first_and_the_other_is_not() -> None:
    found = compared(seen({1: (100, 1.0), 2: (50, 2.0)}, "a"), seen({1: (20, 1.0), 2: (10, 8.0)}, "b"))
    assert (found.rows[0].text, found.rows[0].verdict) == ("SELECT 2", "worse")
    assert found.rows[1].verdict not in ("better", "worse")
    assert found.verdict == "worse"
    assert found.same_mix is not None
    assert found.same_mix.relative == pytest.approx(1.5, rel=0.05), "A's calls: 200 ms become 500 ms a second"


def test_new_and_gone_statements_are_said_and_weigh_nothing_in_the_same_mix() -> None:
    found = compared(seen({1: (100, 1.0), 2: (50, 9.0)}, "a"), seen({1: (100, 1.0), 3: (50, 9.0)}, "b"))
    assert {row.text: row.verdict for row in found.rows if not row.fixed} == {"SELECT 2": "gone", "SELECT 3": "new"}
    assert found.fixed == 1
    assert found.verdict not in ("better", "worse")


def test_too_few_calls_or_looks_have_no_verdict() -> None:
    rare = compared(seen({1: (100, 1.0), 2: (0, 9.0)}, "a"), seen({1: (100, 1.0)}, "b", seconds=8))
    assert (rare.same_mix, rare.verdict) == (None, TOO_SHORT)
    assert windows(StatementsSeen(), seen({1: (1, 1.0)}, "b")) is None


def test_the_table_says_what_the_fixed_set_covers_and_no_text_reaches_the_terminal_raw() -> None:
    a, b = (seen({1: (100, 1.0)}, seed, words={1: HOSTILE}) for seed in "ab")
    told = sheets_text([statement_sheet(compared(a, b))])
    assert "statements, same mix" in told
    assert "an unknown share of the execution time" in told or "% of the execution time" in told
    assert "\x1b" not in told
    assert "\u202e" not in told


def of_runs(*sides: list[StatementsSeen], repeated: bool) -> StatementComparison:
    a, b = ([run_of(each) for each in side] for side in sides)
    found = compare_statements(a, b, comparable=True, decisive=True, repeated=repeated)
    assert found is not None
    return found


def test_repeated_runs_tell_the_slower_statement_and_one_run_a_side_only_that_they_differ() -> None:
    a = [seen({1: (100, 1.0), 2: (50, 2.0)}, f"a{run}") for run in range(3)]
    b = [seen({1: (100, 1.0), 2: (10, 8.0)}, f"b{run}") for run in range(3)]
    several, alone = of_runs(a, b, repeated=True), of_runs(a[:1], b[:1], repeated=False)
    assert [(row.text, row.verdict, row.below_noise) for row in several.rows] == [
        ("SELECT 2", "worse", False), ("SELECT 1", "undecided", True),
    ]  # fmt: skip
    assert (several.verdict, several.same_mix and several.same_mix.confidence) == ("worse", 0.98)
    assert (alone.rows[0].verdict, alone.verdict) == ("differ", "worse")


def test_a_run_that_is_too_short_has_no_interval() -> None:
    runs = ([run_of(seen({1: (100, ms)}, "a"), seconds=20.0)] for ms in (1.0, 2.0))
    found = compare_statements(*runs, comparable=True, decisive=True, repeated=False)
    assert found is not None
    assert (found.rows[0].verdict, found.verdict) == (TOO_SHORT, TOO_SHORT)


def test_what_is_certain_stands_before_what_lies_below_the_noise() -> None:
    a = seen({1: (100, 1.0), 2: (1000, 30.0)}, "a")
    b = seen({1: (100, 1.2), 2: (1000, 30.01), 3: (1, 0.1)}, "b")
    found = compared(a, b)
    assert [row.text for row in found.rows] == ["SELECT 1", "SELECT 3", "SELECT 2"]
    assert [row.below_noise for row in found.rows] == [False, False, True]


def test_the_warm_up_is_left_out() -> None:
    def rising(second: int) -> dict[int, tuple[int, float]]:
        return {1: (100, 9.0 if second < 40 else 1.0)}

    found = StatementsSeen()
    for each in with_statements(frames(seconds=100), rising, {1: "SELECT 1"}):
        found.take(each)
    assert mean_ms(summed(found.behind(40.0))["1/10/5/1"]) == pytest.approx(1.0, rel=0.05)
    assert found.seconds(40.0) == pytest.approx(60.0)


def test_a_reset_and_a_reading_that_was_missed_leave_no_look() -> None:
    found = StatementsSeen()
    for second, (calls, before_s, reset_ms) in enumerate(
        ((0, None, 1), (50, 0, 1), (900, 1, 2), (950, 2, 2), (999, 2.5, 2))
    ):
        totals = StatementTotals(float(second), 0, 0.0, 1, 0, reset_ms)
        counters = sample(float(second), before_s, [statement(1, calls=calls, exec_us=1000 * calls)])
        given = {"statement_counters": counters, "statements": totals}
        found.take(frame(second, postgres=postgres_sample(second, **given)))
    assert [look["1/10/5/1"][0] for look in found.looks] == [50, 50]


def test_of_a_long_recording_entries_of_both_readings_count_and_readings_that_are_no_neighbours_do_not() -> None:
    found = StatementsSeen()
    for second, calls in ((0, {1: 0}), (60, {1: 60, 2: 70}), (120, {}), (600, {1: 900}), (660, {1: 1000, 2: 999})):
        rows = [statement(queryid, calls=count, exec_us=1000 * count) for queryid, count in calls.items()]
        given = {"statement_counters": sample(float(second), second - 2.0, rows)} if rows else {}
        found.take(frame(second, postgres=postgres_sample(second, **given)), folded=59)
    assert [dict(look) for look in found.looks] == [{"1/10/5/1": (60, 60.0)}, {"1/10/5/1": (100, 100.0)}]


def test_looks_of_hours_are_put_together() -> None:
    found = seen({1: (10, 1.0)}, "a", seconds=3 * MOST_LOOKS)
    assert len(found.looks) <= MOST_LOOKS + 1
    assert summed(found.looks)["1/10/5/1"][0] == 10 * (3 * MOST_LOOKS - 1)
    assert found.seconds() == pytest.approx(3 * MOST_LOOKS - 1)


def test_recordings_have_statement_rows_as_windows_have(tmp_path: Path) -> None:
    sides = []
    for name, ms in (("a", 1.0), ("b", 6.0)):
        told = with_statements(frames(seed=name), lambda second, ms=ms: {1: (100, 1.0), 2: (40, ms)}, WORDS, name)  # type: ignore[misc]
        sides.append(read_recording(recorded(told, tmp_path / f"{name}.jsonl")))
    found = compare(*sides)
    told = sheets_text(sheets(found))
    assert "statements, same mix" in told
    (slower,) = (line for line in told.splitlines() if "SELECT filler" in line)
    assert slower.split()[-1] == "differ"
    (record,) = comparison_json([found])["comparisons"][0]["phases"]
    assert [row["text"] for row in record["statements"]["rows"]] == [WORDS[2], WORDS[1]]
    assert [row["below_noise"] for row in record["statements"]["rows"]] == [False, True]


def test_our_own_statements_are_no_part_of_the_execution_time_of_all() -> None:
    """On a server with little to do they are most of it."""
    found = StatementsSeen()
    for second in range(11):
        totals = StatementTotals(float(second), 0, 3.0 * second, 1, 0, 1)
        rows = [statement(1, calls=10 * second, exec_us=1000 * second)]
        given = {
            "statement_counters": sample(float(second), second - 1.0 if second else None, rows),
            "statements": totals,
        }
        found.take(frame(second, postgres=postgres_sample(second, **given)))
    assert found.all_ms() == pytest.approx(10.0)
