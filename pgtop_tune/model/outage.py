"""An outage as clients of a load see it: what is known while it lasts, and the results.

Times are those of the wall clock, in milliseconds since the epoch.
"""

from __future__ import annotations

from msgspec import Struct


class OutageSpan(Struct, frozen=True, gc=False):
    """A time in which clients of a load were lost, until all of them were replaced.

    Attributes:
        first_error_ms: The first message of pgbench about a lost client.
        lost_clients: Lost clients; one that is lost again counts again.
        reason: The first message about it. Foreign text.
        attempts: Starts of pgbench to replace clients.
        longest_wait_s: Longest time between the starts of two attempts, which limits how exact the times are.
        problem: Why the last attempt that failed did; "" without one. Foreign text.
        first_commit_ms: First transaction of a client that connected after the error; None before it.
        replaced_ms: The first transaction of the last clients of the load that were started again; None while some are
            missing.
        moved_ms: Time by which the wall clock was set ahead (negative: back) meanwhile.
    """

    first_error_ms: float
    lost_clients: int
    reason: str = ""
    attempts: int = 0
    longest_wait_s: float = 0.0
    problem: str = ""
    first_commit_ms: float | None = None
    replaced_ms: float | None = None
    moved_ms: float = 0.0


class OutageRow(Struct, frozen=True, gc=False):
    """Figures of one outage.

    Attributes:
        span: Its times and clients.
        down_s: Time from the first error to the first commit after it; None where there was none, or where the wall
            clock was set in between.
        recovered_ms: End of the first ten seconds behind the first commit whose p99 is at most twice that of the minute
            before the error; None where there are none, or no minute to compare with.
        recovery: The window that was compared and its p99, or why there is no result.
        failed_transactions: Transactions of lost clients, and those that failed in the log meanwhile.
    """

    span: OutageSpan
    down_s: float | None
    recovered_ms: float | None
    recovery: str
    failed_transactions: int


class ServerChange(Struct, frozen=True, gc=False):
    """Another server, or the same one restarted, began to answer.

    Attributes:
        at_ms: Time of the first reading of the new one.
        before, after: Each in words: address, role, start.
        kind: restarted, promoted, or another server.
    """

    at_ms: float
    kind: str
    before: str
    after: str


class ClientCommits(Struct, frozen=True, gc=False):
    """Commits of one counting client.

    Attributes:
        group, client: Number of its pgbench, from 1, and of the client in it, from 0.
        acknowledged: Lines of the log.
        committed: Rows of acknowledged transactions; None where they could not be counted.
        in_doubt: Rows of transactions that committed without an acknowledgement.
        unknown: Why its acknowledgements are not known; "" where they are.
    """

    group: int
    client: int
    acknowledged: int
    committed: int | None
    in_doubt: int = 0
    unknown: str = ""

    @property
    def missing(self) -> int | None:
        """Return the acknowledged commits that are missing; None where that is not known."""
        return None if self.committed is None or self.unknown else max(self.acknowledged - self.committed, 0)


class AcknowledgedCommits(Struct, frozen=True, gc=False):
    """Commits that the server acknowledged to the counting clients, and its rows after the run.

    Attributes:
        clients: Each client of each pgbench that committed.
        problem: Why nothing was counted; "" where it was. May hold foreign text.
        other_rows: Rows of clients that were lost before their first acknowledgement.
        left_behind: Why the table could not be dropped; "" where it was. May hold foreign text.
        counted_on: Server whose rows were counted; "" without one, and in records of older versions.
        elsewhere: Another server that takes writes, too, whose rows were not counted; "" without one.
    """

    clients: tuple[ClientCommits, ...] = ()
    problem: str = ""
    other_rows: int = 0
    left_behind: str = ""
    counted_on: str = ""
    elsewhere: str = ""

    @property
    def missing(self) -> int | None:
        """Return the acknowledged commits that are missing; None where none is known that could be."""
        counts = [client.missing for client in self.clients if client.missing is not None]
        return sum(counts) if self.acknowledged else None

    @property
    def acknowledged(self) -> int:
        """Return the acknowledged commits of clients whose rows are known."""
        return sum(client.acknowledged for client in self.clients if client.missing is not None)

    @property
    def in_doubt(self) -> int:
        """Return the rows without an acknowledgement."""
        return sum(client.in_doubt for client in self.clients) + self.other_rows

    @property
    def unknown_clients(self) -> int:
        """Return the number of clients of whom nothing is known."""
        return sum(client.missing is None for client in self.clients)


class OutageResult(Struct, frozen=True, gc=False):
    """Results of a load that went through an outage; without rows there was none.

    Attributes:
        outages: In their order.
        changes: Changes of the server during the run.
        commits: Acknowledged commits and their rows.
        waiting_clients: Clients that still waited for an answer when the run was over, and were ended.
        silent_s: Longest time without a transaction in which no client was lost, in whole seconds of pgbench's
            progress; None in records of older versions.
    """

    outages: tuple[OutageRow, ...] = ()
    changes: tuple[ServerChange, ...] = ()
    commits: AcknowledgedCommits = AcknowledgedCommits()
    waiting_clients: int = 0
    silent_s: float | None = None
