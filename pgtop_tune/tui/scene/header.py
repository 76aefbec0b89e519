"""The first line (who, where, which role, the clock, what watching costs) and the last (pages and keys)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import byte_rate, clock, number, percent, wall_clock
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.host import OWN_CPU, OWN_STATEMENT_MS, OWN_TERMINAL_BYTES
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import NEWEST_MAJOR, ServerFacts, newer_than_known
from pgtop_tune.runtime.load_control import (
    LoadState,
    MakingProgress,
)
from pgtop_tune.runtime.ports import RecordingState
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.actions import FooterKeys
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line, Span, ellipsized, fit, width, wrap
from pgtop_tune.tui.widgets.phrase import Phrase, absence, alarm, dot, fitting, labelled, lasting, padded, value_of

# The newest message to the operator: its lines above the footer, or on the lower edge of a dialog. Pure.

_MOST_LINES: Final = 3
_STYLES: Final = {"information": "strong", "warning": "warning", "error": "critical"}
_LONGEST: Final = 2_000


class ShownMessage(Struct, frozen=True):
    """A message as it is shown.

    Attributes:
        text: One or two sentences; may be foreign.
        severity: information, warning or error.
    """

    text: str
    severity: str

    @property
    def style(self) -> str:
        """Style of its text."""
        return _STYLES[self.severity]

    @property
    def line(self) -> str:
        """The message on one line: a problem's hint, which has a line of its own in a terminal, follows a semicolon."""
        return one_line("; ".join(self.text.splitlines()), _LONGEST)


def message_lines(message: ShownMessage, width: int, glyphs: Glyphs) -> list[Line]:
    """Return one line; up to three where its words need them."""
    sign = glyphs.bullet if message.severity == "information" else glyphs.warning
    room = max(width - 4, 8)
    rows = wrap(message.line, room)
    if len(rows) > _MOST_LINES:
        rows = [*rows[: _MOST_LINES - 1], rows[_MOST_LINES - 1][: room - 1] + glyphs.ellipsis]
    return [
        ((f" {' ' if number else sign} ", message.style), (row, message.style), (" ", PLAIN))
        for number, row in enumerate(rows)
    ]


_NARROW: Final = 100
_APART: Final = ("  ", PLAIN)
_CLOCK: Final = 3
"""Rank of the clock; what costs less room to lose comes after it."""
_COST: Final = 5
"""Rank of what watching costs: from `_NARROW` cells on it has its room before the names to the left."""
_WHOLE_S: Final = 0.75
_HINT: Final = re.compile(r"(; trying again[^;]*).*")
_SHORT_NAME: Final = 16
"""Cells of a database's name where room is short: the host and the version stay."""
_NAME: Final = 40
_REASON: Final = 300
"""Characters of a host or user name that are shown."""


def header_line(
    session: Session,
    columns: int,
    glyphs: Glyphs,
    *,
    recording: RecordingState | None = None,
    offset_s: float | None = None,
    target: str = "",
    load: LoadState | None = None,
) -> Line:
    """Return the first line of a screen.

    Args:
        session: The session that is shown.
        columns: Cells.
        glyphs: Characters.
        recording: Whether frames are being written; None where they cannot be.
        offset_s: How far the moment shown lies before the newest one, None at the newest.
        target: The server that was asked for, shown while none has answered yet.
        load: State of the load that frames do not show.
    """
    frame = session.now
    narrow = columns < _NARROW
    right = _right(session, frame, glyphs, recording, offset_s, narrow=narrow)
    going_on = _going_on(load)
    facts = [*_left(frame, target, glyphs, narrow=narrow), *going_on]
    # The recording comes before whatever is to the left; so does the clock, unless something has to be told there.
    busy = going_on or frame is None or isinstance(sections.server(frame), Unavailable)
    last = 0 if busy else _CLOCK if narrow else _COST
    first = [replace(phrase, line=phrase.short or phrase.line) for phrase in right if phrase.rank <= last] or right[:1]
    clock_cells = width(fitting(first, columns, _APART))
    most = max(columns - 4 - clock_cells, 1)
    beside_right = fitting(facts, most, dot(glyphs))
    beside = fitting(right, max(columns - 4 - width(beside_right), clock_cells), _APART) if right else ()
    middle = columns - 2 - width(beside_right) - width(beside)
    return fit(((" ", PLAIN), *beside_right, (" " * max(middle, 1), PLAIN), *beside, (" ", PLAIN)), columns)


