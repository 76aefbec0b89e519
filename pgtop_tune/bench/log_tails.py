"""The slow lines of a chunk of pgbench's transaction log, without decoding the others.

Above some ten thousand lines a second most of them are only counted: one search, a third of the cost of decoding,
brings those with a latency beyond a threshold. So the slowest transactions and the maximum are complete; how the others
spread is known from the chunks that are decoded (`bench.log_seconds`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct

from pgtop_tune.bench.log_lines import EPOCH_S, SecondPart, decode, has_words, odd_part, of_scripts, with_numbers
from pgtop_tune.metrics.percentiles import bucket_edges, bucket_of

_MOST_BEYOND: Final = 0.1
_FEWEST_BEYOND: Final = 0.02
"""Share of the transactions that are slow: p99 and above are told exactly."""
FREQUENT: Final = 1000
"""Transactions without which a script is too rare to have a threshold."""
_FEWEST_COLUMNS: Final = 6


class CountedLines(Struct, frozen=True):
    """What a chunk had of one second.

    Attributes:
        lines: Transactions that ended well.
        parts: By script (0 where they are not told), latencies at or beyond the threshold, of some scripts all; and
            words, which are complete.
    """

    lines: int
    parts: list[SecondPart]


class Tail(Struct, frozen=True):
    """What counts as slow in one second.

    Attributes:
        from_us: At least that.
        bucket: The first whose latencies are all so slow.
        whole: Scripts of which every line is wanted: rare ones, and those with nothing so slow.
        by_script: Whether scripts are told apart.
    """

    from_us: int
    bucket: int
    whole: tuple[int, ...]
    by_script: bool

    def count(self, chunk: bytes, second: int) -> CountedLines | None:
        """None when a line is torn, or has a latency below 0: the chunk is to be decoded."""
        if b"-" in chunk:
            return None
        words = has_words(chunk)
        found = b",".join(_search(self.from_us, self.whole, self.by_script, words).findall(b"\n" + chunk))
        try:
            numbers = decode(b"[%b]" % (with_numbers(found) if words else found).replace(b" ", b","))
            scripts = bytes(numbers[1::2]) if self.by_script else b""
        except ValueError:
            # A line that was torn where the disk was full.
            return None
        slow_us = bucket_edges(self.bucket)[0]
        told = of_scripts(numbers[::2], scripts) if self.by_script else [(0, numbers)]
        parts = [(odd_part if words else SecondPart)(second, script, latencies, []) for script, latencies in told]
        for part in parts:
            if part.script not in self.whole:
                part.latencies = [us for us in part.latencies if us >= slow_us]
        return CountedLines(chunk.count(b"\n") - sum(part.words.total() for part in parts), parts)


def tail_of(counts: Mapping[int, Mapping[int, int]], scripts: int) -> Tail | None:
    """The threshold that lets a tenth of a script pass at most, but its slowest; None when none has enough for one.

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
    whole = tuple(n for n in range(scripts) if lowest_us.get(n, -1) < from_us)
    return Tail(from_us=from_us, bucket=_above(from_us), whole=whole, by_script=scripts > 1)


def _slow_from(counts: Mapping[int, int]) -> int:
    """A number that is quickly searched for: of one digit that counts if there is one in the range, else of two."""
    whole, beyond, ascending = sum(counts.values()), 0, sorted(counts)
    lowest = highest = bucket_edges(ascending[-1])[0]
    for bucket in reversed(ascending):
        beyond += counts[bucket]
        if beyond > _MOST_BEYOND * whole:
            break
        lowest = bucket_edges(bucket)[0]
        if beyond <= _FEWEST_BEYOND * whole:
            highest = lowest
    for digits in (1, 2):
        unit: int = 10 ** max(len(str(highest)) - digits, 0)
        rounded = highest - highest % unit
        if rounded >= lowest:
            return rounded
    return rounded


def _above(us: int) -> int:
    """The first bucket that has nothing below."""
    bucket = bucket_of(us)
    return bucket if bucket_edges(bucket)[0] == us else bucket + 1


def second_of(chunk: bytes) -> int | None:
    """The second that first and last of whole lines have in common, None when there is none."""
    first, last = chunk[: chunk.index(b"\n")].split(), chunk[chunk.rfind(b"\n", 0, -1) + 1 :].split()
    if len(first) < _FEWEST_COLUMNS or len(last) < _FEWEST_COLUMNS or first[4] != last[4] or not first[4].isdigit():
        return None
    second = int(first[4])
    return second if second in EPOCH_S else None


@lru_cache(maxsize=256)
def _search(from_us: int, whole: tuple[int, ...], by_script: bool, words: bool) -> re.Pattern[bytes]:
    """Finds the latency of each line that has at least so much, or its word; with its script if those are told.

    What follows is a script and ten digits of a second, else it is another column of a line that was torn.
    """
    slow = rb"(?:%b%b)" % (at_least(from_us), rb"|[a-z]+" if words else b"")
    if not by_script:
        return re.compile(rb"\n[^ ]++ [^ ]++ (%b) \d++ \d{10} " % slow)
    wanted = rb"|\d+ (?:%b)" % b"|".join(b"%d" % script for script in whole) if whole else b""
    return re.compile(rb"\n[^ ]++ [^ ]++ (%b \d+%b) \d{10} " % (slow, wanted))


def at_least(low: int) -> bytes:
    """A regular expression of the whole numbers from `low` on, which has two digits that count at most."""
    digits = str(low)
    first, second, rest = int(digits[0]), int(digits[1:2] or 0), len(digits) - 1
    if not second:
        # Shorter by a branch: what begins lower has a digit more.
        return rb"(?:[%d-9]\d{%d}|\d{%d})\d*" % (first, rest, rest + 2)
    higher = rb"[%d-9]\d{%d}|" % (first + 1, rest) if first < 9 else b""
    return rb"(?:%d[%d-9]\d{%d}|%b\d{%d})\d*" % (first, second, rest - 1, higher, rest + 2)
