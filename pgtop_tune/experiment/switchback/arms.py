"""The two arms in force by turns: each switch is a change set pending confirmation, so that a kill reverts it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import HostProblem, PgtopError, ServerProblem, UsageProblem
from pgtop_tune.changes.change_sets import ChangeSets
from pgtop_tune.changes.model.change import HostChange, ParameterChange, Proof, Terms, WantedParameter, WantedSetting
from pgtop_tune.changes.model.change_set import ChangeSet
from pgtop_tune.changes.ports import ChangeControl, MachineControl, SetControl
from pgtop_tune.experiment.switchback.blocks import Arm
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.machine import SystemSetting
from pgtop_tune.model.parameter_values import parse, parse_bool, show, without_blanks
from pgtop_tune.model.postgres import Parameter

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
        """What the arm sets on top of what is in force."""
        self._expected = await self._live()
        pairs = ((rival.name, rival.value(arm)) for rival in self.rivals)
        return tuple(WantedSetting(name, value) for name, value in pairs if self._expected[name] != value)

    def made(self, changes: Sequence[HostChange]) -> None:
        """Takes what was changed."""
        self._expected |= {change.name: change.shown_after for change in changes}

    async def foreign_change(self) -> str:
        """Which setting another program changed since; "" for none."""
        for name, value in (await self._live()).items():
            if value != self._expected.get(name, value):
                return f"{name} was changed to {value} by someone else"
        return ""

    async def _live(self) -> dict[str, str]:
        return await live_values(self.control, [rival.name for rival in self.rivals])


async def resolved_settings(control: MachineControl, rivals: Sequence[Rival]) -> tuple[Rival, ...]:
    """The same with A's value where that is the current one.

    Raises:
        UsageProblem: A setting that this machine does not have, or the same value twice.
        HostProblem: The server runs on another machine, or this process may not change a setting.
    """
    found = by_name(await control.settings()) if rivals else {}
    told = []
    for rival in rivals:
        setting = found.get(rival.name)
        if setting is None or isinstance(setting.live, Unavailable):
            raise UsageProblem(f"this machine has no setting {rival.name}", "`pgtop-tune parameters --machine` lists")
        if not setting.writable:
            raise HostProblem(f"{setting.path} cannot be written by this process", "run this as root")
        a = setting.live if rival.a.lower() == CURRENT else rival.a
        if a == rival.b:
            raise UsageProblem(f"{rival.name}: A and B are both {rival.b}", "pass two different values")
        told.append(replace(rival, a=a))
    return tuple(told)


async def live_values(control: MachineControl, names: Iterable[str]) -> dict[str, str]:
    """What the kernel has now, by name. Raises as `by_name`."""
    found = by_name(await control.settings())
    return {name: str(found[name].live) for name in names}


def by_name(found: Sequence[SystemSetting] | Unavailable) -> Mapping[str, SystemSetting]:
    """The settings of the machine.

    Raises:
        HostProblem: They cannot be reached from here.
    """
    if isinstance(found, Unavailable):
        raise HostProblem(f"the settings of the machine cannot be changed: {found.detail}", "run this on the server")
    return {each.name: each for each in found}


CURRENT: Final = "current"
_ATTEMPTS: Final = 5
_AGAIN_S: Final = 2.0
_MARGIN_S: Final = 30.0
"""Beyond the end of a block before its set reverts by itself."""
_RESTARTS: Final = "`pgtop-tune ab --restart` judges it with restarts, on a server that may be restarted"
_NEW_LOAD: Final = "`pgtop-tune ab` judges it with a new load for each block"
_INSTEAD: Final = {"postmaster": _RESTARTS, "backend": _NEW_LOAD, "superuser-backend": _NEW_LOAD}
"""By pg_settings.context."""


class Rival(Struct, frozen=True):
    """What differs between the arms, and its two values as typed.

    Attributes:
        name: A parameter, a setting of the machine, "endpoint" or "profile".
        a: May be "current".
    """

    name: str
    a: str
    b: str

    def value(self, arm: Arm) -> str:
        """Of an arm."""
        return self.a if arm is Arm.A else self.b


def resolved(
    rivals: Sequence[Rival], found: Mapping[str, Parameter], reached: Set[str] = frozenset()
) -> tuple[Rival, ...]:
    """The same with A's value where that is the current one; what a switch cannot judge is refused.

    Args:
        found: What the server has, by name in lower case.
        reached: Values of pg_settings.context that the blocks reach beyond those that a reload does.

    Raises:
        UsageProblem: A parameter that is not in force in a running load, or the same value twice.
    """
    told = []
    for rival in rivals:
        parameter = found[rival.name.lower()]
        why = "" if parameter.context in reached else _REFUSED.get(parameter.context)
        if why:
            raise UsageProblem(f"{parameter.name} {why}", _INSTEAD.get(parameter.context, ""))
        a = parameter.shown if rival.a.lower() == CURRENT else without_blanks(parameter, rival.a)
        b = without_blanks(parameter, rival.b)
        if as_shown(parameter, a) == as_shown(parameter, b):
            raise UsageProblem(f"{parameter.name}: A and B are both {b}", "pass two different values")
        told.append(Rival(parameter.name, a, b))
    return tuple(told)


_REFUSED: Final = {
    "internal": "cannot be changed",
    "postmaster": "takes a restart of the server",
    "backend": "reaches new sessions only, and a load keeps its sessions",
    "superuser-backend": "reaches new sessions only, and a load keeps its sessions",
}
"""By pg_settings.context."""


def as_shown(parameter: Parameter, value: str) -> str:
    """A typed value as SHOW prints it, as far as that can be told without setting it."""
    try:
        if parameter.vartype == "bool":
            return parse_bool(value)
        if parameter.vartype in {"integer", "real"}:
            whole = parameter.vartype == "integer"
            return show(parse(value, parameter.unit, integer=whole), parameter.unit, integer=whole)
    except UsageProblem:
        return value
    return value.lower() if parameter.vartype == "enum" else value


class Arms:
    """Puts an arm into force, and everything back.

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
        """Puts an arm into force, or prolongs it; whether anything changed.

        Args:
            arm: Wanted.
            stays_s: So long at most; the set reverts a little later by itself.

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
        """The changes that the arm needs on top of what is in force; none where it is what is in force."""
        now = {each.name: each for each in await self._control.list(self._names)}
        wanted = [
            WantedParameter(rival.name, rival.value(arm))
            for rival in self._rivals
            if as_shown(now[rival.name], rival.value(arm)) != now[rival.name].shown
        ]
        self._expected = {name: each.shown for name, each in now.items()}
        settings = () if self._machine is None else await self._machine.wanted(arm)
        if not wanted and not settings:
            return ()
        set_id = self._set_id = uuid.uuid4().hex[:12]
        terms = Terms(
            keep_within_s=within_s,
            reason=self._reason(arm),
            confirmed=self._confirmed,
            set_id=set_id,
            of_experiment=True,
        )
        made = await self._sets.apply(ChangeSet(parameters=tuple(wanted), settings=settings), terms)
        self._expected |= {change.name: change.shown_after for change in made.parameters}
        self._doors = [self._door] if made.parameters else []
        if self._machine is not None and made.settings:
            self._machine.made(made.settings)
            self._doors.append(self._machine.control)
        return made.parameters

    def _reason(self, arm: Arm) -> str:
        rivals = (*self._rivals, *(() if self._machine is None else self._machine.rivals))
        return f"ab: {arm} is {', '.join(f'{rival.name}={rival.value(arm)}' for rival in rivals)}"

    async def check(self, within_s: float) -> None:
        """Puts each arm into force for a moment: what the server refuses, and what no session gets, is said before.

        Raises:
            PgtopError: The server refuses a value, or sessions have another one.
        """
        try:
            for arm in Arm:
                made = await self._make(arm, within_s)
                for proof in await self._control.prove(made) if made else ():
                    check_reaches(proof)
                await self._revert("ab: checked")
        finally:
            await self.restore("ab: checked")

    async def foreign_change(self) -> str:
        """Which parameter another session changed since the arm was put into force; "" for none.

        Raises:
            PgtopError: The server is not there.
        """
        for each in await self._control.list(self._names):
            if each.shown != self._expected.get(each.name, each.shown):
                return f"{each.name} was changed to {each.shown} by someone else"
        return "" if self._machine is None else await self._machine.foreign_change()

    async def restore(self, why: str) -> str:
        """Puts everything back; why that has not worked, "" where it has."""
        problem = ""
        for attempt in range(_ATTEMPTS):
            try:
                await self._revert(why)
                return ""
            except PgtopError as refused:
                problem = refused.message
            if attempt + 1 < _ATTEMPTS:
                await asyncio.sleep(_AGAIN_S)
        return f"{problem}: `pgtop-tune revert --set {self._set_id}` reverts it"

    async def keep(self, arm: Arm) -> None:
        """Puts an arm into force for good.

        Raises:
            PgtopError: The server refused, or is not there.
        """
        await self.to(arm, _MARGIN_S)
        if self._set_id:
            await self._sets.confirm(self._set_id)
            self._set_id = ""

    async def _revert(self, why: str) -> bool:
        """Whether there was anything to be reverted; raises the problem of a set that still stands."""
        set_id, self.arm = self._set_id, None
        if set_id:
            settled = await self._sets.revert(set_id, why)
            if settled.problem is not None:
                raise settled.problem
            self._set_id = ""
        return bool(set_id)


def check_reaches(proof: Proof) -> None:
    """Raises a ServerProblem where new sessions have another value."""
    if proof.overrides:
        raise ServerProblem(
            f"{proof.name} does not reach the load: {proof.overrides[0]}", proof.advice[0] if proof.advice else ""
        )
