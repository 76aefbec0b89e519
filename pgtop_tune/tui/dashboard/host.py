"""The machine in three lines or more, each a gauge with its figures: CPU, memory, the disks the server lives on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import UNKNOWN, byte_rate, byte_rates, count, decimal, ms, percent, size
from pgtop_tune.metrics import host as metrics
from pgtop_tune.metrics import host_details as details
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval, Keyed, Metric, share
from pgtop_tune.metrics.ceilings import CapReached, Headroom, disk_headroom, disks_at_cap
from pgtop_tune.metrics.host_values import untold
from pgtop_tune.model.absence import NOT_YET, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import CpuSample, DiskCounters, DiskSample, MemorySample
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.widgets.lines import (
    CUT,
    PLAIN,
    Glyphs,
    Line,
    Span,
    apportioned,
    ellipsized,
    gauge,
    heat_strip,
    text_width,
)
from pgtop_tune.tui.widgets.phrase import Phrase, absence, alarm, fitting, labelled, padded

S = TypeVar("S")
Form = Callable[[float | None], str]
_LABEL: Final = 6
WORDS_FROM: Final = 100
"""Cells of a screen from which on labels are whole words, two blanks apart."""
_LARGE_FROM: Final = 116
"""Cells from which on gauges are large, and two other programs are named."""
_GAUGE_MOST: Final = 20
_PIDS_FROM: Final = 180
"""Cells from which on the pids of other programs stand beside their names."""
_USERS: Final = (
    ("postgres", "pg", "series-1"), ("ours", "ours", "series-4"), ("others", "others", "series-2"),
    ("steal", "st", "heat-4"),
)  # fmt: skip
"""Users of the CPUs in the order of the fillings `Glyphs.densities`: key in `metrics.CPU_SPLIT`, short label, style."""
_NAME: Final = 10
"""Cells of a device's name."""
_ROLE_ORDER: Final = {"data": 0, "wal": 1}


