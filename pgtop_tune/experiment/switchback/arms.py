"""The two arms in force by turns: each switch is a change set pending confirmation, so that a kill reverts it."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from enum import StrEnum
from statistics import fmean
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import HostProblem, PgtopError, ServerProblem, UsageProblem
from pgtop_tune.changes.change_sets import ChangeSets
from pgtop_tune.changes.model.change import HostChange, ParameterChange, Proof, Terms, WantedParameter, WantedSetting
from pgtop_tune.changes.model.change_set import ChangeSet
from pgtop_tune.changes.ports import ChangeControl, MachineControl, SetControl
from pgtop_tune.compare.sides.material import Look
from pgtop_tune.experiment.attribution import Surroundings
from pgtop_tune.metrics.load import Quantile
from pgtop_tune.metrics.percentiles import Merged
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.machine import SystemSetting
from pgtop_tune.model.parameter_values import parse, parse_bool, show, without_blanks
from pgtop_tune.model.postgres import Parameter

# The design of a switchback and its raw material: arms, lengths, the coin, and blocks with what was measured. Pure.

SETTLE_S: Final = 5.0
LONGEST_SETTLE_S: Final = 40.0
_LEAST_MEASURED_S: Final = 10.0
BY_CHECKPOINTS: Final = frozenset(
    {
        "max_wal_size",
        "min_wal_size",
        "checkpoint_timeout",
        "checkpoint_completion_target",
        "checkpoint_flush_after",
        "full_page_writes",
        "wal_compression",
        "bgwriter_delay",
        "bgwriter_flush_after",
        "bgwriter_lru_maxpages",
        "bgwriter_lru_multiplier",
    }
)
"""Parameters that work through checkpoints: a full page is written once per page and checkpoint, so that a window that
is not a whole cycle shows another share of it in each block."""
CYCLES_PER_PAIR: Final = 3.5
"""One for each arm, and one to settle at each change of the arm, of which a pair has one and a half on average."""


class Arm(StrEnum):
    """The two values."""

    A = "A"
    B = "B"

    @property
    def other(self) -> Arm:
        """Return the one that is not this one."""
        return Arm.B if self is Arm.A else Arm.A


class Lengths(Struct, frozen=True):
    """Lengths of a block, in seconds.

    Attributes:
        settle_s: Left out after the arm changed.
        measured_s: The seconds that count.
    """

    settle_s: float
    measured_s: float

    @property
    def pair_s(self) -> float:
        """Return the length of a pair: the arm changes within it, and in half of the pairs before it."""
        return 2.0 * self.measured_s + 1.5 * self.settle_s


def lengths(settle_s: float = SETTLE_S) -> Lengths:
    """Return blocks twice as long as they settle, ten seconds at least: short blocks reach a verdict sooner."""
    return Lengths(settle_s, max(_LEAST_MEASURED_S, 2.0 * settle_s))


QUICK: Final = Lengths(settle_s=2.0, measured_s=4.0)
"""Lengths of blocks with an effect that was seen to be in force at once."""
QUICK_READINGS: Final = Lengths(settle_s=QUICK.settle_s, measured_s=6.0)
"""The same where each block has to hold several readings of pg_stat_statements, which are two seconds apart."""


def longer(now: Lengths) -> Lengths | None:
    """Return the lengths after an effect that builds up more slowly; None where no longer blocks are made."""
    settle_s = max(2.0 * now.settle_s, SETTLE_S)
    return lengths(settle_s) if settle_s <= LONGEST_SETTLE_S else None


def orders(seed: int) -> Iterator[tuple[Arm, Arm]]:
    """Yield the order of the arms in each pair: a coin decides."""
    coin = random.Random(seed)
    while True:
        first = Arm.A if coin.random() < 0.5 else Arm.B
        yield first, first.other


class ArmBlock(Struct, frozen=True):
    """Measurements of one block.

    Attributes:
        began_ms: Wall clock, milliseconds since the epoch.
        began_s: On the session's clock.
        seconds: Measured.
        settled_s: Left out before.
        tps: Second by second, oldest first.
        settling: The same of the time left out.
        sums: Part and whole of each figure of `compare.sides.figures`.
        latencies: The latencies of its transactions; None without a load of ours.
        waits: Milliseconds per transaction by class of wait.
        checkpoint: Share of the time in which a checkpoint wrote; None where that is not known.
        foreign: CPU time of other programs, per cent of all CPUs, stolen time included; None where not known.
        steal: CPU time that the hypervisor gave to others, per cent of all CPUs.
        foreign_io: Read and written by other programs, bytes per second; None where not known.
        own_io: The same of server, load and this program.
        cpus: The CPUs of the machine; 0 where not known.
        generator: The reason why the load generator was the limit; "" where it was not.
        spoiled: The reason why the block does not count; "" where it does.
        statements: Calls and milliseconds by id of pg_stat_statements; empty where no two readings lie within.
        statements_ms: Execution time of all statements in as long; None where it is not known.
        sessions: Mean active sessions; None without a look.
        clients: Mean sessions of clients, active or not, without ours; None without a look.
        whole_cycle: It is a checkpoint cycle: how much of it is under a checkpoint is a part of what is measured.
    """

    arm: Arm
    began_ms: int
    began_s: float
    seconds: float
    settled_s: float
    tps: tuple[float, ...]
    sums: Mapping[str, tuple[float, float]]
    settling: tuple[float, ...] = ()
    latencies: Merged | None = None
    waits: Mapping[str, float] = {}
    checkpoint: float | None = None
    foreign: float | None = None
    steal: float | None = None
    foreign_io: float | None = None
    own_io: float | None = None
    cpus: int = 0
    generator: str = ""
    spoiled: str = ""
    statements: Look = {}
    statements_ms: float | None = None
    sessions: float | None = None
    clients: float | None = None
    whole_cycle: bool = False

    @property
    def mean_tps(self) -> float:
        """Return transactions per second; 0 without any."""
        return fmean(self.tps) if self.tps else 0.0

    @property
    def halves(self) -> tuple[float, float]:
        """Return mean of the first and of the second half of its seconds."""
        half = len(self.tps) // 2
        return (fmean(self.tps[:half]), fmean(self.tps[-half:])) if half else (0.0, 0.0)

    def figure(self, name: str) -> float | None:
        """Return part by whole; None without a whole."""
        part, total = self.sums.get(name, (0.0, 0.0))
        return part / total if total > 0 else None

    @property
    def own_cpu(self) -> float | None:
        """Return CPU time of server, load and this program, per cent of all CPUs; None where not known."""
        busy = self.figure("cpu")
        return None if busy is None or self.foreign is None else max(busy - self.foreign, 0.0)

    @property
    def surroundings(self) -> Surroundings:
        """Return the use of the machine by other programs beside the block."""
        return Surroundings(
            foreign=self.foreign,
            steal=self.steal,
            own_cpu=self.own_cpu,
            cpus=self.cpus,
            foreign_io=self.foreign_io,
            own_io=self.own_io,
        )

    @property
    def own_cpu_ms(self) -> float | None:
        """Return the same per transaction, in ms; of all programs where others cannot be told apart."""
        own_cpu, tps = self.own_cpu, self.mean_tps
        if own_cpu is None or not tps or not self.cpus:
            return self.figure("cpu_per_tx")
        return own_cpu / 100.0 * self.cpus * 1000.0 / tps

    def quantile(self, quantile: Quantile) -> float | None:
        """Return milliseconds; None of too few transactions."""
        return None if self.latencies is None else quantile.of(self.latencies)


class BlockPair(Struct, frozen=True):
    """A block of each arm, one behind the other.

    Attributes:
        number: The number of the pair, from 1.
        first: The arm that came first.
        superseded: It was measured with less time to settle than the effect takes.
    """

    number: int
    first: Arm
    a: ArmBlock
    b: ArmBlock
    superseded: bool = False

    @property
    def blocks(self) -> tuple[ArmBlock, ArmBlock]:
        """Return the blocks in the order of time."""
        return (self.a, self.b) if self.first is Arm.A else (self.b, self.a)

    @property
    def spoiled(self) -> str:
        """Return why the pair does not count; "" where it does."""
        for block in self.blocks:
            if block.spoiled:
                return block.spoiled
            if not block.tps:
                return f"no second of {block.arm} was measured"
            if block.mean_tps <= 0.0:
                return f"no transaction ended in {block.arm}"
        return ""

    @property
    def seconds(self) -> float:
        """Return the length with the time to settle."""
        return sum(block.seconds + block.settled_s for block in self.blocks)


# The machine's settings among the rivals of an experiment: what an arm sets, and what another session changed.


class RivalSettings:
    """Settings of the operating system, by turns with two values.

    Args:
        control: The door to the machine.
        rivals: Resolved.
    """

    def __init__(self, control: MachineControl, rivals: Sequence[Rival]) -> None:
        self.control: Final = control
        self.rivals: Final = tuple(rivals)
        self._expected: dict[str, str] = {}

    async def wanted(self, arm: Arm) -> tuple[WantedSetting, ...]:
        """Return the settings of the arm whose values in force differ."""
        self._expected = await kernel_values(self.control, [rival.name for rival in self.rivals])
        pairs = ((rival.name, rival.value(arm)) for rival in self.rivals)
        return tuple(WantedSetting(name, value) for name, value in pairs if self._expected[name] != value)

    def made(self, changes: Sequence[HostChange]) -> None:
        """Take what was changed."""
        self._expected |= {change.name: change.shown_after for change in changes}

    async def foreign_change(self) -> str:
        """Return which setting another program changed since; "" for none."""
        for name, value in (await kernel_values(self.control, self._expected)).items():
            if value != self._expected.get(name, value):
                return f"{name} was changed to {value} by someone else"
        return ""


async def resolved_settings(control: MachineControl, rivals: Sequence[Rival]) -> tuple[Rival, ...]:
    """Return the rivals with the current value where A is "current".

    Raises:
        UsageProblem: A setting that this machine does not have, or the same value twice.
        HostProblem: The server runs on another machine, or this process may not change a setting.
    """
    settings = by_name(await control.settings()) if rivals else {}
    resolved_rivals = []
    for rival in rivals:
        setting = settings.get(rival.name)
        if setting is None or isinstance(setting.live, Unavailable):
            raise UsageProblem(
                f"this machine has no setting {rival.name}", "`pgtop-tune parameters --machine` lists the settings"
            )
        if not setting.writable:
            raise HostProblem(f"{setting.path} cannot be written by this process", "run this as root")
        a = setting.live if rival.a.lower() == CURRENT else rival.a
        if a == rival.b:
            raise UsageProblem(f"{rival.name}: A and B are both {rival.b}", "pass two different values")
        resolved_rivals.append(replace(rival, a=a))
    return tuple(resolved_rivals)


async def kernel_values(control: MachineControl, names: Iterable[str]) -> dict[str, str]:
    """Return the kernel's values by name. Raises as `by_name`."""
    settings = by_name(await control.settings())
    return {name: str(settings[name].live) for name in names}


