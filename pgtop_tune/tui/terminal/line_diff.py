"""Writes to a terminal only what differs from what it already shows.

Textual rewrites every cell of a changed region from the widget's left edge, and wraps every segment in its own colour
sequence and reset. Here its output is read, compared cell by cell with the picture the terminal holds, and replaced by
short sequences that lead to the same picture; cells that have moved left, as those of a chart do, are moved on the
terminal (DCH, ICH). Nothing inside Textual is touched, only the bytes it writes: cursor
positions (CUP), colours (SGR) and text. Anything else is handed on as it is. Canvases with nothing over them give
their rows to `painted`, without Textual.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import islice
from typing import Final

from msgspec import Struct

_SEQUENCE: Final = re.compile(r"\x1b\[([0-9;]*)([mH])")
_CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
_CLEARS: Final = re.compile(r"\x1b(?:\[\?(?:47|1047|1049)[hl]|\[[0-3]?J|c|\[!p)")

_ONE_CELL: Final = frozenset(
    chr(code)
    for first, last in (
        (0x20, 0x7E), (0xA0, 0xAC), (0xAE, 0x2FF), (0x370, 0x377), (0x37A, 0x482), (0x2010, 0x2027), (0x2030, 0x205E),
        (0x2190, 0x2199), (0x2212, 0x2212), (0x2400, 0x2426), (0x2500, 0x25FC), (0x26A0, 0x26A0), (0x270E, 0x270E),
        (0x2717, 0x2717), (0x2800, 0x28FF), (0xFFFD, 0xFFFD),
    )
    for code in range(first, last + 1)
)  # fmt: skip
"""Characters that every terminal draws in one cell; a set, because so large a regular expression is slow to make."""
_TWO_CELLS: Final = (
    ("\u1100", "\u115f"), ("\u2e80", "\u3029"), ("\u3041", "\u3096"), ("\u30a1", "\ua48c"),
    ("\uac00", "\ud7a3"), ("\uf900", "\ufaff"), ("\uff01", "\uff60"),
)  # fmt: skip
"""First and last characters of the ranges that every terminal draws in two cells."""
_SECOND_HALF: Final = "\x00"
"""Stands in the cell right of the one in which a wide character begins."""
_UNKNOWN: Final = "\x01"
"""A cell nothing is known of; equal to no character."""

_LOOK: Final = re.compile(
    r"(?P<attributes>[1-9](?:;[1-9])*)?"
    r"(?:(?:^|;)(?P<ink>39|3[0-7]|9[0-7]|38;5;\d+|38;2;\d+;\d+;\d+))?"
    r"(?:(?:^|;)(?P<paper>49|4[0-7]|10[0-7]|48;5;\d+|48;2;\d+;\d+;\d+))?\Z"
)
"""A style as Rich writes it: attributes, then the colour of the text, then that of the ground."""
_UNSEEN_ON_BLANKS: Final = frozenset("1235")
"""Attributes of letters only: bold, dim, italic, blinking."""
_ANY: Final = 1_000_000
"""Columns and rows of a terminal whose size is not known."""
_NEAR: Final = 3
"""So many equal cells between two changed ones are rather written again than jumped over."""
_CHANGED: Final = re.compile(rb"[^\0]+(?:\0{1,%d}[^\0]+)*" % _NEAR)
"""A span of changed cells, in a row of bytes that are zero where a cell is the same."""

_ALIKE: Final = re.compile(rb"\0{8,}(?:[^\0]{1,3}\0{4,})*")
"""A span of cells that stood further right before, but for a few, in a row of bytes that are zero for such cells."""
_MOVES: Final = (1, 2)
"""Cells by which a chart moves in a tick."""
_TRIED: Final = 4
_TOLD: Final = 6
_WORTH: Final = 8
"""So many changed cells cost as many bytes as moving them."""

Segment = tuple[str, "_Look"]
StyledText = tuple[str, Hashable]


class _Look(Struct, frozen=True):
    """A style as the terminal knows it.

    Attributes:
        key: One made-up character that stands for the style in a row.
        attributes: Parameters of SGR sequences: bold and the like, each by itself.
        ink: That of the text's colour; "" for the terminal's own.
        paper: That of the ground's colour; "" for the terminal's own.
        unseen_on_blanks: Whether a blank in this style looks like a plain blank.
    """

    key: str
    attributes: tuple[str, ...] = ()
    ink: str = ""
    paper: str = ""
    unseen_on_blanks: bool = True

    def after(self, before: _Look) -> str:
        """Return the shortest parameters that lead here from another style; "" is a reset."""
        own_codes = (*self.attributes, self.ink, self.paper)
        before_codes = (*before.attributes, before.ink, before.paper)
        kept = set(before.attributes) <= set(self.attributes)
        if kept and (self.ink or not before.ink) and (self.paper or not before.paper):
            return ";".join([code for code in own_codes if code and code not in before_codes])
        return ";".join(["0", *(code for code in own_codes if code)]) if any(own_codes) else ""


_PLAIN: Final = _Look(" ")


class ScreenDiff:
    """The picture on a terminal, and the way from there to the next. Not thread-safe.

    A row is two strings of one character per cell: its text and the keys of its styles. Rows with characters on whose
    width terminals do not agree (most emoji, combining marks) are not kept and always written as a whole.

    Args:
        size: Columns and rows of the terminal where known: then blanks up to its edge are erased, not written.
        moves: Whether the terminal can move the cells of a line, which a VT100 cannot.
    """

    def __init__(self, size: tuple[int, int] | None = None, *, moves: bool = True) -> None:
        self._moves = moves
        self._columns, self._height = size or (_ANY, _ANY)
        self._rows: dict[int, tuple[str, str]] = {}
        self._painted: dict[int, Sequence[StyledText]] = {}
        self._looks: dict[str, _Look] = {"": _PLAIN, "0": _PLAIN}
        self._known: dict[tuple[tuple[str, ...], str, str], _Look] = {((), "", ""): _PLAIN}
        self._look_of_key: dict[str, _Look] = {_PLAIN.key: _PLAIN}
        self._look_of_style: dict[Hashable, _Look] = {None: _PLAIN}
        self._cursor = (0, 0)

    def forget(self) -> None:
        """Forget the picture, which may be any now: everything is written anew."""
        self._rows.clear()
        self._painted.clear()

    def resize(self, size: tuple[int, int] | None) -> None:
        """Take another size of the terminal, which may show anything."""
        self._columns, self._height = size or (_ANY, _ANY)
        self.forget()

    def reduced(self, data: str) -> str:
        """Return what to write instead of `data` so that the terminal shows the same; "" when it already does."""
        parts = _SEQUENCE.split(data)
        if len(parts) == 1:
            if _CLEARS.search(data):
                self.forget()
            return data
        if parts[0] or any(_CONTROL.search(text) or "\n" in text[:-1] for text in parts[3::3]):
            self.forget()
            return data
        pen = _Pen()
        look, style = _PLAIN, ""
        at: tuple[int, int] | None = None
        stroke: list[Segment] = []
        for codes, final, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
            if final == "H":
                if stroke and at is not None:
                    self._painted.pop(at[0], None)
                    self._paint(pen, *at, stroke)
                    stroke = []
                at = _position(codes)
            else:
                reset = look is _PLAIN or codes in ("", "0")
                style = codes if reset else f"{style};{codes}"
                look = self._look(style)
            if text and text != "\n":
                if at is None:
                    self.forget()
                    return data
                stroke.append((text.rstrip("\n"), look))
        if at is not None:
            if stroke:
                self._painted.pop(at[0], None)
                self._paint(pen, *at, stroke)
            elif at != self._cursor or (pen.used and at != (0, 0)):
                # The cursor is hidden; its place matters to input methods, which follow a focused input.
                pen.move(*at)
                self._cursor = at
        return pen.finished()

    def painted(self, rows: Iterable[tuple[int, Sequence[StyledText]]], codes_of: Callable[[Hashable], str]) -> str:
        """Return what to write so that the terminal shows these rows from its left edge on; "" when it already does.

        Args:
            rows: Number and printable text of each, in styles; None is plain.
            codes_of: Parameters of the SGR sequence of another style; asked for once.
        """
        pen, looks = _Pen(), self._look_of_style
        for y, row in rows:
            x, changed = _unlike(self._painted.get(y), row)
            stroke = []
            for text, style in changed:
                look = looks.get(style)
                if look is None:
                    look = looks[style] = self._look(codes_of(style))
                stroke.append((text, look))
            if stroke and not self._paint(pen, y, x, stroke):
                self._painted.pop(y, None)
            else:
                self._painted[y] = row
        return pen.finished()

    def _look(self, codes: str) -> _Look:
        look = self._looks.get(codes)
        if look is None:
            parts = _LOOK.match(codes)
            if parts is None:
                style: tuple[tuple[str, ...], str, str] = ((codes,), "", "")
            else:
                attributes, ink, paper = parts["attributes"], parts["ink"] or "", parts["paper"] or ""
                flags = tuple(sorted(set(attributes.split(";")))) if attributes else ()
                style = (flags, "" if ink == "39" else ink, "" if paper == "49" else paper)
            look = self._known.get(style)
            if look is None:
                unseen = not style[2] and _UNSEEN_ON_BLANKS.issuperset(style[0])
                look = self._known[style] = _Look(chr(0x100 + len(self._known)), *style, unseen_on_blanks=unseen)
                self._look_of_key[look.key] = look
            self._looks[codes] = look
        return look

    def _paint(self, pen: _Pen, y: int, x: int, stroke: list[Segment]) -> bool:
        """Bring the cells from (y, x) on to what the stroke says; whether each of its characters is one of them."""
        drawn = "".join([text for text, _ in stroke])
        simple = _ONE_CELL.issuperset(drawn)
        if y >= self._height:
            return False
        if x + len(drawn) > self._columns or not (simple or _agreed(drawn)):
            self._rows.pop(y, None)
            pen.move(y, x)
            for text, look in stroke:
                pen.write(text, look, None)
            return False
        if not simple:
            stroke = [(_two_celled(text), look) for text, look in stroke]
            drawn = "".join([text for text, _ in stroke])
        keys = "".join([_keys(text, look) for text, look in stroke])
        old_whole, old_keys = self._rows.get(y, ("", ""))
        end = x + len(drawn)
        if len(old_whole) < end:
            missing = end - len(old_whole)
            old_whole += _UNKNOWN * missing
            old_keys += _UNKNOWN * missing
        old_text, shown_keys = old_whole[x:end], old_keys[x:end]
        if drawn == old_text and keys == shown_keys:
            return simple
        self._rows[y] = (old_whole[:x] + drawn + old_whole[end:], old_keys[:x] + keys + old_keys[end:])
        changed = _differing(drawn, keys, old_text, shown_keys)
        if self._moves and simple and len(drawn) - changed.count(0) >= _WORTH and _SECOND_HALF not in old_whole:
            moved = _moved(changed, drawn, keys, old_text, shown_keys)
            for first, last, by in moved:
                pen.move(y, x + first)
                pen.shift(by, "P")
                behind, behind_keys = old_text[last + by :], shown_keys[last + by :]
                if end < self._columns or not behind.isspace() or behind_keys.strip(_PLAIN.key):
                    pen.move(y, x + last)
                    pen.shift(by, "@")
                old_text = old_text[:first] + old_text[first + by : last + by] + _UNKNOWN * by + behind
                shown_keys = shown_keys[:first] + shown_keys[first + by : last + by] + _UNKNOWN * by + behind_keys
            if moved:
                changed = _differing(drawn, keys, old_text, shown_keys)
        blank_from = len(drawn)
        if end == self._columns:
            blank_from = max(len(drawn.rstrip(" ")), len(keys.rstrip(_PLAIN.key)))
        for first, last in _changes(drawn, changed):
            pen.move(y, x + first)
            inked = max(first, min(last, blank_from))
            written = inked if last - inked > _NEAR else last
            start = first
            while start < written:
                stop = start + 1
                key = keys[start]
                while stop < written and keys[stop] == key:
                    stop += 1
                pen.write(drawn[start:stop], self._look_of_key[key], stop - start)
                start = stop
            if written < last:
                pen.erase_to_edge()
                break
        return simple


class _Pen:
    """Writes sequences and knows where the terminal's cursor stands and which style is set."""

    def __init__(self) -> None:
        self._out: list[str] = []
        self._y = -1
        self._x = -1
        self._look = _PLAIN

    @property
    def used(self) -> bool:
        """Return whether anything was written."""
        return bool(self._out)

    def move(self, y: int, x: int) -> None:
        """Put the cursor there."""
        if (y, x) == (self._y, self._x):
            return
        if y == self._y and x > self._x >= 0:
            steps = x - self._x
            self._out.append(f"\x1b[{steps}C" if steps > 1 else "\x1b[C")
        elif x == 0:
            self._out.append("\r\n" if self._y >= 0 and y == self._y + 1 else f"\x1b[{y + 1}H")
        else:
            self._out.append(f"\x1b[{y + 1};{x + 1}H")
        self._y, self._x = y, x

    def write(self, text: str, look: _Look, cells: int | None) -> None:
        """Write text in a style from the cursor on; `cells` is None when its width is not certain."""
        if look is not self._look and not (look is _PLAIN and self._look.unseen_on_blanks and text.isspace()):
            self._set(look)
        self._out.append(text.replace(_SECOND_HALF, "") if _SECOND_HALF in text else text)
        self._x = -1 if cells is None or self._x < 0 else self._x + cells

    def shift(self, cells: int, final: str) -> None:
        """Delete so many cells at the cursor (P), or insert as many (@); the cursor stays."""
        self._out.append(f"\x1b[{cells}{final}" if cells > 1 else f"\x1b[{final}")

    def erase_to_edge(self) -> None:
        """Write plain blanks from the cursor to the terminal's right edge; the cursor stays."""
        if self._look is not _PLAIN:
            self._set(_PLAIN)
        self._out.append("\x1b[K")

    def _set(self, look: _Look) -> None:
        self._out.append(f"\x1b[{look.after(self._look)}m")
        self._look = look

    def finished(self) -> str:
        """Return everything written, with plain text set at the end."""
        if self._look is not _PLAIN:
            self._set(_PLAIN)
        return "".join(self._out)


