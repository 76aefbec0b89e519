"""Checks before a restart: a row for each condition that has kept a server from starting. Pure.

Source: documentation of huge_pages, shared_memory_size_in_huge_pages, "Linux Huge Pages", "Hot Standby"
(Administrator's Overview: the settings that must be no lower than on the primary).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import ServerProblem
from pgtop_tune.base.units import GB, about
from pgtop_tune.changes.model.change import joined_notes
from pgtop_tune.changes.model.change_set import RestartCheck, RestartVerdict
from pgtop_tune.changes.start.next_start import ValuesAfter
from pgtop_tune.changes.statements import elements
from pgtop_tune.cluster.dry_start import DryStart
from pgtop_tune.metrics.memory_rule import MemoryUse, work_mem_ceiling_bytes
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.host import HugePages

AS_ON_PRIMARY: Final = (
    "max_connections",
    "max_worker_processes",
    "max_wal_senders",
    "max_prepared_transactions",
    "max_locks_per_transaction",
)
"""A standby needs at least what its primary has of these."""
WAYS: Final = ("port", "listen_addresses", "unix_socket_directories")
"""Parameters that say where a server accepts connections."""
_BESIDE_BUFFERS: Final = 1.03
"""Factor of shared_buffers for the headers, hash table and other shared memory that come with it, roughly."""
_BYTES_OF_ONE: Final = {
    "shared_buffers": _BESIDE_BUFFERS,
    "min_dynamic_shared_memory": 1.0,
    "wal_buffers": 1.0,
    "track_activity_query_size": 1.0,
    "max_locks_per_transaction": 200.0,
    "pg_stat_statements.max": 280.0,
}
"""Bytes of shared memory per unit of the parameter: a byte, a lock (LOCK and PROCLOCK of lock.c) or an entry. Query
texts and locks are there for each process."""
_PROCESSES: Final = ("max_connections", "max_worker_processes", "max_wal_senders")
_SLOTS: Final = "autovacuum_worker_slots"
"""Since 18 room is made for these, and autovacuum_max_workers takes none (postinit.c, InitializeMaxBackends)."""
NEEDED: Final = (
    *AS_ON_PRIMARY,
    *_BYTES_OF_ONE,
    "shared_memory_size",
    "shared_memory_size_in_huge_pages",
    "huge_pages",
    "huge_page_size",
    "shared_preload_libraries",
    "work_mem",
    "hash_mem_multiplier",
    "autovacuum_max_workers",
    _SLOTS,
    *WAYS,
)
"""Parameters the checks look at."""
FILES: Final = "files"
"""Subject of the check that asks the server's own program and rules."""
_LOOPBACK: Final = frozenset({"localhost", "::1"})
_MUCH: Final = 0.8


class RestartFacts(Struct, frozen=True):
    """The facts for the checks.

    Attributes:
        major: Major version of the server.
        values: Values of the parameters, before and after.
        dry: Outcome of a trial start; the reason where none is possible.
        rule_refusal: Why the start fails by rules that no trial start covered; "" where it does not.
        memory_bytes: Memory of the machine; None where not known.
        group_bytes: The limit of the server's control group, which does not count huge pages (cgroup-v2.rst,
            memory_hugetlb_accounting); None for none.
        pool: Huge pages of the size that the server would use; None where there are none or they are another machine's.
        held_pages: Huge pages that the running server gives back when it ends, and that the kernel adds on demand.
        in_recovery: True for a standby.
        primary: Values of its primary by name, as pg_control keeps them; empty where not known.
        standbys: Number of standbys that stream from it.
        endpoint: host:port as connected.
        here: True when the server runs on this machine.
    """

    major: int
    values: ValuesAfter
    dry: DryStart | Unavailable
    rule_refusal: str = ""
    memory_bytes: int | None = None
    group_bytes: int | None = None
    pool: HugePages | None = None
    held_pages: int = 0
    in_recovery: bool = False
    primary: Mapping[str, int] | None = None
    standbys: int = 0
    endpoint: str = ""
    here: bool = True


