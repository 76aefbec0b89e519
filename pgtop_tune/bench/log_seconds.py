"""Seconds of pgbench's transaction log (-l), versions 13 to 19: its lines decoded, and histograms that grow.

    client transaction latency_us script epoch_s us [lag_us] [retries]

The lag stands there with --rate, the retries with --max-tries. In place of the latency stands "skipped"
(--latency-limit), "failed", or with --failures-detailed "serialization", "deadlock" or "other" (--continue-on-error).
A whole chunk is made one JSON array, which msgspec decodes without an object for each line, and its columns are taken
as slices: 0.15 to 0.3 µs per line in chunks that stay in the CPU's cache, half of what splitting costs.

The first `READ_LINES` of a second are decoded. Of the lines after them one chunk in eight is decoded; in the others the
lines are counted and only the slow ones decoded (`SlowTail`). The counted lines are spread like the quick ones of the
decoded chunks among them. So number, maximum and the slowest are exact, and the rest is an estimate.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import compress
from typing import Final

from msgspec import Struct, field
from msgspec.json import Decoder

from pgtop_tune.metrics.percentiles import ascending, bucket_edges, bucket_of, count_into
from pgtop_tune.model.bench import LatencySecond, ScriptLatencies

_COLUMNS: Final = 6
_LATENCY: Final = 2
_SCRIPT: Final = 3
_SECOND: Final = 4
_LAG: Final = 6
_COMMAS: Final = bytes.maketrans(b" \n", b",,")
_LARGEST_WORD: Final = -(10**15)
_WORDS: Final = {
    word: _LARGEST_WORD - number
    for number, word in enumerate((b"skipped", b"failed", b"serialization", b"deadlock", b"other"))
}
"""Numbers that stand in place of the words; no latency is that small."""
_NAMES: Final = {number: word.decode() for word, number in _WORDS.items()}
EPOCH_S: Final = range(10**9, 10**10)
"""A line that was torn where the disk was full has something else in place of its second."""
decode: Final = Decoder(list[int]).decode


class LogLayout(Struct, frozen=True):
    """The columns and scripts to read from the lines.

    Attributes:
        lag: They have the column of the schedule lag.
        scripts: How many there are. One is script 0, whatever its lines say.
    """

    lag: bool = False
    scripts: int = 1


PLAIN: Final = LogLayout()


class SecondPart(Struct):
    """Transactions of one second and one script.

    Attributes:
        second: Seconds since the epoch.
        script: Number of the script, from 0.
        latencies: Latencies of transactions that ended well, in µs; not below 0.
        lags: Lags of the same transactions, where the layout has them.
        word_counts: By word, how often it stood in place of a latency.
    """

    second: int
    script: int
    latencies: list[int] = []
    lags: list[int] = []
    word_counts: Counter[str] = field(default_factory=Counter)

    @property
    def skipped(self) -> int:
        """Return transactions that were not begun because they could not have met --latency-limit."""
        return self.word_counts.get("skipped", 0)

    @property
    def failed(self) -> int:
        """Return transactions that failed, of all kinds."""
        return sum(self.word_counts.values()) - self.skipped


class Parsed(Struct):
    """The content of a chunk of the log.

    Attributes:
        parts: In the order of the log; a second may come twice.
        newest: The last line's second, None when there was no line.
        unreadable: Lines that are something else.
    """

    parts: list[SecondPart] = []
    newest: int | None = None
    unreadable: int = 0


def parse_lines(chunk: bytes, layout: LogLayout = PLAIN) -> Parsed:
    """Parse whole lines, each ended by a line feed."""
    parsed = Parsed()
    if chunk:
        _parse(chunk, layout, parsed)
    return parsed


def _parse(chunk: bytes, layout: LogLayout, parsed: Parsed) -> None:
    """Parse all lines at once; where that fails, each half alone, so that a foreign line costs only itself."""
    lines = chunk.count(b"\n")
    try:
        _take_columns(chunk, lines, layout, parsed)
    except ValueError:
        if lines == 1:
            parsed.unreadable += 1
            return
        # The line feed that is next to the middle.
        middle = chunk.rfind(b"\n", 0, len(chunk) // 2) + 1 or chunk.index(b"\n") + 1
        _parse(chunk[:middle], layout, parsed)
        _parse(chunk[middle:], layout, parsed)


def _numbers(chunk: bytes, lines: int, layout: LogLayout) -> tuple[list[int], int]:
    """Return every column of every line, words as their numbers; and how many columns a line has.

    Raises:
        ValueError: Something is neither, or lines differ.
    """
    if has_words(chunk):
        chunk = with_numbers(chunk)
    if not layout.lag:
        # Nothing is wanted of a line's end and of the next one's client: they become one number.
        try:
            numbers = decode(b"[%b]" % chunk.translate(_COMMAS, b"\n"))
        except ValueError:
            pass
        else:
            return numbers, _columns(len(numbers) - 1, lines, _COLUMNS - 1)
    numbers = decode(b"[%b]" % chunk.translate(_COMMAS)[:-1])
    return numbers, _columns(len(numbers), lines, _COLUMNS + layout.lag)


def has_words(lines: bytes) -> bool:
    """Return whether a line has a word in place of its latency: all words have an e, and nothing else has."""
    return b"e" in lines


def with_numbers(lines: bytes) -> bytes:
    """Return lines with `odd_part`'s numbers in place of words."""
    for word, number in _WORDS.items():
        lines = lines.replace(word, b"%d" % number)
    return lines


