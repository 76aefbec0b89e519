"""Which columns of which table the operator wants to see, remembered from session to session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from pgtop_tune.paths import private, replacing, state_dir
from pgtop_tune.tui.pages.page import PageTable

_FILE: Final = "columns.json"
_LARGEST: Final = 1_000_000


class ColumnChoice:
    """Deviations from what the tables show by themselves, so that a column invented later appears.

    A file that cannot be read or makes no sense counts as empty; one that cannot be written costs the memory only.
    """

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, bool]] = _read(state_dir() / _FILE)

    def of(self, table: PageTable) -> frozenset[str]:
        """Ids of the columns to show; the key column always among them."""
        chosen = self._tables.get(table.id, {})
        shown = {column.id for column in table.columns if chosen.get(column.id, column.shown)}
        return frozenset(shown | {table.columns[0].id})

    def choose(self, table: PageTable, columns: frozenset[str]) -> str:
        """Remembers a choice.

        Returns:
            Why it will be forgotten with this session; "" when it was written down.
        """
        deviations = {
            column.id: column.id in columns for column in table.columns if (column.id in columns) != column.shown
        }
        path = state_dir() / _FILE
        # Another session may have chosen meanwhile, for another table.
        self._tables = _read(path) | {table.id: deviations}
        try:
            private(path.parent)
            with replacing(path) as file:
                file.write(json.dumps({"version": 1, "tables": self._tables}, indent=1).encode())
        except OSError as problem:
            return f"the choice of columns is not saved: {problem.strerror or problem}"
        return ""


def _read(path: Path) -> dict[str, dict[str, bool]]:
    try:
        with path.open("rb") as file:
            read: Any = json.loads(file.read(_LARGEST))
    except (OSError, ValueError, RecursionError):
        return {}
    tables = read.get("tables") if isinstance(read, dict) else None
    if not isinstance(tables, dict):
        return {}
    return {
        table: {name: shown for name, shown in columns.items() if isinstance(shown, bool)}
        for table, columns in tables.items()
        if isinstance(columns, dict)
    }
