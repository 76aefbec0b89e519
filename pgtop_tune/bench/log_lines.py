"""Lines of pgbench's transaction log (-l), versions 13 to 19.

    client transaction latency_us script epoch_s us [lag_us] [retries]

The lag stands there with --rate, the retries with --max-tries. In place of the latency stands "skipped"
(--latency-limit), "failed", or with --failures-detailed "serialization", "deadlock" or "other" (--continue-on-error).
A whole chunk is made one JSON array, which msgspec decodes without an object for each line, and its columns are taken
as slices: 0.15 to 0.3 µs per line in chunks that stay in the CPU's cache, half of what splitting costs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import compress
from typing import Final

from msgspec import Struct, field
from msgspec.json import Decoder

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
    """What is wanted of the lines.

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
        second: Since the epoch.
        script: From 0.
        latencies: In µs, of those that ended well; not below 0.
        lags: Of the same, where the layout has them.
        words: How often which word stood in place of a latency.
    """

    second: int
    script: int
    latencies: list[int] = field(default_factory=list)
    lags: list[int] = field(default_factory=list)
    words: Counter[str] = field(default_factory=Counter)

    @property
    def skipped(self) -> int:
        """Transactions that were not begun because they could not have met --latency-limit."""
        return self.words.get("skipped", 0)

    @property
    def failed(self) -> int:
        """Transactions that failed, of all kinds."""
        return sum(self.words.values()) - self.skipped


class Parsed(Struct):
    """What a chunk of the log held.

    Attributes:
        parts: In the order of the log; a second may come twice.
        newest: The last line's second, None when there was no line.
        unreadable: Lines that are something else.
    """

    parts: list[SecondPart] = field(default_factory=list)
    newest: int | None = None
    unreadable: int = 0


def parse_lines(chunk: bytes, layout: LogLayout = PLAIN) -> Parsed:
    """Parses whole lines, each ended by a line feed."""
    parsed = Parsed()
    if chunk:
        _parse(chunk, layout, parsed)
    return parsed


def _parse(chunk: bytes, layout: LogLayout, parsed: Parsed) -> None:
    """All lines at once; where that fails, each half alone, so that a foreign line costs only itself."""
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
    """Every column of every line, words as their numbers; and how many columns a line has.

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
    """Whether one of them is no transaction that ended well: all words have an e, and nothing else has."""
    return b"e" in lines


def with_numbers(lines: bytes) -> bytes:
    """Lines with `odd_part`'s numbers in place of words."""
    for word, number in _WORDS.items():
        lines = lines.replace(word, b"%d" % number)
    return lines


def _columns(count: int, lines: int, fewest: int) -> int:
    columns, rest = divmod(count, lines)
    if rest or columns < fewest:
        raise ValueError("lines differ in their columns")
    return columns


def _take_columns(chunk: bytes, lines: int, layout: LogLayout, parsed: Parsed) -> None:
    """Takes runs of lines of the same second, all or none.

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
            raise ValueError("seconds do not ascend")
        run = slice(start, end)
        parts += _parts(second, latencies[run], scripts[run], lags[run], odd_part if odd else SecondPart)
        start = end
    parsed.parts += parts
    parsed.newest = seconds[-1]


def _parts(
    second: int, latencies: list[int], scripts: bytes, lags: list[int], make: Callable[..., SecondPart]
) -> Iterator[SecondPart]:
    """Lines of one second, by script."""
    if len(set(scripts)) < 2:
        yield make(second, scripts[0] if scripts else 0, latencies, lags)
        return
    lags_of = dict(of_scripts(lags, scripts)) if lags else {}
    for script, of_it in of_scripts(latencies, scripts):
        yield make(second, script, of_it, lags_of.get(script, []))


def of_scripts(values: list[int], scripts: bytes) -> Iterator[tuple[int, list[int]]]:
    """Values by script, a byte each."""
    for script in set(scripts):
        yield script, [*compress(values, scripts.translate(_only(script)))]


@cache
def _only(script: int) -> bytes:
    """Makes 1 of this script and 0 of others."""
    return bytes(number == script for number in range(256))


def odd_part(second: int, script: int, latencies: list[int], lags: list[int]) -> SecondPart:
    """A `SecondPart` whose latencies hold words, by their numbers, or times of a clock that was set back."""
    timed = [us > _LARGEST_WORD for us in latencies]
    words = Counter(us for us in latencies if us <= _LARGEST_WORD)
    return SecondPart(
        second=second,
        script=script,
        latencies=[us if us > 0 else 0 for us in compress(latencies, timed)],
        lags=[*compress(lags, timed)],
        words=Counter({_NAMES[number]: count for number, count in words.items()}),
    )