def _columns(count: int, lines: int, fewest: int) -> int:
    columns, remainder = divmod(count, lines)
    if remainder or columns < fewest:
        raise ValueError("lines have different numbers of columns")
    return columns


def _take_columns(chunk: bytes, lines: int, layout: LogLayout, parsed: Parsed) -> None:
    """Take runs of lines of the same second, all or none.

    Raises:
        ValueError: The columns are not what they should be; seconds do not ascend (the clock was set back).
    """
    numbers, columns = _numbers(chunk, lines, layout)
    latencies, seconds = numbers[_LATENCY::columns], numbers[_SECOND::columns]
    # A byte each: pgbench has at most 128 scripts; ValueError above 255.
    scripts = bytes(numbers[_SCRIPT::columns]) if layout.scripts > 1 else b""
    lags = numbers[_LAG::columns] if layout.lag else []
    parts: list[SecondPart] = []
    odd = (has_words(chunk) or b"-" in chunk) and min(latencies) < 0
    start = 0
    while start < lines:
        second = seconds[start]
        end = lines if seconds[-1] == second else bisect_right(seconds, second, start)
        if second not in EPOCH_S or seconds[start:end].count(second) != end - start:
            raise ValueError("seconds are not in ascending order")
        run = slice(start, end)
        parts += _parts(second, latencies[run], scripts[run], lags[run], odd_part if odd else SecondPart)
        start = end
    parsed.parts += parts
    parsed.newest = seconds[-1]


def _parts(
    second: int, latencies: list[int], scripts: bytes, lags: list[int], make: Callable[..., SecondPart]
) -> Iterator[SecondPart]:
    """Yield lines of one second, by script."""
    if len(set(scripts)) < 2:
        yield make(second, scripts[0] if scripts else 0, latencies, lags)
        return
    lags_of = dict(of_scripts(lags, scripts)) if lags else {}
    for script, of_it in of_scripts(latencies, scripts):
        yield make(second, script, of_it, lags_of.get(script, []))


def of_scripts(values: list[int], scripts: bytes) -> Iterator[tuple[int, list[int]]]:
    """Yield values by script, a byte each."""
    for script in set(scripts):
        yield script, [*compress(values, scripts.translate(_only(script)))]


@cache
def _only(script: int) -> bytes:
    """Make 1 of this script and 0 of others."""
    return bytes(number == script for number in range(256))


def odd_part(second: int, script: int, latencies: list[int], lags: list[int]) -> SecondPart:
    """Return a `SecondPart` whose latencies hold words, by their numbers, or times of a clock that was set back."""
    timed = [us > _LARGEST_WORD for us in latencies]
    words_by_number = Counter(us for us in latencies if us <= _LARGEST_WORD)
    return SecondPart(
        second=second,
        script=script,
        latencies=[us if us > 0 else 0 for us in compress(latencies, timed)],
        lags=[*compress(lags, timed)],
        word_counts=Counter({_NAMES[number]: count for number, count in words_by_number.items()}),
    )


# The slow lines of a chunk of the log, without decoding the others.
#
# Above some ten thousand lines a second most of them are only counted: one search, at a third of the cost of decoding,
# finds those with a latency beyond a threshold. So the slowest transactions and the maximum are complete; the spread
# of the others is known from the chunks that are decoded.

_MOST_BEYOND: Final = 0.1
_FEWEST_BEYOND: Final = 0.02
"""Share of the transactions that are slow: p99 and above are told exactly."""
FREQUENT: Final = 1000
"""Transactions without which a script is too rare to have a threshold."""
_FEWEST_COLUMNS: Final = 6


