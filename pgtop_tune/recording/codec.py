"""Frames to JSON values and back: full values, and deltas between two frames.

Built from the type hints of the structs, so that a field added to the model is recorded without a line here.

Full value                                  Delta (only what changed is there)
int, float, str, bool, null   itself        int: difference to before, when it was an int before; else itself
struct                        object        object of changed fields; {"=": object} replaces it whole
tuple                         array         array, whole
tuple with a key field        [key, columns]; few   object of "gone": keys, "new": whole rows, "columns": changes of few
                              rows: object by key   rows, by field an object of key and delta, "packed": of many rows,
                                                    [distances between their places, columns], "order": all keys where
                                                    new rows are not simply last
Unavailable                   {"unavailable": reason, "detail": text}     {"=": …}

`columns` are by field name, each packed as in `columns`; `key` is the name of the field that is the key, or an array
of the keys where it is none. A tuple that had no key in an older recording stands there as an array of objects; it
reads as a table. Older recordings have no packed columns, and arrays of differences in "columns". Unknown fields are
ignored and missing ones take the struct's default, so that older and newer recordings read.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Sequence
from functools import cache
from itertools import compress
from operator import attrgetter, itemgetter, ne
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

from pgtop_tune.base.errors import RecordingProblem
from pgtop_tune.model import recorded_as
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.recording.columns import Habit, NearColumn, column_length, depends, gaps, packed, places, unpacked
from pgtop_tune.recording.values import (
    SAME,
    Codec,
    Json,
    List,
    Optional,
    PairCodec,
    Scalar,
    WideInt,
    as_array,
    as_object,
    refuse,
)

ENCODER: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False)
"""Encoder of all lines; codecs give trees, so circular references are not searched for."""
WHOLE: Final = "="
GONE: Final = "gone"
NEW: Final = "new"
ORDER: Final = "order"
COLUMNS: Final = "columns"
PACKED: Final = "packed"
MANY: Final = 4
"""Number of rows from which on they are packed column by column; fewer are written one by one, which people can
read."""
ABSENT: Final = "unavailable"


class _TableCodec(Codec):
    """A tuple of structs with a key field, compared column by column: unchanged columns cost nothing."""

    def __init__(self, row: _StructCodec, key: str) -> None:
        self._row = row
        self._name = key
        self._key = attrgetter(key)
        self._kept: tuple[Any, list[Any], list[tuple[Any, ...]]] = ((), [], [])

    def full(self, value: Any) -> Json:
        key = self._key
        if len(value) < MANY:
            return {str(key(row)): self._row.full(row) for row in value}
        names = self._name if self._row.has(self._name) else [str(key(row)) for row in value]
        return [names, self._row.columns_full(value)]

    def delta(self, old: Any, new: Any) -> Json:
        if old is new:
            return SAME
        key, kept = self._key, self._kept
        names, before = kept[1:] if kept[0] is old else (list(map(key, old)), self._row.values(old))
        later, after = list(map(key, new)), self._row.values(new)
        self._kept = (new, later, after)
        if before == after:
            return SAME
        if names == later:
            return self._row.columns_delta(names, before, after) or SAME
        staying, coming = dict(zip(later, after, strict=True)), set(later).difference(names)
        changed: dict[str, Json] = {}
        if gone_names := [str(name) for name in names if name not in staying]:
            changed[GONE] = gone_names
        if coming:
            changed[NEW] = self.full([row for name, row in zip(later, new, strict=True) if name in coming])
        stayed = [name for name in names if name in staying]
        if stayed + [name for name in later if name in coming] != later:
            changed[ORDER] = [str(name) for name in later]
        rows_before = [row for name, row in zip(names, before, strict=True) if name in staying]
        changed |= self._row.columns_delta(stayed, rows_before, [staying[name] for name in stayed])
        return changed or SAME

    def read(self, json: Json) -> Any:
        if type(json) is list and json and type(json[0]) in (str, list):
            if len(json) != 2:
                raise refuse("key and columns", json)
            return self._row.columns_read(as_object(json[1]))
        rows = json if type(json) is list else as_object(json).values()
        return tuple(self._row.read(row) for row in rows)

    def apply(self, old: Any, json: Json) -> Any:
        if type(json) is list:
            return self.read(json)
        changed = as_object(json)
        if changed.keys() == {PACKED}:
            return tuple(self._row.packed_applied(old, as_array(changed[PACKED])))
        key = self._key
        rows = {str(key(row)): row for row in old}
        for name in as_array(changed.get(GONE, [])):
            if type(name) is not str:
                raise refuse("key of a row", name)
            rows.pop(name, None)
        rows = self._row.columns_applied(rows, as_object(changed.get(COLUMNS, {})))
        if PACKED in changed:
            rows = dict(zip(rows, self._row.packed_applied([*rows.values()], as_array(changed[PACKED])), strict=True))
        rows |= {str(key(row)): row for row in self.read(changed.get(NEW, {}))}
        order = as_array(changed.get(ORDER, []))
        if order and len(order) == len(rows) and all(type(name) is str and name in rows for name in order):
            return tuple(rows[name] for name in order)
        return tuple(rows.values())


class _StructCodec(Codec):
    """An object with the fields of a struct."""

    def __init__(self, kind: type[Struct]) -> None:
        self._kind = kind
        hints = get_type_hints(kind, include_extras=True)
        self._names = kind.__struct_fields__
        self._codecs: dict[str, Codec] = {name: _codec_of_field(hints[name]) for name in self._names}
        self._items = tuple(self._codecs.items())
        self._near = {
            name: (mark.field, self._names.index(mark.field))
            for name in self._names
            for mark in _marks(hints[name])
            if isinstance(mark, recorded_as.Near)
        }
        self._habits = {name: Habit() for name in self._names}
        self._habits_of_new = {name: Habit() for name in self._names}
        names = self._names
        self._values: Callable[[Any], tuple[Any, ...]] = (
            attrgetter(*names) if len(names) > 1 else lambda value: (getattr(value, names[0]),)
        )
        self._fields: Callable[[dict[str, Json]], tuple[Json, ...]] = (
            itemgetter(*names) if len(names) > 1 else lambda value: (value[names[0]],)
        )
        self._required = set(names[: len(names) - len(kind.__struct_defaults__)])

    def full(self, value: Any) -> Json:
        return {name: codec.full(item) for (name, codec), item in zip(self._items, self._values(value), strict=True)}

    def delta(self, old: Any, new: Any) -> Json:
        if old is new:
            return SAME
        before, after = self._values(old), self._values(new)
        if before == after:
            return SAME
        changed = {}
        for (name, codec), was, now in zip(self._items, before, after, strict=True):
            if was is not now:
                difference = codec.delta(was, now)
                if difference is not SAME:
                    changed[name] = difference
        return changed or SAME

    def has(self, name: str) -> bool:
        """Return whether the struct has a field of this name."""
        return name in self._codecs

    def columns_full(self, rows: Sequence[Any]) -> dict[str, Json]:
        """Return whole rows, by field."""
        columns = list(zip(*map(self._values, rows), strict=True))
        return {
            name: packed(codec, column, None, self._near_of(name, columns), self._habits_of_new[name])
            for (name, codec), column in zip(self._items, columns, strict=True)
        }

    def _near_of(self, name: str, columns: Sequence[Sequence[Any]]) -> NearColumn | None:
        if name not in self._near:
            return None
        near_name, number = self._near[name]
        return NearColumn(near_name, columns[number])

    def columns_read(self, columns: dict[str, Json]) -> tuple[Any, ...]:
        """Return the rows of `columns_full`."""
        codecs = [(name, codec) for name, codec in self._items if name in columns]
        missing = self._required - columns.keys()
        if missing or not codecs:
            raise RecordingProblem(f"{self._kind.__name__} without {', '.join(sorted(missing)) or 'fields'}")
        count = column_length(columns[codecs[0][0]])
        values: dict[str, list[Any]] = {}
        for name, codec in sorted(codecs, key=lambda item: depends(columns[item[0]])):
            values[name] = unpacked(codec, columns[name], count, None, values)
        if values.keys() == self._codecs.keys():
            return tuple(map(self._kind, *(values[name] for name in self._names)))
        return tuple(self._kind(**dict(zip(values, row, strict=True))) for row in zip(*values.values(), strict=True))

    def values(self, rows: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return the fields of each row."""
        return list(map(self._values, rows))

    def columns_delta(
        self, names: list[Any], old: Sequence[tuple[Any, ...]], new: Sequence[tuple[Any, ...]]
    ) -> dict[str, Json]:
        """Return the changes of rows that stand in both lists at the same index: `COLUMNS`, `PACKED` or nothing.

        Args:
            names: Keys of the rows.
            old, new: Values of the rows before and now, as `values` returns them.
        """
        differs = list(map(ne, old, new))
        count = sum(differs)
        if not count:
            return {}
        places = list(compress(range(len(old)), differs))
        before_columns = zip(*(old if count == len(old) else compress(old, differs)), strict=True)
        after_columns = list(zip(*(new if count == len(new) else compress(new, differs)), strict=True))
        changed: dict[str, Json] = {}
        for (field, codec), was, now in zip(self._items, before_columns, after_columns, strict=True):
            if was == now:
                continue
            if count < MANY:
                changed[field] = {
                    str(names[index]): codec.delta(one, value)
                    for index, one, value in zip(places, was, now, strict=True)
                    if one != value
                }
            else:
                near = self._near_of(field, after_columns)
                changed[field] = packed(codec, now, was, near, self._habits[field])
        return {COLUMNS: changed} if count < MANY else {PACKED: [gaps(places), changed]}

    def packed_applied(self, rows: Sequence[Any], change: list[Json]) -> list[Any]:
        """Return the rows after the changes of `PACKED`."""
        if len(change) != 2:
            raise refuse("distances and columns", change)
        at = places(change[0], len(rows))
        before = list(zip(*map(self._values, [rows[index] for index in at]), strict=True)) or [()] * len(self._items)
        columns = as_object(change[1])
        values: dict[str, Sequence[Any]] = {
            name: before[index] for index, name in enumerate(self._names) if name not in columns
        }
        changed = [(index, *item) for index, item in enumerate(self._items) if item[0] in columns]
        for index, name, codec in sorted(changed, key=lambda item: depends(columns[item[1]])):
            values[name] = unpacked(codec, columns[name], len(at), before[index], values)
        changed_rows = list(rows)
        for number, row in zip(at, map(self._kind, *(values[name] for name in self._names)), strict=True):
            changed_rows[number] = row
        return changed_rows

    def columns_applied(self, rows: dict[str, Any], columns: dict[str, Json]) -> dict[str, Any]:
        """Return the rows after the changes of `columns_delta`."""
        values = {name: list(self._values(row)) for name, row in rows.items()}
        for index, (field, codec) in enumerate(self._items):
            differences = columns.get(field)
            if type(differences) is list:
                if len(differences) != len(values):
                    raise RecordingProblem(f"{len(differences)} values for {len(values)} rows")
                for row, difference in zip(values.values(), differences, strict=True):
                    row[index] = codec.apply(row[index], difference)
            elif differences is not None:
                for name, difference in as_object(differences).items():
                    if name not in values:
                        raise RecordingProblem(f"change of row {name[:40]!r}, which was not there")
                    values[name][index] = codec.apply(values[name][index], difference)
        return {name: self._kind(*row) for name, row in values.items()} if columns else rows

    def read(self, json: Json) -> Any:
        missing = self._required - as_object(json).keys()
        if missing:
            raise RecordingProblem(f"{self._kind.__name__} without {', '.join(sorted(missing))}")
        values = {}
        for name, codec in self._items:
            if name in json:
                value = json[name]
                values[name] = value if type(value) is codec.kind else codec.read(value)
        return self._kind(**values)

    def read_many(self, values: Sequence[Json]) -> tuple[Any, ...]:
        if len(values) < MANY or set(map(type, values)) != {dict}:
            return super().read_many(values)
        try:
            columns = zip(*map(self._fields, values), strict=True)
        except KeyError:
            return super().read_many(values)
        codecs = self._codecs.values()
        return tuple(map(self._kind, *(codec.read_many(column) for codec, column in zip(codecs, columns, strict=True))))

    def apply(self, old: Any, json: Json) -> Any:
        if WHOLE in as_object(json):
            return self.read(json[WHOLE])
        values = dict(zip(self._names, self._values(old), strict=True))
        for name, difference in json.items():
            codec = self._codecs.get(name)
            if codec is not None:
                values[name] = codec.apply(values[name], difference)
        return self._kind(**values)


