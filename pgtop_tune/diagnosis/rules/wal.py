"""WAL and checkpoints: device, volume, buffers and archive of WAL; checkpoints too often, their pages and fsync."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import Final

from pgtop_tune.base.units import byte_rate, count, duration, size, with_ms
from pgtop_tune.diagnosis.chains import (
    DEVICE,
    HANDED,
    INSERTING,
    WRITING,
    flush_for_cpu,
    handed_to_wal_ms,
    wal_busy,
    wal_bytes_ms,
    wal_ms,
)
from pgtop_tune.diagnosis.facts import FULL, Facts
from pgtop_tune.diagnosis.finding import FindingKind
from pgtop_tune.diagnosis.rule import LEAST, FindingRule, Hit, evidence, explain, page, plural, short_name, stage
from pgtop_tune.diagnosis.rules.statements import CPU_RULES, named
from pgtop_tune.metrics import ceilings, checkpoints, host, io, sections, server
from pgtop_tune.metrics.load import CLIENT_LATENCY, progress_lines
from pgtop_tune.metrics.server import checkpoints_between

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
    """Return the WAL that a flush writes."""
    flushes, written = facts.of(io.WAL_FLUSHES), facts.of(server.WAL_BYTES)
    return None if not flushes or written is None else written / flushes


def is_volume(facts: Facts) -> bool:
    """Return whether the bytes of WAL are too many, and not its flushes."""
    writing = facts.s("io:walwrite", "io:walinitsync", "io:walinitwrite")
    flushing = facts.s("io:walsync")
    is_much = (bytes_per_flush(facts) or 0.0) >= _MUCH_BYTES
    return is_much or (writing > 0.0 and writing >= flushing / 2.0) or facts.s("lwlock:walinsert") >= _INSERTS


def _flush(facts: Facts) -> Hit | None:
    whole_ms, busy, put_off = wal_ms(facts), wal_busy(facts), facts.once(flush_for_cpu)
    impact_ms = whole_ms * (1.0 - put_off)
    rows = handed_to_wal_ms(facts) > facts.b(*DEVICE)
    if whole_ms < _FLUSH_OF_L * facts.latency_ms or busy < (HANDED if rows else _BUSY):
        return None
    if facts.of(server.WAL_BYTES) is None or (bytes_per_flush(facts) or 0.0) >= _MUCH_BYTES:
        return None
    flushes, flush_ms = facts.of(io.WAL_FLUSHES), facts.interval.once(io.WAL_FLUSH_MS.value)
    commits, most = facts.of(io.COMMITS_PER_FLUSH), facts.of(ceilings.MOST_FLUSHES)
    duration_text = f" of {with_ms(flush_ms)}" if flush_ms else ""
    limit = f", {count(most)}/s measured" if most else ""
    group = f", {commits:.1f} commits each" if commits else ""
    handed_ms = handed_to_wal_ms(facts)
    queued = "; sessions queue for rows meanwhile" if handed_ms >= _ROW_QUEUE * facts.latency_ms else ""
    if put_off:
        queued = f"; the device takes {with_ms((flush_ms or 0.0) * (1.0 - put_off))}, the rest is CPU queue"
    write_ms = facts.by(host.DISK_WRITE_AWAIT).get(facts.disk_of("wal") or "")
    told_flushes = f"{count(flushes)} flushes/s{duration_text}{limit}{group}" if flushes else f"busy {100 * busy:.0f} %"
    return Hit(
        sentence=f"commits wait for the WAL device: {facts.share_text(impact_ms)}; {told_flushes}{queued}",
        short=f"commits wait for the WAL device: {facts.percent(impact_ms)}",
        impact_ms=impact_ms,
        evidence=evidence(
            ("waits for WAL", facts.ms_text(facts.b(*DEVICE))),
            ("queue for rows during flushes", facts.ms_text(handed_ms) if handed_ms else None),
            ("WAL device busy", f"{100 * busy:.0f} % of the time"),
            ("flushes", f"{count(flushes)}/s{limit}" if flushes else None),
            ("time per flush", with_ms(flush_ms) if flush_ms else None),
            ("time per write of its disk", f"{with_ms(write_ms)}, without flushes of its cache" if write_ms else None),
            ("commits per flush", f"{commits:.1f}" if commits else None),
            ("WAL per flush", size(bytes_per_flush(facts)) if flushes else None),
        ),
        next_step=(
            "set commit_delay to half a flush if five or more sessions commit at once: commits per flush rise;"
            " or use a faster WAL device. Not the cause if latency stays the same with more commits per flush"
        ),
        deeds=(
            *(
                (stage("commit_delay", "raise", "more commits per flush"),)
                if facts.s(*DEVICE) >= _WRITERS and not put_off
                else ()
            ),
            page("6", "shows flushes and their time"),
        ),
        looks=facts.n(*DEVICE),
        agreed=flushes is not None,
        note=impact_ms < LEAST * facts.latency_ms,
    )


def _delay(facts: Facts) -> Hit | None:
    """Find commits that sleep longer than their flush takes."""
    delay_ms, impact_ms = (facts.number("commit_delay") or 0.0) / 1000.0, wal_ms(facts)
    if delay_ms < _HALF_BUSY * impact_ms or impact_ms < _FLUSH_OF_L * facts.latency_ms or not impact_ms:
        return None
    return Hit(
        sentence=f"commits wait for commit_delay ({with_ms(delay_ms)}): {facts.share_text(impact_ms)}",
        short=f"commits wait for commit_delay ({with_ms(delay_ms)}): {facts.percent(impact_ms)}",
        impact_ms=impact_ms,
        evidence=evidence(
            ("commit_delay", with_ms(delay_ms)),
            ("commit_siblings", facts.setting("commit_siblings")),
            ("waits for WAL", facts.ms_text(impact_ms)),
        ),
        next_step="set commit_delay to half a flush, or to 0. Not the cause if latency stays the same",
        deeds=(stage("commit_delay", "lower", "commits no longer sleep before they flush"),),
        looks=facts.n(*DEVICE),
    )


def _volume(facts: Facts) -> Hit | None:
    whole_ms, busy = wal_ms(facts), wal_busy(facts)
    impact_ms = whole_ms * (1.0 - facts.once(flush_for_cpu))
    if whole_ms < _FLUSH_OF_L * facts.latency_ms or busy < _HALF_BUSY or not is_volume(facts):
        return None
    written = facts.of(server.WAL_BYTES)
    per_transaction = f", {size(written / facts.tps)} per transaction" if written and facts.tps else ""
    full = server.full_pages(facts.interval)
    # Sessions that only commit wait for the device, too: those that insert make the bytes.
    by = named(facts, "wal_bytes", *INSERTING, "io:walinit*", of_total=written, under_way=True)
    return Hit(
        sentence=f"WAL volume is too high: {facts.share_text(impact_ms)}; {byte_rate(written)}{per_transaction}{by.clause}",
        middle=(f"WAL volume is too high: {byte_rate(written)}{by.clause}",),
        brief=f"too much WAL{by.brief}" if by.brief else "",
        short=f"too much WAL, {byte_rate(written)}{by.brief}"
        if by.brief
        else f"WAL volume is too high: {facts.percent(impact_ms)}, {byte_rate(written)}",
        culprit=by.culprit,
        statement=by.words,
        impact_ms=impact_ms,
        evidence=evidence(
            ("waits for WAL", facts.ms_text(impact_ms)),
            ("WAL", f"{byte_rate(written)}{per_transaction}" if written else None),
            ("WAL per flush", size(bytes_per_flush(facts)) if bytes_per_flush(facts) else None),
            ("full-page images", f"{'~' if full.estimated else ''}{full.percent:.0f} % of WAL" if full else None),
        ),
        next_step="use wal_compression, fewer indexes, larger wal_buffers. Not the cause if the WAL bytes stay the same",
        deeds=(
            *(
                (stage("wal_compression", "set", "full-page images become smaller"),)
                if facts.setting("wal_compression") == "off"
                else ()
            ),
            *explain(by.statement, "shows what it writes"),
            page("6", "shows WAL by kind"),
        ),
        looks=facts.n(*DEVICE),
        agreed=written is not None,
    )


def _buffers(facts: Facts) -> Hit | None:
    full = facts.of(server.WAL_BUFFERS_FULL)
    inserts_ms = facts.b("lwlock:walinsert", "lwlock:walbufmapping")
    if not full or full < facts.tps or inserts_ms < _BUFFERS * facts.latency_ms:
        return None
    impact_ms = min(inserts_ms + facts.b("lwlock:walwrite") * (1.0 - wal_busy(facts)), facts.latency_ms)
    times = full / facts.tps if facts.tps else 0.0
    value = facts.shown("wal_buffers")
    return Hit(
        sentence=(
            f"wal_buffers{f' ({value})' if value else ''} fills up {plural(times, 'time')} per transaction:"
            f" {facts.share_text(impact_ms)}"
        ),
        short=f"wal_buffers fills up {plural(times, 'time')} per transaction: {facts.percent(impact_ms)}",
        impact_ms=impact_ms,
        evidence=evidence(
            ("buffers full", f"{count(full)}/s"), ("waits to insert", facts.ms_text(inserts_ms)), ("wal_buffers", value)
        ),
        next_step="set wal_buffers to 64MB (needs a restart): the count falls to 0. Not the cause if latency then stays the same",
        deeds=(stage("wal_buffers", "raise", "it is no longer full, after a restart"),),
    )


def archiver_rows(facts: Facts) -> tuple[tuple[str, str | None], ...]:
    """Return evidence of an archiver that fails: its command and its last failure; nothing of one that works."""
    archiver = facts.interval.now(sections.archiver)
    failed_s = None if archiver is None else io.passed_s(facts.interval, archiver.last_failed_ms)
    if archiver is None or failed_s is None or not io.archiving_fails(facts.interval):
        return ()
    name = archiver_parameter(facts)
    return (
        (name, short_name(facts.shown(name))),
        ("last failed", f"{short_name(archiver.last_failed_wal)}, {duration(failed_s)} ago"),
    )


def archiver_parameter(facts: Facts) -> str:
    """Return the parameter with the archiver's command, or with its library (15 and later)."""
    return "archive_library" if facts.setting("archive_library") else "archive_command"