def _unlike(before: Sequence[StyledText] | None, row: Sequence[StyledText]) -> tuple[int, Sequence[StyledText]]:
    """Return where a row begins to differ from the one before, and its cells from there until both are the same again.

    Both have as many characters, each in a cell. A chart grows by a cell a second: the rest is not looked at.
    """
    if before is None:
        return 0, row
    first, end, before_end = 0, len(row), len(before)
    while first < min(end, before_end) and before[first] == row[first]:
        first += 1
    while end > first < before_end and before[before_end - 1] == row[end - 1]:
        end, before_end = end - 1, before_end - 1
    x, changed = sum([len(text) for text, _ in row[:first]]), list(row[first:end])
    if len(changed) > 1 and before_end - first > 1:
        (old, old_style), (text, style) = before[first], changed[0]
        if style == old_style and text.startswith(old) and " " not in text[len(old) - 1 : len(old) + 1]:
            x, changed[0] = x + len(old), (text[len(old) :], style)
        (old, old_style), (text, style) = before[before_end - 1], changed[-1]
        if style == old_style and len(old) >= len(text) and old.isspace() and text.isspace():
            changed.pop()
    return x, changed


def _position(codes: str) -> tuple[int, int]:
    row, _, column = codes.partition(";")
    return int(row or 1) - 1, int(column or 1) - 1


