"""The mechanism of the catalogue: a metric is a row, its value a pure function over two looks at a section.

    TPS = Metric("server.tps", "TPS", "1/s", "…what it means…", "pg_stat_database.xact_commit, …", tps)
    TPS(interval) -> 1203.4 | None

`None` means "cannot be said from these frames": the first frame, a restart, a statistics reset, an unavailable
section. It is drawn as "-" and as a gap in a chart, never as 0.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import is_
from typing import Final, Generic, Protocol, TypeVar, cast

from msgspec import Struct

from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.events import EventKind
from pgtop_tune.model.frame import Frame


class Reading(Protocol):
    """What was read of a section, with its own clock."""

    @property
    def at_s(self) -> float:
        """Seconds on the session's monotonic clock when it was read."""
        ...


S = TypeVar("S", bound=Reading)
T = TypeVar("T")
K = TypeVar("K")
T_co = TypeVar("T_co", covariant=True)
PUBLISHED_S: Final = 0.9
"""Backends publish their counters once a second (pgstat.c, PGSTAT_MIN_INTERVAL): over less, a rate is all or nothing."""
_LOOK_BACK: Final = 120
"""Frames searched for an older reading of a slow section; two minutes at 1 Hz."""
MISSED_TICKS: Final = 3
"""So many frames without an answer are a busy server; more in a row are an outage."""
WHOLE_S: Final = 12.0
"""How long a session keeps every reading of every section (`runtime.frame_window`): longer than the windows of `budget`,
`client_bound`, `growth` and `host_values`."""
STEADY_FRAMES: Final = 90
"""Looks after which a diagnosis hardly depends on frames before them: longer than any of its times."""
NOTHING_BEFORE: Final = frozenset({EventKind.GAP, EventKind.RECORDING})
"""Events of the first frame after a time of which there are none: nobody looked, or a full disk did not take them."""


class Section(Struct, Generic[T_co], frozen=True, eq=False, kw_only=True):
    """A section of a frame, a row of `metrics.sections`. Called with a frame it gives the reading or its absence.

    Attributes:
        name: Name of the field.
        holder: Struct that has the field: PostgresSample, HostSample or Frame.
        of: Takes the reading out of that struct.
        reach: Takes it out of a frame.
        struct: Class of a reading.
        row: Class of a row, for a query with many: a reading is made of its moment and its rows.
        source: Views and functions of the server, or files of the kernel.
        queries: Files `postgres/sql/NAME.FIRSTMAJOR.sql`; the first is asked first.
        every_s: Least time between two readings; 0 reads with every frame, inf once.
        first_look: Whether the first look at a server reads it. The second look comes soon and reads the others, so
            that they do not delay the first picture.
        of_sessions: Whether it has a row for each session or lock of one: of a crowd it is read less often.
        kept_whole: Whether a session keeps every reading for minutes (`runtime.frame_window`): sums of a tick, and
            values that a metric compares over minutes.
        of_rows: Counts the rows that the server reads for a reading, where they may be any number: the more they are, the
            less often the section is read.
        made_from: Section whose reading this one is made of: it is only read together with that one.
    """

    name: str
    holder: type
    of: Callable[[object], T_co | Unavailable]
    reach: Callable[[Frame], T_co | Unavailable]
    struct: Callable[..., T_co]
    row: type[Struct] | None = None
    source: str
    queries: tuple[str, ...] = ()
    every_s: float = 0.0
    first_look: bool = False
    of_sessions: bool = False
    kept_whole: bool = False
    of_rows: Callable[[T_co], int] | None = None
    made_from: Section[Reading] | None = None

    def __call__(self, frame: Frame) -> T_co | Unavailable:
        return self.reach(frame)


def _reach(section: Callable[[Frame], S | Unavailable]) -> Callable[[Frame], S | Unavailable]:
    """The function of a row: a loop over frames calls it at half the cost of calling the row."""
    return section.reach if isinstance(section, Section) else section


_Asked = tuple[Callable[..., object], float, int]
"""A section's function, a window and the least number of readings."""


