"""Messages of a failed pgbench, with a hint for common causes, and bounded output of a program.

pgbench's threads write into each other's lines; `whole_lines` takes them apart. Source: pgbench writes "pgbench:", " ",
"error: " and the message with its line end one after the other (src/common/logging.c), and nothing keeps two threads
from doing so at the same time.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from pgtop_tune.bench.report import PREFIX

_HALF: Final = 32 * 1024
_LONGEST_LINE: Final = 4 * 1024


class LineSplitter:
    """Bytes in, whole lines out; a line that does not end is cut at 4096 bytes."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """Return lines that are complete with this; invalid UTF-8 is replaced."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            lines.append(self._rest)
            self._rest = b""
        return [line[:_LONGEST_LINE].decode("utf-8", "replace").rstrip("\r") for line in lines]

    def rest(self) -> list[str]:
        """Return the last line, when it came without its end."""
        return [line for line in self.feed(b"\n") if line]


async def lines_of(stream: asyncio.StreamReader, take: Callable[[str], None]) -> None:
    """Pass on a stream's lines until it ends."""
    splitter = LineSplitter()
    while data := await stream.read(2**16):
        for line in splitter.feed(data):
            take(line)
    for line in splitter.rest():
        take(line)


class BoundedText:
    """Lines, of which the first 32 kB and the last 32 kB are kept."""

    def __init__(self) -> None:
        self._head: list[str] = []
        self._head_room = _HALF
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self._dropped = 0

    def add(self, line: str) -> None:
        """Keep a line."""
        if self._head_room > 0:
            self._head.append(line)
            self._head_room -= len(line) + 1
            return
        self._tail.append(line)
        self._tail_size += len(line) + 1
        while self._tail_size > _HALF:
            self._tail_size -= len(self._tail.popleft()) + 1
            self._dropped += 1

    def text(self) -> str:
        """Return everything that was kept; what was dropped in between is counted in a line of its own."""
        gap = [f"[{self._dropped} lines left out]"] if self._dropped else []
        return "\n".join((*self._head, *gap, *self._tail))


_TORN_LINES_SEVERITY: Final = r"(?:error|fatal|warning|info|detail|hint):"
_PREFIXES: Final = re.compile(rf" *(?:(?:pgbench:|{_TORN_LINES_SEVERITY}) *)+")
_NEXT_MESSAGE: Final = re.compile(rf"(?<![/\s])(?=pgbench: *{_TORN_LINES_SEVERITY})")
_FOREIGN_PREFIX: Final = re.compile(r"(?<=\w)pgbench:(?=\S)")
_COUNTS: Final = r"(?:, (?:\d{1,18} (?:failed|skipped|retried|retries)|lag -?[\d.]{1,40} ms))"
_PROGRESS: Final = re.compile(
    rf"progress: [\d.]{{1,40}} s, \S{{1,40}} tps, lat \S{{1,40}} ms stddev -?(?:[\d.]{{1,40}}|nan|inf){_COUNTS}*"
    rf"|^{_COUNTS}+"
)
_OF_THE_SERVER: Final = re.compile(r"(?:WARNING|NOTICE|INFO|LOG|DEBUG): ")


def whole_lines(stderr: str) -> Iterator[str]:
    """Yield the lines of stderr as one thread would have written them, without whole progress lines and empty ones.

    A message whose prefix is in another line stays without one.
    """
    for line in stderr.splitlines():
        without_progress = _PROGRESS.sub("", line)
        for part in _NEXT_MESSAGE.split(without_progress):
            text = _message(part.rstrip())
            if text:
                yield text


def _message(text: str) -> str:
    """Return one message with at most one prefix; "" when there is nothing but prefixes."""
    prefixes = _PREFIXES.match(text)
    if prefixes is None:
        return _FOREIGN_PREFIX.sub("", text)
    message = _FOREIGN_PREFIX.sub("", text[prefixes.end() :])
    if not message or _OF_THE_SERVER.match(message):
        return message
    severity = re.search(_TORN_LINES_SEVERITY, prefixes[0])
    return f"pgbench: {severity[0] if severity else 'error:'} {message}"


