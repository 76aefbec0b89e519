"""The watched server and the load of a search: what `tune` makes before its first evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from msgspec.structs import replace

from pgtop_tune.advice.facts import AdviceFacts
from pgtop_tune.advice.gather import Beside, facts_of
from pgtop_tune.base.errors import ConnectionProblem, LoadProblem, PgtopError
from pgtop_tune.bench.datasets.pgbench_tables import look_for_room
from pgtop_tune.bench.profiles import load_profiles, profile_directories
from pgtop_tune.changes.change_sets import ChangeSets
from pgtop_tune.cli.commands.bench.shared import opened
from pgtop_tune.cli.connecting import ConnectionWords
from pgtop_tune.cli.free_bytes import free_bytes_for
from pgtop_tune.cli.live_options import LiveOptions
from pgtop_tune.cli.measuring import targets
from pgtop_tune.cli.output import tell
from pgtop_tune.cli.wiring import LiveSession
from pgtop_tune.experiment.answering import until_frames_show_it
from pgtop_tune.experiment.load_run import LoadRun
from pgtop_tune.experiment.run_cell import RunCell
from pgtop_tune.experiment.series import cells
from pgtop_tune.experiment.switchback.arms import Arms, Rival
from pgtop_tune.experiment.switchback.loads import ForeignLoad, OwnLoad
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.server import client_backends
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.runtime.run_frames import FrameKeeper
from pgtop_tune.runtime.running_experiments import server_of
from pgtop_tune.tuning.on_server.conditions import LOOKS, WINDOW_S, LoadShape, change_of, idle, load_shape
from pgtop_tune.tuning.on_server.evaluating import CurrentBlocks, HeldLoad
from pgtop_tune.tuning.on_server.guards import GUARDED, Guards
from pgtop_tune.tuning.on_server.journal import TuningRequest
from pgtop_tune.tuning.on_server.objective import Objective
from pgtop_tune.tuning.plan import KnobSpace

_SHOWN_LOAD_S: Final = 25.0
"""Of the load before the first evaluation: what its waits and its WAL are."""
_FIRST_S: Final = 90.0
_RUNS_S: Final = 5
"""Seconds in a row with transactions, after which a load of another program is taken to run again."""
_CHECKED_S: Final = 60.0


class TuningSession:
    """The parts of a search that outlive an evaluation.

    Args:
        conninfo: The server.
        live: Watches and changes it.
        options: It was made with.
        cell: The load; None where another program drives it.
        objective: What decides; None where the same mix of statements does.

    Attributes:
        load: Held between evaluations.
        blocks: Frames as blocks.
        facts: Of server and machine under the load before the first evaluation; None before.
    """

    def __init__(
        self,
        conninfo: ConnInfo,
        live: LiveSession,
        options: LiveOptions,
        cell: RunCell | None,
        objective: Objective | None,
    ) -> None:
        self.conninfo = conninfo
        self.live = live
        self.journal_directory = options.journal_directory
        self.cell = cell
        self.objective = objective
        self.keeper = FrameKeeper()
        self.blocks = CurrentBlocks(loaded=cell is not None)
        self.run = LoadRun(live.load, self.keeper, live.open_sql_session, _tell_rarely, restarts=True)
        live.load.prepare = None
        live.engine.attach(self.keeper)
        live.engine.attach(self.blocks)
        load = ForeignLoad() if cell is None else OwnLoad(self.run, live.load, cell)
        self.load = HeldLoad(load)
        self.facts: AdviceFacts | None = None

    @property
    def load_words(self) -> str:
        """For records."""
        if self.cell is None:
            return "of the server as it is"
        return f"{self.cell.profile_name or 'scripts'} -c {self.cell.spec.clients} -M {self.cell.spec.protocol}"

    def asked(self, request: TuningRequest) -> TuningRequest:
        """The request with what the profile has filled in."""
        if self.cell is None:
            return request
        spec = self.cell.spec
        return replace(request, clients=spec.clients, protocol=spec.protocol, rate_per_s=spec.rate_per_s)

    async def parameters(self, names: Iterable[str]) -> Mapping[str, Parameter]:
        """Those that the server has, by name."""
        return {each.name: each for each in await self.live.parameters.list(tuple(dict.fromkeys(names)))}

    def system_identifier(self) -> str:
        """Of the server; "" where the role may not see it."""
        key = server_of(self.keeper.frames[-1])
        return "" if key is None else key.system_identifier

    async def without_refused(self, space: KnobSpace) -> KnobSpace:
        """Without the knobs that the server does not let us set, or that do not reach sessions of the load.

        Each is set for a moment to the value beside the one in force; those that need blocks of their own are not.

        Raises:
            ConnectionProblem: The server is gone.
        """
        control, refused = self.live.parameters, dict[str, str]()
        for each in space.dimensions:
            if each.separate:
                continue
            beside = each.levels[each.start + 1 if each.start + 1 < len(each.levels) else each.start - 1]
            rival = Rival(each.name, each.levels[each.start], beside)
            try:
                await Arms(ChangeSets(control, None), control, (rival,), frozenset()).check(_CHECKED_S)
            except ConnectionProblem:
                raise
            except PgtopError as problem:
                refused[each.name] = problem.message
        kept = tuple(each for each in space.dimensions if each.name not in refused)
        return KnobSpace(kept, (*space.left_out, *refused.items()))

    async def loaded_interval(self) -> Interval:
        """Frames of the load: it is started here, and goes on.

        Raises:
            LoadProblem: It does not run.
        """
        await self.load.start()
        frames = self.blocks.frames
        frames.begin()
        ran = await frames.until(lambda: len(frames.tps) >= _SHOWN_LOAD_S and self._facts() is not None, _FIRST_S)
        if ran and self.cell is None and idle(median(frames.tps), self._clients()):
            raise LoadProblem("no client is connected: there is no load to search under", "start it first")
        if not ran:
            why = "the server does not report its parameters in time" if any(frames.tps) else "no transaction ended"
            raise LoadProblem(frames.trouble or why, "`pgtop-tune bench run` shows why")
        frames.end()
        self.keeper.rest()
        interval = frames.interval
        assert interval is not None
        self.facts = self.facts or self._facts()
        return interval

    def _facts(self) -> AdviceFacts | None:
        """Of the newest frames; None where they do not tell, as on a busy machine."""
        interval = self.blocks.frames.interval
        return None if interval is None else facts_of(interval, Beside())

    async def until_load_changes(self) -> str:
        """Waits until the load of another program has become another one; how, in words."""
        before: LoadShape | None = None
        looks: list[LoadShape] = []
        frames = self.blocks.renewed()
        while True:
            await frames.until(lambda: False, WINDOW_S)
            shape = None if frames.interval is None else load_shape(frames.interval)
            if shape is None:
                continue
            if before is None:
                before = shape
                continue
            looks = [*looks[1 - LOOKS :], shape]
            if change := change_of(before, looks):
                return change

    async def load_runs(self, timeout_s: float) -> bool:
        """See `RunParts.load_runs`."""
        frames = self.blocks.renewed()
        frames.begin()
        return await frames.until(
            lambda: len(frames.tps) >= _RUNS_S and not idle(median(frames.tps[-_RUNS_S:]), self._clients()), timeout_s
        )

    def _clients(self) -> float | None:
        """Connected now, without ours; None where nobody looked."""
        interval = self.blocks.frames.interval
        activity = None if interval is None else interval.now(sections.activity)
        return None if activity is None else float(len(client_backends(activity)))

    async def answers(self) -> None:
        """See `RunParts.answers`."""
        await until_frames_show_it(self.live.open_sql_session, self.keeper)

    async def free_bytes(self) -> int | None:
        """See `RunParts.free_bytes`."""
        sql_session = await self.live.open_sql_session()
        try:
            room = await look_for_room(sql_session, 1, 0, await free_bytes_for(sql_session))
        finally:
            await sql_session.aclose()
        return room.available_bytes

    async def checkpoint(self) -> None:
        """Makes one.

        Raises:
            ServerProblem: The role may not.
            ConnectionProblem: The server is gone.
        """
        sql_session = await self.live.open_sql_session()
        try:
            await sql_session.execute("CHECKPOINT")
        finally:
            await sql_session.aclose()

    def guards(self, found: Mapping[str, Parameter], names: Sequence[str], recovery_s: float) -> Guards:
        """Limits of this server and its machine.

        Raises:
            ConnectionProblem: Its frames do not tell what it is.
        """
        facts = self.facts
        if facts is None:
            raise ConnectionProblem("the server did not report its parameters")
        return Guards(
            major=facts.major,
            parameters={name: found[name] for name in (*GUARDED, *names) if name in found},
            ram_bytes=facts.ram_bytes,
            wal_room_bytes=facts.wal_disk_bytes,
            recovery_s=recovery_s,
        )


def _tell_rarely(words: str) -> None:
    """Without the steps before each block, which would hide the lines of the search."""
    if not words.startswith("housekeeping: "):
        tell(words)


async def opened_session(
    connection: ConnectionWords,
    request: TuningRequest,
    live: LiveOptions,
    profiles_directory: Path | None,
    decides: Objective | None,
) -> TuningSession:
    """The server that the words mean, and the load of the request, not started.

    Args:
        decides: None where another program drives the load.

    Raises:
        PgtopError: No such server, or no such profile.
    """
    directories = profile_directories(profiles_directory)
    async with opened(connection) as (sql_session, conninfo):
        places = await targets((), sql_session, conninfo, from_here=live.load_from is None)
        reached = sql_session.reached
    session = LiveSession(conninfo, live, reached)
    session.watch_others()
    session.load.directories = directories
    if decides is None:
        return TuningSession(conninfo, session, live, None, None)
    profile = load_profiles(directories).get(request.profile)
    spec = LoadSpec(threads=request.threads, rate_per_s=decides.rate)
    clients, protocol = request.clients or None, request.protocol or None
    [cell, *_] = cells(places, [profile], spec, None, clients=clients, protocol=protocol)
    return TuningSession(conninfo, session, live, cell, decides)