def _left(frame: Frame | None, target: str, glyphs: Glyphs, *, narrow: bool) -> list[Phrase]:
    if frame is None:
        return [Phrase(((one_line(target, _NAME), "title"),)), Phrase((("waiting for the first sample", "dim"),))]
    host = frame.host if isinstance(frame.host, Unavailable) else frame.host.facts
    name: Line = () if isinstance(host, Unavailable) else ((one_line(host.hostname, _NAME), "title"),)
    server = sections.server(frame)
    if isinstance(server, Unavailable):
        where: Line = ((one_line(target, _NAME), PLAIN),) if target else ()
        return [Phrase(name, 1), Phrase(where, 2), Phrase(_silence(server, target))]
    up_s = (_server_now_ms(frame) - server.started_ms) / 1000.0
    at: Line = ((" @ ", "dim"), *name) if name else ()
    short_name = ellipsized(one_line(server.database, _NAME), _SHORT_NAME, glyphs.ellipsis).rstrip()
    return [
        Phrase(((one_line(server.database, _NAME), "title"), *at), 0, ((short_name, "title"), *at)),
        Phrase(
            ((one_line(f"{server.user}@{server.endpoint}", _NAME), PLAIN),),
            2,
            ((one_line(server.endpoint, _NAME), PLAIN),),
        ),
        Phrase(_product(server, narrow=narrow), 1, _product(server, narrow=True)),
        _unknown_major(server),
        Phrase((("via pooler", "warning"),) if server.pooled else (), 2),
        Phrase(labelled("up", lasting(up_s)), 4),
    ]


def _going_on(load: LoadState | None) -> list[Phrase]:
    """Return the step of a load or of a search, or a data set in the making."""
    if load is None or load.doing not in ("steps", "search", "making"):
        return []
    if load.doing != "making":
        return [Phrase(((load.title, "warning"),), 0, ((load.title.partition(":")[0], "warning"),))]

    far = making_words(load.making)
    share = far.partition(",")[0]
    return [Phrase(((f"making {load.title}: {far}", "warning"),), 0, ((f"making: {share}", "warning"),))]


def _silence(server: Unavailable, target: str) -> Line:
    """Return why there is no answer; the target stands beside it."""
    if server.reason is not Reason.NO_ANSWER:
        return absence(server)
    reason = str(server).replace(f"{target}: ", "", 1) if target else str(server)
    # The hint behind it stands in the room of the sessions.
    text = one_line(_HINT.sub(r"\1", reason), _REASON)
    return ((text if text.startswith(str(server.reason)) else f"{server.reason}: {text}", "critical"),)


def _product(server: ServerFacts, *, narrow: bool) -> Line:
    version = one_line(server.version, _NAME).split(" ")[0]
    return (
        (version if narrow else f"PostgreSQL {version}", PLAIN),
        (" standby" if server.in_recovery else " primary", "warning" if server.in_recovery else PLAIN),
    )


def _unknown_major(server: ServerFacts) -> Phrase:
    """Return the warning about an unknown major. It is never left out: figures of an older major may be wrong."""
    sentence = newer_than_known(server.version_num)
    short: Line = ((f"newer than supported, shown as {NEWEST_MAJOR}", "warning"),)
    return Phrase(((sentence, "warning"),), 0, short) if sentence else Phrase(())


def _server_now_ms(frame: Frame) -> int:
    activity = sections.activity(frame)
    return frame.taken_at_ms if isinstance(activity, Unavailable) else activity.now_ms


