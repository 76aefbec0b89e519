"""Starts and stops pgbench for the operator (`LoadControl`), and gives the sampler its progress.

All calls come from one event loop.

What a load needs before pgbench can run it: the data set's numbers for its scripts, and scripts that may run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.bench.argv import shell_quoted
from pgtop_tune.bench.datasets.recognise import found_variables
from pgtop_tune.bench.locate import Pgbench
from pgtop_tune.bench.places import LoadPlace, LocalPlace
from pgtop_tune.bench.ports import LoadEndpoint, SqlSession, with_settings
from pgtop_tune.bench.profiles import Profile, Profiles, load_profiles, with_variables
from pgtop_tune.bench.run import PgbenchRun, planned_argv, start_run
from pgtop_tune.bench.run_directory import base_directory, sweep, unused_name
from pgtop_tune.bench.scripts import check_script, read_script
from pgtop_tune.bench.transaction_log import LogStatistics
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import BenchReport, BenchSample, LoadSpec, ProfileSummary

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
        r"""The load with the variables of its scripts.

        Raises:
            LoadProblem: The data set is not there or incomplete; a script is not there, or has \shell and its profile
                does not allow it.
            ConnectionProblem: The server is not there.
            ServerProblem: This role may not look at the tables.
        """
        await asyncio.to_thread(_check_scripts, spec, profile)
        given = {name for name, _ in spec.variables}
        if spec.scripts or given >= set(profile.from_dataset):
            return with_variables(spec, profile, {})
        return with_variables(spec, profile, await self._variables(profile.dataset))

    async def _variables(self, dataset: str) -> dict[str, str]:
        at_s, found = self._found.get(dataset, (0.0, None))
        if found is None or time.monotonic() - at_s > _FRESH_S:
            sql_session = await self._open_sql_session()
            try:
                found = await found_variables(sql_session, dataset)
            finally:
                await sql_session.aclose()
            self._found[dataset] = (time.monotonic(), found)
        return found


def _check_scripts(spec: LoadSpec, profile: Profile) -> None:
    own = [Path(script.file) for script in spec.scripts]
    for file in own or [script.file for script in profile.scripts]:
        check_script(read_script(file), allow_shell=profile.allow_shell and not own)


class PgbenchRunner:
    """Runs one pgbench at a time against one server.

    Args:
        endpoint: The server.
        pgbench: Binary or its directory; None finds the newest.
        place: Where it runs; None is this machine.
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
        place: LoadPlace | None = None,
        base: Path | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.directories: Sequence[Path] | None = None
        self.prepare: Prepare | None = None
        self.fence: Callable[[LoadSpec], None] = lambda spec: None
        self._asked_for = pgbench
        self._place: LoadPlace = place or LocalPlace()
        self._base = base or base_directory()
        self._next_directory = unused_name(self._base)
        self._found: dict[bool, Pgbench] = {}
        self._run: PgbenchRun | None = None
        self._runs = 0
        self._starting = asyncio.Lock()

    async def profiles(self) -> tuple[ProfileSummary, ...]:
        """Profiles that can be run, ours first."""
        loaded = await self._profiles()
        return tuple(profile.summary() for profile in loaded.known.values())

    async def preview(self, spec: LoadSpec) -> str:
        """The exact command line `start` would run next, shell-quoted; holds no password.

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
        """Starts pgbench. That it is connected, or failed to, shows in the samples.

        Raises:
            LoadProblem: As `preview`, or a run is under way, or pgbench cannot be started.
        """
        async with self._starting:
            if self._run is not None and not self._run.over:
                raise LoadProblem("a load is running already", "stop it first")
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
                place=self._place,
                directory=self._next_directory,
            )
            self._runs += 1
            self._next_directory = unused_name(self._base)

    async def stop(self) -> None:
        """Ends the run, if there is one: in order within 3 s, else by force; returns when pgbench is gone."""
        async with self._starting:
            if self._run is not None:
                await self._run.stop()

    async def ended(self) -> None:
        """Waits for the run under way, if there is one, to end by itself."""
        if self._run is not None:
            await self._run.ended()

    async def aclose(self) -> None:
        """Leaves nothing running and nothing behind."""
        await self.stop()

    def sample(self, at_s: float) -> BenchSample | Unavailable:
        """What pgbench said since the last call. Takes some milliseconds at most, never waits.

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
        """Where pgbench runs, as it was named; "" is this machine."""
        return self._place.name

    @property
    def report(self) -> BenchReport | None:
        """pgbench's final report of the last run; None while it runs, and where it printed none."""
        return self._run.report if self._run is not None else None

    @property
    def output(self) -> tuple[str, str]:
        """stdout and stderr of the last run (without progress lines), bounded. Foreign text."""
        return (self._run.stdout.text(), self._run.stderr.text()) if self._run is not None else ("", "")

    @property
    def log_statistics(self) -> LogStatistics:
        """How reading the transaction log of the last run went."""
        return self._run.statistics() if self._run is not None else LogStatistics()

    async def pgbench(self) -> Pgbench:
        """The pgbench that is used for the endpoint; looked for once.

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
