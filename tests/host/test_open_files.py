"""Who listens where, and how many files it may have open: against real sockets of real processes."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.base.paths import account_name
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.host.open_files import OpenFiles, listeners, parse_limit
from pgtop_tune.model.absence import Reason, Unavailable

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              unlimited            unlimited            seconds   
Max open files            {}                 {}              files     
Max locked memory         8388608              8388608              bytes     
"""  # noqa: W291


def test_the_limit_of_open_files_is_read_off_the_kernels_table() -> None:
    assert parse_limit(LIMITS.format(1024, 1048576)) == (1024, 1048576)
    assert parse_limit(LIMITS.format(1024, "unlimited")) == (1024, None)
    with pytest.raises(ValueError):
        parse_limit("Max cpu time  1 2 seconds")


@given(content=st.text() | st.builds(LIMITS.format, st.text(), st.text()))
def test_whatever_stands_there_is_a_pair_or_a_value_error(content: str) -> None:
    try:
        parse_limit(content)
    except ValueError:
        pass


def test_our_own_socket_is_ours_with_our_own_limits() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        for host in ("127.0.0.1", "localhost"):
            (found,) = listeners(host, port)  # type: ignore[misc]
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            assert found.pid == os.getpid()
            assert (found.soft, found.hard) == (soft, hard)
            assert 3 < found.now <= soft
    assert isinstance(listeners("127.0.0.1", port), Unavailable)


def test_a_limit_that_another_process_was_given_is_seen() -> None:
    code = (
        "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True);"
        "sys.stdin.read()"
    )
    command = ["prlimit", "--nofile=77:99", sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        (found,) = listeners("127.0.0.1", port)  # type: ignore[misc]
        assert (found.pid, found.soft, found.hard) == (process.pid, 77, 99)
        process.communicate("")


def test_the_postmaster_is_found_by_its_socket(server: Throwaway) -> None:
    found = listeners(str(server.socket_dir), server.port)
    assert not isinstance(found, Unavailable)
    assert server.postmaster_pid in {each.pid for each in found}
    assert {each.name for each in found} == {"postgres"}


def test_a_port_of_another_address_of_this_machine_is_another_one() -> None:
    with socket.socket() as listening, socket.socket() as everywhere:
        listening.bind(("127.0.0.2", 0))
        listening.listen()
        port = listening.getsockname()[1]
        assert isinstance(listeners("127.0.0.2", port), tuple)
        assert isinstance(listeners("127.0.0.1", port), Unavailable)
        everywhere.bind(("", 0))
        everywhere.listen()
        assert isinstance(listeners("127.0.0.2", everywhere.getsockname()[1]), tuple)


def test_an_address_of_this_machine_s_network_is_here() -> None:
    own = [
        entry.address
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family == socket.AF_INET and not entry.address.startswith("127.")
    ]
    if not own:
        pytest.skip("this machine has no network")
    with socket.create_server((own[0], 0)) as listening:
        assert isinstance(listeners(own[0], listening.getsockname()[1]), tuple)


def test_another_machine_and_a_port_nobody_listens_on_are_said_to_be_so() -> None:
    for host in ("db1.example", "192.0.2.7", ""):
        found = listeners(host, 5432)
        assert isinstance(found, Unavailable)
        assert found.reason is Reason.NOT_LOCAL


def test_a_process_that_is_not_ours_to_look_at_is_no_process_without_limit(tmp_path: Path) -> None:
    net = tmp_path / "proc/net"
    net.mkdir(parents=True)
    row = "   0: 0100007F:1920 00000000:0000 0A 00000000:00000000 00:00000000 00000000   999 0 4242 1 0 100 0 0 10 0\n"
    (net / "tcp").write_text("  sl  local_address rem_address\n" + row)
    (tmp_path / "proc/77/fd").mkdir(parents=True)
    found = listeners("127.0.0.1", 0x1920, tmp_path)
    assert isinstance(found, Unavailable)
    assert found.reason is Reason.NO_PERMISSION
    assert found.detail.startswith(f"only root and {account_name(999)} can see")
    os.symlink("socket:[4242]", tmp_path / "proc/77/fd/5")
    (tmp_path / "proc/77/limits").write_text(LIMITS.format(10, 20))
    (tmp_path / "proc/77/comm").write_text("pgbouncer\n")
    assert listeners("127.0.0.1", 0x1920, tmp_path) == (OpenFiles(77, "pgbouncer", 10, 20, 1),)
