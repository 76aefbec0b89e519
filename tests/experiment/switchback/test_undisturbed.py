"""A change that would revert by itself keeps an experiment from beginning."""

from __future__ import annotations

import pytest

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.changes.model.change import Terms, WantedParameter
from pgtop_tune.experiment.switchback.separate_blocks import check_nothing_pending
from tests.support.screens import ScriptedParameters


async def test_a_change_that_is_pending_confirmation_is_named_and_a_confirmed_one_is_nothing() -> None:

    control = ScriptedParameters()
    await control.apply_set([WantedParameter("max_wal_size", "2GB")], Terms())
    await check_nothing_pending(control)
    await control.apply_set([WantedParameter("work_mem", "8MB")], Terms(keep_within_s=60.0, set_id="s"))
    with pytest.raises(UsageProblem, match="a change of work_mem is pending confirmation"):
        await check_nothing_pending(control)
