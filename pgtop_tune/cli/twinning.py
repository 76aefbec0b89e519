"""`twin` put together: the server that is copied, what its copies take, the load, and where the result goes."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune import __version__
from pgtop_tune.advice.fence import loss_of
from pgtop_tune.bench.argv import check as check_load
from pgtop_tune.bench.argv import endpoint_words
from pgtop_tune.bench.housekeeping import find_tables
from pgtop_tune.bench.ports import LoadEndpoint, SqlSession
from pgtop_tune.bench.profiles import load_profiles, profile_directories
from pgtop_tune.bench.runner import PgbenchRunner
from pgtop_tune.changes.server.session_runner import operator_session
from pgtop_tune.cli.assignments import check_known, checked_name
from pgtop_tune.cli.commands.bench.shared import opened
from pgtop_tune.cli.connecting import ConnectionWords
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.experiment_progress import Progress
from pgtop_tune.cli.output import say, say_as_it_is, tell
from pgtop_tune.cli.wiring import endpoint_of
from pgtop_tune.cluster.account import Account
from pgtop_tune.cluster.binaries import Binaries, available, inspect
from pgtop_tune.cluster.copied_server import BackupSource, with_backup
from pgtop_tune.cluster.leftover_copies import remove_leftovers
from pgtop_tune.cluster.stopped_directory import StoppedDirectory, look_at
from pgtop_tune.compare.sides.figures import LATENCY, TPS
from pgtop_tune.errors import ClusterProblem, UsageProblem
from pgtop_tune.experiment.endpoints import LoadTarget
from pgtop_tune.experiment.load_run import must_be_there
from pgtop_tune.experiment.series import cells
from pgtop_tune.experiment.switchback.arms import Rival, as_shown
from pgtop_tune.experiment.switchback.blocks import Arm
from pgtop_tune.experiment.switchback.record import RecordFile
from pgtop_tune.experiment.switchback.state import ANSWERS, Ending
from pgtop_tune.experiment.twin.design import TwinLengths, check_time, cpu_halves
from pgtop_tune.experiment.twin.fitting import fit
from pgtop_tune.experiment.twin.original import Original, check, look
from pgtop_tune.experiment.twin.processes import core_of
from pgtop_tune.experiment.twin.room import cpu_words
from pgtop_tune.experiment.twin.settings import check_judged, left_out, of_copy
from pgtop_tune.experiment.twin.shown import TwinShown
from pgtop_tune.experiment.twin.state import TwinMaterial, TwinPlan, TwinState
from pgtop_tune.experiment.twin.twin import Twin
from pgtop_tune.experiment.twin.words import TwinNarrator, as_json, markdown, text
from pgtop_tune.host.kernel_text import read_once
from pgtop_tune.host.memory_files import parse_meminfo
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.model.parameter_values import check_value
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.postgres.server.conninfo import ConnInfo, ServerEndpoint
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.postgres.server.sql_session import open_sql_session
from pgtop_tune.runtime.running_experiments import Announcement, ServerKey, server_of_instance

_MB: Final = 2.0**20


class TwinRequest(Struct, frozen=True):
    """The command line of `twin`.

    Attributes:
        words: NAME=VALUE as typed: B's.
        profile, spec, clients, protocol: Of the load; None is as the profile has it.
        copy: A directory to copy in which no server runs; None is the running server.
        directory: Where the copies go; None is beside the data directory.
        seed: None draws one.
    """

    connection: ConnectionWords
    words: tuple[str, ...]
    profile: str
    profiles_directory: Path | None
    spec: LoadSpec
    clients: int | None
    protocol: str | None
    for_s: float
    copy: Path | None
    directory: Path | None
    seed: int | None
    format: str
    quiet: bool
    pgbench: Path | None


def wanted_values(words: Sequence[str]) -> dict[str, str]:
    """Name → value of NAME=VALUE words.

    Raises:
        UsageProblem: Something else, or a parameter twice.
    """
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise UsageProblem(f"{word!r} is not NAME=VALUE", "as in shared_buffers=8GB")
        checked = checked_name(name.strip()).lower()
        if checked in found:
            raise UsageProblem(f"{checked} is named twice", "pass each parameter once")
        found[checked] = value.strip()
    if not found:
        raise UsageProblem("nothing to judge", "as in shared_buffers=8GB")
    return found


def rivals_of(values: dict[str, str], original: Original) -> tuple[Rival, ...]:
    """B's values against those in force.

    Raises:
        UsageProblem: A parameter or a value that no copy can have.
    """
    found = {name.lower(): each for name, each in original.parameters.items()}
    check_known(values, (found[name] for name in values if name in found), original.names)
    rivals = []
    for name, value in values.items():
        parameter = found[name]
        if parameter.context == "internal":
            raise UsageProblem(f"{parameter.name} cannot be changed")
        check_value(parameter, value)
        if as_shown(parameter, value) == parameter.shown:
            raise UsageProblem(f"{parameter.name} is {parameter.shown} already", "pass another value for B")
        rivals.append(Rival(parameter.name, parameter.shown, value))
    check_judged(rivals)
    return tuple(rivals)


async def run_twin(wanted: TwinRequest) -> int:
    """Makes the experiment, prints its result, and gives the exit status.

    Raises:
        PgtopError: It could not begin; nothing was made.
    """
    values, lengths = wanted_values(wanted.words), TwinLengths()
    check_time(wanted.for_s, lengths)
    directories = profile_directories(wanted.profiles_directory)
    profile = load_profiles(directories).get(wanted.profile)
    async with opened(wanted.connection) as (sql_session, conninfo):
        original, server = await asyncio.to_thread(_looked, conninfo, tuple(values))
        rivals = rivals_of(values, original)
        stopped = None if wanted.copy is None else look_at(wanted.copy, original.major)
        check(original, os.geteuid(), stopped)
        target = LoadTarget(str(conninfo.endpoints[0]), endpoint_of(conninfo))
        (cell,) = cells([target], [profile], wanted.spec, None, clients=wanted.clients, protocol=wanted.protocol)
        # Before minutes of copying.
        check_load(cell.spec)
        place = (wanted.directory or Path(original.place.data_directory).parent).expanduser().absolute()
        for line in await asyncio.to_thread(remove_leftovers, place, {os.geteuid(), original.place.uid}):
            tell(line)
        found = await asyncio.to_thread(fit, original, rivals, cell.spec.clients, place, stopped)
        tables = await find_tables(sql_session, cell.dataset)
        must_be_there(cell, tables)
        if unlogged := [table.name for table in tables if table.unlogged]:
            raise ClusterProblem(
                f"{', '.join(unlogged)}: unlogged tables are empty in a copy", "ALTER TABLE … SET LOGGED, or bench init"
            )
        allowed = sorted(os.sched_getaffinity(0))
        halves = cpu_halves(allowed, core_of)
        arithmetic = (*found.arithmetic, cpu_words(halves, len(allowed)))
        for line in arithmetic:
            tell(line)
        material = _material(
            original, rivals, conninfo, cell.spec, place, huge_pages=found.huge_pages, wanted=wanted, stopped=stopped
        )
    plan = TwinPlan(
        rivals=rivals,
        load=f"{wanted.profile} -c {cell.spec.clients} -j {cell.spec.threads} -M {cell.spec.protocol}"
        + (f" -R {cell.spec.rate_per_s:g}" if cell.spec.rate_per_s else ""),
        for_s=wanted.for_s,
        seed=random.SystemRandom().getrandbits(31) if wanted.seed is None else wanted.seed,
        lengths=lengths,
        objective=LATENCY if cell.spec.rate_per_s else TPS,
        halves=halves,
    )
    facts = {"version": __version__, "server": conninfo.describe(), "room": list(arithmetic)}
    file = RecordFile("twin", (rival.name for rival in rivals), time.strftime("%Y%m%d-%H%M%S"))
    shown = TwinShown(plan)
    announcement = Announcement("twin", (), lambda: shown.newest, server)

    def record(state: TwinState) -> dict[str, Any]:
        return as_json(plan, state, facts)

    seen = Progress(TwinNarrator().lines, record, file, shown.take, announcement, quiet=wanted.quiet)
    notes = (*losses(original.parameters, rivals), *_notes(original, huge_pages=found.huge_pages))
    experiment = Twin(plan, material, seen, notes)
    announcement.begin()
    try:
        await experiment.run()
    finally:
        announcement.end()
        seen.keep(experiment.state)
        _print(wanted.format, plan, experiment.state, facts)
    return _status(experiment.state.ending)


def _looked(conninfo: ConnInfo, names: tuple[str, ...]) -> tuple[Original, ServerKey]:
    session = operator_session(conninfo, OwnSessions())
    try:
        return look(session, names), server_of_instance(session.instance)
    finally:
        session.close()


def losses(parameters: Mapping[str, Parameter], rivals: Sequence[Rival]) -> tuple[str, ...]:
    """What B can lose on a server that is kept, which no throughput shows."""
    found = ((each, loss_of(each.name, each.b, parameters[each.name].boot_val)) for each in rivals)
    return tuple(
        f"{each.name} = {each.b} can lose {loss}: this verdict is about its speed alone" for each, loss in found if loss
    )


def _notes(original: Original, *, huge_pages: bool) -> tuple[str, ...]:
    """Where the copies are not as the original."""
    found = []
    if dict(original.in_force).get("synchronous_standby_names"):
        found.append("the copies wait for no standby: commits are cheaper than on the server")
    if libraries := left_out(original.in_force):
        found.append(f"the copies do not load {', '.join(libraries)}, which would run jobs")
    pool = next(iter(parse_meminfo(0.0, read_once("/proc/meminfo")).huge_pages), None)
    if not huge_pages and pool is not None and pool.total and original.parameters["huge_pages"].setting == "try":
        found.append("neither copy has huge pages: too few are free for both")
    return tuple(found)


def _material(
    original: Original,
    rivals: Sequence[Rival],
    conninfo: ConnInfo,
    spec: LoadSpec,
    place: Path,
    *,
    huge_pages: bool,
    wanted: TwinRequest,
    stopped: StoppedDirectory | None,
) -> TwinMaterial:
    """What the copies are made of.

    Raises:
        ClusterProblem: Programs that it takes are not there.
    """
    programs = _programs(original)
    backup = with_backup((programs, *available()), programs.major) if stopped is None else programs
    if backup is None:
        raise ClusterProblem(
            f"no pg_basebackup of PostgreSQL {programs.major} or later was found on this machine",
            f"install the server's package of version {programs.major}",
        )
    endpoint = endpoint_of(conninfo)
    words = endpoint_words(endpoint)[:-1]
    source = BackupSource(
        words=tuple(words),
        environment=dict(endpoint.env),
        password=endpoint.password,
        tablespaces=original.tablespaces,
        slot=original.free_slots > 0,
    )

    async def open_session(copy: LoadEndpoint) -> SqlSession:
        there = (ServerEndpoint(copy.host, copy.port),)
        return await open_sql_session(replace(conninfo, endpoints=there, keywords={}, secrets={}))

    def make_runner(copy: LoadEndpoint) -> PgbenchRunner:
        runner = PgbenchRunner(copy, pgbench=wanted.pgbench)
        runner.directories = profile_directories(wanted.profiles_directory)
        return runner

    return TwinMaterial(
        source=source if stopped is None else stopped,
        programs=programs,
        backup_programs=backup,
        account=_account(original),
        directory=place,
        settings={arm: of_copy(original.in_force, rivals, arm, huge_pages=huge_pages) for arm in Arm},
        spec=spec,
        user=conninfo.user,
        dbname=conninfo.dbname,
        open_session=open_session,
        make_runner=make_runner,
    )


def _programs(original: Original) -> Binaries:
    """The installation that the server runs of."""
    program = Path(original.place.program)
    library_path = dict(original.place.environment).get("LD_LIBRARY_PATH")
    found = inspect(program.parent, f"in {program.parent}", Path(library_path) if library_path else None)
    if found.major != original.major:
        raise ClusterProblem(
            f"the server is PostgreSQL {original.major}, and {program} is {found.version} by now",
            "restart the server with the programs it is to have",
        )
    return found


def _account(original: Original) -> Account:
    """The server's user; we are that user, or root."""
    place = original.place
    assert place.uid is not None
    if place.uid == os.geteuid():
        return Account("this user")
    try:
        name = pwd.getpwuid(place.uid).pw_name
    except KeyError:
        name = str(place.uid)
    return Account(name, place.uid, place.gid)


def _status(ending: Ending) -> int:
    if ending in ANSWERS:
        return ExitCode.OK
    return {Ending.FAILED: ExitCode.FAILED, Ending.ENDED: ExitCode.LOAD}.get(ending, ExitCode.CANNOT_TELL)


def _print(form: str, plan: TwinPlan, state: TwinState, facts: dict[str, Any]) -> None:
    if form == "json":
        say_as_it_is(json.dumps(as_json(plan, state, facts), ensure_ascii=True))
    else:
        say(markdown(plan, state) if form == "markdown" else text(plan, state))
