"""What reading pgbench's transaction log costs us: CPU per line, and per second of load.

    python -m tests.benchmarks.transaction_log_cost

Prints; asserts nothing.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

from pgtop_tune.bench.log_seconds import PLAIN, LogLayout, parse_lines
from pgtop_tune.bench.transaction_log import TransactionLog

TICKS = 20
SECOND = 1_795_000_000
LAYOUTS = {
    "one script": PLAIN,
    "with a lag": LogLayout(lag=True),
    "four scripts": LogLayout(scripts=4),
    "four scripts, with a lag": LogLayout(lag=True, scripts=4),
}


def lines(second: int, count: int, median_us: float, layout: LogLayout = PLAIN) -> bytes:
    """A second of the log: log-normal latencies; of four scripts and with a lag where the layout has them."""
    chance = random.Random(second)
    draw, scripts, lag = chance.lognormvariate, layout.scripts, b" 250" if layout.lag else b""
    return b"".join(
        b"%d %d %d %d %d %d%b\n"
        % (
            n % 16,
            1000 + n,
            median_us * draw(0, 0.5),
            chance.randrange(scripts),
            second,
            n * 1_000_000 // count,
            lag,
        )
        for n in range(count)
    )


def cost_ms(per_second: int, median_us: float, layout: LogLayout = PLAIN, threads: int = 2) -> tuple[float, float]:
    """(mean, largest) CPU in ms of one read per second of load."""
    spent: list[float] = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        directory = Path(name)
        files = [(directory / f"tx.1.{n}").open("wb", buffering=0) for n in range(threads)]
        log = TransactionLog(directory, "tx", threads, layout=layout)
        for tick in range(TICKS + 1):
            chunk = lines(SECOND + tick, per_second // threads, median_us, layout)
            for file in files:
                file.write(chunk)
            before = time.process_time()
            log.read()
            while log.behind:
                log.read()
            spent.append((time.process_time() - before) * 1000)
        log.close()
        for file in files:
            file.close()
    # The first read builds the lookup table.
    return sum(spent[1:]) / TICKS, max(spent[1:])


def main() -> None:
    chunk = lines(SECOND, 2000, 3000)
    best = min(_timed(chunk) for _ in range(200))
    print(f"parsing alone: {best / 2000 * 1e9:.0f} ns per line")
    print(f"{'':24} {'lines/s':>8} {'median µs':>9} {'ms per s':>9} {'largest':>8} {'% of a core':>12} {'ns/line':>8}")
    for name, layout in LAYOUTS.items():
        for per_second in (200, 1000, 6000, 20_000, 60_000, 120_000):
            for median_us in (120, 3000):
                mean, largest = cost_ms(per_second, median_us, layout)
                figures = f"{per_second:8} {median_us:9} {mean:9.2f} {largest:8.2f} {mean / 10:12.2f}"
                print(f"{name:24} {figures} {mean * 1e6 / per_second:8.0f}")


def _timed(chunk: bytes) -> float:
    before = time.process_time()
    parse_lines(chunk)
    return time.process_time() - before


if __name__ == "__main__":
    main()
