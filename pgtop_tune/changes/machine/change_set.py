"""Several changes of the operating system as one: made together or not at all. Blocking."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.changes.journal import Journal
from pgtop_tune.changes.machine.announcements import Announcements
from pgtop_tune.changes.machine.one_change import Intent, make, take_back, taken
from pgtop_tune.changes.model.change import HostChange, WantedSetting
from pgtop_tune.host.system_settings import ALONG


def check_set(root: Path, wanted: Sequence[WantedSetting], known: Sequence[str], *, survive: bool) -> None:
    """Makes sure, before anything is touched, that a set makes sense on this machine; whether we may is another matter.

    Args:
        root: Where /proc and /sys are found.
        wanted: The set.
        known: Settings that are changed on this machine.
        survive: Whether our file of sysctl.d is written as well.

    Raises:
        UsageProblem: No such setting, a value that none takes, or two values of which the kernel keeps one.
        HostProblem: This kernel does not have it.
    """
    names = [each.name for each in wanted]
    for each in wanted:
        if each.name not in known:
            raise UsageProblem(f"{each.name!r} is not a setting of this machine that pgtop-tune changes")
        if names.count(each.name) > 1:
            raise UsageProblem(f"{each.name} is to be set twice at once", "leave one of the values out")
        for other in ALONG.get(each.name, ()):
            if other in names and each.name in ALONG.get(other, ()):
                raise UsageProblem(
                    f"{each.name} and {other} are alternatives: setting one makes the other 0",
                    "set one of them out",
                )
    for each in wanted:
        taken(root, each.name, each.value, survive=survive and not each.until_boot)


def make_set(
    journal: Journal,
    root: Path,
    wanted: Sequence[WantedSetting],
    *,
    survive: bool,
    intent: Intent,
    announced: Announcements,
) -> tuple[HostChange, ...]:
    """Makes the changes in the order given; when one is refused, those before it are taken back.

    Raises:
        HostProblem: The kernel refuses one; nothing is changed.
        JournalProblem: The journal could not be written; nothing is changed.
    """
    made: list[HostChange] = []
    try:
        for each in wanted:
            lasts = survive and not each.until_boot
            made.append(make(journal, root, each.name, each.value, survive=lasts, intent=intent, announced=announced))
    except PgtopError:
        for change in reversed(made):
            _withdraw(journal, root, change, announced)
        raise
    return tuple(made)


def _withdraw(journal: Journal, root: Path, change: HostChange, announced: Announcements) -> None:
    """What cannot be taken back now stays in the journal as in force, and the others are taken back."""
    try:
        take_back(journal, root, change, announced=announced)
    except PgtopError:
        pass
