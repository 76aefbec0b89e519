"""The tail: the waits of the slowest transactions alone.

A transaction is in the tail when it lasts longer than T: the p99 of the load, or an age that the operator gives. The
waits of all transactions say little about the tail, because the many quick ones make up the mean.

**Sampling.** Samples are Δ apart. A sample sees every open transaction with its age, so it sees a long transaction more
often than a short one: by samples, one transaction of 10 s weighs as much as fifty of 200 ms. That is length bias.
`sampling.wait_looks` follows each transaction by pid and xact_start, so its samples are known as its own:

    n_i(w)  samples that saw transaction i in wait w;  n_i = Σ_w n_i(w)
    a_i     its greatest age seen:  L_i - Δ < a_i ≤ L_i, where L_i is its length
    tail    a_i ≥ T

    share(w) = Σ_i g_i · n_i(w) / n_i  ÷  Σ_i g_i        g_i = 1 / min(1, (a_i - T) / Δ + 1/2)

The inner quotient makes every transaction count once. A sample finds a transaction that ends e after T with probability
min(1, e/Δ); g corrects for that. As a_i is uniform between L_i - Δ and L_i, the expected weight of a transaction is
ln(1 + 2e/Δ) for e ≤ Δ, and between 1.10 and 1.00 for longer ones: 0.69 at Δ/2, where samples alone would give 0.5.
Transactions that end within a quarter of Δ after T stay underweighted. None that is shorter than T counts. T is an edge
of a length class, the first that is not below the p99: lengths are recorded in four classes per octave.

If lengths are close together, as with a sleep or a timeout, the p99 is among them, and these transactions end before a
sample sees them older than the p99. If the tail of a load has too few transactions for shares, T is therefore one Δ
below the p99, so that each transaction beyond the p99 was seen older than T; others of nearly that length count as well.

The first moments of a transaction, half of Δ, are not seen. T below Δ is refused, because most transactions of such a
tail would end unseen. Transactions that are open at the end of the window count as they are. On average they are longer
than the others, by their length over the window's; that matters only where no transaction ends.
The error of a share with N transactions is about √(share · (1 - share) / N).

Source: pg_stat_activity.xact_start, wait_event and query_id in every sample; pg_blocking_pids() once for a transaction
that waits for a lock.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import ceil, log2, sqrt
from typing import Final, TypeVar

from msgspec import Struct

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.load import P99, logged_seconds, running
from pgtop_tune.metrics.percentiles import merge
from pgtop_tune.metrics.waits import LONG_WINDOW_S, label_of
from pgtop_tune.model.waits import TailRow, TailSample, class_edge_ms, length_class

V = TypeVar("V", bound=Hashable)
TAIL_WINDOW_S: Final = LONG_WINDOW_S
_P99_S: Final = 20.0
"""Window of the p99: long enough for a stable value. A minute of histograms would cost two milliseconds for each frame."""
GIVEN_AGE_MS: Final = 1000.0
"""Age at which the tail begins without the p99 of a load."""
FEWEST: Final = 5
"""Least number of transactions for a share."""
_LATE: Final = 1.25
"""Greatest ratio of the time between samples to the begin of the tail; samples are always a little late."""
_HALF: Final = 0.5


class TailCause(Struct, frozen=True):
    """A wait of the tail's transactions.

    Attributes:
        wait_event_type: Class, "CPU" without a wait event.
        wait_event: Event, "" for CPU.
        query_id: The waiting statement; None where it is not known, and for several statements.
        root_pid: Session at the root of the queue for a lock, 0 for a prepared transaction; None where not known.
        root: First word of its statement, or "idle in transaction"; "" where not known.
        transactions: Transactions of the tail in this wait; fractions are parts of a transaction's time.
        share: Per cent of the tail's transactions.
        looks: Number of samples in this wait.
    """

    wait_event_type: str
    wait_event: str
    query_id: int | None
    root_pid: int | None
    root: str
    transactions: float
    share: float
    looks: int

    @property
    def label(self) -> str:
        """ "Lock:transactionid", "CPU"."""
        return label_of(self.wait_event_type, self.wait_event)


class Tail(Struct, frozen=True):
    """The transactions of the tail over the window.

    Attributes:
        over_ms: Age beyond which each of them was seen.
        p99_ms: The p99 of the load over 20 s; None without one.
        of_load: Whether only transactions of pgbench count, because a load of ours runs.
        transactions: Their estimated number.
        open: Number of transactions that had not ended.
        looks: Number of samples of them.
        every_ms: Mean time between two samples.
        causes: Their waits, most frequent first.
    """

    over_ms: float
    p99_ms: float | None
    of_load: bool
    transactions: float
    open: float
    looks: int
    every_ms: float
    causes: tuple[TailCause, ...]

    @property
    def below_p99(self) -> bool:
        """Return whether the tail begins above the p99, which is too short for these samples."""
        return self.p99_ms is not None and self.over_ms > 2.0 * self.p99_ms

    @property
    def before_p99(self) -> bool:
        """Return whether the tail begins below the p99, because too few transactions were seen beyond it."""
        return self.p99_ms is not None and self.over_ms < self.p99_ms

    def error(self, share: float) -> float:
        """Return the standard error of a share, in percentage points."""
        part = share / 100.0
        return 100.0 * sqrt(max(part * (1.0 - part), 0.0) / self.transactions) if self.transactions else 0.0


def weight(age_ms: float, over_ms: float, every_ms: float) -> float:
    """Return g of the module's formula: the number of transactions that one with this greatest age stands for."""
    return 1.0 / min(1.0, (age_ms - over_ms) / every_ms + _HALF) if every_ms else 1.0


