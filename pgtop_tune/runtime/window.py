"""Windows of a session's time, the marks an operator sets to make them, and moments as people type them. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.units import clock, duration, seconds


class Window(Struct, frozen=True):
    """A part of a session's time.

    Attributes:
        since_s: Its begin on the session's clock.
        until_s: Its end.
    """

    since_s: float
    until_s: float

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return self.until_s - self.since_s

    def overlaps(self, window: Window) -> bool:
        """Return whether both have a moment in common; one may end where the other begins."""
        return self.since_s < window.until_s and window.since_s < self.until_s


class Marks(Struct, frozen=True):
    """Marks that the operator has set so far.

    Attributes:
        windows: Complete ones, at most two, in the order in which they were marked.
        begun_s: Begin of the next one; None when no begin is set.
    """

    windows: tuple[Window, ...] = ()
    begun_s: float | None = None

    def begin(self, at_s: float) -> Marks:
        """Set a begin; set again before its end, it moves. After two windows everything starts over."""
        return Marks(() if len(self.windows) == 2 else self.windows, at_s)

    def end(self, at_s: float) -> Marks:
        """Set the end of a begun window, either way round in time; without a begin the end of the newest window moves.

        The same marks come back where there is nothing to end, or no time between begin and end.
        """
        if self.begun_s is None:
            if not self.windows or at_s <= self.windows[-1].since_s:
                return self
            *earlier, last = self.windows
            return replace(self, windows=(*earlier, replace(last, until_s=at_s)))
        if at_s == self.begun_s:
            return self
        return Marks((*self.windows, Window(min(self.begun_s, at_s), max(self.begun_s, at_s))))

    @property
    def pair(self) -> tuple[Window, Window] | None:
        """Windows A and B: the two windows; of one alone, as long a time before it and it. None without one."""
        if not self.windows:
            return None
        if len(self.windows) == 2:
            return self.windows[0], self.windows[1]
        (only,) = self.windows
        return Window(max(only.since_s - only.seconds, 0.0), only.since_s), only

    @property
    def moments(self) -> tuple[tuple[float, bool], ...]:
        """(moment, whether it is an end) of every mark."""
        marks = [mark for window in self.windows for mark in ((window.since_s, False), (window.until_s, True))]
        return tuple(marks) if self.begun_s is None else (*marks, (self.begun_s, False))

    def __bool__(self) -> bool:
        return bool(self.windows) or self.begun_s is not None


# Moments as people type them: "3m ago", "12:40", "-30s", "+1m", "00:05:00".
#
# 3m ago, 1h30m ago     before the end
# -30s, +1m             from the moment shown
# 00:05:00              from the beginning, where the session is that long; otherwise the time of day
# 12:40                 the time of day; "at 12:40:07" is always the time of day
# 2026-05-01 12:40      the date and the time of day
# 90s, 5m               from the beginning
# start, end

HINT: Final = "type 3m ago, -30s, +1m, 12:40, 00:05:00, start or end"

_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_DAY_H: Final = 24
_TIME: Final = re.compile(r"(\d{1,3}):(\d{2})(?::(\d{2}))?", re.ASCII)


class Timeline(Struct, frozen=True):
    """The session's time, against which a moment is read.

    Attributes:
        shown_s: Elapsed seconds of the moment on screen.
        length_s: Elapsed seconds of the end.
        started_ms: Wall clock at elapsed 0, milliseconds since the epoch.
        zone: Time zone of the times of day; None is the local one.
    """

    shown_s: float
    length_s: float
    started_ms: float
    zone: tzinfo | None = None


def parse_span(since: str, until: str, line: Timeline) -> tuple[float, float]:
    """Return begin and end of a part of the session, as elapsed seconds; an end of +2m counts from the begin.

    Raises:
        UsageProblem: A text is no moment, the session has ended before the begin, or the end is before the begin.
    """
    from_s = parse_moment(since, line)
    until_s = parse_moment(until, replace(line, shown_s=from_s))
    if from_s >= line.length_s > 0:
        raise UsageProblem(
            f"the recording has no frames after {since}", f"the recording is {duration(line.length_s)} long"
        )
    if until_s < from_s:
        raise UsageProblem(f"{until} is before {since}", "an end of +2m is two minutes after the begin")
    return from_s, until_s


def parse_moment(text: str, line: Timeline, *, within: bool = False) -> float:
    """Return the moment of a text, as elapsed seconds between 0 and the length.

    Lengths that lead beyond an end stop there; a time of day outside the session is refused.

    Args:
        within: Refuse also lengths and dates that lead beyond an end, and what has two meanings.

    Raises:
        UsageProblem: Not understood, or refused.
    """
    text = " ".join(text.strip().lower().replace("−", "-").split())
    if text in ("start", "begin", "beginning"):
        return 0.0
    if text in ("end", "now", "live"):
        return line.length_s
    if text.startswith("at "):
        return _time_of_day(text[3:], line)
    if _DATE.match(text):
        position_s = _of_calendar(text, line)
    elif ":" in text:
        return _clock_words(text, line, within=within)
    elif text.endswith("ago"):
        position_s = line.length_s - seconds(text[:-3])
    elif text[:1] in ("+", "-"):
        position_s = line.shown_s + seconds(text[1:]) * (-1.0 if text[0] == "-" else 1.0)
    else:
        try:
            position_s = seconds(text)
        except UsageProblem:
            raise UsageProblem(f'"{text}" is not a point in time', HINT) from None
    if within and not 0.0 <= position_s <= line.length_s:
        raise UsageProblem(f"nothing was recorded at {text}: the session lasts {duration(line.length_s)}", HINT)
    return min(max(position_s, 0.0), line.length_s)


def _of_calendar(text: str, line: Timeline) -> float:
    """Return the moment of a date, or of a date and a time, in the session's zone unless it names one."""
    try:
        moment = datetime.fromisoformat(text.upper())
        moments = [moment] if moment.tzinfo is not None else _in_zone(moment, line)
        positions_s = [_position_s(at, line, whole_minute=moment.second == 0) for at in moments]
    except (ValueError, OverflowError):
        raise UsageProblem(f'"{text}" is not a point in time', HINT) from None
    return next((position_s for position_s in positions_s if 0.0 <= position_s <= line.length_s), positions_s[0])


