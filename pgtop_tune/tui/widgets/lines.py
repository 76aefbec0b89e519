"""Lines of styled text: wrapping, characters, bars, tables. Without Textual."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final, Literal

from msgspec import Struct
from rich.cells import cell_len, set_cell_size

from pgtop_tune.base.safe_text import printable, printable_lines

# What panes return: lines of styled text, without Textual, so that tests read them as plain pictures; long text
# wrapped.
#
# A line is a tuple of (text, style) spans. Styles are names of `STYLES`; a theme says how each looks. Foreign text
# may
# stand in a span as it is: the canvas makes every span printable before it reaches the terminal, and measures cells.

Span = tuple[str, str]
Line = tuple[Span, ...]

PLAIN: Final = ""
STYLES: Final = {
    "title": "headings of panes and columns",
    "label": "names beside numbers",
    "dim": "less important: rules, units, idle rows, baseline overlays",
    "strong": "the most important number",
    "good": "a good value",
    "warning": "a value that needs attention",
    "critical": "a value past its critical line",
    "danger": "the banner over the screen: data may be lost",
    "key": "keys in the footer and in dialogs",
    "cursor": "the selected row",
    "series-1": "first line of a chart", "series-2": "second", "series-3": "third",
    "series-4": "fourth", "series-5": "fifth", "series-6": "sixth",
    "cpu": "on CPU", "cpu-queue": "ready to run while no CPU was free", "wait-io": "class IO",
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
    """Return the style of something drawn in the colour of one style on that of another.

    Args:
        style, ground: Names of `STYLES`.
        colourless: The character that stands there in a theme without colours; "" for the same.
    """
    return f"{style}{ON}{ground}{ELSE}{colourless}"


def of_map(style: str, step: int) -> str:
    """Return the style of a heat map's cell: where a theme has more than 16 colours, a shade fills it in place of its
    character.

    Args:
        style: A name of `STYLES`.
        step: From 0, hardly to be told from the ground, to `SHADES`, its own colour.
    """
    return f"{style}{SHADE}{step}{FILLED}"


def text_width(text: str) -> int:
    """Return cells a printable text takes on screen."""
    return len(text) if text.isascii() else cell_len(text)


def width(line: Line) -> int:
    """Return cells a line takes on screen."""
    return sum([len(text) if text.isascii() else cell_len(text) for text, _ in line])


def plain_text(line: Line) -> str:
    """Return the line without its styles."""
    return "".join(text for text, _ in line)


CUT: Final = "…"
"""Something was cut here; the canvas has another sign where the terminal has not this."""


def clip(text: str, cells: int) -> str:
    """Return foreign or own text, made printable and cut or padded to exactly so many cells."""
    if not text.isascii() or not text.isprintable():
        text = printable(text, cells * 4 + 64)
        return set_cell_size(text, cells)
    return text[:cells].ljust(cells)


def ellipsized(text: str, cells: int, ellipsis: str) -> str:
    """Return a text as `clip` does, with a sign at the end where something was cut."""
    clipped = clip(text, cells)
    return clipped if clipped.rstrip() == text.rstrip() else clip(text, cells - len(ellipsis)) + ellipsis


_CLAUSE_END: Final = re.compile(r"[.;:](?= )| (?=\()")


def clauses(text: str, cells: int, ellipsis: str) -> str:
    """Return so much of a sentence of ours as there is room for: whole clauses where they fill a third of it, else
    words with a sign that something was cut.
    """
    if text_width(text) <= cells:
        return text
    parts = [text[: end.start()] for end in _CLAUSE_END.finditer(text)]
    fitting = [part for part in parts if part.count("(") == part.count(")") and text_width(part) <= cells]
    if fitting and 3 * text_width(fitting[-1]) >= cells:
        return fitting[-1]
    kept = clip(text, max(cells - len(ellipsis), 0))
    return (kept.rpartition(" ")[0].rstrip() or kept) + ellipsis


def fit(line: Line, cells: int) -> Line:
    """Return the line cut to at most so many cells; spans keep their styles."""
    fitted: list[Span] = []
    room = cells
    for text, style in line:
        cells_taken = text_width(text)
        if cells_taken > room:
            fitted.append((set_cell_size(text, room), style))
            break
        fitted.append((text, style))
        room -= cells_taken
    return tuple(fitted)


# Long foreign text on several lines, measured in cells.

_DEEPER: Final = 6
"""Cells by which a line that goes on lies under its beginning: what PostgreSQL's plans put before a node."""


