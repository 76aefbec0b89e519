"""Statements of two windows: what got slower is named, and a mix that drifts is no effect."""

from __future__ import annotations

import random

import pytest

from pgtop_tune.compare.reports.written import text
from pgtop_tune.compare.statistics.verdicts import TOO_SHORT
from pgtop_tune.compare.windows.differing_words import statement_sheet
from pgtop_tune.compare.windows.statements import StatementComparison, StatementsSeen, compare_statements
from tests.support.frames import frame, postgres_sample
from tests.support.statement_frames import HOSTILE, sample, statement, texts

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


def compared(a: StatementsSeen, b: StatementsSeen) -> StatementComparison:
    found = compare_statements(a, b, comparable=True, decisive=True)
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
    assert compare_statements(StatementsSeen(), seen({1: (1, 1.0)}, "b"), comparable=True, decisive=True) is None


def test_the_table_says_what_the_fixed_set_covers_and_no_text_reaches_the_terminal_raw() -> None:
    a, b = (seen({1: (100, 1.0)}, seed, words={1: HOSTILE}) for seed in "ab")
    told = text([statement_sheet(compared(a, b))])
    assert "statements, same mix" in told
    assert "an unknown share of the execution time" in told or "% of the execution time" in told
    assert "\x1b" not in told
    assert "\u202e" not in told