def _archive(facts: Facts) -> Hit | None:
    backlog, since_s = io.ARCHIVE_BACKLOG(facts.interval), io.SINCE_ARCHIVED(facts.interval)
    looks = facts.interval.recent(sections.archiver, _FAILED_S, least=2)
    failed = looks[0].failed_count - looks[-1].failed_count if len(looks) > 1 else 0
    if (backlog or 0.0) < _BACKLOG and not (failed > 0 and (since_s is None or since_s > _STALE_S)):
        return None
    fails = failed > 0
    for_s = f"; none archived for {duration(since_s)}" if since_s is not None and since_s > _STALE_S else ""
    return Hit(
        sentence=f"{plural(backlog or 0.0, 'WAL segment', 'wait')} to be archived{', the archiver fails' if fails else ''}{for_s}",
        short=f"{plural(backlog or 0.0, 'WAL segment', 'wait')} to be archived{', the archiver fails' if fails else ''}",
        evidence=evidence(
            ("waiting", plural(backlog, "segment") if backlog is not None else None),
            ("failed", f"{plural(failed, 'time')} in the last minute" if fails else None),
            *archiver_rows(facts),
        ),
        next_step=f"fix {archiver_parameter(facts)}: the server log has its error message. Not fixed if the last archived segment stays the same",
        deeds=(page("2", "shows the server log"), page("6", "shows the archiver")),
    )


