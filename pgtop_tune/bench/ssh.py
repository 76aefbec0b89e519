"""pgbench on another machine, through OpenSSH's client: it ends when the connection does.

One connection per run. What has to be secret (the password) and what has to be there (scripts) goes through its
standard input, never into a command line; the transaction log comes back through its standard output, into files of
this machine, where it is read as one that was written here. Nothing is installed over there: see far_side.sh.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.base.paths import content_of
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.bench.argv import LOG_NAME
from pgtop_tune.bench.locate import Pgbench, newest_usable, parse_version
from pgtop_tune.bench.messages import BoundedText, LineSplitter, lines_of
from pgtop_tune.bench.places import ClockOffset, RunDirectory, RunOrder, SshAddress, passfile_text, ssh_words
from pgtop_tune.bench.ports import far_environment
from pgtop_tune.bench.profiles import LONGEST_BYTES, Script
from pgtop_tune.model.host import NetworkLoad
from pgtop_tune.process.guarded_program import GuardedAsync, start_guarded_async

ROUND_TRIPS: Final = 5
ANSWER_TIMEOUT_S: Final = 30.0
BEAT_S: Final = 5.0
"""far_side.sh ends pgbench after 30 s without."""
GOODBYE_S: Final = 5.0
"""For the far side to end pgbench and clear up, before the connection is cut."""
PASSFILE: Final = "passfile"

_LOG_FILE: Final = re.compile(rf"{LOG_NAME}\.\d+(?:\.\d+)?")
_ODD: Final = re.compile(r"[^A-Za-z0-9._-]")
_CPU_TIME: Final = re.compile(rb"(\d+)m(\d+(?:\.\d+)?)s?")
_INTERFACE: Final = re.compile(
    rb"^(\d{1,15}\.\d\d) (\S{1,20}): *(\d{1,20}) +(\d{1,20})(?: +\d{1,20}){6} +(\d{1,20}) +(\d{1,20}) .*$", re.M
)
"""Seconds since the boot, and the line of an interface in /proc/net/dev."""
_SPEED: Final = re.compile(rb"^([1-9]\d{0,8})$", re.M)
_MOST_COUNTERS: Final = 4096
"""Bytes of counters that are kept in memory."""
_FAR_SIDE: Final = Path(__file__).parent / "far_side.sh"
_FAR_SEARCH: Final = Path(__file__).parent / "far_search.sh"
_HINT: Final = "ssh must log in without a prompt: test `ssh -o BatchMode=yes` to that machine"
_CONNECTION_LOST: Final = 255
_CHUNK: Final = 2**16


class SshRunning:
    """pgbench over there; fields and methods as in `Running`."""

    pid: int | None = None
    attempts_token = ""

    def __init__(self, guarded: GuardedAsync, inlet: int, directory: RunDirectory, mark: bytes, name: str) -> None:
        self.directory = directory.path
        self.clock: ClockOffset | None = None
        self.cpu_s: float | None = None
        self.network: NetworkLoad | None = None
        self._guarded = guarded
        self._inlet = inlet
        self._kept = directory
        self._mark = mark
        self._name = name
        self._beating: asyncio.Task[None] | None = None

    async def prepare(self, files: Sequence[tuple[str, bytes]]) -> None:
        """Measure the clock, bring the files, and let pgbench start.

        Raises:
            LoadProblem: The other side does not answer.
        """
        output = BoundedText()
        listening = asyncio.create_task(lines_of(self._guarded.stderr, output.add))
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                self.clock = min([await self._round_trip() for _ in range(ROUND_TRIPS)], key=lambda o: o.uncertain_ms)
                for name, content in files:
                    await self._say(f"file {name} {len(content)}\n".encode() + content)
                # From here on stderr is pgbench's.
                listening.cancel()
                await self._say(b"go\n")
        except (TimeoutError, EOFError, ConnectionError, ValueError) as problem:
            await self.stop()
            await asyncio.gather(listening, return_exceptions=True)
            message = one_line(output.text(), 300) or "no answer"
            raise LoadProblem(f"pgbench cannot be run on {self._name}: {message}", _HINT) from problem
        self._beating = asyncio.create_task(self._beat())

    async def follow(self, out: Callable[[str], None], err: Callable[[str], None]) -> int | None:
        """As in `Running`; the log is put into its files here."""
        await asyncio.gather(self._read(out), lines_of(self._guarded.stderr, err))
        status = await self._guarded.wait()
        self._hang_up()
        if status == _CONNECTION_LOST:
            err(f"the connection to {self._name} was lost")
        return status

    def signal(self, name: str) -> None:
        if self._inlet >= 0:
            try:
                os.write(self._inlet, f"{name}\n".encode())
            except (BrokenPipeError, BlockingIOError):
                pass

    async def stop(self) -> None:
        """As in `Running`: the far side ends pgbench when nobody holds its standard input any more."""
        self._hang_up()
        try:
            async with asyncio.timeout(GOODBYE_S):
                await self._guarded.wait()
        except TimeoutError:
            pass
        await self._guarded.stop()

    def kill(self) -> None:
        self._hang_up()
        self._guarded.process.kill()

    def remove(self) -> None:
        self._hang_up()
        self._kept.remove()

    def _hang_up(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
        if self._inlet >= 0:
            os.close(self._inlet)
            self._inlet = -1

    async def _beat(self) -> None:
        while True:
            self.signal("beat")
            await asyncio.sleep(BEAT_S)

    async def _say(self, content: bytes) -> None:
        """Write all of it, in a thread: the far side reads files slowly."""
        await asyncio.to_thread(_write_all, self._inlet, content)

    async def _round_trip(self) -> ClockOffset:
        before_s = time.time()
        await self._say(b"clock\n")
        parts = await self._our_line()
        after_s = time.time()
        text = parts[-1].decode("ascii", "replace")
        # A date without nanoseconds prints a letter there, or nothing.
        whole_seconds = not re.fullmatch(r"\d+\.\d+", text)
        there_s = int(re.split(r"\D", text)[0]) + 0.5 if whole_seconds else float(text)
        half_ms = (after_s - before_s) * 500.0
        return ClockOffset((there_s - before_s) * 1000.0 - half_ms, half_ms + (500.0 if whole_seconds else 0.0))

    async def _our_line(self) -> list[bytes]:
        """Return the words of the next line of the far side; what a login shell says before is passed over.

        Raises:
            EOFError: There is none.
        """
        while line := await self._guarded.stdout.readline():
            parts = line.split()
            if parts and parts[0] == self._mark:
                return parts[1:]
        raise EOFError

    async def _read(self, out: Callable[[str], None]) -> None:
        splitter = LineSplitter()

        def report(chunk: bytes) -> None:
            for line in splitter.feed(chunk):
                out(line)

        with ExitStack() as stack:
            files: dict[str, Callable[[bytes], object]] = {}
            while True:
                try:
                    kind, word, size = await self._our_line()
                    bytes_coming, name = int(size), word.decode("ascii")
                except (EOFError, ValueError):
                    break
                if kind in (b"cpu", b"net") and bytes_coming <= _MOST_COUNTERS:
                    parts: list[bytes] = []
                    await self._copy(bytes_coming, parts.append)
                    if kind == b"cpu":
                        self.cpu_s = _children_s(b"".join(parts))
                    else:
                        self.network = _traffic(b"".join(parts))
                    continue
                if kind != b"log" or not _LOG_FILE.fullmatch(name):
                    await self._copy(bytes_coming, report)
                    continue
                if name not in files:
                    # Not for appending: as pgbench does, so that what was read can be cut off.
                    files[name] = stack.enter_context((self.directory / name).open("wb", buffering=0)).write
                await self._copy(bytes_coming, files[name])
        for line in splitter.rest():
            out(line)

    async def _copy(self, size: int, take: Callable[[bytes], object]) -> None:
        while size > 0 and (chunk := await self._guarded.stdout.read(min(size, _CHUNK))):
            take(chunk)
            size -= len(chunk)


class SshPlace:
    """Another machine; methods as in `LoadPlace`.

    Args:
        address: Address of the machine.
        client: The ssh to use, with words of its own.
    """

    def __init__(self, address: SshAddress, client: Sequence[str] = ("ssh",)) -> None:
        self.name = str(address)
        self._address = address
        self._client = tuple(client)
        self._base = Path("/tmp")

    async def find(self, asked_for: Path | None, *, over_tls: bool) -> Pgbench:
        """As in `LoadPlace`; what is asked for is a path over there."""
        mark = f"pgtop-{secrets.token_hex(6)}"
        command = ["/bin/sh", "-c", _FAR_SEARCH.read_text(), "pgtop-tune", mark, str(asked_for or "")]
        try:
            guarded = await start_guarded_async(ssh_words(self._client, self._address, command), signal="TERM")
        except OSError as problem:
            raise LoadProblem(f"ssh cannot be started: {problem}", "install the OpenSSH client") from problem
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                stdout, stderr = await asyncio.gather(guarded.stdout.read(), guarded.stderr.read())
        except TimeoutError as problem:
            raise LoadProblem(f"{self.name} does not answer", _HINT) from problem
        finally:
            await guarded.stop()
        answer = stdout.decode("utf-8", "replace")
        candidates = self._found(answer, mark)
        if candidates is None:
            message = one_line(stderr.decode("utf-8", "replace"), 300) or "no answer"
            raise LoadProblem(f"{self.name} cannot be reached: {message}", _HINT)
        if not candidates:
            where = f"at {asked_for} on" if asked_for else "on"
            raise LoadProblem(
                f"no pgbench {where} {self.name}", "install pgbench there, or pass its path with --pgbench"
            )
        lacking = {
            line.partition(" without-tls ")[2] for line in answer.splitlines() if line.startswith(f"{mark} without")
        }
        return newest_usable(candidates, over_tls=over_tls, without_tls=lambda pgbench: str(pgbench.path) in lacking)

    def directory(self, local: Path) -> Path:
        # A name of its own: it may be the same machine, and the same /dev/shm.
        return self._base / f"{local.name}-there"

    def scripts(self, scripts: Sequence[Script], local: Path) -> tuple[Script, ...]:
        """As in `LoadPlace`: they are brought into the run's directory."""
        there = self.directory(local)
        return tuple(
            Script(there / _far_name(number, script), script.weight) for number, script in enumerate(scripts, 1)
        )

    async def start(self, order: RunOrder) -> SshRunning:
        try:
            files = [
                (_far_name(number, script), content_of(script.file, LONGEST_BYTES))
                for number, script in enumerate(order.scripts, 1)
            ]
        except OSError as problem:
            raise LoadProblem(f"a script cannot be read: {problem}") from problem
        password = order.endpoint.password
        if password is not None:
            files.insert(0, (PASSFILE, passfile_text(password).encode()))
        mark, there = f"pgtop-{secrets.token_hex(6)}", self.directory(order.directory)
        variables = far_environment(order.endpoint, there / PASSFILE if password is not None else None)
        program = ["env", *(f"{name}={value}" for name, value in variables.items()), *order.argv]
        host = order.endpoint.one_host
        command = ["/bin/sh", "-c", _FAR_SIDE.read_text(), "pgtop-tune", mark, str(there), host, *program]
        directory = RunDirectory(order.directory)
        try:
            running = await self._connected(command, directory, mark)
            await running.prepare(files)
        except BaseException:
            directory.remove()
            raise
        return running

    async def _connected(self, command: Sequence[str], directory: RunDirectory, mark: str) -> SshRunning:
        outlet, inlet = os.pipe()
        # The guard gives its child no standard input, and ssh needs one that ends with us.
        reads_ours = ["/bin/sh", "-c", f'exec "$@" </dev/fd/{outlet}', "sh"]
        try:
            guarded = await start_guarded_async(
                [*reads_ours, *ssh_words(self._client, self._address, command)],
                signal="TERM",
                grace_s=GOODBYE_S,
                remove=(directory.path,),
                pass_fds=(outlet,),
                limit=4 * _CHUNK,
            )
        except OSError as problem:
            os.close(inlet)
            raise LoadProblem(f"ssh cannot be started: {problem}", "install the OpenSSH client") from problem
        finally:
            os.close(outlet)
        return SshRunning(guarded, inlet, directory, mark.encode(), self.name)

    def _found(self, stdout: str, mark: str) -> list[Pgbench] | None:
        """Return the pgbenches that far_search.sh found; None when it did not run."""
        candidates: list[Pgbench] = []
        answered, path, cpus = False, "", 0
        for line in stdout.splitlines():
            first, _, fields = line.partition(" ")
            kind, _, value = fields.partition(" ")
            if first == mark and kind == "base":
                answered, self._base = True, Path(value)
            elif first == mark and kind == "cpus" and value.isdecimal():
                cpus = int(value)
            elif first == mark and kind == "pgbench":
                path = value
            elif path and (version := parse_version(line)):
                candidates.append(Pgbench(Path(path), *version, cpus=cpus))
        return candidates if answered else None