def _wide(char: str) -> bool:
    return any(first <= char <= last for first, last in _TWO_CELLS)


def _agreed(text: str) -> bool:
    """Return whether terminals agree on the width of every character."""
    return all(_wide(char) for char in set(text) - _ONE_CELL)


def _two_celled(text: str) -> str:
    """Return one character per cell."""
    return "".join([char + _SECOND_HALF if char not in _ONE_CELL else char for char in text])


def _keys(text: str, look: _Look) -> str:
    """Return the look of each cell; blanks around words are plain where that looks the same, so that they compare
    equal.
    """
    size = len(text)
    if not look.unseen_on_blanks or (text[0] != " " and text[-1] != " "):
        return look.key * size
    inner = len(text.strip(" "))
    before = size - len(text.lstrip(" ")) if inner else 0
    return _PLAIN.key * before + look.key * inner + _PLAIN.key * (size - before - inner)


def _number(text: str) -> int:
    """Return four bytes for each character: differences of two texts are found without a look at each cell."""
    return int.from_bytes(text.encode("utf-32-le", "surrogatepass"), "little")


def _differing(text: str, keys: str, old_text: str, old_keys: str, by: int = 0) -> bytes:
    """Return a byte per cell, zero where both are the same.

    Args:
        text, keys: Characters and styles of the cells.
        old_text, old_keys: Those of as many cells before.
        by: Compare each cell with the old one so many cells further right; the last ones have none.
    """
    size = len(text)
    differs = (_number(text) ^ (_number(old_text) >> 32 * by)) | (_number(keys) ^ (_number(old_keys) >> 32 * by))
    parts = differs.to_bytes(4 * size, "little")
    low, middle, high = (int.from_bytes(parts[byte::4], "little") for byte in range(3))
    return (low | middle | high).to_bytes(size, "little")


