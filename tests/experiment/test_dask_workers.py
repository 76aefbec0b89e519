"""Workers of a real Dask, in this process: pinned to their server, and what is said of one that ends."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.experiment.workers import DaskWorkers, UnitFailed, WorkerGone

distributed: Any = pytest.importorskip("distributed")
MADE = "pgtop_tune.experiment.workers.run_unit"
ENDED = threading.Event()


@asynccontextmanager
async def cluster(*names: str) -> AsyncIterator[tuple[DaskWorkers, dict[str, Any]]]:
    async with AsyncExitStack() as stack:
        scheduler = await stack.enter_async_context(
            distributed.Scheduler(host="127.0.0.1", port=0, dashboard=False, dashboard_address="127.0.0.1:0")
        )
        made = {
            name: await stack.enter_async_context(
                distributed.Worker(
                    scheduler.address, name=name, nthreads=1, dashboard=False, dashboard_address="127.0.0.1:0"
                )
            )
            for name in names
        }
        workers = await DaskWorkers.connected(scheduler.address)
        stack.push_async_callback(workers.aclose)
        yield workers, made


def says_where(identity: str, request: bytes) -> bytes:
    return json.dumps({"answer": [distributed.get_worker().name, request.decode()]}).encode()


def refuses(identity: str, request: bytes) -> bytes:
    return json.dumps({"problem": "no such plan", "hint": "write one"}).encode()


def waits(identity: str, request: bytes) -> bytes:
    ENDED.wait(30.0)
    return b'{"answer": {}}'


async def test_a_unit_runs_on_the_worker_of_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MADE, says_where)
    async with cluster("db1", "db2") as (workers, _):
        assert sorted(await workers.servers()) == ["db1", "db2"]
        found = await asyncio.gather(*(workers.run(name, b"x") for name in ("db1", "db2", "db1")))
        assert [json.loads(each)["answer"] for each in found] == [["db1", "x"], ["db2", "x"], ["db1", "x"]]


async def test_a_problem_comes_with_its_server_and_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MADE, refuses)
    async with cluster("db1") as (workers, _):
        with pytest.raises(UnitFailed, match="db1: no such plan") as failed:
            await workers.run("db1", b"x")
        assert failed.value.hint == "write one"
        with pytest.raises(WorkerGone, match="db9"):
            await workers.run("db9", b"x")


async def test_a_worker_that_ends_under_a_unit_is_told_and_the_unit_is_not_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MADE, waits)
    ENDED.clear()
    async with cluster("db1", "db2") as (workers, made):
        unit = asyncio.ensure_future(workers.run("db1", b"x"))
        while not made["db1"].state.executing_count:
            await asyncio.sleep(0.01)
        await made["db1"].close(timeout=0.1, executor_wait=False)
        try:
            with pytest.raises(WorkerGone, match="db1 ended during the unit"):
                await unit
        finally:
            ENDED.set()
        assert not made["db2"].state.executing_count
        assert await workers.servers() == ("db2",)


@pytest.mark.parametrize("address", ["", "scheduler", "tcp://host", "rm -rf", "nonsense://host:1", "tcp://a b:1"])
async def test_what_is_no_address_is_said_before_anything_is_tried(address: str) -> None:
    with pytest.raises(UsageProblem, match="not a scheduler address"):
        await DaskWorkers.connected(address)


async def test_without_a_scheduler_it_says_how_to_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgtop_tune.experiment.workers._CONNECT_S", 0.5)
    with pytest.raises(UsageProblem, match="no scheduler at") as refused:
        await DaskWorkers.connected("tcp://127.0.0.1:1")
    assert "dask scheduler" in refused.value.hint