def checks(facts: RestartFacts) -> tuple[RestartCheck, ...]:
    """Return the checks with a finding, in the order in which they would stop a server."""
    return tuple(check for rule in _RULES if (check := rule(facts)) is not None)


def check_possible(
    checked: Iterable[RestartCheck], apart_from: str = "", last_words: str = "nothing was changed"
) -> None:
    """Make sure that no check says that the server would not start.

    Args:
        checked: The checks.
        apart_from: Subject of a check that does not count.
        last_words: Of the hint.

    Raises:
        ServerProblem: A check does.
    """
    for check in checked:
        if check.verdict is RestartVerdict.IMPOSSIBLE and check.subject != apart_from:
            raise ServerProblem(check.words, joined_notes(check.hint, last_words))


def _files(facts: RestartFacts) -> RestartCheck:
    """Check configuration files and libraries, as the server's own programs read them."""
    refusal = facts.rule_refusal if isinstance(facts.dry, Unavailable) else facts.dry.refusal or facts.rule_refusal
    if refusal:
        return RestartCheck(FILES, RestartVerdict.IMPOSSIBLE, f"the server would not start: {refusal}")
    if isinstance(facts.dry, Unavailable):
        return RestartCheck(FILES, RestartVerdict.UNKNOWN, f"a start was not tried: {facts.dry.detail}")
    with_libraries = facts.dry.libraries and bool(facts.values.text("shared_preload_libraries"))
    libraries = " and finds its libraries" if with_libraries else ""
    return RestartCheck(FILES, RestartVerdict.FINE, f"the server reads its files{libraries}")


def _libraries(facts: RestartFacts) -> RestartCheck | None:
    """Check the libraries before 15: a dry start does not load them, and this role may not know their directory."""
    looked_for = isinstance(facts.dry, Unavailable) or facts.dry.libraries
    if looked_for or "shared_preload_libraries" not in facts.values.texts:
        return None
    message = "this role may not read the directory of PostgreSQL 14's libraries"
    return RestartCheck(
        subject="libraries",
        verdict=RestartVerdict.UNKNOWN,
        words=message,
        hint="GRANT EXECUTE ON FUNCTION pg_config() to this role",
    )


def _reach(facts: RestartFacts) -> RestartCheck | None:
    """Check whether a connection like ours still leads to the server."""
    values = facts.values
    if not any(name in values.texts for name in WAYS):
        return None
    addresses = [address.strip() for address in (values.text("listen_addresses") or "").split(",") if address.strip()]
    sockets = elements("unix_socket_directories", values.text("unix_socket_directories") or "") or ()
    if not facts.here and all(address in _LOOPBACK or address.startswith("127.") for address in addresses):
        message = "the server would accept local connections only, and pgtop-tune runs on another machine"
        return RestartCheck(
            subject="reach",
            verdict=RestartVerdict.IMPOSSIBLE,
            words=message,
            hint="keep an address in listen_addresses",
        )
    if not addresses and not sockets:
        message = "no client could connect: listen_addresses and unix_socket_directories would both be empty"
        return RestartCheck(subject="reach", verdict=RestartVerdict.IMPOSSIBLE, words=message, hint="set one of them")
    port = values.text("port")
    if not (sockets if facts.endpoint.startswith(("/", "@")) else addresses):
        remaining_ways = ", ".join(sockets or addresses)
        message = (
            f"a connection like this one would fail; pgtop-tune would continue through {remaining_ways}, port {port}"
        )
        return RestartCheck(
            subject="reach",
            verdict=RestartVerdict.DOUBTFUL,
            words=message,
            hint="pg_hba.conf must allow this role to connect there",
        )
    return RestartCheck(
        "reach", RestartVerdict.FINE, f"the server listens at {', '.join((*sockets, *addresses))}, port {port}"
    )


