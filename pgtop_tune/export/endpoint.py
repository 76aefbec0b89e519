"""GET /metrics, and nothing else: Python's own HTTP server with bounds, and the page it answers with.

A framework would be another dependency beside a database for one page. http.server gets what it lacks here: a bound
on connections, on the time of each, and no look-up of names.
"""

from __future__ import annotations

import re
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.export.catalogue import for_openmetrics
from pgtop_tune.export.counters import of_statements
from pgtop_tune.export.exported import Exported, ExportedPoint, WatchedInterval
from pgtop_tune.export.openmetrics import END, Syntax, head, line, page
from pgtop_tune.export.states import UP
from pgtop_tune.runtime.frame_window import FrameWindow

if TYPE_CHECKING:
    from pgtop_tune.model.frame import Frame
    from pgtop_tune.runtime.ports import Step


PATH: Final = "/metrics"
LOOPBACK: Final = "127.0.0.1"
PORT: Final = 19432
"""The one that help and documentation propose: outside 9100 to 9999, which Prometheus' list of default ports gives to
exporters, and below the ports that Linux lends to clients."""
MOST_CONNECTIONS: Final = 8
_PATIENCE_S: Final = 5.0
"""One read or write may take so long."""
_DEADLINE_S: Final = 15.0
"""A whole connection may take so long, however busily it drips."""
_POLL_S: Final = 0.2
_ADDRESS: Final = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\[\]:]*):)?(?P<port>[0-9]{1,5})\Z")
_OPENMETRICS: Final = "application/openmetrics-text"
_OLD: Final = "text/plain"
_ANY: Final = (_OLD, "text/*", "*/*")


class Address(Struct, frozen=True):
    """Where to listen; port 0 is any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")


def address(words: str) -> Address:
    """ "19432", "127.0.0.1:19432", "[::1]:19432", "0.0.0.0:19432"; without a host only this machine reaches it.

    Raises:
        UsageProblem: It is none.
    """
    found = _ADDRESS.match(words.strip())
    if found is None or int(found["port"]) > 65_535:
        raise UsageProblem(f"{words} is not an address to listen on", f"use {LOOPBACK}:{PORT}, or a port alone")
    return Address((found["host"] or LOOPBACK).strip("[]"), int(found["port"]))


def is_ours(name: str, where: Address) -> bool:
    """Return whether a Host header means this endpoint.

    A page in a browser can have its own name resolve to our address (DNS rebinding), and would read the numbers. It
    cannot have an address for a name; nor the name that the operator gave, or of this machine where others reach us.

    Args:
        name: The header, with or without a port.
        where: The address that was asked for.
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
    """What an Accept header asks for: OpenMetrics when it is named and nothing else is liked better."""
    liked = {_OPENMETRICS: 0.0, _OLD: 0.0}
    for each in accept.lower().split(","):
        kind, *words = (word.strip() for word in each.split(";"))
        weight = next((_weight(word[2:]) for word in words if word.startswith("q=")), 1.0)
        kind = _OLD if kind in _ANY else kind
        if kind in liked:
            liked[kind] = max(liked[kind], weight)
    return Syntax.OPENMETRICS if liked[_OPENMETRICS] > 0 and liked[_OPENMETRICS] >= liked[_OLD] else Syntax.TEXT


def _weight(word: str) -> float:
    try:
        return min(max(float(word), 0.0), 1.0)
    except ValueError:
        return 0.0


class MetricsEndpoint:
    """A server in threads of its own, from the moment it is made until it is closed.

    Args:
        where: The address.
        page: The text for a syntax; called from several threads.

    Attributes:
        where: The address it listens on, with the port that was found.

    Raises:
        UsageProblem: The address cannot be had.
    """

    def __init__(self, where: Address, page: Callable[[Syntax], str]) -> None:
        try:
            self._server = _Server(where, page)
        except OSError as problem:
            hint = "use an address of this machine and a free port"
            raise UsageProblem(f"cannot listen on {where}: {problem.strerror or problem}", hint) from None
        self.where: Final = Address(where.host, self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_POLL_S,), name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops listening, and ends what is under way."""
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
        # Not HTTPServer's: that asks the name service who we are, and waits for it.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Take every connection; where there are too many, the oldest ends, so that slow ones shut nobody out."""
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
        """Ends connections that have had their time."""
        self._end(time.monotonic())

    def server_close(self) -> None:
        super().server_close()
        self._end(float("inf"))

    def _end(self, now_s: float) -> None:
        with self._lock:
            over = [each for each, until_s in self._until_s.items() if until_s < now_s]
        for each in over:
            _shut(each)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # Who asked has gone away, or was too slow: nothing that an operator could mend.
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


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
            refusal = (
                "this is no name of the endpoint: scrape it by its address, or name it in --openmetrics NAME:PORT\n"
            )
            self._say(HTTPStatus.MISDIRECTED_REQUEST, refusal, with_body=with_body)
            return
        if self.path.partition("?")[0] != PATH:
            self._say(HTTPStatus.NOT_FOUND, f"the numbers are at {PATH}\n", with_body=with_body)
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
        """Nobody reads a line per scrape."""


# The newest moment for Prometheus: a sink that keeps frames and writes a page when one is asked for.

_STALE_INTERVALS: Final = 3.0
_STALE_S: Final = 10.0


class Exposition:
    """Implements `FrameSink`. A page shows the newest frame as it is; asking makes no look at the server.

    Frames come from the engine's thread, pages are asked for from others. A page is made once per frame and syntax,
    however many ask.

    Args:
        interval_s: Between two looks; a frame older than three of them, and 10 s, is not told any more.
        statements: So many entries of pg_stat_statements stand in it, by time.
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
        """From here on nobody looks at the server."""
        with self._lock:
            self._frames.clear()

    def page(self, syntax: Syntax) -> str:
        """The text for one scrape; pgtop_up is 0 and nothing else is there when no frame came lately."""
        with self._lock:
            stale = not self._frames or self._clock() - self._came_s > self._stale_s
            frames = FrameWindow(self._frames)
        if stale:
            return head(UP, syntax) + line(UP, ExportedPoint((), 0.0)) + (END if syntax is Syntax.OPENMETRICS else "")
        with self._writing:
            known = self._pages.get(syntax)
            if known is None or known[0] is not frames[-1]:
                known = self._pages[syntax] = frames[-1], page(self._rows, WatchedInterval(frames), syntax)
            return known[1]
