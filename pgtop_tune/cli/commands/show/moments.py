"""The moments that `show` prints: of a server, once or again and again, or of a recording."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem, NotAvailable, NotLetIn, UsageProblem
from pgtop_tune.base.units import duration, wall_moment
from pgtop_tune.cli.commands.show import ShowFormat, ShowRequest, What
from pgtop_tune.cli.commands.show.formats import ShownRows, write
from pgtop_tune.cli.commands.show.session import ShownSession
from pgtop_tune.cli.commands.show.tables import ShownTable, chosen_columns, columns_for_programs, shown_table
from pgtop_tune.cli.connections import ConnectionOptions, begin_resolving, let_in, live_options, with_places
from pgtop_tune.cli.exit_codes import Terminated
from pgtop_tune.cli.headless import LEAD_UP_FRAMES, run_beside
from pgtop_tune.cli.options import for_seconds
from pgtop_tune.cli.output import say, tell
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import PUBLISHED_S, Section
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.host import HostSample
from pgtop_tune.model.postgres import PostgresSample
from pgtop_tune.runtime.frame_window import KEEP_FRAMES
from pgtop_tune.runtime.ports import Step
from pgtop_tune.tui.pages.listing import ListingView, first_view, ordered, shown_columns, without_unused

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from pgtop_tune.model.frame import Frame
    from pgtop_tune.postgres.server.conninfo import ConnInfo
    from pgtop_tune.tui.pages.page import PageColumn

_DEADLINE_S: Final = 15.0
"""Time that a section may take beyond the time to sample."""
_LOOK_S: Final = 0.05
_MAY_COME: Final = (Reason.NOT_YET, Reason.NO_ANSWER, Reason.TOO_SLOW)
"""Reasons of sections that a later frame may have: a busy server answers late."""
_SLOW_S: Final = 1.0
"""Time between two readings from which on a section is read at once instead."""


class RowChoice:
    """Choices of the command line, checked before anything is sampled.

    Attributes:
        connection: The server.
        shown: The table and the sections that it needs.
        format: Format of the output.

    Raises:
        UsageProblem: A table, column, format or time is unknown, or options contradict each other.
    """

    def __init__(self, request: ShowRequest) -> None:
        self._names, self.connection = names_and_place(request)
        if request.at is not None and (request.watch or request.seconds or self.connection != ConnectionOptions()):
            raise UsageProblem(
                "--at shows one moment of a recording", "leave out --watch, --seconds and the options of a connection"
            )
        self.shown: Final[ShownTable] = shown_table(request.subject, request.table)
        self.format: Final = request.format
        self.seconds: Final = for_seconds(request.seconds, "--seconds") or self.shown.seconds
        self.every_s: Final = for_seconds(request.watch, "--watch")
        self._request = request
        self._table = self.shown.load()
        if request.sort and chosen_columns(self._table, [request.sort])[0].value is None:
            raise UsageProblem(
                f"{self._table.id} cannot be sorted by {request.sort}", "choose a column of numbers or names"
            )
        names = [name for text in request.columns.split(",") if (name := text.strip())]
        self._columns = chosen_columns(self._table, names)
        self._view = self._first_view()

    def _first_view(self) -> ListingView:
        request, table = self._request, self._table
        if request.sort:
            table = replace(table, sort=request.sort)
        hides_quiet = table.hides_quiet and table.folded is None and not (request.all or self._names)
        return replace(first_view(table), hide_quiet=hides_quiet)

    def of(self, session: ShownSession, target: str) -> ShownRows:
        """Return the rows of a session with a frame.

        Args:
            target: The server's name.
        """
        frame, interval = session.now, session.interval
        assert frame is not None
        assert interval is not None
        rows = self._table.rows(session)
        kept: Any = rows
        count = 0
        if not isinstance(rows, Unavailable):
            rows = self._named(rows)
            everything = ordered(self._table, self._view, rows, len(rows))
            count, kept = len(everything), everything[: self._request.limit]
        return ShownRows(
            subject=self._request.subject,
            table=self._table.id,
            target=target,
            frame=frame,
            interval=interval,
            columns=self._columns or self._usual(kept),
            rows=kept,
            count=count,
        )

    def _named(self, rows: Sequence[Any]) -> Sequence[Any]:
        """Return the parameters that the request names; without names, all rows."""
        if not self._names:
            return rows
        from pgtop_tune.cli.parameter_rows import is_named, no_parameter

        named = [row for row in rows if is_named(row.parameter, self._names)]
        if not named:
            raise no_parameter(self._names)
        return named

    def _usual(self, rows: Any) -> tuple[PageColumn, ...]:
        if self.format is not ShowFormat.TABLE:
            return columns_for_programs(self._table)
        listed = () if isinstance(rows, Unavailable) else rows
        return shown_columns(self._table, without_unused(self._table, self._view, listed))

    @property
    def empty(self) -> str:
        """Return the words for no rows."""
        return self._table.empty


def meant_otherwise(subject: What, target: str) -> str:
    """Return a hint for a word that names no database, as fingers know it from other programs; "" for none."""
    rows = (
        (target.replace(".", "", 1).isdecimal(), f"--watch {target} repeats"),
        ("," in target, f"columns are --columns {target}; a database is -d"),
        (target in set(What), f"one kind of rows at a time: `pgtop-tune show {target}`"),
    )
    return next((hint for applies, hint in rows if applies), "")


def names_and_place(request: ShowRequest) -> tuple[list[str], ConnectionOptions]:
    """Return names and patterns of parameters, and the connection with its words. Raises UsageProblem for too many."""
    if request.subject is not What.PARAMETERS:
        return [], with_places(request.connection, request.typed_words or [])
    from pgtop_tune.cli.parameter_rows import names_and_connection

    return names_and_connection(request.typed_words or [], request.connection)


def show_rows(request: ShowRequest) -> int:
    """Print rows, and return the exit status.

    Raises:
        UsageProblem: See `RowChoice`, and a moment outside of the recording.
        NotAvailable: There are no such rows to have; its reason.
        ConnectionProblem: The server is not there, or refuses the login.
        RecordingProblem: The recording cannot be read.
    """
    if request.at is not None:
        choice = RowChoice(request)
        _say(recorded(request, choice), choice)
        return 0
    resolving = begin_resolving(names_and_place(request)[1])
    choice = RowChoice(request)
    if sys.stderr.isatty():
        tell(f"sampling {duration(max(choice.seconds, 2.0))}")
    try:
        rows = let_in(
            choice.connection, lambda conninfo: asyncio.run(sampled(conninfo, request, choice)), resolving=resolving
        )
    except NotLetIn as problem:
        if hint := meant_otherwise(request.subject, choice.connection.target):
            raise type(problem)(problem.message, hint) from None
        raise
    _say(rows, choice)
    return 0


def _say(rows: ShownRows, choice: RowChoice, *, headings: bool = True) -> None:
    """Print the rows of a moment; raise NotAvailable where there are none to have."""
    write(rows, choice.format, headings=headings)
    require_rows(rows)
    if not rows.rows and choice.format is ShowFormat.TABLE:
        tell(choice.empty)


def require_rows(rows: ShownRows) -> None:
    """Raise NotAvailable where there are no rows to have."""
    if isinstance(rows.rows, Unavailable):
        raise NotAvailable(f"{rows.table} not available: {rows.rows}")


# A moment of a recording.


def recorded(request: ShowRequest, choice: RowChoice) -> ShownRows:
    """Return the rows of the moment of --at. Raises UsageProblem and RecordingProblem as `show_rows`."""
    from pgtop_tune.recording.reader import RecordingReader, timeline_of
    from pgtop_tune.runtime.window import parse_moment

    assert request.at is not None
    moment, file = request.at
    reader = RecordingReader(file)
    try:
        line = timeline_of(reader)
        newest = reader.index_at(parse_moment(moment, line, within=True))
        diagnosed = request.subject is What.FINDING
        session = ShownSession(diagnosed=diagnosed)
        first = max(newest + 1 - (LEAD_UP_FRAMES if diagnosed else KEEP_FRAMES), reader.first)
        frames: list[Frame] = []
        for index, frame in reader.frames(first):
            if index > newest and frames:
                break
            frames.append(frame)
        session.apply(Step(tuple(frames), restart=True))
        for problem in dict.fromkeys(reader.problems):
            tell(f"{file}: {problem}")
        return choice.of(session, reader.header.target)
    finally:
        reader.close()


# A server.


async def sampled(conninfo: ConnInfo, request: ShowRequest, choice: RowChoice) -> ShownRows:
    """Return the rows of a server, the first ones of --watch. Raises ConnectionProblem as `show_rows`."""
    from pgtop_tune.cli.server_source import ServerSource
    from pgtop_tune.runtime.engine import Engine

    server_source = ServerSource(conninfo, live_options(request.session))
    source, session = server_source.source, ShownSession(diagnosed=request.subject is What.FINDING)
    engine = Engine(source, (session,))
    loop = asyncio.get_running_loop()
    moments: list[ShownRows] = []

    async def read() -> None:
        """Wait until the rows are complete; of a slow section the next reading is asked for at once."""
        began_s, frame = loop.time(), session.now
        deadline_s = began_s + choice.seconds + _DEADLINE_S
        while loop.time() < deadline_s and (source.server is None or source.server.may_answer):
            if session.now is not frame and source.server is not None:
                frame = session.now
                missing = [section for section in choice.shown.sections if not _is_read(session, section)]
                for section in missing:
                    if section is sections.processes:
                        server_source.host.refresh()
                    elif section.holder is PostgresSample and section.every_s > _SLOW_S:
                        source.server.refresh(section)
                if not missing and source.server.facts is not None and loop.time() >= began_s + choice.seconds:
                    return
            await asyncio.sleep(_LOOK_S)

    async def work() -> None:
        await read()
        require_answer()
        moments.append(choice.of(session, conninfo.describe()))
        headings = True
        while choice.every_s is not None:
            began_s, rows = loop.time(), choice.of(session, conninfo.describe())
            if choice.format is ShowFormat.TABLE:
                say(("" if headings else "\n") + wall_moment(rows.frame.taken_at_ms))
            try:
                _say(rows, choice, headings=headings)
            except NotAvailable as absent:
                tell(absent.message)
            headings = False
            await asyncio.sleep(max(choice.every_s - (loop.time() - began_s), 0.0))
            if session.now is rows.frame:
                session.arrived.clear()
                await session.arrived.wait()

    def require_answer() -> None:
        server = source.server
        if server is None or server.facts is None:
            if server is not None and server.problem is not None:
                raise server.problem
            raise ConnectionProblem(f"{conninfo.describe()} did not answer")

    number = await run_beside(engine, work, quietly=True)
    if number is not None:
        raise Terminated(number)
    return moments[0]


def _is_read(session: ShownSession, section: Section[Any]) -> bool:
    """Return whether the newest frame has the section, and an earlier one for its rates."""
    interval = session.interval
    if interval is None:
        return False
    reading = section(interval.newest)
    if isinstance(reading, Unavailable):
        return reading.reason not in _MAY_COME
    slow_host = section.holder is HostSample and section.every_s > _SLOW_S
    return slow_host or interval.pair(section, PUBLISHED_S) is not None
