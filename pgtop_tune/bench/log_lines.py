"""Lines of pgbench's transaction log (-l), versions 13 to 18.

    client transaction latency_us script epoch_s us [lag_us] [retries]

The lag stands there with --rate, the retries with --max-tries. In place of the latency stands "skipped"
(--latency-limit), "failed", or with --failures-detailed "serialization" or "deadlock". A whole chunk is split at once
and its columns are taken as slices: 0.3 µs per line.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import compress
from typing import Final

from msgspec import Struct, field

_COLUMNS: Final = 6
_LATENCY: Final = 2
_SCRIPT: Final = 3
_SECOND: Final = 4
_LAG: Final = 6


class Layout(Struct, frozen=True):
    """What is wanted of the lines.

    Attributes:
        lag: They have the column of the schedule lag.
        by_script: Tell scripts apart; else all are script 0.
    """

    lag: bool = False
    by_script: bool = False


PLAIN: Final = Layout()


class Part(Struct):
    """Transactions of one second and one script.

    Attributes:
        second: Since the epoch.
        script: From 0.
        latencies: In µs, of those that ended well.
        lags: Of the same, where the layout has them.
        words: How often which word stood in place of a latency.
    """

    second: int
    script: int
    latencies: list[int] = field(default_factory=list)
    lags: list[int] = field(default_factory=list)
    words: dict[str, int] = field(default_factory=dict)

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

    parts: list[Part] = field(default_factory=list)
    newest: int | None = None
    unreadable: int = 0


def parse_lines(chunk: bytes, layout: Layout = PLAIN) -> Parsed:
    """Parses whole lines, each ended by a line feed."""
    tokens = chunk.split()
    lines = chunk.count(b"\n")
    columns = len(tokens) // lines if lines else 0
    if columns >= _COLUMNS + layout.lag and columns * lines == len(tokens):
        try:
            return _by_columns(tokens, columns, layout)
        except ValueError:
            pass
    return _line_by_line(chunk, layout)


def _by_columns(tokens: list[bytes], columns: int, layout: Layout) -> Parsed:
    """The fast way: runs of lines of the same second.

    Raises:
        ValueError: The columns are not what they should be; seconds do not ascend (the clock was set back).
    """
    parsed = Parsed()
    latencies, seconds = tokens[_LATENCY::columns], tokens[_SECOND::columns]
    scripts = tokens[_SCRIPT::columns] if layout.by_script else []
    lags = tokens[_LAG::columns] if layout.lag else []
    start = 0
    while start < len(seconds):
        token = seconds[start]
        end = bisect_right(seconds, token, start)
        if seconds[start:end].count(token) != end - start:
            raise ValueError("seconds do not ascend")
        run = slice(start, end)
        _add(parsed, int(token), latencies[run], scripts[run], lags[run])
        start = end
    return parsed


def _line_by_line(chunk: bytes, layout: Layout) -> Parsed:
    parsed = Parsed()
    for line in chunk.splitlines():
        tokens = line.split()
        try:
            if len(tokens) < _COLUMNS + layout.lag:
                raise ValueError("too few columns")
            script = [tokens[_SCRIPT]] if layout.by_script else []
            _add(parsed, int(tokens[_SECOND]), [tokens[_LATENCY]], script, [tokens[_LAG]] if layout.lag else [])
        except ValueError:
            parsed.unreadable += 1
    return parsed


def _add(parsed: Parsed, second: int, latencies: list[bytes], scripts: list[bytes], lags: list[bytes]) -> None:
    """Takes lines of one second.

    Raises:
        ValueError: One is no line of the log; then none is taken.
    """
    chosen = set(scripts)
    if len(chosen) < 2:
        parts = [_part(second, int(scripts[0]) if scripts else 0, latencies, lags)]
    else:
        parts = []
        for script in chosen:
            mask = [each == script for each in scripts]
            parts.append(_part(second, int(script), [*compress(latencies, mask)], [*compress(lags, mask)]))
    parsed.parts += parts
    parsed.newest = second


def _part(second: int, script: int, latencies: list[bytes], lags: list[bytes]) -> Part:
    try:
        return Part(second, script, [*map(int, latencies)], [*map(int, lags)])
    except ValueError:
        part = Part(second, script)
    for at, token in enumerate(latencies):
        if token.isdigit():
            part.latencies.append(int(token))
            part.lags += [int(lags[at])] if lags else []
        elif token.isalpha():
            word = token.decode("ascii")
            part.words[word] = part.words.get(word, 0) + 1
        else:
            raise ValueError("neither a latency nor a word")
    return part