def by_name(settings: Sequence[SystemSetting] | Unavailable) -> Mapping[str, SystemSetting]:
    """Return the settings of the machine.

    Raises:
        HostProblem: They cannot be reached from here.
    """
    if isinstance(settings, Unavailable):
        raise HostProblem(f"the settings of the machine cannot be changed: {settings.detail}", "run this on the server")
    return {setting.name: setting for setting in settings}


CURRENT: Final = "current"
_ATTEMPTS: Final = 5
_AGAIN_S: Final = 2.0
_MARGIN_S: Final = 30.0
"""Time after the end of a block until its change set reverts by itself."""
_RESTARTS: Final = "`pgtop-tune ab --restart` judges it with restarts, on a server that may be restarted"
_NEW_LOAD: Final = "`pgtop-tune ab` judges it with a new load for each block"
_INSTEAD: Final = {"postmaster": _RESTARTS, "backend": _NEW_LOAD, "superuser-backend": _NEW_LOAD}
"""By pg_settings.context."""


class Rival(Struct, frozen=True):
    """A parameter or setting in which the arms differ, and its two values as typed.

    Attributes:
        name: A parameter, a setting of the machine, "endpoint" or "profile".
        a: May be "current".
    """

    name: str
    a: str
    b: str

    def value(self, arm: Arm) -> str:
        return self.a if arm is Arm.A else self.b


