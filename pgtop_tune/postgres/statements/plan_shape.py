"""The shape of a plan: nodes, indexes and the order of joins, without costs and conditions. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

_MOST_NODES: Final = 400
_DEEPEST: Final = 100
_ON: Final = ("Relation Name", "Function Name", "CTE Name", "Tuplestore Name", "Table Function Name")
_PLAIN: Final = {"Strategy": "Plain", "Join Type": "Inner", "Partial Mode": "Simple"}
"""What EXPLAIN in text leaves out, too."""


def shape_of(explained: Any) -> tuple[str, ...]:
    """Lines of EXPLAIN (FORMAT JSON, COSTS OFF), a node each; () of what is no plan."""
    try:
        return tuple(_nodes(explained[0]["Plan"], 0))[:_MOST_NODES]
    except (KeyError, IndexError, TypeError, AttributeError):
        return ()


def _nodes(node: Any, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        return
    named = "".join(f"{node[key]} " for key, plain in _PLAIN.items() if node.get(key, plain) != plain)
    words = f"{named}{node.get('Operation') or node['Node Type']}"
    if index := node.get("Index Name"):
        words += f" using {index}"
    if on := next((node[key] for key in _ON if node.get(key)), None):
        words += f" on {on}"
    subplan = node.get("Subplan Name")
    yield "  " * depth + (f"{subplan}: " if subplan else "") + words
    for below in node.get("Plans", ()):
        yield from _nodes(below, depth + 1)
