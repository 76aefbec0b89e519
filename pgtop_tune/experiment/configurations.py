"""Values that stay in force while something is measured, and the configurations of a series that are made of them.

Each configuration is a change set pending confirmation, so it reverts when this program is killed. A series takes only
values that new sessions see after a reload; plans also take values that need a restart, and settings of the machine.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.advice.facts import OUT_OF_REACH
from pgtop_tune.base.errors import ConnectionProblem, PgtopError, ServerProblem, UsageProblem
from pgtop_tune.changes.change_sets import ChangeSets
from pgtop_tune.changes.model.change import Terms, WantedParameter, WantedSetting
from pgtop_tune.changes.model.change_set import ChangeSet
from pgtop_tune.changes.ports import ChangeControl, MachineControl, SetControl
from pgtop_tune.experiment.load_run import BeforeEachRun, RunCell
from pgtop_tune.metrics.setting_risks import risk_of
from pgtop_tune.model.parameter_values import check_value
from pgtop_tune.model.postgres import Parameter

_AWAY_S: Final = 30.0


class StandingValues:
    """The values in force: one change set at a time.

    Args:
        door: Makes and reverts the server's half.
        before: A callback with the id of each set before it is made.
        reason: First words of the reason that the journal records.
        machine: Makes and reverts the machine's half; None where no value is a setting of the machine.
        settings: Names that are settings of the machine.
    """

    def __init__(
        self,
        door: SetControl,
        before: Callable[[str], None],
        reason: str,
        machine: MachineControl | None = None,
        settings: frozenset[str] = frozenset(),
    ) -> None:
        self._sets: Final = ChangeSets(door, machine)
        self._door: Final = door
        self._machine: Final = machine
        self._settings: Final = settings
        self._before: Final = before
        self._reason: Final = reason
        self._set_id = ""
        self.values: Mapping[str, str] = {}

    def differs(self, values: Mapping[str, str]) -> bool:
        """Return whether `to` would change anything."""
        return dict(values) != dict(self.values)

    async def to(self, values: Mapping[str, str], within_s: float) -> None:
        """Put exactly these values into force, or prolong them; they revert by themselves after `within_s`.

        Raises:
            PgtopError: The server or the machine refused, or the server is not there.
        """
        # A set without values was interrupted: what it wrote is not known.
        if not self.differs(values) and (self.values or not self._set_id):
            if self._set_id:
                if not self._settings.issuperset(self.values):
                    await self._door.begin_deadline(self._set_id, within_s)
                if self._machine is not None and not self._settings.isdisjoint(self.values):
                    await self._machine.begin_deadline(self._set_id, within_s)
            return
        await self.revert("other values follow")
        if not values:
            return
        set_id = uuid.uuid4().hex[:12]
        self._before(set_id)
        assignments = ", ".join(f"{name}={value}" for name, value in values.items())
        terms = Terms(keep_within_s=within_s, reason=f"{self._reason} {assignments}", set_id=set_id, of_experiment=True)
        self._set_id = set_id
        await self._sets.apply(
            ChangeSet(
                parameters=tuple(WantedParameter(*item) for item in values.items() if item[0] not in self._settings),
                settings=tuple(WantedSetting(*item) for item in values.items() if item[0] in self._settings),
            ),
            terms,
        )
        self.values = dict(values)

    async def revert(self, reason: str) -> None:
        """Revert the values; wait for a server that is away. Raises as `to`."""
        if self._set_id:
            until_s = time.monotonic() + _AWAY_S
            settled = await self._sets.revert_until_done(
                self._set_id, f"{self._reason} {reason}", lambda problem: None, lambda: time.monotonic() < until_s
            )
            settled.checked()
        self._set_id, self.values = "", {}


_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,39}")
_FORM: Final = "write --configuration 'big: work_mem=64MB jit=off'; 'now:' keeps the server's present values"
_MOST: Final = 20
_MARGIN_S: Final = 3600.0
"""The time beyond run and warm-up before values revert by themselves: vacuum of a large data set takes long."""
_REFUSED: Final = {
    "internal": ("cannot be changed", "remove it"),
    "postmaster": ("takes a restart of the server", "`pgtop-tune experiment run` takes a plan with restarts"),
}
"""Reason and remedy by pg_settings.context."""


class Configuration(Struct, frozen=True):
    """Values to be in force.

    Attributes:
        name: Name in tables and records.
        values: The values by parameter; empty is the server as it is.
    """

    name: str
    values: Mapping[str, str]


def parse_configurations(texts: Sequence[str]) -> tuple[Configuration, ...]:
    """Return the configurations of texts such as "big: work_mem=64MB jit=off"; quotes enclose a value with blanks.

    Raises:
        UsageProblem: A text is not of that form, two have the same name, or there are too many.
    """
    configurations = tuple(_parsed(text) for text in texts)
    names = [configuration.name for configuration in configurations]
    if double := next((name for name in names if names.count(name) > 1), ""):
        raise UsageProblem(f"two configurations are called {double}", _FORM)
    if len(configurations) > _MOST:
        raise UsageProblem(f"{len(configurations)} configurations are too many", f"at most {_MOST}")
    return configurations


def _parsed(text: str) -> Configuration:
    name, colon, assignments = text.partition(":")
    if not colon or not _NAME.fullmatch(name.strip()):
        raise UsageProblem(f"{text!r} is not a configuration", _FORM)
    try:
        assignment_words = shlex.split(assignments)
    except ValueError as problem:
        raise UsageProblem(f"{text!r}: {problem}", _FORM) from None
    values: dict[str, str] = {}
    for word in assignment_words:
        parameter, equals, value = word.partition("=")
        if not equals or not parameter:
            raise UsageProblem(f"{word!r} is not a parameter and its value", _FORM)
        if parameter.lower() in values:
            raise UsageProblem(f"{name.strip()} has {parameter} twice", "pass one value")
        values[parameter.lower()] = value
    return Configuration(name.strip(), values)


def check_configurations(
    configurations: Sequence[Configuration], parameters: Mapping[str, Parameter], cells: Sequence[RunCell]
) -> None:
    """Refuse what a series cannot put into force.

    Args:
        parameters: The server's parameters, by name in lower case; it has every configured name.

    Raises:
        UsageProblem: The server would not take a value, the value can lose data or needs a restart, or the runs have
            no known length, so that values could revert before their end.
    """
    if configurations and any(cell.spec.duration_s is None for cell in cells):
        raise UsageProblem("--configuration needs runs of a known length", "pass it in seconds: -T")
    for configuration in configurations:
        for name, value in configuration.values.items():
            parameter = parameters[name]
            if refused := _REFUSED.get(parameter.context):
                reason, remedy = refused
                raise UsageProblem(f"{configuration.name}: {name} {reason}", remedy)
            check_value(parameter, value)
            if source := OUT_OF_REACH.get(parameter.source, ""):
                raise UsageProblem(f"{configuration.name}: {name}: {source}", "remove it")
            # The configuration reverts by itself: a value that is safe with a deadline may be tried.
            risk = risk_of(name, value, parameter)
            if risk is not None and risk.locked(ends=True):
                raise UsageProblem(f"{configuration.name}: {name} = {value} {risk.words}", "remove it")


class ConfiguredRuns:
    """The `RunConfigurations` of a series: they put values into force, and check that the values stayed in force.

    Args:
        configurations: The configurations of the series.
        control: The server's parameters.
        before: The steps before each run.
    """

    def __init__(self, configurations: Sequence[Configuration], control: ChangeControl, before: BeforeEachRun) -> None:
        self._values: Final = {configuration.name: configuration.values for configuration in configurations}
        self._names: Final = tuple(
            dict.fromkeys(name for configuration in configurations for name in configuration.values)
        )
        self._control: Final = control
        self._standing: Final = StandingValues(control, lambda set_id: None, "bench run:")
        self._before_s: Final = before.quiet_deadline_s + before.warm_up_s + _MARGIN_S
        self._first: Final[dict[str, dict[str, str]]] = {}

    async def check(self) -> None:
        """Put each configuration into force for a moment, so that the server refuses before the first run.

        Raises:
            UsageProblem: The server refused a configuration.
            PgtopError: The server is not there.
        """
        try:
            for name, values in self._values.items():
                try:
                    await self._standing.to(values, _MARGIN_S)
                except ConnectionProblem:
                    raise
                except PgtopError as problem:
                    raise UsageProblem(f"{name}: {problem.message}", problem.hint) from None
        finally:
            await asyncio.shield(self._standing.revert("checked"))

    async def to(self, cell: RunCell) -> None:
        """Put the configuration of a run into force, before the run.

        Raises:
            PgtopError: The server refused, or is not there; or others have changed a value since.
        """
        if not self._names:
            return
        await self._standing.to(self._values[cell.configuration], (cell.spec.duration_s or 0) + self._before_s)
        if cell.configuration not in self._first:
            self._first[cell.configuration] = await self._shown()
        elif lost := await self.lost(cell):
            raise ServerProblem(lost, "the runs of a configuration would not be comparable")

    async def lost(self, cell: RunCell) -> str:
        """Return which value of the run's configuration is no longer in force; "" for none. Raises as `to`."""
        if not self._names:
            return ""
        first, now = self._first[cell.configuration], await self._shown()
        changed_names = (name for name in self._names if now.get(name) != first.get(name))
        return next(
            (f"another user changed {name} from {first.get(name)} to {now.get(name)}" for name in changed_names), ""
        )

    async def revert(self) -> None:
        """Revert the configuration, after the last run. Raises as `StandingValues.revert`."""
        await self._standing.revert("the series has ended")

    async def _shown(self) -> dict[str, str]:
        return {parameter.name.lower(): parameter.shown for parameter in await self._control.list(self._names)}
