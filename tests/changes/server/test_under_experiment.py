"""A parameter under experiment is changed by the experiment alone; its own screen is refused, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.changes.model.change import Terms, WantedParameter
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.runtime.running_experiments import Announcement, server_of_instance
from tests.postgres.conftest import place
from tests.support.experiments import RUNNING


async def test_only_the_experiment_changes_its_parameters_until_it_is_over(
    server: Throwaway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    control = PostgresControl(place(server))
    here = await control.ask(lambda session: server_of_instance(session.instance))
    experiment = Announcement("screen", ("work_mem",), lambda: RUNNING, here)
    experiment.begin()
    with pytest.raises(UsageProblem, match="work_mem is under experiment"):
        await control.apply_set([WantedParameter("random_page_cost", "2"), WantedParameter("WORK_MEM", "7MB")], Terms())
    assert await control.in_force() == ()
    await control.apply("random_page_cost", "2")
    await control.apply_set([WantedParameter("work_mem", "7MB")], Terms(keep_within_s=300.0, of_experiment=True))
    experiment.end()
    await control.apply("work_mem", "9MB")
    ids = [change.id for change in await control.in_force()]
    assert len(ids) == 3
    await control.undo_these(ids)
    await control.aclose()
