"""Checkpoints: too often, their full pages, and their fsync."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import Final

from pgtop_tune.base.units import duration, with_ms
from pgtop_tune.diagnosis.chains import INSERTING, WRITING, wal_bytes_ms, wal_ms
from pgtop_tune.diagnosis.facts import Facts
from pgtop_tune.diagnosis.finding import FindingKind, ParameterAdvice
from pgtop_tune.diagnosis.rule import Hit, Rule
from pgtop_tune.diagnosis.wording import told
from pgtop_tune.metrics import checkpoints, sections, server
from pgtop_tune.metrics.load import CLIENT_LATENCY, progress_lines
from pgtop_tune.metrics.server import checkpoints_between

_SEEN_S: Final = 300.0
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
    """Share of the WAL that is full pages, 0 to 1; with compression a guess."""
    found = server.full_pages(facts.interval)
    if found is None:
        return 0.0
    return found.percent / 100.0 * (_compression(facts) if found.estimated else 1.0)


def _requested(facts: Facts) -> tuple[int, float, float] | None:
    """Checkpoints that were requested in the frames kept: how many, timed ones, and seconds between them."""
    looks = facts.interval.recent(sections.checkpoints, _SEEN_S)[::-1]
    whole = checkpoints_between(looks[0], looks[-1]) if looks else None
    if whole is not None and whole[1] < _FEWEST:
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
    found, timeout_s = _requested(facts), facts.number("checkpoint_timeout")
    if found is None or timeout_s is None:
        return None
    requested, timed, apart_s = found
    if requested <= timed or apart_s >= _OFTEN * timeout_s:
        return None
    share = full_page_share(facts)
    impact_ms = share * wal_ms(facts) + facts.b("io:datafilewrite", "io:datafilesync")
    often, value = f"every {duration(apart_s)}" if apart_s >= 0.5 else "all the time", facts.shown("max_wal_size")
    pages = f"; full pages are {100 * share:.0f} % of the WAL" if share >= _PAGES else ""
    return Hit(
        sentence=f"checkpoints come {often} because max_wal_size is {value}{pages}",
        short=f"checkpoints come {often}: max_wal_size is {value}",
        impact_ms=min(impact_ms, facts.latency_ms),
        evidence=told(
            ("requested", f"{requested}, timed {timed:.0f}"),
            ("apart", duration(apart_s)),
            ("full pages", f"{100 * share:.0f} % of the WAL"),
            ("their part of the waits for WAL", with_ms(impact_ms)),
        ),
        next_step="a larger max_wal_size: requested checkpoints stop. Refuted if WAL per second is the same two cycles later",
        advice=ParameterAdvice("max_wal_size", "raise", f"checkpoints come {often}"),
        agreed=True,
    )


def _pages(facts: Facts) -> Hit | None:
    share, waits_ms = full_page_share(facts), wal_bytes_ms(facts)
    if share < _PAGES or waits_ms < _WAL * facts.latency_ms:
        return None
    since_s = checkpoints.SINCE_CHECKPOINT(facts.interval)
    after = f", {duration(since_s)} after the checkpoint" if since_s is not None else ""
    impact_ms = share * waits_ms
    # A larger max_wal_size moves checkpoints that its smallness requests, and no others.
    requested = _requested(facts) is not None
    return Hit(
        sentence=f"full pages are {100 * share:.0f} % of the WAL{after}: at most {facts.share_text(impact_ms)}",
        short=f"full pages are {100 * share:.0f} % of the WAL: {facts.percent(impact_ms)}",
        impact_ms=impact_ms,
        evidence=told(
            ("full pages", f"{100 * share:.0f} % of the WAL"),
            ("waits for bytes of WAL", with_ms(waits_ms)),
            ("checkpoints", "requested" if requested else "by time"),
        ),
        next_step=(
            "larger max_wal_size and checkpoint_timeout, wal_compression. full_page_writes stays on"
            if requested
            else "wal_compression, a longer checkpoint_timeout. full_page_writes stays on"
        ),
        advice=ParameterAdvice("max_wal_size", "raise", "each page is written whole once after each checkpoint")
        if requested
        else None,
        looks=facts.n(*WRITING, *INSERTING),
    )


def _sync(facts: Facts) -> Hit | None:
    syncing = facts.s_of(CHECKPOINTER, "io:datafilesync")
    if syncing < _SYNC * 0.2:
        # Two of the ten seconds at least, half of the time in it.
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
        sentence=f"the checkpoint is in its fsync: latency went from {with_ms(usual_ms)} to {with_ms(now_ms)}",
        short=f"the checkpoint's fsync: {with_ms(usual_ms)} became {with_ms(now_ms)}",
        impact_ms=impact_ms,
        evidence=told(
            ("checkpointer in DataFileSync", f"{100 * min(syncing, 1.0):.0f} % of ten seconds"),
            ("median of the minute before", with_ms(usual_ms)),
            ("worst of the last five seconds", with_ms(now_ms)),
        ),
        next_step="checkpoint_flush_after of 256kB, a smaller vm.dirty_background_bytes: the kernel has less to write at once",
        advice=ParameterAdvice("checkpoint_flush_after", "set", "less is left for the fsync"),
    )


RULES: Final = (
    Rule(
        id="ckpt.often",
        kind=FindingKind.LATENCY,
        page="6",
        needs=(sections.checkpoints, sections.parameters, sections.wal),
        find=_often,
        before=("wal.fpi", "wal.volume", "wal.flush", "io.cap"),
    ),
    Rule(
        id="ckpt.sync",
        kind=FindingKind.LATENCY,
        page="6",
        needs=(sections.waits, sections.bench),
        find=_sync,
        before=("wal.flush", "wal.volume", "lock.row"),
    ),
    Rule(
        id="wal.fpi",
        kind=FindingKind.LATENCY,
        page="6",
        needs=(sections.wal, sections.waits),
        find=_pages,
    ),
)
