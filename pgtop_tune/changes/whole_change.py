"""Parameters of the server and settings of its machine changed as one, and taken back as one."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.errors import ConnectionProblem, PgtopError

if TYPE_CHECKING:
    from pgtop_tune.changes.model.change import ParameterChange, Terms, Wanted
    from pgtop_tune.changes.model.machine_change import HostChange, WantedSetting
    from pgtop_tune.changes.ports import MachineControl, SetControl


class Whole(Struct, frozen=True):
    """A set with two halves.

    Attributes:
        parameters: Of the server, in the order they are made.
        settings: Of the machine, in the order they are made.
        machine_last: Whether the machine's half is made after the server's: memory is given up after it was left.
        survive: Whether the machine's half goes into our file of sysctl.d as well.
    """

    parameters: tuple[Wanted, ...] = ()
    settings: tuple[WantedSetting, ...] = ()
    machine_last: bool = False
    survive: bool = False


class Made(Struct, frozen=True):
    """What came of it.

    Attributes:
        set_id: The same in the journals of the server and of the machine.
        parameters: Changes of the server.
        settings: Changes of the machine.
    """

    set_id: str
    parameters: tuple[ParameterChange, ...] = ()
    settings: tuple[HostChange, ...] = ()


class WholeChange:
    """Makes and takes back sets with two halves.

    Args:
        parameters: Of the server; may be None where a set has none of them.
        machine: Of the machine, likewise.
    """

    def __init__(self, parameters: SetControl | None, machine: MachineControl | None) -> None:
        self._parameters: Final = parameters
        self._machine: Final = machine
        self._machine_last: set[str] = set()

    async def apply(self, whole: Whole, terms: Terms) -> Made:
        """Makes both halves, or none.

        Raises:
            PgtopError: What `SetControl.apply_set` and `MachineControl.apply_set` raise; nothing is changed. After
                a lost connection the machine's half stays: whether the server's is in force is not known.
        """
        named = replace(terms, set_id=terms.set_id or uuid.uuid4().hex[:12])
        if whole.machine_last:
            self._machine_last.add(named.set_id)
        made = Made(named.set_id)
        for on_machine in self._halves(named.set_id):
            try:
                if on_machine and self._machine is not None and whole.settings:
                    settings = await self._machine.apply_set(whole.settings, named, survive=whole.survive)
                    made = replace(made, settings=settings)
                elif not on_machine and self._parameters is not None and whole.parameters:
                    made = replace(made, parameters=await self._parameters.apply_set(whole.parameters, named))
            except ConnectionProblem:
                raise
            except PgtopError as problem:
                await self._withdraw(made, problem)
                raise
        return made

    async def keep(self, set_id: str) -> Made:
        """Both halves stay; empty when they are not in force (any more)."""
        settings = await self._machine.keep(set_id) if self._machine is not None else ()
        parameters = await self._parameters.keep(set_id) if self._parameters is not None else ()
        return Made(set_id, parameters, settings)

    async def revert_set(self, set_id: str, why: str = "") -> Made:
        """Takes both halves back, what was made last first; one that cannot be does not keep the other.

        Raises:
            PgtopError: The first of what went wrong; the half it is about is still in force.
        """
        made, problems = Made(set_id), list[PgtopError]()
        for on_machine in reversed(self._halves(set_id)):
            try:
                if on_machine and self._machine is not None:
                    made = replace(made, settings=await self._machine.revert_set(set_id, why))
                elif not on_machine and self._parameters is not None:
                    made = replace(made, parameters=await self._parameters.revert_set(set_id, why))
            except PgtopError as problem:
                problems.append(problem)
        if problems:
            raise problems[0]
        return made

    def _halves(self, set_id: str) -> tuple[bool, bool]:
        """In the order they are made: whether it is the machine's."""
        return (False, True) if set_id in self._machine_last else (True, False)

    async def _withdraw(self, made: Made, problem: PgtopError) -> None:
        """Takes the half back that was made; the problem says so where even that fails."""
        if not made.parameters and not made.settings:
            return
        try:
            await self.revert_set(made.set_id, "the other half of the set was refused")
        except PgtopError as another:
            problem.hint = f"{another.message}: `pgtop-tune revert --set {made.set_id}` takes the first half back"
