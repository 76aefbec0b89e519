"""The characters the screen is drawn with: one set for UTF-8 terminals, one of plain ASCII."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field


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
    instead: Mapping[int, str] = field(default_factory=dict)


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
    instead=str.maketrans(dict(zip("Δ−·…×→÷Σ≥±↑↓←–", "d-.~x>/S>+^v<-", strict=True)))
    | dict.fromkeys(map(ord, "▏▎▍▌▋▊▉█"), "#")
    | dict.fromkeys([*range(0x2400, 0x2427), ord("⏎"), 0xFFFD], "?"),
)
