"""Conditions of evaluations: the load that another program drives, and what other programs take of the machine. Pure.

A setting is compared with itself, earlier and later, so that no knob is to blame for a difference. Settings change how
fast a server is, and clients that wait for it send less then; so a rate alone is no other load: where a server gets
slower, transactions per second and active sessions do not go the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import partial
from statistics import median
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import count
from pgtop_tune.compare.sides.material import Look, mean_ms, summed
from pgtop_tune.compare.statement_rows import ENOUGH_CALLS
from pgtop_tune.experiment.attribution import attribution
from pgtop_tune.experiment.switchback.arms import QUICK, Arm, ArmBlock, BlockPair
from pgtop_tune.experiment.switchback.evaluation import FixedMix, fixed_mix
from pgtop_tune.metrics import server
from pgtop_tune.metrics.active_sessions import CLIENT_BACKEND
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.waits import wait_profile
from pgtop_tune.tuning.plan import Point
from pgtop_tune.tuning.search import Evaluation

# What a load that another program drives is like, and when it has become another one: a setting was found for the one
# before.
#
# Two numbers of the server: transactions per second, and how the time of active sessions is divided among waits. Pure.

WINDOW_S: Final = 10.0
LOOKS: Final = 6
"""Looks in a row that must differ, so that a pause or a batch is no other load."""
_IDLE: Final = 5.0
"""Transactions per second that may be ours, counted late, or those of a vacuum."""
TIMES: Final = 1.5
"""The ratio of transactions, or sessions, from which on a load is another one."""
MOVED: Final = 0.35
"""The share of the time that goes from some waits, or statements, to others in another load."""


class LoadShape(Struct, frozen=True):
    """A load over ten seconds.

    Attributes:
        tps: Transactions per second of the server.
        shares: Shares of the time of active sessions, by wait.
    """

    tps: float
    shares: Mapping[str, float]


def load_shape(interval: Interval) -> LoadShape | None:
    """Return the shape of the newest seconds; None where they tell nothing."""
    tps = server.TPS(interval)
    waits = wait_profile(interval, WINDOW_S, CLIENT_BACKEND)
    sessions = sum(wait.sessions for wait in waits)
    if tps is None or sessions <= 0.0:
        return None
    return LoadShape(tps, {wait.label: wait.sessions / sessions for wait in waits})


def change_of(before: LoadShape, looks: Sequence[LoadShape]) -> str:
    """Return how the load has changed, in words; "" while a newest look is like before, or there are too few."""
    newest = looks[-LOOKS:]
    if len(newest) < LOOKS:
        return ""
    if all(not before.tps / TIMES <= shape.tps <= before.tps * TIMES for shape in newest):
        return rate_words(median(shape.tps for shape in newest), before.tps)
    if all(share_moved(before.shares, shape.shares) > MOVED for shape in newest):
        label, share, was = largest_gain(before.shares, newest[-1].shares)
        return f"{label} is {100.0 * share:.0f} % of the sessions' time, {100.0 * was:.0f} % before"
    return ""


def idle(tps: float, clients: float | None) -> bool:
    """Return whether there is no load: no client is connected, and next to no transaction ends, by the median."""
    return clients == 0.0 and tps < _IDLE


def rate_words(tps: float, before: float) -> str:
    """Return "400 transactions per second, 200 before"."""
    return f"{count(tps)} transactions per second, {count(before)} before"


def share_moved(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """Return half of the sum of all differences: what has gone from some shares to others."""
    names = {*first, *second}
    return sum(abs(first.get(name, 0.0) - second.get(name, 0.0)) for name in names) / 2.0


def largest_gain(before: Mapping[str, float], now: Mapping[str, float]) -> tuple[str, float, float]:
    """Return the name whose share has grown most, its share now and before."""
    name = max(now, key=lambda name_now: now[name_now] - before.get(name_now, 0.0))
    return name, now[name], before.get(name, 0.0)


_NEWEST: Final = 3
"""Blocks in a row that must differ, so that a pause or a batch is no other load."""
_EARLIER: Final = 2
"""Blocks of a setting that say how it was before."""
_WITH: Final = 1.25
"""The ratio by which active sessions go with the rate, where the load is another one."""
_BUSY: Final = 0.1
"""Mean active sessions below which they are too few to be counted, and no server is the limit of its clients."""
_STOPPED: Final = 0.05
"""A share of the transactions per second before."""
_LONG_MS: Final = 1000.0 * QUICK.settle_s
_STATEMENTS: Final = 100
"""The statements with most time, which make the mix."""
_TEXT: Final = 60
Setting: TypeAlias = tuple[Point, bool, bool]
"""A point, whether its blocks have a load of their own each, and whether behind a restart: not as fast then."""
Blocks: TypeAlias = Sequence[ArmBlock]
Earlier: TypeAlias = Mapping[Setting, Blocks]
Newest: TypeAlias = Sequence[tuple[Setting, ArmBlock]]
"""Settings and blocks in the order of time."""
Texts: TypeAlias = Callable[[str], str]
"""The text of a statement by its id; "" where it is not known."""
_Test: TypeAlias = Callable[[Blocks, Blocks], str]
"""A function that tells how the newer blocks of a setting differ from the older ones; "" where they do not."""


class Change(Struct, frozen=True):
    """Other conditions.

    Attributes:
        description: The difference, with its number now and before.
        since: Place of the first block that is otherwise.
        stopped: There is no load any more.
    """

    description: str
    since: int
    stopped: bool = False


class SearchConditions:
    """The conditions of a search so far.

    Args:
        loaded: The load is ours, and stays as it is: only the machine can change.

    Attributes:
        mix: Statements and weights that decide under the load of another program, of the first evaluation under these
            conditions; None before.
    """

    def __init__(self, *, loaded: bool) -> None:
        self._loaded: Final = loaded
        self._known: dict[Setting, tuple[ArmBlock, ...]] = {}
        self.mix: FixedMix | None = None

    def take(self, evaluation: Evaluation, pairs: Sequence[BlockPair], text: Texts = lambda id: "") -> Change | None:
        """Return the change since the evaluations before, or within this one, with which the next are compared."""
        blocks = [
            (
                (
                    evaluation.against if block.arm is Arm.A else evaluation.candidate,
                    evaluation.separate,
                    evaluation.restart,
                ),
                block,
            )
            for pair in pairs
            for block in pair.blocks
            if block.tps and not block.spoiled
        ]
        new_conditions = change(self._known, blocks, loaded=self._loaded, text=text)
        if new_conditions is not None and new_conditions.stopped:
            blocks = blocks[: new_conditions.since]
        elif new_conditions is not None:
            self._known, self.mix = {}, None
            blocks = blocks[new_conditions.since :]
        for setting in dict.fromkeys(of for of, _ in blocks):
            newest = tuple(block for of, block in blocks if of == setting)
            if len(newest) >= _EARLIER:
                self._known[setting] = newest
        return new_conditions

    def mix_of(self, pairs: Sequence[BlockPair]) -> FixedMix:
        """Return the mix that decides; one that says why it cannot is that of these pairs alone."""
        if self.mix is not None:
            return self.mix
        mix = fixed_mix(pairs)
        if not mix.problem:
            self.mix = mix
        return mix


def change(
    before: Earlier,
    blocks: Newest,
    *,
    loaded: bool,
    text: Texts = lambda id: "",
) -> Change | None:
    """Return the conditions that the newest blocks have and those before had not; None where all are alike.

    Both settings of an evaluation must say so, as far as there are earlier blocks of both.

    Args:
        before: The blocks of earlier evaluations.
        blocks: The blocks of this one, in the order of time.
        loaded: The load is ours.
    """
    if not loaded:
        if (changed := _first(_stopped, before, blocks)) is not None:
            return replace(changed, stopped=True)
        if blocks and all(idle(median(block.tps), block.clients) for _, block in blocks):
            return Change("the load has stopped: no client is connected", 0, stopped=True)
    tests = (_others,) if loaded else (_rate, _clients, partial(_mix, text), _others)
    return next((changed for test in tests if (changed := _first(test, before, blocks)) is not None), None)


def _first(test: _Test, before: Earlier, blocks: Newest) -> Change | None:
    """Return the change at the first block from which on all settings say so."""
    for index in range(len(blocks) - _NEWEST + 1):
        differences = [test(older, newer) for older, newer in _sides(before, blocks, index)]
        if differences and all(differences):
            return Change(differences[0], index)
    return None


def _sides(before: Earlier, blocks: Newest, index: int) -> Iterator[tuple[Blocks, Blocks]]:
    """Yield the blocks of each setting before an index and from there on, where both say something."""
    for setting in dict.fromkeys(of for of, _ in blocks):
        older = [*before.get(setting, ()), *(block for of, block in blocks[:index] if of == setting)]
        newer = [block for of, block in blocks[index:] if of == setting]
        if len(older) >= _EARLIER and newer:
            yield older, newer


def _tps(block: ArmBlock) -> float:
    return block.mean_tps


def _stopped(older: Blocks, newer: Blocks) -> str:
    usual = _usual(older, _tps)
    if not usual or any(block.mean_tps >= _STOPPED * usual for block in newer):
        return ""
    return f"the load has stopped: {rate_words(_usual(newer, _tps), usual)}"


def _rate(older: Blocks, newer: Blocks) -> str:
    times = _beyond(older, newer, _tps)
    if not times:
        return ""
    sessions = [_usual(side, lambda block: block.sessions or 0.0) for side in (older, newer)]
    if max(sessions) >= _BUSY and (
        sessions[1] < _WITH * sessions[0] if times > 1.0 else sessions[1] * _WITH > sessions[0]
    ):
        return ""
    return f"the load has changed: {rate_words(_usual(newer, _tps), _usual(older, _tps))}"


def _clients(older: Blocks, newer: Blocks) -> str:
    def connected(block: ArmBlock) -> float:
        return block.clients or 0.0

    if not _beyond(older, newer, connected):
        return ""
    now, before = _usual(newer, connected), _usual(older, connected)
    return f"the load has changed: {count(now)} client sessions, {count(before)} before"


def _mix(text: Texts, older: Blocks, newer: Blocks) -> str:
    """Return calls at the cost that they had before, so that no setting is another mix."""
    cost, all_calls = (
        summed(block.statements for block in older),
        summed(block.statements for block in (*older, *newer)),
    )
    # As in the mix that decides: rare statements and long ones are in some blocks by chance.
    often = [id for id, counted in all_calls.items() if counted[0] >= ENOUGH_CALLS and mean_ms(counted) < _LONG_MS]
    ids = frozenset(sorted(often, key=lambda id: -all_calls[id][1])[:_STATEMENTS])
    before, now = ([_shares(block.statements, cost, ids) for block in side] for side in (older, newer))
    if not all((*before, *now)):
        return ""
    usual = min(before, key=lambda one: sum(share_moved(one, another) for another in before))
    if min(share_moved(usual, shares) for shares in now) <= MOVED:
        return ""
    name, share, was = largest_gain(usual, _shares(summed(block.statements for block in newer), cost, ids))
    statement = one_line(text(name), _TEXT) or "one statement"
    return f"the load has changed: {statement} is {100.0 * share:.0f} % of it, {100.0 * was:.0f} % before"


def _shares(look: Look, cost: Look, ids: Set[str]) -> dict[str, float]:
    times = {id: counted[0] * mean_ms(cost.get(id, counted)) for id, counted in look.items() if id in ids}
    total_ms = sum(times.values())
    return {id: ms / total_ms for id, ms in times.items()} if total_ms else {}


def _others(older: Blocks, newer: Blocks) -> str:
    """Return another throughput, where other programs take so much more or less that they may be the reason."""
    if not _beyond(older, newer, _tps):
        return ""
    now, before = _usual(newer, _tps), _usual(older, _tps)
    sides = [block.surroundings for block in older], [block.surroundings for block in newer]
    relative = max(now / before - 1.0, -0.99)
    because, _ = attribution(*sides, relative, relative, ("the blocks before", "the newest blocks"))
    return f"{because.partition(':')[0]}; {rate_words(now, before)}" if because else ""


def _beyond(older: Blocks, newer: Blocks, of: Callable[[ArmBlock], float]) -> float:
    """Return how many times the usual figure the newer blocks have, where all are beyond it; 0 where one is not."""
    usual = _usual(older, of)
    if usual <= 0.0:
        return 0.0
    times = [of(block) / usual for block in newer]
    return median(times) if min(times) >= TIMES or max(times) <= 1.0 / TIMES else 0.0


def _usual(blocks: Blocks, of: Callable[[ArmBlock], float]) -> float:
    return median(of(block) for block in blocks)
