"""The start of a run: its pgbench processes with their command lines, directories and logs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.secret import without_secrets
from pgtop_tune.bench.argv import LOG_NAME, check_spec, run_argv, scripts_of, shell_quoted, threads_for
from pgtop_tune.bench.commit_log import ATTEMPT, CommitLog, CountingClients
from pgtop_tune.bench.groups import GroupLog, GroupOrder, PgbenchGroup, wall_ms
from pgtop_tune.bench.locate import Pgbench
from pgtop_tune.bench.log_seconds import LogLayout
from pgtop_tune.bench.outage_run import OutageRun
from pgtop_tune.bench.phases import steps_of
from pgtop_tune.bench.places import LoadPlace, Running, RunOrder, unused_name
from pgtop_tune.bench.ports import LoadEndpoint, with_settings
from pgtop_tune.bench.profiles import Profile, read_script
from pgtop_tune.bench.run import PgbenchRun
from pgtop_tune.bench.transaction_log import TransactionLog
from pgtop_tune.model.bench import BenchRun, ClientGroup, LoadSpec, PathProcess, RunState, ScriptChoice


def planned_argv(
    spec: LoadSpec,
    profile: Profile,
    pgbench: Pgbench,
    endpoint: LoadEndpoint,
    load_place: LoadPlace,
    directory: Path,
    sampling_rate: float | None = None,
) -> list[str]:
    """Return the exact command line of a run, with paths as they are in that place.

    Args:
        directory: Directory of the run, on this machine.
        sampling_rate: As of `run_argv`.

    Raises:
        LoadProblem: A spec pgbench would refuse.
    """
    there = load_place.scripts(scripts_of(spec, profile), directory)
    choices = tuple(ScriptChoice(str(script.file), script.weight) for script in there)
    return run_argv(
        replace(spec, scripts=choices), profile, pgbench, endpoint, load_place.directory(directory), sampling_rate
    )


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
        sampling_rate: Of all groups, as of `run_argv`: levels with other rates are one run.
    """

    attempt_variable = ""

    def __init__(
        self,
        spec: LoadSpec,
        profile: Profile,
        generators: Sequence[Generator],
        endpoint: LoadEndpoint,
        directory: Path,
        sampling_rate: float | None = None,
    ) -> None:
        self._sampling_rate = sampling_rate
        self._spec = replace(spec, through_outage=False)
        self._profile = profile
        self._generators = generators
        self._endpoint = endpoint
        self._directory = directory
        self._scripts = scripts_of(spec, profile)

    async def __call__(self, order: GroupOrder) -> PgbenchGroup:
        generator = self._generators[order.generator]
        spec = replace(self._spec_of(order), clients=order.level.clients, rate_per_s=order.level.rate_per_s)
        spec = replace(spec, threads=threads_for(spec, generator.pgbench.cpus))
        there = self._directory if order.number == 1 else unused_name(self._directory.parent)
        argv = planned_argv(
            spec, self._profile, generator.pgbench, self._endpoint, generator.load_place, there, self._sampling_rate
        )
        run_order = RunOrder(
            argv=tuple(argv),
            pgbench=generator.pgbench,
            endpoint=hasty(self._endpoint) if order.again else self._endpoint,
            directory=there,
            scripts=self._scripts,
            attempts=order.again,
            waits=order.waits,
            attempt_variable=self.attempt_variable if order.again else "",
        )
        spawned_ms = wall_ms()
        running = await generator.load_place.start(run_order)
        facts = group_facts(order, spec, run_order, running, generator.load_place.name)
        return PgbenchGroup(order, facts, running, self._log(running.directory, spec), spawned_ms)

    def _spec_of(self, order: GroupOrder) -> LoadSpec:
        """Return the load of a group, but for its clients and rate."""
        return replace(
            self._spec,
            duration_s=self._spec.duration_s if order.bounded else None,
            seed=None if self._spec.seed is None else self._spec.seed + order.number - 1,
        )

    def _log(self, directory: Path, spec: LoadSpec) -> GroupLog:
        layout = LogLayout(lag=spec.rate_per_s is not None, scripts=max(len(self._scripts), 1))
        return TransactionLog(directory, LOG_NAME, threads_for(spec), layout=layout)


class CountingStarter(GroupStarter):
    """Starts the counting clients of a load, which are a pgbench of their own."""

    attempt_variable = ATTEMPT

    def __init__(
        self, counting: CountingClients, generator: Generator, endpoint: LoadEndpoint, directory: Path
    ) -> None:
        # Nothing but the variables of its script is taken from a profile.
        profile, endpoint = Profile("counting", "", ""), with_settings(endpoint, counting.settings)
        super().__init__(counting.spec(1, again=False), profile, (generator,), endpoint, directory)
        self._counting = counting

    def _spec_of(self, order: GroupOrder) -> LoadSpec:
        return self._counting.spec(order.number, again=order.again)

    def _log(self, directory: Path, spec: LoadSpec) -> GroupLog:
        return CommitLog(directory, LOG_NAME)


def hasty(endpoint: LoadEndpoint) -> LoadEndpoint:
    """Return the endpoint with the shortest patience of libpq, for attempts: a silent address holds up the next one."""
    return replace(endpoint, env={"PGCONNECT_TIMEOUT": "2", **endpoint.env})


def group_facts(order: GroupOrder, spec: LoadSpec, run_order: RunOrder, running: Running, machine: str) -> ClientGroup:
    """Return the facts of a group that was started."""
    return ClientGroup(
        number=order.number,
        clients=spec.clients,
        rate_per_s=spec.rate_per_s,
        threads=threads_for(spec),
        started_ms=order.started_ms,
        command=without_secrets(shell_quoted([without_secrets(word) for word in run_order.argv])),
        pid=None if order.again else running.pid,
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
    rates = [step.level.rate_per_s for step in steps] or [level.rate_per_s]
    sampling_rate = min(map(profile.sampling_rate, rates))
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
        sampling_rate=sampling_rate,
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
    start_group = GroupStarter(spec, profile, generators, endpoint, directory, sampling_rate)
    run: PgbenchRun
    if spec.through_outage:
        start_counting = None
        if counting is not None:
            start_counting = CountingStarter(counting, generators[0], endpoint, unused_name(directory.parent))
        run = OutageRun(facts, start_group, start_counting)
    else:
        run = PgbenchRun(facts, start_group, len(generators), steps)
    await run.begin()
    return run