_CONSEQUENCE: Final = re.compile(
    r"could not create connection for (?:setup|client \d+)$|Run was aborted; |setting random seed to \S+$", re.I
)
"""Said as well, but never the reason."""
_NOT_PREPARED: Final = re.compile(r'ERROR:  prepared statement ".*" does not exist')
"""Said after the statement was refused as well: then that is the reason."""
_ABORTED: Final = re.compile(r"client \d{1,9} script (\d{1,3}) aborted in command")
_LOST: Final = re.compile(r"client (\d{1,9}) (?:script \d{1,9} )?aborted\b")
_SEVERITY: Final = re.compile(r"^(?:pgbench: (?:error|fatal): )?")
_BEGINS: Final = re.compile(r"pgbench: |(?:ERROR|FATAL|PANIC):  |client \d")
_MOST_LINES: Final = 6

_OF_STATEMENT: Final = re.compile(
    r"(?:pgbench: (?:error|fatal): )?(?!connection to |could not connect)(?:[a-z][^:]{1,120}: )?(?!FATAL:|PANIC:)"
    r"[^\s:]{1,40}\s?:  "
)
"""A message of the server about a statement, whose words may be anything: pgbench's own have one blank."""

_EITHER: Final[tuple[tuple[str, str], ...]] = (
    (r'relation "pgbench_\w+" does not exist|pgbench -i',
     "create its tables first: pgtop-tune bench init -s 10 -d DATABASE (or pgbench -i)"),
    (r'relation "bus\.\w+" does not exist|undefined variable "(?:tickets|rides|seats|days)"',
     "create the bus company's tables first: pgtop-tune bench init --dataset bus -d DATABASE"),
)  # fmt: skip
_NO_PREPARED: Final = "pass -M simple: poolers in transaction mode, DISCARD ALL and several statements in one need it"
_STATEMENTS: Final[tuple[tuple[str, str], ...]] = (
    (r":  syntax error", "fix the statement in its script"),
    (r":  permission denied for (?:table|relation) pgbench_",
     "run as the owner of pgbench's tables, or GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public"),
    (r':  prepared statement ".*" (?:does not|already) exist', _NO_PREPARED),
    (r":  cannot insert multiple commands into a prepared statement", _NO_PREPARED),
    (r":  cannot execute .{1,40} in a read-only transaction",
     "the server is a standby or read-only: use the profile select-only"),
)  # fmt: skip
_OWN: Final[tuple[tuple[str, str], ...]] = (
    (r"too many connections for role", "use fewer clients, or a higher limit: ALTER ROLE … CONNECTION LIMIT …"),
    (r"too many connections for database", "use fewer clients, or a higher limit: ALTER DATABASE … CONNECTION LIMIT …"),
    (r"too many clients already|remaining connection slots",
     "use fewer clients, or a higher max_connections (needs a restart)"),
    (r"need at least \d+ open files|too many open files",
     "use fewer clients, or a higher limit of open files: ulimit -n"),
    (r"permission denied for database", "GRANT CONNECT ON DATABASE to this role, or pass another role with -U"),
    (r'role ".*" does not exist', "choose another role with -U, or create it"),
    (r'database ".*" does not exist', "choose another database with -d, or create it: createdb"),
    (r"Cannot assign requested address",
     "use fewer clients, or a lower rate with -C; or widen net.ipv4.ip_local_port_range, or use a Unix socket"),
    (r"Resource temporarily unavailable",
     "use fewer threads (-j): they connect at once, and too many connections wait at the Unix socket"),
    (r"no more connections allowed", "use fewer clients, or a higher max_client_conn of the pooler"),
    (r"password authentication failed|no password supplied", "check the password in ~/.pgpass or PGPASSWORD"),
    (r"no pg_hba.conf entry", "add a line for this user and address to the server's pg_hba.conf"),
    (r"could not translate host name|Name or service not known", "check the host name"),
    (r"connection refused|could not connect|connection to server .*No such file or directory",
     "the server is not running, or it listens at another address"),
    (r"terminating connection|server closed the connection|perhaps the backend died",
     "the server ended the sessions (restart, crash, or pg_terminate_backend); start the load again"),
)  # fmt: skip


