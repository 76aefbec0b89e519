"""A terminal that goes, and takes the reader of a pipe along, ends work in the order in which a signal does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import asyncio, pathlib, sys
from pgtop_tune.cli.headless import run_beside, run_engine
from pgtop_tune.cli.output import say, tell
from pgtop_tune.cli.signals import run_until_signalled

how, stream, kept = sys.argv[1:]
line = say if stream == "stdout" else tell

class Engine:
    async def run(self):
        await asyncio.sleep(60)

async def work():
    try:
        pathlib.Path(kept, "begun").touch()
        while True:
            if how != "silent":
                line("under way")
            await asyncio.sleep(0.05)
    finally:
        line("putting back")
        await asyncio.sleep(0.1)
        line("put back")
        pathlib.Path(kept, "put_back").touch()

if how == "alone":
    run_until_signalled(work())
else:
    received = asyncio.run(run_beside(Engine(), work))
    pathlib.Path(kept, "received").write_text(str(received.name))
"""


def begun(how: str, stream: str, kept: Path) -> subprocess.Popen[bytes]:
    """With one of its streams a pipe that nobody reads from now on."""
    reading, writing = os.pipe()
    words = [sys.executable, "-c", SCRIPT, how, stream, str(kept)]
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} | {stream: writing}
    process = subprocess.Popen(words, **streams)  # type: ignore[call-overload]
    os.close(writing)
    os.close(reading)
    return process  # type: ignore[no-any-return]


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("how", ["alone", "beside an engine"])
def test_lines_that_nobody_reads_end_the_work_which_puts_everything_back(how: str, stream: str, tmp_path: Path) -> None:
    begun(how, stream, tmp_path).wait(60)
    assert (tmp_path / "put_back").exists()
    assert how == "alone" or (tmp_path / "received").read_text() == "SIGPIPE"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_after_a_signal_they_neither_break_off_what_is_put_back_nor_count_as_a_second_one(
    stream: str, tmp_path: Path
) -> None:
    process = begun("silent", stream, tmp_path)
    while not (tmp_path / "begun").exists():
        assert process.poll() is None
    process.send_signal(signal.SIGHUP)
    process.wait(60)
    assert (tmp_path / "put_back").exists()
    assert (tmp_path / "received").read_text() == "SIGHUP"