def resolved(
    rivals: Sequence[Rival], parameters: Mapping[str, Parameter], reached: Set[str] = frozenset()
) -> tuple[Rival, ...]:
    """Return the rivals with the current value where A is "current"; refuse what a switch cannot judge.

    Args:
        parameters: The server's parameters, by name in lower case.
        reached: Values of pg_settings.context that the blocks reach beyond those that a reload does.

    Raises:
        UsageProblem: A parameter that is not in force in a running load, or the same value twice.
    """
    resolved_rivals = []
    for rival in rivals:
        parameter = parameters[rival.name.lower()]
        refusal = "" if parameter.context in reached else _REFUSED.get(parameter.context)
        if refusal:
            raise UsageProblem(f"{parameter.name} {refusal}", _INSTEAD.get(parameter.context, ""))
        a = parameter.shown if rival.a.lower() == CURRENT else without_blanks(parameter, rival.a)
        b = without_blanks(parameter, rival.b)
        if as_shown(parameter, a) == as_shown(parameter, b):
            raise UsageProblem(f"{parameter.name}: A and B are both {b}", "pass two different values")
        resolved_rivals.append(Rival(parameter.name, a, b))
    return tuple(resolved_rivals)


_REFUSED: Final = {
    "internal": "cannot be changed",
    "postmaster": "takes a restart of the server",
    "backend": "affects new sessions only, but a load keeps its sessions",
    "superuser-backend": "affects new sessions only, but a load keeps its sessions",
}
"""By pg_settings.context."""


