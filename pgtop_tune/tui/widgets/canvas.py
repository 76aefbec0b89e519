"""The one widget every pane is drawn on: takes lines, compares them with what is shown, repaints what differs."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from itertools import zip_longest
from typing import Final

from rich.cells import set_cell_size
from rich.color import Color, ColorType, blend_rgb
from rich.color_triplet import ColorTriplet
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from pgtop_tune.base.safe_text import printable
from pgtop_tune.tui.palette import PaletteTheme
from pgtop_tune.tui.widgets.lines import ELSE, FILLED, ON, PLAIN, SHADE, SHADES, UNICODE, Glyphs, Line, text_width

_GROUNDS: Final = {True: ColorTriplet(0, 0, 0), False: ColorTriplet(255, 255, 255)}
"""Colours that shades fade to, in dark themes and in light ones: the terminal's own ground is unknown."""
_FILLING: Final = "".join(sorted({*UNICODE.rising, *UNICODE.densities, " "}))
"""Characters of areas and bars, and what is left free beside them."""
_FAINTEST: Final = 0.25
"""Part of its own colour that the first shade has."""


class LineCanvas(Widget):
    """Shows lines of styled text in a fixed place.

    Its size comes from CSS; borders, padding and opacity are not drawn. Text wider than the widget is cut, foreign
    text is made printable. Styles are those of the application's `PaletteTheme`; under any other theme all is plain.
    """

    ALLOW_SELECT = False

    def __init__(self, glyphs: Glyphs = UNICODE, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._instead = glyphs.instead
        self._lines: tuple[Line, ...] = ()
        self._strips: list[Strip | None] = []
        self._painted_width = 0
        self._palette: Mapping[str, Style | None] = {}
        self._joined: dict[str, tuple[Style | None, str]] = {}
        self._inks: dict[str, Style] = {}

    def show(self, lines: Sequence[Line]) -> None:
        """Replace the lines and repaint those that differ from the ones shown; missing lines are blank."""
        changed = self.take(lines)
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def take(self, lines: Sequence[Line]) -> list[int]:
        """Replace the lines; which of them differ from the ones shown, and are the caller's to paint."""
        before, self._lines = self._lines, tuple(lines)
        height = self.size.height
        pairs = zip_longest(before[:height], self._lines[:height], fillvalue=())
        changed = [y for y, (old, new) in enumerate(pairs) if old != new]
        for y in changed:
            if y < len(self._strips):
                self._strips[y] = None
        return changed

    def notify_style_update(self) -> None:
        """Draw everything anew in a new theme or style."""
        self._strips = []
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        """Return one line, exactly as wide as the widget."""
        self._fit()
        width = self._painted_width
        if y >= len(self._strips):
            return Strip.blank(width, self._palette.get(PLAIN))
        strip = self._strips[y]
        if strip is None:
            row = self._row(_line(self._lines, y), width)
            strip = self._strips[y] = Strip([Segment(text, style) for text, style in row], width)
        return strip

    def _fit(self) -> None:
        """Take size and theme as they are now."""
        width, height = self.size
        if len(self._strips) != height or self._painted_width != width:
            theme = self.app.current_theme
            self._palette = theme.spans if isinstance(theme, PaletteTheme) else {}
            self._joined = {}
            plain = self._palette.get(PLAIN)
            ground = None if plain is None else plain.bgcolor
            self._inks = {
                name: Style(color=style.bgcolor, bgcolor=ground)
                for name, style in self._palette.items()
                if style is not None and (style.reverse or style.bgcolor not in (None, ground))
            }
            self._strips = [None] * height
            self._painted_width = width

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the lines of a region, straight from the cache: no borders, no filters."""
        strips = [self.render_line(y) for y in crop.line_range]
        if crop.column_span == (0, self._painted_width):
            return strips
        return [strip.crop(*crop.column_span) for strip in strips]

    def _drawn(self, text: str, name: str) -> tuple[str, Style | None]:
        """Return the text and style of a span.

        An area in a style that has a ground of its own, as alarms of high contrast have, is of that colour.
        """
        style = self._palette.get(name)
        if name in self._inks and text.strip() and not text.strip(_FILLING):
            return text, self._inks[name]
        if style is not None or (ON not in name and not name.endswith(FILLED)):
            return text, style
        if name not in self._joined:
            self._joined[name] = self._made(name)
        style, instead = self._joined[name]
        return instead * len(text) or text, style

    def _made(self, name: str) -> tuple[Style | None, str]:
        """Return the style of a name that the theme has not (a shade, something on the colour of another style), and
        the character that stands for its text; "" for the text itself.
        """
        if name.endswith(FILLED):
            shade = name.removesuffix(FILLED)
            base_style, shade_style = self._palette.get(shade.partition(SHADE)[0]), self._shaded(shade)
            if shade_style is None or shade_style is base_style:
                return base_style, ""
            return Style(bgcolor=shade_style.color), " "
        pair, _, colourless = name.partition(ELSE)
        front, _, ground = pair.partition(ON)
        below = self._inks.get(ground) or self._palette.get(ground)
        above = below if front == ground else self._palette.get(front)
        colour = None if below is None else below.color
        if above is not None and above.color == colour is not None:
            # All of the cell, with one colour less to write, and none that is brighter than a ground can be.
            return Style(color=colour), UNICODE.full
        return (above, colourless) if colour is None else ((above or Style()) + Style(bgcolor=colour), "")

    def _shaded(self, name: str) -> Style | None:
        """Return a style of the theme, or a shade of it where its colour is more than one of the terminal's sixteen."""
        style, _, step = name.partition(SHADE)
        base = self._palette.get(style)
        colour = None if base is None else base.color
        if not step or colour is None or colour.type not in (ColorType.EIGHT_BIT, ColorType.TRUECOLOR):
            return base
        part = _FAINTEST + (1.0 - _FAINTEST) * int(step) / SHADES
        ground = _GROUNDS[self.app.current_theme.dark]
        return Style(color=Color.from_triplet(blend_rgb(ground, colour.get_truecolor(), part)))

    def rows(self, numbers: Sequence[int]) -> list[list[tuple[str, Style | None]]]:
        """Return texts and styles of these lines, exactly as wide as the widget: what `render_line` makes strips of."""
        self._fit()
        return [self._row(_line(self._lines, y), self._painted_width) for y in numbers]

    def _row(self, line: Line, width: int) -> list[tuple[str, Style | None]]:
        row: list[tuple[str, Style | None]] = []
        room = width
        for span_text, name in _joined(line, self._inks):
            text, style = self._drawn(span_text, name)
            if not text.isprintable():
                text = printable(text)
            if self._instead and not text.isascii():
                text = text.translate(self._instead)
            cells = text_width(text)
            if cells > room:
                text, cells = set_cell_size(text, room), room
            if cells:
                row.append((text, style))
            room -= cells
        if room:
            row.append((" " * room, self._palette.get(PLAIN)))
        return row


def _joined(line: Line, apart: Container[str]) -> list[list[str]]:
    """Return neighbours of one style as one, but for some styles: every segment is styled, written and compared by
    itself.
    """
    spans: list[list[str]] = []
    last = None
    for text, style in line:
        if style == last and style not in apart:
            spans[-1][0] += text
        else:
            spans.append([text, style])
            last = style
    return spans


def _line(lines: Sequence[Line], y: int) -> Line:
    return lines[y] if y < len(lines) else ()
