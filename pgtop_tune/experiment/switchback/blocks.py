"""The design of a switchback and its raw material: arms, lengths, the coin, and blocks with what was measured. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from enum import StrEnum
from statistics import fmean
from typing import Final

from msgspec import Struct

from pgtop_tune.compare.sides.statements import Look
from pgtop_tune.experiment.attribution import Surroundings
from pgtop_tune.metrics.load import Quantile
from pgtop_tune.metrics.percentiles import Merged

SETTLE_S: Final = 5.0
LONGEST_SETTLE_S: Final = 40.0
_LEAST_MEASURED_S: Final = 10.0
BY_CHECKPOINTS: Final = frozenset(
    {
        "max_wal_size",
        "min_wal_size",
        "checkpoint_timeout",
        "checkpoint_completion_target",
        "checkpoint_flush_after",
        "full_page_writes",
        "wal_compression",
        "bgwriter_delay",
        "bgwriter_flush_after",
        "bgwriter_lru_maxpages",
        "bgwriter_lru_multiplier",
    }
)
"""Parameters that work through checkpoints: a full page is written once per page and checkpoint, so that a window that
is not a whole cycle shows another share of it in each block."""
CYCLES_PER_PAIR: Final = 3.5
"""One for each arm, and one to settle at each change of the arm, of which a pair has one and a half on average."""


class Arm(StrEnum):
    """The two values."""

    A = "A"
    B = "B"

    @property
    def other(self) -> Arm:
        """The one that is not this one."""
        return Arm.B if self is Arm.A else Arm.A


class Lengths(Struct, frozen=True):
    """Of a block, seconds.

    Attributes:
        settle_s: Left out after the arm changed.
        measured_s: That count.
    """

    settle_s: float
    measured_s: float

    @property
    def pair_s(self) -> float:
        """Of a pair: the arm changes within it, and in half of the pairs before it."""
        return 2.0 * self.measured_s + 1.5 * self.settle_s


def lengths(settle_s: float = SETTLE_S) -> Lengths:
    """Blocks twice as long as they settle, ten seconds at least: short blocks reach a verdict sooner."""
    return Lengths(settle_s, max(_LEAST_MEASURED_S, 2.0 * settle_s))


QUICK: Final = Lengths(settle_s=2.0, measured_s=4.0)
"""Of blocks with an effect that was seen to be in force at once."""
QUICK_READINGS: Final = Lengths(settle_s=QUICK.settle_s, measured_s=6.0)
"""The same where each block has to hold several readings of pg_stat_statements, which are two seconds apart."""


def longer(now: Lengths) -> Lengths | None:
    """After an effect that builds up more slowly; None where no longer blocks are made."""
    settle_s = max(2.0 * now.settle_s, SETTLE_S)
    return lengths(settle_s) if settle_s <= LONGEST_SETTLE_S else None


def orders(seed: int) -> Iterator[tuple[Arm, Arm]]:
    """Which arm comes first in each pair: a coin decides."""
    coin = random.Random(seed)
    while True:
        first = Arm.A if coin.random() < 0.5 else Arm.B
        yield first, first.other


class Block(Struct, frozen=True):
    """What was measured in one block.

    Attributes:
        began_ms: Wall clock, milliseconds since the epoch.
        began_s: On the session's clock.
        seconds: Measured.
        settled_s: Left out before.
        tps: Second by second, oldest first.
        settling: The same of the time left out.
        sums: Part and whole of each figure of `compare.sides.figures`.
        latencies: Of its transactions; None without a load of ours.
        waits: Milliseconds per transaction by class of wait.
        checkpoint: Share of the time in which a checkpoint wrote; None where that is not known.
        foreign: CPU time of other programs, per cent of all CPUs, stolen time included; None where not known.
        steal: CPU time that the hypervisor gave to others, per cent of all CPUs.
        foreign_io: Read and written by other programs, bytes per second; None where not known.
        own_io: The same of server, load and this program.
        cpus: Of the machine; 0 where not known.
        generator: Why the load generator was the limit; "" where it was not.
        spoiled: Why it does not count; "" where it does.
        statements: Calls and milliseconds by id of pg_stat_statements; empty where no two readings lie within.
        statements_ms: Execution time of all statements in as long; None where it is not known.
        sessions: Mean active sessions; None where nobody looked.
        clients: Mean sessions of clients, active or not, without ours; None where nobody looked.
        whole_cycle: It is a checkpoint cycle: how much of it is under a checkpoint is a part of what is measured.
    """

    arm: Arm
    began_ms: int
    began_s: float
    seconds: float
    settled_s: float
    tps: tuple[float, ...]
    sums: Mapping[str, tuple[float, float]]
    settling: tuple[float, ...] = ()
    latencies: Merged | None = None
    waits: Mapping[str, float] = {}
    checkpoint: float | None = None
    foreign: float | None = None
    steal: float | None = None
    foreign_io: float | None = None
    own_io: float | None = None
    cpus: int = 0
    generator: str = ""
    spoiled: str = ""
    statements: Look = {}
    statements_ms: float | None = None
    sessions: float | None = None
    clients: float | None = None
    whole_cycle: bool = False

    @property
    def mean_tps(self) -> float:
        """Transactions per second; 0 without any."""
        return fmean(self.tps) if self.tps else 0.0

    @property
    def halves(self) -> tuple[float, float]:
        """Mean of the first and of the second half of its seconds."""
        half = len(self.tps) // 2
        return (fmean(self.tps[:half]), fmean(self.tps[-half:])) if half else (0.0, 0.0)

    def figure(self, name: str) -> float | None:
        """Part by whole; None without a whole."""
        part, whole = self.sums.get(name, (0.0, 0.0))
        return part / whole if whole > 0 else None

    @property
    def own_cpu(self) -> float | None:
        """CPU time of server, load and this program, per cent of all CPUs; None where not known."""
        busy = self.figure("cpu")
        return None if busy is None or self.foreign is None else max(busy - self.foreign, 0.0)

    @property
    def surroundings(self) -> Surroundings:
        """What others took beside it."""
        return Surroundings(
            foreign=self.foreign,
            steal=self.steal,
            own_cpu=self.own_cpu,
            cpus=self.cpus,
            foreign_io=self.foreign_io,
            own_io=self.own_io,
        )

    @property
    def own_cpu_ms(self) -> float | None:
        """The same per transaction, in ms; of all programs where others cannot be told apart."""
        own, tps = self.own_cpu, self.mean_tps
        if own is None or not tps or not self.cpus:
            return self.figure("cpu_per_tx")
        return own / 100.0 * self.cpus * 1000.0 / tps

    def quantile(self, quantile: Quantile) -> float | None:
        """Milliseconds; None of too few transactions."""
        return None if self.latencies is None else quantile.of(self.latencies)


class Pair(Struct, frozen=True):
    """A block of each arm, one behind the other.

    Attributes:
        number: From 1.
        first: The arm that came first.
        superseded: It was measured with less time to settle than the effect takes.
    """

    number: int
    first: Arm
    a: Block
    b: Block
    superseded: bool = False

    @property
    def blocks(self) -> tuple[Block, Block]:
        """In the order of time."""
        return (self.a, self.b) if self.first is Arm.A else (self.b, self.a)

    @property
    def spoiled(self) -> str:
        """Why it does not count."""
        for block in self.blocks:
            if block.spoiled:
                return block.spoiled
            if not block.tps:
                return f"no second of {block.arm} was measured"
            if block.mean_tps <= 0.0:
                return f"no transaction ended in {block.arm}"
        return ""

    @property
    def seconds(self) -> float:
        """With the time to settle."""
        return sum(block.seconds + block.settled_s for block in self.blocks)
