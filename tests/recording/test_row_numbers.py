"""Numbers of many rows as text: every list comes back, and what people would read is left as it is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.recording.columns import BEFORE, Habit, packed, unpacked
from pgtop_tune.recording.values import Optional, Scalar, numbers_of, short_form

COUNT = Optional(Scalar(int))
NUMBERS = st.one_of(
    st.integers(0, 63),
    st.integers(-70, 70),
    st.integers(-9_000, 250_000),
    st.sampled_from((0, 8192, 57344)),
    st.integers(-(2**63), 2**63),
)


@given(st.lists(st.one_of(NUMBERS, st.none(), st.just(BEFORE)), max_size=90))
def test_every_list_comes_back_from_json(values: list[object]) -> None:
    form, _ = short_form(values)
    assert numbers_of(json.loads(json.dumps(form))) == values
    assert short_form(values, weighed=False)[0] == form


@pytest.mark.parametrize(
    ("values", "form"),
    [
        ([3, 0, 61, 63] * 5, "30z_" * 5),
        ([0, 5, 61 + 64, None, *range(64, 80)], "05z.0123456789ABCDEF,0010" + "1" * 16),
        ([-2, 1] * 10, {"least": -2, "rows": "03" * 10}),
        ([8192, None, BEFORE, 8192] * 5, {"numbers": [8192], "rows": "0.=0" * 5}),
        ([1, 2, 3], [1, 2, 3]),
        ([10**9 + place for place in range(40)], [10**9 + place for place in range(40)]),
    ],
)
def test_the_forms_are_those_of_the_documentation(values: list[object], form: object) -> None:
    assert short_form(values)[0] == form


@given(
    st.lists(st.tuples(st.one_of(st.none(), NUMBERS), st.one_of(st.none(), NUMBERS)), min_size=4, max_size=60),
    st.lists(st.tuples(st.one_of(st.none(), NUMBERS), st.one_of(st.none(), NUMBERS)), min_size=4, max_size=60),
)
def test_a_habit_that_does_not_fit_any_more_loses_nothing(
    first: list[tuple[int | None, int | None]], second: list[tuple[int | None, int | None]]
) -> None:
    habit = Habit()
    for rows in (first, second):
        old, new = [was for was, _ in rows], [now for _, now in rows]
        column = json.loads(json.dumps(packed(COUNT, new, old, None, habit)))
        assert unpacked(COUNT, column, len(rows), old) == new


WORDS = st.sampled_from(("SELECT 1", "COMMIT", "", None, "a", "b"))


@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=40))
def test_words_come_back_whether_few_of_them_changed_or_many(rows: list[tuple[str | None, str | None]]) -> None:
    codec = Optional(Scalar(str))
    old, new = [was for was, _ in rows], [now for _, now in rows]
    column = json.loads(json.dumps(packed(codec, new, old)))
    assert unpacked(codec, column, len(rows), old) == new


def test_a_text_that_stays_in_use_is_not_written_again() -> None:
    text, other = "SELECT * FROM cart WHERE id = $1", "COMMIT"
    column = packed(Scalar(str), [other, text] * 10, [text, other] * 10)
    assert column == {"also": [], "at": "21" * 10}
