"""Starts and stops pgbench for the operator (`LoadControl`), follows each run to its end, and gives the sampler its
progress.

All calls come from one event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.base.secret import without_secrets
from pgtop_tune.bench.argv import LOG_NAME, run_argv, scripts_of, shell_quoted, threads_for
from pgtop_tune.bench.datasets.recognise import found_variables
from pgtop_tune.bench.locate import Pgbench
from pgtop_tune.bench.log_seconds import LogLayout
from pgtop_tune.bench.messages import BoundedText, hint_for, last_words, with_script
from pgtop_tune.bench.places import LoadPlace, LocalPlace, Running, RunOrder, base_directory, sweep, unused_name
from pgtop_tune.bench.ports import LoadEndpoint, SqlSession, with_settings
from pgtop_tune.bench.profiles import Profile, Profiles, check_script, load_profiles, read_script, with_variables
from pgtop_tune.bench.report import parse_progress, parse_report
from pgtop_tune.bench.transaction_log import LogStatistics, TransactionLog
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import (
    BenchProgress,
    BenchReport,
    BenchRun,
    BenchSample,
    LatencySecond,
    LoadSpec,
    ProfileSummary,
    RunState,
    ScriptChoice,
    Silence,
)

_CLOCK_S: Final = 1.0
_SILENCES_KEPT: Final = 3600
"""Silences kept for a sampler that does not come."""


class Silences:
    """The silences of one run. Moments are milliseconds since the epoch, by the clock that reads the lines."""

    def __init__(self) -> None:
        self._over: deque[Silence] = deque(maxlen=_SILENCES_KEPT)
        self._lasting: Silence | None = None
        self._heard_s = 0.0
        self._busy_ms: int | None = None
        self._done = self._done_ms = 0.0

    def hear(self, line: BenchProgress, now_ms: int) -> None:
        """Take the next progress line. A transaction that failed has ended, too; one that was skipped never began."""
        seconds = max(line.elapsed_s - self._heard_s, 0.0)
        self._heard_s = line.elapsed_s
        if line.tps > 0 or line.failed:
            self.end(now_ms)
            self._busy_ms = now_ms
            self._done += line.tps * seconds
            self._done_ms += line.tps * seconds * line.latency_ms
            return
        since_ms, zero_s = self._busy_ms, seconds
        if self._lasting is not None:
            since_ms, zero_s = self._lasting.since_ms, self._lasting.zero_s + seconds
        if since_ms is None:
            since_ms = now_ms - round(1000.0 * line.elapsed_s)
        self._lasting = Silence(
            since_ms=since_ms, until_ms=None, zero_s=zero_s, usual_ms=self._done_ms / self._done if self._done else None
        )

    def read(self, seconds: Iterable[LatencySecond], now_ms: int) -> None:
        """Take seconds of the log: a transaction may stand there before the line comes that counts it."""
        lasting = self._lasting
        if lasting is None:
            return
        # The clock of another machine is known to the second.
        inside_s = lasting.since_ms / 1000 + _CLOCK_S
        if any(second.logged and second.second >= inside_s for second in seconds):
            self.end(now_ms)
            self._busy_ms = now_ms

    def end(self, now_ms: int) -> None:
        """End the lasting silence: a transaction ended, or the run."""
        if self._lasting is not None:
            lasted = self._lasting
            self._lasting = None
            self._over.append(
                Silence(since_ms=lasted.since_ms, until_ms=now_ms, zero_s=lasted.zero_s, usual_ms=lasted.usual_ms)
            )

    def take(self) -> tuple[Silence, ...]:
        """Return the silences that ended since the last call, and the one that lasts."""
        silences = (*self._over, *(() if self._lasting is None else (self._lasting,)))
        self._over.clear()
        return silences


STOP_GRACE_S: Final = 3.0
"""For pgbench to end in order: transactions under way are finished, log and report are written."""
_KEPT: Final = 3600
"""Progress lines and seconds kept for a sampler that does not come."""
_READ_EVERY_S: Final = 1.0
"""Between two reads of the log at most, however seldom a sampler comes."""
_SIGNALLED: Final = 128

OVER: Final = (RunState.STOPPED, RunState.FINISHED, RunState.FAILED)


class PgbenchRun:
    """pgbench, running or ended. Made by `start_run`.

    Attributes:
        facts: As a frame has it; replaced as the state changes.
        report: pgbench's final report, None while it runs and where there was none.
        stdout: Text that it printed there, bounded. Foreign text.
        stderr: The same, without progress lines.
    """

    def __init__(self, facts: BenchRun, running: Running, log: TransactionLog) -> None:
        self.facts = facts
        self.report: BenchReport | None = None
        self.stdout = BoundedText()
        self.stderr = BoundedText()
        self._running = running
        self._log = log
        # Seconds of the log are those of the machine pgbench runs on.
        self._ahead_s = round((running.clock.ahead_ms if running.clock else 0.0) / 1000.0)
        self._progress: deque[BenchProgress] = deque(maxlen=_KEPT)
        self._latencies: deque[LatencySecond] = deque(maxlen=_KEPT)
        self._silences = Silences()
        self._taken_s = time.monotonic()
        self._stopping = False
        self._life = asyncio.create_task(self._live())

    @property
    def over(self) -> bool:
        """Return whether pgbench is gone and all of its output was read."""
        return self.facts.state in OVER

    def take(self) -> tuple[tuple[BenchProgress, ...], tuple[LatencySecond, ...]]:
        """Return progress lines and seconds of the log since the last call; reads `MOST_BYTES` of the log at most."""
        self._taken_s = time.monotonic()
        self._read_log()
        progress, latencies = tuple(self._progress), tuple(self._latencies)
        self._progress.clear()
        self._latencies.clear()
        return progress, latencies

    def silences(self) -> tuple[Silence, ...]:
        """Return the silences that ended since the last call, and the one that lasts."""
        return self._silences.take()

    def statistics(self) -> LogStatistics:
        return self._log.statistics()

    async def stop(self, ended_for: str = "", reason: str = "") -> None:
        """End pgbench: in order if it can be had within 3 s, else by force. Returns when it is gone.

        A run by transactions has no such end: it prints no report, and the last lines of its log are lost.

        Args:
            ended_for: OVERLOADED or ABORTED; "" where the operator ends it.
            reason: A sentence.
        """
        if not self.over:
            self.facts = replace(self.facts, ended_for=ended_for, message=reason)
            self._stopping = True
            # What ends a run with -T when its time is over; it then writes its log and its report.
            self._running.signal("ALRM")
            done, _ = await asyncio.wait((self._life,), timeout=STOP_GRACE_S)
            if not done:
                await self._running.stop()
        await self.ended()

    async def ended(self) -> None:
        """Wait for the end of the run."""
        await asyncio.shield(self._life)

    async def _live(self) -> None:
        drain = asyncio.create_task(self._keep_reading())
        status: int | None = None
        try:
            status = await self._running.follow(self.stdout.add, self._hear)
        finally:
            drain.cancel()
            if status is None:
                # Only a cancelled event loop comes here.
                self._running.kill()
            self._finish(status)

    def _hear(self, line: str) -> None:
        progress = parse_progress(line, self.facts.started_ms / 1000.0)
        if progress is None:
            self.stderr.add(line)
            return
        self._progress.append(progress)
        self._silences.hear(progress, time.time_ns() // 1_000_000)
        self._is_at_work()

    def _read_log(self, *, final: bool = False) -> None:
        if not self.over:
            seconds = self._log.read(final=final)
            self._latencies.extend(replace(second, second=second.second - self._ahead_s) for second in seconds)
            self._silences.read(self._latencies, time.time_ns() // 1_000_000)
            if self._latencies:
                self._is_at_work()

    def _is_at_work(self) -> None:
        if self.facts.state is RunState.STARTING:
            self.facts = replace(self.facts, state=RunState.RUNNING)

    async def _keep_reading(self) -> None:
        """Keep the log short where samplers come seldom, and yield to the event loop where there is much to read."""
        while True:
            await asyncio.sleep(_READ_EVERY_S)
            if time.monotonic() - self._taken_s >= _READ_EVERY_S:
                self._read_log()
            while self._log.behind:
                await asyncio.sleep(0)
                self._read_log()

    def _finish(self, status: int | None) -> None:
        try:
            self._read_log(final=True)
        finally:
            self._silences.end(time.time_ns() // 1_000_000)
            self._log.close()
            self._running.remove()
            self.report = parse_report(self.stdout.text())
            exit_status = status if status is None or status <= _SIGNALLED else _SIGNALLED - status
            state = RunState.STOPPED if self._stopping else RunState.FAILED if exit_status else RunState.FINISHED
            message = self.facts.message
            if state is RunState.FAILED:
                message = _failure(self.stderr.text(), exit_status, self.facts.scripts)
            self.facts = replace(self.facts, state=state, exit_status=exit_status, message=message)


def _failure(stderr: str, exit_status: int | None, scripts: Sequence[str]) -> str:
    message = without_secrets(last_words(stderr)) or _silent_end(exit_status)
    hint = hint_for(message)
    message = with_script(message, stderr, scripts)
    return f"{message}\nhint: {hint}" if hint else message


def _silent_end(exit_status: int | None) -> str:
    if exit_status is not None and exit_status < 0:
        return f"signal {-exit_status} ended pgbench"
    return f"pgbench printed nothing; exit status {exit_status}"


def planned_argv(
    spec: LoadSpec, profile: Profile, pgbench: Pgbench, endpoint: LoadEndpoint, load_place: LoadPlace, directory: Path
) -> list[str]:
    """Return the exact command line of a run, with paths as they are in that place.

    Args:
        directory: Directory of the run, on this machine.

    Raises:
        LoadProblem: A spec pgbench would refuse.
    """
    there = load_place.scripts(scripts_of(spec, profile), directory)
    choices = tuple(ScriptChoice(str(script.file), script.weight) for script in there)
    return run_argv(replace(spec, scripts=choices), profile, pgbench, endpoint, load_place.directory(directory))


async def start_run(
    number: int,
    spec: LoadSpec,
    profile: Profile,
    pgbench: Pgbench,
    endpoint: LoadEndpoint,
    load_place: LoadPlace,
    directory: Path,
) -> PgbenchRun:
    """Start pgbench.

    Args:
        number: Number of the run in this session.
        directory: A directory of this machine that does not exist yet, for the log.

    Raises:
        LoadProblem: A spec pgbench would refuse, no directory, no script file, or pgbench cannot be started.
    """
    argv = planned_argv(spec, profile, pgbench, endpoint, load_place, directory)
    threads, scripts = threads_for(spec), scripts_of(spec, profile)
    hashes = tuple(read_script(script.file).sha256 for script in scripts)
    started_ms = time.time_ns() // 1_000_000
    running = await load_place.start(
        RunOrder(argv=tuple(argv), pgbench=pgbench, endpoint=endpoint, directory=directory, scripts=scripts)
    )
    facts = BenchRun(
        run=number,
        profile=profile.name,
        command=without_secrets(shell_quoted([without_secrets(word) for word in argv])),
        pgbench_version=pgbench.version,
        pid=running.pid,
        started_ms=started_ms,
        state=RunState.STARTING,
        clients=spec.clients,
        threads=threads,
        duration_s=spec.duration_s,
        rate_per_s=spec.rate_per_s,
        protocol=spec.protocol,
        sampling_rate=profile.sampling_rate(spec.rate_per_s),
        transactions=spec.transactions,
        latency_limit_ms=spec.latency_limit_ms,
        max_tries=spec.max_tries,
        connect_per_transaction=spec.connect_per_transaction,
        scripts=tuple(script.file.name for script in scripts) or (profile.builtin,),
        machine=load_place.name,
        clock_ahead_ms=running.clock.ahead_ms if running.clock else None,
        clock_uncertain_ms=running.clock.uncertain_ms if running.clock else None,
        seed=spec.seed,
        script_hashes=hashes,
        continue_on_error=spec.continue_on_error,
    )
    layout = LogLayout(lag=spec.rate_per_s is not None, scripts=max(len(scripts), 1))
    return PgbenchRun(facts, running, TransactionLog(running.directory, LOG_NAME, threads, layout=layout))


Prepare = Callable[[LoadSpec, Profile], Awaitable[LoadSpec]]
"""Completes a load; raises a LoadProblem when that cannot be done."""

_FRESH_S: Final = 5.0
"""A form asks at every key; a data set does not change as fast."""


class LoadPreparation:
    """For loads an operator starts from a form. `complete` fits Prepare.

    Args:
        open_sql_session: Opens a session on the server of the load.
    """

    def __init__(self, open_sql_session: Callable[[], Awaitable[SqlSession]]) -> None:
        self._open_sql_session = open_sql_session
        self._found: dict[str, tuple[float, dict[str, str]]] = {}

    async def complete(self, spec: LoadSpec, profile: Profile) -> LoadSpec:
        r"""Return the load with the variables of its scripts.

        Raises:
            LoadProblem: The data set is not there or incomplete; a script is not there, or has \shell and its profile
                does not allow it.
            ConnectionProblem: The server is not there.
            ServerProblem: This role may not look at the tables.
        """
        await asyncio.to_thread(_check_scripts, spec, profile)
        own_variables = {name for name, _ in spec.variables}
        if spec.scripts or own_variables >= set(profile.from_dataset):
            return with_variables(spec, profile, {})
        return with_variables(spec, profile, await self._variables(profile.dataset))

    async def _variables(self, dataset: str) -> dict[str, str]:
        at_s, variables = self._found.get(dataset, (0.0, None))
        if variables is None or time.monotonic() - at_s > _FRESH_S:
            sql_session = await self._open_sql_session()
            try:
                variables = await found_variables(sql_session, dataset)
            finally:
                await sql_session.aclose()
            self._found[dataset] = (time.monotonic(), variables)
        return variables


def _check_scripts(spec: LoadSpec, profile: Profile) -> None:
    own_scripts = [Path(script.file) for script in spec.scripts]
    for file in own_scripts or [script.file for script in profile.scripts]:
        check_script(read_script(file), allow_shell=profile.allow_shell and not own_scripts)


class PgbenchRunner:
    """Runs one pgbench at a time against one server.

    Args:
        endpoint: The server.
        pgbench: Binary or its directory; None finds the newest.
        load_place: Where it runs; None is this machine.
        base: Where a run's private directory is made; None: /dev/shm, else TMPDIR.

    Attributes:
        endpoint: May be changed between two runs.
        directories: Where profiles are looked for; None is ours and the user's.
        prepare: Completes a load before it is started; None where it comes complete.
        fence: Raises UnsafeChange for a load whose settings can lose data and may not be unlocked here.
    """

    def __init__(
        self,
        endpoint: LoadEndpoint,
        *,
        pgbench: Path | None = None,
        load_place: LoadPlace | None = None,
        base: Path | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.directories: Sequence[Path] | None = None
        self.prepare: Prepare | None = None
        self.fence: Callable[[LoadSpec], None] = lambda spec: None
        self._asked_for = pgbench
        self._place: LoadPlace = load_place or LocalPlace()
        self._base = base or base_directory()
        self._next_directory = unused_name(self._base)
        self._found: dict[bool, Pgbench] = {}
        self._run: PgbenchRun | None = None
        self._runs = 0
        self._starting = asyncio.Lock()

    async def profiles(self) -> tuple[ProfileSummary, ...]:
        """Return profiles that can be run, ours first."""
        loaded = await self._profiles()
        return tuple(profile.summary() for profile in loaded.by_name.values())

    async def preview(self, spec: LoadSpec) -> str:
        """Return the exact command line `start` would run next, shell-quoted; holds no password.

        Raises:
            LoadProblem: No pgbench, no such profile, a spec pgbench would refuse, or its data set is not there.
            UnsafeChange: Its settings can lose data, and may not be unlocked in this session.
        """
        spec, profile = await self._complete(spec)
        pgbench = await self.pgbench()
        argv = planned_argv(spec, profile, pgbench, self.endpoint, self._place, self._next_directory)
        settings = with_settings(self.endpoint, spec.settings).env.get("PGOPTIONS", "") if spec.settings else ""
        return f"PGOPTIONS={shell_quoted([settings])} {shell_quoted(argv)}" if settings else shell_quoted(argv)

    async def start(self, spec: LoadSpec) -> None:
        """Start pgbench. That it is connected, or failed to, shows in the samples.

        Raises:
            LoadProblem: As `preview`, or a run is under way, or pgbench cannot be started.
        """
        async with self._starting:
            if self._run is not None and not self._run.over:
                raise LoadProblem("a load is already running", "stop the load first")
            spec, profile = await self._complete(spec)
            pgbench = await self.pgbench()
            await asyncio.to_thread(sweep, self._base)
            endpoint = with_settings(self.endpoint, spec.settings)
            self._run = await start_run(
                self._runs + 1,
                spec,
                profile,
                pgbench=pgbench,
                endpoint=endpoint,
                load_place=self._place,
                directory=self._next_directory,
            )
            self._runs += 1
            self._next_directory = unused_name(self._base)

    async def stop(self, ended_for: str = "", reason: str = "") -> None:
        """End the run, if there is one: in order within 3 s, else by force; returns when pgbench is gone.

        Args:
            ended_for, reason: See `PgbenchRun.stop`.
        """
        async with self._starting:
            if self._run is not None:
                await self._run.stop(ended_for, reason)

    async def ended(self) -> None:
        """Wait until the run under way, if there is one, ends by itself."""
        if self._run is not None:
            await self._run.ended()

    async def aclose(self) -> None:
        """Leave nothing running and nothing behind."""
        await self.stop()

    def sample(self, at_s: float) -> BenchSample | Unavailable:
        """Return pgbench's progress since the last call. Takes some milliseconds at most, never waits.

        Args:
            at_s: Now, on the session's clock.

        Returns:
            After the end of a run still that run, until the next begins; before the first, Unavailable(NO_LOAD).
        """
        if self._run is None:
            return Unavailable(Reason.NO_LOAD)
        progress, latencies = self._run.take()
        return BenchSample(
            at_s=at_s, run=self._run.facts, progress=progress, latencies=latencies, silences=self._run.silences()
        )

    @property
    def machine(self) -> str:
        """Return the machine on which pgbench runs, as it was named; "" is this machine."""
        return self._place.name

    @property
    def report(self) -> BenchReport | None:
        """Return pgbench's final report of the last run; None while it runs, and where it printed none."""
        return self._run.report if self._run is not None else None

    @property
    def output(self) -> tuple[str, str]:
        """Return stdout and stderr of the last run (without progress lines), bounded. Foreign text."""
        return (self._run.stdout.text(), self._run.stderr.text()) if self._run is not None else ("", "")

    @property
    def log_statistics(self) -> LogStatistics:
        """Return statistics about reading the transaction log of the last run."""
        return self._run.statistics() if self._run is not None else LogStatistics()

    async def pgbench(self) -> Pgbench:
        """Return the pgbench that is used for the endpoint; looked for once.

        Raises:
            LoadProblem: There is none, or none with TLS where the server's sessions have it.
        """
        over_tls = self.endpoint.over_tls
        if over_tls not in self._found:
            self._found[over_tls] = await self._place.find(self._asked_for, over_tls=over_tls)
        return self._found[over_tls]

    async def _complete(self, spec: LoadSpec) -> tuple[LoadSpec, Profile]:
        self.fence(spec)
        profile = (await self._profiles()).get(spec.profile)
        return (spec if self.prepare is None else await self.prepare(spec, profile)), profile

    async def _profiles(self) -> Profiles:
        return await asyncio.to_thread(load_profiles, self.directories)