class _Found(Struct):
    """Readings, newest first, and whether no frames are missing between those that were looked at."""

    readings: list[Reading]
    whole: bool


class _Made:
    """What some readings made."""

    def __init__(self) -> None:
        self.of: tuple[object, ...] | None = None
        self.value: object = None


class _MadeOfEach:
    """What readings made, by id; they are held, so that an id has one meaning."""

    def __init__(self) -> None:
        self.also: tuple[object, ...] = ()
        self.values: dict[int, tuple[object, object]] = {}


class Interval:
    """The newest frame and those before it: what a metric is computed from.

    Args:
        frames: At least one frame, oldest first. Only the tail is looked at.
        before: Of the same frames, until the newest one came: what it found is added to, not looked for again.
    """

    __slots__ = ("_carried", "_frames", "_handed_on", "_known", "_lately", "_pairs", "_recent", "newest")

    def __init__(self, frames: Sequence[Frame], before: Interval | None = None) -> None:
        self._frames = frames
        self._known: dict[Callable[[Interval], object], object] = {}
        self._pairs: dict[tuple[Callable[..., object], float, bool], tuple[object, object] | None] = {}
        self._recent: dict[_Asked, _Found] = {}
        self.newest: Final = frames[-1]
        # What nobody asked the interval before for is let go: there are windows of any length.
        self._carried: dict[Hashable, object] = {}
        self._handed_on: dict[Hashable, object] = {} if before is None else before._carried
        self._lately: dict[_Asked, _Found] = {}
        if before is not None and not self.after_gap and _started_ms(before.newest) == _started_ms(self.newest):
            self._lately = before._recent

    def once(self, compute: Callable[[Interval], T]) -> T:
        """What a function makes of this interval, computed when it is first asked for: several metrics share it."""
        if compute not in self._known:
            self._known[compute] = compute(self)
        return cast(T, self._known[compute])

    def kept(self, compute: Callable[..., T], *readings: object, whose: Hashable = None) -> T:
        """What a function makes of some readings; made again, in intervals that follow as well, once one is another.

        Args:
            compute: The function.
            readings: Its arguments.
            whose: Of several that have other readings made by the same function, which one.
        """
        result = self.carried((compute, whose), _Made)
        if result.of is None or len(result.of) != len(readings) or not all(map(is_, result.of, readings)):
            result.value, result.of = compute(*readings), readings
        return cast(T, result.value)

    def each(self, compute: Callable[..., T], readings: Sequence[object], *also: object) -> list[T]:
        """What a function makes of each of some readings, and of something else; in intervals that follow as well.

        Of a window that slides, what a reading made is made once.
        """
        results = self.carried((compute, "each"), _MadeOfEach)
        previous = results.values if results.also == also else {}
        results.also = also
        results.values = {
            id(reading): previous[id(reading)] if id(reading) in previous else (reading, compute(reading, *also)) for reading in readings
        }
        return [cast(T, results.values[id(reading)][1]) for reading in readings]

    def carried(self, whose: Hashable, kind: Callable[[], T]) -> T:
        """An object that a metric keeps from interval to interval: a sum that is added to.

        Intervals come in any order, as in a replay that goes back: the object finds out by itself whether it fits.
        """
        if whose not in self._carried:
            self._carried[whose] = self._handed_on[whose] if whose in self._handed_on else kind()
        return cast(T, self._carried[whose])

    def now(self, section: Callable[[Frame], S | Unavailable]) -> S | None:
        """The section in the newest frame, None when it is unavailable."""
        reading = _reach(section)(self.newest)
        return None if isinstance(reading, Unavailable) else reading

    @property
    def frames(self) -> Sequence[Frame]:
        """The frames, oldest first."""
        return self._frames

    def over(self, window_s: float) -> Interval:
        """The newest frame and the oldest of the last seconds alone: metrics of two looks are means of that time.

        The frame before the newest counts however far apart they are. It does not reach over a gap or another start of
        the server. A section that is read less often has its means in the whole interval.
        """
        oldest = self.newest
        until_s = self.newest.elapsed_s - window_s - 0.05
        for frame in reversed(self._frames):
            if frame is self.newest:
                continue
            if _is_after_gap(oldest) or not self._is_same_server(frame):
                break
            if frame.elapsed_s < until_s and oldest is not self.newest:
                break
            oldest = frame
        interval = Interval((self.newest,) if oldest is self.newest else (oldest, self.newest))
        interval._carried = self.carried(("over", window_s), dict[Hashable, object])
        return interval

    @property
    def after_gap(self) -> bool:
        """Whether frames are missing before the newest one, see `EventKind.GAP` and `EventKind.RECORDING`."""
        return _is_after_gap(self.newest)

    def pair(
        self, section: Callable[[Frame], S | Unavailable], least_s: float = 0.0, *, over_gaps: bool = False
    ) -> tuple[S, S] | None:
        """The two newest different readings of a section, older first.

        A section read less often than frames are made stands in several frames unchanged; those are passed over.
        None when the newest frame does not have it, or when it was unavailable in between: a rate would stretch over
        the outage. A few ticks that a server did not answer in are none, as long as it was not started since.
        None as well when frames are missing for more than half of the time between both: we did not look, or they could
        not be recorded.

        Args:
            section: The section.
            least_s: The readings are at least so far apart: `PUBLISHED_S` for what backends publish.
            over_gaps: Whether it does not matter that frames are missing: for what happened, not for how fast.
        """
        key = (_reach(section), least_s, over_gaps)
        if key not in self._pairs:
            self._pairs[key] = self._find_pair(*key)
        return cast(tuple[S, S] | None, self._pairs[key])

    def _find_pair(
        self, reach: Callable[[Frame], S | Unavailable], least_s: float, over_gaps: bool
    ) -> tuple[S, S] | None:
        newest = reach(self.newest)
        if isinstance(newest, Unavailable):
            return None
        last, missed, gap_s = len(self._frames) - 2, 0, 0.0
        for index in range(last, max(last - _LOOK_BACK, -1), -1):
            older = reach(self._frames[index])
            later = self._frames[index + 1]
            if later.events and _is_after_gap(later) and newest.at_s > self._frames[index].elapsed_s:
                gap_s += later.elapsed_s - self._frames[index].elapsed_s
            if isinstance(older, Unavailable):
                missed += 1
                if _is_outage(older, self._frames[index], missed):
                    return None
            elif missed and not self._is_same_server(self._frames[index]):
                return None
            elif older.at_s < newest.at_s and newest.at_s - older.at_s >= least_s:
                return None if gap_s > (newest.at_s - older.at_s) / 2 and not over_gaps else (older, newest)
        return None

    def recent(self, section: Callable[[Frame], S | Unavailable], window_s: float, least: int = 1) -> Sequence[S]:
        """Readings of a section within the last seconds, newest first; ends at an outage, see `pair`.

        Those between which counters did something end where frames are missing as well.

        Args:
            section: The section.
            window_s: How far back.
            least: So many even when they are further apart: 2 for what counters did in between.
        """
        key = (_reach(section), window_s, least)
        window = self._recent.get(key)
        if window is None:
            always = isinstance(section, Section) and section.kept_whole
            window = self._recent[key] = self._read_on(key, always) or self._read_back(*key)
        return cast(Sequence[S], window.readings)

    def _read_on(self, key: _Asked, always: bool) -> _Found | None:
        """What the interval before found, with the newest reading and without those that are too old by now.

        None where it may not be what reading back finds: older frames have not all readings of a section (see
        `runtime.frame_window`), and what is missing counts by the reading it is seen from.
        """
        before = self._lately.get(key)
        reach, window_s, least = key
        newest = cast(Reading | Unavailable, reach(self.newest))
        if before is None or not before.whole or not before.readings or isinstance(newest, Unavailable):
            return None
        readings = list(before.readings)
        if newest.at_s > readings[0].at_s:
            readings.insert(0, newest)
        elif newest.at_s == readings[0].at_s:
            readings[0] = newest
        else:
            return None
        oldest_s = self._frames[0].elapsed_s
        if always:
            oldest = cast(Reading | Unavailable, reach(self._frames[0]))
            oldest_s = oldest_s if isinstance(oldest, Unavailable) else oldest.at_s
            while len(readings) > 1 and readings[-1].at_s < oldest_s:
                readings.pop()
        else:
            oldest_s = max(oldest_s, self.newest.elapsed_s - WHOLE_S + 0.5)
        while len(readings) > least and readings[-1].at_s <= newest.at_s - window_s:
            readings.pop()
        return _Found(readings, True) if readings[-1].at_s >= oldest_s else None

    def _read_back(self, reach: Callable[[Frame], S | Unavailable], window_s: float, least: int) -> _Found:
        readings: list[S] = []
        missed, gap_s, complete = 0, 0.0, True
        later: Frame | None = None
        for frame in reversed(self._frames):
            reading = reach(frame)
            if later is not None and later.events and _is_after_gap(later):
                complete = False
                if readings and readings[0].at_s > frame.elapsed_s:
                    gap_s += later.elapsed_s - frame.elapsed_s
            later = frame
            if isinstance(reading, Unavailable):
                missed += 1
                if not readings or _is_outage(reading, frame, missed):
                    break
                continue
            if len(readings) >= least and reading.at_s <= readings[0].at_s - window_s:
                break
            if missed and not self._is_same_server(frame):
                break
            if least > 1 and readings and gap_s > (readings[0].at_s - reading.at_s) / 2:
                break
            missed = 0
            if not readings or reading.at_s < readings[-1].at_s:
                readings.append(reading)
        return _Found(cast(list[Reading], readings), complete)

    def _is_same_server(self, older: Frame) -> bool:
        started_ms = _started_ms(self.newest)
        return started_ms is not None and started_ms == _started_ms(older)


