"""Everything known of one row: what it does, what it may be, who set it, what is advised and what others say. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pgtop_tune.changes.reach import choices
from pgtop_tune.model.system_setting import SystemSetting
from pgtop_tune.tui.parameters.drawing import after_reboot, changed_words
from pgtop_tune.tui.parameters.row import PanelRow, default_of, range_of, source_of
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line
from pgtop_tune.tui.widgets.wrapping import labelled

_LABEL_CELLS: Final = 13
_START: Final = "a starting point, not measured on this server"

Said = Iterator[tuple[str, str, str]]
"""Label, text, style."""


def details_lines(row: PanelRow, cells: int, glyphs: Glyphs) -> list[Line]:
    """As many lines as it takes.

    Args:
        row: What it is about.
        cells: Width.
        glyphs: Characters.
    """
    lines: list[Line] = []
    for part in (_present(row, glyphs), _worth(row, glyphs), _advised(row, glyphs)):
        if lines:
            lines.append(())
        for label, text, style in part:
            if text:
                lines += labelled(label, text, cells, style, _LABEL_CELLS)
    return lines


def _present(row: PanelRow, glyphs: Glyphs) -> Said:
    parameter, setting = row.parameter, row.setting
    yield "value", parameter.shown or "''", "critical" if row.loss_now else "strong"
    yield "after restart", parameter.pending or "", "warning"
    yield "staged", "" if row.staged is None else str(row.staged), "event-parameter"
    yield "next load", row.next_load or "", "event-load"
    if setting is None:
        yield "set by", source_of(parameter), PLAIN
        yield "default", default_of(parameter) or "''", PLAIN
        for number, choice in enumerate(choices(parameter.context)):
            yield "" if number else "takes effect", f"{choice.reach}: {choice.connected}", PLAIN
        yield "kind", " ".join(filter(None, (parameter.vartype, parameter.unit and f"in {parameter.unit}"))), PLAIN
    else:
        yield from _of_machine(setting)
    yield "takes", range_of(parameter), PLAIN
    yield "steps", f" {glyphs.separator} ".join(row.knob.steps) or "each doubles or halves", PLAIN
    yield "special", "; ".join(f"{value}: {meaning}" for value, meaning in row.knob.special), PLAIN
    yield "changed", "" if row.change is None else changed_words(row.change), "event-parameter"


def _of_machine(setting: SystemSetting) -> Said:
    yield "kernel file", setting.path, PLAIN
    yield "after reboot", after_reboot(setting.after_reboot), PLAIN
    words = "live, by this program" if setting.writable else "live, by root: a shows the commands to paste"
    yield "takes effect", words, PLAIN


def _worth(row: PanelRow, glyphs: Glyphs) -> Said:
    knob = row.knob
    yield "why", knob.why, PLAIN
    yield "costs", knob.trades, PLAIN
    yield "beware", knob.warning, "warning"
    for value, loss in knob.unsafe:
        yield "can lose", f"{'any other method' if value == '*' else value}: {loss}", "critical"
    yield "shows in", f" {glyphs.separator} ".join(knob.panes), PLAIN
    yield "moves with", ", ".join(knob.moves_with), PLAIN


def _advised(row: PanelRow, glyphs: Glyphs) -> Said:
    advice = row.advice
    if advice is None:
        yield "advice", "none: there is no rule for it", "dim"
        return
    if advice.value is None:
        yield "advice", f"no value: {advice.because}", "dim"
    else:
        yield "advice", f"{advice.value}   ({_START})", "strong"
        yield "because", advice.because, PLAIN
    if advice.low or advice.high:
        yield "search", f"from {advice.low or glyphs.ellipsis} to {advice.high or glyphs.ellipsis}", PLAIN
    yield "others say", f" {glyphs.separator} ".join(f"{each.who} {each.value}" for each in advice.opinions), PLAIN
