"""Commits wait for WAL: its device, its volume, its buffers; and the archive."""

from __future__ import annotations

from typing import Final

from pgtop_tune.base.units import count, duration, size, with_ms
from pgtop_tune.diagnosis.chains import DEVICE, HANDED, flush_for_cpu, handed_to_wal_ms, wal_busy, wal_ms
from pgtop_tune.diagnosis.facts import Facts
from pgtop_tune.diagnosis.finding import FindingKind, ParameterAdvice
from pgtop_tune.diagnosis.rule import Hit, Rule
from pgtop_tune.diagnosis.wording import name, told
from pgtop_tune.metrics import ceilings, host, io, sections, server

_FLUSH_OF_L: Final = 0.25
_BUSY: Final = 0.7
_HALF_BUSY: Final = 0.5
_MUCH_BYTES: Final = 128 * 1024
_WRITERS: Final = 5.0
_INSERTS: Final = 0.5
_ROW_QUEUE: Final = 0.1
_BUFFERS: Final = 0.05
_BACKLOG: Final = 64.0
_STALE_S: Final = 300.0
_FAILED_S: Final = 60.0


def bytes_per_flush(facts: Facts) -> float | None:
    """WAL that a flush writes."""
    flushes, written = facts.of(io.WAL_FLUSHES), facts.of(server.WAL_BYTES)
    return None if not flushes or written is None else written / flushes


def is_volume(facts: Facts) -> bool:
    """Whether the bytes of WAL are too many, and not its flushes."""
    writing = facts.s("io:walwrite", "io:walinitsync", "io:walinitwrite")
    flushing = facts.s("io:walsync")
    much = (bytes_per_flush(facts) or 0.0) >= _MUCH_BYTES
    return much or (writing > 0.0 and writing >= flushing / 2.0) or facts.s("lwlock:walinsert") >= _INSERTS


def _flush(facts: Facts) -> Hit | None:
    impact_ms, busy, put_off = wal_ms(facts), wal_busy(facts), facts.once(flush_for_cpu)
    rows = handed_to_wal_ms(facts) > facts.b(*DEVICE)
    if impact_ms < _FLUSH_OF_L * facts.latency_ms or busy < (HANDED if rows else _BUSY):
        return None
    if facts.of(server.WAL_BYTES) is None or (bytes_per_flush(facts) or 0.0) >= _MUCH_BYTES:
        return None
    flushes, flush_ms = facts.of(io.WAL_FLUSHES), facts.interval.once(io.WAL_FLUSH_MS.value)
    commits, most = facts.of(io.COMMITS_PER_FLUSH), facts.of(ceilings.MOST_FLUSHES)
    each = f" of {with_ms(flush_ms)}" if flush_ms else ""
    limit = f", {count(most)} measured" if most else ""
    group = f", {commits:.1f} commits each" if commits else ""
    handed_ms = handed_to_wal_ms(facts)
    queued = "; sessions queue for rows meanwhile" if handed_ms >= _ROW_QUEUE * facts.latency_ms else ""
    if put_off:
        queued = f"; the disk takes {with_ms(facts.by(host.DISK_WRITE_AWAIT).get(facts.wal_disk or '', 0.0))}, the rest waits for a CPU"
    told_flushes = f"{count(flushes)} flushes/s{each}{limit}{group}" if flushes else f"busy {100 * busy:.0f} %"
    return Hit(
        sentence=f"commits wait for the WAL device: {facts.share_text(impact_ms)}; {told_flushes}{queued}",
        short=f"commits wait for the WAL device: {facts.percent(impact_ms)}",
        impact_ms=impact_ms,
        evidence=told(
            ("waits for WAL", with_ms(facts.b(*DEVICE))),
            ("queue for rows held meanwhile", with_ms(handed_ms) if handed_ms else None),
            ("WAL device busy", f"{100 * busy:.0f} % of the time"),
            ("flushes", f"{count(flushes)}/s{limit}" if flushes else None),
            ("a flush takes", with_ms(flush_ms) if flush_ms else None),
            ("commits per flush", f"{commits:.1f}" if commits else None),
            ("WAL per flush", size(bytes_per_flush(facts)) if flushes else None),
        ),
        next_step=(
            "commit_delay of half a flush, if five sessions or more commit at once: commits per flush rise;"
            " or a faster WAL device. Refuted if latency stays with more commits per flush"
        ),
        advice=ParameterAdvice("commit_delay", "raise", "more commits per flush")
        if facts.s(*DEVICE) >= _WRITERS and not put_off
        else None,
        looks=facts.n(*DEVICE),
        agreed=flushes is not None,
        note=put_off > 0.0,
    )


def _delay(facts: Facts) -> Hit | None:
    """Commits that sleep longer than their flush takes."""
    delay_ms, impact_ms = (facts.number("commit_delay") or 0.0) / 1000.0, wal_ms(facts)
    if delay_ms < _HALF_BUSY * impact_ms or impact_ms < _FLUSH_OF_L * facts.latency_ms or not impact_ms:
        return None
    return Hit(
        sentence=f"commits wait for commit_delay, {with_ms(delay_ms)}: {facts.share_text(impact_ms)}",
        short=f"commits wait for commit_delay, {with_ms(delay_ms)}: {facts.percent(impact_ms)}",
        impact_ms=impact_ms,
        evidence=told(
            ("commit_delay", with_ms(delay_ms)),
            ("commit_siblings", facts.setting("commit_siblings")),
            ("waits for WAL", with_ms(impact_ms)),
        ),
        next_step="commit_delay of half a flush, or 0. Refuted if latency stays",
        advice=ParameterAdvice("commit_delay", "lower", "commits sleep before they flush"),
        looks=facts.n(*DEVICE),
    )