def _compiled(*rows: tuple[str, str]) -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(pattern, re.I), hint) for pattern, hint in rows)


_HINTS_OF_STATEMENTS: Final = _compiled(*_EITHER, *_STATEMENTS)
_HINTS_OF_PGBENCH: Final = _compiled(*_EITHER, *_OWN)


_REFUSED: Final = re.compile(r"could not create connection for client|aborted while establishing connection")


def is_refused(stderr: str) -> bool:
    """Return whether a client got no connection."""
    return bool(_REFUSED.search(stderr))


def lost_clients(line: str) -> tuple[int, ...]:
    """Return the numbers of the clients that a line of stderr says were aborted; threads may share a line."""
    return tuple(int(number) for number in _LOST.findall(line))


_ERROR: Final = "ERROR|ERRORE|ERREUR|ERRO|FEHLER|FEL|HATA|CHYBA|BŁĄD|ОШИБКА|ПОМИЛКА|错误|오류"
"""Severity of a refused statement, in the languages of the server."""
_BROKEN_SCRIPT: Final = re.compile(
    rf"aborted in command \d+ query \d+: (?:{_ERROR}):  "
    r"(?!cannot execute .+ (?:in a read-only transaction|during recovery))"
    r"|aborted in command \d+ \(\w+\) of script \d+; \w+ of meta-command failed"
    r"|query \d+: expected one row, got|COPY is not supported in pgbench"
)
"""Messages about a client whose connection stays. An earlier primary that refuses to write is another matter."""
_CUT: Final = re.compile(
    r": (?:FATAL|PANIC):  |closed the connection unexpectedly|connection has been closed|backend died|send failed"
    r"|could not (?:send data to|receive data from) server|SSL (?:SYSCALL )?error|while establishing connection"
)


def is_of_script(stderr: str) -> bool:
    """Return whether clients were aborted by their own statements, each on a connection that stays.

    Without --continue-on-error, pgbench gives up a client whose statement is refused: division by zero, no such table.
    """
    return bool(_BROKEN_SCRIPT.search(stderr)) and not _CUT.search(stderr)


def last_words(stderr: str) -> str:
    """Return pgbench's lines about why it ended, without progress and repetition; "" without any.

    The first lines count: what follows a failure are its consequences, one per client.
    """
    kept: dict[str, None] = {}
    behind: dict[str, None] = {}
    for text in whole_lines(stderr):
        if not text.startswith(PREFIX):
            (behind if _CONSEQUENCE.search(text) else kept).setdefault(text)
    return "\n".join(list(kept or behind)[:_MOST_LINES])


def with_script(message: str, stderr: str, scripts: Sequence[str]) -> str:
    """Return the words with the name of the script before them, where pgbench has several and gives the number of one.

    Args:
        message: Why it ended.
        stderr: All it said: of a statement that could not be prepared only a later line has the number.
        scripts: Names in the order of the command line, from number 0.
    """
    aborted = _ABORTED.search(stderr)
    if aborted is None or len(scripts) < 2 or int(aborted[1]) >= len(scripts):
        return message
    return _SEVERITY.sub(lambda severity: f"{severity[0]}{scripts[int(aborted[1])]}: ", message, count=1)


def hint_for(text: str) -> str:
    """Return what to do about it; "" when it is none of the common failures.

    What the server says of a statement quotes the script, and errors of other servers: only pgbench's own messages
    tell about the connection.
    """
    messages = _messages(text)
    reasons = [message for message in messages if not _NOT_PREPARED.search(message)] or messages
    for message in reasons:
        rows = _HINTS_OF_STATEMENTS if _OF_STATEMENT.match(message) else _HINTS_OF_PGBENCH
        head = message.partition("\n")[0] if rows is _HINTS_OF_STATEMENTS else message
        if hint := next((hint for pattern, hint in rows if pattern.search(head)), ""):
            return hint
    return ""


def _messages(text: str) -> list[str]:
    """Return messages with their DETAIL, CONTEXT and LINE; a hint of pgbench's belongs to what it is about."""
    messages: list[str] = []
    for line in text.splitlines():
        if not messages or _BEGINS.match(line):
            messages.append(line)
        else:
            messages[-1] += f"\n{line}"
    return messages