class CountedLines(Struct, frozen=True):
    """The part of a chunk that belongs to one second.

    Attributes:
        lines: Transactions that ended well.
        parts: By script (0 where they are not told), latencies at or beyond the threshold, of some scripts all; and
            words, which are complete.
    """

    lines: int
    parts: list[SecondPart]


class SlowTail(Struct, frozen=True):
    """The threshold of slow transactions in one second.

    Attributes:
        from_us: At least that.
        bucket: The first whose latencies are all so slow.
        complete_scripts: Scripts of which every line is wanted: rare ones, and those with nothing so slow.
        by_script: Whether scripts are told apart.
    """

    from_us: int
    bucket: int
    complete_scripts: tuple[int, ...]
    by_script: bool

    def count(self, chunk: bytes, second: int) -> CountedLines | None:
        """Count a chunk; None when a line is torn, or has a latency below 0: the chunk is to be decoded."""
        if b"-" in chunk:
            return None
        with_words = has_words(chunk)
        matches = b",".join(
            _search(self.from_us, self.complete_scripts, self.by_script, with_words).findall(b"\n" + chunk)
        )
        try:
            numbers = decode(b"[%b]" % (with_numbers(matches) if with_words else matches).replace(b" ", b","))
            scripts = bytes(numbers[1::2]) if self.by_script else b""
        except ValueError:
            # A line that was torn where the disk was full.
            return None
        slow_us = bucket_edges(self.bucket)[0]
        by_script = of_scripts(numbers[::2], scripts) if self.by_script else [(0, numbers)]
        parts = [
            (odd_part if with_words else SecondPart)(second, script, latencies, []) for script, latencies in by_script
        ]
        for part in parts:
            if part.script not in self.complete_scripts:
                part.latencies = [us for us in part.latencies if us >= slow_us]
        return CountedLines(chunk.count(b"\n") - sum(part.word_counts.total() for part in parts), parts)


def tail_of(counts: Mapping[int, Mapping[int, int]], scripts: int) -> SlowTail | None:
    """Return the threshold that a tenth of a script passes at most, the slowest; None where no script has enough lines.

    There is one for all scripts, that with the fewest lines beyond; of scripts that are quicker every line is wanted.

    Args:
        counts: By script, transactions by bucket.
        scripts: How many there are; all are script 0 where there is one.
    """
    lowest_us = {n: _slow_from(buckets) for n, buckets in counts.items() if sum(buckets.values()) >= FREQUENT}
    if not lowest_us:
        return None

    def wanted(from_us: int) -> int:
        return sum(
            count
            for n, buckets in counts.items()
            for bucket, count in buckets.items()
            if lowest_us.get(n, 0) < from_us or bucket_edges(bucket)[1] > from_us
        )

    from_us = min(sorted(set(lowest_us.values())), key=wanted)
    complete_scripts = tuple(n for n in range(scripts) if lowest_us.get(n, -1) < from_us)
    return SlowTail(from_us=from_us, bucket=_above(from_us), complete_scripts=complete_scripts, by_script=scripts > 1)


def _slow_from(counts: Mapping[int, int]) -> int:
    """Return a threshold of one significant digit if the range allows it, else of two: a search finds it quickly."""
    total, beyond, ascending = sum(counts.values()), 0, sorted(counts)
    lowest = highest = bucket_edges(ascending[-1])[0]
    for bucket in reversed(ascending):
        beyond += counts[bucket]
        if beyond > _MOST_BEYOND * total:
            break
        lowest = bucket_edges(bucket)[0]
        if beyond <= _FEWEST_BEYOND * total:
            highest = lowest
    for digits in (1, 2):
        unit: int = 10 ** max(len(str(highest)) - digits, 0)
        rounded = highest - highest % unit
        if rounded >= lowest:
            return rounded
    return rounded


def _above(us: int) -> int:
    """Return the first bucket that has nothing below."""
    bucket = bucket_of(us)
    return bucket if bucket_edges(bucket)[0] == us else bucket + 1


def second_of(chunk: bytes) -> int | None:
    """Return the second that first and last of whole lines have in common, None when there is none."""
    first, last = chunk[: chunk.index(b"\n")].split(), chunk[chunk.rfind(b"\n", 0, -1) + 1 :].split()
    if len(first) < _FEWEST_COLUMNS or len(last) < _FEWEST_COLUMNS or first[4] != last[4] or not first[4].isdigit():
        return None
    second = int(first[4])
    return second if second in EPOCH_S else None