class _SectionCodec(Codec):
    """A struct, or the reason why it is unavailable."""

    def __init__(self, present: _StructCodec) -> None:
        self._present = present

    def full(self, value: Any) -> Json:
        if isinstance(value, Unavailable):
            return {ABSENT: value.reason, "detail": value.detail}
        return self._present.full(value)

    def delta(self, old: Any, new: Any) -> Json:
        if isinstance(old, Unavailable) or isinstance(new, Unavailable):
            return SAME if old == new else {WHOLE: self.full(new)}
        return self._present.delta(old, new)

    def read(self, json: Json) -> Any:
        if type(json) is dict and ABSENT in json:
            reason, detail = json[ABSENT], json.get("detail", "")
            if type(reason) is not str or type(detail) is not str:
                raise refuse("words of an absence", json)
            return Unavailable(Reason(reason) if reason in _REASONS else Reason.FAILED, detail)
        return self._present.read(json)

    def apply(self, old: Any, json: Json) -> Any:
        if type(json) is dict and WHOLE in json:
            return self.read(json[WHOLE])
        if isinstance(old, Unavailable):
            raise RecordingProblem("change of a section that was not there")
        return self._present.apply(old, json)


_REASONS: Final = frozenset(Reason)


def _marks(hint: Any) -> tuple[Any, ...]:
    """Return the marks of a field, of `model.recorded_as`."""
    return getattr(hint, "__metadata__", ())