def _right(
    session: Session,
    frame: Frame | None,
    glyphs: Glyphs,
    recording: RecordingState | None,
    offset_s: float | None,
    *,
    narrow: bool,
) -> list[Phrase]:
    phrases = []
    if offset_s is not None:
        phrases.append(Phrase(((ago(offset_s, glyphs), "warning"),)))
    if recording is not None and frame is not None:
        now_s = frame.elapsed_s + abs(offset_s or 0.0)
        phrases += _recording(recording, now_s, glyphs)
    if frame is not None and session.interval is not None:
        phrases.append(_moment(session.interval))
    cost = value_of(OWN_CPU, session)
    if cost is None:
        return [phrase for phrase in phrases if phrase.line]
    phrases.append(
        Phrase(
            labelled("own" if narrow else "own cost", percent(cost).rjust(3), alarm(cost, OWN_CPU.critical), " % CPU"),
            _COST,
        )
    )
    phrases.append(Phrase(labelled("", byte_rate(value_of(OWN_TERMINAL_BYTES, session)).rjust(9)), 7))
    phrases.append(Phrase(labelled("server", percent(value_of(OWN_STATEMENT_MS, session)).rjust(3), PLAIN, " ms/s"), 6))
    return [phrase for phrase in phrases if phrase.line]


def _moment(interval: Interval) -> Phrase:
    """Return the time of the newest frame, and the seconds between frames: those asked for, however late one comes."""
    at: Line = ((wall_clock(interval.newest.taken_at_ms), PLAIN),)
    asked_s, looks = interval.newest.interval_s, interval.pair(sections.footprint)
    if asked_s is not None:
        every = number(asked_s)
    elif looks is None:
        return Phrase(at, _CLOCK)
    else:
        # A frame that comes a moment early or late is no other interval: the field keeps its width.
        apart_s = looks[1].at_s - looks[0].at_s
        every = f"{apart_s:.0f}" if apart_s >= _WHOLE_S else f"{apart_s:.1f}"
    return Phrase((*at, (" every ", "label"), (every, PLAIN), (" s", "label")), _CLOCK)


def _recording(recording: RecordingState, now_s: float, glyphs: Glyphs) -> list[Phrase]:
    if recording.problem:
        stopped = "stopped" if recording.path is None else f"loses frames ({recording.missing})"
        return [Phrase(((f"{glyphs.cross} rec {stopped}: {one_line(recording.problem, _NAME)}", "critical"),))]
    if recording.path is None:
        return []
    since_s = now_s if recording.since_s is None else recording.since_s
    # Where room is short its length goes before the endpoint of the server.
    length = Phrase(((clock(max(now_s - since_s, 0.0)).removeprefix("00:"), PLAIN),), _CLOCK + 1)
    return [Phrase(((f"{glyphs.bullet} rec", "good"),)), length]


def ago(seconds: float, glyphs: Glyphs) -> str:
    """Return how far back the moment shown lies: −13s, −2m 13s, −1h 02m 13s."""
    total_s = round(abs(seconds))
    hours, minutes, rest_s = total_s // 3600, total_s // 60 % 60, total_s % 60
    if hours:
        return f"{glyphs.minus}{hours}h {minutes:02d}m {rest_s:02d}s"
    return f"{glyphs.minus}{minutes}m {rest_s:02d}s" if minutes else f"{glyphs.minus}{rest_s}s"


# The last line: pages and keys.


class PageNames(Struct, frozen=True):
    """The pages there are.

    Attributes:
        names: (key, name) rows.
        here: Key of the one in view.
    """

    names: tuple[tuple[str, str], ...] = ()
    here: str = ""


NO_PAGES: Final = PageNames()
_FOOTERS_KEPT: Final = 16
"""More than anybody turns between."""
_GAP: Final = ("  ", PLAIN)
_SELECT: Final = ("↑↓", "select")


class _Lengths(Struct, frozen=True):
    """Words that a footer has room for.

    Attributes:
        apart: Gap between its parts.
        pages: Whether the word for the pages stands there.
        deeds, last, rows: Whether the keys of these parts have words.
    """

    apart: Span = _GAP
    pages: bool = True
    deeds: bool = True
    last: bool = True
    rows: bool = True


