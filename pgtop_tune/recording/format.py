"""The lines of a recording, `pgtop-tune/1.1`, and their checksums.

JSON Lines. The first line is the header. Every further line is an object with one of

    {"key": frame}      a whole frame
    {"delta": frame}    what changed since the frame of the line before (see `codec`)

Both begin with `sequence`, `taken_at_ms` and `elapsed_s`, absolute in keys and (but for `elapsed_s`) as differences in
deltas. Any prefix of a recording is a recording. A reader skips what it cannot read up to the next key frame. Since 1.1
lines have checksums (see `sealed`), which readers of version 1 ignore.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from typing import Any, Final

from msgspec import Struct, to_builtins

from pgtop_tune.base.errors import RecordingProblem

FORMAT: Final = "pgtop-tune/1.1"
MAJOR: Final = 1
KEY: Final = "key"
DELTA: Final = "delta"
KEY_EVERY: Final = 60
"""Frames from one key frame to the next: the cost of a seek, and of one torn line."""
MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""A longer line was not written by us, and is not read."""
MAX_BLOCK_BYTES: Final = 4 * MAX_LINE_BYTES
"""Longest packed block: a key frame and the lines up to the next are unpacked at once."""
YEAR_9999_MS: Final = 253_000_000_000_000
"""First impossible moment, and the first impossible length of a session."""
_MOST_DIGITS: Final = 24
_LARGE: Final = re.compile(rb"[:\[,]\s*-?(?:\d{20}|[\d.]+[eE]\+?\d{3})")
"""Pattern of a number larger than any counter; it may match a text, too."""
_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
_PARTS_OF_LARGE: Final = (b"0" * 20, b"0e000", b"0E000", b"0e+000", b"0E+000")
"""Parts of such a number once each of its digits is a 0: they are found twenty times faster."""


class Header(Struct, frozen=True):
    """First line of a recording.

    Attributes:
        format: "pgtop-tune/1.1".
        tool: Version of the program that wrote the recording.
        created_ms: Wall clock when the recording began, milliseconds since the epoch.
        timezone: UTC offset of the recording machine, "+02:00", to show times as its operator saw them.
        interval_s: Interval of the session when it began.
        target: The server, "bench@/run/postgresql:5432/bench"; without a password.
    """

    format: str
    tool: str
    created_ms: int
    timezone: str
    interval_s: float
    target: str
    extra: dict[str, Any] = {}


def header_line(header: Header) -> str:
    """Return the header as a line without its line break."""
    fields = to_builtins(header)
    extra = fields.pop("extra")
    return json.dumps({**fields, **extra}, separators=(",", ":"))


def parse_line(line: bytes) -> Any:
    """Return the JSON of one line.

    Raises:
        RecordingProblem: Not JSON, or JSON no recorder writes (NaN, endless numbers, endless nesting).
    """
    # The careful decoder calls Python for each number and takes twice the time: only lines with a long number need it.
    decoder = _PLAIN
    zeros = line.translate(_ZEROS)
    for part in _PARTS_OF_LARGE:
        if part in zeros:
            decoder = _CAREFUL if _LARGE.search(line) else _PLAIN
            break
    try:
        return decoder.decode(line.decode(json.detect_encoding(line), "surrogatepass"))
    except RecordingProblem:
        raise
    except RecursionError:
        raise RecordingProblem("JSON is nested too deeply") from None
    except ValueError as problem:
        raise RecordingProblem(f"not JSON ({problem})") from None


def _counter(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise RecordingProblem("a number larger than any counter")
    return int(digits)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise RecordingProblem("a number larger than any counter")
    return number


def _refuse_constant(word: str) -> None:
    raise RecordingProblem(f"{word} is not a valid number")


_PLAIN: Final = json.JSONDecoder(parse_constant=_refuse_constant)
_CAREFUL: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=_counter, parse_float=_finite)


def read_header(line: bytes) -> Header:
    """Return the header of a recording.

    Raises:
        RecordingProblem: The line is from another program, or from a newer major version of the format.
    """
    try:
        parsed = parse_line(line)
    except RecordingProblem:
        parsed = None
    name = parsed.get("format") if type(parsed) is dict else None
    if type(name) is not str or not name.startswith("pgtop-tune/"):
        raise RecordingProblem("this is not a recording of pgtop-tune", 'the first line has no "format"')
    try:
        major = int(name.removeprefix("pgtop-tune/").split(".")[0])
    except ValueError:
        raise RecordingProblem(f"unknown format {name[:40]!r}") from None
    if major > MAJOR:
        raise RecordingProblem(
            f"the recording has format {name[:40]}, this version reads up to {FORMAT}", "use a newer pgtop-tune"
        )
    defaults = {"tool": "", "created_ms": 0, "timezone": "+00:00", "interval_s": 1.0, "target": ""}
    values: dict[str, Any] = {"format": name}
    for key, default in defaults.items():
        value = parsed.get(key, default)
        if isinstance(default, float) and type(value) is int:
            value = float(value)
        values[key] = value if type(value) is type(default) else default
    extra = {key: value for key, value in parsed.items() if key not in values}
    return Header(**values, extra=extra)


# Checksums at the end of lines: a line that was changed, is missing or stands twice is noticed, in plain files, too.
#
# The checksum of a delta continues that of the line before. A key frame can be entered by itself: its checksum starts
# over, and `after` beside it is that of the line before, of the header for the first one.

_KEY_START: Final = f'{{"{KEY}":'
_SEAL: Final = re.compile(rb'(?:,"after":(\d{1,10}))?,"crc":(\d{1,10})\}\s*\Z')
_LONGEST: Final = 48


class Seal(Struct, frozen=True):
    """A line, with the checksums at its end.

    Attributes:
        line: The line without it, as earlier versions wrote it.
        crc: Its checksum; None where it has none.
        after: Checksum of the line before; only of key frames.
        is_sound: True when the checksum is that of the line.
    """

    line: bytes
    crc: int | None = None
    after: int | None = None
    is_sound: bool = True


def sealed(line: str, before: int) -> tuple[str, int]:
    """Return a line with its checksum, and the checksum.

    Args:
        line: JSON of an object, ASCII, without line break.
        before: Checksum of the line before.
    """
    body, seed = line[:-1], before
    if line.startswith(_KEY_START):
        body, seed = f'{body},"after":{before}', 0
    crc = zlib.crc32(body.encode("ascii"), seed)
    return f'{body},"crc":{crc}}}', crc


def checksum(header: bytes) -> int:
    """Return the checksum of the header's line."""
    return zlib.crc32(header.rstrip(b"\r\n"))


def seal_of(line: bytes, before: int | None) -> Seal:
    """Return the checksums at the end of a line; a delta behind an unknown line, whose checksum proves nothing, is
    sound.

    Args:
        before: Checksum of the line before; None where it is not known.
    """
    match = _SEAL.search(line, max(len(line) - _LONGEST, 0))
    if match is None:
        return Seal(line)
    crc, is_key = int(match[2]), line.startswith(_KEY_START.encode())
    seed = 0 if is_key else before
    is_sound = seed is None or zlib.crc32(memoryview(line)[: match.start(2) - len(b',"crc":')], seed) == crc
    return Seal(
        line=line[: match.start()] + b"}\n",
        crc=crc,
        after=None if match[1] is None else int(match[1]),
        is_sound=is_sound,
    )
