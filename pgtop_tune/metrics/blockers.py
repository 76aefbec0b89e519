"""Blocking sessions: trees of heavyweight locks, from pg_blocking_pids()."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from pgtop_tune.model.postgres import Activity, Backend
from pgtop_tune.model.waits import PREPARED_TRANSACTION, LockSample, LockWait

CULPRIT_S: Final = 1.0
"""Shortest wait for which a culprit is named; rows that every transaction updates have short waits all the time."""
IDLE_IN_TRANSACTION: Final = ("idle in transaction", "idle in transaction (aborted)")


class Blocking(Struct, frozen=True):
    """Backends that wait for a heavyweight lock.

    Attributes:
        blocked: How many wait.
        root: Pid at the end of most chains of blockers; 0 stands for a prepared transaction, None when nobody waits
            (or all wait for each other, a deadlock about to be broken).
        root_blocks: How many chains end there.
        roots: How many there are at the ends of all chains.
    """

    blocked: int
    root: int | None
    root_blocks: int
    roots: int


def blocking(activity: Activity) -> Blocking:
    """Find the backend at the end of most chains of blockers; ties go to the lowest pid.

    A chain leads from a waiting backend to the first pid of its pg_blocking_pids(), which lists lock holders before
    backends ahead in the queue. So a queue of 300 takes 300 steps and not 90,000.
    """
    first = {backend.pid: backend.blocked_by[0] for backend in activity.backends if backend.blocked_by}
    if not first:
        return Blocking(blocked=0, root=None, root_blocks=0, roots=0)
    ends: dict[int, int | None] = {}
    for pid in first:
        _follow(pid, first, ends)
    roots = Counter(end for pid in first if (end := ends[pid]) is not None)
    if not roots:
        return Blocking(blocked=len(first), root=None, root_blocks=0, roots=0)
    root = min(roots, key=lambda pid: (-roots[pid], pid))
    return Blocking(blocked=len(first), root=root, root_blocks=roots[root], roots=len(roots))


def longest_blocked_s(activity: Activity) -> float:
    """Return the age in seconds of the oldest statement that waits for a lock; 0 without one.

    Rows that many transactions update have a wait of milliseconds at any time.
    """
    query_starts_ms = [
        backend.query_start_ms
        for backend in activity.backends
        if backend.blocked_by and backend.query_start_ms is not None
    ]
    return max(activity.now_ms - min(query_starts_ms), 0) / 1000.0 if query_starts_ms else 0.0


def culprits(activity: Activity) -> frozenset[int]:
    """Return pids that block others and wait for no lock, once a blocked session has waited for `CULPRIT_S`."""
    blockers = {pid for backend in activity.backends for pid in backend.blocked_by}
    if not blockers or longest_blocked_s(activity) < CULPRIT_S:
        return frozenset()
    return frozenset(blockers - {backend.pid for backend in activity.backends if backend.blocked_by})


def _follow(pid: int, first: Mapping[int, int], ends: dict[int, int | None]) -> None:
    """Store the end of the chain for every pid on it; None for a cycle."""
    chain: dict[int, None] = {}
    current_pid = pid
    while current_pid in first and current_pid not in ends and current_pid not in chain:
        chain[current_pid] = None
        current_pid = first[current_pid]
    end = ends.get(current_pid, None if current_pid in chain else current_pid)
    for passed in chain:
        ends[passed] = end


class LockNode(Struct, frozen=True):
    """One line of the tree.

    Attributes:
        pid: 0 for a prepared transaction.
        depth: 0 for a root.
        backend: None for a prepared transaction, and for a process that is not visible.
        wait: Its lock request; None for a root, and where pg_locks was not read or no longer had the request.
        blocks: Number of backends below it.
        other_blockers: Pids of its blockers besides its parent in the tree.
        circle: Whether it is part of a deadlock, which lasts until deadlock_timeout.
        held_modes: Modes in which its parent holds the requested lock; "" when not known.
        waited_ms: Time it has been waiting; None for a root.
        prepared: Global identifier of a prepared transaction, "" when not known.
    """

    pid: int
    depth: int
    backend: Backend | None
    wait: LockWait | None
    blocks: int
    other_blockers: tuple[int, ...]
    circle: bool
    held_modes: str
    waited_ms: int | None
    prepared: str = ""

    @property
    def idle_root(self) -> bool:
        """Return whether the root is an idle session, so that all others wait for its client."""
        return self.depth == 0 and self.backend is not None and self.backend.state in IDLE_IN_TRANSACTION


Place = tuple[int, str]
"""A pid, and the name of a prepared transaction."""


def lock_tree(activity: Activity, locks: LockSample | None) -> list[LockNode]:
    """Return the lines of the tree: roots that block most first, and each waiting backend once, under its first blocker.

    Further blockers are in `other_blockers`. A cycle begins at its lowest pid. A backend that pg_blocking_pids() was
    not called for stands under the holder of its lock, where that is known.
    """
    backends = {backend.pid: backend for backend in activity.backends}
    waits = {} if locks is None else {wait.pid: wait for wait in locks.waits}
    blockers = {
        backend.pid: blocking_nodes
        for backend in activity.backends
        if (blocking_nodes := _blockers(backend, waits.get(backend.pid)))
    }
    children: dict[Place, list[Place]] = {}
    for pid, blocking_nodes in blockers.items():
        children.setdefault(blocking_nodes[0], []).append((pid, ""))
    below = _counted(children, blockers)
    circles = _circles(blockers)
    roots = [node for node in children if node[0] not in blockers]
    roots.sort(key=lambda node: (-below[node], node))
    first_of_circles = sorted({(min(circle), "") for circle in circles})
    in_circle = {pid for circle in circles for pid in circle}
    nodes: list[LockNode] = []
    visited: set[Place] = set()
    stack: list[tuple[Place, int]] = [(node, 0) for node in reversed([*roots, *first_of_circles])]
    while stack:
        node, depth = stack.pop()
        if node in visited:
            continue
        visited.add(node)
        pid = node[0]
        wait, blocking_nodes = waits.get(pid), blockers.get(pid, ())
        nodes.append(
            LockNode(
                pid=pid, depth=depth, backend=backends.get(pid), wait=wait, blocks=below.get(node, 0), other_blockers=tuple(blocker_pid for blocker_pid, _ in blocking_nodes[1:]),
                circle=pid in in_circle, held_modes=_held(wait, blocking_nodes), waited_ms=_waited_ms(activity.now_ms, wait, backends.get(pid), blocking_nodes),
                prepared=node[1],
            )
        )  # fmt: skip
        under = sorted(children.get(node, ()), key=lambda child: _order(waits.get(child[0]), child))
        stack.extend((child, depth + 1) for child in reversed(under))
    return nodes


def _blockers(backend: Backend, wait: LockWait | None) -> tuple[Place, ...]:
    pids: Iterable[int] = backend.blocked_by
    if not backend.blocked_by and wait is not None and backend.wait_event_type == "Lock":
        pids = wait.holders
    prepared = iter(wait.prepared if wait is not None else ())
    named = ((pid, next(prepared, "") if pid == PREPARED_TRANSACTION else "") for pid in pids)
    return tuple(dict.fromkeys(node for node in named if node[0] != backend.pid))


def _counted(children: Mapping[Place, list[Place]], blockers: Mapping[int, tuple[Place, ...]]) -> Counter[Place]:
    """Count all backends below each node; within a cycle, all others on it and below it."""
    below: Counter[Place] = Counter()
    for pid in blockers:
        at: Place = blockers[pid][0]
        passed: set[Place] = {(pid, "")}
        while at not in passed:
            below[at] += 1
            passed.add(at)
            if at[0] not in blockers:
                break
            at = blockers[at[0]][0]
    return below


def _circles(blockers: Mapping[int, tuple[Place, ...]]) -> list[set[int]]:
    """Find cycles of backends along their first blockers."""
    done: set[int] = set()
    circles = []
    for start in blockers:
        path: dict[int, None] = {}
        current = start
        while current in blockers and current not in done and current not in path:
            path[current] = None
            current = blockers[current][0][0]
        if current in path:
            order = list(path)
            circles.append(set(order[order.index(current) :]))
        done.update(path)
    return circles


def _held(wait: LockWait | None, blockers: tuple[Place, ...]) -> str:
    if wait is None or not blockers:
        return ""
    return dict(zip(wait.holders, wait.held_modes, strict=False)).get(blockers[0][0], "")


def _waited_ms(now_ms: int, wait: LockWait | None, backend: Backend | None, blockers: tuple[Place, ...]) -> int | None:
    if not blockers:
        return None
    start_ms = wait.wait_start_ms if wait is not None else None
    if start_ms is None and backend is not None:
        start_ms = backend.query_start_ms
    return None if start_ms is None else max(now_ms - start_ms, 0)


def _order(wait: LockWait | None, node: Place) -> tuple[bool, int, int]:
    start_ms = None if wait is None else wait.wait_start_ms
    return start_ms is None, start_ms or 0, node[0]
