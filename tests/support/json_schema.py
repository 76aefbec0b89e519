"""The part of JSON Schema that our own schema uses; a keyword it does not know is an error, not a pass.

Source: JSON Schema 2020-12, Core and Validation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}
_ANNOTATIONS = {"$schema", "$defs", "title", "description"}


def mistakes(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any] | None = None, at: str = "$") -> list[str]:
    """What is wrong with a value, each with its place; empty when it fits."""
    return list(_mistakes(value, schema, root or schema, at))


def _mistakes(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], at: str) -> Iterator[str]:
    for keyword, given in schema.items():
        if keyword in _ANNOTATIONS:
            continue
        if keyword == "$ref":
            yield from _mistakes(value, root["$defs"][given.removeprefix("#/$defs/")], root, at)
        elif keyword == "type":
            names = [given] if isinstance(given, str) else given
            if isinstance(value, bool) or not any(isinstance(value, _TYPES[name]) for name in names):
                yield f"{at}: {value!r} is no {' or '.join(names)}"
        elif keyword == "const" and value != given:
            yield f"{at}: {value!r} is not {given!r}"
        elif keyword == "enum" and value not in given:
            yield f"{at}: {value!r} is none of {given}"
        elif keyword == "properties":
            for name in given.keys() & value.keys() if isinstance(value, dict) else ():
                yield from _mistakes(value[name], given[name], root, f"{at}.{name}")
        elif keyword == "required":
            yield from (f"{at}: no {name}" for name in given if isinstance(value, dict) and name not in value)
        elif keyword == "additionalProperties":
            assert given is False
            known = schema["properties"]
            there = value if isinstance(value, dict) else {}
            yield from (f"{at}: {name} is too much" for name in there if name not in known)
        elif keyword == "items":
            for number, item in enumerate(value if isinstance(value, list) else ()):
                yield from _mistakes(item, given, root, f"{at}[{number}]")
        elif keyword == "minItems" and isinstance(value, list) and len(value) < given:
            yield f"{at}: fewer than {given}"
        elif keyword == "minLength" and isinstance(value, str) and len(value) < given:
            yield f"{at}: shorter than {given}"
        elif keyword == "minimum" and isinstance(value, int) and value < given:
            yield f"{at}: less than {given}"
        elif keyword == "pattern" and isinstance(value, str) and not re.search(given, value):
            yield f"{at}: {value!r} is not like {given}"
        elif keyword not in _TYPED:
            raise AssertionError(f"{keyword} is not known here")


_TYPED = {"const", "enum", "minItems", "minLength", "minimum", "pattern"}
"""Keywords of one line above, which have nothing to say of what fits."""
