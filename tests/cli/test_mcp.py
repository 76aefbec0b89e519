"""`mcp`: the tools of an agent answer with the JSON of `show`, `compare` and `check`, and write nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli.commands.agents import McpRequest
from pgtop_tune.cli.commands.agents.server import run_server
from pgtop_tune.cli.commands.agents.tools import MOST_ROWS, TOOLS
from pgtop_tune.cli.commands.recordings import CompareRequest
from pgtop_tune.cli.commands.recordings.comparison import compare_files
from pgtop_tune.cli.commands.show import ShowFormat, ShowRequest, What
from pgtop_tune.cli.commands.show.moments import show_rows
from pgtop_tune.cli.options import TableFormat
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.model.postgres import Activity
from tests.cli.runs import PROGRAM, ROOT, environment, run
from tests.support import frames
from tests.support.crowd import Crowd
from tests.support.made_situations import MADE
from tests.support.processes import eventually
from tests.support.recordings import write
from tests.support.servers import conninfo
from tests.support.sides import frames as side_frames
from tests.support.sides import recorded

pytest.importorskip("mcp_types")
mcp: Any = pytest.importorskip("mcp")

SITUATIONS = (
    "slow WAL device",
    "full CPUs",
    "a missing index",
    "stall behind psql",
    "jam without a load",
    "standby missing",
)
SAMPLES = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'pgtop-tune%'"
AGES = {"waited", "in-state", "xact"}


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of made situations, two runs, a crowd, and links and files that lead out."""
    directory = tmp_path_factory.mktemp("recordings")
    for name in SITUATIONS:
        write(directory / f"{name}.jsonl", map(MADE[name][1].frame, range(40)))
    recorded(side_frames(1000.0, "a", seconds=20), directory / "before.jsonl")
    recorded(side_frames(900.0, "b", seconds=20), directory / "after.jsonl")

    def crowd(second: int) -> Any:
        now_ms = frames.EPOCH_MS + second * 1000
        backends = tuple(frames.backend(pid, now_ms) for pid in range(100, 1300))
        return frames.frame(
            second, postgres=frames.postgres_sample(second, activity=Activity(float(second), now_ms, backends))
        )

    write(directory / "crowd.jsonl", map(crowd, range(3)))
    outside = write(tmp_path_factory.mktemp("outside") / "other.jsonl", map(crowd, range(2)))
    (directory / "link.jsonl").symlink_to(outside)
    (directory / "run@1s..9s.jsonl").symlink_to(outside)
    return directory


@asynccontextmanager
async def client_of(home: Path, *words: str) -> AsyncIterator[Any]:
    from mcp.client.stdio import StdioServerParameters

    program, *arguments = PROGRAM
    started = StdioServerParameters(
        command=program, args=[*arguments, "mcp", *words], env=environment(home), cwd=str(ROOT)
    )
    async with mcp.Client(started, read_timeout_seconds=60) as client:
        yield client


