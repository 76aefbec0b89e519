"""The mechanism of the catalogue: a metric is a row, its value a pure function over two readings of a section.

    TPS = Metric("server.tps", "TPS", "1/s", "…what it means…", "pg_stat_database.xact_commit, …", tps)
    TPS(interval) -> 1203.4 | None

`None` means that these frames do not give the value: the first frame, a restart, a statistics reset, an unavailable
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
    """A reading of a section, with its own time."""

    @property
    def at_s(self) -> float:
        """Time of the reading, in seconds on the session's monotonic clock."""
        ...


class CounterReading(Reading, Protocol):
    """A reading of counters of the statistics of the server."""

    @property
    def stats_reset_ms(self) -> int | None: ...


S = TypeVar("S", bound=Reading)
C = TypeVar("C", bound=CounterReading)
T = TypeVar("T")
K = TypeVar("K")
T_co = TypeVar("T_co", covariant=True)
PUBLISHED_S: Final = 0.9
"""Backends publish their counters once a second (pgstat.c, PGSTAT_MIN_INTERVAL): over less, a rate is all or nothing."""
_LOOK_BACK: Final = 120
"""Frames searched for an older reading of a slow section; two minutes at 1 Hz."""
MISSED_TICKS: Final = 3
"""Frames in a row that a busy server may leave without an answer; more are an outage."""
WHOLE_S: Final = 12.0
"""Seconds for which a session keeps every reading of every section (`runtime.frame_window`): longer than the windows of
`budget`, `client_bound`, `growth` and `host_values`."""
STEADY_FRAMES: Final = 90
"""Frames after which a diagnosis hardly depends on earlier ones: longer than any of its windows."""
NOTHING_BEFORE: Final = frozenset({EventKind.GAP, EventKind.RECORDING})
"""Events of the first frame after a gap: no samples were taken, or a full disk did not take them."""


class Section(Struct, Generic[T_co], frozen=True, eq=False, kw_only=True):
    """A section of a frame, a row of `metrics.sections`. Called with a frame, it returns the reading or its absence.

    Attributes:
        name: Name of the field.
        holder: Struct that has the field: PostgresSample, HostSample or Frame.
        of: Returns the reading out of that struct.
        reach: Returns the reading out of a frame.
        struct: Class of a reading.
        row: Class of a row, for a query with many rows: a reading consists of its time and its rows.
        source: Views and functions of the server, or files of the kernel.
        queries: Files `postgres/sql/NAME.FIRSTMAJOR.sql`; the first is sent first.
        every_s: Least time between two readings; 0 reads with every frame, inf once.
        first_look: Whether the first tick reads it. The second tick follows soon and reads the other sections, so that
            they do not delay the first picture.
        of_sessions: Whether it has a row for each session or lock: with many sessions it is read less often.
        kept_whole: Whether a session keeps every reading for minutes (`runtime.frame_window`): sums of a tick, and
            values that a metric compares over minutes.
        of_rows: Counts the rows that the server reads for a reading, where their number has no limit: the more rows,
            the less often the section is read.
        made_from: Section that this one is made from: both are read together.
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
    """Return the function of a row: a loop over frames calls it at half the cost of calling the row."""
    return section.reach if isinstance(section, Section) else section


_WindowKey = tuple[Callable[..., object], float, int]
"""A section's function, a window and the least number of readings."""


class _Window(Struct):
    """Readings, newest first, and whether no frames are missing among those that were searched."""

    readings: list[Reading]
    complete: bool


class _Result:
    """Result that a function computed from some readings."""

    def __init__(self) -> None:
        self.of: tuple[object, ...] | None = None
        self.value: object = None


class _Results:
    """Results by id of their readings; the readings are held, so that an id has one meaning."""

    def __init__(self) -> None:
        self.also: tuple[object, ...] = ()
        self.values: dict[int, tuple[object, object]] = {}


