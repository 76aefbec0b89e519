"""The machine in three lines or more: CPU, memory, and the disks the server lives on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import UNKNOWN, byte_rate, byte_rates, count, ms, percent, size
from pgtop_tune.metrics import host as metrics
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval, Keyed, Metric
from pgtop_tune.metrics.ceilings import CapReached, disks_at_cap
from pgtop_tune.metrics.host_values import untold
from pgtop_tune.model.absence import NOT_YET, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import CpuSample, DiskCounters, DiskSample, MemorySample
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line, Span, heat_strip
from pgtop_tune.tui.widgets.phrase import Phrase, absence, alarm, fitting, labelled, padded

S = TypeVar("S")
Form = Callable[[float | None], str]
_LABEL: Final = 6
_GAP: Final[Span] = ("  ", PLAIN)
_CPU_PARTS: Final = (
    metrics.CPU_USER, metrics.CPU_SYSTEM, metrics.CPU_IOWAIT, metrics.CPU_STEAL, metrics.CPU_IDLE,
)  # fmt: skip
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
            _section_line("MEM", sections.memory(frame), lambda memory: _memory(memory, frame, interval), width),
            *_disks(frame, interval, width, height - 2, glyphs),
            _section_line("", sections.memory(frame), lambda memory: _details(frame, interval), width),
        ]
    lines += [_line("", (), width)] * (height - len(lines))
    return lines[:height]


def _line(label: str, content: Line, width: int) -> Line:
    return padded(((f" {label:<{_LABEL - 1}}", "title"), *content), width)


def _section_line(label: str, section: S | Unavailable, draw: Callable[[S], list[Phrase]], width: int) -> Line:
    if isinstance(section, Unavailable):
        return _line(label, fitting([Phrase(absence(section))], width - _LABEL, _GAP), width)
    return _line(label, fitting(draw(section), width - _LABEL, _GAP), width)


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
    heat = heat_strip(busy, max(width // 5, 12), glyphs)
    queue = metrics.RUN_QUEUE(interval)
    waiting = "warning" if queue is not None and queue > 2 * len(cpu.cores) else PLAIN
    queued = (count(queue).rjust(3), waiting)
    kinds = [_number(part, interval, percent, 3) for part in _CPU_PARTS if untold(frame, part.id) is None]
    return [
        Phrase((*_together(kinds), (" %", "label"))),
        Phrase((*heat, (f" {len(cpu.cores)} cores", "label")), 3, heat),
        *_told(frame, [(metrics.RUN_QUEUE, Phrase((("run queue ", "label"), queued), 2, (("rq ", "label"), queued)))]),
        _pressure(frame, interval),
    ]


def _pressure(frame: Frame, interval: Interval) -> Phrase:
    absent = sections.pressure(frame)
    if isinstance(absent, Unavailable):
        return Phrase((("psi ", "label"), *absence(absent)), 4, labelled("psi", UNKNOWN, "dim"))
    stalled = {
        "cpu": (metrics.PSI_CPU_SOME,),
        "io": (metrics.PSI_IO_SOME, metrics.PSI_IO_FULL),
        "mem": (metrics.PSI_MEMORY_SOME, metrics.PSI_MEMORY_FULL),
    }
    parts = {name: _some_full(name, rows, interval) for name, rows in stalled.items()}
    psi: Line = (("psi ", "label"),)
    return Phrase((*psi, *_together(list(parts.values())), (" %", "label")), 4, (*psi, *parts["io"], (" %", "label")))


def _some_full(name: str, rows: Sequence[Metric], interval: Interval) -> Line:
    spans: list[Span] = [(f"{name} ", "label")]
    for index, metric in enumerate(rows):
        value = metric(interval)
        text = percent(value)
        spans.append((f"/{text:<3}" if index else text.rjust(3), alarm(value, metric.critical)))
    return tuple(spans)


def _memory(memory: MemorySample, frame: Frame, interval: Interval) -> list[Phrase]:
    used, total = metrics.HUGE_USED(interval), metrics.HUGE_TOTAL(interval)
    pool = max(total, key=lambda page_bytes: (total[page_bytes], -page_bytes), default=None)
    huge = UNKNOWN if pool is None else f"{used[pool]:.0f}/{total[pool]:.0f}"
    arc = [(metrics.MEMORY_ARC, Phrase(_number(metrics.MEMORY_ARC, interval, size, 7), 2))]
    swapped = [_number(metric, interval, byte_rate, 9) for metric in (metrics.SWAP_IN, metrics.SWAP_OUT)]
    return [
        Phrase(((size(memory.total_bytes).rjust(7), PLAIN),), 4),
        *_told(
            frame,
            [
                (metrics.MEMORY_USED, Phrase(_number(metrics.MEMORY_USED, interval, size, 7))),
                (metrics.MEMORY_CACHE, Phrase(_number(metrics.MEMORY_CACHE, interval, size, 7), 2)),
                *(arc if memory.arc_bytes is not None else ()),
                (metrics.MEMORY_DIRTY, Phrase(_number(metrics.MEMORY_DIRTY, interval, size, 7), 1)),
                (metrics.MEMORY_WRITEBACK, Phrase(_number(metrics.MEMORY_WRITEBACK, interval, size, 7), 3)),
                (metrics.SWAP_USED, Phrase(_number(metrics.SWAP_USED, interval, size, 7), 7)),
                (metrics.SWAP_IN, Phrase(_together(swapped), 7)),
                (metrics.HUGE_TOTAL, Phrase(labelled("huge", huge, PLAIN, " used"), 5, labelled("huge", huge))),
                (metrics.HUGE_TOTAL, Phrase(labelled("thp", one_line(memory.thp_mode, 12) or UNKNOWN), 6)),
            ],
        ),
        _source(frame),
    ]


def _source(frame: Frame) -> Phrase:
    """Return the note that the source does not have all figures; empty where it has."""
    facts = sections.machine(frame)
    if isinstance(facts, Unavailable) or not facts.untold:
        return Phrase(())
    source = one_line(facts.source, 20)
    return Phrase(((f"by {source}: ? shows what is missing", "dim"),), 4, ((f"by {source}", "dim"),))


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


def cap_text(cap: CapReached) -> str:
    """Return the limits a disk stands at: "6000 IOPS, 90 MB/s"; bytes in millions, as clouds sell them."""
    iops = "" if cap.iops is None else f"{cap.iops:.0f} IOPS"
    bytes_per_s = "" if cap.bytes_per_s is None else f"{cap.bytes_per_s / 1e6:.0f} MB/s"
    return ", ".join(filter(None, (iops, bytes_per_s)))


def _disks(frame: Frame, interval: Interval, width: int, rows: int, glyphs: Glyphs) -> list[Line]:
    sample = sections.disks(frame)
    if isinstance(sample, Unavailable):
        return [_line("DISK", fitting([Phrase(absence(sample))], width - _LABEL, _GAP), width)]
    values = {keyed.id: keyed(interval) for keyed in metrics.DISK_METRICS}
    disks = _ranked(sample, values[metrics.DISK_BUSY.id])[: max(rows, 1)]
    missing = "" if any("data" in disk.roles for disk in sample.disks) else "; ".join(sample.unplaced)
    if not disks:
        return [_line("DISK", ((one_line(missing, 200), "warning") if missing else (UNKNOWN, "dim"),), width)]
    name_cells = min(max(len(disk.name) for disk in disks), _NAME)
    caps = disks_at_cap(interval)
    lines = []
    for index, disk in enumerate(disks):
        phrases = _disk(disk, frame, name_cells, {key: by_disk.get(disk.name) for key, by_disk in values.items()})
        if disk.name in caps:
            at_cap = f"{glyphs.pointer_left} at its cap"
            phrases.append(
                Phrase(((f"{at_cap}: {cap_text(caps[disk.name])}", "critical"),), 1, ((at_cap, "critical"),))
            )
        if index == 0 and missing:
            phrases.append(Phrase(((one_line(missing, 120), "warning"),), 7))
        lines.append(_line("" if index else "DISK", fitting(phrases, width - _LABEL, _GAP), width))
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


def _disk(disk: DiskCounters, frame: Frame, name_cells: int, values: Mapping[str, float | None]) -> list[Phrase]:
    def value(keyed: Keyed[str]) -> float | None:
        return values[keyed.id]

    busy = value(metrics.DISK_BUSY)
    reads, writes = count(value(metrics.DISK_READS)), count(value(metrics.DISK_WRITES))
    bytes_text = byte_rates(value(metrics.DISK_READ_BYTES), value(metrics.DISK_WRITE_BYTES))
    read_ms, write_ms = ms(value(metrics.DISK_READ_AWAIT)), ms(value(metrics.DISK_WRITE_AWAIT))
    busy_words = labelled("busy", percent(busy).rjust(3), alarm(busy, metrics.DISK_BUSY.critical), " %")
    queue = Phrase(labelled("queue", count(value(metrics.DISK_QUEUE)).rjust(5)), 5)
    unit = "   " if write_ms.endswith("s") else " ms"
    return [
        Phrase(((one_line(disk.name, _NAME).ljust(name_cells), PLAIN),)),
        *_told(frame, [(metrics.DISK_BUSY, Phrase(busy_words, 1))]),
        Phrase(
            _together([labelled("r", reads.rjust(5), PLAIN, "/s"), labelled("w", writes.rjust(5), PLAIN, "/s")]),
            3,
            labelled("r/w", f"{reads:>5}/{writes:<5}", PLAIN, "/s"),
        ),
        Phrase(labelled("", bytes_text), 4),
        Phrase(
            (*labelled("await r", read_ms.rjust(5)), *labelled(" w", write_ms.rjust(5), PLAIN, unit)),
            2,
            labelled("await", f"{read_ms:>5}/{write_ms:<5}", PLAIN, unit),
        ),
        *_told(frame, [(metrics.DISK_QUEUE, queue)]),
        Phrase(((" ".join(one_line(role, 40) for role in disk.roles), "dim"),) if disk.roles else (), 6),
    ]