_SEEN_S: Final = 300.0
_KERNEL: Final = 0.4
"""Share of the kernel in busy CPU time from which on WAL, and not the work for rows, may fill the CPUs."""
_OFTEN: Final = 0.5
_PAGES: Final = 0.5
_WAL: Final = 0.25
_SYNC: Final = 0.5
_SLOWER: Final = 1.5
_BEFORE_S: Final = 60.0
_NOW_S: Final = 5.0
_FEWEST: Final = 2
CHECKPOINTER: Final = "checkpointer"


def _compression(facts: Facts) -> float:
    return 1.0 if facts.setting("wal_compression") in (None, "off") else 0.5


def full_page_share(facts: Facts) -> float:
    """Return the share of the WAL that is full pages, 0 to 1; with compression a guess."""
    pages = server.full_pages(facts.interval)
    if pages is None:
        return 0.0
    return pages.percent / 100.0 * (_compression(facts) if pages.estimated else 1.0)


def _requested(facts: Facts) -> tuple[int, float, float] | None:
    """Return the requested checkpoints of the kept frames: their number, that of timed ones, and seconds between them."""
    looks = facts.interval.recent(sections.checkpoints, _SEEN_S)[::-1]
    between_all = checkpoints_between(looks[0], looks[-1]) if looks else None
    if between_all is not None and between_all[1] < _FEWEST:
        return None
    moments: list[float] = []
    timed = 0
    for older, newer in pairwise(looks):
        between = checkpoints_between(older, newer)
        if between is None:
            moments, timed = [], 0
            continue
        timed += between[0]
        moments += [newer.at_s] * between[1]
    if len(moments) < _FEWEST:
        return None
    return len(moments), float(timed), (moments[-1] - moments[0]) / (len(moments) - 1)


