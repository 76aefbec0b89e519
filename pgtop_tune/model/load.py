"""What the operator asks of pgbench."""

from __future__ import annotations

from msgspec import Struct


class ScriptChoice(Struct, frozen=True):
    """A script of the operator's own and how often it is chosen (-f FILE@WEIGHT)."""

    file: str
    weight: int = 1


class LoadSpec(Struct, frozen=True):
    """A load as the operator describes it; the runner turns it into a command line.

    Attributes:
        profile: Name of a profile: tpcb-like, select-only, simple-update, or one of the user's.
        clients: Concurrent sessions (pgbench -c).
        threads: pgbench -j; 0 means as many as there are cores, at most `clients`.
        duration_s: Seconds (-T); None runs until stopped, or until `transactions` are done.
        rate_per_s: Scheduled transactions per second (-R); None is as fast as they go.
        protocol: simple, extended or prepared (-M).
        transactions: Of each client (-t), in place of a duration.
        latency_limit_ms: Slower ones are counted, and with a rate those that cannot make it are skipped (-L).
        max_tries: How often a transaction is tried that fails by serialization or deadlock (--max-tries, pgbench 15
            and later); 0 is as often as it takes, None is once.
        connect_per_transaction: A new connection for each transaction (-C).
        seed: Of the random numbers (--random-seed); None is a new one each time.
        per_statement: Mean latency of each statement in the report (-r).
        scripts: In place of those of the profile.
        variables: (name, value) for the scripts (-D).
        settings: (parameter, value) that its sessions begin with (PGOPTIONS): changed for this load only.
    """

    profile: str = "tpcb-like"
    clients: int = 8
    threads: int = 0
    duration_s: int | None = None
    rate_per_s: float | None = None
    protocol: str = "prepared"
    transactions: int | None = None
    latency_limit_ms: float | None = None
    max_tries: int | None = None
    connect_per_transaction: bool = False
    seed: int | None = None
    per_statement: bool = False
    scripts: tuple[ScriptChoice, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    settings: tuple[tuple[str, str], ...] = ()


class ProfileSummary(Struct, frozen=True):
    """A load profile as the load screen lists it."""

    name: str
    title: str
    description: str
    clients: int
    """Sensible number of clients on this machine."""
    protocol: str
    dataset: str = ""
    """The data set its scripts need: pgbench or bus; "" where they have tables of their own."""
