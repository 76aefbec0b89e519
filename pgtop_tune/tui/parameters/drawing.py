"""Drawing of the list of parameters: headings of groups, columns, and everything known of the selected row. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from pgtop_tune.advice.facts import AdviceFacts, MachineLook, machine_of
from pgtop_tune.advice.gather import Beside, facts_of
from pgtop_tune.advice.knobs.knob import Knob
from pgtop_tune.advice.knobs.system import GROUPS
from pgtop_tune.advice.proposal import Proposal, advice_for, listed_parameters, listed_settings
from pgtop_tune.advice.rules.wal import steady
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.changes.model.change import choices
from pgtop_tune.changes.model.change_set import Change, value_before
from pgtop_tune.health.proposals import replacements_of_unsuitable
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.setting_risks import RISKS
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.machine import AfterReboot, SystemSetting
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.tui.parameters.rows import LIVE, SettingRow, SettingTable, default_of, of_machine, range_of, source_of
from pgtop_tune.tui.widgets.lines import CUT, PLAIN, Glyphs, Line, around, clauses, clip, ellipsized, fit, labelled

# The rows of the list, put together from the server's answer, frames, journals, machine and next load. Pure.


def server_facts(
    interval: Interval | None, look: MachineLook | Unavailable, before: AdviceFacts | None = None
) -> AdviceFacts | None:
    """Return the facts that advice is derived from; None before the server was seen.

    Args:
        interval: Frames of the server.
        look: At its machine.
        before: What the advice that is shown was derived from: it does not change with every tick.
    """
    machine = None if isinstance(look, Unavailable) else machine_of(look)
    facts = (
        None
        if interval is None
        else facts_of(interval, Beside(machine=machine, unsuitable=replacements_of_unsuitable(interval.frames)))
    )
    return None if facts is None else steady(before, facts)


def advised_anew(row: SettingRow, facts: AdviceFacts, proposal: Proposal) -> SettingRow:
    """Return the row with what a proposal has for it, and with the value that waits for a restart."""
    if row.setting is not None:
        return replace(row, advice=proposal.machine_half().get(row.name))
    parameter = replace(row.parameter, pending=facts.pending.get(row.name))
    return replace(row, parameter=parameter, advice=advice_for(parameter, proposal.server_half()))


def machine_rows(look: MachineLook, in_force: Sequence[Change]) -> list[SettingRow]:
    """Return the settings of the machine that this kernel has, group by group.

    Args:
        look: At the machine.
        in_force: Changes that the journals hold, oldest first.
    """
    newest = {change.name: change for change in in_force}
    rows = [
        SettingRow(of_machine(setting), knob, setting=setting, change=newest.get(setting.name))
        for knob, setting in listed_settings(look.settings)
    ]
    return sorted(rows, key=lambda row: GROUPS.index(row.knob.group))


def parameter_rows(
    knobs: Sequence[Knob],
    parameters: Sequence[Parameter],
    in_force: Sequence[Change],
    next_load: Mapping[str, str],
) -> list[SettingRow]:
    """Return the knobs this server has, in the order of the catalogue.

    Args:
        knobs: The catalogue.
        parameters: Parameters of the server.
        in_force: Changes that the journal holds, oldest first.
        next_load: Values that sessions of the next load begin with, by name.
    """
    newest = {change.name: change for change in in_force}
    return [
        SettingRow(parameter, knob, change=newest.get(knob.name), next_load=next_load.get(knob.name))
        for knob, parameter in listed_parameters(knobs, parameters)
    ]


_NARROW: Final = (("", 2), ("name", 41), ("value", 10), ("when", 8), ("advice", 8), ("staged", 10))
_ROOMY: Final = (("", 2), ("name", 41), ("value", 13), ("when", 8), ("advice", 11), ("staged", 13))
_ROOMY_FROM: Final = 104
_LEAST_REMARK: Final = 14
_LABELS: Final = 8


def list_lines(table: SettingTable, cells: int, rows: int, glyphs: Glyphs) -> list[Line]:
    """Return a heading and as many rows as there is room for, around the cursor, with the headings of their groups.

    Args:
        table: The listed rows.
        cells: Width.
        rows: Lines at most.
        glyphs: Characters.
    """
    columns = _ROOMY if cells >= _ROOMY_FROM else _NARROW
    remark_cells = _remark_cells(cells)
    heading = "".join(title.ljust(room) for title, room in columns) + ("remark" if remark_cells else "")
    lines: list[Line] = [((clip(heading, cells), "title"),)]
    entries, here = _entries(table)
    if not entries:
        message = "no parameter matches" if table.filter else ""
        return [*lines, ((message, "dim"),)]
    visible = max(rows - 1, 1)
    top = around(here, len(entries), visible)
    for entry in entries[top : top + visible]:
        if isinstance(entry, str):
            lines.append(_group_line(entry, cells, glyphs))
        else:
            lines.append(_row_line(table, entry, cells, glyphs))
    return lines


def _entries(table: SettingTable) -> tuple[list[SettingRow | str], int]:
    """Return headings and rows, and the place of the cursor."""
    entries: list[SettingRow | str] = []
    here, group = 0, ""
    for number, row in enumerate(table.view):
        if row.group != group:
            group = row.group
            entries.append(group)
        if number == table.cursor:
            here = len(entries)
        entries.append(row)
    return entries, here


def _group_line(group: str, cells: int, glyphs: Glyphs) -> Line:
    title = f"{glyphs.rule} {group} "
    return ((clip(title + glyphs.rule * max(cells - len(title), 0), cells), "dim"),)


def _row_line(table: SettingTable, row: SettingRow, cells: int, glyphs: Glyphs) -> Line:
    at_cursor = row is table.selected
    _, name, value, when, advice, staged = (room for _, room in (_ROOMY if cells >= _ROOMY_FROM else _NARROW))
    new: Line = ((_column(f"{glyphs.arrow} {row.staged}" if row.staged else "", staged), _staged_style(row)),)
    if at_cursor and table.editing is not None:
        typed = table.editing.line(staged - 1)
        new = (*typed, (" " * (staged - sum(len(text) for text, _ in typed)), PLAIN))
    remark_text, style = remark_of(row, glyphs)
    remark = _remark_cells(cells)
    return fit(
        (
            (f"{glyphs.pointer} " if at_cursor else "  ", "key"),
            (_column(row.name, name), "cursor" if at_cursor else PLAIN),
            (_column(row.parameter.shown or "''", value), "critical" if row.risk_now else "strong"),
            (_column("waits" if row.parameter.pending_restart else row.when, when), _when_style(row)),
            (_column(row.advised, advice), "label"),
            *new,
            (clauses(remark_text, remark, glyphs.ellipsis) if remark else "", style),
        ),
        cells,
    )


def _when_style(row: SettingRow) -> str:
    return PLAIN if row.when == LIVE and not row.parameter.pending_restart else "warning"


def _staged_style(row: SettingRow) -> str:
    return "critical" if row.risk else "event-parameter"


def _remark_cells(cells: int) -> int:
    """Return the room for remarks; 0 where it would be too little (the selected row's remark stands below)."""
    room = cells - sum(cells_taken for _, cells_taken in (_ROOMY if cells >= _ROOMY_FROM else _NARROW))
    return room if room >= _LEAST_REMARK else 0


def remark_of(row: SettingRow, glyphs: Glyphs) -> tuple[str, str]:
    """Return the most important remark on a row, in a few words, and its style."""
    risk = row.risk or row.risk_now
    if risk is not None:
        return f"{glyphs.warning} {risk.words}", "critical"
    if row.parameter.pending_restart:
        return "another value waits for a restart", "warning"
    if row.staged is not None and row.when == "restart":
        return "waits for a restart", "warning"
    if row.next_load is not None:
        return f"next load: {row.next_load}", "event-load"
    if row.change is not None:
        return changed_words(row.change), "event-parameter"
    if any(risk.loses_data for risk in RISKS.get(row.name, ())):
        return f"{glyphs.warning} trades durability", "warning"
    root = "root; " if row.setting is not None and not row.setting.writable else ""
    if row.advised and row.advice is not None:
        return root + row.advice.because, "dim"
    return root + row.knob.why, "dim"


def choice_remark(row: SettingRow, word: str) -> tuple[str, str]:
    """Return the remark beside a value to choose, and its style."""
    risk = row.risk_of(word)
    meaning = dict(row.knob.special).get(word, "")
    marks = [mark for mark, holds in (
        ("in force", word == row.parameter.setting), ("default", word == row.parameter.boot_val),
        ("advised", word == row.advised),
    ) if holds]  # fmt: skip
    text = "; ".join([*marks, *([meaning] if meaning else []), *([] if risk is None else [risk.words])])
    return text, "dim" if risk is None else "critical"


def changed_words(change: Change) -> str:
    """Return who changed it, from which value, and whether the change stays."""
    unconfirmed = ", pending" if not change.kept else ""
    reason = f": {change.reason}" if change.reason else ""
    return one_line(f"was {value_before(change) or 'default'}, set by {change.by or 'us'}{unconfirmed}{reason}", 300)


def word_lines(row: SettingRow | None, cells: int, glyphs: Glyphs, most: int, lost: str = "") -> list[Line]:
    """Return purpose, cost and advice of the selected row; the most important first, so many lines at most.

    Args:
        row: The selected one.
        cells: Width.
        glyphs: Characters.
        most: Lines.
        lost: Loss that the staged value can cause, and whether it is locked.
    """
    if row is None:
        return []
    advice = row.advice
    advised = "" if advice is None or advice.value is None else f"{advice.value}. {advice.because}"
    facts = [
        ("beware", lost or row.warning, "critical" if lost else "warning"),
        ("changed", "" if row.change is None else changed_words(row.change), "event-parameter"),
        ("why", row.knob.why, PLAIN),
        ("costs", row.knob.trades, PLAIN),
        ("advice", advised, PLAIN),
        ("range", range_of(row.parameter), PLAIN),
        ("set by", source_of(row.parameter) if row.setting is None else "", PLAIN),
        ("at boot", "" if row.setting is None else after_reboot(row.setting.after_reboot), PLAIN),
    ]
    lines = [line for label, text, style in facts if text for line in labelled(label, text, cells, style, _LABELS)]
    if len(lines) > most:
        lines = [*lines[: max(most - 1, 0)], ((f"{glyphs.ellipsis} ? details", "dim"),)][:most]
    return lines


def after_reboot(settings: AfterReboot) -> str:
    """Return the value that the machine starts with, and the file that sets it."""
    if not settings.assignments:
        text = "the kernel's own default"
    else:
        wins = settings.assignments[-1]
        text = f"{wins.value} ({wins.file}, line {wins.line})"
    return text + (f"; not read: {', '.join(settings.not_read)}" if settings.not_read else "")


def _column(text: str, cells: int) -> str:
    """Return a text cut so that it does not touch the next column."""
    return f"{ellipsized(text, cells - 1, CUT)} "


# Everything known of one row: what it does, what it may be, who set it, what is advised and what others say. Pure.

_LABEL_CELLS: Final = 13
_START: Final = "a starting point, not measured on this server"

Said = Iterator[tuple[str, str, str]]
"""Label, text, style."""


def parameter_lines(row: SettingRow, cells: int, glyphs: Glyphs) -> list[Line]:
    """Return everything known of a row.

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


def _present(row: SettingRow, glyphs: Glyphs) -> Said:
    parameter, setting = row.parameter, row.setting
    yield "value", parameter.shown or "''", "critical" if row.risk_now else "strong"
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
    yield "accepts", range_of(parameter), PLAIN
    yield "steps", f" {glyphs.separator} ".join(row.knob.steps) or "each doubles or halves", PLAIN
    yield "special", "; ".join(f"{value}: {meaning}" for value, meaning in row.knob.special), PLAIN
    yield "changed", "" if row.change is None else changed_words(row.change), "event-parameter"


def _of_machine(setting: SystemSetting) -> Said:
    yield "kernel file", setting.path, PLAIN
    yield "after reboot", after_reboot(setting.after_reboot), PLAIN
    text = "live, by this program" if setting.writable else "live, by root: a shows the commands to paste"
    yield "takes effect", text, PLAIN


def _worth(row: SettingRow, glyphs: Glyphs) -> Said:
    knob = row.knob
    yield "why", knob.why, PLAIN
    yield "costs", knob.trades, PLAIN
    yield "beware", knob.warning, "warning"
    for risk in RISKS.get(row.name, ()):
        yield "risk", f"{risk.values} {risk.words}", "critical"
    yield "shows in", f" {glyphs.separator} ".join(knob.panes), PLAIN
    yield "related", ", ".join(knob.moves_with), PLAIN


def _advised(row: SettingRow, glyphs: Glyphs) -> Said:
    advice = row.advice
    if advice is None:
        yield "advice", "none: no rule covers this parameter", "dim"
        return
    if advice.value is None:
        yield "advice", f"no value: {advice.because}", "dim"
    else:
        yield "advice", f"{advice.value}   ({_START})", "strong"
        yield "because", advice.because, PLAIN
    if advice.low or advice.high:
        yield "search", f"from {advice.low or glyphs.ellipsis} to {advice.high or glyphs.ellipsis}", PLAIN
    yield (
        "other tools",
        f" {glyphs.separator} ".join(f"{opinion.who} {opinion.value}" for opinion in advice.opinions),
        PLAIN,
    )