def _often(facts: Facts) -> Hit | None:
    checkpoints, timeout_s = _requested(facts), facts.number("checkpoint_timeout")
    if checkpoints is None or timeout_s is None:
        return None
    requested, timed, apart_s = checkpoints
    if requested <= timed or apart_s >= _OFTEN * timeout_s:
        return None
    share = full_page_share(facts)
    impact_ms = share * wal_ms(facts) + facts.b("io:datafilewrite", "io:datafilesync")
    often, value = f"every {duration(apart_s)}" if apart_s >= 0.5 else "constantly", facts.shown("max_wal_size")
    pages = f"; full-page images are {100 * share:.0f} % of WAL" if share >= _PAGES else ""
    # Full pages cost the CPUs of sessions that write them, and of the kernel.
    costs_cpu = share >= _PAGES and ((facts.busy or 0.0) < FULL or facts.kernel_share >= _KERNEL)
    return Hit(
        sentence=f"checkpoints occur {often} because max_wal_size is {value}{pages}",
        short=f"checkpoints occur {often}: max_wal_size is {value}",
        impact_ms=min(impact_ms, facts.latency_ms),
        evidence=evidence(
            ("requested", f"{requested}, timed {timed:.0f}"),
            ("time between", duration(apart_s)),
            ("full-page images", f"{100 * share:.0f} % of WAL"),
            ("waits due to these checkpoints", facts.ms_text(impact_ms)),
        ),
        next_step="raise max_wal_size: requested checkpoints stop. Not the cause if WAL per second is the same two cycles later",
        deeds=(
            stage("max_wal_size", "raise", "checkpoints come by time, and fewer pages are written whole"),
            page("6", "shows checkpoints"),
        ),
        before=CPU_RULES if costs_cpu else (),
    )