@lru_cache(maxsize=256)
def _search(from_us: int, complete_scripts: tuple[int, ...], by_script: bool, with_words: bool) -> re.Pattern[bytes]:
    """Find the latency of each line that has at least so much, or its word; with its script if those are told.

    What follows is a script and ten digits of a second, else it is another column of a line that was torn.
    """
    slow = rb"(?:%b%b)" % (at_least(from_us), rb"|[a-z]+" if with_words else b"")
    if not by_script:
        return re.compile(rb"\n[^ \n]+ [^ \n]+ (%b) \d+ \d{10} " % slow)
    any_of_complete = (
        rb"|\d+ (?:%b)" % b"|".join(b"%d" % script for script in complete_scripts) if complete_scripts else b""
    )
    return re.compile(rb"\n[^ \n]+ [^ \n]+ (%b \d+%b) \d{10} " % (slow, any_of_complete))


def at_least(low: int) -> bytes:
    """Return a regular expression of the whole numbers from `low` on, which has two digits that count at most."""
    digits = str(low)
    first, second, more_digits = int(digits[0]), int(digits[1:2] or 0), len(digits) - 1
    if not second:
        # Shorter by a branch: what begins lower has a digit more.
        return rb"(?:[%d-9]\d{%d}|\d{%d})\d*" % (first, more_digits, more_digits + 2)
    higher = rb"[%d-9]\d{%d}|" % (first + 1, more_digits) if first < 9 else b""
    return rb"(?:%d[%d-9]\d{%d}|%b\d{%d})\d*" % (first, second, more_digits - 1, higher, more_digits + 2)


READ_LINES: Final = 20_000
"""Lines of each second that are all decoded: some 7 to 10 ms of CPU."""


