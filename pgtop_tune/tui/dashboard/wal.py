"""WAL and checkpoints: how much is written, what forces the next checkpoint, what the device can do at most."""

from __future__ import annotations

from typing import Final

from pgtop_tune.base.units import UNKNOWN, about, byte_rate, count, percent, size
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.ceilings import CEILING_AGE, FLUSHES_USED, MOST_FLUSHES
from pgtop_tune.metrics.checkpoints import (
    FULL_PAGES_OF_CYCLE,
    FULL_PAGES_SINCE,
    SINCE_CHECKPOINT,
    max_wal_size_bytes,
    next_checkpoint,
)
from pgtop_tune.metrics.io import COMMITS_PER_FLUSH, WAL_FLUSHES
from pgtop_tune.metrics.server import (
    CACHE_HIT,
    TEMP_BYTES,
    WAL_BUFFERS_FULL,
    WAL_BYTES,
    WAL_SINCE_REDO,
    buffer_writers,
    full_pages,
)
from pgtop_tune.model.absence import NOT_YET, Unavailable
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line
from pgtop_tune.tui.widgets.phrase import Phrase, absence, alarm, dot, fitting, head, labelled, lasting, padded

# What the WAL device does beside what it was measured to do at most, as facts on a line.

_NEAR: Final = 80.0
_DAY_S: Final = 86_400.0
_TIME: Final = 6


def device_phrases(interval: Interval) -> list[Phrase]:
    """Return flushes of the ceiling with their share, and commits for each; nothing where nobody has measured."""
    most = MOST_FLUSHES(interval)
    if not most:
        return []
    used, per_flush = FLUSHES_USED(interval), COMMITS_PER_FLUSH(interval)
    style = "warning" if used is not None and used >= _NEAR else PLAIN
    share = "" if used is None else f" ({percent(used)} %)"
    now = labelled("flushes", count(WAL_FLUSHES(interval)), alarm(used, FLUSHES_USED.critical, style), "/s of ")
    full: Line = (*now, (count(most), PLAIN), (share, alarm(used, FLUSHES_USED.critical, style)))
    phrases = [Phrase((*full, *_aged(interval)), 1 if style != PLAIN else 3, full)]
    if per_flush is not None:
        phrases.append(Phrase(labelled("commits per flush", count(per_flush)), 6))
    return phrases


def _aged(interval: Interval) -> Line:
    """Return a ceiling of another day may be that of another disk."""
    age_s = CEILING_AGE(interval)
    return () if age_s is None or age_s < _DAY_S else ((f" measured {lasting(age_s)} ago", "dim"),)