def _pages(facts: Facts) -> Hit | None:
    share, waits_ms = full_page_share(facts), wal_bytes_ms(facts)
    if share < _PAGES or waits_ms < _WAL * facts.latency_ms:
        return None
    since_s = checkpoints.SINCE_CHECKPOINT(facts.interval)
    after = f", {duration(since_s)} after the checkpoint" if since_s is not None else ""
    impact_ms = share * waits_ms
    # A larger max_wal_size affects only checkpoints that the volume of WAL requests.
    requested = _requested(facts) is not None
    return Hit(
        sentence=f"full-page images are {100 * share:.0f} % of WAL{after}: up to {facts.share_text(impact_ms)}",
        short=f"full-page images are {100 * share:.0f} % of WAL: up to {facts.percent(impact_ms)}",
        impact_ms=impact_ms,
        evidence=evidence(
            ("full-page images", f"{100 * share:.0f} % of WAL"),
            ("waits for WAL volume", facts.ms_text(waits_ms)),
            ("checkpoints", "requested" if requested else "timed"),
        ),
        next_step=(
            "raise max_wal_size and checkpoint_timeout, or use wal_compression; leave full_page_writes on"
            if requested
            else "use wal_compression, or raise checkpoint_timeout; leave full_page_writes on"
        ),
        deeds=(stage("max_wal_size", "raise", "fewer pages are written whole"),) if requested else (),
        looks=facts.n(*WRITING, *INSERTING),
    )


def _sync(facts: Facts) -> Hit | None:
    syncing = facts.s_of(CHECKPOINTER, "io:datafilesync")
    if syncing < _SYNC * 0.2:
        # At least half of two seconds out of ten.
        return None
    newest = [line.latency_ms for line in progress_lines(facts.interval, _NOW_S) if line.tps]
    lines = progress_lines(facts.interval, _BEFORE_S + _NOW_S)
    before = [line.latency_ms for line in lines[: -len(newest) or None] if line.tps]
    if not newest or len(before) < 10:
        return None
    usual_ms, now_ms = median(before), max(newest)
    if now_ms < _SLOWER * usual_ms:
        return None
    mean_ms = CLIENT_LATENCY.mean(facts.interval, _NOW_S) or now_ms
    impact_ms = max(min(mean_ms - usual_ms, facts.latency_ms), 0.0)
    return Hit(
        sentence=f"the checkpoint syncs its files: latency rose from {with_ms(usual_ms)} to {with_ms(now_ms)}",
        short=f"checkpoint fsync: latency rose from {with_ms(usual_ms)} to {with_ms(now_ms)}",
        impact_ms=impact_ms,
        evidence=evidence(
            ("checkpointer in DataFileSync", f"{100 * min(syncing, 1.0):.0f} % of 10 s"),
            ("median of the minute before", with_ms(usual_ms)),
            ("worst of the last 5 s", with_ms(now_ms)),
        ),
        next_step="set checkpoint_flush_after to 256kB and lower vm.dirty_background_bytes: the kernel has less to write at once",
        deeds=(stage("checkpoint_flush_after", "set", "less is left for the fsync"), page("6", "shows checkpoints")),
    )


RULES: Final = (
    FindingRule(
        id="wal.buffers",
        page="6",
        needs=(sections.waits, sections.wal),
        find=_buffers,
        least=0.05,
        before=("wal.volume", "wal.flush"),
    ),
    FindingRule(
        id="wal.flush",
        page="6",
        needs=(sections.waits, sections.wal),
        find=_flush,
    ),
    FindingRule(
        id="wal.delay",
        page="6",
        needs=(sections.waits, sections.parameters),
        find=_delay,
        before=("wal.flush", "wal.volume", "cpu.others", "cpu.full"),
    ),
    FindingRule(
        id="wal.volume",
        page="6",
        needs=(sections.waits, sections.wal),
        find=_volume,
        before=("wal.flush",),
    ),
    FindingRule(
        id="wal.archive", kind=FindingKind.NOTE, page="6", needs=(sections.archiver, sections.wal), find=_archive
    ),
    FindingRule(
        id="ckpt.often",
        page="6",
        needs=(sections.checkpoints, sections.parameters, sections.wal),
        find=_often,
        before=("wal.fpi", "wal.volume", "wal.flush", "io.cap"),
    ),
    FindingRule(
        id="ckpt.sync",
        page="6",
        needs=(sections.waits, sections.bench),
        find=_sync,
        before=("wal.flush", "wal.volume", "lock.row"),
    ),
    FindingRule(
        id="wal.fpi",
        page="6",
        needs=(sections.wal, sections.waits),
        find=_pages,
    ),
)