def host_lines(session: Session, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Return CPU, memory, and a line per disk as far as they fit: the data directory's disk first, then that of WAL.

    Room that no disk needs goes to load and memory details.
    """
    frame, interval = session.now, session.interval
    if frame is None or interval is None or isinstance(frame.host, Unavailable):
        reason = frame.host if frame is not None and isinstance(frame.host, Unavailable) else NOT_YET
        lines = [_line("CPU", absence(reason), width)]
        lines += [_line(label, ((UNKNOWN, "dim"),), width) for label in ("MEM", "DISK")]
    else:
        lines = [
            _section_line("CPU", sections.cpu(frame), lambda cpu: _cpu(cpu, frame, interval, width, glyphs), width),
            _section_line(
                "MEM", sections.memory(frame), lambda memory: _memory(memory, frame, interval, width, glyphs), width
            ),
            *_disks(frame, interval, width, height - 2, glyphs),
            _section_line("", sections.memory(frame), lambda memory: _details(frame, interval), width),
        ]
    lines += [_line("", (), width)] * (height - len(lines))
    return lines[:height]


def _line(label: str, content: Line, width: int) -> Line:
    return padded(((f" {label:<{_LABEL - 1}}", "title"), *content), width)


def _gap(width: int) -> Span:
    return (" " * (1 + (width >= WORDS_FROM)), PLAIN)


def _gauge_cells(width: int) -> int:
    return min((width - 22) // 6, _GAUGE_MOST) if width >= _LARGE_FROM else max((width - 18) // 10, 5)


def gauge_phrase(
    parts: Sequence[tuple[float | None, Span]], full: float | None, width: int, glyphs: Glyphs,
    critical: float | None = None,
) -> Phrase:  # fmt: skip
    """Return a gauge of parts in per cent and how full it is; blank where a part is not known."""
    cells = _gauge_cells(width)
    shares = [(part / 100.0, span) for part, span in parts if part is not None]
    bar: Line = gauge(shares, cells, glyphs) if len(shares) == len(parts) else ((" " * cells, PLAIN),)
    figure = decimal(full, 0)
    return Phrase((*bar, (" " * (4 - len(figure)), PLAIN), (figure, alarm(full, critical)), (" %", "label")))


def _section_line(label: str, section: S | Unavailable, draw: Callable[[S], list[Phrase]], width: int) -> Line:
    if isinstance(section, Unavailable):
        return _line(label, fitting([Phrase(absence(section))], width - _LABEL, _gap(width)), width)
    return _line(label, fitting(draw(section), width - _LABEL, _gap(width)), width)


def _number(metric: Metric, interval: Interval, form: Form, cells: int, unit: str = "") -> Line:
    value = metric(interval)
    return labelled(metric.title, form(value).rjust(cells), alarm(value, metric.critical), unit)


def _together(lines: Sequence[Line]) -> Line:
    return tuple(span for index, line in enumerate(lines) for span in ((((" ", PLAIN),) if index else ()) + line))


def _told(frame: Frame, phrases: Sequence[tuple[Metric | Keyed[Any], Phrase]]) -> list[Phrase]:
    """Return those whose figure the source of host numbers has; `?` says why the others are not there."""
    return [phrase for figure, phrase in phrases if untold(frame, figure.id) is None]


def _cpu(cpu: CpuSample, frame: Frame, interval: Interval, width: int, glyphs: Glyphs) -> list[Phrase]:
    shares = metrics.CORE_BUSY(interval)
    busy = [shares[core.cpu] / 100.0 if core.cpu in shares else None for core in cpu.cores]
    heat = heat_strip(busy, max(width // 10, 12), glyphs)
    queue = metrics.RUN_QUEUE(interval)
    queued = (count(queue).rjust(3), "warning" if queue is not None and queue > 2 * len(cpu.cores) else PLAIN)
    in_words = width >= WORDS_FROM
    return [
        *_split(frame, interval, width, glyphs),
        *_told(frame, [(metrics.RUN_QUEUE, Phrase((("queue " if in_words else "rq ", "label"), queued)))]),
        _quota(cpu, interval, width),
        _pressure(frame, interval),
        Phrase(((f"{len(cpu.cores)} cores ", "label"), *heat), 4, (("cores ", "label"), *heat)),
        _other_programs(frame, width),
    ]


def _split(frame: Frame, interval: Interval, width: int, glyphs: Glyphs) -> list[Phrase]:
    """Return the bar of all CPU time by its user, and the figures of each in its filling and style."""
    split = metrics.CPU_SPLIT(interval)
    percents = dict(zip(split, apportioned(list(split.values()), 100), strict=True))
    fillings = [(user, (glyphs.densities[index], style)) for index, (user, _, style) in enumerate(_USERS)]
    # Busy for a user that is not known: an outline, before the hypervisor's part.
    fillings.insert(-1, ("unknown", (glyphs.level, "series-3")))
    idle = percents.get("idle")
    busy = None if idle is None else 100.0 - idle
    figures: list[Line] = []
    for index, (user, short, style) in enumerate(_USERS):
        value = percents.get(user)
        label = user if width >= WORDS_FROM else short
        critical = metrics.CPU_STEAL.critical if user == "steal" else None
        number = (UNKNOWN if value is None else str(value)).rjust(3)
        figures.append(((glyphs.densities[index], style), (f"{label} ", "label"), (number, alarm(value, critical))))
    parts = [(split.get(user, 0.0) if split else None, span) for user, span in fillings]
    return [
        gauge_phrase(parts, busy, width, glyphs, metrics.CPU_BUSY.critical),
        Phrase(_together(figures[:-1])),
        *_told(frame, [(metrics.CPU_STEAL, Phrase(figures[-1], 1))]),
    ]


def _quota(cpu: CpuSample, interval: Interval, width: int) -> Phrase:
    """Return the CPUs that the server may use, and how often it wants more; empty where it may use all."""
    may_use = details.GROUP_CPUS(interval)
    if may_use is None or may_use >= len(cpu.cores):
        return Phrase(())
    throttled = details.GROUP_THROTTLED(interval)
    allowed = labelled("limit", count(may_use), PLAIN, " CPUs")
    if throttled is None:
        return Phrase(allowed, 1)
    figure = labelled(
        "throttled", percent(throttled).rjust(3), alarm(throttled, details.GROUP_THROTTLED.critical), " %"
    )
    return Phrase((*allowed, (" ", PLAIN), *figure), 1, None if width >= WORDS_FROM else allowed)


def _other_programs(frame: Frame, width: int) -> Phrase:
    """Return the names of the largest other programs with the CPUs that each takes, always as wide; empty without any.

    The line's last: nothing moves when they come or change.
    """
    sample = sections.processes(frame)
    programs = () if isinstance(sample, Unavailable) else sample.others
    if not programs:
        return Phrase(())
    most, with_pids = 1 + (width >= _LARGE_FROM), width >= _PIDS_FROM
    cells = 15 if with_pids else 8 if width >= WORDS_FROM else 7
    spans: list[Span] = []
    for program in programs[:most]:
        name = one_line(program.name, 40)
        name = ellipsized(name, min(cells, text_width(name)), CUT)
        which = f" ({program.pid})" if program.processes == 1 else f" ({program.processes} proc.)"
        spans += [(f"{name}{which if with_pids else ''} ", "label"), (decimal(program.cpus, 1), PLAIN), (" ", PLAIN)]
    line: Line = (*spans, ("CPUs", "label"))
    slot = most * (cells + 5 + 10 * with_pids) + 4
    return Phrase(padded(line, slot), 2)


def _pressure(frame: Frame, interval: Interval) -> Phrase:
    absent = sections.pressure(frame)
    if isinstance(absent, Unavailable):
        return Phrase((("psi ", "label"), *absence(absent)), 3, labelled("psi", UNKNOWN, "dim"))
    stalled = {
        "cpu": (metrics.PSI_CPU_SOME,),
        "io": (metrics.PSI_IO_SOME, metrics.PSI_IO_FULL),
        "mem": (metrics.PSI_MEMORY_SOME, metrics.PSI_MEMORY_FULL),
    }
    parts = {name: _some_full(name, rows, interval) for name, rows in stalled.items()}
    psi: Line = (("psi % ", "label"),)
    return Phrase((*psi, *_together(list(parts.values()))), 3, (*psi, *parts["io"]))


def _some_full(name: str, rows: Sequence[Metric], interval: Interval) -> Line:
    spans: list[Span] = [(f"{name} ", "label")]
    for index, metric in enumerate(rows):
        value = metric(interval)
        text = percent(value)
        spans.append((f"/{text:<3}" if index else text.rjust(3), alarm(value, metric.critical)))
    return tuple(spans)


def _memory_fillings(glyphs: Glyphs) -> Sequence[tuple[Metric, Span]]:
    return (
        (metrics.MEMORY_USED, (glyphs.densities[0], "series-1")),
        (metrics.MEMORY_ARC, (glyphs.densities[1], "series-4")),
        (metrics.MEMORY_CACHE, (glyphs.densities[2], "series-3")),
    )


def memory_gauge(memory: MemorySample, frame: Frame, interval: Interval, width: int, glyphs: Glyphs) -> Phrase:
    """Return a gauge of used memory, caches in it, and how full it is."""
    used, total = metrics.MEMORY_USED(interval), memory.total_bytes
    parts = [
        (None if (value := metric(interval)) is None else share(value, total), span)
        for metric, span in _memory_fillings(glyphs)
        if untold(frame, metric.id) is None and (metric is not metrics.MEMORY_ARC or memory.arc_bytes is not None)
    ]
    return gauge_phrase(parts, None if used is None else share(used, total), width, glyphs)


def _memory(memory: MemorySample, frame: Frame, interval: Interval, width: int, glyphs: Glyphs) -> list[Phrase]:
    huge_used, huge_total = metrics.HUGE_USED(interval), metrics.HUGE_TOTAL(interval)
    pool = max(huge_total, key=lambda page_bytes: (huge_total[page_bytes], -page_bytes), default=None)
    huge = UNKNOWN if pool is None else f"{count(huge_used[pool])}/{count(huge_total[pool])}"
    used, total = metrics.MEMORY_USED(interval), memory.total_bytes
    # Parts of the bar beside the used one have their filling before their name, as those of the CPUs.
    arc, cache = (
        (metric, Phrase((filling, *_number(metric, interval, size, 7)), 2))
        for metric, filling in _memory_fillings(glyphs)[1:]
    )
    swapped = [_number(metric, interval, byte_rate, 9) for metric in (metrics.SWAP_IN, metrics.SWAP_OUT)]
    return [
        memory_gauge(memory, frame, interval, width, glyphs),
        Phrase(((size(used).rjust(7), alarm(used, None)), (" of ", "label"), (size(total).rjust(7), PLAIN))),
        *_told(
            frame,
            [
                (metrics.MEMORY_DIRTY, Phrase(_number(metrics.MEMORY_DIRTY, interval, size, 7), 1)),
                cache,
                *((arc,) if memory.arc_bytes is not None else ()),
                (metrics.SWAP_USED, Phrase(_number(metrics.SWAP_USED, interval, size, 7), 3)),
                (metrics.SWAP_IN, Phrase(_together(swapped), 5)),
                (metrics.HUGE_TOTAL, Phrase(labelled("huge", huge, PLAIN, " used"), 4, labelled("huge", huge))),
            ],
        ),
        _memory_limit(interval),
        *_told(
            frame,
            [
                (metrics.MEMORY_WRITEBACK, Phrase(_number(metrics.MEMORY_WRITEBACK, interval, size, 7), 6)),
                (metrics.HUGE_TOTAL, Phrase(labelled("thp", one_line(memory.thp_mode, 12) or UNKNOWN), 7)),
            ],
        ),
        _source(frame),
    ]  # fmt: skip


def _memory_limit(interval: Interval) -> Phrase:
    """Return the memory of the server's control group and its limit; empty without a limit."""
    limit = details.GROUP_MEMORY_MAX(interval)
    if limit is None:
        return Phrase(())
    return Phrase(labelled("limit", size(details.GROUP_MEMORY(interval)).rjust(7), PLAIN, f" of {size(limit)}"), 1)


def _source(frame: Frame) -> Phrase:
    """Return the note that the source does not have all figures; empty where it has."""
    facts = sections.machine(frame)
    if isinstance(facts, Unavailable) or not facts.untold:
        return Phrase(())
    source = one_line(facts.source, 20)
    return Phrase(((f"by {source}: help shows what is missing", "dim"),), 4, ((f"by {source}", "dim"),))


def _details(frame: Frame, interval: Interval) -> list[Phrase]:
    load = "/".join(count(metric(interval)) for metric in (metrics.LOAD_1M, metrics.LOAD_5M, metrics.LOAD_15M))
    return [
        Phrase(labelled("load", load)),
        *_told(
            frame,
            [
                (metrics.CONTEXT_SWITCHES, Phrase(_number(metrics.CONTEXT_SWITCHES, interval, count, 5, "/s"), 1)),
                (metrics.BLOCKED_TASKS, Phrase(_number(metrics.BLOCKED_TASKS, interval, count, 3), 1)),
                (metrics.CPU_INTERRUPTS, Phrase(_number(metrics.CPU_INTERRUPTS, interval, percent, 3), 2)),
                (metrics.MEMORY_AVAILABLE, Phrase(_number(metrics.MEMORY_AVAILABLE, interval, size, 7), 1)),
                (metrics.MEMORY_SHARED, Phrase(_number(metrics.MEMORY_SHARED, interval, size, 7), 2)),
                (metrics.PAGE_TABLES, Phrase(_number(metrics.PAGE_TABLES, interval, size, 7), 1)),
                (metrics.COMMITTED, Phrase(_number(metrics.COMMITTED, interval, size, 7), 3)),
            ],
        ),
    ]


def cap_text(cap: CapReached | Headroom) -> str:
    """Return the limits a disk stands at: "6000 IOPS, 90 MB/s"; bytes in millions, as clouds sell them."""
    iops = "" if cap.iops is None else f"{count(cap.iops)} IOPS"
    bytes_per_s = "" if cap.bytes_per_s is None else f"{cap.bytes_per_s / 1e6:.0f} MB/s"
    return ", ".join(filter(None, (iops, bytes_per_s)))


def _disks(frame: Frame, interval: Interval, width: int, rows: int, glyphs: Glyphs) -> list[Line]:
    sample = sections.disks(frame)
    if isinstance(sample, Unavailable):
        return [_line("DISK", fitting([Phrase(absence(sample))], width - _LABEL, _gap(width)), width)]
    values = {keyed.id: keyed(interval) for keyed in metrics.DISK_METRICS}
    disks = _ranked(sample, values[metrics.DISK_BUSY.id])[: max(rows, 1)]
    missing = "" if any("data" in disk.roles for disk in sample.disks) else "; ".join(sample.unplaced)
    if not disks:
        return [_line("DISK", ((one_line(missing, 200), "warning") if missing else (UNKNOWN, "dim"),), width)]
    name_cells = min(max(len(disk.name) for disk in disks), _NAME)
    caps = interval.once(disks_at_cap)
    rooms = {room.disk: room for room in interval.once(disk_headroom)}
    lines = []
    for index, disk in enumerate(disks):
        figures = {key: by_disk.get(disk.name) for key, by_disk in values.items()}
        phrases = _disk(disk, frame, name_cells, figures, rooms.get(disk.name), caps.get(disk.name), width, glyphs)
        if index == 0 and missing:
            phrases.append(Phrase(((one_line(missing, 120), "warning"),), 7))
        lines.append(_line("" if index else "DISK", fitting(phrases, width - _LABEL, _gap(width)), width))
    return lines


def _ranked(sample: DiskSample, busy: Mapping[str, float]) -> list[DiskCounters]:
    """Return those with a role of the server's, data and WAL first; then the busiest, stacked devices left out."""
    return sorted(
        (disk for disk in sample.disks if disk.roles or not disk.stacked),
        key=lambda disk: (
            min((_ROLE_ORDER.get(role, 2) for role in disk.roles), default=3),
            0.0 if disk.roles else -busy.get(disk.name, 0.0),
            disk.name,
        ),
    )


def _disk(
    disk: DiskCounters, frame: Frame, name_cells: int, values: Mapping[str, float | None], room: Headroom | None,
    reached: CapReached | None, width: int, glyphs: Glyphs,
) -> list[Phrase]:  # fmt: skip
    """Return a gauge of the disk's cap, where it is known, else of its busy time, and its figures."""

    def value(keyed: Keyed[str]) -> float | None:
        return values[keyed.id]

    busy = value(metrics.DISK_BUSY)
    reads, writes = count(value(metrics.DISK_READS)), count(value(metrics.DISK_WRITES))
    bytes_text = byte_rates(value(metrics.DISK_READ_BYTES), value(metrics.DISK_WRITE_BYTES))
    read_ms, write_ms = ms(value(metrics.DISK_READ_AWAIT)), ms(value(metrics.DISK_WRITE_AWAIT))
    cap = reached or room
    full = busy if cap is None else 100.0 if room is None else min(100.0 / room.times, 100.0)
    queue = Phrase(labelled("queue", count(value(metrics.DISK_QUEUE)).rjust(5)), 5)
    bar = [(full, (glyphs.full, "series-1"))]
    name: Line = ((one_line(disk.name, _NAME).ljust(name_cells), PLAIN),)
    if cap is None:
        figures = _told(frame, [(metrics.DISK_BUSY, Phrase((("busy", "label"),), 6))])
    else:
        at_cap = f"{glyphs.pointer_left} at its cap" if reached else ""
        busy_words = labelled("busy", percent(busy).rjust(3), alarm(busy, metrics.DISK_BUSY.critical), " %")
        figures = [
            Phrase((("of ", "label"), (cap_text(cap).ljust(9), "critical" if reached else PLAIN)), 1),
            Phrase(((at_cap, "critical"),) if at_cap else (), 1),
            *_told(frame, [(metrics.DISK_BUSY, Phrase(busy_words, 5))]),
        ]
    return [
        gauge_phrase(bar, full, width, glyphs),
        *figures,
        Phrase(name),
        Phrase(
            _together([labelled("r", reads.rjust(5), PLAIN, "/s"), labelled("w", writes.rjust(5), PLAIN, "/s")]),
            3,
            labelled("r/w", f"{reads}/{writes}".rjust(11), PLAIN, "/s"),
        ),
        Phrase(labelled("", bytes_text), 4),
        Phrase(
            (*labelled("await ms r", read_ms.rjust(5)), *labelled(" w", write_ms.rjust(5))),
            2,
            labelled("await ms", f"{read_ms}/{write_ms}".rjust(11)),
        ),
        *_told(frame, [(metrics.DISK_QUEUE, queue)]),
        Phrase(((" ".join(one_line(role, 40) for role in disk.roles), "dim"),) if disk.roles else (), 6),
    ]
