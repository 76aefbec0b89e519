"""GET /metrics: Python's own HTTP server with limits, and its page.

A framework would be another dependency for one page. http.server lacks limits of connections and of their time, and
looks names up; this module mends that.
"""

from __future__ import annotations

import re
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.export.catalogue import for_openmetrics
from pgtop_tune.export.exported import Exported, ExportedPoint, WatchedInterval
from pgtop_tune.export.openmetrics import END, Syntax, head, line, page
from pgtop_tune.export.rows import UP, of_statements
from pgtop_tune.runtime.frame_window import FrameWindow

if TYPE_CHECKING:
    from pgtop_tune.model.frame import Frame
    from pgtop_tune.runtime.ports import Step


PATH: Final = "/metrics"
LOOPBACK: Final = "127.0.0.1"
PORT: Final = 19432
"""The proposed port: outside 9100 to 9999, which Prometheus' list of default ports gives to exporters, and below the
ports that Linux gives to clients."""
MOST_CONNECTIONS: Final = 8
_PATIENCE_S: Final = 5.0
"""Limit of one read or write."""
_DEADLINE_S: Final = 15.0
"""Limit of a connection."""
_POLL_S: Final = 0.2
_ADDRESS: Final = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\[\]:]*):)?(?P<port>[0-9]{1,5})\Z")
_OPENMETRICS: Final = "application/openmetrics-text"
_OLD: Final = "text/plain"
_ANY: Final = (_OLD, "text/*", "*/*")


class Address(Struct, frozen=True):
    """An address to listen on; port 0 is any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Return True where only this machine reaches it."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")


def address(text: str) -> Address:
    """Return an address: "19432" for this machine alone, "127.0.0.1:19432", "[::1]:19432", "0.0.0.0:19432".

    Raises:
        UsageProblem: The text is no address.
    """
    match = _ADDRESS.match(text.strip())
    if match is None or int(match["port"]) > 65_535:
        raise UsageProblem(f"{text} is not an address to listen on", f"use {LOOPBACK}:{PORT}, or a port alone")
    return Address((match["host"] or LOOPBACK).strip("[]"), int(match["port"]))


def is_ours(name: str, where: Address) -> bool:
    """Return True for a Host header of this endpoint.

    A page in a browser can make its own name resolve to our address (DNS rebinding), and would read the numbers.
    Addresses, the operator's name and the name of this machine, where others reach us, are safe.

    Args:
        name: The header, with or without a port.
        where: The address of the option.
    """
    host = (name.strip().rpartition("]")[0] or name.strip().partition(":")[0]).strip("[").rstrip(".").lower()
    if host in ("localhost", where.host.lower()) or _is_number(host):
        return True
    here = socket.gethostname().lower()
    return not where.is_loopback and (host == here or host.startswith(f"{here.partition('.')[0]}."))


def _is_number(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def wanted_syntax(accept: str) -> Syntax:
    """Return the syntax of an Accept header: OpenMetrics where the header names it and prefers no other."""
    weights = {_OPENMETRICS: 0.0, _OLD: 0.0}
    for media_range in accept.lower().split(","):
        kind, *parameters = (part.strip() for part in media_range.split(";"))
        weight = next((_weight(part[2:]) for part in parameters if part.startswith("q=")), 1.0)
        kind = _OLD if kind in _ANY else kind
        if kind in weights:
            weights[kind] = max(weights[kind], weight)
    return Syntax.OPENMETRICS if 0 < weights[_OPENMETRICS] >= weights[_OLD] else Syntax.TEXT


def _weight(word: str) -> float:
    try:
        return min(max(float(word), 0.0), 1.0)
    except ValueError:
        return 0.0


class MetricsEndpoint:
    """A server in threads of its own, which listens until it is closed.

    Args:
        page: Returns the text for a syntax; called from several threads.

    Attributes:
        where: Its address, with the actual port.

    Raises:
        UsageProblem: The address cannot be used.
    """

    def __init__(self, where: Address, page: Callable[[Syntax], str]) -> None:
        try:
            self._server = _Server(where, page)
        except OSError as problem:
            hint = "pass an address of this machine and a free port"
            raise UsageProblem(f"cannot listen on {where}: {problem.strerror or problem}", hint) from None
        self.where: Final = Address(where.host, self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_POLL_S,), name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening, and end the connections."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 16

    def __init__(self, where: Address, page: Callable[[Syntax], str]) -> None:
        self.page = page
        self.where = where
        self._lock = threading.Lock()
        self._until_s: dict[socket.socket, float] = {}
        if ":" in where.host:
            self.address_family = socket.AF_INET6
        super().__init__((where.host, where.port), _Request)

    def server_bind(self) -> None:
        # HTTPServer's own asks the name service for our name, and waits for it.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Take every connection; too many end the oldest one, so that slow clients shut no other out."""
        with self._lock:
            oldest = next(iter(self._until_s)) if len(self._until_s) >= MOST_CONNECTIONS else None
            if oldest is not None:
                del self._until_s[oldest]
            self._until_s[request] = time.monotonic() + _DEADLINE_S
        if oldest is not None:
            _shut(oldest)
        return True

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._until_s.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End connections that exceed their time."""
        self._end(time.monotonic())

    def server_close(self) -> None:
        super().server_close()
        self._end(float("inf"))

    def _end(self, now_s: float) -> None:
        with self._lock:
            expired = [connection for connection, until_s in self._until_s.items() if until_s < now_s]
        for connection in expired:
            _shut(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # The client has gone away, or was too slow: an operator could not mend that.
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Request(BaseHTTPRequestHandler):
    server: _Server
    timeout = _PATIENCE_S
    server_version = "pgtop-tune"
    sys_version = ""
    error_message_format = "%(code)d %(message)s\n"
    error_content_type = "text/plain; charset=utf-8"

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _not_allowed(self) -> None:
        self._say(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD\n", allow="GET, HEAD")

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = _not_allowed  # noqa: N815

    def _answer(self, *, with_body: bool) -> None:
        if not all(is_ours(name, self.server.where) for name in self.headers.get_all("Host", ())):
            refusal = "unknown host name: scrape the address, or start with --openmetrics NAME:PORT\n"
            self._say(HTTPStatus.MISDIRECTED_REQUEST, refusal, with_body=with_body)
            return
        if self.path.partition("?")[0] != PATH:
            self._say(HTTPStatus.NOT_FOUND, f"the metrics are at {PATH}\n", with_body=with_body)
            return
        syntax = wanted_syntax(self.headers.get("Accept", ""))
        self._say(HTTPStatus.OK, self.server.page(syntax), syntax.value, with_body=with_body)

    def _say(
        self,
        status: HTTPStatus,
        text: str,
        content_type: str = error_content_type,
        *,
        with_body: bool = True,
        allow: str = "",
    ) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if allow:
            self.send_header("Allow", allow)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a line per scrape has no reader."""


