"""Tables of the pages that `show` prints, by name, with the sections that their rows need."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli.commands.show import What
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Section
from pgtop_tune.tui.pages.listing import column_of
from pgtop_tune.tui.pages.page import PageColumn, PageTable

_WAITS_S: Final = 3.0
FINDING_S: Final = 10.0
"""A rule needs some thirty samples of a wait, and three of five seconds in which its condition holds."""


class ShownTable(Struct, frozen=True):
    """A table that can be shown.

    Attributes:
        subject: Word of the command line.
        module: Module that has it, below `pgtop_tune`.
        id: Id of the table.
        sections: Sections that its rows need; each is read twice for rates.
        seconds: Least time to sample.
    """

    subject: What
    module: str
    id: str
    sections: tuple[Section[Any], ...] = ()
    seconds: float = 0.0

    def load(self) -> PageTable:
        """Return the table; imports its page."""
        module = import_module(f"pgtop_tune.{self.module}")
        page = getattr(module, "PAGE", None)
        candidates = (*vars(module).values(), *(page.tables if page is not None else ()))
        return next(table for table in candidates if isinstance(table, PageTable) and table.id == self.id)


_STATEMENTS: Final = (sections.statement_counters, sections.statement_texts)
_WAL: Final = (sections.wal, sections.checkpoints, sections.wal_files, sections.archiver)

TABLES: Final = (
    ShownTable(What.SESSIONS, "tui.pages.sessions", "sessions", (sections.activity, sections.processes)),
    ShownTable(What.SESSIONS, "tui.pages.sessions", "connections", (sections.activity,)),
    ShownTable(What.SESSIONS, "tui.pages.sessions", "limits", (sections.activity, sections.database_limits)),
    ShownTable(What.LOCKS, "tui.pages.locks", "locks", (sections.activity, sections.locks)),
    ShownTable(What.LOCKS, "tui.pages.locks", "lock-types", (sections.lock_counters,), _WAITS_S),
    *(
        ShownTable(What.WAITS, "tui.pages.waits", f"waits-{name}", (sections.waits,), _WAITS_S)
        for name in ("events", "queries", "databases", "users", "types", "tail")
    ),
    ShownTable(What.STATEMENTS, "tui.pages.statements", "statements", _STATEMENTS),
    ShownTable(What.IO, "tui.pages.io", "io", (sections.io,)),
    ShownTable(What.IO, "tui.pages.io", "slru", (sections.slru,)),
    ShownTable(What.IO, "tui.pages.io", "databases", (sections.databases,)),
    ShownTable(What.WAL, "tui.pages.io", "wal", _WAL),
    ShownTable(What.WAL, "tui.pages.io", "archiver", (sections.archiver, sections.wal_files)),
    ShownTable(What.TABLES, "tui.pages.relations", "tables", (sections.relations,)),
    ShownTable(What.TABLES, "tui.pages.relations", "vacuum", (sections.relations,)),
    ShownTable(What.TABLES, "tui.pages.relations", "wraparound", (sections.database_limits,)),
    ShownTable(What.TABLES, "tui.pages.relations", "temp-files", (sections.temp_files,)),
    ShownTable(What.INDEXES, "tui.pages.relations", "indexes", (sections.relations,)),
    ShownTable(What.REPLICATION, "tui.pages.replication", "senders", (sections.replication,)),
    ShownTable(What.REPLICATION, "tui.pages.replication", "slots", (sections.slots,)),
    ShownTable(What.REPLICATION, "tui.pages.replication", "horizon", (sections.horizon, sections.slots)),
    ShownTable(What.REPLICATION, "tui.pages.replication", "prepared", (sections.horizon,)),
    ShownTable(What.REPLICATION, "tui.pages.replication", "subscriptions", (sections.subscriptions,)),
    ShownTable(What.PROGRESS, "tui.pages.relations", "progress", (sections.progress,)),
    ShownTable(What.HOST, "tui.pages.host", "figures", (sections.cpu, sections.memory)),
    ShownTable(What.HOST, "tui.pages.host", "processes", (sections.processes,)),
    ShownTable(What.HOST, "tui.pages.host", "disks", (sections.disks,)),
    ShownTable(What.HOST, "tui.pages.host", "file-systems", (sections.file_systems,)),
    ShownTable(What.HOST, "tui.pages.host", "network", (sections.network,)),
    ShownTable(What.HOST, "tui.pages.host", "numa", (sections.numa,)),
    ShownTable(What.HOST, "tui.pages.host", "cgroup", (sections.cgroup,)),
    ShownTable(What.FINDING, "cli.commands.show.finding", "finding", (sections.waits,), FINDING_S),
    ShownTable(What.PARAMETERS, "tui.pages.replication", "settings", (sections.parameters,)),
)
"""Of each word the first one is shown without --table."""


def tables_of(subject: What) -> tuple[ShownTable, ...]:
    """Return the tables of a word."""
    return tuple(table for table in TABLES if table.subject is subject)


def shown_table(subject: What, name: str) -> ShownTable:
    """Return the table of a word, or another one of it. Raises UsageProblem where it has none of that name."""
    tables = tables_of(subject)
    if not name:
        return tables[0]
    table = next((listed for listed in tables if name in (listed.id, listed.id.partition("-")[2])), None)
    if table is None:
        raise UsageProblem(f"{subject} has no table {name}", f"pass one of {', '.join(listed.id for listed in tables)}")
    return table


def columns_for_programs(table: PageTable) -> tuple[PageColumn, ...]:
    """Return the columns that have values: all but drawings."""
    return tuple(column for column in table.columns if column.for_programs is not None)


def chosen_columns(table: PageTable, names: Sequence[str]) -> tuple[PageColumn, ...]:
    """Return columns by their ids, in the order of these. Raises UsageProblem for an unknown one."""
    columns = [column_of(table, name) for name in names]
    for name, column in zip(names, columns, strict=True):
        if column is None or column.for_programs is None:
            ids = [listed.id for listed in columns_for_programs(table)]
            near = difflib.get_close_matches(name, ids, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise UsageProblem(f"{table.id} has no column {name}", f"{hint}columns: {', '.join(ids)}")
    return tuple(column for column in columns if column is not None)