class Interval:
    """The newest frame and those before it, from which a metric is computed.

    Args:
        frames: At least one frame, oldest first. Metrics read only the newest ones.
        before: Interval of the same frames without the newest; this one continues its windows instead of reading anew.
    """

    __slots__ = ("_carried", "_frames", "_handed_on", "_known", "_lately", "_pairs", "_recent", "_whole", "newest")

    def __init__(self, frames: Sequence[Frame], before: Interval | None = None) -> None:
        self._frames = frames
        self._known: dict[Callable[[Interval], object], object] = {}
        self._pairs: dict[tuple[Callable[..., object], float, bool], tuple[object, object] | None] = {}
        self._recent: dict[_WindowKey, _Window] = {}
        self.newest: Final = frames[-1]
        self._whole: Interval | None = None
        # Windows that the interval before did not use are dropped: there are windows of any length.
        self._carried: dict[Hashable, object] = {}
        self._handed_on: dict[Hashable, object] = {} if before is None else before._carried
        self._lately: dict[_WindowKey, _Window] = {}
        if before is not None and not self.after_gap and _started_ms(before.newest) == _started_ms(self.newest):
            self._lately = before._recent

    def once(self, compute: Callable[[Interval], T]) -> T:
        """Return the result of a function of this interval; computed at the first call, and shared by all metrics."""
        if compute not in self._known:
            self._known[compute] = compute(self)
        return cast(T, self._known[compute])

    def kept(self, compute: Callable[..., T], *readings: object, whose: Hashable = None) -> T:
        """Return the result of a function of some readings; later intervals compute it anew only for other readings.

        Args:
            compute: The function.
            readings: Its arguments.
            whose: Distinguishes users of one function that have different readings.
        """
        result = self.carried((compute, whose), _Result)
        if result.of is None or len(result.of) != len(readings) or not all(map(is_, result.of, readings)):
            result.value, result.of = compute(*readings), readings
        return cast(T, result.value)

    def each(self, compute: Callable[..., T], readings: Sequence[object], *also: object) -> list[T]:
        """Return the results of a function of each reading and the further arguments.

        Later intervals reuse them: in a sliding window, the function is called once for each reading.
        """
        results = self.carried((compute, "each"), _Results)
        previous = results.values if results.also == also else {}
        results.also = also
        results.values = {
            id(reading): previous[id(reading)] if id(reading) in previous else (reading, compute(reading, *also))
            for reading in readings
        }
        return [cast(T, results.values[id(reading)][1]) for reading in readings]

    def carried(self, whose: Hashable, kind: Callable[[], T]) -> T:
        """Return an object that a metric keeps from interval to interval, such as a running sum.

        Intervals come in any order, because a replay can go back: the object itself checks whether it still fits.
        """
        if whose not in self._carried:
            self._carried[whose] = self._handed_on[whose] if whose in self._handed_on else kind()
        return cast(T, self._carried[whose])

    def now(self, section: Callable[[Frame], S | Unavailable]) -> S | None:
        """Return the section in the newest frame, None when it is unavailable."""
        reading = _reach(section)(self.newest)
        return None if isinstance(reading, Unavailable) else reading

    @property
    def frames(self) -> Sequence[Frame]:
        """The frames, oldest first."""
        return self._frames

    def over(self, window_s: float) -> Interval:
        """Return an interval of the newest frame and the oldest of the last seconds: rates become means of that time.

        The frame before the newest counts however old it is. The interval never spans a gap or a restart of the server.
        Sections that are read less often have their means in the full interval.
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
        interval._whole = self.whole
        return interval

    @property
    def whole(self) -> Interval:
        """Return the interval with all frames, where this one has only the ends of a window (`over`)."""
        return self if self._whole is None else self._whole

    @property
    def after_gap(self) -> bool:
        """Return whether frames are missing before the newest one, see `EventKind.GAP` and `EventKind.RECORDING`."""
        return _is_after_gap(self.newest)

    def pair(
        self, section: Callable[[Frame], S | Unavailable], least_s: float = 0.0, *, over_gaps: bool = False
    ) -> tuple[S, S] | None:
        """Return the two newest different readings of a section, older first.

        A section that is read less often than frames are made is unchanged in several frames; these are skipped.
        None when the newest frame lacks it, or when it was unavailable in between: a rate would span the outage.
        A few ticks without an answer are no outage, unless the server was restarted since.
        None as well when frames are missing for more than half of the time between the two readings.

        Args:
            section: The section.
            least_s: Least time between the readings: `PUBLISHED_S` for counters that backends publish.
            over_gaps: Whether missing frames do not matter: for events, not for rates.
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
        """Return the readings of a section within the last seconds, newest first; they end at an outage, see `pair`.

        Args:
            section: The section.
            window_s: Length of the window.
            least: Number of readings to return even when they are further apart: 2 for rates. Readings for rates end at
                missing frames as well.
        """
        key = (_reach(section), window_s, least)
        window = self._recent.get(key)
        if window is None:
            always = isinstance(section, Section) and section.kept_whole
            window = self._recent[key] = self._read_on(key, always) or self._read_back(*key)
        return cast(Sequence[S], window.readings)

    def _read_on(self, key: _WindowKey, always: bool) -> _Window | None:
        """Continue the window of the interval before: add the newest reading, drop those that have become too old.

        None where reading back could give another result: older frames lack some readings of a section (see
        `runtime.frame_window`), and a gap counts relative to the newest reading.
        """
        before = self._lately.get(key)
        reach, window_s, least = key
        newest = cast(Reading | Unavailable, reach(self.newest))
        if before is None or not before.complete or not before.readings or isinstance(newest, Unavailable):
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
        return _Window(readings, True) if readings[-1].at_s >= oldest_s else None

    def _read_back(self, reach: Callable[[Frame], S | Unavailable], window_s: float, least: int) -> _Window:
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
        return _Window(cast(list[Reading], readings), complete)

    def _is_same_server(self, older: Frame) -> bool:
        started_ms = _started_ms(self.newest)
        return started_ms is not None and started_ms == _started_ms(older)


