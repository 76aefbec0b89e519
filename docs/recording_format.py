"""The page on the recording's format: rules in words, then every object a frame holds, from the model's own source."""

from __future__ import annotations

import types
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from string import Template
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

from docs.field_docs import class_words, field_words
from docs.markdown import table
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import RunState
from pgtop_tune.model.events import EventKind
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.recorded_as import KeyedBy, Wide
from pgtop_tune.recording.codec import MANY
from pgtop_tune.recording.format import FORMAT, KEY_EVERY, Header

_RULES: Final = Path(__file__).resolve().parent / "templates" / "recording-format.md"
_PLAIN: Final = {str: "text", int: "count", float: "number", bool: "true or false"}


def recording_format() -> str:
    """The page."""
    rules = Template(_RULES.read_text(encoding="utf-8")).substitute(format=FORMAT, every=KEY_EVERY, many=MANY)
    parts = [rules, "## Header\n", _fields(Header, leave_out=("extra",))]
    for kind in dict.fromkeys(_reached(Frame)):
        parts += [f"## {kind.__name__}\n", f"{class_words(kind)}\n", _fields(kind)]
    words: tuple[type[StrEnum], ...] = (Reason, RunState, EventKind)
    for words_of in words:
        said = field_words(words_of)
        parts += [f"## {words_of.__name__}\n", f"{class_words(words_of)}\n"]
        parts.append(table(("word", "meaning"), [(f"`{word}`", said.get(word.name, "")) for word in words_of]))
    return "\n".join(parts)


def _reached(kind: type[Struct]) -> Iterator[type[Struct]]:
    """The struct and all that its fields hold, in the order of the fields."""
    yield kind
    for hint in get_type_hints(kind).values():
        for inner in _classes(hint):
            yield from _reached(inner)


def _classes(hint: Any) -> Iterator[type[Struct]]:
    if isinstance(hint, type) and issubclass(hint, Struct) and hint is not Unavailable:
        yield hint
    for argument in get_args(hint):
        yield from _classes(argument)


def _fields(kind: type[Struct], leave_out: tuple[str, ...] = ()) -> str:
    hints, said = get_type_hints(kind, include_extras=True), field_words(kind)
    rows = [
        (f"`{name}`", _type(hints[name]), said.get(name, ""))
        for name in kind.__struct_fields__
        if name not in leave_out
    ]
    return table(("field", "type", "meaning"), rows)


def _type(hint: Any) -> str:
    """A type hint in the words of the page."""
    arguments = get_args(hint)
    for mark in getattr(hint, "__metadata__", ()):
        if isinstance(mark, KeyedBy):
            return f"table by {mark.by} of {_type(get_args(arguments[0])[0])}"
        return "identity or null" if isinstance(mark, Wide) else _type(arguments[0])
    if get_origin(hint) in (Union, types.UnionType):
        rest = " ".join(_type(each) for each in arguments if each not in (type(None), Unavailable))
        return f"{rest} {'or absent' if Unavailable in arguments else 'or null'}"
    if get_origin(hint) is tuple:
        if arguments[1] is Ellipsis:
            return f"list of {_type(arguments[0])}"
        return f"[{', '.join(_type(each) for each in arguments)}]"
    if hint in _PLAIN:
        return _PLAIN[hint]
    if issubclass(hint, StrEnum):
        return f"word of [{hint.__name__}](#{hint.__name__.lower()})"
    return f"[{hint.__name__}](#{hint.__name__.lower()})"
