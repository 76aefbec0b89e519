"""What panes return: lines of styled text, without Textual, so that tests read them as plain pictures; long text
wrapped.

A line is a tuple of (text, style) spans. Styles are names of `STYLES`; a theme says how each looks. Foreign text may
stand in a span as it is: the canvas makes every span printable before it reaches the terminal, and measures cells.
"""

from __future__ import annotations

from typing import Final

from rich.cells import cell_len, set_cell_size

from pgtop_tune.base.safe_text import printable, printable_lines

Span = tuple[str, str]
Line = tuple[Span, ...]

PLAIN: Final = ""
STYLES: Final = {
    "title": "headings of panes and columns",
    "label": "names beside numbers",
    "dim": "what matters least: rules, units, idle rows, baseline overlays",
    "strong": "the number to look at",
    "good": "as it should be",
    "warning": "worth a look",
    "critical": "past its critical line",
    "danger": "the banner over the screen: data may be lost",
    "key": "keys in the footer and in dialogs",
    "cursor": "the selected row",
    "series-1": "first line of a chart", "series-2": "second", "series-3": "third",
    "series-4": "fourth", "series-5": "fifth", "series-6": "sixth",
    "cpu": "on CPU", "cpu-queue": "ready to run, and no CPU was free", "wait-io": "class IO",
    "wait-lock": "class Lock", "wait-lwlock": "class LWLock",
    "wait-client": "class Client", "wait-ipc": "classes IPC, BufferPin and Buffer (19+)",
    "wait-other": "every other wait class",
    "heat-0": "0-20 % busy", "heat-1": "20-40 %", "heat-2": "40-60 %", "heat-3": "60-80 %", "heat-4": "80-100 %",
    "event-parameter": "a changed parameter on the tape", "event-checkpoint": "a checkpoint", "event-load": "the load",
    "event-switch": "a switch of an experiment", "arm-a": "arm A of an experiment", "arm-b": "arm B",
    "event-other": "every other event",
}  # fmt: skip
"""Style names and what they are for; "" is plain text in the terminal's own colours."""


ON: Final = " on "
ELSE: Final = "|"
SHADE: Final = "~"
FILLED: Final = "!"
SHADES: Final = 8
"""Steps from the ground to a style's own colour."""


def on(style: str, ground: str, colourless: str = "") -> str:
    """The style of something drawn in the colour of one style on that of another.

    Args:
        style, ground: Names of `STYLES`.
        colourless: The character that stands there in a theme without colours; "" for the same.
    """
    return f"{style}{ON}{ground}{ELSE}{colourless}"


def shaded(style: str, step: int) -> str:
    """The style with its colour nearer to the ground; as it is in a theme of 16 colours or none.

    Args:
        style: A name of `STYLES`.
        step: From 0, hardly to be told from the ground, to `SHADES`, its own colour.
    """
    return style if step >= SHADES else f"{style}{SHADE}{step}"


def of_map(style: str, step: int) -> str:
    """The style of a heat map's cell: where a theme has shades (`shaded`), one fills it in place of its character."""
    return f"{style}{SHADE}{step}{FILLED}"


def text_width(text: str) -> int:
    """Cells a printable text takes on screen."""
    return len(text) if text.isascii() else cell_len(text)


def width(line: Line) -> int:
    """Cells a line takes on screen."""
    return sum([len(text) if text.isascii() else cell_len(text) for text, _ in line])


def text_of(line: Line) -> str:
    """The line without its styles."""
    return "".join(text for text, _ in line)


CUT: Final = "…"
"""Something was cut here; the canvas has another sign where the terminal has not this."""


def clip(text: str, cells: int) -> str:
    """Foreign or own text made printable and cut or padded to exactly so many cells."""
    if not text.isascii() or not text.isprintable():
        text = printable(text, cells * 4 + 64)
        return set_cell_size(text, cells)
    return text[:cells].ljust(cells)


def shortened(text: str, cells: int, ellipsis: str) -> str:
    """As `clip`, with a sign at the end where something was cut."""
    shown = clip(text, cells)
    return shown if shown.rstrip() == text.rstrip() else clip(text, cells - len(ellipsis)) + ellipsis


def fit(line: Line, cells: int) -> Line:
    """The line cut to at most so many cells; spans keep their styles."""
    fitted: list[Span] = []
    left = cells
    for text, style in line:
        taken = text_width(text)
        if taken > left:
            fitted.append((set_cell_size(text, left), style))
            break
        fitted.append((text, style))
        left -= taken
    return tuple(fitted)


def rule(title: Line, cells: int, right: Line = ()) -> Line:
    """A pane's head: `─ title ───── right ─`, exactly so many cells."""
    middle = cells - width(title) - width(right) - (6 if right else 4)
    if middle < 1:
        return fit((("─ ", "dim"), *title, *((("  ", PLAIN), *right) if right else ())), cells)
    closing: Line = ((" ", PLAIN), *right, (" ─", "dim")) if right else (("─", "dim"),)
    return (("─ ", "dim"), *title, (" ", PLAIN), ("─" * middle, "dim"), *closing)


# Long foreign text on several lines, measured in cells.

_DEEPER: Final = 6
"""Cells by which a line that goes on lies under its beginning: what PostgreSQL's plans put before a node."""


def wrap(text: str, cells: int) -> list[str]:
    """The text as lines of at most so many cells, broken at blanks where there are any; line breaks are kept.

    Args:
        text: Anything; it is made printable.
        cells: At least 2, so that a wide character has room.
    """
    lines: list[str] = []
    for paragraph in printable_lines(text):
        lines.extend(_wrap_one(paragraph.rstrip(), max(cells, 2)))
    return lines


def _wrap_one(text: str, cells: int) -> list[str]:
    lines: list[str] = []
    while cell_len(text) > cells:
        end = _characters_within(text, cells)
        blank = text.rfind(" ", 0, end + 1)
        if blank > 0 and text[:blank].strip():
            lines.append(text[:blank].rstrip())
            text = text[blank + 1 :]
        else:
            lines.append(text[:end])
            text = text[end:]
    return [*lines, text]


def _characters_within(text: str, cells: int) -> int:
    taken = 0
    for index, character in enumerate(text):
        taken += cell_len(character)
        if taken > cells:
            return max(index, 1)
    return len(text)


def wrapped(text: str, cells: int, style: str = "") -> list[Line]:
    """Like `wrap`, as lines of one style."""
    return [((line, style),) for line in wrap(text, cells)]


def hanging(text: str, cells: int) -> list[Line]:
    """Like `wrapped`; what does not fit on a line goes on further right than that line begins."""
    lines: list[str] = []
    for paragraph in printable_lines(text):
        first, *rest = _wrap_one(paragraph.rstrip(), max(cells, 2))
        lines.append(first)
        if rest:
            depth = min(len(paragraph) - len(paragraph.lstrip()) + _DEEPER, cells // 2)
            below = paragraph[len(first) :].strip()
            lines += [" " * depth + line for line in _wrap_one(below, max(cells - depth, 2))]
    return [((line, PLAIN),) for line in lines]


def labelled(label: str, text: str, cells: int, style: str = "", label_cells: int = 14) -> list[Line]:
    """A label and beside it the text, wrapped under itself."""
    rows = wrap(text, cells - label_cells) or [""]
    return [
        (((label if index == 0 else "").ljust(label_cells), "label"), (row, style)) for index, row in enumerate(rows)
    ]
