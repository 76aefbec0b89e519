"""One field of many rows at once: the short forms of a column in a recording.

    [1, 0, null]                            integers: differences to before; null is null, and what was null is replaced
    {"by": 8, "more": [1, 0, null]}         the same, each difference 8 times as large
    {"from": 90, "by": 10, "less": [2, 0]}  integers: 90 - 10 × each; null is null, "=" is what was there before
    {"beside": "a", "by": 1, "less": [3]}   integers: the row's own value of column "a" minus each
    {"words": ["a", "b"], "at": [1, 2, 0]}  anything: the words, and per row which one; 0 is what was there before
    {"values": [0.5, 1.0]}                  one whole value per row

Moments of hundreds of sessions lie close together and few words are spoken by all: a column of them takes a third of
what the rows take one by one, compressed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, repeat
from math import gcd
from operator import add
from typing import Any, Final

from pgtop_tune.errors import RecordingProblem
from pgtop_tune.recording.values import Codec, Json, Optional, as_array, as_object, refuse

BESIDE: Final = "beside"
FROM: Final = "from"
BY: Final = "by"
LESS: Final = "less"
MORE: Final = "more"
WORDS: Final = "words"
AT: Final = "at"
VALUES: Final = "values"
BEFORE: Final = "="
_INTEGERS_OR_NULL: Final = frozenset((int, type(None)))
_SHORT: Final = 5
"""Characters per row, comma and blank included, up to which no other form of a column of numbers is looked for."""


@dataclass(frozen=True, slots=True)
class Near:
    """A column of the same rows that another one stays close to."""

    name: str
    values: Sequence[Any]


def packed(codec: Codec, new: Sequence[Any], old: Sequence[Any] | None = None, near: Near | None = None) -> Json:
    """The shortest form of a column.

    Args:
        codec: Of its values.
        new: One value per row.
        old: What the same rows had before; None for rows that were not there.
        near: Another column of the same rows, of integers, that this one stays close to.
    """
    if codec.counts:
        return _numbers(new, old, near)
    if codec.kind is float:
        return {VALUES: list(new)}
    words: dict[Any, int] = {}
    if old is None:
        at = [words.setdefault(value, len(words) + 1) for value in new]
    else:
        at = [
            0 if value == was else words.setdefault(value, len(words) + 1) for value, was in zip(new, old, strict=True)
        ]
    return {WORDS: [codec.full(word) for word in words], AT: at}


def unpacked(
    codec: Codec,
    column: Json,
    rows: int,
    old: Sequence[Any] | None = None,
    others: Mapping[str, Sequence[Any]] | None = None,
) -> list[Any]:
    """The values of a column.

    Args:
        codec: Of its values.
        column: As `packed` gives it.
        rows: How many there are.
        old: What they had before.
        others: Columns of the same rows that are known already.

    Raises:
        RecordingProblem: It is of another form, or for another number of rows.
    """
    if type(column) is list:
        was, changes = _before(old), _as_many(column, rows)
        if codec.counts and _all_integers(changes) and _all_integers(was):
            return list(map(add, was, changes))
        if isinstance(codec, Optional) and codec.counts and _integers_or_null(changes) and _integers_or_null(was):
            return [_sum(one, change) for one, change in zip(was, changes, strict=True)]
        return [codec.apply(one, change) for one, change in zip(was, changes, strict=True)]
    form = as_object(column)
    if MORE in form:
        return _added(codec, form, rows, old)
    if LESS in form:
        return _subtracted(codec, form, rows, old, others or {})
    if WORDS in form:
        return _spoken(codec, form, rows, old)
    return [codec.read(value) for value in _as_many(as_array(form.get(VALUES)), rows)]


def depends(column: Json) -> bool:
    """Whether another column must be known first."""
    return type(column) is dict and BESIDE in column


def column_length(column: Json) -> int:
    """How many rows a column is for."""
    form = as_object(column)
    values = next((form[name] for name in (LESS, AT, VALUES) if name in form), None)
    return len(as_array(values))


def gaps(places: Sequence[int]) -> list[int]:
    """Ascending places as the distances from one to the next; the first from -1."""
    return [place - before for before, place in pairwise((-1, *places))]


def places(distances: Json, rows: int) -> list[int]:
    """The other way round.

    Raises:
        RecordingProblem: No distances, or one that leads out of the rows.
    """
    found = as_array(distances)
    if not all(type(distance) is int and distance > 0 for distance in found):
        raise refuse("distances", distances)
    at = [place - 1 for place in accumulate(found)]
    if at and at[-1] >= rows:
        raise RecordingProblem(f"change of row {at[-1] + 1} of {rows}")
    return at


def _numbers(new: Sequence[Any], old: Sequence[Any] | None, near: Near | None) -> Json:
    forms: list[Json] = []
    if old is not None:
        forms.append(_differences(new, old))
        if _length(forms[0]) <= _SHORT * len(new):
            return forms[0]
    changed = new if old is None else [value for value, was in zip(new, old, strict=True) if value != was]
    known = [value for value in changed if value is not None]
    highest = max(known, default=0)
    step = gcd(*(highest - value for value in known)) or 1
    forms.append({FROM: highest, BY: step, LESS: _less(new, old, repeat(highest), step)})
    if near is not None and all(beside is not None for value, beside in zip(new, near.values, strict=True) if value):
        step = gcd(*(beside - value for value, beside in zip(new, near.values, strict=True) if value)) or 1
        forms.append({BESIDE: near.name, BY: step, LESS: _less(new, old, near.values, step)})
    return min(forms, key=_length)


def _less(new: Sequence[Any], old: Sequence[Any] | None, tops: Iterable[Any], step: int) -> list[Json]:
    if old is None:
        return [None if value is None else (top - value) // step for value, top in zip(new, tops)]  # noqa: B905
    return [
        BEFORE if value == was else None if value is None else (top - value) // step
        for value, was, top in zip(new, old, tops)  # noqa: B905
    ]


def _differences(new: Sequence[Any], old: Sequence[Any]) -> Json:
    if None in old:
        return [value if value is None or was is None else value - was for value, was in zip(new, old, strict=True)]
    more = [None if value is None else value - was for value, was in zip(new, old, strict=True)]
    step = gcd(*(one for one in more if one is not None))
    return more if step <= 1 else {BY: step, MORE: [None if one is None else one // step for one in more]}


def _length(form: Json) -> int:
    """About how many characters; repr is the fastest way to know."""
    return len(repr(form))


def _added(codec: Codec, form: dict[str, Json], rows: int, old: Sequence[Any] | None) -> list[Any]:
    step = form.get(BY)
    changes = _as_many(as_array(form[MORE]), rows)
    if type(step) is not int or not _integers_or_null(changes):
        raise refuse("numbers to add", form)
    was = _before(old)
    if isinstance(codec, Optional) and codec.counts and _integers_or_null(was):
        return [_sum(one, None if change is None else step * change) for one, change in zip(was, changes, strict=True)]
    return [
        codec.apply(one, None if change is None else step * change) for one, change in zip(was, changes, strict=True)
    ]


def _subtracted(
    codec: Codec,
    form: dict[str, Json],
    rows: int,
    old: Sequence[Any] | None,
    others: Mapping[str, Sequence[Any]],
) -> list[Any]:
    step = form.get(BY, 1)
    tops = others.get(str(form[BESIDE])) if BESIDE in form else [form.get(FROM)] * rows
    if tops is None or type(step) is not int:
        raise refuse("numbers to subtract from", form)
    values, found = _as_many(as_array(form[LESS]), rows), []
    if codec.counts and _all_integers(values) and _all_integers(tops):
        return [top - step * less for less, top in zip(values, tops, strict=True)]
    for place, (less, top) in enumerate(zip(values, tops, strict=True)):
        if less == BEFORE:
            found.append(_before(old)[place])
        elif less is None:
            found.append(codec.read(None))
        elif type(less) is int and type(top) is int:
            found.append(codec.read(top - step * less))
        else:
            raise refuse("number", less)
    return found


def _spoken(codec: Codec, form: dict[str, Json], rows: int, old: Sequence[Any] | None) -> list[Any]:
    words = [None, *(codec.read(word) for word in as_array(form[WORDS]))]
    at = _as_many(as_array(form.get(AT)), rows)
    if at and not (_all_integers(at) and min(at) >= 0 and max(at) < len(words)):
        raise refuse("numbers of words", at)
    if 0 not in at:
        return [words[number] for number in at]
    return [words[number] if number else was for number, was in zip(at, _before(old), strict=True)]


def _all_integers(values: Sequence[Any]) -> bool:
    return set(map(type, values)) == {int}


def _integers_or_null(values: Sequence[Any]) -> bool:
    return _INTEGERS_OR_NULL.issuperset(map(type, values))


def _sum(was: int | None, change: int | None) -> int | None:
    """As the codec of an integer or null applies it, without asking each value what it is."""
    return change if change is None or was is None else was + change


def _before(old: Sequence[Any] | None) -> Sequence[Any]:
    if old is None:
        raise RecordingProblem("change of rows that were not there")
    return old


def _as_many(values: list[Json], rows: int) -> list[Json]:
    if len(values) != rows:
        raise RecordingProblem(f"{len(values)} values for {rows} rows")
    return values
