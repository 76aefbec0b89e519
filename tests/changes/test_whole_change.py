"""A set with a half of the server and a half of its machine: one id, one order, one fate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from pgtop_tune.changes.model.change import ChangeState, ParameterChange, Terms, Wanted
from pgtop_tune.changes.model.machine_change import HostChange, WantedSetting
from pgtop_tune.changes.whole_change import Whole, WholeChange
from pgtop_tune.errors import ConnectionProblem, HostProblem, PgtopError, ServerProblem

PARAMETERS = (Wanted("huge_pages", "on"),)
SETTINGS = (WantedSetting("vm.nr_hugepages", "2130"),)


class Half:
    """A control that writes down what it is asked; refuses with the given problem."""

    def __init__(self, name: str, said: list[str], refuses: PgtopError | None = None) -> None:
        self._name = name
        self._said = said
        self._refuses = refuses
        self.ids: set[str] = set()

    async def apply_set(self, wanted: Sequence[Any], terms: Terms, *, survive: bool = False) -> tuple[object, ...]:
        self._said.append(f"{self._name} set{' to survive' if survive else ''}")
        self.ids.add(terms.set_id)
        if self._refuses is not None:
            raise self._refuses
        return (self._change(terms.set_id),)

    async def revert_set(self, set_id: str, why: str = "") -> tuple[object, ...]:
        self._said.append(f"{self._name} reverted")
        self.ids.add(set_id)
        if self._refuses is not None:
            raise self._refuses
        return (self._change(set_id),)

    async def keep(self, set_id: str) -> tuple[object, ...]:
        self._said.append(f"{self._name} kept")
        return (self._change(set_id),)

    def _change(self, set_id: str) -> object:
        if self._name == "machine":
            return HostChange("a", 1, "vm.nr_hugepages", "/p", "2130", "0", ChangeState.APPLIED, set_id=set_id)
        return ParameterChange("b", 1, "huge_pages", "on", "try", None, "default", ChangeState.APPLIED, set_id=set_id)


def halves(server: PgtopError | None = None, machine: PgtopError | None = None) -> tuple[WholeChange, list[str], Half]:
    said: list[str] = []
    of_machine = Half("machine", said, machine)
    return WholeChange(cast("Any", Half("server", said, server)), cast("Any", of_machine)), said, of_machine


@pytest.mark.parametrize("machine_last", [False, True])
async def test_what_is_made_first_is_taken_back_last_under_one_id(machine_last: bool) -> None:
    whole, said, of_machine = halves()
    made = await whole.apply(Whole(PARAMETERS, SETTINGS, machine_last), Terms(keep_within_s=60.0))
    await whole.revert_set(made.set_id)
    order = ["machine set", "server set", "server reverted", "machine reverted"]
    turned = ["server set", "machine set", "machine reverted", "server reverted"]
    assert said == (turned if machine_last else order)
    assert of_machine.ids == {made.set_id} == {made.parameters[0].set_id} == {made.settings[0].set_id}


async def test_where_the_second_half_is_refused_the_first_is_taken_back() -> None:
    whole, said, _ = halves(server=ServerProblem("no"))
    with pytest.raises(ServerProblem, match="no"):
        await whole.apply(Whole(PARAMETERS, SETTINGS), Terms())
    assert said[:2] == ["machine set", "server set"]
    assert "machine reverted" in said


async def test_after_a_lost_connection_the_machine_keeps_its_half_until_it_is_known() -> None:
    whole, said, _ = halves(server=ConnectionProblem("gone"))
    with pytest.raises(ConnectionProblem):
        await whole.apply(Whole(PARAMETERS, SETTINGS), Terms())
    assert said == ["machine set", "server set"]


async def test_where_the_first_half_is_refused_the_second_is_not_tried() -> None:
    whole, said, _ = halves(machine=HostProblem("not root"))
    with pytest.raises(HostProblem):
        await whole.apply(Whole(PARAMETERS, SETTINGS, survive=True), Terms())
    assert said == ["machine set to survive"]


async def test_a_half_that_cannot_be_taken_back_does_not_keep_the_other() -> None:
    whole, said, _ = halves(server=ServerProblem("away"))
    with pytest.raises(ServerProblem, match="away"):
        await whole.revert_set("s")
    assert said == ["server reverted", "machine reverted"]


async def test_both_halves_are_kept_and_a_set_without_one_asks_only_the_other() -> None:
    whole, said, _ = halves()
    await whole.keep("s")
    assert sorted(said) == ["machine kept", "server kept"]
    said.clear()
    await whole.apply(Whole(settings=SETTINGS), Terms())
    assert said == ["machine set"]