def _huge_pages(facts: RestartFacts) -> RestartCheck | None:
    huge_pages = (facts.values.text("huge_pages") or "").lower()
    needed = None if isinstance(facts.dry, Unavailable) else facts.dry.huge_pages
    if needed is None and facts.pool is not None:
        size = shared_memory_bytes(facts)
        needed = None if size is None else -int(-size // facts.pool.page_bytes)
    if huge_pages not in ("on", "try") or (huge_pages == "try" and (facts.pool is None or not facts.pool.total)):
        return None
    page_size = facts.values.number("huge_page_size")
    if huge_pages == "on" and facts.here and facts.pool is None and page_size:
        message = f"this machine has no huge pages of {about(page_size)}, and huge_pages=on: the server would not start"
        return RestartCheck("huge pages", RestartVerdict.IMPOSSIBLE, message)
    if needed is None or facts.pool is None:
        return RestartCheck(
            "huge pages", RestartVerdict.UNKNOWN, f"huge_pages={huge_pages}: the number of pages is unknown"
        )
    available_pages = max(facts.pool.free - facts.pool.reserved, 0) + facts.held_pages
    message = f"the server needs {needed} huge pages of {about(facts.pool.page_bytes)}; {available_pages} are available"
    if needed <= available_pages:
        return RestartCheck("huge pages", RestartVerdict.FINE, message)
    hint = (
        f"vm.nr_hugepages={facts.pool.total + needed - available_pages} makes room; if memory is fragmented, "
        "set it at boot"
    )
    if huge_pages == "on":
        return RestartCheck(
            subject="huge pages",
            verdict=RestartVerdict.IMPOSSIBLE,
            words=f"{message}, and huge_pages=on: the server would not start",
            hint=hint,
        )
    return RestartCheck(
        subject="huge pages",
        verdict=RestartVerdict.DOUBTFUL,
        words=f"{message}: the server would start without huge pages",
        hint=hint,
    )


def _fits_huge_pages(facts: RestartFacts) -> bool:
    pages = _huge_pages(facts)
    return pages is not None and pages.verdict is RestartVerdict.FINE


def _room_bytes(facts: RestartFacts, *, counts_group: bool) -> int | None:
    """Return the memory of the machine, or the limit of the server's group where that is less and counts."""
    limits = (facts.memory_bytes, facts.group_bytes if counts_group else None)
    return None if facts.memory_bytes is None else min(limit for limit in limits if limit is not None)


def shared_memory_bytes(facts: RestartFacts) -> float | None:
    """Return the shared memory after the restart: computed by the server, else the present size and the difference."""
    if not isinstance(facts.dry, Unavailable) and facts.dry.shared_memory_bytes is not None:
        return facts.dry.shared_memory_bytes
    after, now = _parts_of_memory(facts.values.number), _parts_of_memory(facts.values.number_now)
    if "shared_buffers" not in after:
        return None
    size_now = facts.values.number_now("shared_memory_size")
    beside = 0.0 if size_now is None else max(size_now - sum(now.values()), 0.0)
    return sum(after.values()) + beside


def _parts_of_memory(number: Callable[[str], float | None]) -> dict[str, float]:
    """Return bytes of shared memory by the parameter that sets them, never too many; see `_BYTES_OF_ONE`."""
    of_autovacuum = "autovacuum_max_workers" if number(_SLOTS) is None else _SLOTS
    processes = sum(number(name) or 0.0 for name in (*_PROCESSES, of_autovacuum))
    transactions = processes + (number("max_prepared_transactions") or 0.0)
    times = {"max_locks_per_transaction": transactions, "track_activity_query_size": processes}
    return {
        name: value * bytes_of_one * times.get(name, 1.0)
        for name, bytes_of_one in _BYTES_OF_ONE.items()
        if (value := number(name)) is not None
    }


def _largest_part(facts: RestartFacts) -> str:
    """Return the parameter that takes most; for the lock table the number of processes may be the cause."""
    parts = _parts_of_memory(facts.values.number)
    return max(parts, key=parts.__getitem__, default="shared_buffers")


def _shared_memory(facts: RestartFacts) -> RestartCheck:
    size, room = shared_memory_bytes(facts), _room_bytes(facts, counts_group=not _fits_huge_pages(facts))
    if size is None or room is None:
        return RestartCheck("shared memory", RestartVerdict.UNKNOWN, "the memory of the server's machine is unknown")
    message = f"the server needs {about(size)} of shared memory, of {about(room)}"
    if size >= room:
        return RestartCheck(
            subject="shared memory",
            verdict=RestartVerdict.IMPOSSIBLE,
            words=f"{message}: more than the machine has",
            hint=f"lower {_largest_part(facts)}",
        )
    if size >= _MUCH * room:
        return RestartCheck(
            "shared memory", RestartVerdict.DOUBTFUL, f"{message}: little is left for sessions and files"
        )
    return RestartCheck("shared memory", RestartVerdict.FINE, message)


def _memory_rule(facts: RestartFacts) -> RestartCheck | None:
    """Check the memory that sessions may take if all of them sort at once."""
    values = facts.values
    numbers = {name: values.number(name) for name in ("max_connections", "shared_buffers", "work_mem")}
    workers, multiplier = values.number("autovacuum_max_workers"), values.number("hash_mem_multiplier")
    connections, buffers, work_mem = numbers.values()
    room_bytes = _room_bytes(facts, counts_group=True)
    if not (connections and buffers and work_mem) or room_bytes is None or room_bytes < 3 * GB:
        return None
    if room_bytes == facts.group_bytes and _fits_huge_pages(facts):
        buffers = 0.0
    ceiling = work_mem_ceiling_bytes(
        MemoryUse(
            major=facts.major,
            ram_bytes=room_bytes,
            max_connections=int(connections),
            shared_buffers_bytes=int(buffers),
            autovacuum_max_workers=None if workers is None else int(workers),
            hash_mem_multiplier=multiplier,
        )
    )
    message = f"{connections:.0f} connections with work_mem {about(work_mem)}"
    if ceiling >= work_mem:
        return RestartCheck("memory", RestartVerdict.FINE, f"{message} fit beside the shared memory")
    room = f"{about(ceiling)} each" if ceiling > 0 else "nothing"
    return RestartCheck(
        subject="memory",
        verdict=RestartVerdict.DOUBTFUL,
        words=f"{message}: if all sort at once, there is room for {room}",
        hint="fewer connections, or less work_mem",
    )


def _standby(facts: RestartFacts) -> RestartCheck | None:
    """Check that a standby has at least the values of its primary, which raises them after its standbys."""
    changed = [name for name in AS_ON_PRIMARY if name in facts.values.texts]
    if facts.in_recovery:
        return _as_standby(facts, changed)
    raised = [
        name for name in changed if (facts.values.number(name) or 0) > (facts.values.number_now(name) or float("inf"))
    ]
    if not raised or not facts.standbys:
        return None
    return RestartCheck(
        subject="standby",
        verdict=RestartVerdict.DOUBTFUL,
        words=f"{facts.standbys} standby{'s' if facts.standbys > 1 else ''} must have at least as much of "
        f"{', '.join(raised)}"
        ", or their recovery stops",
        hint="raise the value on the standbys first",
    )


def _as_standby(facts: RestartFacts, changed: list[str]) -> RestartCheck | None:
    for name in changed:
        after, now = facts.values.number(name), facts.values.number_now(name)
        least = (facts.primary or {}).get(name)
        if after is None or now is None:
            continue
        if least is not None and after < least:
            message = f"this standby would not start: {name} = {after:.0f} is less than the primary's {least}"
            return RestartCheck(
                subject="standby",
                verdict=RestartVerdict.IMPOSSIBLE,
                words=message,
                hint="lower the value on the primary first",
            )
        if least is None and after < now:
            message = f"this standby does not start with less {name} than its primary, whose value is unknown"
            return RestartCheck(
                subject="standby", verdict=RestartVerdict.UNKNOWN, words=message, hint="check the primary first"
            )
    return RestartCheck("standby", RestartVerdict.FINE, "no less than on the primary") if changed else None


_RULES: Final[tuple[Callable[[RestartFacts], RestartCheck | None], ...]] = (
    _files,
    _libraries,
    _reach,
    _huge_pages,
    _shared_memory,
    _standby,
    _memory_rule,
)
