"""Starting a program under the guard (see process/guard.py): it ends with us, also when we are killed.

`start_guarded` for ordinary code, `start_guarded_async` for code in an event loop. Both give back an object that
knows the program's own process id, passes signals on, and ends it in order.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from pgtop_tune.process import guard
from pgtop_tune.process.own_program import file_argv

Output = int | IO[bytes] | None
"""Where a stream of the program goes: subprocess.PIPE, DEVNULL, STDOUT, an open file, or None to share ours."""

_MARGIN_S: Final = 2 * guard.LAST_GRACE_S + 1.0
"""Seconds that the guard may need beyond the grace: for its last grace, orphans, and removing directories."""


class Guarded:
    """A program under the guard.

    Attributes:
        pid: The program's process id (not the guard's).
        process: The guard; its streams are the program's, its return code is the program's, 128 + n where signal
            n ended it.
    """

    def __init__(self, process: subprocess.Popen[bytes], pid: int, grace_s: float) -> None:
        self.process = process
        self.pid = pid
        self._grace_s = grace_s

    @property
    def returncode(self) -> int | None:
        """The program's status, None while it runs."""
        return self.process.poll()

    def send_signal(self, name: str) -> None:
        """Pass a signal such as "INT" on to the program; nothing happens when it has ended.

        Raises:
            ValueError: No such signal.
        """
        pipe = self.process.stdin
        if pipe is None or pipe.closed:
            return
        try:
            pipe.write(_word(name))
            pipe.flush()
        except BrokenPipeError:
            pass

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for the program to end by itself; its status.

        Raises:
            TimeoutError: It still runs.
        """
        try:
            # Not communicate() and not Popen.wait() in a with block: both would close the pipe and end the program.
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"process {self.pid} still runs after {timeout_s} s") from None

    def stop(self, timeout_s: float | None = None) -> int:
        """End the program in order and waits for it to be gone; its status.

        Args:
            timeout_s: When this is over the guard is killed, and the program with it. None: what the guard's own
                steps may take.
        """
        _close(self.process.stdin)
        try:
            status = self.process.wait(self._grace_s + _MARGIN_S if timeout_s is None else timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            _close(stream)
        return status


class GuardedAsync:
    """A program under the guard, in an event loop.

    Attributes:
        pid: The program's process id (not the guard's).
        process: The guard.
    """

    def __init__(self, process: asyncio.subprocess.Process, pid: int, grace_s: float) -> None:
        self.process = process
        self.pid = pid
        self._grace_s = grace_s

    @property
    def stdout(self) -> asyncio.StreamReader:
        """The program's standard output, which must have been asked for as PIPE."""
        assert self.process.stdout is not None
        return self.process.stdout

    @property
    def stderr(self) -> asyncio.StreamReader:
        """The program's standard error, which must have been asked for as PIPE."""
        assert self.process.stderr is not None
        return self.process.stderr

    @property
    def returncode(self) -> int | None:
        """The program's status, None while it runs."""
        return self.process.returncode

    def send_signal(self, name: str) -> None:
        """Pass a signal such as "INT" on to the program; nothing happens when it has ended.

        Raises:
            ValueError: No such signal.
        """
        pipe = self.process.stdin
        if pipe is not None and not pipe.is_closing():
            pipe.write(_word(name))

    async def wait(self) -> int:
        """Wait for the program to end by itself; its status, 128 + n where signal n ended it.

        Its streams must be read meanwhile, or it may wait for us as well.
        """
        return await self.process.wait()

    async def stop(self, timeout_s: float | None = None) -> int:
        """End the program in order and waits for it to be gone; its status. See Guarded.stop.

        Unread output is thrown away: asyncio would not see the end behind a full pipe.
        """
        if self.process.stdin is not None:
            self.process.stdin.close()
        drains = [
            asyncio.ensure_future(_drain(stream)) for stream in (self.process.stdout, self.process.stderr) if stream
        ]
        try:
            async with asyncio.timeout(self._grace_s + _MARGIN_S if timeout_s is None else timeout_s):
                return await self.process.wait()
        except TimeoutError:
            try:
                self.process.kill()
            except ProcessLookupError:
                pass
            return await self.process.wait()
        finally:
            for drain in drains:
                drain.cancel()