def _volume(facts: Facts) -> Hit | None:
    impact_ms, busy = wal_ms(facts), wal_busy(facts)
    if impact_ms < _FLUSH_OF_L * facts.latency_ms or busy < _HALF_BUSY or not is_volume(facts):
        return None
    written = facts.of(server.WAL_BYTES)
    each = f", {size(written / facts.tps)} per transaction" if written and facts.tps else ""
    full = server.full_pages(facts.interval)
    return Hit(
        sentence=f"WAL itself is too much: {facts.share_text(impact_ms)}; {size(written)}/s{each}",
        short=f"WAL itself is too much: {facts.percent(impact_ms)}, {size(written)}/s",
        impact_ms=impact_ms,
        evidence=told(
            ("waits for WAL", with_ms(impact_ms)),
            ("WAL", f"{size(written)}/s{each}" if written else None),
            ("WAL per flush", size(bytes_per_flush(facts)) if bytes_per_flush(facts) else None),
            ("full pages", f"{'~' if full.estimated else ''}{full.percent:.0f} % of it" if full else None),
        ),
        next_step="wal_compression, fewer indexes, larger wal_buffers. Refuted if the bytes of WAL stay the same",
        advice=ParameterAdvice("wal_compression", "set", "full pages become smaller")
        if facts.setting("wal_compression") == "off"
        else None,
        looks=facts.n(*DEVICE),
        agreed=written is not None,
    )


def _buffers(facts: Facts) -> Hit | None:
    full = facts.of(server.WAL_BUFFERS_FULL)
    inserts_ms = facts.b("lwlock:walinsert", "lwlock:walbufmapping")
    if not full or full < facts.tps or inserts_ms < _BUFFERS * facts.latency_ms:
        return None
    impact_ms = min(inserts_ms + facts.b("lwlock:walwrite") * (1.0 - wal_busy(facts)), facts.latency_ms)
    each = full / facts.tps if facts.tps else 0.0
    value = facts.shown("wal_buffers")
    return Hit(
        sentence=(
            f"wal_buffers{f' ({value})' if value else ''} is full {each:.0f} times per transaction:"
            f" {facts.share_text(impact_ms)}"
        ),
        short=f"wal_buffers is full {each:.0f} times per transaction: {facts.percent(impact_ms)}",
        impact_ms=impact_ms,
        evidence=told(
            ("buffers full", f"{count(full)}/s"), ("waits to insert", with_ms(inserts_ms)), ("wal_buffers", value)
        ),
        next_step="wal_buffers of 64MB, after a restart: the count goes to 0. Refuted if latency stays the same then",
        advice=ParameterAdvice("wal_buffers", "raise", "it is full several times per transaction"),
    )


def _archive(facts: Facts) -> Hit | None:
    backlog, since_s = io.ARCHIVE_BACKLOG(facts.interval), io.SINCE_ARCHIVED(facts.interval)
    looks = facts.interval.recent(sections.archiver, _FAILED_S, least=2)
    failed = looks[0].failed_count - looks[-1].failed_count if len(looks) > 1 else 0
    if (backlog or 0.0) < _BACKLOG and not (failed > 0 and (since_s is None or since_s > _STALE_S)):
        return None
    fails = failed > 0
    for_s = f"; nothing was archived for {duration(since_s)}" if since_s is not None and since_s > _STALE_S else ""
    return Hit(
        sentence=f"{backlog or 0.0:.0f} segments of WAL wait to be archived{', the archiver fails' if fails else ''}{for_s}",
        short=f"{backlog or 0.0:.0f} segments wait to be archived{', the archiver fails' if fails else ''}",
        evidence=told(
            ("waiting", f"{backlog:.0f} segments" if backlog is not None else None),
            ("failed", f"{failed} times in the last minute" if fails else None),
            ("last failed", name(looks[0].last_failed_wal) if fails else None),
        ),
        next_step="mend archive_command; the server's log has its message. Refuted if the last archived segment stands still",
    )


RULES: Final = (
    Rule(
        id="wal.buffers",
        kind=FindingKind.LATENCY,
        page="6",
        needs=(sections.waits, sections.wal),
        find=_buffers,
        least=0.05,
        before=("wal.volume", "wal.flush"),
    ),
    Rule(
        id="wal.flush",
        kind=FindingKind.LATENCY,
        page="6",
        needs=(sections.waits, sections.wal),
        find=_flush,
    ),
    Rule(
        id="wal.delay",
        kind=FindingKind.LATENCY,
        page="6",
        needs=(sections.waits, sections.parameters),
        find=_delay,
        before=("wal.flush", "wal.volume", "cpu.others", "cpu.full"),
    ),
    Rule(
        id="wal.volume",
        kind=FindingKind.LATENCY,
        page="6",
        needs=(sections.waits, sections.wal),
        find=_volume,
        before=("wal.flush",),
    ),
    Rule(id="wal.archive", kind=FindingKind.NOTE, page="6", needs=(sections.archiver, sections.wal), find=_archive),
)
