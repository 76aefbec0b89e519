"""Foreign text made safe for a terminal: query texts, names, server messages, file contents.

The terminal shows foreign text and never obeys it. Control characters become visible symbols of the same width, so that
the operator reads an escape sequence in a query, and not the terminal.
"""

from __future__ import annotations

import json
import re
from typing import Final

_UNSEEN: Final = (
    (0x00AD, 0x00AD), (0x034F, 0x034F), (0x0600, 0x0605), (0x061C, 0x061C), (0x06DD, 0x06DD), (0x070F, 0x070F),
    (0x0890, 0x0891), (0x08E2, 0x08E2), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x200B, 0x200F),
    (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFFB),
    (0x110BD, 0x110BD), (0x110CD, 0x110CD), (0x13430, 0x1343F), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A),
    (0x1F3FB, 0x1F3FF), (0xE0000, 0xE00FF), (0xE01F0, 0xE0FFF),
)  # fmt: skip
"""Ranges, first and last, of characters that no terminal shows, or only some do: direction controls, joiners, fillers,
tags, skin tones. Unicode: general category Cf, property Default_Ignorable_Code_Point."""
_SELECTORS: Final = ((0xFE00, 0xFE0F), (0xE0100, 0xE01EF))
"""Variation selectors: they choose between two looks of the character before, whose width then differs by terminal."""
_FLAG_LETTERS: Final = 0x1F1E6

_SURROGATES: Final = ((0xD800, 0xDFFF),)
_CONTROLS: Final = ((0x00, 0x1F), (0x7F, 0x9F), (0x2028, 0x2029))
_DIRECTIONS: Final = ((0x061C, 0x061C), (0x200E, 0x200F), (0x202A, 0x202E), (0x2066, 0x2069))
_FLAGS: Final = ((_FLAG_LETTERS, _FLAG_LETTERS + 25),)


def _any_of(*ranges: tuple[tuple[int, int], ...]) -> str:
    return "".join(f"{re.escape(chr(first))}-{re.escape(chr(last))}" for group in ranges for first, last in group)


_REPLACED: Final = re.compile(f"[{_any_of(_CONTROLS, _UNSEEN, _SELECTORS, _FLAGS, _SURROGATES)}]")
_LOOKS: Final = (
    {chr(code): chr(0x2400 + code) for code in range(0x20)}
    | {"\x7f": "\u2421", "\u2028": "⏎", "\u2029": "⏎", "\n": "⏎", "\r": "⏎", "\x85": "⏎"}
    | {"\t": " ", "\v": " ", "\f": " "}
    | {chr(_FLAG_LETTERS + letter): chr(ord("A") + letter) for letter in range(26)}
)
_NOTHING: Final = re.compile(f"[{_any_of(_SELECTORS)}]")
_NOT_PASTED: Final = re.compile(f"(?![\t\n])[{_any_of(_CONTROLS, _DIRECTIONS, _SURROGATES)}]")
_LONE: Final = re.compile(f"[{_any_of(_SURROGATES)}]")


def _look(match: re.Match[str]) -> str:
    character = match[0]
    if (known_look := _LOOKS.get(character)) is not None:
        return known_look
    if _NOTHING.match(character):
        return ""
    return "\ufffd" if _LONE.match(character) else "·"


_PLAIN: Final = re.compile(r"[\x20-\x7e]*\Z")
_BLANKS: Final = re.compile(r"\s+")


def is_plain(text: str) -> bool:
    """Return whether `printable` leaves the text as it is: no terminal obeys, hides or widens a character of it."""
    return _REPLACED.search(text) is None


def json_line(value: object) -> str:
    """Return JSON on one line: exact, with escapes for the characters that a terminal obeys, hides or widens."""
    text = json.dumps(value, ensure_ascii=False)
    return text if is_plain(text) else json.dumps(value)


def printable(text: str, limit: int = 10_000) -> str:
    """Return one line of text that is safe to write to a terminal.

    Args:
        text: Anything, also a megabyte of it.
        limit: Most characters of the result; the rest of the text is replaced by an ellipsis.

    Returns:
        The text with C0, DEL, C1, bidirectional controls, zero-width characters, line separators and lone
        surrogates replaced by visible characters, and flags by their letters. Contains no character below U+0020.
    """
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if _PLAIN.match(text):
        return text
    return _REPLACED.sub(_look, text)


def one_line(text: str, limit: int = 10_000) -> str:
    """Return text as `printable` does, with every run of blanks and line breaks folded into one space (for query
    texts)."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    return printable(_BLANKS.sub(" ", text).strip(), limit)


def printable_lines(text: str, limit: int = 100_000) -> list[str]:
    """Return the lines of foreign text, each made safe."""
    return [printable(line, limit) for line in text[:limit].splitlines()]


def pasteable(text: str) -> tuple[str, int]:
    """Return foreign text for a clipboard, safe to paste into a shell or psql, and the number of characters left out.

    C0 (but tab and newline), DEL, C1, line separators, bidirectional controls and lone surrogates are left out: the
    program would obey them, or the pasted text would look like another one.
    """
    return _NOT_PASTED.subn("", text)