class _Latencies(Struct):
    """A histogram that grows."""

    logged: int = 0
    sum_us: int = 0
    max_us: int = 0
    counted: int = 0
    counted_below_us: int = 0
    counts: Counter[int] = field(default_factory=Counter)
    word_counts: Counter[str] = field(default_factory=Counter)
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
        if part.word_counts:
            self.word_counts.update(part.word_counts)
            self.failed += part.failed
            self.skipped += part.skipped

    def join(self, latencies: _Latencies) -> None:
        self.logged += latencies.logged
        self.sum_us += latencies.sum_us
        self.max_us = max(self.max_us, latencies.max_us)
        self.counted += latencies.counted
        self.counted_below_us = max(self.counted_below_us, latencies.counted_below_us)
        self.counts.update(latencies.counts)
        self.word_counts.update(latencies.word_counts)
        self.failed += latencies.failed
        self.skipped += latencies.skipped


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
    tail: SlowTail | None = None
    _read: dict[int, _Latencies] = {}
    _sample: dict[int, _Latencies] = {}
    _quick_sums: Counter[int] = field(default_factory=Counter)
    _counted: int = 0
    _unread: int = 0
    _lag: _Lags = field(default_factory=_Lags)
    _sample_lag: _Lags = field(default_factory=_Lags)

    def add(self, part: SecondPart) -> None:
        """Add decoded lines of one script."""
        script = self._of(part.script)
        script.add(part.latencies)
        script.add_words(part)
        self._lag.add(part.lags)
        if self.tail is None and sum(latencies.logged for latencies in self._read.values()) >= READ_LINES:
            counts = {number: latencies.counts for number, latencies in self._read.items()}
            self.tail = tail_of(counts, self.layout.scripts)

    def add_sample(self, part: SecondPart) -> None:
        """Add decoded lines that stand for others, too; words stand for themselves."""
        if self.tail is None:
            # Of a second between the chunk's first and last, with a clock that was set back.
            self.add(part)
            return
        if part.word_counts:
            self._of(part.script).add_words(part)
        self._sample.setdefault(part.script, _Latencies()).add(part.latencies)
        self._sample_lag.add(part.lags)
        slow_us = bucket_edges(self.tail.bucket)[0]
        self._quick_sums[part.script] += sum(us for us in part.latencies if us < slow_us)

    def add_counted(self, counted: CountedLines) -> None:
        """Add counted lines, with the slow ones among them."""
        self._counted += counted.lines
        self._unread += counted.lines
        for part in counted.parts:
            self._unread -= len(part.latencies)
            script = self._of(part.script)
            script.add(part.latencies)
            script.add_words(part)

    def done(self, second: int) -> LatencySecond:
        """Return the second as a frame has it."""
        scripts = self._weighed()
        total = _Latencies()
        for latencies in scripts.values():
            total.join(latencies)
        lag = self._lags() if self.layout.lag else None
        return LatencySecond(
            second=second,
            logged=total.logged,
            sum_us=total.sum_us,
            max_us=total.max_us,
            buckets=ascending(total.counts),
            failed=total.failed,
            serialization_failures=total.word_counts["serialization"],
            deadlock_failures=total.word_counts["deadlock"],
            skipped=total.skipped,
            lag_sum_us=lag.sum_us if lag else None,
            lag_max_us=lag.max_us if lag else None,
            scripts=tuple(_script(number, latencies) for number, latencies in sorted(scripts.items()))
            if self.layout.scripts > 1
            else (),
            counted=total.counted,
            counted_below_us=total.counted_below_us,
        )

    def _of(self, script: int) -> _Latencies:
        return self._read.setdefault(script, _Latencies())

    def _lags(self) -> _Lags:
        """Return the lags; counted chunks have the mean of the others among them."""
        like = self._sample_lag if self._sample_lag.lines else self._lag
        mean_us = like.sum_us / like.lines if like.lines else 0.0
        return _Lags(
            lines=self._lag.lines + self._sample_lag.lines + self._counted,
            sum_us=self._lag.sum_us + self._sample_lag.sum_us + round(mean_us * self._counted),
            max_us=max(self._lag.max_us, self._sample_lag.max_us),
        )

    def _weighed(self) -> dict[int, _Latencies]:
        """Return latencies by script, with the counted lines spread among them."""
        if self._unread:
            assert self.tail is not None
            slow_us = bucket_edges(self.tail.bucket)[0]
            for number, part in _spread(self._unread, self._quick(self.tail)).items():
                self._of(number).join(part)
            for number, read in self._read.items():
                # No chunk of the sample need have had its lines.
                if number not in self.tail.complete_scripts:
                    read.counted_below_us = slow_us
        for number, latencies in self._sample.items():
            self._of(number).join(latencies)
        return self._read

    def _quick(self, tail: SlowTail) -> dict[int, tuple[Mapping[int, int], float]]:
        """Return the spread of the sample's quick transactions by script, and their mean in µs.

        Where all of the sample was slow, or there is none yet, those read first stand for them.
        """
        sample = {
            n: _below(latencies.counts, tail.bucket)
            for n, latencies in self._sample.items()
            if n not in tail.complete_scripts
        }
        if any(sample.values()):
            return {n: (counts, self._quick_sums[n] / sum(counts.values())) for n, counts in sample.items() if counts}
        read = {
            n: _below(latencies.counts, tail.bucket)
            for n, latencies in self._read.items()
            if n not in tail.complete_scripts
        }
        spreads = {n: counts for n, counts in read.items() if counts} or {0: {max(tail.bucket - 1, 0): 1}}
        return {n: (counts, _mean_us(counts)) for n, counts in spreads.items()}


def _spread(lines: int, quick: Mapping[int, tuple[Mapping[int, int], float]]) -> dict[int, _Latencies]:
    """Spread a number of transactions like others: buckets are rounded, their sum is exact."""
    total = sum(sum(counts.values()) for counts, _ in quick.values())
    latencies_by_script: dict[int, _Latencies] = {}
    running = before = 0
    for number, (counts, mean_us) in sorted(quick.items()):
        part = latencies_by_script[number] = _Latencies()
        for bucket, count in ascending(counts):
            running += count
            until = running * lines // total
            if until > before:
                part.counts[bucket] = until - before
                before = until
        part.logged = part.counted = sum(part.counts.values())
        part.sum_us = round(part.logged * mean_us)
    return latencies_by_script


def _below(counts: Mapping[int, int], bucket: int) -> dict[int, int]:
    return {index: count for index, count in counts.items() if index < bucket}


def _mean_us(counts: Mapping[int, int]) -> float:
    """Return the mean of a histogram, with each latency in the middle of its bucket."""
    middles: Iterable[float] = ((sum(bucket_edges(bucket)) - 1) / 2.0 * count for bucket, count in counts.items())
    return sum(middles) / sum(counts.values())


def _script(number: int, latencies: _Latencies) -> ScriptLatencies:
    return ScriptLatencies(
        script=number,
        logged=latencies.logged,
        sum_us=latencies.sum_us,
        max_us=latencies.max_us,
        buckets=ascending(latencies.counts),
        failed=latencies.failed,
        skipped=latencies.skipped,
        counted=latencies.counted,
        counted_below_us=latencies.counted_below_us,
    )
