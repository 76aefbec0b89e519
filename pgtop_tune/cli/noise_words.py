"""The noise floor in words: what was measured, and what difference can be seen in which time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from pgtop_tune import units
from pgtop_tune.compare.noise.cells import CellOfRuns
from pgtop_tune.compare.noise.fingerprint import LoadFingerprint
from pgtop_tune.compare.reports.tables import MISSING, Table, as_markdown, as_text
from pgtop_tune.compare.reports.written import escaped
from pgtop_tune.compare.statistics.switchback import FEWEST_PAIRS, MOST_PAIRS, PairedVerdict
from pgtop_tune.experiment.noise_floor import PAIR_S, Floor, Visible, before_after_half, visible
from pgtop_tune.model.run_json import plain
from pgtop_tune.safe_text import one_line

FORMAT: Final = "pgtop-tune-noise-floor/1"
_FOREIGN: Final = 5.0
"""Per cent of the CPU time from which on other programs are warned of."""
_CLAIMS: Final = (PairedVerdict.BETTER, PairedVerdict.WORSE)


class MeasuredNoise(Struct, frozen=True):
    """What `experiment noise` found.

    Attributes:
        load: What it belongs to; None where the machine is not known.
        cell: The separate runs; None without any.
        run_s: Length of a run.
        not_kept: Why it is not kept, "" when it is.
    """

    load: LoadFingerprint | None
    floor: Floor
    cell: CellOfRuns | None
    run_s: int
    not_kept: str

    @property
    def visible(self) -> tuple[Visible, ...]:
        """What it takes to see differences."""
        return visible(self.floor.kept, None if self.cell is None else self.cell.noise)


def _measured(found: MeasuredNoise) -> Table:
    floor, cell = found.floor.kept, found.cell
    rows = []
    if cell is not None:
        said = f"{cell.runs} runs of {found.run_s} s, mean {MISSING if cell.tps is None else f'{cell.tps:.1f}'} tps"
        rows.append(("between runs, sd", MISSING if cell.sd is None else f"{100 * cell.sd:.1f} %", said))
    rows += [
        ("of a pair of 10 s blocks, sd", f"{100 * floor.pair_sd:.1f} %", _pair_words(found.floor)),
        ("autocorrelation time", f"{floor.autocorrelation_s:.1f} s", f"over {floor.seconds:.0f} s behind the warm-up"),
        ("checkpoints", *_checkpoint_words(found.floor)),
        ("other programs", MISSING if floor.foreign_cpu is None else f"{floor.foreign_cpu:.0f} %", "of the CPU time"),
    ]
    return Table(("noise", "", ""), tuple(rows), frozenset({1}))


def _pair_words(floor: Floor) -> str:
    paired = floor.paired
    left_out = f", {floor.left_out} left out at checkpoints" if floor.left_out else ""
    if paired.low is None or paired.high is None:
        return f"{paired.pairs} pairs{left_out}"
    between = f"{100 * paired.low:+.1f} … {100 * paired.high:+.1f} %"
    return f"{paired.pairs} pairs{left_out}; judged as A/A: {paired.verdict} ({between})"


def _checkpoint_words(floor: Floor) -> tuple[str, str]:
    period, depth = floor.kept.checkpoint_period_s, floor.kept.checkpoint_depth
    every = MISSING if period is None else f"{period:.0f} s"
    if depth is None:
        return every, "none wrote long enough to be seen" if period is None else "from begin to begin"
    return every, f"throughput {100 * depth:.1f} % lower while one writes"


def _seen(found: MeasuredNoise) -> Table:
    rows = [
        (
            f"{100 * each.share:g} %",
            _pairs(each),
            _runs(each, found) if found.cell is not None else MISSING,
            "yes" if each.before_after else "no",
        )
        for each in found.visible
    ]
    heads = ("difference", "switchback", "separate runs", "before/after in 8 min")
    return Table(heads, tuple(rows), frozenset({0}))


def _pairs(each: Visible) -> str:
    if each.pairs is None:
        return f"more than {MOST_PAIRS} pairs, the most"
    return f"{units.duration(each.pairs * PAIR_S)} ({each.pairs} pairs)"


def _runs(each: Visible, found: MeasuredNoise) -> str:
    if each.runs is None:
        return "more than 100 a side"
    return f"{units.duration(2 * each.runs * found.run_s)} ({each.runs} a side)"


def _notes(found: MeasuredNoise) -> list[str]:
    floor = found.floor
    notes = [f"before/after sees ±{100 * before_after_half(floor.kept.variance):.1f} % at its last look"]
    if floor.paired.pairs < FEWEST_PAIRS:
        notes.append(f"{floor.paired.pairs} pairs are few: their deviation is mostly assumed (2 %); measure longer")
    if floor.paired.verdict in _CLAIMS:
        notes.append("A/A was claimed to differ although nothing was changed: blocks of this load are not alike")
    if floor.kept.steady is False:
        notes.append("throughput never got steady: differences are seen later than said here")
    foreign = floor.kept.foreign_cpu
    if foreign is not None and foreign >= _FOREIGN:
        notes.append(f"other programs took {foreign:.0f} % of the CPU time: their noise is in these figures")
    notes += [] if found.cell is None else found.cell.notes
    kept = f"not kept: {found.not_kept}" if found.not_kept else "kept: later comparisons and repeats here use it"
    return [one_line(note, 300) for note in (*notes, kept)]


def _heading(found: MeasuredNoise) -> str:
    load = found.load
    return "noise floor" if load is None else one_line(f"noise floor of {load.title}, on {load.machine}")


def text(found: MeasuredNoise) -> list[str]:
    """Two tables and what a reader must know."""
    tables = (as_text(_measured(found)), "", as_text(_seen(found)))
    return [_heading(found), "", *tables, "", *(f"note: {note}" for note in _notes(found))]


def markdown(found: MeasuredNoise) -> list[str]:
    """The same for a report."""
    tables = (as_markdown(_measured(found)), "", as_markdown(_seen(found)))
    return [f"## {escaped(_heading(found))}", "", *tables, "", *(f"- {escaped(note)}" for note in _notes(found))]


def as_json(found: MeasuredNoise) -> list[str]:
    """One object."""
    cell = found.cell
    told = {
        "format": FORMAT,
        "load": plain(found.load),
        "floor": plain(found.floor.kept),
        "a_a": plain(found.floor.paired) | {"left_out": found.floor.left_out},
        "runs": None if cell is None else plain(cell),
        "run_s": found.run_s,
        "visible": [
            plain(each) | {"switchback_s": None if each.pairs is None else each.pairs * PAIR_S}
            for each in found.visible
        ],
        "before_after_half": before_after_half(found.floor.kept.variance),
        "doubts": list(found.floor.doubts),
        "notes": _notes(found),
        "kept": not found.not_kept,
    }
    return [json.dumps(told, ensure_ascii=False)]


WRITERS: Final[Mapping[str, Callable[[MeasuredNoise], list[str]]]] = {
    "text": text,
    "markdown": markdown,
    "json": as_json,
}