def wrap(text: str, cells: int) -> list[str]:
    """Return the text as lines of at most so many cells, broken at blanks where there are any; line breaks are kept.

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
    cells_taken = 0
    for index, character in enumerate(text):
        cells_taken += cell_len(character)
        if cells_taken > cells:
            return max(index, 1)
    return len(text)


def wrapped(text: str, cells: int, style: str = "") -> list[Line]:
    """Return a text as `wrap` does, as lines of one style."""
    return [((line, style),) for line in wrap(text, cells)]


def hanging(text: str, cells: int) -> list[Line]:
    """Return a text as `wrapped` does; its further lines begin further right than the first one."""
    lines: list[str] = []
    for paragraph in printable_lines(text):
        first, *rest_lines = _wrap_one(paragraph.rstrip(), max(cells, 2))
        lines.append(first)
        if rest_lines:
            depth = min(len(paragraph) - len(paragraph.lstrip()) + _DEEPER, cells // 2)
            below = paragraph[len(first) :].strip()
            lines += [" " * depth + line for line in _wrap_one(below, max(cells - depth, 2))]
    return [((line, PLAIN),) for line in lines]


def labelled(label: str, text: str, cells: int, style: str = "", label_cells: int = 14) -> list[Line]:
    """Return a label and beside it the text, wrapped under itself."""
    label_cells = max(label_cells, min(text_width(label) + 1, cells // 2))
    rows = wrap(text, cells - label_cells) or [""]
    return [
        (((label if index == 0 else "").ljust(label_cells), "label"), (row, style)) for index, row in enumerate(rows)
    ]


# The characters the screen is drawn with: one set for UTF-8 terminals, one of plain ASCII.


class Glyphs(Struct, frozen=True):
    """A set of characters, every one of them one cell wide.

    Attributes:
        name: "unicode" or "ascii".
        rule: Horizontal line of a pane's head.
        upright: Vertical line: the cursor's column in a chart.
        mark_upright: Vertical line under an event's mark, fainter than the cursor's.
        axis: Between a chart's labels and its columns.
        full: A full block, for bars.
        rising: Nine blocks from empty to full that grow upwards: one-line sparks, heat strips.
        density: Five cells from few to many, for a heat map of two dimensions.
        growing: Blocks from empty to full that grow to the right: the end of a bar.
        densities: Four fillings of an area, from the densest to the faintest: neighbours differ without colours.
        level: A curve that is drawn as a line over a filled area.
        grid: A gridline through the empty cells of a chart.
        tick: Where a time stands on a chart's axis.
        up: An event that raised or set something; also ascending order.
        switch: An experiment put another arm into force.
        shades: Under the curve while arm A, and while arm B, was in force.
        down: An event that cleared something; also descending order.
        diamond: A checkpoint.
        note: A note by the operator.
        bullet: A filled mark: recording, the chosen one of several.
        ring: The hollow mark beside bullets; a reset.
        square: A restart.
        cross: A deadlock, a failure.
        warning: Something to beware of.
        pointer: The row or word pointed at.
        pointer_left: Points back at the words before it.
        arrow: From one value to the next.
        ellipsis: Something was cut here.
        separator: Between facts on one line.
        speck: Nothing, where it must not look like unknown: a cell of a heat map.
        times: Multiplication, sizes.
        minus: Before a time gone by.
        instead: What is drawn for signs in words of ours that this set has not; nothing where it has all.
    """

    name: str
    rule: str
    upright: str
    mark_upright: str
    axis: str
    full: str
    rising: str
    density: str
    growing: str
    densities: str
    level: str
    grid: str
    tick: str
    up: str
    switch: str
    shades: tuple[str, str]
    down: str
    diamond: str
    note: str
    bullet: str
    ring: str
    square: str
    cross: str
    warning: str
    pointer: str
    pointer_left: str
    arrow: str
    ellipsis: str
    separator: str
    speck: str
    times: str
    minus: str
    instead: Mapping[int, str] = {}


UNICODE: Final = Glyphs(
    name="unicode",
    rule="─",
    upright="│",
    mark_upright="┊",
    axis="┤",
    full="█",
    rising=" ▁▂▃▄▅▆▇█",
    density="·░▒▓█",
    growing=" ▏▎▍▌▋▊▉█",
    densities="█▓▒░",
    level="━",
    grid="┈",
    tick="└",
    up="▲",
    switch="⇄",
    shades=("·", "░"),
    down="▼",
    diamond="◆",
    note="✎",
    bullet="●",
    ring="○",
    square="■",
    cross="✗",
    warning="⚠",
    pointer="▸",
    pointer_left="◂",
    arrow="→",
    ellipsis="…",
    separator="·",
    speck="·",
    times="×",
    minus="−",
)
ASCII: Final = Glyphs(
    name="ascii",
    rule="-",
    upright="|",
    mark_upright=":",
    axis="|",
    full="#",
    rising=" .,:-=+*#",
    density=".:+*#",
    growing=" #",
    densities="#%+.",
    level="=",
    grid="-",
    tick="+",
    up="^",
    switch="=",
    shades=(".", ":"),
    down="v",
    diamond="*",
    note="&",
    bullet="*",
    ring="o",
    square="@",
    cross="x",
    warning="!",
    pointer=">",
    pointer_left="<",
    arrow=">",
    ellipsis="~",
    separator="|",
    speck="_",
    times="x",
    minus="-",
    instead=str.maketrans(dict(zip("Δ−·…×→÷Σ≥±↑↓←–│", "d-.~x>/S>+^v<-|", strict=True)))
    | dict.fromkeys(map(ord, "▏▎▍▌▋▊▉█"), "#")
    | dict.fromkeys([*range(0x2400, 0x2427), ord("⏎"), 0xFFFD], "?"),
)


# Shares drawn in one line: a bar, a strip with one cell per core, and more values than cells.

# More values than cells: neighbours share a cell.


def fold_to_largest(values: Sequence[float | None], cells: int) -> list[float | None]:
    """Return at most so many values: each the largest of a group of neighbours, None when all of a group are None."""
    count = len(values)
    if count <= cells:
        return list(values)
    groups = (values[count * cell // cells : count * (cell + 1) // cells] for cell in range(cells))
    return [max((value for value in group if value is not None), default=None) for group in groups]


_HEAT: Final = ("heat-0", "heat-1", "heat-2", "heat-3", "heat-4")


def bar(share: float | None, cells: int, glyphs: Glyphs) -> str:
    """Return a bar that fills its share of the cells; exactly `cells` wide, blank when unknown.

    Args:
        share: 0 to 1; what lies outside is drawn as 0 or 1. A share above 0 always shows.
        cells: Width of the full bar.
        glyphs: Its last cell is drawn in as many steps as `glyphs.growing` has.
    """
    if share is None or share <= 0:
        return " " * cells
    steps = len(glyphs.growing) - 1
    filled = max(1, round(min(share, 1.0) * cells * steps))
    full_blocks, eighths = divmod(filled, steps)
    drawn = glyphs.full * full_blocks + (glyphs.growing[eighths] if eighths else "")
    return drawn.ljust(cells)[:cells]


def apportioned(parts: Sequence[float], total: int) -> list[int]:
    """Return whole numbers in the ratio of the parts that add up to the total: rounded one by one they would not."""
    scale = total / (sum(parts) or 1.0)
    exact = [part * scale for part in parts]
    numbers = [int(part) for part in exact]
    by_rest = sorted(range(len(parts)), key=lambda index: numbers[index] - exact[index])
    for index in by_rest[: max(round(sum(exact)) - sum(numbers), 0)]:
        numbers[index] += 1
    return numbers


def gauge(parts: Sequence[tuple[float, Span]], cells: int, glyphs: Glyphs) -> Line:
    """Return a bar of several parts, exactly `cells` wide.

    Args:
        parts: The share of each, 0 to 1, with its character and style; the rest is drawn as free.
        cells: Width of the full bar.
        glyphs: For what is free.
    """
    shares = [share for share, _ in parts]
    numbers = apportioned([*shares, max(1.0 - sum(shares), 0.0)], cells)
    drawn = [*(span for _, span in parts), (glyphs.speck, "dim")]
    return tuple((text * count, style) for count, (text, style) in zip(numbers, drawn, strict=True) if count)


def heat_strip(shares: Sequence[float | None], cells: int, glyphs: Glyphs) -> Line:
    """Return the load of each core: one cell per core, or per group of neighbours when there are more cores than cells.

    Args:
        shares: 0 to 1 per core; None is drawn as a dim dot. A group shows the busiest of its cores, so that one
            saturated core is never averaged away.
        cells: At most so many cells are used.
        glyphs: Drawn with `glyphs.rising`.
    """
    drawn = (_heat(share, glyphs) for share in fold_to_largest(shares, cells))
    return tuple(("".join(text for text, _ in run), style) for style, run in groupby(drawn, key=lambda cell: cell[1]))


def _heat(share: float | None, glyphs: Glyphs) -> tuple[str, str]:
    if share is None:
        return glyphs.separator, "dim"
    share = min(max(share, 0.0), 1.0)
    highest = len(glyphs.rising) - 1
    return glyphs.rising[max(1, round(share * highest))], heat_style(share)


def heat_style(share: float | None) -> str:
    """Return the style of a share from 0 to 1."""
    return "dim" if share is None else _HEAT[min(max(int(share * 5), 0), 4)]


Cell = tuple[str, str]
Row = Sequence[Cell]
GAP: Final = 1
"""Blank cells between two columns."""


class Column(Struct, frozen=True):
    """A column of a table.

    Attributes:
        title: Its heading; foreign text is welcome.
        width: Cells; of an elastic column the least it takes.
        align: Numbers stand right, words left.
        elastic: Shares with other elastic columns what the fixed ones leave.
        prose: Holds sentences of ours, which end with a clause.
    """

    title: str
    width: int
    align: Literal["left", "right"] = "left"
    elastic: bool = False
    prose: bool = False


def column_widths(columns: Sequence[Column], width: int) -> tuple[int, ...]:
    """Return cells of each column in a table of `width` cells; the last elastic one gets the odd cells.

    Columns that do not fit any more are cut at the right edge and get 0 when they lie behind it.
    """
    elastic = [index for index, column in enumerate(columns) if column.elastic]
    spare = width - sum(column.width for column in columns) - GAP * (len(columns) - 1)
    cells = [column.width for column in columns]
    if elastic and spare > 0:
        share, odd = divmod(spare, len(elastic))
        for index in elastic:
            cells[index] += share
        cells[elastic[-1]] += odd
    room = width
    for index, needed in enumerate(cells):
        cells[index] = max(0, min(needed, room))
        room -= needed + GAP
    return tuple(cells)


def table_lines(
    columns: Sequence[Column],
    rows: Sequence[Row],
    *,
    width: int,
    height: int,
    cursor: int | None = None,
    glyphs: Glyphs,
) -> list[Line]:
    """Return the header and as many rows as fit below it; `height` lines of exactly `width` cells.

    Args:
        columns: Left to right.
        rows: Cells in the order of the columns; texts may be foreign and are made printable. A number that does not
            fit is cut with an ellipsis, never silently.
        width: Cells of every line.
        height: Lines, the header included.
        cursor: Index into `rows` of the selected row; None for none.
        glyphs: For the ellipsis.
    """
    if height <= 0:
        return []
    cells = column_widths(columns, width)
    header = tuple((column.title, "title") for column in columns)
    lines = [_row_line(header, columns, cells, width, glyphs)]
    for index, row in enumerate(rows[: height - 1]):
        line = _row_line(row, columns, cells, width, glyphs)
        lines.append((("".join(text for text, _ in line), "cursor"),) if index == cursor else line)
    blank: Line = ((" " * width, PLAIN),)
    lines.extend([blank] * (height - len(lines)))
    return lines


def first_in_view(top: int, cursor: int | None, count: int, visible: int) -> int:
    """Return the first row to show: no line is left empty, and the row at the cursor is shown.

    Args:
        top: First row shown until now.
        cursor: Row to show; None for none.
        count: Rows that there are.
        visible: Rows that fit.
    """
    top = min(top, max(count - visible, 0))
    return max(top if cursor is None else min(max(top, cursor - visible + 1), cursor), 0)


def next_row(top: int, cursor: int | None, by: int, count: int, visible: int) -> int:
    """Return the row that lies `by` rows below the cursor, as far as there are any.

    Without a cursor the first step selects the first visible row, or the last one upwards. Args as of `first_in_view`.
    """
    edge = top if by > 0 else top + visible - 1
    return min(max(edge if cursor is None else cursor + by, 0), count - 1)


def around(cursor: int, count: int, visible: int) -> int:
    """Return the first row to show where the cursor stands in the middle, as far as rows allow."""
    return min(max(cursor - visible // 2, 0), max(count - visible, 0))


def _row_line(row: Row, columns: Sequence[Column], widths: Sequence[int], width: int, glyphs: Glyphs) -> Line:
    spans: list[Span] = []
    run = ""
    run_style = PLAIN
    used = 0
    for (text, style), column, cells in zip(row, columns, widths, strict=True):
        if cells <= 0:
            break
        gap = " " * min(GAP, width - used - cells)
        text = clauses(text, cells, glyphs.ellipsis) if column.prose else text
        drawn = _cell(text, cells, column.align == "right", glyphs) + gap
        used += cells + len(gap)
        if style == run_style:
            run += drawn
            continue
        if run:
            spans.append((run, run_style))
        run, run_style = drawn, style
    if used < width:
        if run_style == PLAIN:
            run += " " * (width - used)
        else:
            spans.append((run, run_style))
            run, run_style = " " * (width - used), PLAIN
    spans.append((run, run_style))
    return tuple(spans)


def _cell(text: str, cells: int, right: bool, glyphs: Glyphs) -> str:
    if text.isascii() and text.isprintable():
        length = len(text)
        if length <= cells:
            return text.rjust(cells) if right else text.ljust(cells)
        return text[: cells - 1] + glyphs.ellipsis
    text = printable(text, cells * 4 + 64)
    length = cell_len(text)
    if length > cells:
        return set_cell_size(text, cells - 1) + glyphs.ellipsis
    return " " * (cells - length) + text if right else text + " " * (cells - length)
