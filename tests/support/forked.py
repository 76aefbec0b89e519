"""The command line in a process that need not import the program anew: forked from one that has done so.

One that begins with nothing takes half a second of CPU for its imports, and the tests start many hundreds.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

PROGRAM: Final = "pgtop_tune"
_MOST_BYTES: Final = 1 << 17
_PID_DIGITS: Final = 10


def run_forked(
    words: Sequence[str], environment: Mapping[str, str], directory: Path, timeout_s: float
) -> subprocess.CompletedProcess[bytes]:
    """What `subprocess.run` would give for the program with these words, without a terminal and without stdin.

    Raises:
        subprocess.TimeoutExpired: It was killed.
    """
    ours, theirs = socket.socketpair()
    (out, its_out), (err, its_err) = os.pipe(), os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    order = json.dumps([list(words), dict(environment), str(directory)]).encode()
    try:
        socket.send_fds(_nursery(), [order], [nothing, its_out, its_err, theirs.fileno()])
    finally:
        theirs.close()
        for descriptor in (nothing, its_out, its_err):
            os.close(descriptor)
    deadline = time.monotonic() + timeout_s
    with ours, os.fdopen(out, "rb", 0) as out_file, os.fdopen(err, "rb", 0) as err_file:
        pid = int(ours.recv(_PID_DIGITS, socket.MSG_WAITALL))
        said: dict[int, bytearray] = {out: bytearray(), err: bytearray(), ours.fileno(): bytearray()}
        with selectors.DefaultSelector() as selector:
            for each in (out_file, err_file, ours):
                selector.register(each, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    os.kill(pid, signal.SIGKILL)
                    raise subprocess.TimeoutExpired([PROGRAM, *words], timeout_s, bytes(said[out]), bytes(said[err]))
                for key, _ in ready:
                    piece = os.read(key.fd, 1 << 16)
                    said[key.fd] += piece
                    if not piece:
                        selector.unregister(key.fileobj)
        status = int(said[ours.fileno()])
        return subprocess.CompletedProcess([PROGRAM, *words], status, bytes(said[out]), bytes(said[err]))


@cache
def _nursery() -> socket.socket:
    """The way to the process that forks; it ends with this one, which closes it.

    Its streams are of the kind that the program gets: Python remembers whether one can seek.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )  # fmt: skip
    return ours


def _serve(orders: socket.socket) -> None:
    package = importlib.import_module(PROGRAM)
    for module in pkgutil.walk_packages(package.__path__, f"{PROGRAM}."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)
    gc.collect()
    gc.freeze()
    while True:
        order, descriptors, _, _ = socket.recv_fds(orders, _MOST_BYTES, 4)
        while _ended():
            pass
        if not order:
            return
        if os.fork() == 0:
            orders.close()
            _attend(order, descriptors)
            return
        for each in descriptors:
            os.close(each)


def _ended() -> bool:
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def _attend(order: bytes, descriptors: Sequence[int]) -> None:
    """Forks the program, tells its process id and then its status; in the program itself it does not return."""
    *streams, teller = descriptors
    pid = os.fork()
    if pid == 0:
        os.close(teller)
        for number, each in enumerate(streams):
            os.dup2(each, number)
            os.close(each)
        words, environment, directory = json.loads(order)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(directory)
        sys.argv[1:] = words
        runpy.run_module(PROGRAM, run_name="__main__", alter_sys=True)
        sys.exit()
    for each in streams:
        os.close(each)
    with socket.socket(fileno=teller) as telling:
        telling.sendall(f"{pid:0{_PID_DIGITS}}".encode())
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        telling.sendall(str(status).encode())
    os._exit(0)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