def edge_above_ms(age_ms: float) -> float:
    """Return the first edge of a length class that is not below an age."""
    return class_edge_ms(ceil(4.0 * log2(max(age_ms, 1.0)) - 1e-9))


def edge_below_ms(age_ms: float) -> float:
    """Return the last edge of a length class that is not above an age."""
    return class_edge_ms(length_class(age_ms))


def tail_p99_ms(interval: Interval) -> float | None:
    """Return the p99 of the running load over 20 s; None without a load, and with too few transactions."""
    return P99.of(merge(logged_seconds(interval, _P99_S)))


def tail(interval: Interval, age_ms: float | None = None) -> Tail | None:
    """Return the tail of the newest frames; None without samples.

    Args:
        interval: Frames.
        age_ms: Begin of the tail; None for the p99 of the load, or 1 s without one. If no tail is seen beyond the p99, it
            begins somewhat below.
    """
    samples = [sample for sample in interval.recent(sections.tail, TAIL_WINDOW_S) if sample.looks and sample.every_ms]
    if not samples:
        return None
    of_load = running(interval) is not None
    p99_ms = tail_p99_ms(interval)
    wanted_ms = age_ms if age_ms is not None else p99_ms if p99_ms is not None else GIVEN_AGE_MS
    least_ms = min(sample.every_ms for sample in samples) / _LATE
    over_ms = edge_above_ms(max(wanted_ms, least_ms))
    at_p99 = _beyond(interval, samples, over_ms, p99_ms, of_load)
    if age_ms is not None or p99_ms is None or at_p99.transactions >= FEWEST:
        return at_p99
    below_ms = edge_below_ms(p99_ms - max(sample.every_ms for sample in samples))
    if below_ms < least_ms:
        return at_p99
    lower = _beyond(interval, samples, below_ms, p99_ms, of_load)
    return lower if lower.transactions >= FEWEST else at_p99


def _beyond(
    interval: Interval, samples: Sequence[TailSample], over_ms: float, p99_ms: float | None, of_load: bool
) -> Tail:
    """Return the tail that begins at an age, from the samples that are close enough together to see it."""
    usable = [sample for sample in samples if sample.every_ms <= over_ms * _LATE]
    parts = interval.each(_ended, usable, over_ms, of_load)
    still_open = _causes(usable[0], over_ms, of_load, open=True) if usable and usable[0] is samples[0] else []
    return _summed(usable, [still_open, *parts], over_ms, p99_ms, of_load)


_Part = tuple[tuple[str, str, int | None, int | None, str], float, int]
"""A cause (class, event, statement, pid at the root and what that one does), its transactions and its looks."""


def _ended(sample: TailSample, over_ms: float, of_load: bool) -> list[_Part]:
    """Return the causes of transactions that had ended; they stay the same while the reading is in the window."""
    return _causes(sample, over_ms, of_load, open=False)


