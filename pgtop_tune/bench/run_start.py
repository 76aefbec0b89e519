"""The start of a run: its pgbench processes with their command lines, directories and logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.secret import without_secrets
from pgtop_tune.bench.argv import LOG_NAME, check_spec, run_argv, scripts_of, shell_quoted, threads_for
from pgtop_tune.bench.commit_log import ATTEMPT, CommitLog, CountingClients
from pgtop_tune.bench.groups import PgbenchGroup, wall_ms
from pgtop_tune.bench.locate import Pgbench
from pgtop_tune.bench.log_seconds import LogLayout
from pgtop_tune.bench.outage_run import OutageRun
from pgtop_tune.bench.phases import steps_of
from pgtop_tune.bench.places import LoadPlace, Running, RunOrder, unused_name
from pgtop_tune.bench.ports import LoadEndpoint, with_settings
from pgtop_tune.bench.profiles import Profile, read_script
from pgtop_tune.bench.run import PgbenchRun
from pgtop_tune.bench.transaction_log import TransactionLog
from pgtop_tune.model.bench import (
    BenchProgress,
    BenchRun,
    ClientGroup,
    LoadLevel,
    LoadSpec,
    PathProcess,
    RunState,
    ScriptChoice,
)


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


class Generator(Struct, frozen=True):
    """A machine that clients of a load come from, and its pgbench."""

    load_place: LoadPlace
    pgbench: Pgbench


class GroupStarter:
    """Starts the pgbench processes of a load; see `run.StartGroup`.

    Args:
        spec: The load; its clients and rate are those of each group.
        generators: The machines that the clients are shared by; one at least.
        directory: A directory of this machine that does not exist yet, for the log of the first group.
    """

    def __init__(
        self, spec: LoadSpec, profile: Profile, generators: Sequence[Generator], endpoint: LoadEndpoint, directory: Path
    ) -> None:
        self._spec = spec
        self._profile = profile
        self._generators = generators
        self._endpoint = endpoint
        self._directory = directory
        self._scripts = scripts_of(spec, profile)

    async def __call__(
        self,
        number: int,
        generator: int,
        level: LoadLevel,
        *,
        started_ms: int,
        bounded: bool,
        take_line: Callable[[PgbenchGroup, BenchProgress], None],
        take_end: Callable[[PgbenchGroup], None],
        take_message: Callable[[PgbenchGroup, str], None],
        again: bool = False,
        waits: bool = False,
    ) -> PgbenchGroup:
        load_place, pgbench = self._generators[generator].load_place, self._generators[generator].pgbench
        spec = replace(
            self._spec,
            clients=level.clients,
            rate_per_s=level.rate_per_s,
            duration_s=self._spec.duration_s if bounded else None,
            seed=None if self._spec.seed is None else self._spec.seed + number - 1,
            through_outage=False,
        )
        there = self._directory if number == 1 else unused_name(self._directory.parent)
        order = RunOrder(
            argv=tuple(planned_argv(spec, self._profile, pgbench, self._endpoint, load_place, there)),
            pgbench=pgbench,
            endpoint=hasty(self._endpoint) if again else self._endpoint,
            directory=there,
            scripts=self._scripts,
            attempts=again,
            waits=waits,
        )
        layout = LogLayout(lag=level.rate_per_s is not None, scripts=max(len(self._scripts), 1))
        spawned_ms = wall_ms()
        running = await load_place.start(order)
        facts = group_facts(number, spec, order, running, started_ms, load_place.name)
        return PgbenchGroup(
            facts,
            running,
            TransactionLog(running.directory, LOG_NAME, facts.threads, layout=layout),
            spawned_ms=spawned_ms,
            bounded=bounded,
            take_line=take_line,
            take_end=take_end,
            take_message=take_message,
        )


class CountingStarter:
    """Starts the counting clients of a load, which are a pgbench of their own; see `run.StartGroup`."""

    def __init__(self, counting: CountingClients, generator: Generator, endpoint: LoadEndpoint, base: Path) -> None:
        self._counting = counting
        self._generator = generator
        self._endpoint = with_settings(endpoint, counting.settings)
        self._base = base

    async def __call__(
        self,
        number: int,
        generator: int,
        level: LoadLevel,
        *,
        started_ms: int,
        bounded: bool,
        take_line: Callable[[PgbenchGroup, BenchProgress], None],
        take_end: Callable[[PgbenchGroup], None],
        take_message: Callable[[PgbenchGroup, str], None],
        again: bool = False,
        waits: bool = False,
    ) -> PgbenchGroup:
        load_place, pgbench = self._generator.load_place, self._generator.pgbench
        spec = self._counting.spec(number, again=again)
        spec = replace(spec, clients=level.clients, rate_per_s=level.rate_per_s)
        there = unused_name(self._base)
        # Nothing but the variables of its script is taken from a profile.
        order = RunOrder(
            argv=tuple(planned_argv(spec, _NO_PROFILE, pgbench, self._endpoint, load_place, there)),
            pgbench=pgbench,
            endpoint=hasty(self._endpoint) if again else self._endpoint,
            directory=there,
            attempts=again,
            waits=waits,
            number=ATTEMPT if again else "",
        )
        spawned_ms = wall_ms()
        running = await load_place.start(order)
        return PgbenchGroup(
            group_facts(number, spec, order, running, started_ms, load_place.name),
            running,
            CommitLog(running.directory, LOG_NAME),
            spawned_ms=spawned_ms,
            bounded=bounded,
            take_line=take_line,
            take_end=take_end,
            take_message=take_message,
        )


_NO_PROFILE: Final = Profile("counting", "", "")


def hasty(endpoint: LoadEndpoint) -> LoadEndpoint:
    """Return the endpoint with the shortest patience of libpq, for attempts: a silent address holds up the next one."""
    return replace(endpoint, env={"PGCONNECT_TIMEOUT": "2", **endpoint.env})


def group_facts(
    number: int, spec: LoadSpec, order: RunOrder, running: Running, started_ms: int, machine: str
) -> ClientGroup:
    """Return the facts of a group that was started."""
    return ClientGroup(
        number=number,
        clients=spec.clients,
        rate_per_s=spec.rate_per_s,
        threads=threads_for(spec),
        started_ms=started_ms,
        command=without_secrets(shell_quoted([without_secrets(word) for word in order.argv])),
        pid=None if order.attempts else running.pid,
        machine=machine,
        clock_ahead_ms=running.clock.ahead_ms if running.clock else None,
        clock_uncertain_ms=running.clock.uncertain_ms if running.clock else None,
    )


async def start_run(
    number: int,
    spec: LoadSpec,
    profile: Profile,
    generators: Sequence[Generator],
    endpoint: LoadEndpoint,
    directory: Path,
    counting: CountingClients | None = None,
    path: tuple[PathProcess, ...] = (),
) -> PgbenchRun:
    """Start pgbench.

    Args:
        number: Number of the run in this session.
        generators: The machines that the clients are shared by; one at least.
        directory: A directory of this machine that does not exist yet, for the log of the first group.
        counting: Clients beside the load that count their commits, where it goes through an outage.
        path: See `BenchRun.path`.

    Raises:
        LoadProblem: A spec pgbench would refuse, no directory, no script file, or pgbench cannot be started.
        UsageProblem: Its phases are none.
    """
    steps = steps_of(spec)
    level = steps[0].level if steps else spec.level
    check_spec(spec)
    scripts = scripts_of(spec, profile)
    hashes = tuple(read_script(script.file).sha256 for script in scripts)
    facts = BenchRun(
        run=number,
        profile="" if spec.scripts else profile.name,
        command="",
        pgbench_version=generators[0].pgbench.version,
        pid=None,
        started_ms=wall_ms(),
        state=RunState.STARTING,
        clients=level.clients,
        threads=threads_for(spec),
        duration_s=round(sum(step.seconds for step in steps)) if steps else spec.duration_s,
        rate_per_s=level.rate_per_s,
        protocol=spec.protocol,
        sampling_rate=profile.sampling_rate(level.rate_per_s),
        transactions=spec.transactions,
        latency_limit_ms=spec.latency_limit_ms,
        max_tries=spec.max_tries,
        connect_per_transaction=spec.connect_per_transaction,
        scripts=tuple(script.file.name for script in scripts) or (profile.builtin,),
        machine=", ".join(filter(None, (generator.load_place.name for generator in generators))),
        seed=spec.seed,
        script_hashes=hashes,
        continue_on_error=spec.continue_on_error,
        through_outage=spec.through_outage,
        path=path,
    )
    start_group = GroupStarter(spec, profile, generators, endpoint, directory)
    run: PgbenchRun
    if spec.through_outage:
        base = directory.parent
        start_counting = None if counting is None else CountingStarter(counting, generators[0], endpoint, base)
        run = OutageRun(facts, start_group, start_counting)
    else:
        run = PgbenchRun(facts, start_group, len(generators), steps)
    await run.begin()
    return run