_STALE_INTERVALS: Final = 3.0
_STALE_S: Final = 10.0


class Exposition:
    """A sink that writes pages of the newest frame; a request does not sample the server.

    Frames come from the engine's thread, requests from others. Each frame has one page per syntax.

    Args:
        interval_s: Between two samples; a frame older than three of them, and than 10 s, is not shown.
        statements: Number of entries of pg_stat_statements on the page, by time.
        clock: Monotonic seconds.
    """

    def __init__(self, interval_s: float, statements: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self._rows: Final[Sequence[Exported]] = (*for_openmetrics(), *of_statements(statements))
        self._stale_s: Final = max(_STALE_INTERVALS * interval_s, _STALE_S)
        self._clock = clock
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._frames: Final = FrameWindow()
        self._came_s = 0.0
        self._pages: dict[Syntax, tuple[Frame, str]] = {}

    def accept(self, step: Step) -> None:
        """See `FrameSink.accept`."""
        with self._lock:
            if step.restart:
                self._frames.clear()
            self._frames.extend(step.frames)
            self._came_s = self._clock()

    def close(self) -> None:
        """Drop the frames: the server is sampled no longer."""
        with self._lock:
            self._frames.clear()

    def page(self, syntax: Syntax) -> str:
        """Return the text for one scrape; without a recent frame it has only pgtop_up 0."""
        with self._lock:
            stale = not self._frames or self._clock() - self._came_s > self._stale_s
            frames = FrameWindow(self._frames)
        if stale:
            return head(UP, syntax) + line(UP, ExportedPoint((), 0.0)) + (END if syntax is Syntax.OPENMETRICS else "")
        with self._writing:
            frame, text = self._pages.get(syntax, (None, ""))
            if frame is not frames[-1]:
                text = page(self._rows, WatchedInterval(frames), syntax)
                self._pages[syntax] = frames[-1], text
            return text
