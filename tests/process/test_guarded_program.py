"""The parent's side of the guard: pid, status, streams, and problems told as Popen would."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from pgtop_tune.process.guarded_program import start_guarded, start_guarded_async
from tests.support.processes import alive


def test_pid_is_the_programs_own() -> None:
    guarded = start_guarded(["sh", "-c", "echo $$; exec sleep 60"], stdout=subprocess.PIPE)
    assert guarded.process.stdout is not None
    assert int(guarded.process.stdout.readline()) == guarded.pid
    assert guarded.returncode is None
    assert guarded.stop() == 128 + signal.SIGINT
    assert guarded.returncode == 128 + signal.SIGINT
    assert not alive(guarded.pid)


def test_a_program_that_is_not_there_is_told_by_its_name() -> None:
    with pytest.raises(FileNotFoundError) as caught:
        start_guarded(["no-such-program"])
    assert caught.value.filename == "no-such-program"


def test_a_file_that_is_no_program_is_told(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("x")
    with pytest.raises(PermissionError):
        start_guarded([str(text)])


def test_what_cannot_work_is_refused_before_it_starts() -> None:
    with pytest.raises(ValueError, match="BOGUS"):
        start_guarded(["true"], signal="BOGUS")
    with pytest.raises(ValueError, match="absolute"):
        start_guarded(["true"], remove=[Path("here")])
    with pytest.raises(ValueError, match="together"):
        start_guarded(["true"], uid=1)


def test_waiting_too_long_leaves_the_program_running() -> None:
    guarded = start_guarded(["sleep", "60"])
    with pytest.raises(TimeoutError):
        guarded.wait(0.05)
    assert alive(guarded.pid)
    guarded.stop()


def test_signals_to_a_program_that_has_ended_do_nothing() -> None:
    guarded = start_guarded(["true"])
    guarded.wait(60)
    for _ in range(3):
        guarded.send_signal("INT")
    assert guarded.stop() == 0
    assert guarded.stop() == 0


def test_environment_and_directory_reach_the_program(tmp_path: Path) -> None:
    script = "pwd; echo $WORD"
    guarded = start_guarded(["sh", "-c", script], stdout=subprocess.PIPE, env={"WORD": "a b"}, cwd=tmp_path)
    assert guarded.process.stdout is not None
    assert guarded.process.stdout.read() == f"{tmp_path}\na b\n".encode()
    guarded.wait(60)
    guarded.stop()


async def test_streams_of_an_event_loop() -> None:
    guarded = await start_guarded_async(["sh", "-c", "echo out; echo err >&2; exit 4"])
    assert await guarded.stdout.read() == b"out\n"
    assert await guarded.stderr.read() == b"err\n"
    assert await guarded.wait() == 4
    assert await guarded.stop() == 4


async def test_a_program_nobody_listens_to_can_be_stopped() -> None:
    # With so small a limit the first chunk makes asyncio stop reading.
    guarded = await start_guarded_async(["yes"], limit=16)
    assert await guarded.stdout.readline() == b"y\n"
    async with asyncio.timeout(40):
        await guarded.stop(60)
    assert not alive(guarded.pid)


async def test_a_reader_sees_the_end_while_the_program_is_stopped() -> None:
    guarded = await start_guarded_async(["sh", "-c", "echo one; exec sleep 60"])
    assert await guarded.stdout.readline() == b"one\n"
    reader = asyncio.create_task(guarded.stdout.readline())
    await asyncio.sleep(0)
    assert await guarded.stop() == 128 + signal.SIGINT
    assert await reader == b""


async def test_an_event_loop_is_told_what_cannot_be_started() -> None:
    with pytest.raises(FileNotFoundError):
        await start_guarded_async(["no-such-program"])


def test_an_event_loop_in_a_thread_can_start_and_stop_programs() -> None:
    statuses: list[int] = []

    async def run() -> None:
        guarded = await start_guarded_async(["sleep", "60"])
        guarded.send_signal("TERM")
        statuses.append(await guarded.wait())
        await guarded.stop()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    thread.join(10)
    assert statuses == [128 + signal.SIGTERM]