def _codec_of_field(hint: Any) -> Codec:
    for mark in _marks(hint):
        if isinstance(mark, recorded_as.KeyedBy):
            return _TableCodec(_struct_codec(get_args(get_args(hint)[0])[0]), mark.by)
        if isinstance(mark, recorded_as.Wide):
            return Optional(WideInt())
    return _codec(get_args(hint)[0] if _marks(hint) else hint)


@cache
def _struct_codec(kind: type[Struct]) -> _StructCodec:
    return _StructCodec(kind)


def _codec(hint: Any) -> Codec:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        present = [argument for argument in arguments if argument not in (type(None), Unavailable)]
        if len(present) == 1 and Unavailable in arguments:
            return _SectionCodec(_struct_codec(present[0]))
        if len(present) == 1:
            return Optional(_codec(present[0]))
    elif origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return List(_codec(arguments[0]))
        return PairCodec(tuple(_codec(argument) for argument in arguments))
    elif isinstance(hint, type):
        if issubclass(hint, Struct):
            return _struct_codec(hint)
        if issubclass(hint, str | int | float):
            return Scalar(hint)
    raise TypeError(f"no way to record {hint!r}")


def change_between(before: Frame | None, frame: Frame) -> Json:
    """Return a frame as JSON: whole where there is none before, else the fields that have changed."""
    if before is None:
        return codec_for(Frame).full(frame)
    changed = codec_for(Frame).delta(before, frame)
    return {} if changed is SAME else changed


def changed_frame(before: Frame | None, change: Json) -> Frame:
    """Return the frame of `change_between`.

    Raises:
        RecordingProblem: The JSON is no frame, or no change of that one.
    """
    codec = codec_for(Frame)
    frame: Frame = codec.read(change) if before is None else codec.apply(before, change)
    return frame


def codec_for(kind: type[Struct]) -> Codec:
    """Return the codec of a struct.

    Raises:
        TypeError: A field has a type that cannot be recorded (found when the program starts, not on a user's night).
    """
    return _struct_codec(kind)
