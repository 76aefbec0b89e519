"""Counting clients: a pgbench of their own inserts rows, and its log has a line for each acknowledged commit."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.bench.groups import PgbenchGroup
from pgtop_tune.bench.transaction_log import GrowingFile, LogStatistics, commit_time
from pgtop_tune.model.bench import LatencySecond, LoadSpec, ScriptChoice

SCRIPT: Final = Path(__file__).with_name("commits.sql")
ATTEMPT: Final = "attempt"
CLIENTS: Final = 2
_LINE: Final = re.compile(rb"(\d{1,9}) \d+ \d+ \d+ \d{10} \d{1,6}(?: .*)?")


class CountingClients(Struct, frozen=True):
    """An order to count.

    Attributes:
        table: Name of the table in our schema.
        settings: Parameters of their sessions beside those of the load.
    """

    table: str
    settings: tuple[tuple[str, str], ...] = ()

    def spec(self, number: int, *, again: bool) -> LoadSpec:
        """Return the load of one pgbench of them.

        Args:
            number: From 1 in the run.
            again: The attempts to start it are numbered by themselves.
        """
        variables = {"table": self.table, "group_number": str(number), "n": "0"}
        return LoadSpec(
            clients=CLIENTS,
            threads=1,
            protocol="simple",
            scripts=(ScriptChoice(str(SCRIPT)),),
            variables=tuple((variables if again else {**variables, ATTEMPT: "1"}).items()),
        )


class AcknowledgedLines(Struct, frozen=True):
    """The log lines of one counting client.

    Attributes:
        group, attempt, client: As its rows have them.
        lines: Acknowledged commits.
        unknown: Why there may be more; "" where there are not.
    """

    group: int
    attempt: int
    client: int
    lines: int
    unknown: str = ""


class OutageClients(Struct, frozen=True):
    """The clients of a run that replaces lost ones, after its end.

    Attributes:
        acknowledged: The log lines of each counting client.
        uncounted: Why the counting clients did not stay; "" else. Foreign text.
        waiting: Clients that still waited for an answer when the run was over, and were ended by force.
        finished: The run ended by itself.
    """

    acknowledged: tuple[AcknowledgedLines, ...]
    uncounted: str
    waiting: int
    finished: bool


class CommitLog:
    """The log of one counting pgbench; see `groups.GroupLog`.

    Args:
        directory: Where its file is.
        name: Begin of the file's name.
    """

    behind = False

    def __init__(self, directory: Path, name: str) -> None:
        self._pattern = (directory, f"{name}.*")
        self._file: GrowingFile | None = None
        self._lines = Counter[int]()
        self._odd_lines = 0
        self.first_commit_s: float | None = None

    def read(self, *, final: bool = False) -> tuple[LatencySecond, ...]:
        """Count the lines that were appended; no figure of the load includes them."""
        if self._file is None or self._file.is_removed:
            self._open()
        while self._file is not None and (chunk := self._file.read()):
            if self.first_commit_s is None:
                self.first_commit_s = commit_time(chunk)
            for line in chunk.splitlines():
                commit = _LINE.fullmatch(line)
                if commit is None:
                    self._odd_lines += 1
                else:
                    self._lines[int(commit[1])] += 1
        return ()

    def statistics(self) -> LogStatistics:
        """Return the counts of the lines that were read so far."""
        return LogStatistics(lines=self._lines.total(), unreadable=self._odd_lines)

    def close(self) -> None:
        """Let go of the file; the counts stay."""
        if self._file is not None:
            self._file.close()

    def acknowledged(self, group: PgbenchGroup, attempt: int) -> list[AcknowledgedLines]:
        """Return the lines of each client, once its pgbench has ended."""
        unknown = self._doubt(group)
        return [
            AcknowledgedLines(
                group=group.facts.number, attempt=attempt, client=client, lines=self._lines[client], unknown=unknown
            )
            for client in range(group.facts.clients)
        ]

    def _doubt(self, group: PgbenchGroup) -> str:
        if group.status is None or group.status < 0:
            return "its pgbench was killed, with the end of its log"
        processed = None if group.report is None else group.report.processed
        if processed is None:
            return "its pgbench printed no report"
        if self._odd_lines or processed != self._lines.total():
            return f"its log has {self._lines.total()} of {processed} commits"
        return ""

    def _open(self) -> None:
        self.close()
        self._file = None
        directory, pattern = self._pattern
        for path in directory.glob(pattern):
            try:
                self._file = GrowingFile(path)
            except FileNotFoundError:
                # An attempt that did not connect.
                continue
