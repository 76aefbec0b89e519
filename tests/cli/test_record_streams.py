"""`record` into what is no file, into a name that stays free where no server stood, and onto a full disk."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.server import WAL_BYTES
from pgtop_tune.model.events import EventKind
from tests.cli.runs import PROGRAM, ROOT, environment, run
from tests.support.accounts import require_root
from tests.support.processes import eventually
from tests.support.recordings import read
from tests.support.servers import conninfo
from tests.terminal.screen import Terminal
from tests.terminal.screen import environment as terminal_environment

RECORD = ("record", "-i", "0.2", "--seconds", "2")
NOBODY = ("-h", "127.0.0.1", "-p", "1")


def shell(words: str, home: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs words of a shell, in which $P is the program."""
    variables = environment(home, P=" ".join(PROGRAM), **more)
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90,
        env=variables, cwd=ROOT, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("output", ["-", "/dev/stdout"])
def test_standard_output_takes_a_recording_that_replay_reads(output: str, server: Throwaway, tmp_path: Path) -> None:
    words = f'$P {" ".join(RECORD)} -o {output} "$TARGET" | $P replay --lines -'
    done = shell(words, tmp_path, TARGET=conninfo(server))
    assert (done.returncode, done.stderr) == (0, "")
    heading, *lines = done.stdout.splitlines()
    assert heading.split()[:2] == ["time", "tps"]
    assert len(lines) >= 5


def test_a_recording_appended_to_a_file_by_the_shell_leaves_what_stood_there(server: Throwaway, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("what stood there\n")
    done = shell(f'$P {" ".join(RECORD)} -o - "$TARGET" >> {file}', tmp_path, TARGET=conninfo(server))
    assert (done.returncode, done.stderr) == (0, "")
    before, recording = file.read_text().split("\n", 1)
    assert before == "what stood there"
    file.write_text(recording)
    assert len(read(file)[0]) >= 5


def test_a_reader_that_leaves_ends_a_recording_as_sigpipe_does(server: Throwaway, tmp_path: Path) -> None:
    done = shell('$P record -o - "$TARGET" | head -c 100 > /dev/null', tmp_path, TARGET=conninfo(server))
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_devices_are_written_to_and_stay_what_they_are(server: Throwaway, tmp_path: Path) -> None:
    null = tmp_path / "null"
    null.symlink_to("/dev/null")
    ran = run(*RECORD, "-q", "-o", str(null), conninfo(server), home=tmp_path)
    assert ran.status == 0, ran.err
    assert ran.err.endswith(f" frames in {null}\n")
    assert run(*RECORD, "-q", "-o", str(null), *NOBODY, home=tmp_path).status == 3
    assert null.is_symlink()
    assert Path("/dev/null").is_char_device()
    full = run(*RECORD, "-q", "-o", "/dev/full", conninfo(server), home=tmp_path)
    assert full.status == 5
    assert "No space left on device: cannot write /dev/full" in full.err
    assert "Traceback" not in full.err


def test_a_pipe_that_nobody_reads_stops_neither_looking_nor_leaving(server: Throwaway, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    errors = tmp_path / "errors"
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            [*PROGRAM, "record", "-i", "0.2", "-o", "-", conninfo(server)],
            stdin=subprocess.DEVNULL, stdout=writing, stderr=stderr, env=environment(tmp_path), cwd=ROOT,
        )  # fmt: skip
    os.close(writing)
    beside = os.open(f"/proc/self/fd/{reading}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        assert eventually(lambda: bool(select.select([reading], [], [], 0.0)[0])), errors.read_text()
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(beside, bytes(4096))
        assert eventually(lambda: "frames are lost" in errors.read_text()), errors.read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 5
    finally:
        process.kill()
        process.wait()
        os.close(reading)
        os.close(beside)
    assert "the reader of the pipe is too slow" in errors.read_text()


def test_a_terminal_takes_no_recording(tmp_path: Path) -> None:
    with Terminal(
        (sys.executable, "-m", "pgtop_tune", "record", "-o", "-"), terminal_environment(tmp_path)
    ) as terminal:
        assert terminal.wait() == 2
        terminal.until("pgtop-tune record -o - | pgtop-tune replay -")


def test_a_recording_without_a_server_leaves_its_name_to_the_next_try(server: Throwaway, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    ran = run(*RECORD, "-q", "-o", str(path), *NOBODY, home=tmp_path)
    assert ran.status == 3
    assert f"never answered; {path} was empty and has been removed" in ran.err
    assert not path.exists()
    again = run(*RECORD, "-q", "-o", str(path), conninfo(server), home=tmp_path)
    assert again.status == 0, again.err
    before = path.read_bytes()
    assert run(*RECORD, "-q", "-o", str(path), *NOBODY, home=tmp_path).status == 5
    assert path.read_bytes() == before, "a recording that stood there is none of ours"


@pytest.mark.parametrize("more", [("-d", "no_such"), ("--theme", "no-such")])
def test_a_screen_that_never_saw_its_server_leaves_the_name_too(
    more: tuple[str, ...], server: Throwaway, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    words = ("--record", str(path), "-h", str(server.socket_dir), "-U", server.user, *more)
    with Terminal((sys.executable, "-m", "pgtop_tune", *words), terminal_environment(tmp_path)) as terminal:
        assert terminal.wait() in (2, 3)
    assert not path.exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 200 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(disk)]
    require_root()
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.root
def test_a_recording_that_begins_on_a_full_disk_promises_nothing(
    small_disk: Path, server: Throwaway, tmp_path: Path
) -> None:
    with contextlib.suppress(OSError), (small_disk / "others").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    place = small_disk / "a.jsonl.gz"
    ran = run(*RECORD, "-q", "-o", str(place), conninfo(server), home=tmp_path)
    assert ran.status == 5
    assert "No space left on device" in ran.err
    assert "nothing was recorded" in ran.err
    assert "readable" not in ran.err


@pytest.mark.root
def test_frames_lost_to_a_full_disk_are_counted_while_it_lasts_at_the_end_and_in_the_file(
    small_disk: Path, server: Throwaway, tmp_path: Path
) -> None:
    path, ballast, errors = small_disk / "a.jsonl", small_disk / "ballast", tmp_path / "errors"
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            [*PROGRAM, "record", "-q", "-i", "0.2", "-o", str(path), conninfo(server)],
            stdin=subprocess.DEVNULL, stderr=stderr, env=environment(tmp_path), cwd=ROOT,
        )  # fmt: skip
    try:
        assert eventually(lambda: path.exists() and path.stat().st_size > 10_000), errors.read_text()
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        assert eventually(lambda: "frames are lost so far" in errors.read_text()), errors.read_text()
        ballast.unlink()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, errors.read_text()
    finally:
        process.kill()
        process.wait()
    said = errors.read_text()
    assert "frames are lost until the recording can be written: No space left on device" in said
    frames = read(path)[0]
    (event,) = (event for frame in frames for event in frame.events if event.kind is EventKind.RECORDING)
    missing = int(event.text.split()[0])
    assert event.text == f"{missing} frames not recorded"
    first = next(at for at, frame in enumerate(frames) if event in frame.events)
    assert WAL_BYTES(Interval(frames[: first + 1])) is None, "a hole, no mean over what is missing"
    assert f"; {missing} frames are missing" in said.splitlines()[-1]
    assert frames[-1].sequence + 1 >= len(frames) + missing
