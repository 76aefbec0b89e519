"""Numbers for people: fixed widths, three significant digits, units that do not jump about; and quantities as people
type them.

Every function is pure. `None` is always drawn as `UNKNOWN`, never as 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from pgtop_tune.base.errors import UsageProblem

UNKNOWN: Final = "-"

KB: Final = 2**10
MB: Final = 2**20
GB: Final = 2**30
_SIZES: Final = ((2**40, "TB"), (GB, "GB"), (MB, "MB"), (KB, "kB"))

_BINARY: Final = (" B", " kB", " MB", " GB", " TB", " PB", " EB")
"""As PostgreSQL writes them: a kB has 1024 bytes."""
_ZEROS: Final = re.compile(r"\.(\d*?)0+(?!\d)")
_DECIMAL: Final = ("", "k", "M", "G", "T", "P", "E")


def _scaled(value: float, base: float, suffixes: tuple[str, ...]) -> str:
    sign = "-" if value < 0 else ""
    value = abs(value)
    step = 0
    while value >= 999.5 and step < len(suffixes) - 1:
        value /= base
        step += 1
    if value >= 99.5 or (step == 0 and value == int(value)):
        text = f"{value:.0f}"
    elif value >= 9.95:
        text = f"{value:.1f}"
    else:
        text = f"{value:.2f}"
    return f"{sign}{text}{suffixes[step]}"


def count(value: float | None) -> str:
    """Return a quantity in at most five cells, whole up to 9999, then with decimal suffixes: 0, 7.25, 812, 5913, 12.0k.

    Every count that people read is written by it: the same number reads the same in a column, a chart and a sentence.
    """
    if value is not None and 999.5 <= value < 9999.5:
        return f"{value:.0f}"
    return UNKNOWN if value is None else _scaled(value, 1000.0, _DECIMAL)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, whose plural takes an s: 1 run, 3 runs."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def mean(value: float | None) -> str:
    """Return a mean, or a figure in a given unit, never negative, with its decimals also where it is whole: 0, 3.00,
    12.0, 812.
    """
    if not value:
        return UNKNOWN if value is None else "0"
    return f"{value:.{2 if value < 9.95 else 1}f}" if value < 99.5 else count(value)


def number(value: float, digits: int = 6) -> str:
    """Return a number for a sentence or a field, at least so many significant digits, never an exponent: 0.5, 16,
    1000000."""
    text = f"{value:.{digits}g}"
    return text if "e" not in text else f"{value:.0f}" if abs(value) >= 1 else f"{value:.10f}".rstrip("0").rstrip(".")


def decimal(value: float | None, digits: int) -> str:
    """Return a number with a fixed count of decimals."""
    return UNKNOWN if value is None else f"{value:.{digits}f}"


def size(value_bytes: float | None) -> str:
    """Return bytes in at most seven cells: 812 B, 5.91 kB, 15.6 GB."""
    return UNKNOWN if value_bytes is None else _scaled(value_bytes, 1024.0, _BINARY)


def compact_size(value_bytes: float | None) -> str:
    """Return bytes as fingerprints and reports of runs write them, which are compared as texts: 812, 5.91K, 15.6G."""
    return size(value_bytes).removesuffix("B").replace(" ", "").upper()


def byte_rate(bytes_per_s: float | None) -> str:
    """Return bytes per second in at most nine cells: 812 B/s, 5.91 kB/s, 15.6 MB/s."""
    return UNKNOWN if bytes_per_s is None else f"{size(bytes_per_s)}/s"


def byte_rates(first: float | None, second: float | None) -> str:
    """Return two rates in the unit of the larger one, right in fourteen cells: "0.03/9.80 MB/s"."""
    values = [value for value in (first, second) if value is not None]
    bytes_of_unit, unit = unit_of(max(values, default=0.0))
    texts = [mean(None if value is None else value / bytes_of_unit) for value in (first, second)]
    return f"{texts[0]}/{texts[1]} {unit}/s".rjust(14)


def unit_of(value_bytes: float) -> tuple[float, str]:
    """Return the unit in which `size` writes a value: its bytes and its name."""
    step = 0
    while abs(value_bytes) / 1024.0**step >= 999.5 and step < len(_BINARY) - 1:
        step += 1
    return 1024.0**step, _BINARY[step].strip()


def axis_label(text: str) -> str:
    """Return the text of a round number without the decimals that say nothing: 1.5k, 60."""
    return _ZEROS.sub(lambda decimals: f".{decimals[1]}" if decimals[1] else "", text)


def percent(value: float | None) -> str:
    """Return a share in per cent without the sign: 0, 0.4, 7.1, 38, 100."""
    if value is None:
        return UNKNOWN
    if value < 0.05:
        return "0"
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def share(value: float) -> str:
    """Return a share in per cent for a sentence: "0.5 %", "38 %"; what would read as nothing is "less than 0.1 %"."""
    return "less than 0.1 %" if 0 < value < 0.05 else f"{percent(value)} %"


def share_of(value: float, total_text: str) -> str:
    """Return a share with its total, for a sentence: "38 % of its rows", from 1000 % on "62 times its rows"."""
    return f"{share(value)} of {total_text}" if value < 999.5 else f"{value / 100:.0f} times {total_text}"


def ms(value_ms: float | None) -> str:
    """Return milliseconds: 0, 0.042, 0.85, 7.12, 31.0, 412, 12.4s (seconds from 10,000 ms on, marked)."""
    if value_ms is None:
        return UNKNOWN
    if value_ms >= 9999.5:
        return f"{value_ms / 1000:.1f}s" if value_ms < 99_950 else f"{value_ms / 1000:.0f}s"
    if value_ms >= 99.5:
        return f"{value_ms:.0f}"
    if value_ms >= 9.95:
        return f"{value_ms:.1f}"
    if value_ms >= 0.1:
        return f"{value_ms:.2f}"
    if 0 <= value_ms < 0.0005:
        return "0"
    return f"{value_ms:.3f}"


def with_ms(value_ms: float | None) -> str:
    """Return milliseconds with their unit: "7.12 ms", from 10,000 ms on "12.4 s"; what is unknown stands alone."""
    text = ms(value_ms)
    if value_ms is None:
        return text
    return f"{text[:-1]} s" if text.endswith("s") else f"{text} ms"


def marked_ms(mark: str, value_ms: float | None) -> str:
    """As `ms`, with a mark before a value that is known."""
    return UNKNOWN if value_ms is None else mark + ms(value_ms)


def age(seconds: float | None) -> str:
    """Return the time that something has lasted in at most six cells: 0.02, 4.1, 59, 3m12s, 4h07m, 3d04h."""
    if seconds is None:
        return UNKNOWN
    seconds = max(seconds, 0.0)
    if seconds < 1:
        return f"{seconds:.2f}"
    if seconds < 9.95:
        return f"{seconds:.1f}"
    total_s = round(seconds)
    if total_s < 60:
        return f"{total_s}"
    if total_s < 3600:
        return f"{total_s // 60}m{total_s % 60:02d}s"
    if total_s < 86_400:
        return f"{total_s // 3600}h{total_s % 3600 // 60:02d}m"
    return f"{total_s // 86_400}d{total_s % 86_400 // 3600:02d}h"


def duration(seconds: float) -> str:
    """Return the time that something lasts for a sentence: as `age`, and seconds have their unit: "0.60 s", "59 s",
    "3m12s"."""
    age_text = age(seconds)
    return age_text if age_text[-1].isalpha() else f"{age_text} s"


def clock(seconds: float) -> str:
    """Return a running time as hours, minutes and seconds: 00:12:43."""
    total_s = int(max(seconds, 0.0))
    return f"{total_s // 3600:02d}:{total_s % 3600 // 60:02d}:{total_s % 60:02d}"


def wall_moment(epoch_ms: int) -> str:
    """Return the local date and time of day of a moment: 2026-11-22 12:40:07; of what is no moment, `UNKNOWN`."""
    return _local(epoch_ms, "%Y-%m-%d %H:%M:%S")


def wall_clock(epoch_ms: int) -> str:
    """Return the local time of day of a moment: 12:40:07; of what is no moment of the calendar, `UNKNOWN`."""
    return _local(epoch_ms, "%H:%M:%S")


@lru_cache(256)
def _local(epoch_ms: int, form: str) -> str:
    """Kept: an axis has the same times of day for minutes, and each takes the calendar of the zone to write."""
    try:
        return datetime.fromtimestamp(epoch_ms / 1000, tz=UTC).astimezone().strftime(form)
    except (OverflowError, ValueError, OSError):
        return UNKNOWN


def memory(size_bytes: float) -> str:
    """Return a size as one types it, rounded down by an eighth at most, mostly far less; whole GB where it is one."""
    kilobytes = int(size_bytes // KB)
    if kilobytes < 1:
        return "0"
    step = max(1, 1 << max(kilobytes.bit_length() - 5, 0))
    rounded = kilobytes // step * step
    for unit, size in (("GB", GB // KB), ("MB", MB // KB)):
        if rounded >= size and rounded % size == 0:
            return f"{rounded // size}{unit}"
    return f"{rounded // 1024}MB" if rounded >= 10_240 else f"{rounded}kB"


def about(size_bytes: float) -> str:
    """Return a size for a sentence: "15.6 GB"."""
    size, unit = next((step for step in _SIZES if size_bytes >= step[0]), _SIZES[-1])
    return f"{number(size_bytes / size, 3)} {unit}"


def as_set(size_bytes: float) -> str:
    """Return a size as typed in a setting, exact to the kilobyte: for present values, not for advice."""
    kilobytes = int(size_bytes // 1024)
    unit, size = next(
        (unit, size) for unit, size in (("GB", GB), ("MB", MB), ("kB", 1024)) if kilobytes * 1024 % size == 0
    )
    return f"{kilobytes * 1024 // size}{unit}"


# Quantities as people type them.

TIMES: Final[Mapping[str, float]] = {
    "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0,
}  # fmt: skip
"""Unit → seconds."""
SIZES: Final[Mapping[str, float]] = {
    "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
    "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40,
}  # fmt: skip
"""Unit → bytes, of files and disks: decimal, as their makers count."""
COUNTS: Final[Mapping[str, float]] = {"": 1.0, "k": 1e3, "K": 1e3, "m": 1e6, "M": 1e6, "g": 1e9, "G": 1e9}
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z/]*)\s*", re.ASCII)
_LONGEST: Final = 60


def quantity(text: str, units: Mapping[str, float]) -> float | None:
    """Return the sum of a text's numbers in their units: "1h30m", "500ms", "20GB"; None where it is none.

    Args:
        text: A number without a unit stands alone.
        units: Unit → its value; "" is a number without a unit.
    """
    text = text.strip()
    parts = _PART.findall(text) if len(text) <= _LONGEST else []
    is_known = all(unit in units and (unit or len(parts) == 1) for _, unit in parts)
    if not parts or not is_known or _PART.sub("", text):
        return None
    return sum(float(number) * units[unit] for number, unit in parts)


def seconds(text: str, alone: str = "s") -> float:
    """Return the seconds of a length of time: "90", "30s", "500ms", "1h30m", "1.5m".

    Args:
        alone: Unit of a number without one.

    Raises:
        UsageProblem: It is none.
    """
    length_s = quantity(text.lower(), {**TIMES, "": TIMES[alone]})
    if length_s is None:
        raise UsageProblem(f'"{text.strip()}" is not a duration', "pass 30s, 5m or 1h30m")
    return length_s
