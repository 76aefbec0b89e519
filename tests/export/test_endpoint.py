"""The endpoint that Prometheus scrapes, over real sockets."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.export import endpoint
from pgtop_tune.export.endpoint import MOST_CONNECTIONS, PORT, Address, MetricsEndpoint, address, wanted_syntax
from pgtop_tune.export.openmetrics import Syntax

DEADLINE_S = 60.0
PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.fixture
def served() -> Iterator[MetricsEndpoint]:
    made = MetricsEndpoint(address("0"), lambda syntax: f"pgtop_up 1 {syntax.name}\n")
    yield made
    made.close()


def ask(
    served: MetricsEndpoint, method: str = "GET", path: str = "/metrics", accept: str = "*/*"
) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection(served.where.host, served.where.port, timeout=DEADLINE_S)
    connection.request(method, path, headers={"Accept": accept})
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read().decode()
    connection.close()
    return found


def plain(served: MetricsEndpoint) -> socket.socket:
    return socket.create_connection((served.where.host, served.where.port), timeout=DEADLINE_S)


def test_it_answers_get_and_head_on_one_path(served: MetricsEndpoint) -> None:
    status, headers, body = ask(served)
    assert (status, body) == (200, "pgtop_up 1 TEXT\n")
    assert headers["Content-Type"] == Syntax.TEXT.value
    status, headers, body = ask(served, "HEAD")
    assert (status, headers["Content-Length"], body) == (200, "16", "")
    assert ask(served, path="/metrics?x=1")[0] == 200
    assert [ask(served, path=path)[0] for path in ("/", "/metrics/", "/../metrics")] == [404, 404, 404]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_it_takes_nothing(served: MetricsEndpoint, method: str) -> None:
    status, headers, _ = ask(served, method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    ("accept", "syntax"),
    [
        (PROMETHEUS, Syntax.OPENMETRICS),
        ("application/openmetrics-text", Syntax.OPENMETRICS),
        ("application/openmetrics-text;q=0, text/plain", Syntax.TEXT),
        ("text/plain;q=0.9, application/openmetrics-text;q=0.1", Syntax.TEXT),
        ("*/*", Syntax.TEXT),
        ("", Syntax.TEXT),
        ("application/openmetrics-text;q=often", Syntax.TEXT),
    ],
)
def test_the_syntax_is_the_one_asked_for(served: MetricsEndpoint, accept: str, syntax: Syntax) -> None:
    assert wanted_syntax(accept) is syntax
    assert ask(served, accept=accept)[1]["Content-Type"] == syntax.value


@pytest.mark.parametrize(
    ("words", "where"),
    [
        ("19432", Address("127.0.0.1", 19432)),
        (":19432", Address("127.0.0.1", 19432)),
        ("127.0.0.1:19432", Address("127.0.0.1", 19432)),
        ("0.0.0.0:80", Address("0.0.0.0", 80)),
        ("[::1]:19432", Address("::1", 19432)),
        ("db1.example:19432", Address("db1.example", 19432)),
    ],
)
def test_an_address_without_a_host_is_for_this_machine_only(words: str, where: Address) -> None:
    assert address(words) == where
    assert where.is_loopback == (where.host in ("127.0.0.1", "::1"))


@pytest.mark.parametrize("words", ["", "localhost", "1:2:3", "[::1]", "127.0.0.1:99999", "127.0.0.1:x", "http://x:1"])
def test_other_words_are_refused(words: str) -> None:
    with pytest.raises(UsageProblem):
        address(words)


def test_an_address_in_use_is_told_in_one_sentence(served: MetricsEndpoint) -> None:
    with pytest.raises(UsageProblem, match=f"cannot listen on 127.0.0.1:{served.where.port}"):
        MetricsEndpoint(served.where, lambda syntax: "")


def refused(asking: socket.socket) -> bool:
    try:
        asking.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        return asking.recv(1) == b""
    except ConnectionError:
        return True


def until_nobody_is_connected(served: MetricsEndpoint) -> None:
    until_connected(served, 0)


def until_connected(served: MetricsEndpoint, count: int) -> None:
    """Waits until so many are: who has its answer is still counted for a moment."""
    deadline_s = time.monotonic() + DEADLINE_S
    while len(served._server._until_s) != count:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_those_who_do_not_ask_leave_room_for_others_until_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch, served: MetricsEndpoint
) -> None:
    monkeypatch.setattr(endpoint._Request, "timeout", DEADLINE_S)
    monkeypatch.setattr(endpoint, "_DEADLINE_S", DEADLINE_S)
    silent = [plain(served) for _ in range(MOST_CONNECTIONS - 1)]
    assert ask(served)[0] == 200
    until_connected(served, MOST_CONNECTIONS - 1)
    # The oldest of them makes room, however many come, and whatever they have sent.
    for _ in range(2 * MOST_CONNECTIONS):
        silent.append(plain(served))
        silent[-1].sendall(b"GET /metrics HTTP/1.1\r\n")
        assert ask(served)[0] == 200
    assert refused(silent[0])
    for each in silent:
        each.close()
    until_nobody_is_connected(served)
    assert ask(served)[0] == 200


@pytest.mark.parametrize(
    ("bound", "name", "status"),
    [
        ("127.0.0.1", "evil.example", 421),
        ("127.0.0.1", "127.0.0.1.evil.example:80", 421),
        ("127.0.0.1", socket.gethostname() + ".evil.example", 421),
        ("127.0.0.1", "", 421),
        ("127.0.0.1", "localhost:19432", 200),
        ("127.0.0.1", "LOCALHOST.", 200),
        ("127.0.0.1", "[::1]:1", 200),
        ("localhost", "localhost", 200),
        ("0.0.0.0", "10.0.0.7:19432", 200),
        ("0.0.0.0", socket.gethostname(), 200),
        ("0.0.0.0", "evil.example", 421),
    ],
)
def test_a_page_of_another_name_gets_no_numbers(bound: str, name: str, status: int) -> None:
    served = MetricsEndpoint(address(f"{bound}:0"), lambda syntax: "pgtop_up 1\n")
    try:
        connection = http.client.HTTPConnection("127.0.0.1", served.where.port, timeout=DEADLINE_S)
        connection.request("GET", "/metrics", headers={"Host": name})
        answer = connection.getresponse()
        assert (answer.status, "pgtop_up" in answer.read().decode()) == (status, status == 200)
        connection.close()
    finally:
        served.close()


def test_who_drips_is_ended(monkeypatch: pytest.MonkeyPatch, served: MetricsEndpoint) -> None:
    monkeypatch.setattr(endpoint, "_DEADLINE_S", 0.3)
    with plain(served) as dripping:
        dripping.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        deadline_s = time.monotonic() + DEADLINE_S
        ended = False
        while not ended and time.monotonic() < deadline_s:
            try:
                dripping.sendall(b"y")
                time.sleep(0.02)
            except OSError:
                ended = True
    assert ended


def test_who_goes_away_before_the_answer_is_not_told_of(capfd: pytest.CaptureFixture[str]) -> None:
    gone = threading.Event()

    def page(syntax: Syntax) -> str:
        gone.wait(DEADLINE_S)
        return "x" * 10_000_000

    made = MetricsEndpoint(address("0"), page)
    with plain(made) as asking:
        asking.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        asking.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        deadline_s = time.monotonic() + DEADLINE_S
        while not made._server._until_s and time.monotonic() < deadline_s:
            time.sleep(0.01)
    gone.set()
    until_nobody_is_connected(made)
    made.close()
    assert capfd.readouterr().err == ""


def test_nonsense_is_answered_or_ended_and_never_a_traceback(
    served: MetricsEndpoint, capfd: pytest.CaptureFixture[str]
) -> None:
    for words in (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"GET\r\n\r\n", b"GET " + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n"):
        with plain(served) as asking:
            try:
                asking.sendall(words)
                while asking.recv(4096):
                    pass
            except ConnectionError:
                pass
    assert ask(served)[0] == 200
    assert capfd.readouterr().err == ""


def test_it_closes_while_somebody_is_connected() -> None:
    made = MetricsEndpoint(address("0"), lambda syntax: "")
    with plain(made) as silent:
        silent.sendall(b"GET ")
        made.close()
        with contextlib.suppress(ConnectionResetError):
            assert silent.recv(1) == b""
        with pytest.raises(OSError):
            plain(made)


def test_help_and_guide_propose_one_port_that_is_no_exporters() -> None:
    root = Path(__file__).parents[2]
    pages = (
        root / "README.md",
        *(root / "docs").rglob("*.md"),
        root / "pgtop_tune/cli/commands/recordings/recording.py",
    )
    proposed = [found for page in pages for found in re.findall(r"--openmetrics (?:[\d.]+:)?(\d+)", page.read_text())]
    assert {*map(int, proposed)} == {PORT}
    assert not 9100 <= PORT <= 9999