def wal_lines(session: Session, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Return one line with everything that fits; with a second row checkpoints and writers move there."""
    frame, interval = session.now, session.interval
    wal = NOT_YET if frame is None else sections.wal(frame)
    checkpoints = NOT_YET if frame is None else sections.checkpoints(frame)
    if interval is None or (isinstance(wal, Unavailable) and isinstance(checkpoints, Unavailable)):
        reason = wal if isinstance(wal, Unavailable) else NOT_YET
        first, second = [Phrase(absence(reason))], []
    else:
        first = [Phrase(absence(wal))] if isinstance(wal, Unavailable) else _written(interval)
        first += [*device_phrases(interval), *_buffers(interval)]
        second = [Phrase(absence(checkpoints))] if isinstance(checkpoints, Unavailable) else _checkpoints(interval)
    rooms = [[*first, *second]] if height == 1 else [first, second]
    gap = dot(glyphs)
    title: Line = (("WAL ", "title"), *fitting(rooms[0], width - 10, gap))
    lines = [head(title, width, glyphs)]
    lines += [padded((("  ", PLAIN), *fitting(room, width - 3, gap)), width) for room in rooms[1:]]
    lines += [((" " * width, PLAIN),)] * (height - len(lines))
    return lines[:height]


def _written(interval: Interval) -> list[Phrase]:
    rate, full = WAL_BYTES(interval), WAL_BUFFERS_FULL(interval)
    since, most = WAL_SINCE_REDO(interval), max_wal_size_bytes(interval)
    bound = "" if most is None else f" of max_wal_size {about(most)}"
    return [
        Phrase(labelled("", byte_rate(rate).rjust(9), "strong" if rate is not None else "dim")),
        full_page_share(interval, 1),
        Phrase(
            labelled("since redo", size(since).rjust(7), alarm(since, most), bound),
            5,
            labelled("since redo", size(since).rjust(7), alarm(since, most)),
        ),
        Phrase(labelled("buffers full", count(full).rjust(3), alarm(full, WAL_BUFFERS_FULL.critical), "/s"), 7)
        if full
        else Phrase(()),
    ]


def _buffers(interval: Interval) -> list[Phrase]:
    """Return the share of reads that shared buffers save, and temporary files where there are any."""
    temp = TEMP_BYTES(interval)
    hit = Phrase(labelled("hit", percent(CACHE_HIT(interval)).rjust(3), PLAIN, " %"), 3)
    return [hit, Phrase(labelled("temp files", byte_rate(temp).rjust(9), "warning"), 1)] if temp else [hit]


def full_page_share(interval: Interval, rank: int) -> Phrase:
    """Return the share of full-page images in WAL: "~" before an estimate, "at most" with wal_compression."""
    images = full_pages(interval)
    if images is None:
        return Phrase(labelled("full pages", UNKNOWN.rjust(3), "dim", " %"), rank)
    share = percent(images.percent)
    if images.compressed:
        short = labelled("full pages at most", share, PLAIN, " %")
        return Phrase(labelled("full pages at most", share, PLAIN, " % (wal_compression)"), rank, short)
    return Phrase(labelled("full pages", f"{'~' if images.estimated else ''}{share}".rjust(3), PLAIN, " %"), rank)


def _checkpoints(interval: Interval) -> list[Phrase]:
    counters = interval.now(sections.checkpoints)
    counted = UNKNOWN if counters is None else f"{counters.timed} timed, {counters.requested} requested"
    return [
        Phrase(coming_checkpoint(interval), 2, coming_checkpoint(interval, cause=False)),
        _full_pages(interval),
        Phrase(labelled("restartpoints" if _is_standby(interval) else "checkpoints", counted), 4),
        Phrase(labelled("last", lasting(SINCE_CHECKPOINT(interval), 6), PLAIN, " ago"), 6),
        _writers(interval),
    ]


def _is_standby(interval: Interval) -> bool:
    server = sections.server(interval.newest)
    return not isinstance(server, Unavailable) and server.in_recovery


def coming_checkpoint(interval: Interval, *, cause: bool = True) -> Line:
    """Return the time until the next checkpoint, on a standby restartpoint: "next checkpoint 2m40s (timeout)"."""
    coming = next_checkpoint(interval)
    label = "next restartpoint" if coming is not None and coming.restartpoint else "next checkpoint"
    if coming is None:
        return labelled(label, UNKNOWN, "dim")
    text = lasting(coming.in_s) if coming.in_s > 0 else "in progress" if coming.under_way else "due"
    style = "warning" if coming.forced or coming.in_s <= 0 else PLAIN
    return labelled(label, text.rjust(_TIME), style, f" ({coming.by})" if cause else "")


def _full_pages(interval: Interval) -> Phrase:
    """Return the full pages that the next cycle will cost; before a whole cycle was seen, those of this one so far."""
    of_cycle = FULL_PAGES_OF_CYCLE(interval)
    if of_cycle is not None:
        return Phrase(labelled("then", count(of_cycle), PLAIN, " full pages"), 5)
    since = FULL_PAGES_SINCE(interval)
    return Phrase(()) if since is None else Phrase(labelled("since then", count(since), PLAIN, " full pages"), 7)


def _writers(interval: Interval) -> Phrase:
    writers = buffer_writers(interval)
    if writers is None:
        return Phrase(())
    names = ("ckpt", "bgw", "backends")
    parts = tuple(percent(part) for part in writers)
    text = " ".join(f"{name} {part:>3}" for name, part in zip(names, parts, strict=True))
    return Phrase(labelled("buffers:", text, PLAIN, " %"), 3)
