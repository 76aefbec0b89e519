"""Asks a server and its machine everything the checks need, once. The only module of `health` that talks to them."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem
from pgtop_tune.base.foreign_answers import MALFORMED, check_shape, malformed
from pgtop_tune.changes.start.machine_looks import account_of, with_machine
from pgtop_tune.changes.start.next_start import NextStart
from pgtop_tune.health import needs
from pgtop_tune.health.check import Check
from pgtop_tune.health.configured import as_configured, next_start, other_values, with_parameters
from pgtop_tune.health.facts import NOT_ASKED, Answers, CheckFacts, Missing, Question, Refused
from pgtop_tune.health.questions import CONFIGURED, SCOPED, START_FILES, START_OPTIONS, StartFile
from pgtop_tune.host.backup_tools import backup_tools
from pgtop_tune.host.block_devices import ROOT, server_directories
from pgtop_tune.host.choice import Host, host_of
from pgtop_tune.host.machine_setup import library_major
from pgtop_tune.host.remote_details import remote_details
from pgtop_tune.host.source_names import HostSource
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Reading, Section
from pgtop_tune.model.absence import NOT_YET, Reason, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import HostSample
from pgtop_tune.model.machine import ARCHIVE, NOWHERE_ELSE, BackupTools, MachineDetails, ServerPlaces
from pgtop_tune.model.pooler import PoolerAddress, PoolerSample
from pgtop_tune.model.postgres import PostgresSample, ServerFacts
from pgtop_tune.pooler.console import PoolerConsole
from pgtop_tune.postgres.reader import PostgresReader
from pgtop_tune.postgres.server.conninfo import APPLICATION_NAME, ConnInfo
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.postgres.survey import DatabaseAnswer, survey
from pgtop_tune.process.mount_namespace import namespace_of
from pgtop_tune.sampling.host_sampler import HostSampler
from pgtop_tune.sampling.pooler_sampler import PoolerSampler

BETWEEN_LOOKS_S: Final = 0.5
"""Time between the two frames from which rates are computed."""
DATABASES_S: Final = 30.0
"""For all databases together."""
_PATIENCE_S: Final = 3.0
_ARCHIVED_TO: Final = re.compile(r"""(?:^|[\s'"=>])(/[^\s'":]+)/%f""")
_BETWEEN_GLANCES_S: Final = 0.05
_ONCE: Final[tuple[Section[Reading], ...]] = (
    sections.parameters, sections.databases, sections.archiver, sections.wal_files,
    sections.slots, sections.subscriptions, sections.horizon, sections.database_limits, sections.temp_files,
    sections.progress,
)  # fmt: skip
"""Sections that are read once."""
BESIDE_PARAMETERS: Final[tuple[Question[Any], ...]] = (CONFIGURED, START_OPTIONS, SCOPED)
"""Questions that tell the server's own values from those of our role and database."""
_TWICE: Final[tuple[Section[Reading], ...]] = (
    sections.activity, sections.database, sections.wal, sections.checkpoints, sections.io, sections.replication,
)  # fmt: skip
"""Sections whose counters or positions are read in every look."""


async def gather(
    conninfo: ConnInfo,
    checks: Sequence[Check],
    root: Path = ROOT,
    poolers: Sequence[PoolerAddress] = (),
    host_source: HostSource = HostSource.AUTO,
) -> CheckFacts:
    """Ask the server and its machine for everything that these checks need.

    Args:
        conninfo: The server.
        checks: Only what they ask of databases is asked.
        root: Directory of /proc, /sys and /etc of this machine.
        poolers: Admin consoles to look at.
        host_source: Source of numbers of this machine.

    Raises:
        ConnectionProblem: The server is not there, or does not let us in.
        PasswordNeeded: It wants a password.
    """
    began_s = time.monotonic()

    def clock() -> float:
        return time.monotonic() - began_s

    own_sessions = OwnSessions()
    reader = PostgresReader(conninfo, clock, own_sessions)
    questions = _questions(checks)
    asks_tools = any(needs.BACKUP_TOOLS in check.needs for check in checks)
    try:
        server = await reader.connect()
        eye = _MachineView(reader, conninfo, clock, host_of(clock, host_source, root), host_source)
        asking = asyncio.create_task(_answers(conninfo, own_sessions, server.version_num // 10_000, questions))
        looking = asyncio.create_task(_pools(poolers, clock))
        try:
            server = await eye.localise(server)
            frames = await _looks(reader, eye, server, clock, twice=any(check.twice for check in checks))
            machine = await eye.machine(server, frames[-1])
            backups = await eye.backups(server) if asks_tools else NOT_ASKED
            answers = await asking
            frames = [_as_configured(frame, answers) for frame in frames]
            frames[-1] = replace(frames[-1], pooler=await looking)
        finally:
            asking.cancel()
            looking.cancel()
            await asyncio.gather(asking, looking, return_exceptions=True)
            eye.close()
    finally:
        await reader.aclose()
    facts = CheckFacts(tuple(frames), machine, answers, described=conninfo.describe(), backups=backups)
    if START_FILES.name in answers and server.local and server.postmaster_pid is not None:
        started = await asyncio.to_thread(_next_start, facts, server.postmaster_pid, root)
        libraries = await asyncio.to_thread(_libraries, answers[START_FILES.name], server.postmaster_pid, root)
        facts = replace(facts, next_start=started, answers={**answers, START_FILES.name: libraries})
    return facts


def _next_start(facts: CheckFacts, postmaster_pid: int, root: Path) -> NextStart | Unavailable:
    """Return the next start as this machine sees it."""
    account = account_of(postmaster_pid, root)
    if account is None:
        return Unavailable(Reason.NOT_LOCAL, "the server runs in its own container")
    try:
        return with_machine(next_start(facts, other_values(facts)), account)
    except Missing as missing:
        return missing.reason


def _libraries(
    answer: Answers[StartFile] | Unavailable, postmaster_pid: int, root: Path
) -> Answers[StartFile] | Unavailable:
    """Return the files of the next start, with the versions that libraries are made for."""
    if isinstance(answer, Unavailable):
        return answer
    namespace = namespace_of(postmaster_pid, root)
    rows = (
        (database, replace(file, built_for=library_major(file.path, namespace)) if file.path else file)
        for database, file in answer
    )
    return replace(answer, rows=tuple(rows))


async def _pools(addresses: Sequence[PoolerAddress], clock: Callable[[], float]) -> PoolerSample | Unavailable:
    """Look at every console once; one that is late has no sample yet."""
    consoles = [PoolerConsole(address, clock, APPLICATION_NAME) for address in addresses]
    sampler = PoolerSampler(consoles, clock)
    sampler.start()
    until_s = clock() + _PATIENCE_S
    try:
        while True:
            sample = sampler.sample()
            if clock() >= until_s or not _is_awaited(sample):
                return sample
            await asyncio.sleep(_BETWEEN_GLANCES_S)
    finally:
        await sampler.aclose()


def _is_awaited(sample: PoolerSample | Unavailable) -> bool:
    return not isinstance(sample, Unavailable) and any(pooler.console is NOT_YET for pooler in sample.poolers)


class _MachineView:
    """The machine of the server, wherever it can be seen."""

    def __init__(
        self, reader: PostgresReader, conninfo: ConnInfo, clock: Any, local: Host, host_source: HostSource
    ) -> None:
        self._reader = reader
        self._local = local
        self._sampler = HostSampler(
            host=local,
            surely_local=conninfo.endpoints[0].is_socket,
            backend=reader.own_backend,
            server=reader,
            clock=clock,
            wished=host_source,
        )
        self._places: ServerPlaces = NOWHERE_ELSE

    async def localise(self, facts: ServerFacts) -> ServerFacts:
        """Return the facts with the place of the server's machine."""
        places = await self._reader.places()
        self._places = NOWHERE_ELSE if isinstance(places, Unavailable) else places
        return await self._sampler.localise(facts)

    async def look(self, postgres: PostgresSample) -> HostSample | Unavailable:
        """Return a sample of the machine."""
        return await self._sampler.look(postgres, (), _PATIENCE_S)

    async def machine(self, server: ServerFacts, frame: Frame) -> MachineDetails | Unavailable:
        """Return the machine's settings."""
        pid, data = server.postmaster_pid, self._data_directory(server)
        sample = sections.disks(frame)
        disks = (
            {} if isinstance(sample, Unavailable) else {disk.name: disk.stacked for disk in sample.disks if disk.roles}
        )
        directories = (server_directories(data, self._places) | _archive(frame)) if data else {}
        if server.local:
            return await asyncio.to_thread(self._local.machine_details, disks, directories, pid)
        if isinstance(frame.host, Unavailable):
            return frame.host
        nodes = sections.numa(frame)
        count = 1 if isinstance(nodes, Unavailable) else len(nodes.nodes)
        return await remote_details(self._reader.server_files, disks, directories, count)

    async def backups(self, server: ServerFacts) -> BackupTools | Unavailable:
        """Return the backups that backup tools know of this server."""
        if not server.local:
            return Unavailable(
                Reason.NOT_LOCAL, "the server runs on another machine, whose backup tools are not queried"
            )
        data = self._data_directory(server)
        return await backup_tools(Path(data) if data else None)

    def _data_directory(self, server: ServerFacts) -> str | None:
        pid = server.postmaster_pid
        return server.data_directory or (self._local.working_directory(pid) if pid is not None else None)

    def close(self) -> None:
        self._sampler.close()


def _archive(frame: Frame) -> dict[str, str]:
    """Return the directory of this machine that archive_command copies to, by its role; empty where none is named."""
    parameters = sections.parameters(frame)
    rows = () if isinstance(parameters, Unavailable) else parameters.parameters
    command = next((row.setting for row in rows if row.name == "archive_command"), "")
    directories = _ARCHIVED_TO.findall(command)
    return {ARCHIVE: directories[-1]} if directories else {}


async def _looks(
    reader: PostgresReader, eye: _MachineView, server: ServerFacts, clock: Callable[[], float], *, twice: bool
) -> list[Frame]:
    """Return one frame, or two some time apart; sections that are read once are read in between."""
    empty = PostgresSample(server=server)
    first = await _frame(0, await _read(reader, _TWICE, empty), eye, clock)
    assert isinstance(first.postgres, PostgresSample)
    sections_once = await _read(reader, _ONCE, first.postgres)
    frames = [replace(first, postgres=sections_once)]
    if twice:
        await asyncio.sleep(max(BETWEEN_LOOKS_S - clock() + first.elapsed_s, 0.0))
        frames.append(await _frame(1, await _read(reader, _TWICE, sections_once), eye, clock))
    return frames


async def _read(reader: PostgresReader, to_read: Sequence[Section[Reading]], before: PostgresSample) -> PostgresSample:
    """Return the sample with these sections read anew."""
    return replace(before, **{section.name: await reader.read(section) for section in to_read})


async def _frame(sequence: int, postgres: PostgresSample, eye: _MachineView, clock: Callable[[], float]) -> Frame:
    host = await eye.look(postgres)
    return Frame(
        sequence=sequence, taken_at_ms=int(time.time() * 1000), elapsed_s=clock(), host=host, postgres=postgres
    )


def _as_configured(frame: Frame, answers: Mapping[str, Answers[Any] | Unavailable]) -> Frame:
    """Return the frame with parameters as the server has them, not our session."""
    sample = sections.parameters(frame)
    if isinstance(sample, Unavailable) or CONFIGURED.name not in answers:
        return frame
    return with_parameters(frame, as_configured(sample, answers[CONFIGURED.name], answers[START_OPTIONS.name]))


def _questions(checks: Sequence[Check]) -> tuple[Question[Any], ...]:
    required = [need for check in checks for need in (*check.needs, *check.asks)]
    questions = {need.name: need for need in required if isinstance(need, Question)}
    if any(needs.PARAMETERS in check.needs for check in checks):
        questions |= {question.name: question for question in BESIDE_PARAMETERS}
    return tuple(questions.values())


async def _answers(
    conninfo: ConnInfo, own_sessions: OwnSessions, major: int, questions: Sequence[Question[Any]]
) -> Mapping[str, Answers[Any] | Unavailable]:
    if not questions:
        return {}
    once = [question for question in questions if not question.everywhere]
    everywhere = [question for question in questions if question.everywhere]
    names = [question.name for question in once], [question.name for question in everywhere]
    try:
        answers = await survey(conninfo, own_sessions, major, *names, DATABASES_S)
    except ConnectionProblem as problem:
        reason = Unavailable(Reason.NO_ANSWER, problem.message)
        return {question.name: reason for question in questions}
    by_question = {question.name: _once(question, answers.here) for question in once}
    return by_question | {question.name: _everywhere(question, answers.everywhere) for question in everywhere}


def _once(question: Question[Any], answer: DatabaseAnswer) -> Answers[Any] | Unavailable:
    rows = answer.answers[question.name]
    if isinstance(rows, Unavailable):
        return rows
    try:
        return Answers(tuple(("", _row(question, row)) for row in rows), (answer.database,))
    except MALFORMED as error:
        return Unavailable(Reason.FAILED, malformed(error, question.name).message)


def _row(question: Question[Any], row: Mapping[str, Any]) -> Any:
    answer = question.row(**row)
    check_shape(answer)
    return answer


def _everywhere(question: Question[Any], answers: Sequence[DatabaseAnswer]) -> Answers[Any] | Unavailable:
    """Return the rows of all databases; Unavailable only where none answered."""
    rows: list[tuple[str, Any]] = []
    answered: list[str] = []
    refused: list[Refused] = []
    for one in answers:
        answer = Unavailable(Reason.NO_ANSWER, one.refused) if one.refused else one.answers[question.name]
        if isinstance(answer, Unavailable):
            refused.append(Refused(one.database, str(answer)))
            continue
        try:
            rows += [(one.database, _row(question, row)) for row in answer]
            answered.append(one.database)
        except MALFORMED as error:
            refused.append(Refused(one.database, malformed(error, question.name).message))
    if refused and not answered:
        return Unavailable(Reason.NO_ANSWER, f"{refused[0].database}: {refused[0].reason}")
    return Answers(tuple(rows), tuple(answered), tuple(refused))
