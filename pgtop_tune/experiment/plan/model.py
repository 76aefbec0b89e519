"""A plan as its file has it, and as it runs on one server: values resolved, cells in their order."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.units import about, counted, duration, memory
from pgtop_tune.bench.datasets.pgbench_tables import LARGEST_SCALE, PgbenchShape, estimated_bytes

# Values that are relative to the machine: "25% of RAM", "advised", "4 per core", "75% of shared_buffers". Pure.

ADVISED: Final = "advised"
_SHARE: Final = re.compile(r"(\d{1,4}(?:\.\d+)?)\s*%\s+of\s+(RAM|shared_buffers)", re.IGNORECASE)
_PER_CORE: Final = re.compile(r"(\d{1,4}(?:\.\d+)?)\s+per\s+core", re.IGNORECASE)
_BYTES_PER_SCALE: Final = estimated_bytes(1000, PgbenchShape()) / 1000
MOST_CLIENTS: Final = 20_000
CLIENTS_AS: Final = '16 or "4 per core"'
SCALES_AS: Final = '1000, "75% of shared_buffers" or "50% of RAM"'


class PlanFacts(Struct, frozen=True, kw_only=True):
    """Facts that relative values are computed from; None where one is not known.

    Attributes:
        ram_bytes: Memory the server may use.
        cores: Processors it may use.
        shared_buffers_bytes: The value of the running server.
        advised: Value by parameter and by setting of the machine.
    """

    ram_bytes: int | None = None
    cores: int | None = None
    shared_buffers_bytes: int | None = None
    advised: Mapping[str, str] = {}


class NotToTell(UsageProblem):
    """A relative value whose base is not known here: the arm cannot be made, the plan is right."""


def value_of(name: str, text: str, facts: PlanFacts) -> str:
    """Return the value that a parameter or setting gets.

    Args:
        name: The name of the parameter or setting.
        text: Its value in the plan.
        facts: The facts of the machine.

    Raises:
        NotToTell: Nothing is advised for it here, or the memory is not known.
    """
    if text.strip().lower() == ADVISED:
        if name not in facts.advised:
            raise NotToTell(f"{name}: no value is advised on this server", "give a value")
        return facts.advised[name]
    share = _SHARE.fullmatch(text.strip())
    return text if share is None else memory(_base(share, facts) * float(share[1]) / 100)


def scale_of(text: str, facts: PlanFacts) -> int:
    """Return pgbench's scale; a share of memory is the scale whose tables are as large.

    Raises:
        UsageProblem: Neither a scale nor such a share, or its base is not known.
    """
    share = _SHARE.fullmatch(text.strip())
    if share is not None:
        return max(1, round(_base(share, facts) * float(share[1]) / 100 / _BYTES_PER_SCALE))
    if not text.strip().isdecimal() or not 1 <= int(text) <= LARGEST_SCALE:
        raise UsageProblem(f"{text!r} is not a scale", f"as {SCALES_AS}")
    return int(text)


def clients_of(text: str, facts: PlanFacts) -> int:
    """Return number of clients.

    Raises:
        UsageProblem: No number, or the cores are not known.
    """
    per_core = _PER_CORE.fullmatch(text.strip())
    if per_core is not None:
        if facts.cores is None:
            raise NotToTell("the number of cores of the server's machine is unknown", "give a number of clients")
        return max(1, round(float(per_core[1]) * facts.cores))
    if not text.strip().isdecimal() or not 1 <= int(text) <= MOST_CLIENTS:
        raise UsageProblem(f"{text!r} is not a number of clients", f"as {CLIENTS_AS}")
    return int(text)


def _base(share: re.Match[str], facts: PlanFacts) -> float:
    of_ram = share[2].lower() == "ram"
    base = facts.ram_bytes if of_ram else facts.shared_buffers_bytes
    if base is None:
        raise NotToTell(f"{'the memory of the server' if of_ram else 'shared_buffers'} is unknown", "give a size")
    return float(base)


def scale_words(scale: int) -> str:
    """Return a scale with its size on the disk."""
    return f"scale {scale} ({about(_BYTES_PER_SCALE * scale)})"


# What an experiment takes: time and disk, with the arithmetic. Pure.
#
# Known figures: pgbench makes a unit of scale in about a second (1037 s for scale 1000 on a disk of 90 MB/s), the bytes
# are those of `bench init`, a restart takes some 10 s, what surrounds a run (vacuum, checkpoint, quiet) some 12 s.

MAKE_S_PER_SCALE: Final = 1.0
RESTART_S: Final = 10.0
AROUND_RUN_S: Final = 12.0
AROUND_BARE_RUN_S: Final = 3.0
RELOAD_S: Final = 1.0
_SPARE: Final = 1.1
JUDGED_S: Final = 30
"""The shortest run that is judged; a shorter one is only shown."""
ONCE: Final = "each cell runs once, so machine drift looks like an effect; --repeats 4 separates the two"


class Estimate(Struct, frozen=True, kw_only=True):
    """The cost of an experiment: time and disk.

    Attributes:
        runs: Cells that can run.
        restarts: The restarts of the server.
        run_s, make_s, restart_s: Seconds by kind; run_s includes warm-up and what surrounds a run.
        disk_bytes: At the most.
    """

    runs: int
    restarts: int
    run_s: float
    make_s: float
    restart_s: float
    disk_bytes: int

    @property
    def seconds(self) -> float:
        """Return the sum."""
        return self.run_s + self.make_s + self.restart_s

    @property
    def words(self) -> str:
        """Return the sum with its arithmetic."""
        return (
            f"{duration(self.seconds)}: {counted(self.runs, 'run')} {duration(self.run_s)}, "
            f"data sets {duration(self.make_s)}, "
            f"{counted(self.restarts, 'restart')} and reloads {duration(self.restart_s)}"
        )


def estimate(plan: BoundPlan, max_wal_bytes: int, stages: tuple[Stage, ...] | None = None) -> Estimate:
    """Return the cost of a plan.

    Args:
        plan: The plan.
        max_wal_bytes: The most that WAL may take beside the data.
        stages: The stages that are left; None is all.
    """
    stages_left = plan.stages if stages is None else stages
    arms = {arm.name: arm for arm in plan.arms}
    possible = [stage for stage in stages_left if not arms[stage.arm].impossible]
    runs = sum(not cell.impossible for stage in possible for cell in stage.cells)
    around_s = AROUND_RUN_S if plan.housekeeping else AROUND_BARE_RUN_S
    restarts = 2 * sum(arms[stage.arm].restart for stage in possible)
    reloads = 2 * sum(arms[stage.arm].changes and not arms[stage.arm].restart for stage in possible)
    largest = max((stage.scale for stage in stages_left), default=0)
    made_bytes = round(_BYTES_PER_SCALE * largest)
    return Estimate(
        runs=runs,
        restarts=restarts,
        run_s=runs * (plan.time_s + plan.warm_up_s + around_s),
        make_s=sum(stage.scale * MAKE_S_PER_SCALE for stage in possible if stage.make_data),
        restart_s=restarts * RESTART_S + reloads * RELOAD_S,
        disk_bytes=round((made_bytes + min(made_bytes, max_wal_bytes)) * _SPARE),
    )


def refusals(cost: Estimate, limits: Limits, free_bytes: int | None) -> tuple[str, ...]:
    """Return why a plan does not fit its limits, with the arithmetic.

    Args:
        cost: The cost of the plan.
        limits: The limits of the plan.
        free_bytes: The free space on the disk of the data; None where it is not known.
    """
    reasons = []
    if limits.time_s is not None and cost.seconds > limits.time_s:
        reasons.append(f"the plan takes {cost.words}; the limit is {duration(limits.time_s)}")
    if limits.disk_bytes is not None and cost.disk_bytes > limits.disk_bytes:
        reasons.append(f"the plan takes {about(cost.disk_bytes)} of disk; the limit is {about(limits.disk_bytes)}")
    if free_bytes is not None and cost.disk_bytes > free_bytes:
        reasons.append(f"the plan takes {about(cost.disk_bytes)} of disk, but only {about(free_bytes)} are free")
    return tuple(reasons)


FIGURES: Final[tuple[tuple[str, bool], ...]] = (
    ("tps", True),
    ("latency_ms", False),
    ("p99_ms", False),
    ("connect_ms", False),
    ("failed", False),
)
"""Figures of objectives and constraints, and whether more is better."""
OWN_DATABASE: Final = "own"
CURRENT_DATABASE: Final = "current"
THROWAWAY_SERVERS: Final = "throwaway"
CURRENT_SERVER: Final = "current"


class OutageAction(Struct, frozen=True):
    """An outage that a plan can cause.

    Attributes:
        name: The name in plans.
        description: The action in words.
        with_standby: Whether it takes a standby.
        of_pooler: Whether the pooler at the endpoint fails, and not the server.
    """

    name: str
    description: str
    with_standby: bool = False
    of_pooler: bool = False


OUTAGE_ACTIONS: Final = (
    OutageAction("restart", "the server is restarted (fast)"),
    OutageAction("kill", "the postmaster is killed (SIGKILL), and the server is started again"),
    OutageAction("promote", "the primary is stopped (fast), and its standby promoted", with_standby=True),
    OutageAction("restart pooler", "the pooler at the endpoint is restarted", of_pooler=True),
)


class PlanOutage(Struct, frozen=True, kw_only=True):
    """An outage in the middle of a run.

    Attributes:
        action: A name of `OUTAGE_ACTIONS`.
        after_s: Time from the start of the load.
    """

    name: str
    action: str
    after_s: float = 60.0

    @property
    def row(self) -> OutageAction:
        """Return the row of its action."""
        return next(row for row in OUTAGE_ACTIONS if row.name == self.action)


class PlanConfiguration(Struct, frozen=True, kw_only=True):
    """A change set of a plan.

    Attributes:
        parameters: (name, value) of the server; values may be relative: "25% of RAM", "advised".
        settings: The same of the machine.
    """

    name: str
    parameters: tuple[tuple[str, str], ...] = ()
    settings: tuple[tuple[str, str], ...] = ()


class PlanEndpoint(Struct, frozen=True):
    """The address of a load.

    Attributes:
        address: HOST:PORT/DATABASE or a URI; "" is the server itself.
    """

    name: str
    address: str = ""


class PlanConstraint(Struct, frozen=True):
    """A figure that must not get past a limit.

    Attributes:
        figure: A name of `FIGURES`.
        most: Whether the limit is an upper one.
    """

    figure: str
    limit: float
    most: bool = True


class Limits(Struct, frozen=True):
    """Limits on the cost of an experiment; None is no limit."""

    time_s: float | None = None
    disk_bytes: float | None = None


class PlanChoices(Struct, frozen=True, kw_only=True):
    """Choices of a plan that are the same on every server.

    Attributes:
        threads: pgbench's -j; 0 is one per core.
        protocol: pgbench's -M; "" is the profile's own.
        housekeeping: The steps before each run.
        init_steps: pgbench's -I.
        data_per_configuration: Whether each configuration makes the data set anew, and its steps are results.
        database: "own" makes and drops one; "current" is the one of the connection.
        servers: "throwaway" starts servers for the plan; "current" is the one of the connection.
        outages: Outages, of which each run has one; empty for runs without.
        objective: A name of `FIGURES`.
    """

    name: str
    title: str = ""
    servers: str = CURRENT_SERVER
    outages: tuple[PlanOutage, ...] = ()
    endpoints: tuple[PlanEndpoint, ...] = ()
    threads: int = 0
    protocol: str = ""
    repeats: int = 1
    housekeeping: tuple[str, ...] = ()
    init_steps: str = "dtgvp"
    data_per_configuration: bool = False
    database: str = OWN_DATABASE
    limits: Limits = Limits()
    objective: str = "tps"
    constraints: tuple[PlanConstraint, ...] = ()

    @property
    def with_standby(self) -> bool:
        """Return whether an outage takes a standby."""
        return any(outage.row.with_standby for outage in self.outages)

    @property
    def failing_poolers(self) -> tuple[str, ...]:
        """Return the names of the endpoints whose pooler fails."""
        fails = any(outage.row.of_pooler for outage in self.outages)
        return tuple(endpoint.name for endpoint in self.endpoints if fails and endpoint.address)

    @property
    def server_fails(self) -> bool:
        """Return whether an outage is one of the server."""
        return any(not outage.row.of_pooler for outage in self.outages)


class ExperimentPlan(PlanChoices, frozen=True, kw_only=True):
    """The file.

    Attributes:
        configurations: The baseline is one of them.
        page_sizes: "4kB", "2MB", "1GB"; each is a dimension that takes a restart. Empty leaves them alone.
        scales: pgbench's, as typed: "1000", "75% of shared_buffers".
        clients: The clients as typed: "16", "4 per core".
        seed: The seed of the order; None makes one of the file's text.
        time_s: Length of a run.
        text: The text of the file, for the hash, the seed and lines.
        file: Its name.
    """

    configurations: tuple[PlanConfiguration, ...] = ()
    baseline: str = ""
    page_sizes: tuple[str, ...] = ()
    scales: tuple[str, ...] = ("1",)
    profiles: tuple[str, ...] = ("tpcb-like",)
    clients: tuple[str, ...] = ("1",)
    seed: int | None = None
    time_s: float = 60.0
    warm_up_s: float = 0.0
    text: str = ""
    file: str = "plan"


class PlanArm(Struct, frozen=True, kw_only=True):
    """A configuration with a page size, resolved for one server.

    Attributes:
        name: The name in tables.
        configuration, page_size: The parts of the arm; page_size is "" where the plan has none.
        parameters, settings: (name, value), absolute.
        restart: Whether the server has to be restarted for it.
        impossible: The reason why it cannot be made here; its cells are results with this reason. "" where it can.
    """

    name: str
    configuration: str
    page_size: str = ""
    parameters: tuple[tuple[str, str], ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    restart: bool = False
    impossible: str = ""

    @property
    def changes(self) -> bool:
        """Return whether the arm sets anything."""
        return bool(self.parameters or self.settings)


class Cell(Struct, frozen=True, kw_only=True):
    """A run of a plan.

    Attributes:
        number: The number from 1, in the order of running.
        repeat: The number of the repeat, from 1.
        outage: Name of the outage during the run; "" for none.
        impossible: The reason why it cannot run; "" where it can.
    """

    number: int
    arm: str
    scale: int
    endpoint: str
    profile: str
    clients: int
    repeat: int
    outage: str = ""
    impossible: str = ""

    @property
    def words(self) -> str:
        """Return the cell in one line."""
        parts = [self.arm, f"scale {self.scale}", self.endpoint, self.profile, f"{self.clients} clients"]
        parts += [self.outage] if self.outage else []
        return ", ".join((*parts, f"repeat {self.repeat}"))


class Stage(Struct, frozen=True, kw_only=True):
    """Cells for which the server stays as it is.

    Attributes:
        number: The number from 1, in the order of running.
        make_data: Whether the data set is made anew in it.
    """

    number: int
    arm: str
    scale: int
    make_data: bool
    cells: tuple[Cell, ...]


class BoundPlan(PlanChoices, frozen=True, kw_only=True):
    """A plan as it runs on one server: everything that decides it.

    Attributes:
        server: "PostgreSQL 18.0, system 7…": another server is another experiment.
        seed: The seed of the order.
        scripts: (profile, what its scripts are: hashes or the builtin's name).
        unsafe: Whether values that are not safe were allowed, but for those that run code.
        confirmed: Names of parameters whose values were allowed to run code.
        allowed_outages: HOST:PORT of the operator's servers that may fail.
        stages: The stages in their order.
    """

    server: str
    seed: int
    arms: tuple[PlanArm, ...]
    baseline: str
    scripts: tuple[tuple[str, str], ...]
    time_s: int
    warm_up_s: int
    stages: tuple[Stage, ...]
    unsafe: bool = False
    confirmed: tuple[str, ...] = ()
    allowed_outages: tuple[str, ...] = ()

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Return all of them, in order."""
        return tuple(cell for stage in self.stages for cell in stage.cells)

    def outage(self, cell: Cell) -> PlanOutage | None:
        """Return the outage of a cell; None where it has none."""
        return next((outage for outage in self.outages if outage.name == cell.outage), None)

    def arm(self, name: str) -> PlanArm:
        """Return the arm of that name."""
        return next(arm for arm in self.arms if arm.name == name)