def _moved(changed: bytes, text: str, keys: str, old_text: str, old_keys: str) -> list[tuple[int, int, int]]:
    """Return spans (begin, end, by) of cells that stood so many cells further right before, where moving them is
    shorter than writing those of them that are `changed`.
    """
    # Most rows that change are no charts: a few cells from where changes begin tell.
    begins = [span.start() for span in islice(_CHANGED.finditer(changed), _TRIED)]
    for by in _MOVES:
        if not any(text[at : at + _TOLD] == old_text[at + by : at + by + _TOLD] for at in begins):
            continue
        spans = []
        for span in _ALIKE.finditer(_differing(text, keys, old_text, old_keys, by)):
            within = changed[span.start() : span.end()]
            if len(within) - within.count(0) >= _WORTH:
                # Cells at its ends may be the same where they are.
                begin = span.start() + len(within) - len(within.lstrip(b"\0"))
                spans.append((begin, span.start() + len(within.rstrip(b"\0")), by))
        if spans:
            return spans
    return []


def _changes(text: str, changed: bytes) -> list[tuple[int, int]]:
    """Return spans of cells to write, never beginning or ending inside a wide character."""
    size = len(text)
    spans = [span.span() for span in _CHANGED.finditer(changed)]
    if _SECOND_HALF not in text:
        return spans
    return [
        (
            start - 1 if start > 0 and text[start] == _SECOND_HALF else start,
            stop + 1 if stop < size and text[stop] == _SECOND_HALF else stop,
        )
        for start, stop in spans
    ]
