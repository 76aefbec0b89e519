"""A terminal's screen as a self-contained SVG that aligns with any monospace font.

Every run of text stands at its own x with its own length. Block, braille and box characters are drawn as shapes,
because fonts disagree about their height and often lack them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, TypeVar
from xml.sax.saxutils import escape

CELL_WIDTH: Final = 8.4
CELL_HEIGHT: Final = 18.0
FONT_SIZE: Final = 14
_MARGIN: Final = 14.0
_BASELINE: Final = 13.5
_LINE: Final = 1.3
_BRAILLE_DOTS: Final = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))
"""Column and row of the dots of U+2800, lowest bit first."""
_LEFT, _RIGHT, _UP, _DOWN = 1, 2, 4, 8
_STROKES: Final = {
    "─": _LEFT | _RIGHT, "│": _UP | _DOWN, "┤": _LEFT | _UP | _DOWN, "├": _RIGHT | _UP | _DOWN,
    "╭": _RIGHT | _DOWN, "╮": _LEFT | _DOWN, "╰": _RIGHT | _UP, "╯": _LEFT | _UP,
    "┌": _RIGHT | _DOWN, "┐": _LEFT | _DOWN, "└": _RIGHT | _UP, "┘": _LEFT | _UP,
}  # fmt: skip
"""Which halves of the two middle lines a box character has."""
_FONTS: Final = "ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,'Liberation Mono',monospace"


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cell:
    """One character of the screen.

    Attributes:
        text: What stands there; "" in the second cell of a wide character.
        colour: "#rrggbb".
        background: "#rrggbb", or "" for the screen's own.
        bold: Whether it is bold.
    """

    text: str
    colour: str
    background: str = ""
    bold: bool = False


def svg(rows: Sequence[Sequence[Cell]], ground: str, title: str) -> str:
    """The picture.

    Args:
        rows: The screen from top to bottom; all rows of the same length.
        ground: Background of the screen, "#rrggbb".
        title: For those who cannot see it.
    """
    width = len(rows[0]) * CELL_WIDTH + 2 * _MARGIN
    height = len(rows) * CELL_HEIGHT + 2 * _MARGIN
    areas: dict[str, list[str]] = {}
    shapes: dict[str, list[str]] = {}
    texts: list[str] = []
    for index, row in enumerate(rows):
        top = _MARGIN + index * CELL_HEIGHT
        _collect_areas(row, top, areas)
        _collect_shapes(row, top, shapes)
        texts += _texts(row, top)
    paths = [
        f'<path fill="{colour}" d="{"".join(parts)}"/>' for layer in (areas, shapes) for colour, parts in layer.items()
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(width)} {_n(height)}" role="img">',
            f"<title>{escape(title)}</title>",
            "<style>path{shape-rendering:crispEdges}",
            f"text{{font:{FONT_SIZE}px {_FONTS};white-space:pre}}.b{{font-weight:bold}}</style>",
            f'<rect width="100%" height="100%" rx="8" fill="{ground}"/>',
            *paths,
            *texts,
            "</svg>\n",
        ]
    )


def _collect_areas(row: Sequence[Cell], top: float, areas: dict[str, list[str]]) -> None:
    """Backgrounds other than the screen's own."""
    for start, colour, cells in _runs(row, lambda cell: cell.background):
        if colour:
            area = _box(_MARGIN + start * CELL_WIDTH, top, cells * CELL_WIDTH, CELL_HEIGHT)
            areas.setdefault(colour, []).append(area)


def _collect_shapes(row: Sequence[Cell], top: float, shapes: dict[str, list[str]]) -> None:
    """Characters that are drawn."""
    for place, cell in enumerate(row):
        drawn = _drawn(cell.text, _MARGIN + place * CELL_WIDTH, top)
        if drawn:
            shapes.setdefault(cell.colour, []).append(drawn)


def _texts(row: Sequence[Cell], top: float) -> Iterator[str]:
    """Words, each at its own place."""
    for start, (colour, bold), cells in _runs(row, lambda cell: (cell.colour, cell.bold)):
        words = "".join(_letter(cell) for cell in row[start : start + cells])
        for word in re.finditer(r"\S+(?: \S+)*", words):
            x, y = _n(_MARGIN + (start + word.start()) * CELL_WIDTH), _n(top + _BASELINE)
            weight = ' class="b"' if bold else ""
            length = f'textLength="{_n(len(word[0]) * CELL_WIDTH)}" lengthAdjust="spacingAndGlyphs"'
            place = f'x="{x}" y="{y}" fill="{colour}" {length} xml:space="preserve"'
            yield f"<text{weight} {place}>{escape(word[0])}</text>"


def _runs(row: Sequence[Cell], key: Callable[[Cell], T]) -> Iterator[tuple[int, T, int]]:
    """(start, what they share, cells) of neighbours that share it."""
    start = 0
    for shared, group in groupby(row, key):
        cells = len(list(group))
        yield start, shared, cells
        start += cells


def _letter(cell: Cell) -> str:
    return " " if not cell.text or _drawn(cell.text, 0, 0) else cell.text


def _drawn(text: str, x: float, top: float) -> str:
    """The path of a character that is drawn instead of written; "" for all others."""
    if len(text) != 1:
        return ""
    code = ord(text)
    if 0x2800 < code <= 0x28FF:
        return "".join(_dots(code - 0x2800, x, top))
    if 0x2581 <= code <= 0x2588:
        part = (code - 0x2580) / 8 * CELL_HEIGHT
        return _box(x, top + CELL_HEIGHT - part, CELL_WIDTH, part)
    if 0x2589 <= code <= 0x258F:
        return _box(x, top, (0x2590 - code) / 8 * CELL_WIDTH, CELL_HEIGHT)
    if text == "┊":
        return "".join(_box(x + CELL_WIDTH / 2, top + part * CELL_HEIGHT / 4, 1.0, 2.2) for part in range(4))
    return "".join(_strokes(_STROKES.get(text, 0), x, top))


def _dots(bits: int, x: float, top: float) -> Iterable[str]:
    across, down = CELL_WIDTH / 2, CELL_HEIGHT / 4
    for bit, (column, row) in enumerate(_BRAILLE_DOTS):
        if bits >> bit & 1:
            yield _box(x + (column + 0.5) * across - 1.1, top + (row + 0.5) * down - 1.1, 2.2, 2.2)


def _strokes(halves: int, x: float, top: float) -> Iterable[str]:
    middle_x, middle_y = x + CELL_WIDTH / 2, top + CELL_HEIGHT / 2
    across, down = CELL_WIDTH / 2 + _LINE / 2, CELL_HEIGHT / 2 + _LINE / 2
    if halves & _LEFT:
        yield _box(x, middle_y - _LINE / 2, across, _LINE)
    if halves & _RIGHT:
        yield _box(middle_x - _LINE / 2, middle_y - _LINE / 2, across, _LINE)
    if halves & _UP:
        yield _box(middle_x - _LINE / 2, top, _LINE, down)
    if halves & _DOWN:
        yield _box(middle_x - _LINE / 2, middle_y - _LINE / 2, _LINE, down)


def _box(x: float, y: float, width: float, height: float) -> str:
    return f"M{_n(x)} {_n(y)}h{_n(width)}v{_n(height)}h{_n(-width)}z"


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
