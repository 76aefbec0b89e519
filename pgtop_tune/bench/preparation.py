"""What a load needs before pgbench can run it: the data set's numbers for its scripts, and scripts that may run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from pgtop_tune.bench.datasets.recognise import found_variables
from pgtop_tune.bench.ports import SqlSession
from pgtop_tune.bench.profiles import Profile, with_variables
from pgtop_tune.bench.scripts import check_script, read_script
from pgtop_tune.model.load import LoadSpec

Prepare = Callable[[LoadSpec, Profile], Awaitable[LoadSpec]]
"""Completes a load; raises a LoadProblem when that cannot be done."""

_FRESH_S: Final = 5.0
"""A form asks at every key; a data set does not change as fast."""


class LoadPreparation:
    """For loads an operator starts from a form. `complete` fits Prepare.

    Args:
        open_sql_session: Opens a session on the server of the load.
    """

    def __init__(self, open_sql_session: Callable[[], Awaitable[SqlSession]]) -> None:
        self._open_hand = open_sql_session
        self._found: dict[str, tuple[float, dict[str, str]]] = {}

    async def complete(self, spec: LoadSpec, profile: Profile) -> LoadSpec:
        r"""The load with the variables of its scripts.

        Raises:
            LoadProblem: The data set is not there or incomplete; a script is not there, or has \shell and its profile
                does not allow it.
            ConnectionProblem: The server is not there.
            ServerProblem: This role may not look at the tables.
        """
        await asyncio.to_thread(_check_scripts, spec, profile)
        given = {name for name, _ in spec.variables}
        if spec.scripts or given >= set(profile.from_dataset):
            return with_variables(spec, profile, {})
        return with_variables(spec, profile, await self._variables(profile.dataset))

    async def _variables(self, dataset: str) -> dict[str, str]:
        at_s, found = self._found.get(dataset, (0.0, None))
        if found is None or time.monotonic() - at_s > _FRESH_S:
            hand = await self._open_hand()
            try:
                found = await found_variables(hand, dataset)
            finally:
                await hand.aclose()
            self._found[dataset] = (time.monotonic(), found)
        return found


def _check_scripts(spec: LoadSpec, profile: Profile) -> None:
    own = [Path(script.file) for script in spec.scripts]
    for file in own or [script.file for script in profile.scripts]:
        check_script(read_script(file), allow_shell=profile.allow_shell and not own)