_LENGTHS: Final = (
    _Lengths(apart=(" │ ", "dim")),
    _Lengths(),
    _Lengths(pages=False),
    _Lengths(pages=False, last=False),
    _Lengths(deeds=False),
    _Lengths(deeds=False, pages=False),
    _Lengths(deeds=False, pages=False, last=False),
    _Lengths(deeds=False, pages=False, last=False, rows=False),
)
"""From long to short: the pages shrink first, and the words for the selected row stay longest."""


@lru_cache(maxsize=_FOOTERS_KEPT)
def footer_line(keys: FooterKeys, columns: int, pages: PageNames = NO_PAGES) -> Line:
    """Return the last line of a screen: pages, the selected row, deeds, help and leaving; the same keys at every width.

    Args:
        keys: As `actions.footer_keys` gives them.
        columns: Cells.
        pages: Named one by one where everything else has room.
    """
    room = columns - 2
    for lengths in _LENGTHS:
        line = _footer(keys, lengths, _counted(pages, worded=lengths.pages))
        if width(line) <= room:
            break
    if lengths is _LENGTHS[0]:
        line = _with_more(keys, lengths, pages, room)
    return padded(((" ", PLAIN), *fit(line, room)), columns)


def _with_more(keys: FooterKeys, lengths: _Lengths, pages: PageNames, room: int) -> Line:
    """Return the line with as many further keys as there is room for, then with the names of the pages."""
    line: Line = ()
    for count in range(len(keys.more) + 1):
        longer = _footer(keys, lengths, _counted(pages, worded=True), keys.more[:count])
        if width(longer) > room:
            return line
        line = longer
    named = _footer(keys, lengths, _named(pages), keys.more)
    return named if width(named) <= room else line


def _footer(keys: FooterKeys, lengths: _Lengths, pages: Line, more: Sequence[tuple[str, str]] = ()) -> Line:
    parts = (
        _joined([part for part in (pages, _verbs(keys.tables, worded=True)) if part], _GAP),
        _selected_row(keys, worded=lengths.rows),
        _verbs(keys.deeds, worded=lengths.deeds),
        _verbs(more, worded=True),
        _verbs(keys.last, worded=lengths.last),
    )
    return _joined([part for part in parts if part], lengths.apart)


def _joined(parts: Sequence[Line], gap: Span) -> Line:
    return tuple(span for number, part in enumerate(parts) for span in ((gap, *part) if number else part))


def _verbs(rows: Sequence[tuple[str, str]], *, worded: bool) -> Line:
    """Return keys with their words, or keys alone."""
    if not worded:
        return _joined([((key, "key"),) for key, _ in rows], (" ", PLAIN))
    return _joined([((key, "key"), (f" {word}", PLAIN)) for key, word in rows], _GAP)


def _selected_row(keys: FooterKeys, *, worded: bool) -> Line:
    """Return the verbs of the selected row; without one how to select it, and faintly what could be done then."""
    if keys.selected or not keys.rows:
        return _verbs(keys.rows, worded=worded)
    verbs = _verbs(keys.rows[1:], worded=worded)
    select = _verbs((_SELECT,), worded=worded)
    return _joined([select, tuple((text, "dim") for text, _ in verbs)], _GAP) if verbs else select


def _named(pages: PageNames) -> Line:
    spans: list[Span] = []
    for key, name in pages.names:
        gap = " " if spans else ""
        if key == pages.here:
            spans += [(gap, PLAIN), (f"{key} {name}", "title")]
        else:
            spans += [(gap + key, "key"), (f" {name}", PLAIN)]
    return tuple(span for span in spans if span[0])


def _counted(pages: PageNames, *, worded: bool) -> Line:
    keys = sorted(key for key, _ in pages.names)
    return ((f"{keys[0]}-{keys[-1]}", "key"), (" pages" if worded else "", PLAIN)) if keys else ()


def making_words(progress: MakingProgress | None) -> str:
    """Return the progress in a few cells: "45 %, 20 s left"; "" where it is unknown."""
    if progress is None or not progress.total:
        return "" if progress is None else progress.step
    remaining = "" if progress.remaining_s is None else f", {lasting(progress.remaining_s)} left"
    return f"{min(progress.done / progress.total, 1.0):.0%}{remaining}"
