"""Knobs of a real server as dimensions of a search."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from pgtop_tune.advice.knobs.catalogue import KNOBS
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.experiment.switchback.arms import as_shown
from pgtop_tune.metrics.setting_risks import RISKS
from pgtop_tune.model.parameter_values import check_value
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.tuning.on_server.knob_space import knob_space, wanted_knobs
from tests.support.frames import parameter
from tests.support.servers import conninfo


@pytest.fixture(scope="module")
def parameters(server: Throwaway) -> Mapping[str, Parameter]:
    async def listed() -> tuple[Parameter, ...]:
        control = PostgresControl(resolve(conninfo(server)))
        try:
            return await control.list(tuple(knob.name for knob in KNOBS))
        finally:
            await control.aclose()

    return {each.name: each for each in asyncio.run(listed())}


def test_every_value_is_one_that_the_server_takes(parameters: Mapping[str, Parameter]) -> None:
    found = knob_space(KNOBS, parameters, allow_restart=True, by_name=False)
    assert len(found.dimensions) > 50
    for dimension in found.dimensions:
        known = parameters[dimension.name]
        assert as_shown(known, dimension.levels[dimension.start]) == known.shown, dimension.name
        for level in dimension.levels:
            check_value(known, level)


def test_what_can_lose_data_is_in_no_search(parameters: Mapping[str, Parameter]) -> None:
    every = knob_space(KNOBS, parameters, allow_restart=True, by_name=False)
    fenced = {name for name, risks in RISKS.items() if any(risk.loses_data for risk in risks)}
    assert {"fsync", "full_page_writes", "synchronous_commit"} <= fenced
    assert not fenced.intersection(dimension.name for dimension in every.dimensions)
    named = knob_space(wanted_knobs(["fsync"], ()), parameters, allow_restart=True, by_name=True)
    assert named.dimensions == ()
    assert "durability" in dict(named.left_out)["fsync"]


def test_values_that_take_a_restart_are_left_out_with_the_option_that_lets_them_in(
    parameters: Mapping[str, Parameter],
) -> None:
    knobs = wanted_knobs(["shared_buffers"], ())
    refused = knob_space(knobs, parameters, allow_restart=False, by_name=True)
    assert refused.left_out == (("shared_buffers", "it takes a restart: pass --allow-restart"),)
    [dimension] = knob_space(knobs, parameters, allow_restart=True, by_name=True).dimensions
    assert dimension.restart


def test_doublings_go_both_ways_from_what_is_set() -> None:
    known = {"work_mem": parameter("work_mem", "4096", "4MB", "kB")}
    [dimension] = knob_space(wanted_knobs(["work_mem"], ()), known, allow_restart=False, by_name=True).dimensions
    assert dimension.levels[dimension.start - 2 : dimension.start + 3] == ("1MB", "2MB", "4MB", "8MB", "16MB")


def test_a_value_off_the_grid_is_a_level_of_its_own() -> None:
    known = {"checkpoint_timeout": parameter("checkpoint_timeout", "420", "7min", "s")}
    knobs = wanted_knobs(["checkpoint_timeout"], ())
    [dimension] = knob_space(knobs, known, allow_restart=False, by_name=True).dimensions
    assert dimension.levels[dimension.start] == "7min"
    assert dimension.levels[dimension.start + 1] == "10min"


def test_a_name_that_is_none_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageProblem) as refused:
        wanted_knobs(["max_wal_sise"], ())
    assert refused.value.hint == "did you mean max_wal_size?"
    with pytest.raises(UsageProblem) as refused:
        wanted_knobs((), ["checkpoint"])
    assert refused.value.hint == "did you mean checkpoints?"