def _causes(sample: TailSample, over_ms: float, of_load: bool, *, open: bool) -> list[_Part]:
    return [
        ((row.wait_event_type, row.wait_event, row.query_id, row.root_pid, row.root), counted, row.looks)
        for row in sample.rows
        if row.open == open and row.of_load >= of_load and (counted := _transactions(row, over_ms, sample.every_ms))
    ]


def _summed(
    samples: Sequence[TailSample], parts: Sequence[list[_Part]], over_ms: float, p99_ms: float | None, of_load: bool
) -> Tail:
    """Add up parts, the first of which is that of open transactions."""
    sums: dict[tuple[str, str, int | None, int | None, str], tuple[float, int]] = {}
    total = 0.0
    for part in parts:
        for key, counted, looks in part:
            total += counted
            previous = sums.get(key, (0.0, 0))
            sums[key] = previous[0] + counted, previous[1] + looks
    causes = [
        TailCause(
            wait_event_type=kind, wait_event=event, query_id=query_id, root_pid=root_pid, root=root,
            transactions=counted, share=100.0 * counted / total, looks=looks,
        )
        for (kind, event, query_id, root_pid, root), (counted, looks) in sums.items()
    ]  # fmt: skip
    looks = sum(cause.looks for cause in causes)
    every_ms = sum(sample.every_ms * sample.looks for sample in samples) / max(
        sum(sample.looks for sample in samples), 1
    )
    return Tail(
        over_ms=over_ms, p99_ms=p99_ms, of_load=of_load, transactions=total,
        open=sum(counted for _, counted, _ in parts[0]), looks=looks, every_ms=every_ms,
        causes=tuple(sorted(causes, key=lambda cause: (-cause.transactions, cause.label))),
    )  # fmt: skip


def _transactions(row: TailRow, over_ms: float, every_ms: float) -> float:
    """Return the number of the tail's transactions that a row stands for; 0 for a row of shorter ones."""
    low_ms, behind_ms = class_edge_ms(row.length), class_edge_ms(row.length + 1)
    if low_ms < over_ms - 1e-6:
        return 0.0
    # The last sample saw each open transaction, so it needs no weight.
    return row.transactions * (1.0 if row.open else weight(sqrt(low_ms * behind_ms), over_ms, every_ms))


def by_wait(causes: Sequence[TailCause]) -> list[TailCause]:
    """Merge the causes of one wait, most frequent first; the statement and root of most of them are kept."""
    return _together(causes, lambda cause: (cause.wait_event_type, cause.wait_event))


def by_statement(causes: Sequence[TailCause]) -> list[TailCause]:
    """Merge the causes of one wait of one statement, most frequent first."""
    return _together(causes, lambda cause: (cause.wait_event_type, cause.wait_event, cause.query_id))


def _together(causes: Sequence[TailCause], key: Callable[[TailCause], Hashable]) -> list[TailCause]:
    groups: dict[Hashable, list[TailCause]] = {}
    for cause in causes:
        groups.setdefault(key(cause), []).append(cause)
    together = [
        TailCause(
            wait_event_type=parts[0].wait_event_type,
            wait_event=parts[0].wait_event,
            query_id=_of_most(parts, lambda cause: cause.query_id),
            root_pid=_of_most(parts, lambda cause: cause.root_pid),
            root=_of_most(parts, lambda cause: cause.root or None) or "",
            transactions=sum(part.transactions for part in parts),
            share=sum(part.share for part in parts),
            looks=sum(part.looks for part in parts),
        )
        for parts in groups.values()
    ]
    return sorted(together, key=lambda cause: (-cause.transactions, cause.label))


def _of_most(parts: Sequence[TailCause], value: Callable[[TailCause], V | None]) -> V | None:
    """Return the value of more than half of the transactions with a known value, and of a quarter of all; else None."""
    sums: dict[V, float] = {}
    for part in parts:
        if (known_value := value(part)) is not None:
            sums[known_value] = sums.get(known_value, 0.0) + part.transactions
    most = max(sums, key=sums.__getitem__, default=None)
    if most is None:
        return None
    least = max(sum(sums.values()) / 2.0, sum(part.transactions for part in parts) / 4.0)
    return most if sums[most] > least else None
