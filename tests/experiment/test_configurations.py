"""Configurations of a series: their words, what is refused, and values in force run by run and never after it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.base.errors import ConnectionProblem, PgtopError, ServerProblem, UsageProblem
from pgtop_tune.bench.ports import LoadEndpoint, SqlSession
from pgtop_tune.bench.profiles import load_profiles
from pgtop_tune.bench.runner import PgbenchRunner
from pgtop_tune.changes import change_sets
from pgtop_tune.changes.model.change import ParameterChange
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.changes.server.one_change import Rules
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.experiment import load_run
from pgtop_tune.experiment.configurations import (
    Configuration,
    ConfiguredRuns,
    check_configurations,
    parse_configurations,
)
from pgtop_tune.experiment.load_run import NOTHING_BEFORE, LoadRun, RunCell
from pgtop_tune.experiment.path import LoadTarget
from pgtop_tune.experiment.series import cells
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.runtime.run_frames import FrameKeeper
from tests.support.servers import conninfo

TARGET = LoadTarget("direct", LoadEndpoint(host="/s", port=5432, user="u", dbname="d"))


def made(*names: str, seconds: int | None = 60) -> tuple[RunCell, ...]:
    profiles = [load_profiles().get("tpcb-like"), load_profiles().get("select-only")]
    return cells([TARGET], profiles, LoadSpec(duration_s=seconds), None, clients=2, configurations=names)


def test_words_of_configurations() -> None:
    words = ("now:", "big: work_mem=64MB JIT=off", "quoted: search_path='a, b' application_name=''")
    assert parse_configurations(words) == (
        Configuration("now", {}),
        Configuration("big", {"work_mem": "64MB", "jit": "off"}),
        Configuration("quoted", {"search_path": "a, b", "application_name": ""}),
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("work_mem=64MB",), "is not a configuration"),
        ((": work_mem=64MB",), "is not a configuration"),
        (("a b: work_mem=64MB",), "is not a configuration"),
        (("a: work_mem",), "is not a parameter and its value"),
        (("a: =64MB",), "is not a parameter and its value"),
        (("a: work_mem='64MB",), "No closing quotation"),
        (("a: jit=on JIT=off",), "a has JIT twice"),
        (("a:", "a: jit=off"), "two configurations are called a"),
        (tuple(f"c{number}:" for number in range(21)), "21 configurations"),
    ],
)
def test_words_that_are_no_configurations(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageProblem, match=said):
        parse_configurations(words)


def test_configurations_change_fastest() -> None:
    found = [(cell.profile_name, cell.configuration) for cell in made("now", "big")]
    assert found == [("tpcb-like", "now"), ("tpcb-like", "big"), ("select-only", "now"), ("select-only", "big")]


@pytest.fixture
async def control(server: Throwaway, tmp_path: Path) -> AsyncIterator[PostgresControl]:
    made = PostgresControl(resolve(conninfo(server)), directory=tmp_path, rules=Rules(fenced=True))
    yield made
    await made.aclose()


async def test_what_a_series_cannot_put_into_force_is_refused(control: PostgresControl) -> None:
    async def check(word: str, seconds: int | None = 60) -> None:
        configurations = parse_configurations([f"a: {word}"])
        found = {each.name.lower(): each for each in await control.list(tuple(configurations[0].values))}
        check_configurations(configurations, found, made("a", seconds=seconds))

    await check("synchronous_commit=off")
    for word, said in (
        ("shared_buffers=1GB", "takes a restart of the server"), ("server_version=9", "cannot be changed"),
        ("fsync=off", "can lose the whole cluster"), ("work_mem=blah", "is not a number"),
    ):  # fmt: skip
        with pytest.raises(UsageProblem, match=said):
            await check(word)
    with pytest.raises(UsageProblem, match="--configuration needs runs of a known length"):
        await check("work_mem=8MB", seconds=None)


def shown(server: Throwaway) -> str:
    with psycopg.connect(conninfo(server)) as connection:
        [(value,)] = connection.execute("SHOW work_mem").fetchall()
        return str(value)


async def test_values_are_in_force_run_by_run_and_what_was_comes_back(
    control: PostgresControl, server: Throwaway
) -> None:
    before = shown(server)
    auto_conf = (Path(str(server.data_dir)) / "postgresql.auto.conf").read_bytes()
    runs = ConfiguredRuns(parse_configurations(["now:", "a: work_mem=7MB", "b: work_mem=9MB"]), control, NOTHING_BEFORE)
    seen = []
    for cell in made("now", "a", "b")[:3]:
        await runs.to(cell)
        seen.append(shown(server))
        pending = [each.until_ms is not None for each in await control.in_force()]
        assert pending == ([] if cell.configuration == "now" else [True])
    assert seen == [before, "7MB", "9MB"]
    await runs.revert()
    assert shown(server) == before
    assert (Path(str(server.data_dir)) / "postgresql.auto.conf").read_bytes() == auto_conf


async def test_a_value_that_others_change_is_told_and_further_runs_of_the_configuration_fail(
    control: PostgresControl, server: Throwaway
) -> None:
    runs = ConfiguredRuns(parse_configurations(["now:", "a: work_mem=7MB"]), control, NOTHING_BEFORE)
    now, a = made("now", "a")[:2]
    await runs.to(now)
    assert await runs.lost(now) == ""
    await runs.to(a)
    assert await runs.lost(a) == ""
    with psycopg.connect(conninfo(server), autocommit=True) as others:
        others.execute("ALTER SYSTEM SET work_mem = '11MB'")
        others.execute("SELECT pg_reload_conf()")
    try:
        deadline_s = time.monotonic() + 20.0
        while not (said := await runs.lost(a)) and time.monotonic() < deadline_s:
            await asyncio.sleep(0.05)
        assert said == "another user changed work_mem from 7MB to 11MB"
        # Neither by turns nor once more: runs of one name would not be alike.
        with pytest.raises(ServerProblem, match="another user changed work_mem from 7MB to 11MB"):
            await runs.to(a)
    finally:
        with contextlib.suppress(PgtopError):
            await runs.revert()
        with psycopg.connect(conninfo(server), autocommit=True) as others:
            others.execute("ALTER SYSTEM RESET work_mem")
            others.execute("SELECT pg_reload_conf()")


async def test_a_value_that_only_the_server_can_refuse_is_refused_before_anything_is_run(
    control: PostgresControl, server: Throwaway
) -> None:
    before = shown(server)
    configurations = parse_configurations(["a: work_mem=7MB", "b: default_tablespace=nowhere work_mem=9MB"])
    with pytest.raises(UsageProblem, match='b: invalid value for parameter "default_tablespace"'):
        await ConfiguredRuns(configurations, control, NOTHING_BEFORE).check()
    assert (shown(server), await control.in_force()) == (before, ())


async def test_a_configuration_that_the_server_refuses_later_is_a_failed_run() -> None:

    class Refuses:
        async def to(self, cell: RunCell) -> None:
            raise ServerProblem("the server refused work_mem", "")

        async def lost(self, cell: RunCell) -> str:
            return ""

    runner = PgbenchRunner(TARGET.endpoint)

    async def open_nothing() -> SqlSession:
        raise AssertionError("housekeeping of a run that is not made")

    run = LoadRun(runner, FrameKeeper(), open_nothing, lambda words: None, Refuses())
    result = await run.measure(made("a")[0], NOTHING_BEFORE)
    assert not result.valid
    assert next(doubt.reason for doubt in result.doubts) == "the server refused work_mem"
    assert result.configuration == "a"


async def test_between_two_runs_a_server_that_is_restarted_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []

    class Away:
        """For two attempts; then the server refuses."""

        async def to(self, cell: RunCell) -> None:
            raise ConnectionProblem("shutting down", "") if len(told) < 2 else ServerProblem("it is back", "")

        async def lost(self, cell: RunCell) -> str:
            return ""

    async def open_nothing() -> SqlSession:
        raise AssertionError("housekeeping of a run that is not made")

    monkeypatch.setattr(load_run, "_AGAIN_S", 0.0)
    run = LoadRun(PgbenchRunner(TARGET.endpoint), FrameKeeper(), open_nothing, told.append, Away())
    first = await run.measure(made("a")[0], NOTHING_BEFORE)
    assert (next(doubt.reason for doubt in first.doubts), told) == ("shutting down", [])
    run._runs = 1
    second = await run.measure(made("a")[0], NOTHING_BEFORE)
    assert next(doubt.reason for doubt in second.doubts) == "it is back"
    assert told == ["waiting for the server: shutting down"] * 2


async def test_values_are_taken_back_once_a_server_that_is_away_is_there_again(
    control: PostgresControl, server: Throwaway, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = ConfiguredRuns(parse_configurations(["a: work_mem=7MB"]), control, NOTHING_BEFORE)
    before = shown(server)
    await runs.to(made("a")[0])
    monkeypatch.setattr(change_sets, "AGAIN_S", 0.0)
    revert_set, asked = control.revert_set, []

    async def away(set_id: str, why: str = "", *_: object) -> tuple[ParameterChange, ...]:
        asked.append(set_id)
        if len(asked) < 3:
            raise ConnectionProblem("shutting down", "")
        return await revert_set(set_id, why)

    monkeypatch.setattr(control, "revert_set", away)
    await runs.revert()
    assert shown(server) == before
