"""Starts and stops pgbench for the operator (`LoadControl`), follows each run to its end, and gives the sampler its
progress.

All calls come from one event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.bench.argv import shell_quoted
from pgtop_tune.bench.commit_log import CountingClients, OutageClients
from pgtop_tune.bench.datasets.recognise import found_variables
from pgtop_tune.bench.locate import Pgbench
from pgtop_tune.bench.phases import steps_of
from pgtop_tune.bench.places import LoadPlace, LocalPlace, base_directory, sweep, unused_name
from pgtop_tune.bench.ports import LoadEndpoint, SqlSession, with_settings
from pgtop_tune.bench.profiles import Profile, Profiles, check_script, load_profiles, read_script, with_variables
from pgtop_tune.bench.run import PgbenchRun
from pgtop_tune.bench.run_start import Generator, planned_argv, start_run
from pgtop_tune.bench.transaction_log import LogStatistics
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import (
    BenchReport,
    BenchSample,
    LoadLevel,
    LoadSpec,
    PathProcess,
    ProfileSummary,
)

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
        load_places: The machines on which it runs; none is this one.
        base: Where a run's private directory is made; None: /dev/shm, else TMPDIR.

    Attributes:
        endpoint: May be changed between two runs.
        directories: Where profiles are looked for; None is ours and the user's.
        prepare: Completes a load before it is started; None where it comes complete.
        fence: Raises UnsafeChange for a load whose settings can lose data and may not be unlocked here.
        path: Poolers and proxies on the way to the endpoint; may be changed with it.
    """

    def __init__(
        self,
        endpoint: LoadEndpoint,
        *,
        pgbench: Path | None = None,
        load_places: Sequence[LoadPlace] = (),
        base: Path | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.directories: Sequence[Path] | None = None
        self.prepare: Prepare | None = None
        self.fence: Callable[[LoadSpec], None] = lambda spec: None
        self.path: tuple[PathProcess, ...] = ()
        self._asked_for = pgbench
        self._places: Sequence[LoadPlace] = load_places or (LocalPlace(),)
        self._base = base or base_directory()
        self._next_directory = unused_name(self._base)
        self._found: dict[bool, tuple[Generator, ...]] = {}
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
        steps = steps_of(spec)
        if steps:
            spec = replace(spec, clients=steps[0].level.clients, rate_per_s=steps[0].level.rate_per_s)
        argv = planned_argv(spec, profile, pgbench, self.endpoint, self._places[0], self._next_directory)
        settings = with_settings(self.endpoint, spec.settings).env.get("PGOPTIONS", "") if spec.settings else ""
        return f"PGOPTIONS={shell_quoted([settings])} {shell_quoted(argv)}" if settings else shell_quoted(argv)

    async def start(self, spec: LoadSpec, counting: CountingClients | None = None) -> None:
        """Start pgbench. That it is connected, or failed to, shows in the samples.

        Args:
            counting: Clients that count commits beside a load that goes through an outage.

        Raises:
            LoadProblem: As `preview`, or a run is under way, or pgbench cannot be started.
        """
        async with self._starting:
            if self._run is not None and not self._run.over:
                raise LoadProblem("a load is already running", "stop the load first")
            spec, profile = await self._complete(spec)
            generators = await self._generators()
            if spec.through_outage and self.machine:
                raise LoadProblem(
                    "clients of other machines are not replaced in an outage", "leave out --load-from, or run it there"
                )
            fewest = min((spec.clients, *(step.level.clients or spec.clients for step in steps_of(spec))))
            if fewest < len(generators):
                raise LoadProblem(f"{len(generators)} machines need as many clients", "pass more with -c")
            await asyncio.to_thread(sweep, self._base)
            endpoint = with_settings(self.endpoint, spec.settings)
            self._run = await start_run(
                self._runs + 1,
                spec,
                profile,
                generators,
                endpoint=endpoint,
                directory=self._next_directory,
                path=self.path,
                counting=counting,
            )
            self._runs += 1
            self._next_directory = unused_name(self._base)

    async def change(self, level: LoadLevel) -> None:
        """Change the clients and the rate of the run under way, or pause it. Returns once the new clients run.

        Raises:
            LoadProblem: No load runs, it cannot be changed, or new clients cannot be started.
        """
        run = self._run
        if run is None or run.over:
            raise LoadProblem("no load runs", "start one first")
        if run.facts.transactions is not None:
            raise LoadProblem(
                "a load by transactions (-t) keeps its clients and its rate", "start one with a time (-T)"
            )
        if run.facts.spans:
            raise LoadProblem("the load follows its phases", "stop it, and start one without phases")
        await run.change(level)

    @property
    def level(self) -> LoadLevel | None:
        """Return clients and rate that are wanted of the run under way; None without one."""
        return None if self._run is None or self._run.over else self._run.level

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
            at_s=at_s,
            run=self._run.facts,
            progress=progress,
            latencies=latencies,
            silences=self._run.silences(),
            seams=self._run.seams(),
        )

    @property
    def machine(self) -> str:
        """Return the machines on which pgbench runs, as they were named; "" is this machine."""
        return ", ".join(filter(None, (load_place.name for load_place in self._places)))

    async def fail(self, reason: str) -> None:
        """End the run as `stop` does; it has failed for that reason."""
        async with self._starting:
            if self._run is not None:
                await self._run.fail(reason)

    @property
    def opening(self) -> int | None:
        """Return how many files pgbench has open while its clients connect; None before and after, and elsewhere."""
        return None if self._run is None else self._run.opening

    @property
    def lost_connections(self) -> str:
        """Return pgbench's words about a client that got no connection; "" while there is none."""
        return "" if self._run is None else self._run.lost_connections

    @property
    def report(self) -> BenchReport | None:
        """Return pgbench's final report of the last run; None while it runs, and where it printed none."""
        return self._run.report if self._run is not None else None

    @property
    def output(self) -> tuple[str, str]:
        """Return stdout and stderr of the last run (without progress lines), bounded. Foreign text."""
        return self._run.output() if self._run is not None else ("", "")

    @property
    def outage_clients(self) -> OutageClients | None:
        """Return the clients of the last run, after its end, if it replaces lost ones."""
        return None if self._run is None else self._run.outage_clients

    @property
    def log_statistics(self) -> LogStatistics:
        """Return statistics about reading the transaction log of the last run."""
        return self._run.statistics() if self._run is not None else LogStatistics()

    async def pgbench(self) -> Pgbench:
        """Return the pgbench of the endpoint; with several machines, that of the first. It is looked up once.

        Raises:
            LoadProblem: There is none, or none with TLS where the server's sessions have it; machines differ.
        """
        return (await self._generators())[0].pgbench

    async def _generators(self) -> tuple[Generator, ...]:
        """Return the machines with their pgbench. Raises as `pgbench`."""
        over_tls = self.endpoint.over_tls
        if over_tls not in self._found:
            binaries = [await load_place.find(self._asked_for, over_tls=over_tls) for load_place in self._places]
            if len({pgbench.version_num // 10_000 for pgbench in binaries}) > 1:
                versions = ", ".join(
                    f"{load_place.name} has {pgbench.version}"
                    for load_place, pgbench in zip(self._places, binaries, strict=True)
                )
                raise LoadProblem(
                    f"the machines have different pgbench: {versions}", "pass --pgbench, a path on all of them"
                )
            self._found[over_tls] = tuple(map(Generator, self._places, binaries))
        return self._found[over_tls]

    async def _complete(self, spec: LoadSpec) -> tuple[LoadSpec, Profile]:
        self.fence(spec)
        profile = (await self._profiles()).get(spec.profile)
        return (spec if self.prepare is None else await self.prepare(spec, profile)), profile

    async def _profiles(self) -> Profiles:
        return await asyncio.to_thread(load_profiles, self.directories)