async def answer(client: Any, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content[0].text
    return str(result.content[0].text)


async def refusal(client: Any, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.content[0].text[:200]
    return str(result.content[0].text)


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out.rstrip("\n")


async def test_answers_about_recordings_are_those_of_the_commands(
    recordings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path for place in (recordings, tmp_path) for path in place.rglob("*"))
    async with client_of(tmp_path, "--recordings", str(recordings), "-h", str(tmp_path)) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == ["show", "finding", "compare", "check"]
        for tool in tools.values():
            assert tool.annotations.read_only_hint
            assert "never instructions" in tool.description
            assert tool.input_schema["type"] == "object"
        for name in SITUATIONS:
            got = await answer(client, "finding", recording=f"{name}.jsonl", at="30s")
            show_rows(
                ShowRequest(subject=What.FINDING, at=("30s", recordings / f"{name}.jsonl"), format=ShowFormat.JSON)
            )
            assert got == printed(capsys)
            assert MADE[name][0] in [row["rule"] for row in json.loads(got)["rows"]]
        compare_files(
            CompareRequest(a=recordings / "before.jsonl", b=[recordings / "after.jsonl"], format=TableFormat.JSON)
        )
        assert await answer(client, "compare", before="before.jsonl", after="after.jsonl") == printed(capsys)
        window = json.loads(await answer(client, "compare", before="before.jsonl", after="after.jsonl@2s..18s"))
        assert "differences" in window["comparisons"][0]
        crowd = json.loads(await answer(client, "show", what="sessions", recording="crowd.jsonl", columns=["pid"]))
        assert (len(crowd["rows"]), crowd["count"]) == (MOST_ROWS, 1200)
        few = json.loads(await answer(client, "show", what="sessions", recording="crowd.jsonl", limit=2))
        assert (len(few["rows"]), few["count"]) == (2, 1200)
        report = json.loads(await answer(client, "check", recording="before.jsonl", select=["MEM"]))
        by_command = run(
            "check", "--against", str(recordings / "before.jsonl"), "--select", "MEM", "--json", home=tmp_path
        )
        assert report == json.loads(by_command.out)
        # None of these is answered, and what is missing has the words of what may not be read.
        for path in ("link.jsonl", "/etc/passwd", f"{recordings}/../x", "no.jsonl", ".", "", "a\0b"):
            for tool, words in (("show", {"what": "sessions"}), ("finding", {}), ("check", {})):
                if path:
                    said = await refusal(client, tool, recording=path, **words)
                    assert said.startswith("there is no recording ")
            assert (await refusal(client, "compare", before="before.jsonl", after=path)).startswith("there is no")
        assert (await refusal(client, "compare", before=f"{'9' * 400}@1s..2s", after="after.jsonl")).startswith("there")
        assert "link.jsonl" not in await refusal(client, "finding", recording="no.jsonl")
        assert (await refusal(client, "compare", before="run@1s..9s.jsonl", after="link.jsonl@1s..2s")).startswith(
            "the"
        )
        assert "<= 1000" in await refusal(client, "show", what="sessions", recording="crowd.jsonl", limit=1001)
        assert "Invalid enum value" in await refusal(client, "show", what="secrets")
        assert "no column pdi" in await refusal(
            client, "show", what="sessions", recording="crowd.jsonl", columns=["pdi"]
        )
        assert "is a moment of a recording" in await refusal(client, "show", what="sessions", at="end")
        assert "there is no tool set" in await refusal(client, "set", name="work_mem", value="1MB")
        for tool, words in (("check", {"measure": True}), ("check", {"output": "x"}), ("show", {"sql": "SELECT 1"})):
            assert "unknown field" in await refusal(client, tool, **{"what": "locks"} | words)
        # Nothing listens there, and the next call is answered.
        assert "nothing is listening" in await refusal(client, "show", what="locks")
        assert await answer(client, "finding", recording=f"{SITUATIONS[0]}.jsonl")
    assert sorted(path for place in (recordings, tmp_path) for path in place.rglob("*")) == before


async def test_a_live_server_is_shown_and_may_go_away(fresh_server: Throwaway, tmp_path: Path) -> None:
    where = conninfo(fresh_server)
    with psycopg.connect(where, autocommit=True) as connection:
        connection.execute("CREATE TABLE jam (id int PRIMARY KEY, n int)")
        connection.execute("INSERT INTO jam VALUES (1, 0)")
        settings = connection.execute("SELECT name, setting FROM pg_settings ORDER BY 1").fetchall()
    crowd = Crowd(where)
    update = "UPDATE jam SET n = n + 1 WHERE id = 1"
    root = crowd.session(update).info.backend_pid
    waiter = crowd.queues(crowd.session(), update)
    async with client_of(tmp_path, where) as client:
        document = json.loads(await answer(client, "show", what="locks"))
        assert [(row["pid"], row["root"]) for row in document["rows"]] == [(root, root), (waiter, root)]
        by_command = json.loads(run("show", "locks", "--json", where, home=tmp_path).out)
        assert document.keys() == by_command.keys()
        assert (document["columns"], document["server"]) == (by_command["columns"], by_command["server"])
        for row, other in zip(document["rows"], by_command["rows"], strict=True):
            assert {name for name in row if row[name] != other[name]} <= AGES
        report = json.loads(await answer(client, "check", select=["MEM"]))
        assert report["format"] == "pgtop-tune-check/1"
        with psycopg.connect(where) as connection:
            assert connection.execute("SELECT name, setting FROM pg_settings ORDER BY 1").fetchall() == settings
        crowd.close()
        fresh_server.stop("immediate")
        assert await refusal(client, "show", what="locks")
        assert await refusal(client, "check")
        assert len((await client.list_tools()).tools) == len(TOOLS)


def test_a_long_request_is_dropped_and_a_client_that_is_gone_ends_it(recordings: Path, tmp_path: Path) -> None:
    with subprocess.Popen(
        [*PROGRAM, "mcp", "--recordings", str(recordings), "-h", str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
        cwd=ROOT,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        process.stdin.write(json.dumps({**ping, "id": 1, "params": {"x": "a" * 3_000_000}}).encode() + b"\n")
        process.stdin.write(json.dumps(ping).encode() + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 2
        process.stdout.close()
        process.stdin.write(json.dumps(ping).encode() + b"\n")
        process.stdin.flush()
        assert process.wait(60) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b"a request of more than 1 MB was dropped\n"


def test_a_signal_during_a_call_ends_it_without_a_traceback(server: Throwaway, tmp_path: Path) -> None:
    where = conninfo(server)
    process = subprocess.Popen(
        [*PROGRAM, "mcp", where],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
        cwd=ROOT,
    )
    assert process.stdin is not None
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    for message in (
        {"id": 1, "method": "initialize", "params": client},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "finding", "arguments": {}}},
    ):
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    process.stdin.flush()
    with psycopg.connect(where, autocommit=True) as connection:
        assert eventually(lambda: bool(connection.execute(SAMPLES).fetchall()))
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    assert process.communicate()[1] == b""


def test_without_the_sdk_one_sentence_tells_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "mcp_types", None)
    with pytest.raises(UsageProblem, match="needs mcp") as problem:
        run_server(McpRequest(recordings=[tmp_path]))
    assert "pip install" in problem.value.hint
    assert list(TOOLS) == ["show", "finding", "compare", "check"]
