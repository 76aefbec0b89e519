"""Trip wires that suit what is seen now: lines to begin with, to be changed by the operator. Pure."""

from __future__ import annotations

from typing import Final

from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.trip_wires import WATCHED

OFF: Final = "off"
HARM: Final = "harm"
SLOWER: Final = "slower"
_TIMES: Final = 3.0
_MB: Final = 2**20
_LEAST_ROOM: Final = 2**30
_BY_NAME: Final = {watched.name: watched for watched in WATCHED}


def suggested(kind: str, interval: Interval | None) -> str:
    """Trip wires as one types them.

    Args:
        kind: HARM: transactions that fail, a disk that fills, a standby that falls behind. SLOWER: these, and a p99
            three times as high or a third of the throughput. OFF: none.
        interval: What is seen now; a number that cannot be said has no wire.
    """
    if kind == OFF or interval is None:
        return ""
    found = []
    if kind == SLOWER:
        p99, tps = _BY_NAME["p99"].value(interval), _BY_NAME["tps"].value(interval)
        found += [f"p99>{max(p99 * _TIMES, 1.0):.0f}ms"] if p99 else []
        found += [f"tps<{tps / _TIMES:.0f}"] if tps and tps >= _TIMES else []
    errors, free, lag = (_BY_NAME[name].value(interval) for name in ("errors", "free", "lag"))
    # Where transactions fail already, as serializable ones may, more of them is no news.
    found += ["errors>0"] if errors == 0 else []
    found += [f"free<{_typed(min(free / 2, _LEAST_ROOM))}"] if free else []
    found += [f"lag>{_typed(max(lag * _TIMES, _LEAST_ROOM))}"] if lag is not None else []
    return " ".join(found)


def _typed(size_bytes: float) -> str:
    whole = round(size_bytes / _MB)
    return f"{whole // 1024}GB" if whole % 1024 == 0 else f"{whole}MB"