def start_guarded(
    argv: Sequence[str],
    *,
    signal: str = "INT",
    then: str = "KILL",
    grace_s: float = 5.0,
    remove: Sequence[Path] = (),
    remove_on_exit: bool = False,
    uid: int | None = None,
    gid: int | None = None,
    stdout: Output = None,
    stderr: Output = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    pass_fds: Sequence[int] = (),
) -> Guarded:
    """Start a program under the guard; returns when it runs.

    Args:
        argv: Program and arguments; the program is looked for in PATH when it has no slash.
        signal: What asks it to end, when we stop it or are gone; "INT", "TERM", …
        then: Sent where that did not help within grace_s; also what it gets when the guard itself is killed.
        remove: Directories removed after an end we asked for; absolute, and only with a file guard.MARKER in them.
        remove_on_exit: Remove them also when the program ends by itself.
        uid: User to run as (needs root); gid must be given with it.
        pass_fds: Further open files the program inherits.

    Raises:
        OSError: The program cannot be started, as Popen would raise it.
        ValueError: Unknown signal, a relative directory, uid without gid.
    """
    reading, writing = os.pipe()
    try:
        try:
            process = subprocess.Popen(
                _guard_argv(argv, signal, then, grace_s, remove, remove_on_exit, uid, gid, writing),
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
                env=env,
                cwd=cwd,
                pass_fds=(*pass_fds, writing),
                start_new_session=True,
            )
        finally:
            os.close(writing)
        guarded = Guarded(process, 0, grace_s)
        try:
            guarded.pid = _pid(_read_line(reading), argv[0])
        except BaseException:
            guarded.stop()
            raise
        return guarded
    finally:
        os.close(reading)


async def start_guarded_async(
    argv: Sequence[str],
    *,
    signal: str = "INT",
    then: str = "KILL",
    grace_s: float = 5.0,
    remove: Sequence[Path] = (),
    remove_on_exit: bool = False,
    uid: int | None = None,
    gid: int | None = None,
    stdout: Output = subprocess.PIPE,
    stderr: Output = subprocess.PIPE,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    pass_fds: Sequence[int] = (),
    limit: int = 2**16,
) -> GuardedAsync:
    """Start a program under the guard; as start_guarded, with streams for the event loop.

    Args:
        limit: Longest line in bytes the stream readers take.

    Raises:
        OSError: The program cannot be started, as Popen would raise it.
        ValueError: Unknown signal, a relative directory, uid without gid.
    """
    reading, writing = os.pipe()
    try:
        try:
            process = await asyncio.create_subprocess_exec(
                *_guard_argv(argv, signal, then, grace_s, remove, remove_on_exit, uid, gid, writing),
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
                env=env,
                cwd=cwd,
                pass_fds=(*pass_fds, writing),
                start_new_session=True,
                limit=limit,
            )
        finally:
            os.close(writing)
        guarded = GuardedAsync(process, 0, grace_s)
        try:
            guarded.pid = _pid(await _read_line_async(reading), argv[0])
        except BaseException:
            await asyncio.shield(guarded.stop())
            raise
        return guarded
    finally:
        os.close(reading)


def _guard_argv(
    argv: Sequence[str],
    first: str,
    then: str,
    grace_s: float,
    remove: Sequence[Path],
    remove_on_exit: bool,
    uid: int | None,
    gid: int | None,
    pid_fd: int,
) -> list[str]:
    guard.signal_number(first)
    guard.signal_number(then)
    if (uid is None) != (gid is None):
        raise ValueError("uid and gid go together")
    options = ["--signal", first, "--then", then, "--grace", str(grace_s), "--pid-fd", str(pid_fd)]
    for directory in remove:
        if not directory.is_absolute():
            raise ValueError(f"not an absolute path: {directory}")
        options += ["--remove", str(directory)]
    if remove_on_exit:
        options.append("--remove-on-exit")
    if uid is not None:
        options += ["--user", f"{uid}:{gid}"]
    return [*file_argv(guard.__file__), *options, "--", *argv]


def _word(name: str) -> bytes:
    return signal.Signals(guard.signal_number(name)).name.encode() + b"\n"


def _read_line(fd: int) -> str:
    line = b""
    while not line.endswith(b"\n"):
        chunk = os.read(fd, 64)
        if not chunk:
            break
        line += chunk
    return line.decode()


async def _read_line_async(fd: int) -> str:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(fd, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(fd)
    # The guard writes its one line at once, so this does not wait.
    return _read_line(fd)


async def _drain(stream: asyncio.StreamReader) -> None:
    try:
        while await stream.read(2**16):
            pass
    except (RuntimeError, OSError):
        # Another task reads it to its end.
        return


def _pid(line: str, program: str) -> int:
    kind, _, detail = line.strip().partition(" ")
    if kind == "error":
        raise OSError(int(detail), os.strerror(int(detail)), program)
    if not kind:
        raise OSError(errno.ECHILD, "the guard process ended before the program started", program)
    return int(kind)


def _close(stream: IO[bytes] | None) -> None:
    if stream is None:
        return
    try:
        stream.close()
    except BrokenPipeError:
        pass
