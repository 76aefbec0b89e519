"""Frames that no server would produce, built from the type hints of the model."""

from __future__ import annotations

import types
from enum import StrEnum
from typing import Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.model.frame import Frame
from pgtop_tune.model.recorded_as import KeyedBy

_INTEGERS = st.integers(-(2**62), 2**62)
_TEXT = st.text(max_size=12)


def of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type hint; keyed tables have unique keys, in any order."""
    for mark in getattr(hint, "__metadata__", ()):
        hint = get_args(hint)[0]
        if isinstance(mark, KeyedBy):
            return _table(get_args(hint)[0], mark.by)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return st.one_of(*(of(argument) for argument in arguments))
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(of(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*(of(argument) for argument in arguments))
    return _plain(hint)


def _table(kind: Any, key: str) -> st.SearchStrategy[Any]:
    return st.lists(of(kind), max_size=6, unique_by=lambda row: getattr(row, key)).map(tuple)


def _plain(hint: Any) -> st.SearchStrategy[Any]:
    if issubclass(hint, Struct):
        hints = get_type_hints(hint, include_extras=True)
        return st.builds(hint, **{name: of(hints[name]) for name in hint.__struct_fields__})
    if issubclass(hint, StrEnum):
        return st.sampled_from(list(hint))
    simple = {
        int: _INTEGERS,
        float: st.floats(allow_nan=False, allow_infinity=False),
        bool: st.booleans(),
        str: _TEXT,
        type(None): st.none(),
    }
    return simple[hint]


MOMENTS = st.integers(0, 250_000_000_000_000)
"""Of wall clocks, to the year 9892: a frame of another moment is refused."""
FRAMES = st.builds(
    lambda frame, taken_at_ms, elapsed_s: replace(frame, taken_at_ms=taken_at_ms, elapsed_s=elapsed_s),
    of(Frame),
    MOMENTS,
    st.floats(-1e9, 1e9),
)