def _is_after_gap(frame: Frame) -> bool:
    return any(event.kind in NOTHING_BEFORE for event in frame.events)


def _is_outage(absent: Unavailable, frame: Frame, frames: int) -> bool:
    """Return whether an absence is more than a few ticks in a row without an answer of the server."""
    missed = absent is frame.postgres and absent.reason == Reason.NO_ANSWER
    return not missed or frames > MISSED_TICKS


def _started_ms(frame: Frame) -> int | None:
    """Return the start time of the server; None where the frame lacks it."""
    postgres = frame.postgres
    if isinstance(postgres, Unavailable) or isinstance(postgres.server, Unavailable):
        return None
    return postgres.server.started_ms


def rate(older: float | None, newer: float | None, older_s: float, newer_s: float) -> float | None:
    """Return the increase per second; None when a value is not known, the counter was reset or no time has passed."""
    seconds = newer_s - older_s
    if older is None or newer is None or seconds <= 0 or newer < older:
        return None
    return (newer - older) / seconds


def pair_rate(pair: tuple[S, S] | None, pick: Callable[[S], float | None]) -> float | None:
    """Return the increase per second of a counter in two readings, older first."""
    return None if pair is None else rate(pick(pair[0]), pick(pair[1]), pair[0].at_s, pair[1].at_s)


def outer_pair(recent: Sequence[C]) -> tuple[C, C] | None:
    """Return the oldest and the newest of readings, newest first; None with less than two, and across a reset."""
    if len(recent) < 2 or recent[0].stats_reset_ms != recent[-1].stats_reset_ms:
        return None
    return recent[-1], recent[0]


def share(part: float, total: float) -> float | None:
    """Return a part in per cent of a total; None when the total is not above 0."""
    return 100.0 * part / total if total > 0 else None


class Metric(Struct, frozen=True):
    """One number an operator can see.

    Attributes:
        id: Stable name in exports and configuration: "host.cpu.user".
        title: Label on the screen.
        unit: "%", "1/s", "bytes", "bytes/s", "ms", …
        definition: Its meaning in one or two sentences, for `?`.
        source: View and column or kernel file and field, with the formula.
        value: Computes it; None when the frames do not give it.
        critical: Value from which on it is drawn red; None for a metric without such a value.
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

    All callers share the mapping of an interval: none may change it.
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
