"""How often each of the judges is wrong on real recordings in which nothing was changed.

    python tests/benchmarks/judge_on_recordings.py RECORDING... --each 200

Begins are spread evenly over the recordings, so that experiments overlap and are not independent: the last line says
how many would fit side by side. The title gets a change that never was; the switchback's own engine gets the frames as
if a coin switched something; runs are parts of 60 s, compared one and two and three a side in the order A B B A.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pgtop_tune.compare.noise import long_run_variance
from pgtop_tune.compare.since_change import SETTLING_S, since_change
from pgtop_tune.compare.statistics.before_after import LOOKS
from pgtop_tune.compare.statistics.effect import Verdict, run_noise, runs_effect
from pgtop_tune.experiment.switchback.state import Ending
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.host import CPU_FOREIGN
from pgtop_tune.metrics.load import CLIENT_TPS
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.model.frame import Frame
from pgtop_tune.recording.reader import RecordingReader
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.widgets.time_axis import CHARTED
from tests.experiment.switchback.simulated import PLAN, Made

YOUNG_S = 180
"""Of the load, left out: the title and the engine wait as long."""
BEFORE_S = 180
RUN_S = 60
SHOWN = (Verdict.BETTER, Verdict.WORSE)


def loaded(path: Path) -> list[Frame]:
    """Frames under load, without its first minutes."""
    reader = RecordingReader(path)
    try:
        frames = [frame for _, frame in reader.frames() if not isinstance(frame.bench, Unavailable)]
    finally:
        reader.close()
    begin_s = frames[0].elapsed_s + YOUNG_S
    return [frame for frame in frames if frame.elapsed_s >= begin_s]


def begins(frames: Sequence[Frame], length: int, count: int) -> list[int]:
    """Where so many parts of so many frames begin, spread evenly."""
    room = len(frames) - length
    return [round(place * room / max(count - 1, 1)) for place in range(count)] if room > 0 else []


def titles(frames: Sequence[Frame], count: int) -> Iterator[str]:
    length = BEFORE_S + int(SETTLING_S) + LOOKS[-1] + 5
    for begin in begins(frames, length, count):
        session, told = Session(CHARTED), set()
        withdrawn = False
        for place, frame in enumerate(frames[begin : begin + length]):
            if place == BEFORE_S:
                event = Event(frame.taken_at_ms, EventKind.PARAMETER, "cursor_tuple_fraction 0.1→0.2")
                frame = replace(frame, events=(*frame.events, event))
            session.apply(Step((frame,)))
            found = since_change(session) if place > BEFORE_S + LOOKS[0] else None
            if found is not None:
                told.add(found.verdict)
                withdrawn = withdrawn or found.withdrawn
        yield "false claim" if told & set(SHOWN) else "no claim"
        if withdrawn:
            yield "claim withdrawn"


class Recorded(Made):
    """The engine of switchbacks on recorded frames."""

    def __init__(self, frames: Sequence[Frame], seed: int) -> None:
        super().__init__(replace(PLAN, for_s=1e9, seed=seed))
        self._recorded = frames

    def _frame(self, second: int) -> Frame:
        if second >= len(self._recorded):
            raise EOFError
        return self._recorded[second]


async def _switchback(frames: Sequence[Frame], seed: int) -> str:
    made = Recorded(frames, seed)
    async with made.fed() as feeding:
        engine = asyncio.ensure_future(made.experiment.run())
        await asyncio.wait({engine, feeding}, return_when=asyncio.FIRST_COMPLETED)
        if not engine.done():
            engine.cancel()
            await asyncio.wait({engine})
            return "undecided"
    ending = engine.result().ending
    return "false verdict" if ending in (Ending.BETTER, Ending.WORSE) else str(ending)


def switchbacks(frames: Sequence[Frame], count: int) -> Iterator[str]:
    for seed, begin in enumerate(begins(frames, 20 * 60, count)):
        yield asyncio.run(_switchback(frames[begin : begin + 30 * 60], seed))


def runs(frames: Sequence[Frame], count: int) -> Iterator[str]:
    for a_side in (1, 2, 3):
        length = 2 * a_side * RUN_S
        for begin in begins(frames, length, count):
            parts = [_tps(frames[begin + place * RUN_S :][: RUN_S + 1]) for place in range(2 * a_side)]
            a = [part for place, part in enumerate(parts) if place % 4 in (0, 3)]
            b = [part for place, part in enumerate(parts) if place % 4 in (1, 2)]
            within = fmean(long_run_variance(part) / len(part) for part in parts)
            logs = [[math.log(fmean(part)) for part in side] for side in (a, b)]
            effect = runs_effect(*logs, run_noise(*logs, within))
            claimed = effect.low is not None and effect.high is not None and not effect.low <= 0.0 <= effect.high
            yield f"{a_side} a side: {'false verdict' if claimed and abs(effect.relative) >= 0.01 else 'none'}"


def _tps(frames: Sequence[Frame]) -> list[float]:
    values = (CLIENT_TPS(Interval(list(frames[: place + 1])[-3:])) for place in range(1, len(frames)))
    return [value for value in values if value is not None]


JUDGES: dict[str, Callable[[Sequence[Frame], int], Iterator[str]]] = {
    "title": titles,
    "turns": switchbacks,
    "runs": runs,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", nargs="+", type=Path)
    parser.add_argument("--each", type=int, default=200, help="experiments for each judge, over all recordings")
    parser.add_argument("--judges", nargs="+", choices=JUDGES, default=[*JUDGES])
    wanted = parser.parse_args()
    recorded = [loaded(path) for path in wanted.recordings]
    whole = sum(map(len, recorded))
    for path, frames in zip(wanted.recordings, recorded, strict=True):
        values = _tps(frames)
        foreign = [
            each
            for place in range(2, len(frames), 10)
            if (each := CPU_FOREIGN(Interval(frames[place - 2 : place + 1]))) is not None
        ]
        print(
            f"{path.name}: {len(frames)} s, {fmean(values):,.0f} tps, foreign CPU {fmean(foreign):.0f} %, "
            f"one pair of blocks differs by {_pair_sd(values):.1%}"
        )
    for name in wanted.judges:
        found: Counter[str] = Counter()
        for frames in recorded:
            found.update(JUDGES[name](frames, round(wanted.each * len(frames) / whole)))
        print(f"{name}: {', '.join(f'{words} {count}' for words, count in sorted(found.items()))}", flush=True)


def _pair_sd(values: Sequence[float]) -> float:
    means = [fmean(values[at : at + 10]) for at in range(0, len(values) - 9, 14)]
    ratios = [math.log(b / a) for a, b in zip(means[::2], means[1::2], strict=False)]
    return math.sqrt(fmean(ratio * ratio for ratio in ratios))


if __name__ == "__main__":
    main()
