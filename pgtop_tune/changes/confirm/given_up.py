"""A revert watchdog that gives up says so in the journal: nobody reads what it prints."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from msgspec.structs import replace

from pgtop_tune.changes.journal import Journal, journals, read
from pgtop_tune.changes.model.change_set import Change
from pgtop_tune.errors import JournalProblem, PgtopError


def note_given_up(set_id: str, directory: Path | None, problem: PgtopError) -> None:
    """Writes to the changes of a set, in every journal, why they are still in force; no server is asked.

    Raises:
        JournalProblem: A journal that has it cannot be written.
    """
    words = f"the revert watchdog gave up at {datetime.now():%Y-%m-%d %H:%M}: {problem.message}"
    for path in journals(directory):
        try:
            text = read(path)
        except JournalProblem:
            # `revert` tells of it.
            continue
        known: tuple[Change, ...] = (*text.in_force, *text.host_in_force)
        if text.server is None or not any(set_id in (change.set_id, change.id) for change in known):
            continue
        with Journal(text.server, directory) as journal:
            text = journal.text()
            changes: tuple[Change, ...] = (*text.in_force, *text.host_in_force)
            for change in changes:
                if set_id in (change.set_id, change.id):
                    journal.write(replace(change, message=words))
