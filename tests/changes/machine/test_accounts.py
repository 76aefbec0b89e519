"""Two accounts on one machine: what is pending for one is nobody else's old value, and nobody else's to revert."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pgtop_tune.base.errors import HostProblem
from pgtop_tune.changes.machine import announcements
from pgtop_tune.changes.machine.control import HostControl
from pgtop_tune.changes.model.change import Terms, WantedSetting
from pgtop_tune.cluster.throwaway import Throwaway
from tests.host.made_machine import SWAPPINESS, Machine
from tests.support.machine_tree import snapshot
from tests.support.makers import leave_pending


@pytest.fixture
def accounts(made: Machine, tmp_path: Path) -> tuple[HostControl, HostControl]:
    (made.root / "run").mkdir(exist_ok=True)
    return (
        HostControl(root=made.root, directory=tmp_path / "ana"),
        HostControl(root=made.root, directory=tmp_path / "ben"),
    )


async def set_it(control: HostControl, value: str, for_s: float | None = 60.0, **terms: object) -> str:
    (made,) = await control.apply_set([WantedSetting("vm.swappiness", value)], Terms(for_s, **terms))  # type: ignore[arg-type]
    return made.set_id


@pytest.mark.parametrize("for_s", [None, 60.0])
async def test_what_is_pending_is_refused_to_the_other_account_until_it_is_over(
    made: Machine, accounts: tuple[HostControl, HostControl], for_s: float | None
) -> None:
    ana, ben = accounts
    before = snapshot(made.root)
    set_id = await set_it(ana, "5")
    with pytest.raises(HostProblem) as refused:
        await set_it(ben, "9", for_s)
    assert refused.value.message.startswith("vm.swappiness = 5 is pending confirmation by ")
    assert "it reverts to 60 at " in refused.value.message
    assert made.text(SWAPPINESS) == "5\n"
    await ana.revert_set(set_id)
    set_id = await set_it(ben, "9", for_s)
    await (ben.keep if for_s is None else ben.revert_set)(set_id)
    for change in await ben.in_force():
        await ben.revert_set(change.id)
    assert snapshot(made.root) == before
    await ana.aclose()
    await ben.aclose()


async def test_a_kept_value_cannot_be_reverted_below_what_is_pending(
    made: Machine, accounts: tuple[HostControl, HostControl]
) -> None:
    ana, ben = accounts
    await set_it(ana, "5", None)
    (kept,) = await ana.in_force()
    set_id = await set_it(ben, "9")
    with pytest.raises(HostProblem, match=r"vm\.swappiness = 9 is pending"):
        await ana.revert_set(kept.id)
    await ben.revert_set(set_id)
    assert made.text(SWAPPINESS) == "5\n"
    await ana.revert_set(kept.id)
    assert made.text(SWAPPINESS) == "60\n"
    await ana.aclose()
    await ben.aclose()


async def test_a_confirmed_value_is_the_old_value_of_the_next_account(
    made: Machine, accounts: tuple[HostControl, HostControl]
) -> None:
    ana, ben = accounts
    kept = await set_it(ana, "5")
    await ana.keep(kept)
    await ben.revert_set(await set_it(ben, "9"))
    assert made.text(SWAPPINESS) == "5\n"
    await ana.revert_set(kept)
    assert made.text(SWAPPINESS) == "60\n"
    await ana.aclose()
    await ben.aclose()


async def test_an_experiment_holds_its_settings_between_its_arms_and_reverts_them_itself(
    made: Machine, accounts: tuple[HostControl, HostControl]
) -> None:
    ana, ben = accounts
    await ana.revert_set(await set_it(ana, "5", of_experiment=True))
    with pytest.raises(HostProblem, match=r"an experiment of .* switches it"):
        await set_it(ben, "9")
    await ana.revert_set(await set_it(ana, "6", of_experiment=True))
    await ana.aclose()
    await ben.revert_set(await set_it(ben, "9"))
    assert made.text(SWAPPINESS) == "60\n"
    await ben.aclose()


async def test_what_a_killed_program_left_is_reverted_after_its_deadline(
    server: Throwaway,
    made: Machine,
    accounts: tuple[HostControl, HostControl],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, ben = accounts
    await asyncio.to_thread(
        leave_pending,
        server,
        tmp_path / "ana",
        "Terms(keep_within_s=600.0)",
        parameters=(),
        settings=(("vm.swappiness", "5"),),
        root=made.root,
    )
    with pytest.raises(HostProblem, match=r"vm\.swappiness = 5 is pending confirmation"):
        await set_it(ben, "9")
    monkeypatch.setattr(announcements, "GRACE_S", -700.0)
    await ben.revert_set(await set_it(ben, "9"))
    assert made.text(SWAPPINESS) == "60\n"
    await ben.aclose()


async def test_files_that_others_could_have_written_hold_nothing(
    made: Machine, accounts: tuple[HostControl, HostControl]
) -> None:
    ana, ben = accounts
    set_id = await set_it(ana, "5")
    directory = made.root / announcements.DIRECTORY
    assert directory.stat().st_mode & 0o077 == 0
    (file,) = directory.glob("*.json")
    file.chmod(0o666)
    await ana.keep(set_id)
    file.write_bytes(b"{}")
    await ben.revert_set(await set_it(ben, "9"))
    assert made.text(SWAPPINESS) == "5\n"
    directory.mkdir(exist_ok=True)
    directory.chmod(0o777)
    with pytest.raises(HostProblem, match="is writable by others"):
        await set_it(ben, "9")
    await ana.aclose()
    await ben.aclose()
