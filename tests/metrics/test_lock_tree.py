"""Trees of lock waits: everybody once, roots first, no circle without an end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.metrics.blockers import LockNode, lock_tree
from pgtop_tune.model.postgres import Activity
from pgtop_tune.model.waits import LockSample, LockWait
from tests.support.frames import EPOCH_MS, backend

NOW_MS = EPOCH_MS + 60_000


def activity(blocked_by: dict[int, tuple[int, ...]], **states: str) -> Activity:
    rows = [
        backend(
            pid, NOW_MS, blocked_by=pids, wait_event_type="Lock" if pids else None,
            state=states.get(f"p{pid}", "active"),
        )
        for pid, pids in blocked_by.items()
    ]  # fmt: skip
    return Activity(0.0, NOW_MS, tuple(rows))


def wait(pid: int, *, since_s: float = 5.0, holders: tuple[int, ...] = (), prepared: tuple[str, ...] = ()) -> LockWait:
    modes = tuple(f"{holder}Lock" for holder in holders)
    start_ms = NOW_MS - int(since_s * 1000)
    return LockWait(pid, "tuple", "ExclusiveLock", "accounts", "row (0,1)", start_ms, holders, modes, prepared)


def shape(nodes: list[LockNode]) -> list[tuple[int, int]]:
    return [(node.depth, node.pid) for node in nodes]


def test_nobody_waits_and_there_is_no_tree() -> None:
    assert lock_tree(activity({1: (), 2: ()}), None) == []


def test_waiters_stand_under_their_root_longest_wait_first() -> None:
    locks = LockSample(0.0, (wait(2, since_s=1), wait(3, since_s=9)))
    nodes = lock_tree(activity({1: (), 2: (1,), 3: (1, 2)}, p1="idle in transaction"), locks)
    assert shape(nodes) == [(0, 1), (1, 3), (1, 2)]
    assert [node.blocks for node in nodes] == [2, 0, 0]
    assert [node.waited_ms for node in nodes] == [None, 9000, 1000]
    assert [node.other_blockers for node in nodes] == [(), (2,), ()]
    assert [node.idle_root for node in nodes] == [True, False, False]


def test_a_chain_of_three() -> None:
    nodes = lock_tree(activity({4: (3,), 3: (2,), 2: (1,), 1: ()}), None)
    assert shape(nodes) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert [node.blocks for node in nodes] == [3, 2, 1, 0]


def test_the_root_that_holds_up_most_comes_first_and_ties_go_to_the_lower_pid() -> None:
    nodes = lock_tree(activity({1: (), 2: (1,), 5: (), 6: (5,), 7: (5,), 8: (), 9: (8,)}), None)
    assert [node.pid for node in nodes if node.depth == 0] == [5, 1, 8]


def test_a_waiter_of_two_stands_once_and_names_the_other() -> None:
    nodes = lock_tree(activity({1: (), 2: (), 3: (1, 2)}), None)
    assert shape(nodes) == [(0, 1), (1, 3)]
    assert nodes[1].other_blockers == (2,)


def test_a_deadlock_in_the_making_ends_and_is_marked() -> None:
    nodes = lock_tree(activity({5: (7,), 7: (5,), 8: (7,)}), None)
    assert shape(nodes) == [(0, 5), (1, 7), (2, 8)]
    assert [node.circle for node in nodes] == [True, True, False]
    assert not any(node.idle_root for node in nodes)


def test_prepared_transactions_are_roots_with_names() -> None:
    locks = LockSample(0.0, (wait(5, holders=(0,), prepared=("payment 7",)), wait(6, holders=(0,), prepared=("x",))))
    nodes = lock_tree(activity({5: (0,), 6: (0,)}), locks)
    assert [(node.pid, node.prepared) for node in nodes if node.depth == 0] == [(0, "payment 7"), (0, "x")]
    assert all(node.backend is None for node in nodes if node.depth == 0)


def test_how_the_blocker_has_the_lock_is_known() -> None:
    nodes = lock_tree(activity({1: (), 2: (1,)}), LockSample(0.0, (wait(2, holders=(9, 1)),)))
    assert nodes[1].held_modes == "1Lock"


def test_a_waiter_that_was_not_asked_about_stands_under_who_has_its_lock() -> None:
    waiting = Activity(0.0, NOW_MS, (backend(1, NOW_MS), backend(2, NOW_MS, wait_event_type="Lock")))
    nodes = lock_tree(waiting, LockSample(0.0, (wait(2, holders=(1,)),)))
    assert shape(nodes) == [(0, 1), (1, 2)]


@given(
    st.dictionaries(st.integers(1, 30), st.lists(st.integers(0, 40), max_size=4).map(tuple), max_size=30),
    st.lists(st.integers(1, 30), unique=True),
)
def test_any_tangle_shows_every_waiter_exactly_once(tangle: dict[int, tuple[int, ...]], known: list[int]) -> None:
    locks = LockSample(0.0, tuple(wait(pid, prepared=("a", "b")) for pid in known))
    nodes = lock_tree(activity(tangle), locks)
    waiters = [pid for pid, pids in tangle.items() if set(pids) - {pid}]
    shown = [(node.pid, node.prepared) for node in nodes]
    assert len(set(shown)) == len(shown)
    assert set(waiters) <= {pid for pid, _ in shown}
    for before, node in zip([None, *nodes], nodes, strict=False):
        assert node.depth <= (before.depth + 1 if before is not None else 0)
        assert node.blocks <= len(waiters)
