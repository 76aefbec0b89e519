"""Ports for outgoing connections: as the kernel has them, and as it really gives them out."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pgtop_tune.host.open_files import EphemeralPorts, ephemeral_ports
from pgtop_tune.model.absence import Unavailable

CONNECTING = """
import socket, threading
from pathlib import Path

ipv4 = Path("/proc/sys/net/ipv4")
(ipv4 / "ip_local_port_range").write_text("40000 40049")
(ipv4 / "tcp_tw_reuse").write_text("2")
from pgtop_tune.host.open_files import ephemeral_ports

listener = socket.create_server(("", 5000), backlog=200)

def serve():
    while True:
        with listener.accept()[0] as client:
            client.recv(1)

threading.Thread(target=serve, daemon=True).start()
done = 0
try:
    for _ in range(200):
        socket.create_connection(("10.9.8.7", 5000)).close()
        done += 1
except OSError as refusal:
    print(ephemeral_ports(), done, refusal.strerror)
"""


def test_the_kernel_s_range_and_rule_are_read() -> None:
    found = ephemeral_ports()
    assert isinstance(found, EphemeralPorts)
    assert 0 < found.count < 65_536
    assert found.reuse in (0, 1, 2)


def test_without_them_nothing_is_said(tmp_path: Path) -> None:
    assert isinstance(ephemeral_ports(tmp_path), Unavailable)


@pytest.mark.root
@pytest.mark.skipif(not shutil.which("ip"), reason="no iproute2")
def test_so_many_connections_are_made_before_ports_rest(tmp_path: Path) -> None:
    """In a network of our own, towards an address that is not the loopback interface's."""
    network = 'ip link set lo up && ip addr add 10.9.8.7/32 dev lo && exec "$@"'
    ran = subprocess.run(
        ["unshare", "-n", "sh", "-c", network, "-", sys.executable, "-c", CONNECTING],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if ran.returncode and "unshare" in ran.stderr:
        pytest.skip("a network of our own is not allowed here")
    # On a full machine the kernel now and then takes a port or two again at once.
    told = r"EphemeralPorts\(count=50, reuse=2\) 5\d Cannot assign requested address"
    assert re.fullmatch(told, ran.stdout.strip()), ran.stdout + ran.stderr
