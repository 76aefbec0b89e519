"""Knobs of connections and locks.

Source: PostgreSQL documentation, "Connections and Authentication", "Client Connection Defaults", "Lock Management".
"""

from __future__ import annotations

from typing import Final

from pgtop_tune.advice.knobs.knob import Knob

KNOBS: Final[tuple[Knob, ...]] = (
    Knob(
        name="max_connections",
        group="connections",
        why="Maximum number of sessions. Beyond a few per core throughput falls; a pooler keeps their number low.",
        trades="Memory of each session, longer snapshots; a standby needs at least as many.",
        panes=("sessions", "host", "throughput"),
        steps=("50", "100", "200", "300", "400", "500", "800", "1000"),
        moves_with=("work_mem", "superuser_reserved_connections", "max_locks_per_transaction"),
    ),
    Knob(
        name="superuser_reserved_connections",
        group="connections",
        why="Slots reserved for superusers, so that an operator can connect when all others are in use.",
        trades="Fewer sessions for all other roles.",
        panes=("sessions",),
        steps=("1", "3", "5", "10"),
        moves_with=("max_connections", "reserved_connections"),
    ),
    Knob(
        name="reserved_connections",
        group="connections",
        why="Slots reserved for roles with pg_use_reserved_connections, such as monitoring.",
        trades="Fewer sessions for all other roles.",
        panes=("sessions",),
        steps=("0", "2", "5", "10"),
        moves_with=("max_connections",),
    ),
    Knob(
        name="idle_in_transaction_session_timeout",
        group="connections",
        why="Ends sessions that hold locks and snapshots while they do nothing.",
        trades="Applications must handle a terminated session.",
        panes=("sessions",),
        steps=("0", "10s", "30s", "1min", "5min", "10min"),
        special=(("0", "never"),),
    ),
    Knob(
        name="client_connection_check_interval",
        group="connections",
        why="Ends a running query when its client has disconnected.",
        trades="A system call now and then in long queries.",
        panes=("sessions",),
        steps=("0", "1s", "5s", "10s", "30s"),
        special=(("0", "noticed only at the end of the query"),),
    ),
    Knob(
        name="deadlock_timeout",
        group="connections",
        why="Length of a lock wait before the server checks for a deadlock and log_lock_waits reports it.",
        trades="Checking too early costs CPU under heavy contention.",
        panes=("budget", "sessions"),
        steps=("100ms", "200ms", "500ms", "1s", "2s", "5s"),
        moves_with=("log_lock_waits",),
    ),
    Knob(
        name="max_locks_per_transaction",
        group="connections",
        why="Sizes the lock table; many partitions or a large pg_dump need more.",
        trades="Shared memory; a standby needs at least as many.",
        panes=("budget",),
        steps=("64", "128", "256", "512", "1024"),
        moves_with=("max_connections",),
    ),
    Knob(
        name="max_files_per_process",
        group="connections",
        why="Files that a backend keeps open; with many relations and a low value it reopens files all the time.",
        trades="File descriptors of the machine, times the sessions.",
        panes=("host",),
        steps=("1000", "2000", "4000", "8000"),
    ),
)
