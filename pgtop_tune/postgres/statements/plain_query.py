"""Whether a text is one complete plain query that EXPLAIN may see. Pure.

Not a parser: it tells comments, quotes and words apart, as PostgreSQL's scanner does, and refuses whatever it is not
sure of. The server's own parser has the last word before anything is run (`explain`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from msgspec import Struct

from pgtop_tune.errors import UsageProblem

_PLAIN: Final = ("SELECT", "INSERT", "UPDATE", "DELETE", "MERGE", "VALUES", "WITH", "TABLE")
_TARGETED: Final = ("INSERT", "MERGE")
"""Words before an INTO that names what is written to."""

_TOKEN: Final = re.compile(
    r"""
    (?P<blank>\s+|--[^\n\r]*)
  | (?P<comment>/\*)
  | (?P<dollar>\$(?:[A-Za-z_\u0080-\uffff][A-Za-z0-9_\u0080-\uffff]*)?\$)
  | (?P<placeholder>\$[0-9]+)
  | (?P<escaped>[eE]'(?:[^'\\]|\\.|'')*')
  | (?P<torn>[eE]')
  | (?P<string>(?:[bBxXnN]|[uU]&)?'(?:[^']|'')*')
  | (?P<quoted>(?:[uU]&)?"(?:[^"]|"")*")
  | (?P<number>[0-9][A-Za-z0-9_.]*)
  | (?P<word>[A-Za-z_\u0080-\uffff][A-Za-z0-9_$\u0080-\uffff]*)
  | (?P<open>[(\[])
  | (?P<close>[)\]])
  | (?P<semicolon>;)
  | (?P<unfinished>['"])
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE: Final = re.compile(r"/\*|\*/")


class PlainQuery(Struct, frozen=True):
    """A query that EXPLAIN may see.

    Attributes:
        text: Without a semicolon at its end.
        placeholders: Whether it has $1, $2, ….
    """

    text: str
    placeholders: bool


def plain_query(text: str) -> PlainQuery:
    """The query in this text.

    Args:
        text: A statement as pg_stat_activity has it; foreign.

    Raises:
        UsageProblem: It is none, or more than one, or not complete; the message says which.
    """
    words: list[str] = []
    depth = 0
    # A union may begin with parentheses; words are looked at as deep as the first one stands.
    looked_at = 0
    end: int | None = None
    placeholders = False
    for kind, token, at in _tokens(text):
        if end is not None:
            raise UsageProblem("the text holds more than one statement")
        if kind == "semicolon":
            if depth:
                raise UsageProblem("the text is not a complete statement: a parenthesis is open")
            end = at
        elif kind == "open":
            depth += 1
        elif kind == "close":
            depth -= 1
            if depth < 0:
                raise UsageProblem("the text is not a complete statement: a closing parenthesis without an opening one")
        elif kind == "placeholder":
            placeholders = True
        elif depth <= looked_at or not words:
            looked_at = looked_at if words else depth
            words.append(token.upper() if kind == "word" else "")
        if words and words[0] not in _PLAIN:
            raise UsageProblem(
                f"EXPLAIN takes only plain queries, and this begins with {words[0] or 'something else'}",
                "SELECT, INSERT, UPDATE, DELETE, MERGE, VALUES, TABLE and WITH are plain",
            )
    if not words:
        raise UsageProblem("the text has no plain query")
    if depth:
        raise UsageProblem("the text is not a complete statement: a parenthesis is open")
    if any(word == "INTO" and before not in _TARGETED for before, word in pairwise(words)):
        raise UsageProblem("SELECT INTO makes a table; it is not explained")
    return PlainQuery(text[:end].strip(), placeholders)


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    """Kind, text and place of everything that is neither blank nor comment."""
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match is not None
        kind, begin = match.lastgroup or "", at
        at = match.end()
        if kind == "comment":
            at = _after_comment(text, at)
        elif kind == "dollar":
            closing = text.find(match.group(), at)
            if closing < 0:
                raise UsageProblem("the text ends inside a string; it may be cut")
            at = closing + len(match.group())
            yield "string", text[begin:at], begin
        elif kind in ("unfinished", "torn"):
            raise UsageProblem("the text ends inside a string or a name; it may be cut")
        elif kind != "blank":
            yield kind, match.group(), begin


def _after_comment(text: str, at: int) -> int:
    """Comments nest."""
    depth = 1
    while depth:
        edge = _COMMENT_EDGE.search(text, at)
        if edge is None:
            raise UsageProblem("the text ends inside a comment; it may be cut")
        depth += 1 if edge.group() == "/*" else -1
        at = edge.end()
    return at
