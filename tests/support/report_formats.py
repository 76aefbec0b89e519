"""What SARIF and Jenkins' JUnit let a report of the check say: the objects it uses, with every member they may have.

Source: OASIS SARIF 2.1.0, sections 3.13 to 3.50, and its schema; junit-10.xsd of Jenkins' xUnit plugin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

_TEXT: Mapping[str, Any] = {"type": "string", "minLength": 1}
_BAG: Mapping[str, Any] = {"type": "object"}


def _object(required: Sequence[str], members: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "additionalProperties": False, "properties": dict(members)}


def _list(of: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


_LEVEL = {"enum": ["none", "note", "warning", "error"]}
_WORDS = _object(["text"], {"text": _TEXT, "markdown": _TEXT, "properties": _BAG})
_PLACE = _object(
    [], {"name": _TEXT, "fullyQualifiedName": _TEXT, "decoratedName": _TEXT, "kind": _TEXT, "properties": _BAG}
)  # fmt: skip
_RULE = _object(
    ["id"],
    {
        "id": _TEXT, "name": _TEXT, "shortDescription": _WORDS, "fullDescription": _WORDS, "help": _WORDS,
        "helpUri": {"type": "string", "pattern": "^https://"},
        "defaultConfiguration": _object([], {"level": _LEVEL, "rank": {"type": "number"}, "properties": _BAG}),
        "properties": _BAG,
    },
)  # fmt: skip
_RESULT = _object(
    ["message", "ruleId"],
    {
        "ruleId": _TEXT, "ruleIndex": {"type": "integer", "minimum": 0}, "level": _LEVEL,
        "kind": {"enum": ["notApplicable", "pass", "fail", "review", "open", "informational"]},
        "message": _object(["text"], {"text": _TEXT, "markdown": _TEXT, "id": _TEXT, "properties": _BAG}),
        "locations": _list(_object([], {"logicalLocations": _list(_PLACE), "message": _WORDS, "properties": _BAG})),
        "partialFingerprints": _object([], {"finding/v1": {"type": "string", "pattern": "^[0-9a-f]{64}$"}}),
        "rank": {"type": "number"}, "properties": _BAG,
    },
)  # fmt: skip
_DRIVER = _object(
    ["name"],
    {
        "name": _TEXT, "version": _TEXT, "fullName": _TEXT, "rules": _list(_RULE), "properties": _BAG,
        "semanticVersion": {"type": "string", "pattern": r"^\d+\.\d+\.\d+"},
        "informationUri": {"type": "string", "pattern": "^https://"},
    },
)  # fmt: skip
_RUN = _object(
    ["tool"],
    {
        "tool": _object(["driver"], {"driver": _DRIVER, "properties": _BAG}),
        "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
        "invocations": _list(_object(["executionSuccessful"], {"executionSuccessful": {"const": True}})),
        "results": _list(_RESULT),
        "properties": _BAG,
    },
)
SARIF: Mapping[str, Any] = _object(
    ["version", "runs"], {"$schema": _TEXT, "version": {"const": "2.1.0"}, "runs": _list(_RUN), "properties": _BAG}
)
"""A log, for `json_schema.mistakes`."""


@dataclass(frozen=True)
class _Kind:
    """An element: its attributes, and what may stand in it."""

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    text: bool = False


_JUNIT: Mapping[str, _Kind] = {
    "testsuites": _Kind((), ("name", "time", "tests", "failures", "errors"), ("testsuite",)),
    "testsuite": _Kind(
        ("name", "tests", "failures", "errors"),
        ("group", "time", "skipped", "timestamp", "hostname", "id", "package", "file", "log", "url"),
        ("testsuite", "properties", "testcase", "system-out", "system-err"),
    ),
    "testcase": _Kind(
        ("name",), ("time", "classname", "group"), ("skipped", "error", "failure", "system-out", "system-err")
    ),
    "properties": _Kind(children=("property",)),
    "property": _Kind(("name", "value")),
    "failure": _Kind((), ("type", "message"), text=True),
    "error": _Kind((), ("type", "message"), text=True),
    "skipped": _Kind((), ("type", "message"), text=True),
    "system-out": _Kind(text=True),
    "system-err": _Kind(text=True),
}


def junit_mistakes(element: Element) -> list[str]:
    """What Jenkins would refuse below and at an element; empty when it fits."""
    return list(_junit_mistakes(element, element.tag))


def _junit_mistakes(element: Element, at: str) -> Iterator[str]:
    kind = _JUNIT.get(element.tag)
    if kind is None:
        yield f"{at}: no such element"
        return
    yield from (f"{at}: no {name}" for name in kind.required if name not in element.attrib)
    yield from (f"{at}: {name} is too much" for name in element.attrib if name not in kind.required + kind.optional)
    if not kind.text and (element.text or "").strip():
        yield f"{at}: text"
    for child in element:
        if child.tag not in kind.children:
            yield f"{at}: {child.tag} does not belong there"
        yield from _junit_mistakes(child, f"{at}/{child.tag}")