def as_shown(parameter: Parameter, value: str) -> str:
    """Return a typed value as SHOW prints it, as far as that can be told without setting it."""
    try:
        if parameter.vartype == "bool":
            return parse_bool(value)
        if parameter.vartype in {"integer", "real"}:
            is_integer = parameter.vartype == "integer"
            return show(parse(value, parameter.unit, integer=is_integer), parameter.unit, integer=is_integer)
    except UsageProblem:
        return value
    return value.lower() if parameter.vartype == "enum" else value


class Arms:
    """The arms by turns in force: it puts an arm into force, and everything back.

    Args:
        sets: Makes and reverts change sets.
        control: The server's parameters, for what is in force.
        rivals: Resolved.
        confirmed: Names that were typed to unlock values that can lose data.
        machine: The machine's settings among the rivals; None where there are none.
        door: Behind which the sets make their half of the server; None is the control.
    """

    def __init__(
        self,
        sets: ChangeSets,
        control: ChangeControl,
        rivals: Sequence[Rival],
        confirmed: frozenset[str],
        machine: RivalSettings | None = None,
        door: SetControl | None = None,
    ) -> None:
        self._sets: Final = sets
        self._control: Final = control
        self._machine: Final = machine
        self._door: Final = door or control
        self._rivals: Final = tuple(rivals)
        self._confirmed: Final = confirmed
        self._names: Final = tuple(rival.name for rival in rivals)
        self._set_id = ""
        self._doors: list[SetControl | MachineControl] = []
        self._expected: dict[str, str] = {}
        self.arm: Arm | None = None

    async def to(self, arm: Arm, stays_s: float) -> bool:
        """Put an arm into force, or prolong it, and return whether anything changed.

        Args:
            arm: Wanted.
            stays_s: The longest time in force; the set reverts a little later by itself.

        Raises:
            PgtopError: The server refused, or is not there.
        """
        if arm is self.arm:
            for door in self._doors if self._set_id else ():
                await door.begin_deadline(self._set_id, stays_s + _MARGIN_S)
            return False
        switching = asyncio.ensure_future(self._switch(arm, stays_s + _MARGIN_S))
        try:
            return await asyncio.shield(switching)
        except asyncio.CancelledError:
            # The server may be at it: what came of it must be known before it is put back.
            await asyncio.wait((switching,))
            raise

    async def _switch(self, arm: Arm, within_s: float) -> bool:
        reverted = await self._revert(f"ab: {arm} follows")
        await self._make(arm, within_s)
        self.arm = arm
        return reverted or bool(self._set_id)

    async def _make(self, arm: Arm, within_s: float) -> tuple[ParameterChange, ...]:
        """Return the changes from the values in force to those of the arm; none where they are equal."""
        now = {parameter.name: parameter for parameter in await self._control.list(self._names)}
        parameters = [
            WantedParameter(rival.name, rival.value(arm))
            for rival in self._rivals
            if as_shown(now[rival.name], rival.value(arm)) != now[rival.name].shown
        ]
        self._expected = {name: parameter.shown for name, parameter in now.items()}
        settings = () if self._machine is None else await self._machine.wanted(arm)
        if not parameters and not settings:
            return ()
        set_id = self._set_id = uuid.uuid4().hex[:12]
        rivals = (*self._rivals, *(() if self._machine is None else self._machine.rivals))
        terms = Terms(
            keep_within_s=within_s,
            reason=f"ab: {arm} is {', '.join(f'{rival.name}={rival.value(arm)}' for rival in rivals)}",
            confirmed=self._confirmed,
            set_id=set_id,
            of_experiment=True,
        )
        changes = await self._sets.apply(ChangeSet(parameters=tuple(parameters), settings=settings), terms)
        self._expected |= {change.name: change.shown_after for change in changes.parameters}
        self._doors = [self._door] if changes.parameters else []
        if self._machine is not None and changes.settings:
            self._machine.made(changes.settings)
            self._doors.append(self._machine.control)
        return changes.parameters

    async def check(self, within_s: float) -> None:
        """Put each arm into force for a moment, so that a refusal, and a value that no session gets, are told before.

        Raises:
            PgtopError: The server refuses a value, or sessions have another one.
        """
        try:
            for arm in Arm:
                changes = await self._make(arm, within_s)
                for proof in await self._control.prove(changes) if changes else ():
                    check_reaches(proof)
                await self._revert("ab: checked")
        finally:
            await self.restore("ab: checked")

    async def foreign_change(self) -> str:
        """Return which parameter another session changed since the arm was put into force; "" for none.

        Raises:
            PgtopError: The server is not there.
        """
        for parameter in await self._control.list(self._names):
            if parameter.shown != self._expected.get(parameter.name, parameter.shown):
                return f"{parameter.name} was changed to {parameter.shown} by someone else"
        return "" if self._machine is None else await self._machine.foreign_change()

    async def restore(self, reason: str) -> str:
        """Put everything back; why that has not worked, "" where it has."""
        problem = ""
        for attempt in range(_ATTEMPTS):
            try:
                await self._revert(reason)
                return ""
            except PgtopError as refused:
                problem = refused.message
            if attempt + 1 < _ATTEMPTS:
                await asyncio.sleep(_AGAIN_S)
        return f"{problem}: `pgtop-tune revert --set {self._set_id}` reverts it"

    async def keep(self, arm: Arm) -> None:
        """Put an arm into force for good.

        Raises:
            PgtopError: The server refused, or is not there.
        """
        await self.to(arm, _MARGIN_S)
        if self._set_id:
            await self._sets.confirm(self._set_id)
            self._set_id = ""

    async def _revert(self, reason: str) -> bool:
        """Revert the set, and return whether there was one; raises the problem of a set that is still in force."""
        set_id, self.arm = self._set_id, None
        if set_id:
            settled = await self._sets.revert(set_id, reason)
            if settled.problem is not None:
                raise settled.problem
            self._set_id = ""
        return bool(set_id)


def check_reaches(proof: Proof) -> None:
    """Raise a ServerProblem where new sessions have another value."""
    if proof.overrides:
        raise ServerProblem(
            f"{proof.name} does not reach the load: {proof.overrides[0]}", proof.advice[0] if proof.advice else ""
        )