def _is_after_gap(frame: Frame) -> bool:
    return any(event.kind in NOTHING_BEFORE for event in frame.events)


def _is_outage(absent: Unavailable, frame: Frame, frames: int) -> bool:
    """Whether more is amiss than a server that did not answer within a tick, a few times in a row."""
    missed = absent is frame.postgres and absent.reason == Reason.NO_ANSWER
    return not missed or frames > MISSED_TICKS


def _started_ms(frame: Frame) -> int | None:
    """When the server was started; None where the frame does not say."""
    postgres = frame.postgres
    if isinstance(postgres, Unavailable) or isinstance(postgres.server, Unavailable):
        return None
    return postgres.server.started_ms


def rate(older: float, newer: float, older_s: float, newer_s: float) -> float | None:
    """Increase per second; None when the counter went backwards (reset) or no time has passed."""
    seconds = newer_s - older_s
    if seconds <= 0 or newer < older:
        return None
    return (newer - older) / seconds


def share(part: float, total: float) -> float | None:
    """Per cent of a whole; None when there is no whole."""
    return 100.0 * part / total if total > 0 else None


class Metric(Struct, frozen=True):
    """One number an operator can see.

    Attributes:
        id: Stable name in exports and configuration: "host.cpu.user".
        title: As labelled on screen.
        unit: "%", "1/s", "bytes", "bytes/s", "ms", …
        definition: What it says, one or two sentences for `?`.
        source: View and column or kernel file and field, with the formula.
        value: Computes it; None when it cannot be said.
        critical: Value from which on it is drawn red; None where no such line exists.
    """

    id: str
    title: str
    unit: str
    definition: str
    source: str
    value: Callable[[Interval], float | None]
    critical: float | None = None

    def __call__(self, interval: Interval) -> float | None:
        return self.value(interval)


class Keyed(Struct, Generic[K], frozen=True):
    """A family of numbers, one per key (a disk, a process, a core): `values(interval)[key]`.

    Asked twice of the same interval, they are computed once: the answer is not to be changed.
    """

    id: str
    title: str
    unit: str
    definition: str
    source: str
    values: Callable[[Interval], Mapping[K, float]]
    critical: float | None = None

    def __call__(self, interval: Interval) -> Mapping[K, float]:
        return interval.once(self.values)
