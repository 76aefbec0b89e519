"""`conninfo.resolve` in a short-lived child process, so that this process need not load libpq to resolve an address.

libpq and psycopg take a tenth of a second to load, and 11 MB of memory; a session that only watches has no other use
for them. The child is a fork: it has the options and the password without a copy in a file, and its answer comes
through a private pipe. This process continues in between.

If the child dies, this process resolves the address itself.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
import time
from typing import Any, Final, NoReturn

from pgtop_tune.base.errors import ConnectionProblem, UsageProblem
from pgtop_tune.base.secret import Secret
from pgtop_tune.postgres.server.conninfo import ConnInfo, from_json, resolve
from pgtop_tune.process.dispositions import reset_in_fork

DEADLINE_S: Final = 20
"""Time limit: longer than a service file in LDAP, or the mount of a home directory, takes."""
_MARGIN_S: Final = 1.0
"""Additional wait for a child that reads from a dead file server, which not even its own alarm can end."""
_CHUNK_BYTES: Final = 65_536
_WHOLE: Final = b"\n"
"""End of a complete answer, which is missing if the child was killed while it wrote."""


class Resolving:
    """A call of `resolve` in a child, which begins with the construction of this object.

    Where a fork is not safe, because of other threads or of the system's libraries (macOS), `answer` resolves in this
    process.
    """

    def __init__(
        self, target: str = "", *, host: str = "", port: str = "", user: str = "", password: Secret | None = None
    ) -> None:
        self._target = target
        self._words: dict[str, Any] = {"host": host, "port": port, "user": user, "password": password}
        self._child: tuple[int, int] | None = None
        if sys.platform != "darwin" and threading.active_count() == 1:
            self._begin()

    @property
    def ready(self) -> bool:
        """Return whether `answer` need not wait for the child."""
        return self._child is None or bool(select.select([self._child[1]], [], [], 0.0)[0])

    def answer(self) -> ConnInfo:
        """Wait for the result.

        Raises:
            UsageProblem: As `resolve` does.
            ConnectionProblem: There was no answer in time.
        """
        if self._child is None:
            return self._here()
        pid, reading = self._child
        self._child = None
        try:
            answer = _all_of(reading)
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            raise
        finally:
            os.close(reading)
        status = _status_of(pid)
        if answer.endswith(_WHOLE):
            return _understood(json.loads(answer))
        if status == -signal.SIGALRM:
            raise _too_late()
        return self._here()

    def _here(self) -> ConnInfo:
        return resolve(self._target, **self._words)

    def _begin(self) -> None:
        reading, writing = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(reading)
            os.close(writing)
            return
        if pid == 0:
            self._be_child(writing)
        os.close(writing)
        self._child = pid, reading

    def _be_child(self, writing: int) -> NoReturn:
        """Write the answer and exit, without the exit handlers of the parent."""
        try:
            reset_in_fork()
            signal.alarm(DEADLINE_S)
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nowhere, stream)
            with open(writing, "wb") as pipe:
                pipe.write(json.dumps(self._said()).encode() + _WHOLE)
            os._exit(0)
        finally:
            os._exit(1)

    def _said(self) -> dict[str, Any]:
        try:
            conninfo = self._here()
        except UsageProblem as problem:
            return {"refused": [problem.message, problem.hint]}
        return conninfo.as_json()


def _all_of(reading: int) -> bytes:
    answer = b""
    deadline_s = time.monotonic() + DEADLINE_S + _MARGIN_S
    while select.select([reading], [], [], max(deadline_s - time.monotonic(), 0.0))[0]:
        chunk = os.read(reading, _CHUNK_BYTES)
        if not chunk:
            return answer
        answer += chunk
    raise _too_late()


def _status_of(pid: int) -> int:
    """Return the exit status of a child, negative for a signal."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        # SIGCHLD was set to be ignored by our parent, so the kernel does not keep the status.
        return 0


def _too_late() -> ConnectionProblem:
    return ConnectionProblem(
        f"libpq did not resolve the connection options within {DEADLINE_S} s",
        "a service file, a .pgpass or a key directory may be on a file server that does not answer; "
        "set PGSERVICEFILE and PGPASSFILE to local files",
    )


def _understood(answer: dict[str, Any]) -> ConnInfo:
    if "refused" in answer:
        raise UsageProblem(*answer["refused"])
    return from_json(answer)