def _children_s(times: bytes) -> float | None:
    """Return the CPU time of the children of a shell from the output of `times`; None for another output."""
    parts = [_CPU_TIME.fullmatch(word) for word in times.split()[2:4]]
    seconds = [60.0 * int(part[1]) + float(part[2]) for part in parts if part is not None]
    return sum(seconds) if len(seconds) == 2 else None


def _traffic(content: bytes) -> NetworkLoad | None:
    """Return the traffic between two readings of an interface, with its speed in Mbit/s; None for another content."""
    readings = [(float(row[1]), row[2], [int(row[i]) for i in range(3, 7)]) for row in _INTERFACE.finditer(content)]
    if len(readings) != 2 or (length_s := readings[1][0] - readings[0][0]) <= 0:
        return None
    grown = [(after - before) / length_s for before, after in zip(readings[0][2], readings[1][2], strict=True)]
    if min(grown) < 0:
        # It came up again in between.
        return None
    speed = _SPEED.search(content)
    return NetworkLoad(
        interface=one_line(readings[1][1].decode("utf-8", "replace"), 20),
        received_bytes_per_s=grown[0],
        received_packets_per_s=grown[1],
        sent_bytes_per_s=grown[2],
        sent_packets_per_s=grown[3],
        speed_bits_per_s=1_000_000 * int(speed[1]) if speed else None,
    )


def _far_name(number: int, script: Script) -> str:
    return f"{number}-{_ODD.sub('_', script.file.name)}"


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]
