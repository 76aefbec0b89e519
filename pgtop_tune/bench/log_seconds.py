"""Seconds of the transaction log that grow: histograms by script, and what was only counted put among what was read.

The first `READ_LINES` of a second are decoded. Of what follows one chunk in eight is; of the others the lines are
counted and the slow ones taken (`bench.log_tails`). Those that were only counted are spread as the quick ones of the
decoded chunks among them. So number, maximum and the slowest are exact, what lies below is an estimate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from pgtop_tune.bench.log_lines import LogLayout, SecondPart
from pgtop_tune.bench.log_tails import CountedLines, Tail, tail_of
from pgtop_tune.metrics.percentiles import ascending, bucket_edges, count_into
from pgtop_tune.model.bench import LatencySecond, ScriptLatencies

READ_LINES: Final = 20_000
"""Of each second: some 7 to 10 ms of CPU."""


class _Latencies(Struct):
    """A histogram that grows."""

    logged: int = 0
    sum_us: int = 0
    max_us: int = 0
    counted: int = 0
    counted_below_us: int = 0
    counts: Counter[int] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    skipped: int = 0

    def add(self, latencies: Sequence[int]) -> None:
        if latencies:
            self.logged += len(latencies)
            self.sum_us += sum(latencies)
            highest = max(latencies)
            count_into(self.counts, latencies, highest)
            self.max_us = max(self.max_us, highest)

    def add_words(self, part: SecondPart) -> None:
        if part.words:
            self.words.update(part.words)
            self.failed += part.failed
            self.skipped += part.skipped

    def join(self, other: _Latencies) -> None:
        self.logged += other.logged
        self.sum_us += other.sum_us
        self.max_us = max(self.max_us, other.max_us)
        self.counted += other.counted
        self.counted_below_us = max(self.counted_below_us, other.counted_below_us)
        self.counts.update(other.counts)
        self.words.update(other.words)
        self.failed += other.failed
        self.skipped += other.skipped


class _Lags(Struct):
    """Lags behind the schedule."""

    lines: int = 0
    sum_us: int = 0
    max_us: int = 0

    def add(self, lags: Sequence[int]) -> None:
        if lags:
            self.lines += len(lags)
            self.sum_us += sum(lags)
            self.max_us = max(self.max_us, max(lags))


class GrowingSecond(Struct):
    """A second that is not complete yet.

    Attributes:
        arrived_s: When its first line was read.
        tail: What is slow in it; None until `READ_LINES` are decoded.
    """

    arrived_s: float
    layout: LogLayout
    tail: Tail | None = None
    _read: dict[int, _Latencies] = field(default_factory=dict)
    _sample: dict[int, _Latencies] = field(default_factory=dict)
    _quick_sums: Counter[int] = field(default_factory=Counter)
    _counted: int = 0
    _unread: int = 0
    _lag: _Lags = field(default_factory=_Lags)
    _sample_lag: _Lags = field(default_factory=_Lags)

    def add(self, part: SecondPart) -> None:
        """Lines of one script that were decoded."""
        script = self._of(part.script)
        script.add(part.latencies)
        script.add_words(part)
        self._lag.add(part.lags)
        if self.tail is None and sum(each.logged for each in self._read.values()) >= READ_LINES:
            counts = {number: each.counts for number, each in self._read.items()}
            self.tail = tail_of(counts, self.layout.scripts)

    def add_sample(self, part: SecondPart) -> None:
        """Lines that were decoded and stand for others, too; words stand for themselves."""
        if self.tail is None:
            # Of a second between the chunk's first and last, with a clock that was set back.
            self.add(part)
            return
        if part.words:
            self._of(part.script).add_words(part)
        self._sample.setdefault(part.script, _Latencies()).add(part.latencies)
        self._sample_lag.add(part.lags)
        slow_us = bucket_edges(self.tail.bucket)[0]
        self._quick_sums[part.script] += sum(us for us in part.latencies if us < slow_us)

    def add_counted(self, counted: CountedLines) -> None:
        """Lines that were counted, the slow ones among them taken."""
        self._counted += counted.lines
        self._unread += counted.lines
        for part in counted.parts:
            self._unread -= len(part.latencies)
            script = self._of(part.script)
            script.add(part.latencies)
            script.add_words(part)

    def done(self, second: int) -> LatencySecond:
        """All of it, as a frame has it."""
        scripts = self._weighed()
        whole = _Latencies()
        for each in scripts.values():
            whole.join(each)
        lag = self._lags() if self.layout.lag else None
        return LatencySecond(
            second=second,
            logged=whole.logged,
            sum_us=whole.sum_us,
            max_us=whole.max_us,
            buckets=ascending(whole.counts),
            failed=whole.failed,
            serialization_failures=whole.words["serialization"],
            deadlock_failures=whole.words["deadlock"],
            skipped=whole.skipped,
            lag_sum_us=lag.sum_us if lag else None,
            lag_max_us=lag.max_us if lag else None,
            scripts=tuple(_script(number, each) for number, each in sorted(scripts.items()))
            if self.layout.scripts > 1
            else (),
            counted=whole.counted,
            counted_below_us=whole.counted_below_us,
        )

    def _of(self, script: int) -> _Latencies:
        return self._read.setdefault(script, _Latencies())

    def _lags(self) -> _Lags:
        """Those that were read; chunks that were counted have the mean of the others among them."""
        like = self._sample_lag if self._sample_lag.lines else self._lag
        mean_us = like.sum_us / like.lines if like.lines else 0.0
        return _Lags(
            lines=self._lag.lines + self._sample_lag.lines + self._counted,
            sum_us=self._lag.sum_us + self._sample_lag.sum_us + round(mean_us * self._counted),
            max_us=max(self._lag.max_us, self._sample_lag.max_us),
        )

    def _weighed(self) -> dict[int, _Latencies]:
        """By script, with what was only counted where it belongs."""
        if self._unread:
            assert self.tail is not None
            slow_us = bucket_edges(self.tail.bucket)[0]
            for number, part in _spread(self._unread, self._quick(self.tail)).items():
                self._of(number).join(part)
            for number, read in self._read.items():
                # No chunk of the sample need have had its lines.
                if number not in self.tail.whole:
                    read.counted_below_us = slow_us
        for number, each in self._sample.items():
            self._of(number).join(each)
        return self._read

    def _quick(self, tail: Tail) -> dict[int, tuple[Mapping[int, int], float]]:
        """By script, how the quick ones of the sample spread, and their mean in µs.

        Where all of the sample was slow, or there is none yet, those read first stand for them.
        """
        sample = {n: _below(each.counts, tail.bucket) for n, each in self._sample.items() if n not in tail.whole}
        if any(sample.values()):
            return {n: (counts, self._quick_sums[n] / sum(counts.values())) for n, counts in sample.items() if counts}
        read = {n: _below(each.counts, tail.bucket) for n, each in self._read.items() if n not in tail.whole}
        found = {n: counts for n, counts in read.items() if counts} or {0: {max(tail.bucket - 1, 0): 1}}
        return {n: (counts, _mean_us(counts)) for n, counts in found.items()}


def _spread(lines: int, quick: Mapping[int, tuple[Mapping[int, int], float]]) -> dict[int, _Latencies]:
    """Spreads a number of transactions like others: buckets are rounded, their sum is exact."""
    whole = sum(sum(counts.values()) for counts, _ in quick.values())
    found: dict[int, _Latencies] = {}
    running = before = 0
    for number, (counts, mean_us) in sorted(quick.items()):
        part = found[number] = _Latencies()
        for bucket, count in ascending(counts):
            running += count
            until = running * lines // whole
            if until > before:
                part.counts[bucket] = until - before
                before = until
        part.logged = part.counted = sum(part.counts.values())
        part.sum_us = round(part.logged * mean_us)
    return found


def _below(counts: Mapping[int, int], bucket: int) -> dict[int, int]:
    return {each: count for each, count in counts.items() if each < bucket}


def _mean_us(counts: Mapping[int, int]) -> float:
    """Of a histogram, latencies taken in the middle of their buckets."""
    middles: Iterable[float] = ((sum(bucket_edges(bucket)) - 1) / 2.0 * count for bucket, count in counts.items())
    return sum(middles) / sum(counts.values())


def _script(number: int, each: _Latencies) -> ScriptLatencies:
    return ScriptLatencies(
        script=number,
        logged=each.logged,
        sum_us=each.sum_us,
        max_us=each.max_us,
        buckets=ascending(each.counts),
        failed=each.failed,
        skipped=each.skipped,
        counted=each.counted,
        counted_below_us=each.counted_below_us,
    )
