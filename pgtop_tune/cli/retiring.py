"""Journals that are damaged, not ours, or of servers that are gone: told of, and taken out of use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from pgtop_tune.changes.journal import JournalText, journals, read
from pgtop_tune.changes.journal import retire as renamed
from pgtop_tune.cli.connecting import can_ask
from pgtop_tune.cli.output import complain, say, tell
from pgtop_tune.errors import JournalProblem, UsageProblem
from pgtop_tune.paths import journal_dir

_NOTHING: Final = "none of its changes is in force"


def tell_of_damage(directory: Path | None) -> bool:
    """Says which journals are damaged or not used, and what to do about it; whether all can be used."""
    usable = True
    for path in journals(directory):
        try:
            problems = read(path).problems
        except JournalProblem as problem:
            complain(problem)
            usable = False
            continue
        for words in problems:
            tell(f"{path}: {words}")
        if problems:
            tell(f"its intact lines count; `pgtop-tune revert --retire {path}` takes the journal out of use")
    return usable


def retire(journal: Path, directory: Path | None, listed: Callable[[JournalText], list[str]], *, yes: bool) -> int:
    """Lists what a journal has in force, asks, and takes it out of use; nothing is changed on a server.

    Returns:
        The exit status.

    Raises:
        UsageProblem: There is no such journal, or nobody is there to be asked.
        JournalProblem: It is not ours, or is being written.
    """
    path = _found(journal, directory)
    try:
        text = read(path)
        lines = listed(text)
        say(text.server.description if text.server is not None else path.stem)
    except JournalProblem as problem:
        tell(f"it cannot be read: {problem.message}")
        lines = []
    for line in lines or [_NOTHING]:
        say(f"  {line}")
    if not yes:
        if not can_ask():
            raise UsageProblem("nothing would revert these changes any more", "pass --yes without a terminal")
        if input("take the journal out of use? [y/N] ").strip().lower() not in ("y", "yes"):
            say("no change was made")
            return 0
    say(f"retired: {renamed(path)}")
    return 0


def _found(journal: Path, directory: Path | None) -> Path:
    for path in journals(directory):
        if journal in (path, Path(path.name), Path(path.stem)) or journal.absolute() == path.absolute():
            return path
    where = directory or journal_dir()
    raise UsageProblem(f"{journal} is no journal in {where}", "`pgtop-tune revert --list` names servers and journals")
