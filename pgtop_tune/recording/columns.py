"""One field of many rows at once: the short forms of a column in a recording.

    {"by": 8, "more": [1, 0, null]}         integers: differences to before, each 8 times as large; null is null, and
                                            what was null is replaced
    {"from": 90, "by": 10, "less": [2, 0]}  integers: 90 - 10 × each; null is null, "=" is what was there before
    {"beside": "a", "by": 1, "less": [3]}   integers: the row's own value of column "a" minus each
    {"words": ["a", "b"], "at": [1, 2, 0]}  anything: the words, and per row which one; 0 is what was there before
    {"also": ["c"], "at": [1, 2, 3]}        anything: the words these rows had before, in the order in which the rows
                                            have them, and further ones; per row which one
    {"values": [0.5, 1.0]}                  one whole value per row

"more", "less" and "at" may be text, a character per row: see `values.short_form`. Without "by" it is 1. Moments of
hundreds of sessions lie close together, and all sessions share a few words: compressed, a column of them takes a third
of what the rows take one by one. Older recordings have [1, 0, null] for differences without "by".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, compress, repeat
from math import gcd
from operator import add, mul, ne, sub
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.base.errors import RecordingProblem
from pgtop_tune.recording.values import (
    BASE,
    BEFORE,
    MANY_NUMBERS,
    Codec,
    Json,
    Optional,
    as_array,
    as_object,
    digits_of,
    numbers_of,
    refuse,
    short_form,
)

BESIDE: Final = "beside"
FROM: Final = "from"
BY: Final = "by"
LESS: Final = "less"
MORE: Final = "more"
WORDS: Final = "words"
ALSO: Final = "also"
AT: Final = "at"
VALUES: Final = "values"
_INTEGERS_OR_NULL: Final = frozenset((int, type(None)))
_LESS: Final = frozenset((int, type(None), str))


_OFTEN: Final = 3
"""A column in which more than one row in so many has changed is written as "also", with the earlier words."""
_HABIT: Final = 30
"""Frames between two searches for the shortest form of a column of numbers; between them one form is made."""


class NearColumn(Struct, frozen=True):
    """A column of the same rows whose values are close to those of another one."""

    name: str
    values: Sequence[Any]


class Habit(Struct):
    """The form of a column that was the shortest when all were made, and for how many frames it is still used
    untested."""

    form: str = ""
    frames_left: int = 0


def packed(
    codec: Codec,
    new: Sequence[Any],
    old: Sequence[Any] | None = None,
    near: NearColumn | None = None,
    habit: Habit | None = None,
) -> Json:
    """Return the shortest form of a column.

    Args:
        codec: Codec of the values.
        new: One value per row.
        old: Values of the same rows before; None for rows that were not there.
        near: Another column of the same rows, of integers, that this one stays close to.
        habit: Habit of this column.
    """
    if codec.counts:
        return _numbers(new, old, near, habit or Habit())
    if codec.kind is float:
        return {VALUES: list(new)}
    if old is None:
        return _words(codec, WORDS, (), new)
    changed = list(map(ne, new, old))
    if _OFTEN * sum(changed) > len(new):
        return _words(codec, ALSO, dict.fromkeys(old), new)
    new_words = dict.fromkeys(compress(new, changed))
    places = {word: number for number, word in enumerate(new_words, 1)}
    at = list(map(mul, map(places.get, new, repeat(0)), changed))
    return {WORDS: [codec.full(word) for word in new_words], AT: _at(at, len(new_words))}


def _words(codec: Codec, name: str, known_words: Iterable[Any], new: Sequence[Any]) -> Json:
    """Return the new words, and per row the number of its word among the known and the new ones."""
    places = {word: number for number, word in enumerate(known_words, 1)}
    fresh = [word for word in dict.fromkeys(new) if word not in places]
    places |= {word: number for number, word in enumerate(fresh, len(places) + 1)}
    at = list(map(places.__getitem__, new))
    return {name: [codec.full(word) for word in fresh], AT: _at(at, len(places))}


def _at(places: Sequence[int], most: int) -> Json:
    """Return numbers of which none is larger than `most`, as text or array."""
    return digits_of(places) if most < BASE and len(places) >= MANY_NUMBERS else short_form(places)[0]


def unpacked(
    codec: Codec,
    column: Json,
    rows: int,
    old: Sequence[Any] | None = None,
    other_columns: Mapping[str, Sequence[Any]] | None = None,
) -> list[Any]:
    """Return the values of a column.

    Args:
        codec: Codec of the values.
        column: As `packed` gives it.
        rows: Number of rows.
        old: Values of these rows before.
        other_columns: Columns of the same rows that are known already.

    Raises:
        RecordingProblem: It is of another form, or for another number of rows.
    """
    if type(column) is list:
        was, changes = _before(old), _as_many(column, rows)
        if codec.counts and _all_integers(changes) and _all_integers(was):
            return list(map(add, was, changes))
        if type(codec) is Optional and codec.counts and _integers_or_null(changes) and _integers_or_null(was):
            # As `apply` of the codec, without asking each value for its type.
            return [
                change if change is None or before is None else before + change
                for before, change in zip(was, changes, strict=True)
            ]
        return [codec.apply(one, change) for one, change in zip(was, changes, strict=True)]
    form = as_object(column)
    if MORE in form:
        return _added(codec, form, rows, old)
    if LESS in form:
        return _subtracted(codec, form, rows, old, other_columns or {})
    if WORDS in form or ALSO in form:
        return _spoken(codec, form, rows, old)
    return [codec.read(value) for value in _as_many(as_array(form.get(VALUES)), rows)]


def depends(column: Json) -> bool:
    """Return whether another column must be read first."""
    return type(column) is dict and BESIDE in column


def column_length(column: Json) -> int:
    """Return the number of rows of a column."""
    form = as_object(column)
    return len(numbers_of(next((form[name] for name in (LESS, AT, VALUES) if name in form), None)))


def gaps(places: Sequence[int]) -> Json:
    """Return ascending row numbers as the distances from one to the next; the first from -1."""
    distances = list(map(sub, places, (-1, *places)))
    return _at(distances, max(distances, default=0))


def places(distances: Json, rows: int) -> list[int]:
    """Return the row numbers of `gaps`.

    Raises:
        RecordingProblem: No distances, or one that leads out of the rows.
    """
    distances_read = numbers_of(distances)
    if not all(type(distance) is int and distance > 0 for distance in distances_read):
        raise refuse("distances", distances)
    at = [end - 1 for end in accumulate(distances_read)]
    if at and at[-1] >= rows:
        raise RecordingProblem(f"change of row {at[-1] + 1} of {rows}")
    return at


def _numbers(new: Sequence[Any], old: Sequence[Any] | None, near: NearColumn | None, habit: Habit) -> Json:
    if habit.frames_left > 0:
        habit.frames_left -= 1
        usual = _FORMS[habit.form](new, old, near, weighed=False)
        if usual is not None:
            return usual[0]
    forms = {name: form for name, make in _FORMS.items() if (form := make(new, old, near)) is not None}
    habit.form = min(forms, key=lambda name: forms[name][1])
    habit.frames_left = _HABIT
    return forms[habit.form][0]


def _from_highest(
    new: Sequence[Any], old: Sequence[Any] | None, near: NearColumn | None, *, weighed: bool = True
) -> tuple[Json, int] | None:
    highest = max(new if None not in new else [value for value in new if value is not None], default=0)
    return _less({FROM: highest}, new, old, repeat(highest, len(new)), weighed)


def _beside(
    new: Sequence[Any], old: Sequence[Any] | None, near: NearColumn | None, *, weighed: bool = True
) -> tuple[Json, int] | None:
    """Return the form with differences to the near column; None where that lacks the value beside one."""
    if near is None:
        return None
    tops = near.values
    if None in tops and any(top is None and value is not None for value, top in zip(new, tops, strict=True)):
        return None
    return _less({BESIDE: near.name}, new, old, tops, weighed)


def _less(
    form: dict[str, Json], new: Sequence[Any], old: Sequence[Any] | None, tops: Iterable[Any], weighed: bool
) -> tuple[Json, int]:
    if old is None and None not in new:
        less: list[Any] = list(map(sub, tops, new))
    elif old is None:
        less = [None if value is None else top - value for value, top in zip(new, tops, strict=True)]
    else:
        less = [
            BEFORE if value == was else None if value is None else top - value
            for value, was, top in zip(new, old, tops, strict=True)
        ]
    step = gcd(*less) if _all_integers(less) else gcd(*[one for one in less if type(one) is int])
    if step > 1:
        form[BY], less = step, [one // step if type(one) is int else one for one in less]
    form[LESS], bits = short_form(less, weighed=weighed)
    return form, bits


def _differences(
    new: Sequence[Any], old: Sequence[Any] | None, near: NearColumn | None, *, weighed: bool = True
) -> tuple[Json, int] | None:
    """Return the form with differences to the earlier values; None without these."""
    if old is None:
        return None
    if None not in old and None not in new:
        more = list(map(sub, new, old))
        step = gcd(*more)
    else:
        more = [value if value is None or was is None else value - was for value, was in zip(new, old, strict=True)]
        # What was null is no difference: it cannot be counted in steps.
        step = 1 if None in old else gcd(*(one for one in more if one is not None))
    if step > 1:
        more = [None if one is None else one // step for one in more]
    text, bits = short_form(more, weighed=weighed)
    return {MORE: text, BY: step} if step > 1 else {MORE: text}, bits


_FORMS: Final = {MORE: _differences, FROM: _from_highest, BESIDE: _beside}
"""Ways to write a column of numbers; each gives the form and about how many bits it takes, None where it cannot."""


def _added(codec: Codec, form: dict[str, Json], rows: int, old: Sequence[Any] | None) -> list[Any]:
    step = form.get(BY, 1)
    changes = _as_many(numbers_of(form[MORE]), rows)
    if type(step) is not int or not _integers_or_null(changes):
        raise refuse("numbers to add", form)
    was = _before(old)
    if codec.counts and _all_integers(was) and _all_integers(changes):
        return list(map(add, was, changes if step == 1 else [step * change for change in changes]))
    if type(codec) is Optional and codec.counts and _integers_or_null(was):
        return [
            None if change is None else step * change if one is None else one + step * change
            for one, change in zip(was, changes, strict=True)
        ]
    return [
        codec.apply(one, None if change is None else step * change) for one, change in zip(was, changes, strict=True)
    ]


def _subtracted(
    codec: Codec,
    form: dict[str, Json],
    rows: int,
    old: Sequence[Any] | None,
    other_columns: Mapping[str, Sequence[Any]],
) -> list[Any]:
    step = form.get(BY, 1)
    tops = other_columns.get(str(form[BESIDE])) if BESIDE in form else [form.get(FROM)] * rows
    if tops is None or type(step) is not int:
        raise refuse("numbers to subtract from", form)
    values, results = _as_many(numbers_of(form[LESS]), rows), []
    if codec.counts and _all_integers(values) and _all_integers(tops):
        return [top - step * less for less, top in zip(values, tops, strict=True)]
    if type(codec) is Optional and codec.counts and _LESS.issuperset(map(type, values)):
        try:
            return [
                was if less == BEFORE else None if less is None else top - step * less
                for less, top, was in zip(values, tops, old or repeat(None, rows), strict=True)
            ]
        except TypeError:
            raise refuse("numbers to subtract", form) from None
    for index, (less, top) in enumerate(zip(values, tops, strict=True)):
        if less == BEFORE:
            results.append(_before(old)[index])
        elif less is None:
            results.append(codec.read(None))
        elif type(less) is int and type(top) is int:
            results.append(codec.read(top - step * less))
        else:
            raise refuse("number", less)
    return results


def _spoken(codec: Codec, form: dict[str, Json], rows: int, old: Sequence[Any] | None) -> list[Any]:
    if WORDS in form:
        least, spoken = 0, [None, *map(codec.read, as_array(form[WORDS]))]
    else:
        least, spoken = 1, [None, *dict.fromkeys(_before(old)), *map(codec.read, as_array(form[ALSO]))]
    at = _as_many(numbers_of(form.get(AT)), rows)
    if at and not (_all_integers(at) and min(at) >= least and max(at) < len(spoken)):
        raise refuse("numbers of words", at)
    if 0 not in at:
        return [spoken[number] for number in at]
    return [spoken[number] if number else was for number, was in zip(at, _before(old), strict=True)]


def _all_integers(values: Sequence[Any]) -> bool:
    return set(map(type, values)) == {int}


def _integers_or_null(values: Sequence[Any]) -> bool:
    return _INTEGERS_OR_NULL.issuperset(map(type, values))


def _before(old: Sequence[Any] | None) -> Sequence[Any]:
    if old is None:
        raise RecordingProblem("change of rows that were not there")
    return old


def _as_many(values: list[Json], rows: int) -> list[Json]:
    if len(values) != rows:
        raise RecordingProblem(f"{len(values)} values for {rows} rows")
    return values
