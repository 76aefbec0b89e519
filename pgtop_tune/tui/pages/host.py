"""Page 7: the machine the server runs on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import UNKNOWN, axis_label, byte_rate, count, mean, ms, percent, size, unit_of
from pgtop_tune.metrics import host as metrics
from pgtop_tune.metrics import host_details as details
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval, Keyed, Metric
from pgtop_tune.metrics.host_values import untold
from pgtop_tune.model.absence import NOT_YET, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import HostFacts, HostSample, MemorySample
from pgtop_tune.runtime.history import Charted
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.host import WORDS_FROM, gauge_phrase, memory_gauge
from pgtop_tune.tui.pages.host_tables import DISKS, FILE_SYSTEMS, LIMITS, NETWORK, TABLES, metric_rows
from pgtop_tune.tui.pages.listing import first_view, tables_below
from pgtop_tune.tui.pages.page import Page, PageTable, section_rows, word
from pgtop_tune.tui.widgets.chart import (
    Area,
    Columns,
    CurveEnd,
    Level,
    TimeAxis,
    ends_with_room,
    filled_lines,
    nice_ceiling,
)
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line, Span, bar, fit, heat_strip, heat_style
from pgtop_tune.tui.widgets.phrase import Phrase, absence, alarm, fitting, head, labelled, padded
from pgtop_tune.tui.widgets.time_axis import SPARK_ROWS, axis_line, chart_marks, time_axis

if TYPE_CHECKING:
    from pgtop_tune.tui.dialogs.help import DescribedNumber

# The machine over time: CPU by kind, throughput and await of the data disk, memory, pressure, one below the other.

_LEAST: Final = 4
"""Rows of a chart with its head."""
_NAME: Final = 20


class _Curve(Struct, frozen=True):
    label: str
    metric: Charted
    style: str


class _Chart(Struct, frozen=True):
    """A chart of the page.

    Attributes:
        title: Of it.
        curves: The first is filled, the others stand over it; of a stack each stands on those before.
        form: Form of labels and figures.
        stacked: Whether they add up.
        of_disk: Whether the title names the disk.
        unit: Unit of the scale's round numbers.
        most: The value at the upper edge; None for what there was.
    """

    title: str
    curves: tuple[_Curve, ...]
    form: Callable[[float | None], str]
    stacked: bool = False
    of_disk: bool = False
    in_bytes: bool = False
    most: Callable[[Interval], float | None] = lambda interval: None


def _whole_memory(interval: Interval) -> float | None:
    memory = interval.now(sections.memory)
    return None if memory is None else float(memory.total_bytes)


_FIGURE: Final = 5
_CPU_STYLES: Final = ("cpu", "wait-io", "wait-lwlock", "critical")
_CHARTS: Final = (
    _Chart(
        title="CPU %", form=percent, stacked=True, most=lambda interval: 100.0,
        curves=tuple(
            _Curve(metric.title, metric, style)
            for metric, style in zip(details.CHARTED_CPU, _CPU_STYLES, strict=True)
        ),
    ),
    _Chart(
        title="{unit}/s of", form=mean, of_disk=True, in_bytes=True,
        curves=(
            _Curve("write", details.DATA_DISK_WRITE, "series-1"), _Curve("read", details.DATA_DISK_READ, "series-2"),
        ),
    ),
    _Chart(
        title="await ms of", form=ms, of_disk=True,
        curves=(
            _Curve("write", details.DATA_WRITE_AWAIT, "series-1"), _Curve("read", details.DATA_READ_AWAIT, "series-2"),
        ),
    ),
    _Chart(
        title="pressure %", form=percent,
        curves=tuple(
            _Curve(label, metric, style)
            for label, metric, style in zip(
                ("cpu", "io", "mem"), details.CHARTED_PRESSURE, ("cpu", "wait-io", "wait-lock"), strict=True
            )
        ),
    ),
    _Chart(
        title="memory, {unit}", form=mean, stacked=True, most=_whole_memory, in_bytes=True,
        curves=tuple(
            _Curve(metric.title, metric, style)
            for metric, style in zip(details.CHARTED_MEMORY, ("series-5", "series-3"), strict=True)
        ),
    ),
)  # fmt: skip
"""The most important first: as many as there is room for."""


def history_axis(session: Session, width: int) -> TimeAxis:
    """Return the time axis that all histories share."""
    return time_axis(session, width, SPARK_ROWS + 1)


def history_lines(session: Session, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Return exactly so many lines: charts with a head each, times of day below the last."""
    interval = session.interval
    count = min((height - 1) // _LEAST, len(_CHARTS))
    if interval is None or count < 1:
        return [((" " * width, PLAIN),)] * height
    axis = history_axis(session, width)
    lines: list[Line] = []
    for index, chart in enumerate(_CHARTS[:count]):
        rows = (height - 1) * (index + 1) // count - (height - 1) * index // count
        lines += _drawn(chart, session, interval, axis, rows, glyphs)
    return [*lines, axis_line(session, axis, glyphs)]


def _drawn(
    chart: _Chart, session: Session, interval: Interval, axis: TimeAxis, rows: int, glyphs: Glyphs
) -> list[Line]:
    values = [axis.means_of(session, curve.metric) for curve in chart.curves]
    if chart.stacked:
        stacked: list[Columns] = []
        for series in values:
            stacked.append(_on_top(stacked[-1], series) if stacked else series)
        areas = [
            Area(series, curve.style, index % 4)
            for index, (series, curve) in enumerate(zip(stacked, chart.curves, strict=True))
        ]
        levels: list[Level] = []
    else:
        areas = [Area(values[0], chart.curves[0].style)]
        # A line at zero would hide the foot of the area; its figure stands in the head.
        levels = [
            Level([value or None for value in series], curve.style)
            for series, curve in zip(values[1:], chart.curves[1:], strict=True)
        ]
        stacked = list(values)
    highest = max((value for series in stacked for value in series if value is not None), default=0.0)
    disk = details.data_disk(interval) if chart.of_disk else None
    most = chart.most(interval)
    per_unit, unit = unit_of(max(most or 0.0, highest)) if chart.in_bytes else (1.0, "")
    title = chart.title.format(unit=unit)
    title = f"{title} {one_line(disk, _NAME)}" if disk else title.removesuffix(" of")

    def text_of(value: float | None) -> str:
        return chart.form(None if value is None else value / per_unit)

    ends = [
        CurveEnd(curve.label, text_of(curve.metric(interval)), curve.style, series, index)
        for index, (curve, series) in enumerate(zip(chart.curves, stacked, strict=True))
    ]
    beside = ends_with_room(ends, rows - 1)
    figures = [
        Phrase(labelled(end.label, end.text.rjust(_FIGURE), end.style), end.rank) for end in ends if end not in beside
    ]
    top = most or nice_ceiling(highest / per_unit) * per_unit
    return [
        head(((title, "title"),), axis.width + axis.beside, glyphs, figures),
        *filled_lines(
            areas, levels, axis=axis, height=rows - 1, top=top, unit_format=text_of, glyphs=glyphs,
            marks=chart_marks(session, axis), ends=beside,
        ),
    ]  # fmt: skip


def _on_top(below: Columns, values: Sequence[float | None]) -> Columns:
    return [low if value is None else (low or 0.0) + value for low, value in zip(below, values, strict=True)]


_LABEL: Final = 7
_CORE: Final = 20
"""Cells of a core with its bar."""
_GAP: Final[Span] = ("  ", PLAIN)
_APART: Final[Span] = (" ", PLAIN)
Form = Callable[[float | None], str]
_FEWEST, _MOST = 6, 14
_FIXED: Final = 10
"""Lines beside notes and cores."""
HALVES_FROM: Final = 160
"""Cells from which on histories stand beside the figures,"""
_MOST_HALVES: Final = 31
"""in at most so many lines."""
_SMALL: Final = (FILE_SYSTEMS, NETWORK, DISKS)
_SHARE: Final = 3
"""The summary takes at most every third line."""

_CPU: Final = (
    metrics.CPU_USER, metrics.CPU_SYSTEM, metrics.CPU_IOWAIT, metrics.CPU_STEAL, metrics.CPU_IDLE, details.CPU_NICE,
    details.CPU_GUEST, details.CPU_HARD, details.CPU_SOFT,
)  # fmt: skip
_WORK: Final = {
    metrics.RUN_QUEUE: (4, ""), metrics.BLOCKED_TASKS: (3, ""), metrics.LOAD_1M: (5, ""), metrics.LOAD_5M: (5, ""),
    metrics.LOAD_15M: (5, ""), metrics.CONTEXT_SWITCHES: (5, "/s"), details.INTERRUPTS: (5, "/s"),
}  # fmt: skip
"""Cells and unit of each."""
_MEMORY: Final = (
    metrics.MEMORY_TOTAL, metrics.MEMORY_USED, metrics.MEMORY_CACHE, metrics.MEMORY_ARC, metrics.MEMORY_DIRTY,
    metrics.MEMORY_WRITEBACK, metrics.MEMORY_AVAILABLE, metrics.MEMORY_FREE,
)  # fmt: skip
_PROMISED: Final = (metrics.MEMORY_SHARED, metrics.PAGE_TABLES, metrics.COMMITTED, details.COMMIT_LIMIT)
_SWAPPED: Final = (("used", metrics.SWAP_USED),)
_SWAPPING: Final = (("in", metrics.SWAP_IN), ("out", metrics.SWAP_OUT))
_STALLS: Final = (
    ("cpu", metrics.PSI_CPU_SOME), ("io", metrics.PSI_IO_SOME), ("io full", metrics.PSI_IO_FULL),
    ("mem", metrics.PSI_MEMORY_SOME), ("mem full", metrics.PSI_MEMORY_FULL),
)  # fmt: skip

_TRANSPARENT: Final = (("anon", metrics.ANON_HUGE), ("shmem", details.SHMEM_HUGE), ("file", details.FILE_HUGE))


def summary_rows(width: int, height: int) -> int:
    """Return six lines on a small screen, a third of a large one up to fourteen, half of a wide one with histories."""
    if width >= HALVES_FROM:
        return max(height // 2, _FEWEST)
    return min(max(height // _SHARE, _FEWEST), _MOST)


def summary_needs(session: Session, width: int) -> int:
    """Return a line each for names, kinds of CPU and the rest, one for notes, and as many as the cores fill."""
    host = NOT_YET if session.now is None else session.now.host
    if session.now is None or isinstance(host, Unavailable):
        return 1
    if width >= HALVES_FROM:
        return _MOST_HALVES
    cpu = sections.cpu(session.now)
    cores = 0 if isinstance(cpu, Unavailable) else len(cpu.cores)
    return _FIXED + len(_notes(host, width)) + len(_without(session.now, width)) + -(-cores // max(width - _LABEL, 1))


def halves(session: Session, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Return the figures; on a wide screen in the left half, with tables as far as there is room, and the histories in
    the right one.
    """
    if width < HALVES_FROM or session.now is None or isinstance(session.now.host, Unavailable):
        return summary_lines(session, width, height, glyphs)
    left_width = _left_half(width)
    summary = _summary(session, left_width, height, glyphs)[:height]
    figures = [
        *summary,
        *tables_below(_SMALL, lambda table: table.rows(session), first_view, left_width, height - len(summary), glyphs),
    ]
    charts = history_lines(session, width - left_width - len(_APART[0]), height, glyphs)
    return [(*padded(line, left_width), _APART, *chart) for line, chart in zip(figures, charts, strict=True)]


def _left_half(width: int) -> int:
    """Return cells of the figures; beside them, a blank apart, are the histories."""
    return width // 2 - 1


def moment_at(session: Session, size: tuple[int, int], at: tuple[int, int]) -> float | None:
    """Return the moment that a cell of the histories shows; see `Page.moment_at`."""
    width, _ = size
    if width < HALVES_FROM or session.now is None or isinstance(session.now.host, Unavailable):
        return None
    left_width = _left_half(width)
    return history_axis(session, width - left_width - len(_APART[0])).moment_of(at[0] - left_width - len(_APART[0]))


def summary_lines(session: Session, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Return CPU by kind, a heat strip of all cores, memory, huge pages, pressure, frequency, limits, and their source.

    The most important lines first; the strip takes the lines that are left, so that 384 cores have a cell each where
    there is room.
    """
    return _filled(_summary(session, width, height, glyphs), width, height)


def drawn_above(width: int) -> Sequence[PageTable]:
    """Return the tables that need few lines, which stand under the figures where these have a half."""
    return _SMALL if width >= HALVES_FROM else ()


def _summary(session: Session, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    frame, interval = session.now, session.interval
    host = NOT_YET if frame is None else frame.host
    if frame is None or interval is None or isinstance(host, Unavailable):
        reason = host if isinstance(host, Unavailable) else NOT_YET
        return [_line("host", absence(reason), width)]
    cpu, memory = sections.cpu(frame), sections.memory(frame)
    available = _told(frame)
    parts: list[tuple[str, object, Callable[[Any], list[Phrase]]]] = [
        (
            "MEM",
            memory,
            lambda sample: [
                *([memory_gauge(sample, frame, interval, width, glyphs)] if width >= WORDS_FROM else []),
                *_numbers(available(_MEMORY), interval, size, 7),
            ],
        ),
        ("huge", untold(frame, metrics.HUGE_TOTAL.id) or memory, lambda sample: _huge(sample, interval)),
        ("psi %", host.pressure, lambda _: _titled(_STALLS, interval, percent, 3)),
        (
            "swap",
            memory,
            lambda _: [*_titled(_SWAPPED, interval, size, 7), *_titled(_SWAPPING, interval, byte_rate, 9)],
        ),
        ("work", cpu, lambda _: [_number(row, interval, count, *_WORK[row]) for row in available(_WORK)]),
        ("limit", host.cgroup, lambda _: _limits(interval)),
        ("alloc", memory, lambda _: _numbers(available(_PROMISED), interval, size, 7)),
        ("freq", host.frequency, lambda _: [_frequency(frame, interval)]),
    ]
    if not isinstance(host.facts, Unavailable) and host.facts.untold:
        # Lines with numbers first: there may be no room for all.
        parts.sort(key=lambda part: isinstance(part[1], Unavailable))
    lines = [_said(*part, width) for part in parts]
    numbers = sum(not isinstance(part[1], Unavailable) for part in parts)
    without = _without(frame, width)
    lower_lines = [*lines[:numbers], *without, *lines[numbers:]] if without else lines
    kinds = _said("CPU %", cpu, lambda _: _kinds(available(_CPU), interval, width, glyphs), width)
    room = max(height - 2 - len(lower_lines), 1)
    strips = [] if isinstance(cpu, Unavailable) else _strips(frame, interval, width, room, glyphs)
    above = [_source(host, width), *_notes(host, width), kinds, *strips]
    return [*above, *lower_lines]


def _told(frame: Frame) -> Callable[[Iterable[Metric]], list[Metric]]:
    """Leave out the figures that the source does not have: they are named together, and `?` says why.

    The cache of ZFS stands there only where there is ZFS.
    """
    memory = sections.memory(frame)
    without_zfs = isinstance(memory, Unavailable) or memory.arc_bytes is None
    return lambda rows: [
        row for row in rows if untold(frame, row.id) is None and not (without_zfs and row is metrics.MEMORY_ARC)
    ]


def _without(frame: Frame, width: int) -> list[Line]:
    """Return the figures of these lines and of the tables that the source does not have; none where it has all."""
    facts = sections.machine(frame)
    if isinstance(facts, Unavailable) or not facts.untold:
        return []
    missing = {untold_figure.metric for untold_figure in facts.untold}
    columns = [column.title for table in TABLES for column in table.columns if column.metric in missing]
    titles = dict.fromkeys([row.title for row in _SINGLE if row.id in missing] + columns)
    text = f"unavailable from {facts.source} (help shows why): {', '.join(titles)}"
    return [_line("n/a", fit(((text, "dim"),), width - _LABEL), width)]


def _filled(lines: list[Line], width: int, height: int) -> list[Line]:
    return (lines + [padded((), width)] * (height - len(lines)))[:height]


def _line(label: str, content: Line, width: int) -> Line:
    return padded(((f" {label:<{_LABEL - 1}}", "title"), *content), width)


def _said(label: str, section: object, draw: Callable[[Any], list[Phrase]], width: int) -> Line:
    """Return the section's phrases, or why it is not there."""
    phrases = [Phrase(absence(section))] if isinstance(section, Unavailable) else draw(section)
    return _line(label, fitting(phrases, width - _LABEL, _GAP), width)


def _numbers(rows: Sequence[Metric], interval: Interval, form: Form, cells: int) -> list[Phrase]:
    return [_number(row, interval, form, cells) for row in rows]


def _kinds(rows: Sequence[Metric], interval: Interval, width: int, glyphs: Glyphs) -> list[Phrase]:
    """Return a gauge of CPU time by kind and the figure of each, behind its filling where it has one."""
    styles = zip(details.CHARTED_CPU, glyphs.densities, _CPU_STYLES, strict=True)
    fillings = {metric.id: (filling, style) for metric, filling, style in styles if metric in rows}
    parts = [(metric(interval), fillings[metric.id]) for metric in details.CHARTED_CPU if metric.id in fillings]
    figures = [
        replace(figure, line=(fillings[row.id], *figure.line)) if row.id in fillings else figure
        for row, figure in zip(rows, _numbers(rows, interval, percent, 3), strict=True)
    ]
    return [gauge_phrase(parts, metrics.CPU_BUSY(interval), width, glyphs, metrics.CPU_BUSY.critical), *figures]


def _titled(rows: Sequence[tuple[str, Metric]], interval: Interval, form: Form, cells: int) -> list[Phrase]:
    """Return metrics under shorter titles, where the label of the line says the rest."""
    return [
        Phrase(labelled(title, form(value := row(interval)).rjust(cells), alarm(value, row.critical)), 1)
        for title, row in rows
    ]


def _number(metric: Metric, interval: Interval, form: Form, cells: int, unit: str = "") -> Phrase:
    value = metric(interval)
    return Phrase(labelled(metric.title, form(value).rjust(cells), alarm(value, metric.critical), unit), 1)


def _source(host: HostSample, width: int) -> Line:
    facts = host.facts
    if not isinstance(facts, HostFacts):
        return _line("host", absence(facts), width)
    phrases = [
        Phrase(((one_line(facts.hostname, 40), "strong"),)),
        Phrase(labelled("source:", facts.source), 1),
        Phrase(((_system(facts.kernel), PLAIN),), 2),
        Phrase(((_cores(facts, host), PLAIN),), 3),
    ]
    return _line("host", fitting(phrases, width - _LABEL, _GAP), width)


def _cores(facts: HostFacts, host: HostSample) -> str:
    """Return cores of the machine, and of them those that the server may use where these are fewer."""
    used = facts.cpu_count if isinstance(host.cgroup, Unavailable) else host.cgroup.cpus_of(facts.cpu_count)
    return f"{facts.cpu_count} cores" + (f", the server may use {used}" if used < facts.cpu_count else "")


def _system(kernel: str) -> str:
    """Return a release alone is one of Linux; others say their name."""
    release = one_line(kernel, 40)
    return f"Linux {release}" if release[:1].isdigit() else release


def _notes(host: HostSample, width: int) -> list[Line]:
    """Return mounts that do not answer and directories whose disk is not known, on one line; none when all is well."""
    silent = () if isinstance(host.file_systems, Unavailable) else host.file_systems.unanswered
    unplaced = () if isinstance(host.disks, Unavailable) else host.disks.unplaced
    notes = "; ".join(one_line(text, 160) for text in (*silent, *unplaced))
    return [_line("note", fit(((notes, "warning"),), width - _LABEL), width)] if notes else []


def _strips(frame: Frame, interval: Interval, width: int, rows: int, glyphs: Glyphs) -> list[Line]:
    """Return a cell per core on as many lines as there are, core 0 first; folded when even that is not enough."""
    cpu = sections.cpu(frame)
    if isinstance(cpu, Unavailable):
        return []
    shares = metrics.CORE_BUSY(interval)
    busy = [shares[core.cpu] / 100.0 if core.cpu in shares else None for core in cpu.cores]
    cells = width - _LABEL
    across = max(cells // _CORE, 1)
    if -(-len(busy) // across) <= rows:
        return _bars([core.cpu for core in cpu.cores], busy, across, width, glyphs)
    needed = min(-(-len(busy) // cells), rows)
    per_line = -(-len(busy) // max(needed, 1))
    parts: Sequence[Sequence[float | None]] = [
        busy[start : start + per_line] for start in range(0, len(busy), per_line)
    ]
    return [_line("" if index else "cores", heat_strip(part, cells, glyphs), width) for index, part in enumerate(parts)]


def _bars(cores: Sequence[str], busy: Sequence[float | None], across: int, width: int, glyphs: Glyphs) -> list[Line]:
    """Return a bar with its number and figure per core."""
    lines = []
    for start in range(0, len(cores), across):
        spans: list[Span] = []
        for core, share in zip(cores[start : start + across], busy[start : start + across], strict=True):
            text = percent(None if share is None else 100.0 * share)
            spans += [
                (f"{_number_of(core):>3} ", "label"),
                (bar(share, _CORE - 10, glyphs), heat_style(share)),
                (f"{text:>4}  ", PLAIN),
            ]
        lines.append(_line("" if start else "cores", tuple(spans), width))
    return lines


def _number_of(core: str) -> str:
    return core.removeprefix("cpu")


def _huge(memory: MemorySample, interval: Interval) -> list[Phrase]:
    used = metrics.HUGE_USED(interval)
    pools = [
        Phrase(
            (
                *labelled(
                    _page_size(pool.page_bytes), f"{count(used[pool.page_bytes])}/{count(pool.total)}", PLAIN, " used"
                ),
                *labelled(" reserved", str(pool.reserved)),
                *labelled(" surplus", str(pool.surplus)),
            ),
            index,
        )
        for index, pool in enumerate(memory.huge_pages)
    ]
    modes = "/".join(one_line(mode, 14) or UNKNOWN for mode in (memory.thp_mode, memory.thp_defrag))
    return [
        *pools,
        Phrase(labelled("thp", modes), 1),
        *(Phrase(labelled(label, size(row(interval))), 1) for label, row in _TRANSPARENT),
    ]


def _page_size(page_bytes: int) -> str:
    """Return a page size without decimals: 2 MB, 1 GB, 64 kB."""
    return axis_label(size(page_bytes))


def _frequency(frame: Frame, interval: Interval) -> Phrase:
    sample = sections.frequency(frame)
    policies = () if isinstance(sample, Unavailable) else sample.policies
    shares = details.FREQUENCY_SHARE(interval).values()
    governors = ", ".join(sorted({one_line(policy.governor, 20) for policy in policies}))
    mean = details.FREQUENCY(interval)
    slowest = f"{min(shares):.0f}" if shares else UNKNOWN
    return Phrase(
        (
            *labelled("mean", UNKNOWN if mean is None else f"{mean:.0f}", PLAIN, " MHz"),
            *labelled("  slowest core at", slowest, PLAIN, " % of its maximum"),
            *labelled("  governor", governors or UNKNOWN),
        )
    )


def _limits(interval: Interval) -> list[Phrase]:
    memory, most = details.GROUP_MEMORY(interval), details.GROUP_MEMORY_MAX(interval)
    cpus = details.GROUP_CPUS(interval)
    throttled, kills = details.GROUP_THROTTLED(interval), details.GROUP_OOM_KILLS(interval)
    return [
        Phrase(labelled("memory", size(memory) + (", no limit" if most is None else f" of {size(most)}"))),
        Phrase(labelled("cpus", "no limit" if cpus is None else count(cpus))),
        Phrase(
            labelled("throttled", percent(throttled), alarm(throttled, details.GROUP_THROTTLED.critical), " %")
            if throttled is not None
            else ()
        ),
        Phrase(labelled("oom kills", count(kills), alarm(kills, details.GROUP_OOM_KILLS.critical)), 1),
    ]


_SINGLE: Final[tuple[Metric | Keyed[Any], ...]] = (
    *_CPU, *_WORK, *_MEMORY, *_PROMISED, *(row for _, row in (*_SWAPPED, *_SWAPPING)), metrics.OTHER_PROGRAMS,
)  # fmt: skip
NUMBERS: Final[tuple[DescribedNumber, ...]] = (
    *_CPU, metrics.CORE_BUSY, metrics.OTHER_PROGRAMS, *_MEMORY, *_PROMISED, *metrics.HUGE_PAGE_METRICS,
    details.HUGE_SURPLUS,
    *(metric for _, metric in (*_TRANSPARENT, *_STALLS, *_SWAPPED, *_SWAPPING)), *_WORK,
    details.FREQUENCY, details.FREQUENCY_SHARE, details.GROUP_MEMORY, details.GROUP_MEMORY_MAX, details.GROUP_CPUS,
    details.GROUP_THROTTLED, details.GROUP_OOM_KILLS,
)  # fmt: skip
FIGURES: Final = PageTable(
    id="figures",
    title="figures",
    columns=(
        word("id", "id", 24, lambda row: row.row.id, "Metric of the reference.", "the catalogue"),
        word("name", "figure", 12, lambda row: row.row.title, "Name of the metric.", "the catalogue"),
        *(column for column in LIMITS.columns if column.id not in ("name", "group")),
    ),
    rows=section_rows(
        lambda frame: frame.host, metric_rows([metric for metric in NUMBERS if isinstance(metric, Metric)])
    ),
    key_of=lambda row: row.key,
)
"""The figures above the tables, one by one, for `show host`."""
PAGE: Final = Page(
    key="7",
    id="host",
    title="host",
    tables=TABLES,
    summary=halves,
    summary_rows=summary_rows,
    numbers=NUMBERS,
    summary_needs=summary_needs,
    drawn_above=drawn_above,
    moment_at=moment_at,
)