def _in_zone(moment: datetime, line: Timeline) -> list[datetime]:
    """Return both moments of this name: an hour is there twice when summer time ends."""
    return [moment.replace(tzinfo=line.zone, fold=fold) for fold in (0, 1)]


def _position_s(moment: datetime, line: Timeline, *, whole_minute: bool) -> float:
    """Return the elapsed seconds of a moment. 12:40 means the whole minute: a session that began at 12:40:20 has its
    start there."""
    elapsed_s = moment.timestamp() - line.started_ms / 1000.0
    return 0.0 if -(60.0 if whole_minute else 1.0) < elapsed_s < 0.0 else elapsed_s


def _parts(text: str) -> tuple[int, int, int | None]:
    match = _TIME.fullmatch(text.strip())
    if match is None or int(match[2]) > 59 or int(match[3] or 0) > 59:
        raise UsageProblem(f'"{text}" is not a time', HINT)
    return int(match[1]), int(match[2]), None if match[3] is None else int(match[3])


def _clock_words(text: str, line: Timeline, *, within: bool) -> float:
    hours, minutes, second = _parts(text)
    position_s = hours * 3600.0 + minutes * 60.0 + (second or 0)
    if second is None or position_s > line.length_s:
        return _time_of_day(text, line)
    if within and hours < _DAY_H and _times_of_day(text, line):
        from_start = f"{hours}h{minutes}m{second}s"
        raise UsageProblem(f"{text} is a time of day and a time from the start", f"type at {text}, or {from_start}")
    return position_s


def _time_of_day(text: str, line: Timeline) -> float:
    """Return the moment nearest to the one shown, of the days that the session lasted."""
    candidates = _times_of_day(text, line)
    if not candidates:
        began = datetime.fromtimestamp(line.started_ms / 1000.0, tz=UTC)
        ends = began + timedelta(seconds=line.length_s)
        first, last = (end.astimezone(line.zone).strftime("%H:%M:%S") for end in (began, ends))
        raise UsageProblem(
            f"nothing was recorded at {text}: the session lasts from {first} to {last} ({clock(line.length_s)})", HINT
        )
    return min(candidates, key=lambda elapsed_s: abs(elapsed_s - line.shown_s))


def _times_of_day(text: str, line: Timeline) -> list[float]:
    """Return the moments of the session with this time of day. Raises UsageProblem for none of the day."""
    hours, minutes, second = _parts(text)
    if hours >= _DAY_H:
        raise UsageProblem(f'"{text}" is not a time of day', HINT)
    began = datetime.fromtimestamp(line.started_ms / 1000.0, tz=UTC)
    day = began.astimezone(line.zone).date() - timedelta(days=1)
    candidates: list[float] = []
    for offset in range(int(line.length_s // 86_400) + 4):
        at = datetime.combine(day + timedelta(days=offset), time(hours, minutes, second or 0))
        candidates += [_position_s(moment, line, whole_minute=second is None) for moment in _in_zone(at, line)]
    return [elapsed_s for elapsed_s in candidates if 0.0 <= elapsed_s <= line.length_s]
