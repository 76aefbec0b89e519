"""A plan as its file has it, and as it runs on one server: values resolved, cells in their order."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

FIGURES: Final[tuple[tuple[str, bool], ...]] = (
    ("tps", True),
    ("latency_ms", False),
    ("p99_ms", False),
    ("connect_ms", False),
    ("failed", False),
)
"""What an objective or a constraint may be about, and whether more of it is better."""
OWN_DATABASE: Final = "own"
CURRENT_DATABASE: Final = "current"


class Configuration(Struct, frozen=True, kw_only=True):
    """A change set of a plan.

    Attributes:
        parameters: (name, value) of the server; values may be relative: "25% of RAM", "advised".
        settings: The same of the machine.
    """

    name: str
    parameters: tuple[tuple[str, str], ...] = ()
    settings: tuple[tuple[str, str], ...] = ()


class PlanEndpoint(Struct, frozen=True):
    """Where a load goes.

    Attributes:
        address: HOST:PORT/DATABASE or a URI; "" is the server itself.
    """

    name: str
    address: str = ""


class Constraint(Struct, frozen=True):
    """A figure that must not get past a limit.

    Attributes:
        figure: Of `FIGURES`.
        most: Whether the limit is an upper one.
    """

    figure: str
    limit: float
    most: bool = True


class Limits(Struct, frozen=True):
    """What an experiment may cost; None is no limit."""

    time_s: float | None = None
    disk_bytes: float | None = None


class ExperimentPlan(Struct, frozen=True, kw_only=True):
    """The file.

    Attributes:
        configurations: The baseline is one of them.
        page_sizes: "4kB", "2MB", "1GB"; each is a dimension that takes a restart. Empty leaves them alone.
        scales: pgbench's, as typed: "1000", "75% of shared_buffers".
        clients: As typed: "16", "4 per core".
        threads: pgbench's -j; 0 is one per core.
        protocol: pgbench's -M; "" is the profile's own.
        seed: Of the order; None makes one of the file's text.
        time_s: Length of a run.
        housekeeping: Before each run.
        init_steps: pgbench's -I.
        data_per_configuration: Whether each configuration makes the data set anew, and its steps are results.
        database: "own" makes and drops one; "current" is the one of the connection.
        objective: Of `FIGURES`.
        text: Of the file, for the hash, the seed and lines.
        file: Its name.
    """

    name: str
    title: str = ""
    configurations: tuple[Configuration, ...] = ()
    baseline: str = ""
    page_sizes: tuple[str, ...] = ()
    scales: tuple[str, ...] = ("1",)
    endpoints: tuple[PlanEndpoint, ...] = ()
    profiles: tuple[str, ...] = ("tpcb-like",)
    clients: tuple[str, ...] = ("1",)
    threads: int = 0
    protocol: str = ""
    repeats: int = 1
    seed: int | None = None
    time_s: float = 60.0
    warm_up_s: float = 0.0
    housekeeping: tuple[str, ...] = ()
    init_steps: str = "dtgvp"
    data_per_configuration: bool = False
    database: str = OWN_DATABASE
    limits: Limits = Limits()
    objective: str = "tps"
    constraints: tuple[Constraint, ...] = ()
    text: str = ""
    file: str = "plan"


class Arm(Struct, frozen=True, kw_only=True):
    """A configuration with a page size, resolved for one server.

    Attributes:
        name: As tables have it.
        configuration, page_size: What it is made of; page_size is "" where the plan has none.
        parameters, settings: (name, value), absolute.
        restart: Whether the server has to be restarted for it.
        impossible: Why it cannot be made here; its cells are results with this reason. "" where it can.
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
        """Whether anything is set."""
        return bool(self.parameters or self.settings)


class Cell(Struct, frozen=True, kw_only=True):
    """One run.

    Attributes:
        number: From 1, in the order of running.
        repeat: From 1.
        impossible: Why it cannot run; "" where it can.
    """

    number: int
    arm: str
    scale: int
    endpoint: str
    profile: str
    clients: int
    repeat: int
    impossible: str = ""

    @property
    def words(self) -> str:
        """In one line."""
        parts = (self.arm, f"scale {self.scale}", self.endpoint, self.profile, f"{self.clients} clients")
        return ", ".join((*parts, f"repeat {self.repeat}"))


class Stage(Struct, frozen=True, kw_only=True):
    """Cells for which the server stays as it is.

    Attributes:
        number: From 1, in the order of running.
        make_data: Whether the data set is made anew in it.
    """

    number: int
    arm: str
    scale: int
    make_data: bool
    cells: tuple[Cell, ...]


class BoundPlan(Struct, frozen=True, kw_only=True):
    """A plan as it runs on one server: everything that decides it.

    Attributes:
        server: "PostgreSQL 18.0, system 7…": another server is another experiment.
        seed: Of the order.
        scripts: (profile, what its scripts are: hashes or the builtin's name).
        unsafe: Whether values that are not safe were allowed, but for those that run code.
        confirmed: Names of parameters whose values were allowed to run code.
        stages: In order.
    """

    name: str
    title: str
    server: str
    seed: int
    arms: tuple[Arm, ...]
    baseline: str
    endpoints: tuple[PlanEndpoint, ...]
    scripts: tuple[tuple[str, str], ...]
    threads: int
    protocol: str
    repeats: int
    time_s: int
    warm_up_s: int
    housekeeping: tuple[str, ...]
    init_steps: str
    data_per_configuration: bool
    database: str
    limits: Limits
    objective: str
    constraints: tuple[Constraint, ...]
    stages: tuple[Stage, ...]
    unsafe: bool = False
    confirmed: tuple[str, ...] = ()

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All of them, in order."""
        return tuple(cell for stage in self.stages for cell in stage.cells)

    def arm(self, name: str) -> Arm:
        """The arm of that name."""
        return next(arm for arm in self.arms if arm.name == name)
